//! The table of clients.

use crate::table::{Align, Table, bytes, duration};
use gpunet_proxy::snapshot::Snapshot;

/// The clients of a snapshot, in the order they came.
pub fn table(snapshot: &Snapshot) -> Table {
    let mut table = Table::new(vec![
        ("Id", Align::Right),
        ("Pid", Align::Right),
        ("Uid", Align::Right),
        ("Command", Align::Left),
        ("Device", Align::Left),
        ("Since", Align::Right),
        ("Sockets", Align::Right),
        ("Rings", Align::Right),
        ("Used", Align::Right),
        ("Opened", Align::Right),
        ("Closed", Align::Right),
        ("Undelivered", Align::Right),
    ]);
    let mut clients: Vec<_> = snapshot.clients.iter().collect();
    clients.sort_by_key(|client| client.id);
    for client in clients {
        table.push(vec![
            client.id.to_string(),
            client.pid.to_string(),
            client.uid.to_string(),
            client.command.clone(),
            client.device.clone(),
            duration(client.since_ms),
            client.sockets.to_string(),
            bytes(client.ring_bytes as f64),
            bytes(client.ring_bytes_used as f64),
            client.opened.to_string(),
            client.closed.to_string(),
            client.undelivered.to_string(),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use crate::ss::tests::snapshot;

    #[test]
    fn a_client_is_a_line() {
        let text = super::table(&snapshot(1, 1, Vec::new())).to_string();
        let cells: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(
            cells,
            ["1", "77", "0", "echo", "cpu", "1m01s", "1", "1.0", "MiB", "512.0", "KiB", "3", "2", "0"]
        );
    }
}
