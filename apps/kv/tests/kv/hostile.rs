//! Clients that break the protocol, take their time, or come in crowds: each gets an error or a
//! limit, and others are served.

use crate::client::{Client, encode};
use crate::process::Server;
use crate::program::{serve, stop};

/// Checks that another client is served.
fn others_are_served(server: &Server) {
    let mut client = Client::connect(server.addr);
    assert_eq!(client.say("SET innocent 1"), "+OK\r\n");
    assert_eq!(client.say("GET innocent"), "$1\r\n1\r\n");
}

#[test]
fn malformed_requests_get_an_error_and_the_end() {
    let server = serve(&["--blocks", "1"]);
    for (bytes, error) in [
        (&b"*x\r\n"[..], "invalid multibulk length"),
        (b"*1048577\r\n", "invalid multibulk length"),
        (b"*1\r\nPING\r\n", "expected '$', got 'P'"),
        (b"*1\r\n$-5\r\n", "invalid bulk length"),
        (b"*2\r\n$3\r\nGET\r\n$99999999999\r\n", "invalid bulk length"),
        (b"GET \"k\r\n", "unbalanced quotes in request"),
    ] {
        let mut client = Client::connect(server.addr);
        client.send(&encode(&[b"PING"]));
        client.send(bytes);
        assert_eq!(client.rest(), format!("+PONG\r\n-ERR Protocol error: {error}\r\n"));
        others_are_served(&server);
    }
    let output = stop(server);
    assert!(output.out.contains("6 protocol errors"), "{}", output.out);
    assert!(output.err.contains("protocol error: invalid bulk length"), "the kernel's log: {}", output.err);
}

#[test]
fn lines_without_end_get_an_error_and_the_end() {
    let server = serve(&["--blocks", "1"]);
    for start in ["GET ", "*1", "*1\r\n$1"] {
        let mut client = Client::connect(server.addr);
        let endless = [start.as_bytes(), &vec![b'1'; 70_000]].concat();
        client.send(&endless);
        let answer = client.rest();
        assert!(answer.starts_with("-ERR Protocol error: too big ") || answer.is_empty(), "{answer}");
        others_are_served(&server);
    }
    assert!(stop(server).out.contains("3 protocol errors"));
}

#[test]
fn a_request_of_many_mebibytes_is_refused() {
    let server = serve(&["--blocks", "1"]);
    let mut client = Client::connect(server.addr);
    let value = vec![b'v'; 1 << 20];
    client.send(&encode(&[b"MSET", b"a", &value, b"b", &value]));
    assert_eq!(client.answer(), "+OK\r\n");
    client.send(b"*1000000\r\n");
    assert_eq!(client.rest(), "-ERR Protocol error: too big request\r\n");
    others_are_served(&server);
}

#[test]
fn half_a_request_and_silence_has_a_limit() {
    let server = serve(&["--blocks", "1", "--request-timeout", "1"]);
    let mut halves: Vec<_> = ["*2\r\n$3\r\nGE", "GET ke", "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$900000\r\nxyz"]
        .iter()
        .map(|half| {
            let mut client = Client::connect(server.addr);
            client.send(half.as_bytes());
            client
        })
        .collect();
    let mut idle = Client::connect(server.addr);
    assert_eq!(idle.say("PING"), "+PONG\r\n");
    others_are_served(&server);
    for client in &mut halves {
        assert_eq!(client.rest(), "", "it is closed");
    }
    // Silence between requests is no offence.
    assert_eq!(idle.say("PING"), "+PONG\r\n");
    let output = stop(server);
    assert!(output.out.contains("3 closed by limits"), "{}", output.out);
    assert!(output.err.contains("its request does not end"), "{}", output.err);
}

