//! Watching many sockets from one thread that is not theirs.
//!
//! `poll` reads the device's table, whose entries belong to the groups that use the sockets. A
//! [`Watch`] needs no table: it is a copy of what its socket believed when it had to wait, and
//! reads only words of the other end and of the proxy, so any thread may poll it.

use crate::socket::awaiting::differs;
use crate::wait::deadline::Deadline;
use crate::wait::guard::WaitGuard;
use crate::{Listener, Net, RecvHalf, Result, SendHalf, platform};
use gpunet_abi::epoch::Epoch;
use gpunet_abi::layout::HEARTBEAT_DOWN;
use gpunet_abi::position::StreamWord;
use gpunet_abi::{Error, Handle, Status, Word};

/// What a socket waits for.
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Buffer, Error, Group, Net, RecvHalf, Result, cpu::watch::Watch};
/// # fn example<G: Group>(g: &G, net: Net, recv: &mut RecvHalf, buffer: Buffer) -> Result<()> {
/// if recv.try_recv(g, buffer) == Err(Error::WouldBlock) {
///     let watch = Watch::bytes(recv); // another thread may poll it
///     while !watch.is_over() {}
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Watch {
    net: Net,
    handle: Handle,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    /// The other end's word moves past `seen`, and further than a receiver is `ahead` of it by
    /// lines; or the status gets an error or `flag`.
    Half { theirs: Word, seen: StreamWord, ahead: u64, flag: u64 },
    /// The ready count is not 0.
    Listener,
}

impl Watch {
    /// Waits for space to send, after the half found none.
    #[must_use]
    pub fn space(half: &SendHalf) -> Self {
        let (theirs, seen) = (half.producer.end().theirs, half.producer.released());
        let what = What::Half { theirs, seen, ahead: 0, flag: Status::NO_SEND };
        Self { net: half.net, handle: half.handle, what }
    }

    /// Waits for bytes to receive, after the half found none.
    #[must_use]
    pub fn bytes(half: &RecvHalf) -> Self {
        let (theirs, seen) = (half.consumer.end().theirs, half.consumer.landed());
        let what = What::Half { theirs, seen, ahead: half.consumer.ahead(), flag: Status::EOF };
        Self { net: half.net, handle: half.handle, what }
    }

    /// Waits for a connection to accept.
    #[must_use]
    pub fn connections(net: Net, listener: &Listener) -> Self {
        Self { net, handle: listener.handle(), what: What::Listener }
    }

    /// Returns whether the wait is over, so that the call should be repeated.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let (slot, generation) = (self.handle.slot(), self.handle.generation());
        match self.what {
            What::Half { theirs, seen, ahead, flag } => {
                let status = self.net.status(slot, generation);
                differs(StreamWord::read(theirs.observe()), seen, ahead)
                    || status.is_some_and(|status| status.error().is_some() || status.has(flag))
            }
            What::Listener => self.net.ready(slot).observe() > 0,
        }
    }

    /// Checks whether a send is still useful although there may be space: the stream may have
    /// failed, its peer may read no more, the launch may be cancelled, the proxy stopped.
    ///
    /// A kernel's send does not check, because that costs a trip over the bus; a CPU's may.
    ///
    /// # Errors
    /// The stream's; BrokenPipe; Canceled; NetworkDown.
    pub fn check(&self) -> Result<()> {
        if let Some(status) = self.net.status(self.handle.slot(), self.handle.generation()) {
            if let Some(error) = status.error() {
                return Err(error);
            }
            if matches!(self.what, What::Half { flag, .. } if status.has(flag)) {
                return Err(Error::BrokenPipe);
            }
        }
        if self.net.cancel().peek() != 0 {
            return Err(Error::Canceled);
        }
        if self.net.heartbeat().peek() == HEARTBEAT_DOWN { Err(Error::NetworkDown) } else { Ok(()) }
    }
}

/// A thread that sleeps until something changes that some [`Watch`] may wait for.
///
/// It loads the change counts (the epoch, and the bell of each arena), polls its watches, and
/// sleeps on these counts. A thread that changes a word advances one of them afterwards, so a
/// change that the polls missed ends the sleep at once.
///
/// # Examples
///
/// ```
/// use gpunet_device::{Net, Result, cpu::watch::{PollerRegistration, Sleeper, Watch}};
///
/// fn wait_for_one(net: Net, watches: &[Watch]) -> Result<()> {
///     let (mut sleeper, mut registration) = (Sleeper::new(net), PollerRegistration::new(net));
///     registration.enter();
///     let result = loop {
///         let counts = sleeper.change_counts();
///         if watches.iter().any(Watch::is_over) {
///             break Ok(());
///         }
///         if let Err(error) = sleeper.check() {
///             break Err(error);
///         }
///         sleeper.sleep(&counts);
///     };
///     registration.leave();
///     result
/// }
/// ```
pub struct Sleeper {
    net: Net,
    guard: WaitGuard,
}

impl Sleeper {
    /// Begins to watch an attachment's heartbeat, too.
    #[must_use]
    pub fn new(net: Net) -> Self {
        Self { net, guard: WaitGuard::new(net, Deadline::NEVER) }
    }

    /// Loads epoch and bells: to be called before the polls that precede a sleep.
    #[must_use]
    pub fn change_counts(&self) -> ChangeCounts {
        ChangeCounts(platform::ChangeCounts::load(self.net))
    }

    /// Checks whether the launch's sockets are still usable.
    ///
    /// # Errors
    /// Canceled; NetworkDown.
    pub fn check(&mut self) -> Result<()> {
        self.guard.check()
    }

    /// Sleeps until something differs from `counts`, at most 200 ms. Only a registered thread
    /// ([`PollerRegistration`]) is woken early.
    pub fn sleep(&self, counts: &ChangeCounts) {
        counts.0.sleep(u64::MAX, Epoch::wakes(None));
    }
}

/// Epoch and bells at one moment.
///
/// # Examples
///
/// ```
/// use gpunet_device::cpu::watch::{Sleeper, Watch};
///
/// fn sleep_unless_over(sleeper: &Sleeper, watch: &Watch) {
///     let counts = sleeper.change_counts(); // before the poll: a change after it ends the sleep
///     if !watch.is_over() {
///         sleeper.sleep(&counts);
///     }
/// }
/// ```
#[derive(Debug)]
pub struct ChangeCounts(platform::ChangeCounts);

/// Registers one thread among those that are woken when a word changes, until
/// [`PollerRegistration::leave`].
///
/// # Examples
///
/// ```
/// use gpunet_device::{Net, cpu::watch::PollerRegistration};
///
/// fn registered<T>(net: Net, wait: impl FnOnce() -> T) -> T {
///     let mut registration = PollerRegistration::new(net);
///     registration.enter();
///     let result = wait();
///     registration.leave();
///     result
/// }
/// ```
#[derive(Debug)]
pub struct PollerRegistration(platform::PollerRegistration);

impl PollerRegistration {
    /// Not registered yet.
    #[must_use]
    pub const fn new(net: Net) -> Self {
        Self(platform::PollerRegistration::new(net))
    }

    /// Registers the thread, wherever it is not yet: an arena that came meanwhile moved the epoch
    /// on. A watch that is polled after this call and is not over will wake the thread.
    pub fn enter(&mut self) {
        self.0.enter();
    }

    /// Takes the thread out of the registration.
    pub fn leave(&mut self) {
        self.0.leave();
    }
}
