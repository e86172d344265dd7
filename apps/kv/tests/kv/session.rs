//! What a client sets for its connection: protocol, name, database; transactions.

use crate::client::{Client, encode};
use crate::program::serve;

#[test]
fn hello_changes_the_protocol_and_sets_the_name() {
    let server = serve(&[]);
    let mut client = Client::connect(server.addr);
    let fields = |proto: u8, id: u8| {
        format!(
            "$6\r\nserver\r\n$9\r\ngpunet-kv\r\n$7\r\nversion\r\n$5\r\n7.0.0\r\n$5\r\nproto\r\n:{proto}\r\n$2\r\nid\r\n:{id}\r\n\
             $4\r\nmode\r\n$10\r\nstandalone\r\n$4\r\nrole\r\n$6\r\nmaster\r\n$7\r\nmodules\r\n*0\r\n"
        )
    };
    assert_eq!(client.say("HELLO"), "*14\r\n".to_owned() + &fields(2, 1));
    assert_eq!(client.say("GET no"), "$-1\r\n");
    assert_eq!(client.say("HELLO 3 AUTH default x SETNAME me"), "%7\r\n".to_owned() + &fields(3, 1));
    for (words, answer) in [
        ("CLIENT GETNAME", "$2\r\nme\r\n"),
        ("GET no", "_\r\n"),
        ("MGET no no", "*2\r\n_\r\n_\r\n"),
        ("SET k v XX", "_\r\n"),
        ("CONFIG GET databases", "%1\r\n$9\r\ndatabases\r\n$2\r\n16\r\n"),
        ("VADD places VALUES 2 3 4 east", "#t\r\n"),
        ("VADD places VALUES 2 6 8 east", "#f\r\n"),
        ("VADD places VALUES 2 3 4 west", "#t\r\n"),
        ("VSIM places ELE east WITHSCORES", "%2\r\n$4\r\neast\r\n,1\r\n$4\r\nwest\r\n,1\r\n"),
        ("VEMB places west", "*2\r\n,3\r\n,4\r\n"),
        ("VREM places west", "#t\r\n"),
        ("HELLO 3 AUTH bob x", "-WRONGPASS invalid username-password pair or user is disabled.\r\n"),
        ("HELLO 4", "-NOPROTO unsupported protocol version\r\n"),
        ("HELLO 3 SETNAME", "-ERR Syntax error in HELLO option 'SETNAME'\r\n"),
        ("RESET", "+RESET\r\n"),
        ("GET no", "$-1\r\n"),
        ("CLIENT GETNAME", "$-1\r\n"),
    ] {
        assert_eq!(client.say(words), answer, "{words}");
    }
}

#[test]
fn answers_longer_than_the_buffer_are_the_same_in_resp3() {
    let server = serve(&[]);
    let mut client = Client::connect(server.addr);
    client.say("HELLO 3");
    for number in 0..1000 {
        assert_eq!(client.say(&format!("VADD set VALUES 2 1 {number} element-{number:0100}")), "#t\r\n");
    }
    let answer =
        client.say("VSIM set ELE element-{} WITHSCORES".replace("{}", &format!("{:0100}", 7)).as_str());
    assert!(answer.starts_with("%10\r\n$108\r\nelement-0"), "{answer}");
    let answer = client.say(&format!("VSIM set ELE element-{:0100} WITHSCORES COUNT 1000", 7));
    assert!(answer.starts_with("%1000\r\n$108\r\nelement-0"), "{}", &answer[..100]);
    assert_eq!(answer.matches("\r\n,").count(), 1000);
}

#[test]
fn databases_have_keys_of_their_own() {
    let server = serve(&["--blocks", "2"]);
    let (mut one, mut two) = (Client::connect(server.addr), Client::connect(server.addr));
    for (words, answer) in [
        ("SET k 0", "+OK\r\n"),
        ("SELECT 15", "+OK\r\n"),
        ("GET k", "$-1\r\n"),
        ("SET k 15", "+OK\r\n"),
        ("SET other 15", "+OK\r\n"),
        ("DBSIZE", ":2\r\n"),
        (
            "SELECT 99999999999",
            "-ERR value is out of range, value must between -2147483648 and 2147483647\r\n",
        ),
        ("SELECT x", "-ERR value is not an integer or out of range\r\n"),
        ("GET k", "$2\r\n15\r\n"),
    ] {
        assert_eq!(one.say(words), answer, "{words}");
    }
    assert_eq!((two.say("GET k"), two.say("DBSIZE")), ("$1\r\n0\r\n".into(), ":1\r\n".into()));
    assert!(
        two.say("INFO keyspace")
            .ends_with("db0:keys=1,expires=0,avg_ttl=0\r\ndb15:keys=2,expires=0,avg_ttl=0\r\n\r\n")
    );
    assert_eq!((one.say("FLUSHDB"), one.say("DBSIZE")), ("+OK\r\n".into(), ":0\r\n".into()));
    assert_eq!(
        (two.say("DBSIZE"), two.say("FLUSHALL"), two.say("DBSIZE")),
        (":1\r\n".into(), "+OK\r\n".into(), ":0\r\n".into())
    );
}

