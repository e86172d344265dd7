//! Every setting of a proxy, with its default and the reason for it.

use gpu_usermap::placement::PlacementChoice;
use gpunet_abi::handle::MAX_SOCKETS;
use gpunet_abi::layout::{Geometry, SHARDS};
#[cfg(feature = "sim")]
use gpunet_core::verbs::sim::Fabric;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

/// As [`Config::data_threads`]: the number is chosen for the machine.
pub const AUTO_THREADS: usize = 0;
/// The largest number of data threads that is chosen automatically: all that there can be. With 8
/// of them, 32 connections carried 9.4 GB/s back on 16 cores and 10.8 on 32, where a plain server
/// of a thread for each went from 7.5 to 25.7.
const MOST_AUTO_THREADS: usize = SHARDS;

/// Settings of a proxy and of the attachments made by it.
///
/// A program that attaches to a daemon ([`crate::attach`]) chooses `sockets`, `controls`,
/// `shared_rings`, `device_rings` and `placement`, within what the daemon allows it; the other
/// fields are the daemon's, and those of the program are ignored.
///
/// # Examples
/// ```
/// use gpunet_proxy::Config;
/// use std::time::Duration;
///
/// let config = Config {
///     data_threads: 2,
///     linger: Duration::from_secs(5),
///     ..Config::default()
/// };
/// assert_eq!(config.check(), Ok(()));
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    /// Sockets per attachment, listeners included. Default 4,096; at most 65,536 (a handle's slot
    /// has 16 bits). A socket costs about 220 bytes of pinned memory beside its rings.
    pub sockets: u32,
    /// Control requests in flight per attachment. Default 256: one per resident block of a large
    /// GPU, and room to spare. Accepts and connects, which may wait long, have seven eighths of
    /// them (all of one or two); the rest is for calls that the proxy answers at once, a close
    /// above all.
    pub controls: u32,
    /// Ring memory per attachment in pinned host memory. Default 256 MiB: of rings that the proxy
    /// chooses, 1 MiB for each of the first 48 streams, and 16 KiB for each of 4,096.
    pub shared_rings: u64,
    /// Ring memory per attachment in GPU memory, for streams between two sockets of that GPU.
    /// Default 256 MiB.
    pub device_rings: u64,
    /// Data threads, at most 16. Each stream belongs to one of them, and those without streams
    /// sleep. Default [`AUTO_THREADS`]: half the cores that this process may use (of `cpus`, if
    /// that names fewer: one for each), at least 1 and at most 16.
    pub data_threads: usize,
    /// CPUs that data threads are pinned to: thread N to the Nth, starting over if there are fewer
    /// CPUs than threads. Default none: the scheduler knows what else the machine does.
    pub cpus: Vec<usize>,
    /// How long a data thread spins after activity before it sleeps. Default 250 us: longer than a
    /// client takes to come back to a connection after some others, shorter than anyone's time
    /// slice. On a machine with fewer than four cores it yields between two scans, since others may
    /// need its core. Where a kernel speaks at a rhythm the thread spins for 100 us at most, longer
    /// than a GPU block takes to answer: it knows when to wake.
    pub spin: Duration,
    /// Longest sleep of a data thread that serves a GPU: a GPU's store raises no event, so this
    /// bounds the delay of the first byte after an idle period. Default 5 ms (under 1 % of a core).
    pub latency: Duration,
    /// A call that waits and sees no heartbeat for this long returns ENETDOWN. Default 2 s.
    pub heartbeat: Duration,
    /// How long a closed stream may take to flush what was accepted. Default 30 s.
    pub linger: Duration,
    /// The RDMA stack of the rc transport. Default: the system's, if it has one.
    pub rdma: Rdma,
    /// Where the rings of rc streams lie. Default: in GPU memory where GPU, driver and network card
    /// can, else in pinned host memory. On the CPU device `dma-buf` puts them into a dma-buf of
    /// host memory, which stands for a GPU's in tests.
    pub placement: PlacementChoice,
    /// Which streams have lines for small messages. Default: those between two devices of which one
    /// is a GPU, unless one of the two sockets has [`gpunet_abi::Options::LINES`] off.
    pub lines: Lines,
    /// Hosts that speak rc: connects that leave the transport open try it there first, for 500 ms
    /// at most. Default none. (A destination that was reached by rc once is remembered, one that
    /// was not is not asked again for 60 s.)
    pub rc_peers: Vec<IpAddr>,
    /// How often an idle rc stream asks whether the peer's host lives: RDMA does not report a host
    /// that has lost its power. Default 2 s; detecting it takes about 8 s more.
    pub rc_keepalive: Duration,
}

