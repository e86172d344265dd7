//! Watching many sockets from one thread that is not theirs.
//!
//! `poll` reads the device's table, whose entries belong to the groups that use the sockets. A
//! [`Watch`] needs no table: it is a copy of what its socket believed when it had to wait, and
//! reads only words of the other end and of the proxy, so any thread may poll it.
//!
//! A thread waits for one socket by [`Sleeper::wait`], on the park flag beside the socket's word,
//! as a CPU block does; or for any of many, on what every change moves on ([`Sleeper::sleep`]).

use crate::platform::CallGuard;
use crate::socket::awaiting::differs;
use crate::socket::half::remote_park;
use crate::socket::next_units::NextUnits;
use crate::table::slots;
use crate::wait::deadline::Deadline;
use crate::wait::guard::WaitGuard;
use crate::{Listener, Net, RecvHalf, Result, SendHalf, platform};
use gpunet_abi::epoch::Epoch;
use gpunet_abi::layout::HEARTBEAT_DOWN;
use gpunet_abi::position::StreamWord;
use gpunet_abi::ring::RingEnd;
use gpunet_abi::{Direction, Error, Handle, Link, Status, Word};
use std::time::{Duration, Instant};

/// Polls between two looks at the clock of a wait that spins.
const POLLS_PER_CLOCK: u32 = 64;

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
    /// lines; or the status gets an error, or what ends that half.
    Half { theirs: Word, seen: StreamWord, ahead: u64, half: Direction, link: Link, units: Option<NextUnits> },
    /// The ready count is not 0.
    Listener,
}

impl Watch {
    /// Waits for space to send, after the half found none.
    #[must_use]
    pub fn space(half: &SendHalf) -> Self {
        let (RingEnd { theirs, link, .. }, seen) = (half.producer.end(), half.producer.released());
        let what = What::Half { theirs, seen, ahead: 0, half: Direction::Send, link, units: None };
        Self { net: half.net, handle: half.handle, what }
    }

    /// Waits for bytes to receive, after the half found none.
    #[must_use]
    pub fn bytes(half: &RecvHalf) -> Self {
        let (RingEnd { theirs, link, .. }, seen) = (half.consumer.end(), half.consumer.landed());
        let ahead = half.consumer.ahead();
        let units = half.consumer.end().has_units().then(|| half.next_units());
        let what = What::Half { theirs, seen, ahead, half: Direction::Recv, link, units };
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
            What::Half { theirs, seen, ahead, half, units, .. } => {
                let status = self.net.status(slot, generation);
                let word = StreamWord::read(theirs.observe());
                let word = units.map_or(word, |units| units.before(word, seen));
                differs(word, seen, ahead)
                    || units.is_some_and(|units| units.are_next(seen))
                    || status.is_some_and(|status| status.error().is_some() || status.has(end_of(half)))
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
            if matches!(self.what, What::Half { half, .. } if status.has(end_of(half))) {
                return Err(Error::BrokenPipe);
            }
        }
        if self.net.cancel().peek() != 0 {
            return Err(Error::Canceled);
        }
        if self.net.heartbeat().peek() == HEARTBEAT_DOWN { Err(Error::NetworkDown) } else { Ok(()) }
    }

    /// Wakes the threads that wait for this half ([`Sleeper::wait`]), after another thread of the
    /// process has changed what their `is_stale` returns.
    pub fn wake(&self) {
        let _call = self.enter();
        // Who closed the socket has woken them. Its words may be another's by now.
        if slots::kind_of(self.net, self.handle).is_ok() {
            self.park_flag().into_iter().for_each(platform::cpu::wake);
        }
    }

    /// Returns whether the other end wakes nobody: a GPU.
    const fn is_polled(&self) -> bool {
        matches!(self.what, What::Half { link, .. } if link.is_polled())
    }

    /// Keeps the words' addresses from being used for other memory.
    fn enter(&self) -> CallGuard {
        match self.what {
            What::Half { theirs, .. } => CallGuard::enter(self.net, theirs),
            What::Listener => CallGuard::enter_any(self.net),
        }
    }

    /// What a thread sleeps on that waits for this half: whoever changes its words wakes it.
    fn park_flag(&self) -> Option<*mut u32> {
        let slot = self.handle.slot();
        match self.what {
            What::Half { theirs, half, link, .. } if link.is_remote() => Some(remote_park(theirs, half)),
            What::Half { half: Direction::Send, .. } => Some(self.net.send_park(slot)),
            What::Half { half: Direction::Recv, .. } => Some(self.net.recv_park(slot)),
            What::Listener => None,
        }
    }
}

/// The flag of the status that ends a half.
const fn end_of(half: Direction) -> u64 {
    match half {
        Direction::Send => Status::NO_SEND,
        Direction::Recv => Status::EOF,
    }
}

/// A thread that sleeps until something changes that some [`Watch`] may wait for: one of many, by
/// [`Sleeper::sleep`], or one alone, by [`Sleeper::wait`].
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

    /// Waits in the calling thread until `watch` is over or `is_stale`, or until `until`; returns
    /// whether it is over. It polls for the time of `spin` before it sleeps. Any number of threads
    /// may wait for one half of a stream. A listener is waited for by [`Sleeper::sleep`].
    ///
    /// No wake-up is lost. The thread sleeps on the park flag beside the word, as a CPU block does
    /// (`gpunet_abi::park`): whoever changes the word or the status stores it, passes a SeqCst
    /// fence, and wakes the threads if the flag is set; the thread sets the flag, passes the same
    /// fence, and looks at word, status and `is_stale` once more before it sleeps. So either the
    /// writer sees the flag, or the thread sees the change. Several threads may share the flag, so
    /// each sets it to a number of its own and sleeps only while it has that number, and none of
    /// them clears it ([`gpunet_abi::park::park_beside_others`]): who wakes clears it, and then
    /// wakes all. A thread that finds another value in it when it is about to sleep looks again; if
    /// it finds its number, nobody has cleared the flag since it looked, and whoever does wakes it.
    ///
    /// What changes in this process alone (a shutdown, a half that is dropped) is `is_stale`: it
    /// changes, then [`Watch::wake`] follows, in the same pattern. A close makes the handle stale
    /// before it wakes.
    ///
    /// # Errors
    /// Canceled; NetworkDown.
    pub fn wait(
        &mut self,
        watch: &Watch,
        spin: Duration,
        until: Option<Instant>,
        is_stale: impl Fn() -> bool,
    ) -> Result<bool> {
        // Entered before the first look at the handle: from then on the words stay what they are,
        // unless the handle is stale.
        let _call = watch.enter();
        let is_closed = || slots::kind_of(watch.net, watch.handle).is_err();
        let is_over = || is_stale() || is_closed() || watch.is_over();
        if !spin.is_zero() {
            let start = Instant::now();
            while start.elapsed() < spin && until.is_none_or(|until| Instant::now() < until) {
                for _ in 0..POLLS_PER_CLOCK {
                    if is_over() {
                        return Ok(true);
                    }
                    std::hint::spin_loop();
                }
            }
        }
        let mut sleeps = 0;
        loop {
            if is_over() {
                return Ok(true);
            }
            self.check()?;
            let left = until.map_or(Duration::MAX, |until| until.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                return Ok(false);
            }
            let naps = watch.is_polled().then_some(sleeps);
            match watch.park_flag() {
                Some(flag) => platform::cpu::park_thread(flag, left, naps, is_over),
                None => return Err(Error::InvalidArgument),
            }
            sleeps += 1;
        }
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
