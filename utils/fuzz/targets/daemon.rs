//! A live daemon and a client that sends and writes anything: packets, with descriptors or without,
//! and the words of its region. A client that follows the rules is served all the time, and the
//! others leave nothing behind.
#![no_main]

#[path = "../../../gpunet-proxy/tests/attach/raw.rs"]
#[allow(dead_code, reason = "the tests of gpunet-proxy use all of it")]
mod raw;

use gpu_usermap::PinnedRegion;
use gpunet_proxy::access::Access;
use gpunet_proxy::daemon::{self, Daemon};
use gpunet_proxy::{Attachment, Config, Proxy, attach};
use libfuzzer_sys::fuzz_target;
use raw::Raw;
use rustix::net::{AddressFamily, RecvFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

struct World {
    daemon: Daemon,
    path: PathBuf,
    _proxy: Proxy,
    /// Of the client that follows the rules.
    attachment: Attachment,
    /// Descriptors of this process before anything else.
    descriptors: usize,
}

static WORLD: LazyLock<World> = LazyLock::new(|| {
    let path = std::env::temp_dir().join(format!("gpunet-fuzz-{}", std::process::id()));
    let kind = SocketType::SEQPACKET;
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).expect("a socket");
    rustix::net::bind(&socket, &SocketAddrUnix::new(&path).expect("a path")).expect("a free path");
    rustix::net::listen(&socket, 128).expect("a listener");
    let config = Config { linger: Duration::from_millis(1), ..Config::small() };
    let daemon = daemon::start(socket, config.clone(), Access::default()).expect("a daemon");
    let proxy = attach(&path, config).expect("it answers");
    let attachment = proxy.attach_cpu().expect("attached");
    World { daemon, path, _proxy: proxy, attachment, descriptors: descriptors() }
});

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("/proc").count()
}

/// What a client does, byte by byte.
struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    fn byte(&mut self) -> Option<u8> {
        self.0.split_off_first().copied()
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = u16::from_le_bytes([self.byte()?, self.byte()?]) as usize;
        self.0.split_off(..len.min(self.0.len()))
    }

    fn word(&mut self) -> Option<u64> {
        self.0.split_off(..8).map(|word| u64::from_le_bytes(word.try_into().expect("eight")))
    }
}

fuzz_target!(|data: &[u8]| {
    let World { path, .. } = &*WORLD;
    let mut script = Script(data);
    let Some(hello) = script.bytes() else { return };
    let raw = Raw::connect(path);
    raw.try_send(hello);
    // The answer to a hello is worth waiting for: what follows is of interest once there is an
    // attachment.
    let mut fds = if hello.starts_with(raw::MAGIC) { raw.descriptors() } else { Vec::new() };
    let region = (!fds.is_empty()).then(|| fds.remove(0));
    // A guest has the region's descriptor, and whatever the daemon thinks of it, may map it.
    let region = region.and_then(|region| PinnedRegion::from_trusted_fd(region).ok());
    let _ = play(&raw, region.as_ref(), &fds, &mut script);
    let _ = rustix::net::shutdown(&raw.0, Shutdown::Write);
    // Until it has closed: the next input is not to find what this one left.
    while rustix::net::recv(&raw.0, &mut [0; 1 << 16], RecvFlags::empty()).is_ok_and(|(len, _)| len > 0) {}
    check();
});

fn play(
    raw: &Raw,
    region: Option<&Arc<PinnedRegion>>,
    doorbells: &[std::os::fd::OwnedFd],
    script: &mut Script<'_>,
) -> Option<()> {
    loop {
        match script.byte()? % 8 {
            0..3 => raw.try_send(script.bytes()?),
            3 => {
                let count = script.byte()? as usize % 20;
                let _ = raw.send_with(script.bytes()?, &vec![raw.fd(); count]);
            }
            4 | 5 => {
                let (at, value) = (script.word()?, script.word()?);
                let Some(region) = region else { continue };
                // The first pages: the header, the words, the control slots and the lines of a
                // small region.
                let at = at as usize % (region.len() / 8).min(16 * 512);
                let word = region.base().as_ptr().cast::<u64>().wrapping_add(at);
                // SAFETY: an aligned word of the region, which lives; all its users access it by
                // atomic operations, or as plain integers that they do not believe.
                unsafe { AtomicU64::from_ptr(word) }.store(value, Ordering::Release);
            }
            6 => {
                let doorbell = script.byte()? as usize;
                if !doorbells.is_empty() {
                    let _ = rustix::io::write(&doorbells[doorbell % doorbells.len()], &1u64.to_ne_bytes());
                }
            }
            // What it has been told so far.
            _ => {
                while rustix::net::recv(&raw.0, &mut [0; 1 << 16], RecvFlags::DONTWAIT)
                    .is_ok_and(|(len, _)| len > 0)
                {}
            }
        }
    }
}

/// Checks now and then that the other client is served, and that nothing accumulates.
fn check() {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let World { daemon, attachment, descriptors: before, .. } = &*WORLD;
    if RUNS.fetch_add(1, Ordering::Relaxed) % 256 != 255 {
        return;
    }
    assert!(daemon.is_alive());
    assert!(attachment.usage().ring_bytes > 0, "it is not served any more");
    let start = Instant::now();
    while daemon.snapshot().is_none_or(|now| now.clients.len() > 1) || descriptors() > before + 4 {
        assert!(
            start.elapsed() < Duration::from_secs(15),
            "{:?}, {} descriptors",
            daemon.snapshot(),
            descriptors()
        );
        std::thread::sleep(Duration::from_millis(1));
    }
}
