//! The table of blocks that wait.

use crate::table::{Align, Table};
use gpunet_proxy::snapshot::{Snapshot, Socket, State};
use std::collections::HashMap;

/// The blocks of a snapshot that wait, those first that have waited longest.
pub fn table(snapshot: &Snapshot) -> Table {
    let mut table = Table::new(vec![
        ("Pid", Align::Right),
        ("Command", Align::Left),
        ("Device", Align::Left),
        ("Launch", Align::Right),
        ("Block", Align::Right),
        ("Waits for", Align::Left),
        ("Since", Align::Right),
        ("Socket", Align::Left),
    ]);
    let clients: HashMap<_, _> = snapshot.clients.iter().map(|client| (client.id, client)).collect();
    let sockets: HashMap<_, _> =
        snapshot.sockets.iter().map(|socket| ((socket.client, socket.slot), socket)).collect();
    let mut waits: Vec<_> = snapshot.waits.iter().collect();
    waits.sort_by_key(|wait| (std::cmp::Reverse(wait.waited_us), wait.client, wait.launch, wait.block));
    for wait in waits {
        let client = clients.get(&wait.client);
        let socket = wait.slot.map(|slot| name(slot, sockets.get(&(wait.client, slot)).copied()));
        table.push(vec![
            client.map_or_else(|| "-".to_owned(), |client| client.pid.to_string()),
            client.map_or_else(|| "-".to_owned(), |client| client.command.clone()),
            client.map_or_else(|| "-".to_owned(), |client| client.device.clone()),
            wait.launch.to_string(),
            wait.block.to_string(),
            wait.call.clone(),
            since(wait.waited_us),
            socket.unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    table
}

/// A socket by its addresses, or by its slot alone.
fn name(slot: u32, socket: Option<&Socket>) -> String {
    match socket.map(|socket| (socket.local, socket.peer, socket.state)) {
        Some((Some(local), None, State::Listen)) => format!("listens at {local}"),
        Some((Some(local), Some(peer), _)) => format!("{local} -> {peer}"),
        Some((Some(local), None, _)) => local.to_string(),
        _ => format!("slot {slot}"),
    }
}

/// How long a block has waited.
fn since(us: u64) -> String {
    match us {
        0..1_000 => "<1 ms".to_owned(),
        1_000..10_000_000 => format!("{} ms", us / 1000),
        _ => crate::table::duration(us / 1000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ss::tests::snapshot;
    use gpunet_proxy::snapshot::Wait;

    #[test]
    fn the_longest_wait_is_first() {
        let wait = |block, call: &str, slot, waited_us| Wait {
            client: 1,
            launch: 2,
            block,
            call: call.to_owned(),
            slot,
            waited_us,
        };
        let waits = vec![
            wait(3, "poll", None, 500),
            wait(4, "accept", Some(9), 61_000_000),
            wait(5, "recv", Some(9), 2_500),
        ];
        let text = table(&Snapshot { waits, ..snapshot(1, 1, Vec::new()) }).to_string();
        let lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split("  ").filter(|cell| !cell.is_empty()).collect()).collect();
        let cells = |line: usize| lines[line].iter().map(|cell| cell.trim()).collect::<Vec<_>>();
        assert_eq!(cells(1), ["77", "echo", "cpu", "2", "4", "accept", "1m01s", "slot 9"]);
        assert_eq!(cells(2), ["77", "echo", "cpu", "2", "5", "recv", "2 ms", "slot 9"]);
        assert_eq!(cells(3), ["77", "echo", "cpu", "2", "3", "poll", "<1 ms", "-"]);
    }
}
