//! Self-tests: what really works, on the CPU device and on each GPU.
//!
//! | file | test |
//! |---|---|
//! | `device` | opening a device; memory, launches, ends (the module with `unsafe`) |
//! | `words` | round trips of two words between the device and a CPU thread |
//! | `ends` | what tests with two ends share: who plays which end |
//! | `litmus` | what tests share that count what must not be seen |
//! | `ring` | bytes through a ring, both ways and between two blocks, with CRC |
//! | `order` | stale reads after a published word, and proof that they would be counted |
//! | `lines` | units of lines whose bytes come without their tag, and proof that they would be counted |
//! | `streams` | a CUDA stream that waits for words of another one |
//! | `echo` | sockets over tcp, peer and rc |
//!
//! They run in a child process ([`crate::child`]), so that neither a fault nor a hang of a driver
//! takes the tool with it. Every wait in a kernel ends by itself after [`LIMIT`].

#[allow(unsafe_code)]
pub mod device;
mod echo;
mod ends;
mod lines;
mod litmus;
mod order;
mod pattern;
mod ring;
mod streams;
mod words;

use crate::check::Check;
use device::{DeviceName, TestDevice};
use std::net::IpAddr;
use std::time::Duration;

/// How long a kernel and its partner wait for each other. They take milliseconds, and seconds where
/// many threads share few CPUs.
pub const LIMIT: Duration = Duration::from_secs(20);

/// Which way the data of a test goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    ToDevice,
    FromDevice,
    BetweenBlocks,
}

impl Direction {
    const fn name(self) -> &'static str {
        match self {
            Self::ToDevice => "CPU to device",
            Self::FromDevice => "device to CPU",
            Self::BetweenBlocks => "block to block",
        }
    }
}

/// A self-test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// The kernels load.
    Ptx,
    /// Words between device and CPU.
    Words,
    /// A ring with CRC.
    Ring,
    /// Message passing.
    Order,
    /// Stores of eight bytes.
    Lines,
    /// Memory operations of CUDA streams.
    Streams,
    /// Sockets over TCP.
    Tcp,
    /// Sockets over memory.
    Peer,
    /// Sockets over RDMA.
    Rc,
}

impl Test {
    /// All of them, in the order in which they run.
    pub const ALL: [Self; 9] = [
        Self::Ptx,
        Self::Words,
        Self::Ring,
        Self::Order,
        Self::Lines,
        Self::Streams,
        Self::Tcp,
        Self::Peer,
        Self::Rc,
    ];

    /// The check that it is.
    #[must_use]
    pub const fn id(self) -> &'static str {
        match self {
            Self::Ptx => "selftest.ptx",
            Self::Words => "selftest.words",
            Self::Ring => "selftest.ring",
            Self::Order => "selftest.order",
            Self::Lines => "selftest.lines",
            Self::Streams => "selftest.streams",
            Self::Tcp => "selftest.tcp",
            Self::Peer => "selftest.peer",
            Self::Rc => "selftest.rc",
        }
    }

    /// The test of that check.
    #[must_use]
    pub fn of(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|test| test.id() == id)
    }

    /// What to do when it fails.
    const fn advice(self) -> &'static str {
        match self {
            Self::Ptx => {
                "update the NVIDIA driver: the kernels are PTX for compute capability 8.0 and CUDA 12"
            }
            Self::Words | Self::Ring => {
                "device and CPU do not see each other's memory as they must: look for Xid errors in `dmesg`; in \
                 a virtual machine, ask its provider"
            }
            Self::Order => {
                "do not use gpunet on this device: data may arrive after the word that announces it. Please \
                 report this line with the machine's description"
            }
            Self::Lines => {
                "run gpunet with the setting lines = \"off\": small messages could arrive in pieces. Please report this line with the \
                 machine's description"
            }
            Self::Streams => {
                "do not use queues on CUDA streams here: they could hang. Please report this line with the machine's \
                 description"
            }
            Self::Tcp => {
                "look at limits.* and machine.loopback, and at a firewall for the loopback interface; \
                 `gpunet-echo --transport tcp` with GPUNET_LOG=debug says more"
            }
            Self::Peer => "run `gpunet-echo --transport peer` with GPUNET_LOG=debug, which says more",
            Self::Rc => "look at rdma.*; docs/rdma.md says what rc needs",
        }
    }
}

/// The result of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// All is right: the evidence.
    Right(String),
    /// It works, slowly: the evidence and what to do.
    Slow(String, String),
}

/// Runs tests on a device, in order. `begin` is told before each, `done` after it.
///
/// `addresses` are those of RDMA devices; without one the test of rc reports that there is none.
pub fn run(
    name: DeviceName,
    tests: &[Test],
    addresses: &[IpAddr],
    mut begin: impl FnMut(Test),
    mut done: impl FnMut(Check),
) {
    let mut device: Option<Result<TestDevice, String>> = None;
    for &test in tests {
        begin(test);
        let device = device.get_or_insert_with(|| TestDevice::open(name));
        let check = match device {
            Ok(device) => outcome(test, one(test, device, addresses)),
            Err(why) => Check::missing(test.id(), why.clone(), "look at gpu.* and limits.*"),
        };
        done(weigh(check, name).on(name.to_string()));
    }
}

fn one(test: Test, device: &TestDevice, addresses: &[IpAddr]) -> Result<Found, String> {
    match test {
        Test::Ptx => Ok(Found::Right(device.loaded())),
        Test::Words => words::run(device),
        Test::Ring => ring::run(device),
        Test::Order => order::run(device),
        Test::Lines => lines::run(device),
        Test::Streams => streams::run(device),
        Test::Tcp => echo::tcp(device),
        Test::Peer => echo::peer(device),
        Test::Rc => echo::rc(device, addresses),
    }
}

fn outcome(test: Test, result: Result<Found, String>) -> Check {
    match result {
        Ok(Found::Right(evidence)) => Check::ok(test.id(), evidence),
        Ok(Found::Slow(evidence, advice)) => Check::degraded(test.id(), evidence, advice),
        Err(why) => Check::missing(test.id(), why, test.advice()),
    }
}

/// CPU blocks over TCP are what every machine can do: without them gpunet cannot work.
#[must_use]
pub fn weigh(check: Check, name: DeviceName) -> Check {
    if name == DeviceName::Cpu && check.id == Test::Tcp.id() { check.fatal() } else { check }
}

/// The tests that make sense on a device.
#[must_use]
pub fn of_device(name: DeviceName, with_rdma: bool) -> Vec<Test> {
    let fits = |test: &Test| match test {
        Test::Ptx | Test::Streams => name != DeviceName::Cpu,
        Test::Rc => with_rdma,
        _ => true,
    };
    Test::ALL.into_iter().filter(fits).collect()
}

/// What a test that did not end by itself says.
#[must_use]
pub fn broken_off(test: Test, name: DeviceName, why: &str) -> Check {
    weigh(Check::missing(test.id(), why, test.advice()), name).on(name.to_string())
}

/// What a test that did not begin says: nothing is known, for better or worse.
#[must_use]
pub fn not_begun(test: Test, name: DeviceName, why: &str, advice: &str) -> Check {
    Check::unknown(test.id(), why, advice).on(name.to_string())
}