#[test]
fn a_slow_client_holds_up_no_other_and_has_a_limit() {
    let server = serve(&["--blocks", "1", "--request-timeout", "1"]);
    let addr = server.addr;
    let slow = std::thread::spawn(move || {
        use std::io::Write;
        let mut stream = std::net::TcpStream::connect(addr).unwrap();
        // One byte at a time, for longer than the limit.
        for byte in encode(&[b"SET", b"slow", &[b'x'; 2000]]) {
            if stream.write_all(&[byte]).is_err() {
                return true;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        false
    });
    let mut client = Client::connect(addr);
    let mut served = 0;
    while !slow.is_finished() {
        assert_eq!(client.say("PING"), "+PONG\r\n");
        served += 1;
    }
    assert!(slow.join().unwrap(), "it was cut off");
    assert!(served > 10, "{served}");
    assert_eq!(client.say("EXISTS slow"), ":0\r\n");
}

#[test]
fn a_client_that_never_reads_holds_up_no_other_and_has_a_limit() {
    let server = serve(&["--blocks", "1", "--request-timeout", "1"]);
    let mut client = Client::connect(server.addr);
    let value = vec![b'x'; 1 << 20];
    assert_eq!(client.ask(&[b"SET", b"k", &value]), "+OK\r\n");
    // More than all buffers on the way hold.
    for _ in 0..64 {
        client.send(&encode(&[b"GET", b"k"]));
    }
    others_are_served(&server);
    let mut other = Client::connect(server.addr);
    // Until it has been cut off: its end is bounded by the server's limit of a second.
    while !other.say("INFO").contains("connected_clients:1\r\n") {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(stop(server).err.contains("it takes none of its answers"));
}

#[test]
fn two_thousand_clients_are_served() {
    let server = serve(&["--connections", "2100"]);
    let mut clients: Vec<_> = (0..2000).map(|_| Client::connect(server.addr)).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(&encode(&[b"SET", format!("k{number}").as_bytes(), b"v"]));
    }
    for client in clients.iter_mut().rev() {
        assert_eq!(client.answer(), "+OK\r\n");
    }
    assert_eq!(clients[7].say("DBSIZE"), ":2000\r\n");
}

#[test]
fn more_clients_than_there_is_room_for_wait_for_their_turn() {
    let server = serve(&["--connections", "4", "--blocks", "2"]);
    let mut clients: Vec<_> = (0..4).map(|_| Client::connect(server.addr)).collect();
    for client in &mut clients {
        assert_eq!(client.say("PING"), "+PONG\r\n");
    }
    let mut late = Client::connect(server.addr);
    late.send(&encode(&[b"PING"]));
    drop(clients);
    assert_eq!(late.answer(), "+PONG\r\n");
}

#[test]
fn clients_that_come_and_go_leave_nothing_behind() {
    let server = serve(&["--connections", "8"]);
    for number in 0..300u32 {
        let mut client = Client::connect(server.addr);
        match number % 3 {
            0 => assert_eq!(client.say("PING"), "+PONG\r\n"),
            // In the middle of a request, short or long.
            1 => client.send(b"*2\r\n$3\r\nGET\r\n$2"),
            _ => client.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$500000\r\nbegun"),
        }
    }
    let mut client = Client::connect(server.addr);
    // Until the last of them is gone, with the memory that it held.
    while !client.say("INFO").contains("connected_clients:1\r\n") {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(client.say("INFO").contains("used_memory:0\r\n"));
    assert!(stop(server).out.contains("301 connections"));
}

#[test]
fn a_request_of_http_ends_the_connection_without_another_command() {
    let server = serve(&["--blocks", "1"]);
    for (request, answer) in [
        ("POST / HTTP/1.1\r\nSET planted 1\r\n", ""),
        (
            "GET / HTTP/1.1\r\nHost: localhost\r\nSET planted 1\r\n",
            "-ERR wrong number of arguments for 'get' command\r\n",
        ),
        ("*1\r\n$4\r\npost\r\nSET planted 1\r\n", ""),
        ("MULTI\r\nSET planted 1\r\nhost: x\r\nEXEC\r\n", "+OK\r\n+QUEUED\r\n"),
    ] {
        let mut client = Client::connect(server.addr);
        client.send(request.as_bytes());
        // What was answered before is delivered, unless the client is reset because it has sent
        // more.
        assert!(answer.starts_with(&client.rest()), "{request}");
        assert_eq!(Client::connect(server.addr).say("EXISTS planted"), ":0\r\n", "{request}");
    }
    let output = stop(server);
    assert!(
        output.out.contains("4 protocol errors") && output.err.contains("it speaks HTTP"),
        "{}{}",
        output.out,
        output.err
    );
}

/// A pipeline of SET and GET of a value of 1,000 bytes, and its answers.
fn pipeline(pairs: usize) -> (Vec<u8>, Vec<u8>) {
    let value = |number: usize| format!("{number:01000}").into_bytes();
    let requests = (0..pairs).flat_map(|number| {
        let key = format!("key {}", number % 5000).into_bytes();
        [encode(&[b"SET", &key, &value(number)]), encode(&[b"GET", &key])].concat()
    });
    let answers = (0..pairs).flat_map(|number| [&b"+OK\r\n$1000\r\n"[..], &value(number), b"\r\n"].concat());
    (requests.collect(), answers.collect())
}

#[test]
fn a_long_pipeline_may_be_written_before_it_is_read() {
    use std::io::{Read, Write};
    let server = serve(&["--blocks", "1", "--memory", "64M"]);
    for pairs in [12_000, 20_000] {
        let (requests, expected) = pipeline(pairs);
        let mut stream = std::net::TcpStream::connect(server.addr).unwrap();
        stream.write_all(&requests).unwrap();
        others_are_served(&server);
        let mut found = vec![0; expected.len()];
        stream.read_exact(&mut found).unwrap();
        assert!(found == expected, "{pairs}");
    }
    let mut client = Client::connect(server.addr);
    assert!(client.say("INFO memory").contains("client_output_memory:0\r\n"));
    drop(client);
    assert!(stop(server).out.contains(", 0 closed by limits"));
}

#[test]
fn who_reads_while_it_writes_has_no_limit_of_answers() {
    use std::io::{Read, Write};
    let server = serve(&["--blocks", "1", "--memory", "64M", "--output-limit", "4M"]);
    let (requests, expected) = pipeline(40_000);
    let mut reader = std::net::TcpStream::connect(server.addr).unwrap();
    let mut writer = reader.try_clone().unwrap();
    let thread = std::thread::spawn(move || writer.write_all(&requests).unwrap());
    let mut found = vec![0; expected.len()];
    for piece in found.chunks_mut(1 << 20) {
        reader.read_exact(piece).unwrap();
    }
    thread.join().unwrap();
    assert!(found == expected);
    assert!(stop(server).out.contains(", 0 closed by limits"));
}

#[test]
fn answers_that_nobody_reads_have_a_limit_for_each_client_and_for_all() {
    for (args, log, fields) in [
        (&["--output-limit", "4M"][..], "its answers have reached the limit of a connection", [1, 0]),
        (&["--output-memory", "4M"], "answers have reached the limit of all connections", [0, 1]),
    ] {
        let server = serve(&[&["--blocks", "1"], args].concat());
        let addr = server.addr;
        let greedy = std::thread::spawn(move || {
            use std::io::Write;
            let mut stream = std::net::TcpStream::connect(addr).unwrap();
            let requests = encode(&[b"ECHO", &[b'x'; 1000]]).repeat(50_000);
            stream.write_all(&requests).is_err()
        });
        assert!(greedy.join().unwrap(), "it is closed");
        others_are_served(&server);
        let info = Client::connect(server.addr).say("INFO");
        let [each, all] = fields;
        assert!(info.contains(&format!("client_output_memory_limit_disconnections:{each}\r\n")), "{info}");
        assert!(
            info.contains(&format!("client_output_memory_limit_total_disconnections:{all}\r\n")),
            "{info}"
        );
        assert!(info.contains("client_output_memory:0\r\n"), "{info}");
        let output = stop(server);
        assert!(
            output.out.contains("1 closed by limits") && output.err.contains(log),
            "{}{}",
            output.out,
            output.err
        );
    }
}

#[test]
fn requests_that_do_not_end_leave_others_their_keys() {
    use std::io::Write;
    let server = serve(&["--blocks", "1", "--connections", "128", "--request-memory", "32M"]);
    let mut client = Client::connect(server.addr);
    let value = vec![b'v'; 1000];
    for number in 0..1000 {
        assert_eq!(client.ask(&[b"SET", format!("key {number}").as_bytes(), &value]), "+OK\r\n");
    }
    // 3.9 MB of four, the last of which does not end.
    let value = vec![b'x'; 1_000_000];
    let arguments: [&[u8]; 9] = [b"MSET", b"a", &value, b"b", &value, b"c", &value, b"d", &value];
    let request = encode(&arguments);
    let halves: Vec<_> = (0..64)
        .map(|_| {
            let mut stream = std::net::TcpStream::connect(server.addr).unwrap();
            // Who is refused is not read any more.
            let _ = stream.write_all(&request[..request.len() - 100_000]);
            stream
        })
        .collect();
    assert_eq!(client.say("DBSIZE"), ":1000\r\n");
    assert!(client.say("INFO stats").contains("evicted_keys:0\r\n"));
    // A transaction and a name are kept, too.
    let mut greedy = Client::connect(server.addr);
    assert_eq!(greedy.say("MULTI"), "+OK\r\n");
    greedy.send(&encode(&[b"SET", b"k", &value[..900_000]]).repeat(40));
    let answers: Vec<_> = (0..40).map(|_| greedy.answer()).collect();
    assert!(answers.iter().any(|answer| answer.starts_with("-OOM")), "{:?}", answers.last());
    assert_eq!(client.say("DBSIZE"), ":1000\r\n");
    // Whatever there is they have tried to take, in pieces of any size. There is some for another
    // one, though not for every request.
    let mut more = Vec::new();
    for len in [600_000, 200_000, 100_000, 40_000, 20_000] {
        more.extend((0..10).map(|_| {
            let mut stream = std::net::TcpStream::connect(server.addr).unwrap();
            let _ = stream.write_all(&encode(&[b"SET", b"k", &value[..len]])[..len]);
            stream
        }));
    }
    let mut other = Client::connect(server.addr);
    assert_eq!(other.ask(&[b"SET", b"k", &value[..50_000]]), "+OK\r\n");
    assert_eq!(other.say("MULTI"), "+OK\r\n");
    assert_eq!(other.say("DEL k"), "+QUEUED\r\n");
    assert_eq!(other.say("EXEC"), "*1\r\n:1\r\n");
    assert_eq!(client.say("DBSIZE"), ":1000\r\n");
    drop((halves, more, greedy, other));
    let none = "client_request_memory:0\r\n";
    while !client.say("INFO memory").contains(none) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(client.ask(&[b"MSET", b"a", &value, b"b", &value]), "+OK\r\n");
    drop(client);
    let log = stop(server).err;
    assert!(log.contains("its requests under way would leave others too little memory"), "{log}");
}

/// Lets a client carry out a request while another one of the same block asks how many keys there
/// are. Returns what that one has seen, and the answer.
fn beside(client: &mut Client, server: &Server, request: &[u8]) -> (Vec<String>, String) {
    use std::sync::atomic::{AtomicBool, Ordering};
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let (mut other, mut seen) = (Client::connect(server.addr), Vec::new());
            while !is_done.load(Ordering::Acquire) {
                seen.push(other.say("DBSIZE"));
            }
            seen
        });
        client.send(request);
        let answer = client.answer();
        is_done.store(true, Ordering::Release);
        (other.join().unwrap(), answer)
    })
}

