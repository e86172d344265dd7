//! The table of sockets.

use crate::rates::{Key, Rate, key};
use crate::table::{Align, Table, bytes};
use gpunet_proxy::snapshot::{Client, Snapshot, Socket, State};
use std::collections::HashMap;
use std::net::SocketAddr;

/// The sockets of a snapshot, in order of state and address; with rates if they are given.
pub fn table(snapshot: &Snapshot, rates: Option<&HashMap<Key, Rate>>) -> Table {
    let mut columns = vec![
        ("State", Align::Left),
        ("Recv-Q", Align::Right),
        ("Send-Q", Align::Right),
        ("In-flight", Align::Right),
        ("Local", Align::Left),
        ("Peer", Align::Left),
        ("Transport", Align::Left),
        ("Placement", Align::Left),
        ("Host", Align::Left),
        ("Sent", Align::Right),
        ("Received", Align::Right),
        ("Lines", Align::Right),
    ];
    if rates.is_some() {
        columns.extend([("Sent/s", Align::Right), ("Received/s", Align::Right)]);
    }
    columns.push(("Process", Align::Left));
    let mut table = Table::new(columns);
    let clients: HashMap<u32, &Client> = snapshot.clients.iter().map(|client| (client.id, client)).collect();
    let mut sockets: Vec<_> = snapshot.sockets.iter().collect();
    sockets.sort_by_key(|socket| (socket.state, socket.local, socket.peer, key(socket)));
    for socket in sockets {
        table.push(row(socket, clients.get(&socket.client).copied(), rates));
    }
    table
}

fn row(socket: &Socket, owner: Option<&Client>, rates: Option<&HashMap<Key, Rate>>) -> Vec<String> {
    let addr = |addr: Option<SocketAddr>| addr.map_or("-".to_owned(), |addr| addr.to_string());
    let queued = if socket.state == State::Listen { socket.waiting } else { socket.recv_queue };
    let mut cells = vec![
        socket.state.name().to_owned(),
        queued.to_string(),
        socket.send_queue.to_string(),
        socket.in_flight.to_string(),
        addr(socket.local),
        addr(socket.peer),
        socket.transport.name().to_owned(),
        socket.placement.name().to_owned(),
        host(socket).to_owned(),
        socket.sent.to_string(),
        socket.received.to_string(),
        socket.lines_sent.to_string(),
    ];
    if let Some(rates) = rates {
        let rate = rates.get(&key(socket));
        let text = |rate: Option<f64>| rate.map_or("-".to_owned(), bytes);
        cells.extend([text(rate.map(|rate| rate.sent)), text(rate.map(|rate| rate.received))]);
    }
    cells.push(owner.map_or("-".to_owned(), |owner| format!("{}/{}", owner.pid, owner.command)));
    cells
}

/// What the host program has of the socket.
const fn host(socket: &Socket) -> &'static str {
    match (socket.host, socket.send_taken, socket.recv_taken) {
        (_, true, true) => "send,recv",
        (_, true, false) => "send",
        (_, false, true) => "recv",
        (true, false, false) => "open",
        (false, false, false) => "-",
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::args::SsArgs;
    use gpunet_proxy::snapshot::{Placement, Transport};

    pub fn socket(client: u32, slot: u32, generation: u32, sent: u64, received: u64) -> Socket {
        Socket {
            client,
            slot,
            generation,
            state: State::Established,
            transport: Transport::Tcp,
            placement: Placement::Pinned,
            local: Some("127.0.0.1:40000".parse().unwrap()),
            peer: Some("127.0.0.1:7777".parse().unwrap()),
            sent,
            received,
            lines_sent: 4,
            send_queue: 1,
            in_flight: 2,
            recv_queue: 3,
            send_capacity: 4096,
            recv_capacity: 4096,
            waiting: 0,
            age_ms: 1,
            host: false,
            send_taken: false,
            recv_taken: false,
        }
    }

    pub fn snapshot(pid: u32, uptime_ms: u64, sockets: Vec<Socket>) -> Snapshot {
        let client = Client {
            id: 1,
            pid: 77,
            uid: 0,
            command: "echo".to_owned(),
            device: "cpu".to_owned(),
            since_ms: 61_000,
            sockets: 1,
            ring_bytes: 1 << 20,
            ring_bytes_used: 1 << 19,
            opened: 3,
            closed: 2,
            undelivered: 0,
        };
        Snapshot {
            version: Snapshot::VERSION,
            pid,
            uptime_ms,
            clients: vec![client],
            sockets,
            ..Snapshot::default()
        }
    }

    #[test]
    fn a_socket_is_a_line_and_a_listener_shows_who_waits() {
        let listener = Socket {
            state: State::Listen,
            transport: Transport::None,
            placement: Placement::None,
            peer: None,
            waiting: 4,
            recv_queue: 0,
            ..socket(1, 1, 1, 0, 0)
        };
        let text = table(&snapshot(1, 1, vec![socket(1, 0, 1, 10, 20), listener]), None).to_string();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert_eq!(lines[1][..6], ["listen", "4", "1", "2", "127.0.0.1:40000", "-"]);
        assert_eq!(lines[2][..4], ["established", "3", "1", "2"]);
        assert_eq!(
            lines[2][4..],
            ["127.0.0.1:40000", "127.0.0.1:7777", "tcp", "pinned", "-", "10", "20", "4", "77/echo"]
        );
    }

    #[test]
    fn what_the_host_program_has_of_a_socket_is_shown() {
        let of =
            |host, send_taken, recv_taken| Socket { host, send_taken, recv_taken, ..socket(1, 0, 1, 0, 0) };
        for (socket, shown) in [
            (of(false, false, false), "-"),
            (of(true, false, false), "open"),
            (of(true, true, false), "send"),
            (of(true, false, true), "recv"),
            (of(true, true, true), "send,recv"),
        ] {
            let text = table(&snapshot(1, 1, vec![socket]), None).to_string();
            let [heading, line] = text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
            let column = heading.split_whitespace().position(|heading| heading == "Host").unwrap();
            assert_eq!(line.split_whitespace().nth(column), Some(shown), "{text}");
        }
    }

    #[test]
    fn rates_have_columns_of_their_own() {
        let snapshot = snapshot(1, 1, vec![socket(1, 0, 1, 10, 20), socket(1, 1, 1, 0, 0)]);
        let rates = HashMap::from([((1, 0, 1), Rate { sent: 2048.0, received: 0.0 })]);
        let text = table(&snapshot, Some(&rates)).to_string();
        assert!(text.contains("Sent/s") && text.contains("2.0 KiB") && text.contains("0 B"), "{text}");
    }

    #[test]
    fn filters_leave_what_was_asked_for() {
        let listener = Socket { state: State::Listen, ..socket(1, 1, 1, 0, 0) };
        let all = || snapshot(1, 1, vec![socket(1, 0, 1, 0, 0), listener.clone(), socket(9, 0, 1, 0, 0)]);
        let count = |args: SsArgs| args.select(all()).sockets.len();
        assert_eq!(count(SsArgs::default()), 3);
        assert_eq!(count(SsArgs { listening: true, ..SsArgs::default() }), 1);
        assert_eq!(count(SsArgs { client: Some(77), ..SsArgs::default() }), 2);
        assert_eq!(count(SsArgs { client: Some(78), ..SsArgs::default() }), 0);
    }
}