#[test]
fn a_transaction_is_carried_out_whole_or_not_at_all() {
    let server = serve(&[]);
    let mut client = Client::connect(server.addr);
    for (words, answer) in [
        ("EXEC", "-ERR EXEC without MULTI\r\n"),
        ("DISCARD", "-ERR DISCARD without MULTI\r\n"),
        ("MULTI", "+OK\r\n"),
        ("MULTI", "-ERR MULTI calls can not be nested\r\n"),
        ("SET k 1", "+QUEUED\r\n"),
        ("INCR k", "+QUEUED\r\n"),
        ("APPEND k x", "+QUEUED\r\n"),
        ("INCR k", "+QUEUED\r\n"),
        ("MGET k no", "+QUEUED\r\n"),
        ("SELECT 3", "+QUEUED\r\n"),
        ("SET k three", "+QUEUED\r\n"),
        (
            "EXEC",
            "*7\r\n+OK\r\n:2\r\n:2\r\n-ERR value is not an integer or out of range\r\n*2\r\n$2\r\n2x\r\n$-1\r\n+OK\r\n+OK\r\n",
        ),
        ("GET k", "$5\r\nthree\r\n"),
        ("MULTI", "+OK\r\n"),
        ("SET k lost", "+QUEUED\r\n"),
        ("GET", "-ERR wrong number of arguments for 'get' command\r\n"),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n"),
        ("MULTI", "+OK\r\n"),
        ("SET k lost", "+QUEUED\r\n"),
        ("VCARD k", "-ERR Command not allowed inside a transaction\r\n"),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n"),
        ("MULTI", "+OK\r\n"),
        ("SET k lost", "+QUEUED\r\n"),
        ("DISCARD", "+OK\r\n"),
        ("MULTI", "+OK\r\n"),
        ("MOVE k 5", "+QUEUED\r\n"),
        ("SELECT 5", "+QUEUED\r\n"),
        ("COPY k l DB 3 REPLACE", "+QUEUED\r\n"),
        ("MOVE k 3", "+QUEUED\r\n"),
        ("SELECT 3", "+QUEUED\r\n"),
        ("DEL l", "+QUEUED\r\n"),
        ("EXEC", "*6\r\n:1\r\n+OK\r\n:1\r\n:1\r\n+OK\r\n:1\r\n"),
        ("GET k", "$5\r\nthree\r\n"),
        ("MULTI", "+OK\r\n"),
        ("EXEC", "*0\r\n"),
        ("UNWATCH", "+OK\r\n"),
    ] {
        assert_eq!(client.say(words), answer, "{words}");
    }
    assert!(client.say("WATCH k").starts_with("-ERR WATCH is not supported"));
}