/// How many turns a block with one connection gives it for a request, one at least; and the answer.
/// Between two turns of a connection all others have theirs.
fn turns_of(client: &mut Client, request: &[u8]) -> (u64, String) {
    let info = encode(&[b"INFO", b"stats"]);
    client.send(&[&info, request, &info].concat());
    let before = turns(client);
    let answer = client.answer();
    (turns(client) - before + 1, answer)
}

/// Reads an answer to INFO: the turns of the block.
fn turns(client: &mut Client) -> u64 {
    let info = client.answer();
    let line = info.lines().find_map(|line| line.strip_prefix("block_turns:"));
    line.expect("the turns of the block").parse().expect("a number")
}

#[test]
fn a_search_ends_no_turn_in_which_nothing_else_is_asked() {
    let server = serve(&["--blocks", "1"]);
    let mut client = Client::connect(server.addr);
    assert_eq!(client.say("VADD set VALUES 2 1 0 a"), ":1\r\n");
    let info = encode(&[b"INFO", b"stats"]);
    // A block waits in its turn for the next request of its only connection, as long as that does
    // not take long.
    let is_seen = (0..1000).any(|_| {
        client.send(&info);
        let before = turns(&mut client);
        assert_eq!(client.say("VSIM set ELE a"), "*1\r\n$1\r\na\r\n");
        client.send(&info);
        turns(&mut client) == before
    });
    assert!(is_seen, "each search has ended its turn");
}

