//! Commands and their answers, on one connection and on several blocks.

use crate::client::{Client, encode};
use crate::program::{run, serve, stop};

#[test]
fn commands_are_answered_as_redis_answers_them() {
    let server = serve(&[]);
    let mut client = Client::connect(server.addr);
    for (words, answer) in [
        ("PING", "+PONG\r\n"),
        ("ping hello", "$5\r\nhello\r\n"),
        ("SET k v", "+OK\r\n"),
        ("SET k w NX", "$-1\r\n"),
        ("SET n w XX", "$-1\r\n"),
        ("SET k w XX PX 100000", "+OK\r\n"),
        ("TTL k", ":100\r\n"),
        ("PERSIST k", ":1\r\n"),
        ("TTL k", ":-1\r\n"),
        ("TTL no", ":-2\r\n"),
        ("SET k w EX 0", "-ERR invalid expire time in 'set' command\r\n"),
        ("SET k w EX x", "-ERR value is not an integer or out of range\r\n"),
        ("SET k w EX", "-ERR syntax error\r\n"),
        ("SET k w NX XX", "-ERR syntax error\r\n"),
        ("APPEND k xyz", ":4\r\n"),
        ("GET k", "$4\r\nwxyz\r\n"),
        ("STRLEN k", ":4\r\n"),
        ("INCR k", "-ERR value is not an integer or out of range\r\n"),
        ("SET i 9223372036854775806", "+OK\r\n"),
        ("INCR i", ":9223372036854775807\r\n"),
        ("INCR i", "-ERR increment or decrement would overflow\r\n"),
        ("DECR j", ":-1\r\n"),
        ("MSET a 1 b 2", "+OK\r\n"),
        ("MSET a", "-ERR wrong number of arguments for 'mset' command\r\n"),
        ("MSET a 1 b", "-ERR wrong number of arguments for 'mset' command\r\n"),
        ("MGET a no b", "*3\r\n$1\r\n1\r\n$-1\r\n$1\r\n2\r\n"),
        ("DEL a no b", ":2\r\n"),
        ("EXISTS k k no", ":2\r\n"),
        ("EXPIRE k -1", ":1\r\n"),
        ("EXISTS k", ":0\r\n"),
        ("DBSIZE", ":2\r\n"),
        ("SELECT 0", "+OK\r\n"),
        ("SELECT 16", "-ERR DB index is out of range\r\n"),
        ("COMMAND DOCS", "*0\r\n"),
        ("CONFIG GET save", "*2\r\n$4\r\nsave\r\n$0\r\n\r\n"),
        ("CLIENT ID", ":1\r\n"),
        ("GET", "-ERR wrong number of arguments for 'get' command\r\n"),
        ("NoSuch a b", "-ERR unknown command 'NoSuch', with args beginning with: 'a' 'b' \r\n"),
        ("FLUSHALL", "+OK\r\n"),
        ("DBSIZE", ":0\r\n"),
    ] {
        assert_eq!(client.say(words), answer, "{words}");
    }
    let info = client.say("INFO");
    for field in ["used_memory:", "maxmemory:16777216", "connected_clients:1", "evicted_keys:0"] {
        assert!(info.contains(field), "{info}");
    }
    assert_eq!(client.say("QUIT"), "+OK\r\n");
    assert_eq!(client.rest(), "");
    assert!(stop(server).out.contains("served 1 connections, "));
}

#[test]
fn inline_commands_are_words_on_a_line() {
    let server = serve(&[]);
    let mut client = Client::connect(server.addr);
    client.send(b"SET key value\r\n\r\nGET key\nPING\r\n");
    assert_eq!(
        [client.answer(), client.answer(), client.answer()],
        ["+OK\r\n", "$5\r\nvalue\r\n", "+PONG\r\n"]
    );
}

