//! Requests one by one, answered by gpunet-kv and by redis-server: every answer is the same, byte
//! by byte.

use crate::client::{Client, encode};
use crate::compare::Redis;
use crate::program::serve;
use std::net::SocketAddr;

const PARTS: &[&str] = &[
    // Parts of values.
    "SETRANGE r 5 hello",
    "GET r",
    "STRLEN r",
    "SETRANGE r 2 XY",
    "GET r",
    "SETRANGE r 0 ''",
    "SETRANGE no 3 ''",
    "EXISTS no",
    "SETRANGE no x ''",
    "SETRANGE no -1 ''",
    "SETRANGE no 1048576 ''",
    "SETRANGE no 1048576 x",
    "SETRANGE no 1048573 xyz",
    "SETRANGE no 9223372036854775807 x",
    "SETRANGE r 9223372036854775807 ''",
    "STRLEN no",
    "GETRANGE no -5 -1",
    "SETRANGE i 0",
    "SET i 1234",
    "EXPIRE i 100000",
    "SETRANGE i 1 x",
    "SETRANGE i 40 behind-it",
    "GET i",
    "PERSIST i",
    "INCR i",
    "GETRANGE i 1 -2",
    "GETRANGE i -2 -3",
    "GETRANGE i 3 1",
    "GETRANGE i 0 9223372036854775807",
    "GETRANGE i -9223372036854775808 1",
    "GETRANGE i 0 x",
    "SUBSTR i 0 2",
    "SUBSTR i 0",
    "APPEND i !",
    // Bits.
    "SETBIT b 7 1",
    "SETBIT b 7 0",
    "SETBIT b 100 1",
    "GET b",
    "GETBIT b 100",
    "GETBIT b 99",
    "GETBIT b 8388607",
    "GETBIT b 8388608",
    "GETBIT b -1",
    "GETBIT none 3",
    "GETBIT none x",
    "SETBIT b 8388608 1",
    "SETBIT b x 1",
    "SETBIT b 1 2",
    "SETBIT b 1 x",
    "SETBIT b x 2",
    "SETBIT big 8388607 1",
    "STRLEN big",
    "BITCOUNT big",
    "SET n foobar",
    "BITCOUNT n",
    "BITCOUNT n 0 0",
    "BITCOUNT n 1 1",
    "BITCOUNT n 1 1 BYTE",
    "BITCOUNT n 5 30 BIT",
    "BITCOUNT n 8 15 bit",
    "BITCOUNT n 0 7 BIT",
    "BITCOUNT n 3 3 BIT",
    "BITCOUNT n -8 -1 BIT",
    "BITCOUNT n -3 -9 BIT",
    "BITCOUNT n -3 -2",
    "BITCOUNT n 4 2 BIT",
    "BITCOUNT n 0 1000",
    "BITCOUNT n -1000 1000 BIT",
    "BITCOUNT n 0 1 WORD",
    "BITCOUNT n -1 -2 WORD",
    "BITCOUNT n 0",
    "BITCOUNT n x 1",
    "BITCOUNT n 0 x WORD",
    "BITCOUNT n 0 1 BIT more",
    "BITCOUNT none 0",
    "BITCOUNT none x 1",
    "BITCOUNT",
    // All or none.
    "MSETNX m1 a m2 b m1 c",
    "MGET m1 m2",
    "MSETNX m3 a m2 b",
    "EXISTS m3",
    "MSETNX m4",
    "MSETNX m4 a m5",
    "MULTI",
    "MSETNX t1 a t2 b",
    "MSETNX t2 a t3 b",
    "SETBIT t4 1 1",
    "GETBIT t4 1",
    "SETRANGE t5 1 x",
    "BITCOUNT t5",
    "EXEC",
    "MGET t1 t2 t3 t4 t5",
    // How a value would be kept.
    "SET e 12",
    "OBJECT ENCODING e",
    "SET e 012",
    "OBJECT ENCODING e",
    "SET e 12345678901234567890",
    "OBJECT ENCODING e",
    "SET e 01234567890123456789012345678901234567890123",
    "OBJECT ENCODING e",
    "SET e 012345678901234567890123456789012345678901234",
    "OBJECT encoding e",
    "OBJECT ENCODING none",
    "OBJECT REFCOUNT e",
    "OBJECT REFCOUNT none",
    "OBJECT FREQ e",
    "OBJECT FREQ none",
    "OBJECT IDLETIME none",
    "OBJECT ENCODING",
    "OBJECT ENCODING e e",
    "OBJECT NOSUCH e",
    "OBJECT",
    // Answers that are not wanted.
    "CLIENT REPLY",
    "CLIENT REPLY ON",
    "CLIENT REPLY MAYBE",
    "CLIENT REPLY ON OFF",
];

/// Words between spaces; `''` is an empty one.
fn request(words: &str) -> Vec<u8> {
    let words: Vec<_> =
        words.split(' ').map(|word| if word == "''" { "" } else { word }.as_bytes()).collect();
    encode(&words)
}

#[test]
fn parts_of_values_are_answered_as_redis_server_answers_them() {
    let Some(redis) = Redis::start() else { return };
    let server = serve(&[]);
    for protocol in ["HELLO 2", "HELLO 3"] {
        let [mut ours, mut theirs] = [server.addr, redis.addr].map(Client::connect);
        for client in [&mut ours, &mut theirs] {
            client.send(&request(protocol));
            client.answer();
            client.send(&request("FLUSHALL"));
            client.answer();
        }
        for words in PARTS {
            let answers = [&mut ours, &mut theirs].map(|client| {
                client.send(&request(words));
                client.answer()
            });
            assert_eq!(answers[0], answers[1], "{protocol}, {words}");
        }
    }
}

/// All that a client gets that switches answers off and on.
fn unanswered(addr: SocketAddr) -> String {
    let mut client = Client::connect(addr);
    let large = "v".repeat(300_000);
    let large_set = format!("SET large {large}");
    let requests = [
        large_set.as_str(),
        "CLIENT REPLY SKIP",
        "GET large",
        "PING 1",
        "CLIENT REPLY SKIP",
        "CLIENT REPLY SKIP",
        "PING skipped",
        "PING 2",
        "CLIENT REPLY OFF",
        "PING skipped",
        "GET large",
        "MGET large large none",
        "KEYS *",
        "SCAN 0",
        "GETRANGE large 0 -1",
        &format!("ECHO {large}"),
        "NOSUCH",
        "SET k 1",
        "INCR k",
        "MULTI",
        "INCR k",
        "GET large",
        "EXEC",
        "CLIENT REPLY SKIP",
        "INFO",
        "COMMAND DOCS",
        "CLIENT REPLY ON",
        "GET k",
        "CLIENT REPLY OFF",
        "RESET",
        "PING 3",
        "QUIT",
    ];
    requests.iter().for_each(|words| client.send(&request(words)));
    client.rest()
}

#[test]
fn who_wants_no_answers_gets_none() {
    let Some(redis) = Redis::start() else { return };
    let server = serve(&[]);
    let (ours, theirs) = (unanswered(server.addr), unanswered(redis.addr));
    assert_eq!(ours, theirs);
}