/// Which streams have [lines](gpunet_abi::line): memory in which a message of up to 256 bytes
/// travels a second time, with its flag, so that a waiting GPU receives it with one load. Rings
/// below 64 KiB have no lines.
///
/// # Examples
/// ```
/// use gpunet_proxy::Config;
/// use gpunet_proxy::config::Lines;
///
/// let config = Config { lines: Lines::Off, ..Config::default() };
/// assert_eq!(config.check(), Ok(()));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lines {
    /// Those at which a GPU sends or receives.
    #[default]
    Auto,
    /// Those of the CPU device, too, which gains nothing by them: for tests.
    On,
    /// None.
    Off,
    /// Small messages of direct streams that kernels open go by [units](gpunet_abi::units) instead:
    /// through memory in which they carry their own flags, and not through the ring. Nothing is
    /// published for them, so a sender never waits for a release. The host API's own sockets have
    /// neither lines nor units then.
    Units,
}

impl FromStr for Lines {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        match text {
            "auto" => Ok(Self::Auto),
            "on" => Ok(Self::On),
            "off" => Ok(Self::Off),
            "units" => Ok(Self::Units),
            _ => Err("expected auto, on, off or units"),
        }
    }
}

/// As [`FromStr`] takes it.
impl fmt::Display for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Auto => "auto",
            Self::On => "on",
            Self::Off => "off",
            Self::Units => "units",
        })
    }
}

impl Lines {
    /// Returns whether a stream between two devices has lines, by what its ends want; `polls`: one
    /// of them is a GPU.
    pub(crate) const fn has(self, ends: [&gpunet_abi::Options; 2], polls: bool) -> bool {
        let wanted = ends[0].has(gpunet_abi::Options::LINES) && ends[1].has(gpunet_abi::Options::LINES);
        match self {
            Self::Auto => wanted && polls,
            Self::On | Self::Units => wanted,
            Self::Off => false,
        }
    }
}

/// Where the rc transport finds RDMA.
///
/// # Examples
/// ```
/// use gpunet_proxy::Config;
/// use gpunet_proxy::config::Rdma;
///
/// let tcp_and_peer_only = Config { rdma: Rdma::Off, ..Config::default() };
/// # assert!(matches!(tcp_and_peer_only.rdma, Rdma::Off));
/// ```
#[derive(Clone, Debug, Default)]
pub enum Rdma {
    /// libibverbs and librdmacm, opened when they are first wanted.
    #[default]
    System,
    /// Nowhere: sockets that ask for rc get EOPNOTSUPP.
    Off,
    /// A simulated network, for tests: proxies that share it reach each other.
    #[cfg(feature = "sim")]
    Simulated(Fabric),
}

impl Default for Config {
    fn default() -> Self {
        Self {
            sockets: 4096,
            controls: 256,
            shared_rings: 256 << 20,
            device_rings: 256 << 20,
            data_threads: AUTO_THREADS,
            cpus: Vec::new(),
            spin: Duration::from_micros(250),
            latency: Duration::from_millis(5),
            heartbeat: Duration::from_secs(2),
            linger: Duration::from_secs(30),
            rdma: Rdma::System,
            placement: PlacementChoice::Auto,
            lines: Lines::Auto,
            rc_peers: Vec::new(),
            rc_keepalive: Duration::from_secs(2),
        }
    }
}

/// An invalid setting.
///
/// # Examples
/// ```
/// use gpunet_proxy::Config;
///
/// let bad = Config { data_threads: 17, ..Config::default() }.check().unwrap_err();
/// assert_eq!((bad.setting, bad.value, bad.expected), ("data_threads", 17, "1 to 16, or 0: automatic"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bad setting: {setting} = {value}; expected {expected}")]
pub struct BadConfig {
    /// The setting's name.
    pub setting: &'static str,
    /// What was given.
    pub value: u64,
    /// What would be accepted.
    pub expected: &'static str,
}

const CPUS: &str = "CPUs that this process may use (nproc, taskset -p and its cgroup's cpuset tell)";

impl Config {
    /// Returns settings for tests and small programs: 1,024 sockets and 16 MiB of rings.
    #[must_use]
    pub fn small() -> Self {
        Self { sockets: 1024, shared_rings: 16 << 20, device_rings: 16 << 20, ..Self::default() }
    }

