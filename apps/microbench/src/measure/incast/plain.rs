//! The same measurement with plain sockets and threads.

use super::Got;
use crate::sockets::{Kind, ListenAddr, Listener, Socket, join, spawn};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{ErrorKind, Result};
use std::time::{Duration, Instant};

/// Longer than any silence of a sender.
const SILENCE: Timespec = Timespec { tv_sec: 20, tv_nsec: 0 };
/// How long senders wait for their receiver.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Runs threads that each send messages for `duration`.
pub fn send(to: &ListenAddr, senders: u32, message: u64, duration: Duration) -> Result<()> {
    std::thread::scope(|scope| {
        let threads: Result<Vec<_>> =
            (0..senders).map(|_| spawn(scope, || send_one(to, message, duration))).collect();
        threads?.into_iter().try_for_each(join)
    })
}

fn send_one(to: &ListenAddr, message: u64, duration: Duration) -> Result<()> {
    let start = Instant::now();
    let mut socket = loop {
        match Socket::connect(to) {
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ConnectionRefused)
                    && start.elapsed() < TIMEOUT =>
            {
                std::thread::sleep(Duration::from_millis(1));
            }
            result => break result?,
        }
    };
    let (message, start) = (vec![1; message as usize], Instant::now());
    while start.elapsed() < duration {
        socket.send_all(&message)?;
    }
    Ok(())
}

/// Runs threads that send, and one that receives.
pub fn receive(kind: Kind, senders: u32, message: u64, duration: Duration) -> Result<Got> {
    let listener = Listener::new(kind)?;
    let addr = listener.local_addr()?;
    std::thread::scope(|scope| {
        let sending = spawn(scope, move || send(&addr, senders, message, duration))?;
        let sockets: Result<Vec<Socket>> = (0..senders).map(|_| listener.accept()).collect();
        let got = drain(sockets?, message)?;
        join(sending)?;
        Ok(got)
    })
}

/// Receives until every sender has ended. It takes one message in turn from each sender that is
/// ready.
fn drain(sockets: Vec<Socket>, message: u64) -> Result<Got> {
    let mut each = vec![0; sockets.len()];
    let mut open: Vec<(usize, Socket)> = sockets.into_iter().enumerate().collect();
    let mut message = vec![0; message as usize];
    let (start, mut time) = (Instant::now(), None);
    while !open.is_empty() {
        let mut fds: Vec<_> = open.iter().map(|(_, socket)| PollFd::new(socket, PollFlags::IN)).collect();
        if poll(&mut fds, Some(&SILENCE))? == 0 {
            return Err(ErrorKind::TimedOut.into());
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        let mut ended = Vec::new();
        for ((sender, socket), _) in open.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
            match socket.receive(&mut message)? {
                0 => {
                    time.get_or_insert_with(|| start.elapsed());
                    ended.push(*sender);
                }
                n if time.is_none() => each[*sender] += n as u64,
                _ => {}
            }
        }
        open.retain(|(sender, _)| !ended.contains(sender));
    }
    Ok(Got { time: time.unwrap_or_else(|| start.elapsed()), each })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_senders_are_received() {
        for kind in [Kind::Tcp, Kind::Unix] {
            let got = receive(kind, 3, 4096, Duration::from_millis(20)).unwrap();
            assert_eq!(got.each.len(), 3);
            assert!(got.time > Duration::ZERO);
        }
    }
}
