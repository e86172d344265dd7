//! One rc stream: carries out what the state machine asks for, and feeds it what completes.

use crate::transport::{Ready, StreamIo, Turn};
use crate::verbs::{Completion, CompletionStatus, Endpoint, WorkRequest};
use gpunet_abi::{Options, RingSpan};
use gpunet_stream::rc::{Config, Failure, Hello, Machine, Message};
use std::io;
use std::os::fd::BorrowedFd;

/// Nanoseconds after which a peer is given up whose host has sent nothing while requests are under
/// way. The card's own retries (about 8 s) end first, unless the peer chose to retry forever, as
/// rsockets do on devices that take seven retries for that.
const ANSWER_TIMEOUT_NS: u64 = 60_000_000_000;
/// Deadlines are whole multiples of this, in nanoseconds.
const ROUND_NS: u64 = 50_000_000;
/// How long an orderly end may take to reach the peer, in nanoseconds.
const CLOSE_NS: u64 = 3_000_000_000;
/// The same for a connection that is given up.
const RESET_NS: u64 = 200_000_000;
/// How long a queue pair stays after the last message of a peer that is no gpunet, in nanoseconds.
/// A card shows a message before it has acknowledged it, and a queue pair that goes takes the
/// acknowledgement along: librdmacm, which waits for it before it closes, then hangs for all its
/// retries (half a minute with rdma_cm's timeouts). A gpunet does not wait for it.
const ACKNOWLEDGE_NS: u64 = 20_000_000;

pub(super) struct RcIo {
    machine: Machine,
    endpoint: Box<dyn Endpoint>,
    /// The time of the latest turn.
    now: u64,
    started: bool,
    next_id: u64,
    /// Bytes given by `take` and `discard`.
    taken: u64,
    /// Bytes that `offer` has reported as taken, and those that `completed` has reported.
    accepted: u64,
    reported: u64,
    reset: bool,
    /// When the end is over, whether it reached the peer or not.
    close_by: Option<u64>,
    /// A message has come since the time was looked at.
    has_news: bool,
    /// When the last message had come.
    news_at: Option<u64>,
    /// The connection manager has told that the peer has let go of the connection.
    is_disconnected: bool,
}

impl RcIo {
    pub(super) fn new(mut endpoint: Box<dyn Endpoint>, config: &Config, peer: Hello) -> io::Result<Self> {
        endpoint.shorten_rnr_timer()?;
        endpoint.arm()?;
        Ok(Self {
            machine: Machine::new(config, peer, 0),
            endpoint,
            now: 0,
            started: false,
            next_id: 0,
            taken: 0,
            accepted: 0,
            reported: 0,
            reset: false,
            close_by: None,
            has_news: false,
            news_at: None,
            is_disconnected: false,
        })
    }

    /// Notes the time of what has come before it.
    const fn note_time(&mut self, now: u64) {
        self.now = now;
        if self.has_news {
            (self.has_news, self.news_at) = (false, Some(now));
        }
    }

    /// The time at which all messages are certainly acknowledged, for a peer that may wait for the
    /// last acknowledgement.
    fn acknowledged_at(&self) -> Option<u64> {
        let is_over = self.reset || self.is_disconnected || self.machine.failure().is_some();
        let waits = !(is_over || self.machine.is_peer_gpunet());
        self.news_at
            .filter(|_| waits && self.machine.is_peer_shut())
            .map(|at| at.saturating_add(ACKNOWLEDGE_NS))
    }

    /// Takes completions until there are none; returns whether there were any.
    fn poll_completions(&mut self) -> bool {
        let mut any = false;
        while let Some(completion) = self.endpoint.poll() {
            any = true;
            match completion {
                Completion::Received { message, len } => self.handle_message(message, len),
                Completion::Sent { status: CompletionStatus::Success, .. } => {
                    self.machine.handle_sent(self.now)
                }
                Completion::Sent { status, .. } => self.machine.handle_send_failed(failure(status)),
                // The queue pair is in error: a failed request has shown why just before, or the
                // peer's writes were refused here, or the connection is gone.
                Completion::Flushed => self.machine.handle_disconnected(),
            }
        }
        any
    }

    fn handle_message(&mut self, message: u32, len: Option<u32>) {
        self.has_news = true;
        if let Err(error) = self.endpoint.post_receive() {
            // Into a queue pair that is in error nothing can be posted; that shows elsewhere.
            tracing::debug!(%error, "receive not posted");
        }
        // Violations are kept by the machine, as its failure.
        if let Ok(Message::Credits(_)) = self.machine.handle_message(message, len, self.now) {
            while let Some(area) = self.endpoint.table().take(self.machine.expected_entry()) {
                if self.machine.handle_area(area).is_err() {
                    break;
                }
            }
        }
    }

    /// Posts what the machine wants posted.
    fn post(&mut self) {
        while let Some(op) = self.machine.poll(self.now) {
            let id = self.next_id;
            self.next_id += 1;
            if let Err(error) = self.endpoint.post(&WorkRequest { id, op }) {
                tracing::debug!(%error, ?op, "request not posted");
                self.machine.handle_failure(Failure::Device);
                return;
            }
        }
    }

    /// Bytes that were posted and that `offer` has not counted yet: what it was offered without a
    /// grant is posted when the grant comes.
    fn uncounted(&self) -> u64 {
        self.machine.posted() - self.accepted
    }

    /// Bytes that lie in the ring and were not given yet.
    fn landed(&self) -> u64 {
        self.machine.received() - self.taken
    }