#[test]
fn a_search_of_many_vectors_gives_others_their_turns() {
    const DIM: usize = 2048;
    let server = serve(&["--blocks", "1", "--memory", "32M"]);
    let mut client = Client::connect(server.addr);
    // They point the less in the first direction the later they come.
    let vector = |number: usize| -> Vec<u8> {
        let numbers = [1.0f32, number as f32 / 100.0].into_iter().chain(std::iter::repeat(0.0));
        numbers.take(DIM).flat_map(f32::to_le_bytes).collect()
    };
    for number in 0..600 {
        let name = format!("v{number}");
        client.send(&encode(&[b"VADD", b"set", b"FP32", &vector(number), name.as_bytes()]));
        assert_eq!(client.answer(), ":1\r\n");
    }
    let nearest = |from: usize| -> String {
        let names = (from..from + 10).map(|number| format!("v{number}"));
        let items = names.map(|name| format!("${}\r\n{name}\r\n", name.len()));
        format!("*10\r\n{}", items.collect::<String>())
    };
    let (turns, answer) = turns_of(&mut client, &encode(&[b"VSIM", b"set", b"ELE", b"v0"]));
    assert!(answer == nearest(0) && turns >= 10, "{turns} turns: {answer}");
    assert_eq!(client.say("VSIM set ELE v0 COUNT 600").lines().count(), 1201);
    // The first ones go while others search: each answer is of the set as it was at some time.
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (done, nearest, addr) = (&is_done, &nearest, server.addr);
        let search = encode(&[b"VSIM", b"set", b"FP32", &vector(0)]);
        scope.spawn(move || {
            let (mut client, mut from) = (Client::connect(addr), 0);
            while !done.load(std::sync::atomic::Ordering::Acquire) {
                client.send(&search);
                let answer = client.answer();
                from +=
                    (0..=60).position(|more| answer == nearest(from + more)).expect("no name is left out");
            }
        });
        for number in 0..60 {
            assert_eq!(client.say(&format!("VREM set v{number}")), ":1\r\n");
        }
        is_done.store(true, std::sync::atomic::Ordering::Release);
    });
    // One that ends meanwhile leaves nothing behind.
    for _ in 0..20 {
        let mut other = Client::connect(server.addr);
        other.send(&encode(&[b"VSIM", b"set", b"ELE", b"v100"]));
    }
    while !client.say("INFO").contains("connected_clients:1\r\n") {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert_eq!(client.say("DEL set"), ":1\r\n");
    assert!(client.say("INFO memory").contains("used_memory:0\r\n"), "{}", client.say("INFO memory"));
}

