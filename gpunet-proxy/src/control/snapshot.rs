//! What the proxy holds, for people.

use super::Control;
use super::books::Device;
use crate::snapshot::{Client, Snapshot};

impl Control {
    /// The attachments at this moment.
    pub(super) fn snapshot(&self) -> Snapshot {
        let clients = self.devices.values().map(client).collect();
        Snapshot { version: Snapshot::VERSION, pid: std::process::id(), clients, ..Snapshot::default() }
    }
}

fn client(device: &Device) -> Client {
    let (attached, usage) = (&device.attached, device.usage());
    let totals = attached.totals.snapshot();
    Client {
        id: attached.id,
        pid: attached.client.pid,
        uid: attached.client.uid,
        command: attached.client.command.clone(),
        device: attached.client.device.clone(),
        since_ms: attached.since.elapsed().as_millis() as u64,
        sockets: usage.sockets as u32,
        ring_bytes: usage.ring_bytes,
        ring_bytes_used: usage.ring_bytes - usage.free_ring_bytes,
        opened: totals.opened,
        closed: totals.closed,
        undelivered: totals.undelivered,
    }
}
