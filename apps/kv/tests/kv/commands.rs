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
        ("EXPIRE k 100 GT", ":0\r\n"),
        ("EXPIRE k 100 LT", ":1\r\n"),
        ("EXPIRE k 200 LT", ":0\r\n"),
        ("EXPIRE k 200 GT", ":1\r\n"),
        ("EXPIRE k 300 GT LT", "-ERR GT and LT options at the same time are not compatible\r\n"),
        ("EXPIREAT k 4000000000", ":1\r\n"),
        ("EXPIREAT k 4000000000 GT", ":0\r\n"),
        ("PEXPIRETIME k", ":4000000000000\r\n"),
        ("EXPIRE k -1", ":1\r\n"),
        ("EXISTS k", ":0\r\n"),
        ("DBSIZE", ":2\r\n"),
        ("SELECT 0", "+OK\r\n"),
        ("SELECT 16", "-ERR DB index is out of range\r\n"),
        ("INCRBYFLOAT f 3.0e3", "$4\r\n3000\r\n"),
        ("INCRBYFLOAT f 0.1", "$6\r\n3000.1\r\n"),
        ("EXPIRE f 100", ":1\r\n"),
        ("INCRBYFLOAT f -3000.2", "$4\r\n-0.1\r\n"),
        ("TTL f", ":100\r\n"),
        ("INCRBYFLOAT f x", "-ERR value is not a valid float\r\n"),
        ("INCRBYFLOAT f inf", "-ERR increment would produce NaN or Infinity\r\n"),
        ("SET g word", "+OK\r\n"),
        ("INCRBYFLOAT g 1", "-ERR value is not a valid float\r\n"),
        ("DEL f g", ":2\r\n"),
        (
            "COMMAND DOCS nosuch del",
            "*2\r\n$3\r\ndel\r\n*6\r\n$7\r\nsummary\r\n$13\r\nDeletes keys.\r\n$5\r\nsince\r\n$5\r\n1.0.0\r\n$5\r\ngroup\r\n$7\r\ngeneric\r\n",
        ),
        (
            "COMMAND INFO getset nosuch",
            "*2\r\n*10\r\n$6\r\ngetset\r\n:3\r\n*3\r\n+write\r\n+denyoom\r\n+fast\r\n:1\r\n:1\r\n:1\r\n*0\r\n*0\r\n*0\r\n*0\r\n$-1\r\n",
        ),
        ("COMMAND GETKEYS MSET a 1 b 2", "*2\r\n$1\r\na\r\n$1\r\nb\r\n"),
        ("COMMAND GETKEYS PING x", "-ERR The command has no key arguments\r\n"),
        (
            "CONFIG GET max*y",
            "*4\r\n$9\r\nmaxmemory\r\n$8\r\n16777216\r\n$16\r\nmaxmemory-policy\r\n$11\r\nallkeys-lru\r\n",
        ),
        (
            "CONFIG SET save x",
            "-ERR CONFIG SET failed (possibly related to argument 'save') - can't set immutable config\r\n",
        ),
        ("CONFIG SET databases 16 appendonly no", "+OK\r\n"),
        ("CONFIG SET nosuch 1", "-ERR Unknown option or number of arguments for CONFIG SET - 'nosuch'\r\n"),
        ("FUNCTION FLUSH", "+OK\r\n"),
        ("CONFIG GET save", "*2\r\n$4\r\nsave\r\n$0\r\n\r\n"),
        ("CLIENT ID", ":1\r\n"),
        ("CLIENT SETNAME me", "+OK\r\n"),
        ("GET", "-ERR wrong number of arguments for 'get' command\r\n"),
        ("NoSuch a b", "-ERR unknown command 'NoSuch', with args beginning with: 'a' 'b' \r\n"),
        ("FLUSHALL", "+OK\r\n"),
        ("DBSIZE", ":0\r\n"),
    ] {
        assert_eq!(client.say(words), answer, "{words}");
    }
    let (count, all) = (client.say("COMMAND COUNT"), client.say("COMMAND"));
    assert_eq!(format!(":{}\r\n", all.matches("*10\r\n").count()), count);
    let info = client.say("CLIENT INFO");
    assert!(info.contains(" name=me age=") && info.ends_with(" resp=2\n\r\n"), "{info}");
    let docs = client.say("COMMAND DOCS");
    assert_eq!(format!(":{}\r\n", docs.matches("$7\r\nsummary\r\n").count()), count);
    let names = " a".repeat(257);
    assert!(client.say(&format!("COMMAND INFO{names}")).starts_with("-ERR too many"));
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
    // 20 MB wait for it, more than any ring or buffer holds; another one is served meanwhile, and
    // the key changes.
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