#[test]
fn a_long_command_gives_others_their_turns() {
    let server = serve(&["--blocks", "1", "--memory", "64M"]);
    let mut client = Client::connect(server.addr);
    let keys: Vec<_> = (0..20_000).map(|number| format!("k{number}").into_bytes()).collect();
    let of = |name: &'static [u8], keys: &[Vec<u8>]| {
        let words: Vec<_> = std::iter::once(name).chain(keys.iter().map(Vec::as_slice)).collect();
        encode(&words)
    };
    let fill = |client: &mut Client| {
        let pairs: Vec<_> = keys.iter().flat_map(|key| [key.clone(), b"v".to_vec()]).collect();
        client.send(&of(b"MSET", &pairs));
        assert_eq!(client.answer(), "+OK\r\n");
    };
    fill(&mut client);
    let values = |count: usize| format!("*{count}\r\n{}", "$1\r\nv\r\n".repeat(count));
    for (name, answer) in
        [(&b"EXISTS"[..], ":20000\r\n"), (b"MGET", &values(20_000)), (b"TOUCH", ":20000\r\n")]
    {
        client.send(&of(name, &keys));
        assert!(client.answer() == answer, "{name:?}");
        // A request that comes in one piece, so that the turns are those of the command.
        let (turns, some) = turns_of(&mut client, &of(name, &vec![b"k1".to_vec(); 1500]));
        let answer = if name == b"MGET" { values(1500) } else { ":1500\r\n".into() };
        assert!(some == answer && turns >= 5, "{name:?}: {turns} turns");
    }
    let (turns, found) = turns_of(&mut client, &encode(&[b"KEYS", b"*"]));
    let found: std::collections::BTreeSet<_> = found.lines().filter(|line| line.starts_with('k')).collect();
    assert!(found.len() == 20_000 && turns >= 78, "{} keys, {turns} turns", found.len());
    assert_eq!(client.say("KEYS nosuch*"), "*0\r\n");
    assert!(client.say("INFO memory").contains("client_request_memory:0\r\n"));
    for (request, expected, left) in [
        (of(b"DEL", &keys[..10_000]), ":10000\r\n", ":10000\r\n"),
        (encode(&[b"FLUSHALL", b"ASYNC"]), "+OK\r\n", ":0\r\n"),
        (encode(&[b"FLUSHDB"]), "+OK\r\n", ":0\r\n"),
    ] {
        // The other one sees a part if it has had a turn meanwhile: never, if the command is
        // carried out in one.
        let is_seen = (0..50).any(|_| {
            fill(&mut client);
            let (seen, answer) = beside(&mut client, &server, &request);
            assert_eq!(answer, expected);
            assert_eq!(client.say("DBSIZE"), left);
            seen.iter().any(|len| len != ":20000\r\n" && len != left)
        });
        assert!(is_seen, "{:?}", String::from_utf8_lossy(&request[..12]));
    }
}

#[test]
fn silence_that_is_too_long_ends_cleanly() {
    use std::io::Read;
    let server = serve(&["--blocks", "1", "--timeout", "1"]);
    let mut silent = std::net::TcpStream::connect(server.addr).unwrap();
    let mut rest = Vec::new();
    // A reset would be an error.
    assert_eq!(silent.read_to_end(&mut rest).unwrap(), 0);
    assert!(stop(server).err.contains("it is silent"));
}