#[test]
fn values_are_binary_and_may_have_a_mebibyte() {
    let server = serve(&[]);
    let mut client = Client::connect(server.addr);
    for len in [0, 1, 16_383, 16_384, 100_000, 1 << 20] {
        let value: Vec<u8> = (0..len as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        assert_eq!(client.ask(&[b"SET", b"k\0\r\n", &value]), "+OK\r\n", "{len}");
        let expected = [format!("${len}\r\n").as_bytes(), &value, b"\r\n"].concat();
        assert!(client.ask(&[b"GET", b"k\0\r\n"]) == String::from_utf8_lossy(&expected), "{len}");
        assert!(client.ask(&[b"ECHO", &value]) == String::from_utf8_lossy(&expected), "{len}");
        let array = [b"*2\r\n", &expected[..], &expected].concat();
        assert!(client.ask(&[b"MGET", b"k\0\r\n", b"k\0\r\n"]) == String::from_utf8_lossy(&array), "{len}");
    }
    // One byte more is refused, as Redis refuses what is beyond its own limit.
    client.send(format!("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n${}\r\n", (1 << 20) + 1).as_bytes());
    assert_eq!(client.rest(), "-ERR Protocol error: invalid bulk length\r\n");
}

#[test]
fn requests_may_come_byte_by_byte_and_all_at_once() {
    let server = serve(&[]);
    let mut client = Client::connect(server.addr);
    for byte in encode(&[b"SET", b"key", b"value"]) {
        client.send(&[byte]);
    }
    assert_eq!(client.answer(), "+OK\r\n");
    let many: Vec<u8> = (0..5000).flat_map(|_| encode(&[b"INCR", b"count"])).collect();
    client.send(&many);
    for count in 1..=5000 {
        assert_eq!(client.answer(), format!(":{count}\r\n"));
    }
}

#[test]
fn a_client_that_reads_late_gets_everything() {
    let server = serve(&[]);
    let mut client = Client::connect(server.addr);
    let value = vec![b'x'; 500_000];
    assert_eq!(client.ask(&[b"SET", b"k", &value]), "+OK\r\n");
    for _ in 0..40 {
        client.send(&encode(&[b"GET", b"k"]));
    }
    // 20 MB wait for it, more than any ring or buffer holds; another one is served meanwhile, and the key changes.
    let mut other = Client::connect(server.addr);
    for _ in 0..20 {
        assert_eq!(other.say("PING"), "+PONG\r\n");
    }
    for _ in 0..40 {
        assert_eq!(client.answer().len(), "$500000\r\n\r\n".len() + 500_000);
    }
}

#[test]
fn blocks_share_the_keys() {
    let server = serve(&["--blocks", "3"]);
    let addr = server.addr;
    let clients: Vec<_> = (0..12)
        .map(|_| {
            std::thread::spawn(move || {
                let mut client = Client::connect(addr);
                for _ in 0..300 {
                    assert!(client.say("INCR shared").starts_with(':'));
                    assert!(client.say("APPEND log x").starts_with(':'));
                }
            })
        })
        .collect();
    for client in clients {
        client.join().unwrap();
    }
    let mut client = Client::connect(addr);
    assert_eq!(client.say("GET shared"), "$4\r\n3600\r\n");
    assert_eq!(client.say("STRLEN log"), ":3600\r\n");
    assert!(stop(server).out.contains("13 connections"));
}

#[test]
fn blocks_of_several_lanes_do_the_same() {
    let server = serve(&["--blocks", "2", "--threads", "3"]);
    let mut client = Client::connect(server.addr);
    let value = vec![b'y'; 40_000];
    assert_eq!(client.ask(&[b"SET", b"k", &value]), "+OK\r\n");
    assert_eq!(client.ask(&[b"GET", b"k"]).len(), 40_000 + 10);
    for count in 1..50 {
        assert_eq!(client.say("INCR i"), format!(":{count}\r\n"));
    }
    assert_eq!(client.say("MGET i no"), "*2\r\n$2\r\n49\r\n$-1\r\n");
}

#[test]
fn memory_is_bounded_and_old_keys_go() {
    let server = serve(&[]);
    let mut client = Client::connect(server.addr);
    let value = vec![b'z'; 10_000];
    for number in 0..3000 {
        assert_eq!(client.ask(&[b"SET", format!("k{number}").as_bytes(), &value]), "+OK\r\n", "{number}");
    }
    assert_eq!(client.say("EXISTS k0"), ":0\r\n");
    assert_eq!(client.say("EXISTS k2999"), ":1\r\n");
    let size: u32 = client.say("DBSIZE")[1..].trim().parse().unwrap();
    assert!((500..1100).contains(&size), "{size} of 10 kB in 16 MiB");
}

#[test]
fn the_demonstration_checks_itself() {
    let output = run(&["--demo", "--device", "cpu", "--clients", "3", "--json"]);
    let report = output.json();
    assert_eq!(report["rows"].as_array().unwrap().len(), 4, "{report}");
    assert!(
        report["rows"].as_array().unwrap().iter().all(|row| row["requests"].as_u64() > Some(0)),
        "{report}"
    );
    assert_eq!(
        (&report["checks"], &report["server"]["protocol_errors"]),
        (&36.into(), &0.into()),
        "{report}"
    );
}

#[test]
fn a_taken_port_is_said_clearly() {
    let server = serve(&[]);
    let output = run(&[&server.addr.to_string(), "--device", "cpu"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(output.err.contains("cannot listen on") && output.err.lines().count() == 1, "{}", output.err);
}
