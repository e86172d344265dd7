//! Counts work requests: a simulated network, or the counters of a device.

use crate::support::HANG;
use gpunet_core::verbs::sim::Fabric;
use std::fs::read_to_string;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where Linux shows RDMA devices.
const DEVICES: &str = "/sys/class/infiniband";
/// Counters of a device that sent something again, or was sent something again.
const AGAIN: [&str; 4] = ["completer_retry_err", "duplicate_request", "rcvd_seq_err", "send_rnr_err"];
/// How often the counts are read, and after how many equal reads they are final. Linux reads a
/// device's counters anew after 12 ms at the earliest.
const READ: Duration = Duration::from_millis(25);
const EQUAL: u32 = 5;

/// What counts.
pub enum Meter {
    Simulated(Fabric),
    /// The directory of a device's counters.
    Device(PathBuf),
}

/// What both ends of all streams have done together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Messages that have come: writes with immediate data, and sends.
    pub messages: u64,
    /// Packets that a device has sent. A request that fits into one makes two: the other one
    /// acknowledges it. A simulated network has none, and counts requests twice.
    packets: u64,
    /// Whatever was sent again.
    again: u64,
}

impl Counts {
    fn since(self, before: Self) -> Self {
        Self {
            messages: self.messages - before.messages,
            packets: self.packets - before.packets,
            again: self.again - before.again,
        }
    }

    /// Work requests, if each fits into a packet; `None`, when something was sent again.
    pub fn requests(self) -> Option<u64> {
        (self.again == 0).then_some(self.packets.div_ceil(2))
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { messages, packets, again } = self;
        write!(f, "{messages} messages, {packets} packets, {again} sent again")
    }
}

impl std::fmt::Display for Meter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Simulated(_) => write!(f, "a simulated network"),
            Self::Device(counters) => write!(f, "{}", counters.display()),
        }
    }
}

impl Meter {
    /// The device with that address.
    ///
    /// # Errors
    /// Why it cannot count.
    pub fn device(ip: Ipv4Addr) -> Result<Self, String> {
        let found = entries(Path::new(DEVICES)).find(|device| has_address(device, ip));
        let counters = found.ok_or(format!("no RDMA device has {ip}"))?.join("ports/1/hw_counters");
        match counters.join("rdma_recvs").exists() && counters.join("sent_pkts").exists() {
            true => Ok(Self::Device(counters)),
            false => Err(format!("{} has no rdma_recvs and sent_pkts", counters.display())),
        }
    }

    fn read(&self) -> Counts {
        match self {
            Self::Simulated(fabric) => {
                let counters = fabric.counters();
                let (messages, packets) = (counters.messages, 2 * counters.work_requests);
                Counts { messages, packets, again: counters.retries + counters.rnr }
            }
            Self::Device(counters) => {
                let read = |name: &str| {
                    let text = read_to_string(counters.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
                    text.trim().parse::<u64>().expect("a number")
                };
                let again = AGAIN.into_iter().map(read).sum();
                Counts { messages: read("rdma_recvs"), packets: read("sent_pkts"), again }
            }
        }
    }

    /// The counts once nothing moves any more.
    fn settled(&self) -> Counts {
        let (start, mut last, mut equal) = (Instant::now(), self.read(), 0);
        while equal < EQUAL {
            assert!(start.elapsed() < HANG / 2, "the device is never idle");
            std::thread::sleep(READ);
            let now = self.read();
            equal = if now == last { equal + 1 } else { 0 };
            last = now;
        }
        last
    }

    /// What an action costs.
    pub fn cost(&self, action: impl FnOnce()) -> Counts {
        let before = self.settled();
        action();
        self.settled().since(before)
    }
}

fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path()))
}

/// Returns whether one of a device's identifiers is the address, as RoCE writes it.
fn has_address(device: &Path, ip: Ipv4Addr) -> bool {
    let [a, b, c, d] = ip.octets();
    let gid = format!("0000:0000:0000:0000:0000:ffff:{a:02x}{b:02x}:{c:02x}{d:02x}");
    entries(&device.join("ports/1/gids"))
        .any(|file| read_to_string(file).is_ok_and(|text| text.trim() == gid))
}
