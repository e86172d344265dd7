//! Two connected endpoints, and waiting for what they do.

use super::ring::Rings;
use gpunet_core::verbs::rdma::Rdma;
use gpunet_core::verbs::{
    Completion, Depth, Endpoint, Keys, Listening, Op, Request, Source, Verbs, WorkRequest,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

pub const DEPTH: Depth = Depth { sends: 8, receives: 8 };

/// Ten times what the emulated card needs.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Names the step that begins, with the time since the first one.
pub fn step(what: &str) {
    static START: OnceLock<Instant> = OnceLock::new();
    println!("--- {:6.2} s: {what}", START.get_or_init(Instant::now).elapsed().as_secs_f64());
}

pub fn address(port: u16) -> SocketAddr {
    let ip = std::env::var("GPUNET_RDMA_ADDRESS").unwrap_or_else(|_| "10.9.0.1".to_owned());
    SocketAddr::new(ip.parse::<IpAddr>().expect("GPUNET_RDMA_ADDRESS is an IP address"), port)
}

/// Looks until there is a result.
pub async fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < TIMEOUT, "waited for {what}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

pub fn listener(rdma: &Rdma, port: u16) -> Box<dyn Listening> {
    let mut listening = rdma.listen(address(port), 4).unwrap();
    assert_eq!(listening.next().err().unwrap().kind(), ErrorKind::WouldBlock);
    listening
}

pub async fn next_request(listening: &mut dyn Listening) -> Request {
    until("a request", || match listening.next() {
        Ok(request) => Some(request),
        Err(e) => {
            assert_eq!(e.kind(), ErrorKind::WouldBlock, "{e}");
            None
        }
    })
    .await
}

/// Both ends of a connection.
pub struct Pair {
    pub local: Box<dyn Endpoint>,
    pub remote: Box<dyn Endpoint>,
    pub remote_keys: Keys,
    pub request_data: Vec<u8>,
    pub answer_data: Vec<u8>,
    pub iwarp: bool,
}

pub async fn connect(rdma: &Rdma, port: u16, local: &Rings, remote: &Rings) -> Pair {
    let mut listening = listener(rdma, port);
    let mut handshake = rdma.resolve(address(port), None).await.unwrap();
    let iwarp = handshake.device().iwarp;
    assert!(handshake.device().max_depth >= DEPTH.sends);
    handshake.prepare(&local.memory(), DEPTH).unwrap();
    let client = handshake.local();
    let serve = async {
        let Request { mut handshake, private_data } = next_request(&mut *listening).await;
        assert_eq!(handshake.local(), address(port));
        assert_eq!(handshake.peer().ip(), client.ip());
        let keys = handshake.prepare(&remote.memory(), DEPTH).unwrap();
        (handshake.accept(b"from the server").await.unwrap(), keys, private_data)
    };
    let (active, passive) = tokio::join!(handshake.connect(b"from the client"), serve);
    let (mut local, answer_data) = active.unwrap();
    let (mut remote, remote_keys, request_data) = passive;
    local.shorten_rnr_timer().unwrap();
    remote.shorten_rnr_timer().unwrap();
    local.arm().unwrap();
    remote.arm().unwrap();
    Pair { local, remote, remote_keys, request_data, answer_data, iwarp }
}

impl Pair {
    /// Writes with a message: on iWARP the message is a send of its own, whose completion comes
    /// second.
    pub async fn write(&mut self, id: u64, from: Source, to: u64, rkey: u32, message: u32) {
        if !self.iwarp {
            let op = Op::Write { from, to, rkey, immediate: Some(message) };
            self.local.post(&WorkRequest { id, op }).unwrap();
            return;
        }
        if from != Source::Nothing {
            let op = Op::Write { from, to, rkey, immediate: None };
            self.local.post(&WorkRequest { id: u64::MAX, op }).unwrap();
        }
        self.local.post(&WorkRequest { id, op: Op::Send { message } }).unwrap();
        if from != Source::Nothing {
            assert!(matches!(self.local_next().await, Completion::Sent { id: u64::MAX, .. }));
        }
    }

    pub async fn local_next(&mut self) -> Completion {
        next(&mut *self.local)
    }

    pub async fn expect_message(&mut self, message: u32, len: u32) {
        let len = (!self.iwarp).then_some(len);
        assert_eq!(next(&mut *self.remote), Completion::Received { message, len });
    }
}

/// As a data thread does it: polls, arms, polls once more, sleeps on the descriptors.
fn next(endpoint: &mut dyn Endpoint) -> Completion {
    let start = Instant::now();
    loop {
        if let Some(completion) = endpoint.poll() {
            return completion;
        }
        endpoint.arm().unwrap();
        if let Some(completion) = endpoint.poll() {
            return completion;
        }
        assert!(start.elapsed() < TIMEOUT, "waited for a completion");
        let [completions, _] = endpoint.readiness();
        let mut fds = [PollFd::from_borrowed_fd(completions, PollFlags::IN)];
        // Longer than the timeout of the next poll, so that a lost event is seen as slowness.
        let wait = Timespec { tv_sec: 5, tv_nsec: 0 };
        let _ = poll(&mut fds, Some(&wait));
    }
}