#[test]
fn transactions_have_large_values_many_keys_and_give_their_memory_back() {
    let server = serve(&["--memory", "64M"]);
    let mut client = Client::connect(server.addr);
    let value = vec![b'v'; 1 << 20];
    for _ in 0..2 {
        client.send(&encode(&[b"MULTI"]));
        for number in 0..8 {
            client.send(&encode(&[b"SET", format!("large {number}").as_bytes(), &value]));
            client.send(&encode(&[b"GET", format!("large {number}").as_bytes()]));
            client.send(&encode(&[b"ECHO", &value[..100_000]]));
        }
        client.send(&encode(&[b"EXEC"]));
        assert_eq!(client.answer(), "+OK\r\n");
        (0..24).for_each(|_| assert_eq!(client.answer(), "+QUEUED\r\n"));
        let answer = client.answer();
        assert!(
            answer.starts_with("*24\r\n+OK\r\n$1048576\r\nvvv") && answer.len() > 9_000_000,
            "{}",
            answer.len()
        );
    }
    assert_eq!(client.say("FLUSHALL"), "+OK\r\n");
    client.say("MULTI");
    for number in 0..20_000 {
        client.send(&encode(&[b"INCR", format!("count {}", number % 5000).as_bytes()]));
    }
    (0..20_000).for_each(|_| assert_eq!(client.answer(), "+QUEUED\r\n"));
    let answer = client.say("EXEC");
    assert_eq!((answer.matches(":4\r\n").count(), client.say("DBSIZE")), (5000, ":5000\r\n".into()));
    // One that is too long is refused: a block carries it out in one turn.
    let requests =
        [&encode(&[b"MULTI"])[..], &encode(&[b"PING"]).repeat(65_537), &encode(&[b"EXEC"])].concat();
    client.send(&requests);
    assert_eq!(client.answer(), "+OK\r\n");
    (0..65_536).for_each(|_| assert_eq!(client.answer(), "+QUEUED\r\n"));
    assert_eq!(client.answer(), "-ERR too big transaction\r\n");
    assert!(client.answer().starts_with("-EXECABORT"));
    // One that does not come to its end gives its memory back, too.
    client.say("MULTI");
    client.say("SET left behind");
    drop(client);
    let mut client = Client::connect(server.addr);
    client.say("FLUSHALL");
    while !client.say("INFO").contains("connected_clients:1\r\n") {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(client.say("INFO").contains("used_memory:0\r\n"), "{}", client.say("INFO"));
}

/// Clients move amounts between keys; others see the same sum at any time.
#[test]
fn no_other_client_sees_a_part_of_a_transaction() {
    const ACCOUNTS: usize = 16;
    let server = serve(&["--blocks", "2"]);
    let addr = server.addr;
    let account = |number: usize| format!("account {}", number % ACCOUNTS).into_bytes();
    let mut client = Client::connect(addr);
    (0..ACCOUNTS).for_each(|number| assert_eq!(client.ask(&[b"SET", &account(number), b"1000"]), "+OK\r\n"));
    std::thread::scope(|scope| {
        for mover in 0..3 {
            scope.spawn(move || {
                let mut client = Client::connect(addr);
                for step in 0..1000 {
                    let (from, to) = (account(step * 7 + mover), account(step * 3 + 1));
                    let requests = [
                        encode(&[b"MULTI"]),
                        encode(&[b"DECR", &from]),
                        encode(&[b"INCR", &to]),
                        encode(&[b"EXEC"]),
                    ];
                    client.send(&requests.concat());
                    (0..3).for_each(|_| assert!(client.answer().starts_with('+')));
                    assert!(client.answer().starts_with("*2\r\n:"));
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(move || {
                let mut client = Client::connect(addr);
                for _ in 0..300 {
                    let gets = (0..ACCOUNTS).flat_map(|number| encode(&[b"GET", &account(number)]));
                    client.send(&[encode(&[b"MULTI"]), gets.collect(), encode(&[b"EXEC"])].concat());
                    (0..=ACCOUNTS).for_each(|_| assert!(client.answer().starts_with('+')));
                    let answer = client.answer();
                    let sum: i64 = answer.lines().skip(1).filter_map(|line| line.parse::<i64>().ok()).sum();
                    assert_eq!(sum, 1000 * ACCOUNTS as i64, "{answer}");
                }
            });
        }
    });
}

#[test]
fn who_has_not_given_the_password_is_not_served() {
    let file = std::env::temp_dir().join(format!("gpunet-kv-password-{}", std::process::id()));
    std::fs::write(&file, "open sesame\n").unwrap();
    let server = serve(&["--password-file", file.to_str().unwrap()]);
    std::fs::remove_file(&file).unwrap();
    let mut client = Client::connect(server.addr);
    let no_auth = "-NOAUTH Authentication required.\r\n";
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    for (request, answer) in [
        (&["GET", "k"][..], no_auth),
        (&["MULTI"], no_auth),
        (&["EXEC"], no_auth),
        (&["INFO"], no_auth),
        (&["AUTH", "sesame"], wrong),
        (&["AUTH", "bob", "open sesame"], wrong),
        (&["GET", "k"], no_auth),
        (&["AUTH", "open sesame"], "+OK\r\n"),
        (&["SET", "k", "v"], "+OK\r\n"),
        (&["AUTH", "default", "x"], wrong),
        (&["GET", "k"], "$1\r\nv\r\n"),
        (&["RESET"], "+RESET\r\n"),
        (&["GET", "k"], no_auth),
        (&["AUTH", "default", "open sesame"], "+OK\r\n"),
        (&["GET", "k"], "$1\r\nv\r\n"),
    ] {
        let words: Vec<_> = request.iter().map(|word| word.as_bytes()).collect();
        assert_eq!(client.ask(&words), answer, "{request:?}");
    }
    let mut client = Client::connect(server.addr);
    assert!(client.say("HELLO 3").starts_with("-NOAUTH HELLO must be called"));
    assert_eq!(client.say("HELLO 3 AUTH default x"), wrong);
    assert!(client.ask(&[b"HELLO", b"3", b"AUTH", b"default", b"open sesame"]).starts_with("%7\r\n"));
    assert_eq!(client.say("GET k"), "$1\r\nv\r\n");
    // It gets no memory for a long request before.
    let mut client = Client::connect(server.addr);
    client.send(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$500000\r\nbegun");
    assert_eq!(client.rest(), "-ERR Protocol error: unauthenticated bulk length\r\n");
}