    /// The result for a reader with nothing left to read.
    fn nothing(&self) -> io::Result<usize> {
        match self.machine.failure() {
            // What was lost is what this end has sent: the peer has ended its stream in order.
            Some(Failure::Closed) => Ok(0),
            Some(failure) => Err(error(failure)),
            None if self.machine.is_peer_shut() => Ok(0),
            None => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

impl StreamIo for RcIo {
    fn turn(&mut self, turn: &Turn) -> Ready {
        self.note_time(turn.now);
        if !std::mem::replace(&mut self.started, true) {
            self.machine.handle_alive(turn.now);
        }
        self.poll_completions();
        let [completions, changes] = turn.events;
        if completions {
            // An event does not cover what came after it: arm again, then poll again.
            if let Err(error) = self.endpoint.arm() {
                tracing::debug!(%error, "completion events are over");
                self.machine.handle_failure(Failure::Device);
            }
            self.poll_completions();
        }
        if changes && self.endpoint.is_disconnected() {
            // What it sent before has come by now.
            self.poll_completions();
            self.machine.handle_disconnected();
            self.is_disconnected = true;
        }
        if self
            .machine
            .waiting_since()
            .is_some_and(|since| turn.now >= since.saturating_add(ANSWER_TIMEOUT_NS))
        {
            self.machine.handle_failure(Failure::Unreachable);
        }
        let consumed = if turn.discards { self.taken } else { turn.consumed };
        self.machine.handle_consumed(consumed);
        self.post();
        let failed = self.machine.failure().is_some();
        let ended = failed || self.machine.is_peer_shut();
        Ready {
            readable: ended || self.landed() > 0,
            ended,
            writable: self.uncounted() > 0
                || self.machine.may_send()
                || self.machine.send_failure().is_some(),
            failed,
        }
    }

    fn is_pollable(&self) -> bool {
        true
    }

    fn poll(&mut self) -> bool {
        self.poll_completions()
    }

    fn offer(&mut self, span: RingSpan) -> io::Result<usize> {
        if self.machine.send_failure().is_none() {
            self.machine.offer(self.accepted + span.len() as u64);
            self.post();
        }
        // What was posted is counted first, even if the connection has failed since.
        match self.uncounted() {
            0 => Err(self.machine.send_failure().map_or(io::ErrorKind::WouldBlock.into(), error)),
            posted => {
                self.accepted += posted;
                Ok(posted as usize)
            }
        }
    }

    fn completed(&mut self) -> u64 {
        let completed = self.machine.completed().min(self.accepted) - self.reported;
        self.reported += completed;
        completed
    }

    fn take(&mut self, span: RingSpan) -> io::Result<usize> {
        match self.landed().min(span.len() as u64) {
            0 => self.nothing(),
            n => {
                super::visibility::before_landed();
                self.taken += n;
                Ok(n as usize)
            }
        }
    }

    fn discard(&mut self) -> io::Result<usize> {
        let n = self.landed();
        if n == 0 {
            return self.nothing();
        }
        self.taken += n;
        self.machine.handle_consumed(self.taken);
        self.post();
        Ok(n as usize)
    }

    fn failure(&mut self) -> Option<io::Error> {
        self.machine.failure().map(error)
    }

    fn shutdown_write(&mut self) -> io::Result<()> {
        self.machine.shutdown();
        self.post();
        Ok(())
    }

    fn reset(&mut self) {
        self.reset = true;
        self.machine.reset();
        self.post();
    }

    fn close(&mut self, now: u64) -> bool {
        self.note_time(now);
        let limit = if self.reset { RESET_NS } else { CLOSE_NS };
        let by = *self.close_by.get_or_insert(now.saturating_add(limit));
        if !self.reset {
            self.machine.disconnect();
            self.post();
        }
        now >= by || (self.machine.is_settled() && self.acknowledged_at().is_none_or(|at| now >= at))
    }

    fn deadline(&self) -> Option<u64> {
        let timeout = self.machine.waiting_since().map(|since| since.saturating_add(ANSWER_TIMEOUT_NS));
        // Rounded up, so that it moves now and then and not with every message.
        let next = self.machine.deadline().or(timeout).map(|at| at.next_multiple_of(ROUND_NS));
        let acknowledged = self.close_by.and_then(|_| self.acknowledged_at());
        self.close_by.into_iter().chain(acknowledged).chain(next).min()
    }

    fn set_options(&mut self, _options: &Options) -> io::Result<()> {
        // This transport always sends without delay, and keep-alives.
        Ok(())
    }

    fn unacknowledged(&self) -> u64 {
        self.accepted.saturating_sub(self.machine.completed())
    }

    fn readiness(&self) -> [Option<BorrowedFd<'_>>; 2] {
        self.endpoint.readiness().map(Some)
    }
}

/// What a failed request means for the connection.
fn failure(status: CompletionStatus) -> Failure {
    match status {
        CompletionStatus::RetryExceeded | CompletionStatus::RnrRetryExceeded => Failure::Unreachable,
        // The peer's card let go of the connection, or ours did after a failure that is reported
        // already.
        CompletionStatus::RemoteRefused | CompletionStatus::Flushed => Failure::Reset,
        CompletionStatus::Success | CompletionStatus::Other(_) => Failure::Device,
    }
}

fn error(failure: Failure) -> io::Error {
    let code = match failure {
        Failure::Protocol(violation) => {
            tracing::debug!(%violation, "the peer broke the protocol");
            libc::EPROTO
        }
        Failure::Reset => libc::ECONNRESET,
        Failure::Unreachable => libc::ETIMEDOUT,
        Failure::Closed => libc::EPIPE,
        Failure::Device => libc::EIO,
    };
    io::Error::from_raw_os_error(code)
}