#[test]
fn scan_finds_each_key_that_is_there_all_the_time() {
    let server = serve(&["--blocks", "2"]);
    let (mut client, mut other) = (Client::connect(server.addr), Client::connect(server.addr));
    (0..2000).for_each(|number| assert_eq!(client.say(&format!("SET stays:{number} x")), "+OK\r\n"));
    client.say("VADD vectors VALUES 2 1 0 east");
    let (mut cursor, mut found, mut step) = ("0".to_owned(), Vec::new(), 0);
    loop {
        // Keys come and go meanwhile.
        other.say(&format!("SET comes:{step} x"));
        other.say(&format!("DEL comes:{}", step / 2));
        let answer = client.say(&format!("SCAN {cursor} MATCH stays:* COUNT 50"));
        let mut lines = answer.lines().filter(|line| !line.starts_with(['$', '*']));
        cursor = lines.next().unwrap().to_owned();
        found.extend(lines.map(str::to_owned));
        step += 1;
        if cursor == "0" {
            break;
        }
    }
    found.sort();
    let mut expected: Vec<_> = (0..2000).map(|number| format!("stays:{number}")).collect();
    expected.sort();
    assert_eq!(found, expected);
    assert!(client.say("KEYS stays:1[0-1]?").starts_with("*20\r\n"));
    assert_eq!(client.say("KEYS vec*"), "*1\r\n$7\r\nvectors\r\n");
    assert_eq!(
        (client.say("TYPE vectors"), client.say("TYPE stays:1")),
        ("+vectorset\r\n".into(), "+string\r\n".into())
    );
    assert_eq!(client.say("SCAN 0 TYPE vectorset COUNT 100000"), "*2\r\n$1\r\n0\r\n*1\r\n$7\r\nvectors\r\n");
    assert_eq!(client.say("RENAME vectors other"), "-ERR a set of vectors cannot be renamed\r\n");
}

#[test]
fn old_values_are_answered_whole_whatever_becomes_of_the_key() {
    let server = serve(&["--memory", "64M"]);
    let mut client = Client::connect(server.addr);
    let (one, two) = (vec![b'1'; 1 << 20], vec![b'2'; 1 << 20]);
    let bulk = |value: &[u8]| format!("$1048576\r\n{}\r\n", String::from_utf8_lossy(value));
    assert_eq!(client.ask(&[b"SET", b"k", &one]), "+OK\r\n");
    assert_eq!(client.ask(&[b"SET", b"k", &two, b"GET"]), bulk(&one));
    assert_eq!(client.ask(&[b"GETSET", b"k", &one]), bulk(&two));
    assert_eq!(client.ask(&[b"GETEX", b"k", b"EX", b"100"]), bulk(&one));
    assert_eq!(client.say("TTL k"), ":100\r\n");
    assert_eq!(client.ask(&[b"SET", b"k", &two, b"GET", b"KEEPTTL"]), bulk(&one));
    assert_eq!(
        (client.say("TTL k"), client.ask(&[b"RENAME", b"k", b"other"])),
        (":100\r\n".into(), "+OK\r\n".into())
    );
    assert_eq!(
        (client.say("TTL other"), client.ask(&[b"GETDEL", b"other"])),
        (":100\r\n".into(), bulk(&two))
    );
    assert_eq!((client.say("GET other"), client.say("DBSIZE")), ("$-1\r\n".into(), ":0\r\n".into()));
    assert!(client.say("INFO memory").contains("used_memory:0\r\n"), "{}", client.say("INFO memory"));
}

#[test]
fn a_random_key_is_one_of_the_database() {
    let server = serve(&["--blocks", "2"]);
    let mut client = Client::connect(server.addr);
    assert_eq!(client.say("RANDOMKEY"), "$-1\r\n");
    client.say("SET other 1");
    client.say("SELECT 1");
    // Through all buckets: there are keys, but none of this database.
    assert_eq!(client.say("RANDOMKEY"), "$-1\r\n");
    client.say("MSET one 1 two 2 three 3");
    let mut seen = std::collections::BTreeSet::new();
    while seen.len() < 3 {
        seen.insert(client.say("RANDOMKEY"));
    }
    let expected = ["$3\r\none\r\n", "$3\r\ntwo\r\n", "$5\r\nthree\r\n"].map(String::from);
    assert_eq!(seen, expected.into());
    // One of many.
    let pairs: Vec<_> =
        (0..2000).flat_map(|number| [format!("k{number}").into_bytes(), b"v".to_vec()]).collect();
    client.ask(&std::iter::once(&b"MSET"[..]).chain(pairs.iter().map(Vec::as_slice)).collect::<Vec<_>>());
    seen.clear();
    while seen.len() < 100 {
        let key = client.say("RANDOMKEY");
        let name = key.lines().nth(1).unwrap_or_default().to_owned();
        assert!(client.say(&format!("GET {name}")).len() > 5, "{name}");
        seen.insert(name);
    }
    // Of one that has expired nobody knows before it is touched.
    client.say("FLUSHDB");
    client.say("SET k v PX 1");
    while client.say("RANDOMKEY") != "$-1\r\n" {}
    // A long one, and the empty one.
    client.say("FLUSHDB");
    let key = vec![b'k'; 60_000];
    client.ask(&[b"SET", &key, b"v"]);
    assert_eq!(client.say("RANDOMKEY").len(), 60_000 + "$60000\r\n\r\n".len());
    client.say("FLUSHDB");
    client.ask(&[b"SET", b"", b"v"]);
    assert_eq!(client.say("RANDOMKEY"), "$0\r\n\r\n");
    assert!(client.say("INFO memory").contains("client_request_memory:0\r\n"));
}
