//! Clients that look at each other: CLIENT LIST and CLIENT KILL.

use crate::client::Client;
use crate::program::serve;

/// What the line of a client says of a field.
fn field<'l>(line: &'l str, name: &str) -> &'l str {
    let word = line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    word.unwrap_or_else(|| panic!("{name}: {line}"))
}

fn lines(answer: &str) -> Vec<&str> {
    answer.lines().filter(|line| line.contains("id=")).collect()
}

#[test]
fn clients_of_all_blocks_are_listed_and_can_be_ended() {
    let server = serve(&["--blocks", "2"]);
    let mut clients: Vec<_> = (0..6).map(|_| Client::connect(server.addr)).collect();
    let ids: Vec<_> = clients.iter_mut().map(|client| client.say("CLIENT ID")).collect();
    let id = |at: usize| ids[at].trim_start_matches(':').trim();
    for (at, words) in
        [(0, "CLIENT SETNAME first"), (1, "HELLO 3 SETNAME second"), (2, "SELECT 7"), (3, "MULTI")]
    {
        clients[at].say(words);
    }
    assert_eq!(clients[3].say("GET k"), "+QUEUED\r\n");
    let answer = clients[0].say("CLIENT LIST");
    let found = lines(&answer);
    assert_eq!(found.len(), clients.len(), "{answer}");
    let line = |at: usize| *found.iter().find(|line| field(line, "id") == id(at)).expect("it is listed");
    for (at, fields) in [
        (0, [("name", "first"), ("db", "0"), ("resp", "2"), ("multi", "-1"), ("cmd", "client|list")]),
        (1, [("name", "second"), ("db", "0"), ("resp", "3"), ("multi", "-1"), ("cmd", "NULL")]),
        (2, [("name", ""), ("db", "7"), ("resp", "2"), ("multi", "-1"), ("cmd", "NULL")]),
        (3, [("name", ""), ("db", "0"), ("resp", "2"), ("multi", "1"), ("flags", "x")]),
    ] {
        for (name, value) in fields {
            assert_eq!(field(line(at), name), value, "{}", line(at));
        }
    }
    let addr = |line: &str| field(line, "addr").parse::<std::net::SocketAddr>().expect("an address");
    assert!(found.iter().all(|line| addr(line).ip() == server.addr.ip()), "{answer}");

    let (ours, theirs) = (field(line(0), "addr").to_owned(), field(line(4), "addr").to_owned());
    assert_eq!(lines(&clients[0].say(&format!("CLIENT LIST ID {} {}", id(1), id(5)))).len(), 2);
    assert_eq!(clients[0].say("CLIENT LIST TYPE pubsub"), "$0\r\n\r\n");
    assert_eq!(clients[0].say("CLIENT KILL 1.2.3.4:5"), "-ERR No such client\r\n");
    assert_eq!(clients[0].say(&format!("CLIENT KILL ADDR {ours}")), ":0\r\n", "it spares itself");
    assert_eq!(clients[0].say(&format!("CLIENT KILL ID {}", id(2))), ":1\r\n");
    assert_eq!(clients[0].say(&format!("CLIENT KILL {theirs}")), "+OK\r\n");
    assert_eq!((clients[2].rest(), clients[4].rest()), (String::new(), String::new()));
    // The others are served; those that have gone are not listed.
    assert_eq!(clients[5].say("PING"), "+PONG\r\n");
    assert_eq!(lines(&clients[0].say("CLIENT LIST")).len(), 4);
    assert_eq!(clients[3].say("CLIENT LIST"), "+QUEUED\r\n");
    assert_eq!(lines(&clients[3].say("EXEC")).len(), 4);
    clients[0].say("RESET");
    assert_eq!(field(lines(&clients[0].say("CLIENT INFO"))[0], "name"), "");
    let mut left = clients.swap_remove(3);
    drop(clients);
    while lines(&left.say("CLIENT LIST")).len() > 1 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}
