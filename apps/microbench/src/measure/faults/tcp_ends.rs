//! The other ends of the sockets that launches open: plain TCP.

use std::io::{Read, Result, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;

/// Every byte of a stream that a launch leaves.
pub const MARK: u8 = 0xa5;
/// The first byte of a stream that is not read further. Other streams are echoed.
pub const UNREAD: u8 = 0xa6;

/// Threads that echo and check bytes until this is dropped.
pub struct TcpEnds {
    addr: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    over: AtomicBool,
    /// Bytes that arrived on the wrong stream.
    strange: AtomicU64,
    failure: Mutex<Option<String>>,
    unread: Mutex<Vec<TcpStream>>,
}

impl TcpEnds {
    pub fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let ends = Self { addr: listener.local_addr()?, state: Arc::default() };
        let state = ends.state.clone();
        Builder::new().spawn(move || {
            for stream in listener.incoming() {
                // Ordering: Relaxed; the connection that wakes this loop orders it.
                if state.over.load(Ordering::Relaxed) {
                    return;
                }
                let serves = state.clone();
                let served = stream.and_then(|stream| Builder::new().spawn(move || serves.serve(stream)));
                if let Err(error) = served {
                    *lock(&state.failure) = Some(error.to_string());
                }
            }
        })?;
        Ok(ends)
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Returns the first error so far.
    pub fn wrong(&self) -> Option<String> {
        // Ordering: Relaxed; a count.
        let strange = self.state.strange.load(Ordering::Relaxed);
        if strange > 0 {
            return Some(format!("{strange} bytes arrived on a stream to which they do not belong"));
        }
        lock(&self.state.failure).clone()
    }

    /// Closes the streams that are not read.
    pub fn let_go(&self) {
        lock(&self.state.unread).clear();
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for TcpEnds {
    fn drop(&mut self) {
        // Ordering: Relaxed; the connection orders it.
        self.state.over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(self.addr);
    }
}

impl State {
    /// Serves until the end or a reset: both are expected ends of a stream here.
    fn serve(&self, mut stream: TcpStream) {
        let mut bytes = vec![0; 64 << 10];
        let _ = stream.set_nodelay(true);
        let mut first = None;
        while let Ok(n @ 1..) = stream.read(&mut bytes) {
            match *first.get_or_insert(bytes[0]) {
                MARK => {
                    let strange = bytes[..n].iter().filter(|&&byte| byte != MARK).count();
                    // Ordering: Relaxed; a count.
                    self.strange.fetch_add(strange as u64, Ordering::Relaxed);
                }
                UNREAD => return lock(&self.unread).push(stream),
                _ if stream.write_all(&bytes[..n]).is_err() => return,
                _ => {}
            }
        }
    }
}