    /// Checks all settings.
    ///
    /// # Errors
    /// [`BadConfig`] names the first invalid setting.
    ///
    /// # Examples
    /// ```
    /// use gpunet_proxy::Config;
    ///
    /// let bad = Config { sockets: 70_000, ..Config::default() }.check().unwrap_err();
    /// assert_eq!(bad.setting, "sockets");
    /// assert_eq!(bad.to_string(), "bad setting: sockets = 70000; expected 1 to 65536");
    /// ```
    pub fn check(&self) -> Result<(), BadConfig> {
        let rules = [
            ("sockets", u64::from(self.sockets), 1..=u64::from(MAX_SOCKETS), "1 to 65536"),
            ("controls", u64::from(self.controls), 1..=4096, "1 to 4096"),
            ("shared_rings", self.shared_rings, 8192..=1 << 40, "8 KiB to 1 TiB"),
            ("device_rings", self.device_rings, 8192..=1 << 40, "8 KiB to 1 TiB"),
            ("data_threads", self.data_threads as u64, 0..=SHARDS as u64, "1 to 16, or 0: automatic"),
            ("spin (us)", whole(self.spin.as_micros()), 0..=1_000_000, "at most 1 s"),
            ("heartbeat (ms)", whole(self.heartbeat.as_millis()), 10..=3_600_000, "10 ms to 1 h"),
            ("linger (ms)", whole(self.linger.as_millis()), 0..=3_600_000, "at most 1 h"),
            ("rc_keepalive (ms)", whole(self.rc_keepalive.as_millis()), 10..=3_600_000, "10 ms to 1 h"),
            ("latency (us)", whole(self.latency.as_micros()), 1..=1_000_000, "1 us to 1 s"),
        ];
        for (setting, value, range, expected) in rules {
            if !range.contains(&value) {
                return Err(BadConfig { setting, value, expected });
            }
        }
        match crate::os::cpus::impossible(&self.cpus) {
            Some(cpu) => Err(BadConfig { setting: "cpus", value: cpu as u64, expected: CPUS }),
            None => Ok(()),
        }
    }

    /// Returns the number of data threads that a proxy with these settings has on this machine.
    ///
    /// # Examples
    /// ```
    /// use gpunet_proxy::Config;
    ///
    /// assert_eq!(Config { data_threads: 3, ..Config::default() }.thread_count(), 3);
    /// assert!((1..=16).contains(&Config::default().thread_count()));
    /// ```
    #[must_use]
    pub fn thread_count(&self) -> usize {
        if self.data_threads != AUTO_THREADS {
            return self.data_threads;
        }
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        automatic_threads(cores, &self.cpus)
    }

    /// Returns the sizes of an attachment's regions. The CPU device needs no device rings.
    pub(crate) fn geometry(&self, device_rings: u64) -> Geometry {
        Geometry::new(
            self.sockets,
            self.controls,
            self.thread_count() as u32,
            self.shared_rings,
            device_rings,
        )
    }
}

/// Returns the number of data threads for a machine with `cores` cores; with `cpus`, they are
/// pinned to those.
fn automatic_threads(cores: usize, cpus: &[usize]) -> usize {
    let pinned = if cpus.is_empty() { MOST_AUTO_THREADS } else { cpus.len() };
    (cores / 2).min(pinned).clamp(1, MOST_AUTO_THREADS)
}

/// Returns the number of units in a duration, or the largest number if there are more.
fn whole(units: u128) -> u64 {
    u64::try_from(units).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_they_are_shown() {
        for lines in [Lines::Auto, Lines::On, Lines::Off, Lines::Units] {
            assert_eq!(lines.to_string().parse(), Ok(lines));
        }
    }

    #[test]
    fn threads_are_half_the_cores_within_bounds() {
        for (cores, cpus, threads) in [
            (1, &[][..], 1),
            (2, &[], 1),
            (3, &[], 1),
            (8, &[], 4),
            (16, &[], 8),
            (64, &[], 16),
            (16, &[3, 5], 2),
            (2, &[3, 5], 1),
        ] {
            assert_eq!(automatic_threads(cores, cpus), threads, "{cores} cores, pinned to {cpus:?}");
        }
        assert_eq!(Config::default().data_threads, AUTO_THREADS);
        let small = Config::small();
        assert_eq!(small.geometry(0).shards as usize, small.thread_count());
    }

    #[test]
    fn the_defaults_are_valid_and_bad_settings_are_named() {
        assert_eq!(Config::default().check(), Ok(()));
        let bad = Config { sockets: 70_000, ..Config::default() }.check().unwrap_err();
        assert_eq!(bad.to_string(), "bad setting: sockets = 70000; expected 1 to 65536");
        for (config, setting) in [
            (Config { linger: Duration::MAX, ..Config::default() }, "linger (ms)"),
            (Config { spin: Duration::MAX, ..Config::default() }, "spin (us)"),
            // In 64 bits these would be 384 ms.
            (
                Config { heartbeat: Duration::from_secs(18_446_744_073_709_552), ..Config::default() },
                "heartbeat (ms)",
            ),
        ] {
            assert_eq!(config.check().map_err(|bad| bad.setting), Err(setting));
        }
        let bad = Config { cpus: vec![1000], ..Config::default() }.check().unwrap_err();
        assert!(bad.to_string().contains("cpus = 1000; expected CPUs that this process may use"), "{bad}");
    }
}
