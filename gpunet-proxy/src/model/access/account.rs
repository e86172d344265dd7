//! Accounts: what a user holds, and the limits on it.

use super::Limits;
use gpunet_abi::Error;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The longest burst of connects and binds, in time at the average rate.
const BURST: Duration = Duration::from_secs(1);

/// One user's account, shared by all attachments of that user.
///
/// A user's sockets and memory count until they are free again, not until their close is requested.
///
/// # Examples
/// ```
/// use gpunet_proxy::access::{Account, Limits};
///
/// let account = Account::new(1000, Limits { sockets: 1, ..Limits::default() });
/// account.take_socket()?;
/// assert!(account.take_socket().is_err(), "that is one too many");
/// account.give_socket();
/// assert_eq!(account.usage().sockets, 0);
/// # Ok::<(), gpunet_proxy::abi::Error>(())
/// ```
#[derive(Debug)]
pub struct Account {
    uid: u32,
    state: Mutex<State>,
    totals: Arc<Totals>,
}

/// The limits of the process for all users together.
#[derive(Debug, Default)]
struct Totals {
    descriptors: Descriptors,
    memory: RingMemory,
}

/// An amount that all users share.
#[derive(Debug)]
struct Total {
    limit: u64,
    held: Mutex<u64>,
}

impl Total {
    fn lock(&self) -> MutexGuard<'_, u64> {
        // Nothing under this lock panics halfway through a change.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an amount for a user who holds `own` of `allowed`.
    fn take(&self, own: &mut u64, amount: u64, allowed: u64, error: Error) -> Result<(), Error> {
        let mut sum = *own;
        take(&mut sum, amount, allowed, error)?;
        take(&mut self.lock(), amount, self.limit, error)?;
        *own = sum;
        Ok(())
    }

    fn give(&self, amount: u64) {
        give(&mut self.lock(), amount);
    }
}

impl Default for Total {
    /// As much as there is.
    fn default() -> Self {
        Self { limit: u64::MAX, held: Mutex::new(0) }
    }
}

/// The file descriptors of the process that all users' sockets and attachments may take together.
///
/// # Examples
/// ```
/// use gpunet_proxy::access::Descriptors;
///
/// // Of 1024 descriptors users may take 768; the daemon keeps the others.
/// let descriptors = Descriptors::of_process(1024);
/// # drop(descriptors);
/// ```
#[derive(Debug, Default)]
pub struct Descriptors(Total);

impl Descriptors {
    /// Returns the part for users of a process that may open `limit` descriptors.
    ///
    /// The reserve is for the daemon itself and for operators' connections: 256, or a quarter if
    /// the process has few.
    #[must_use]
    pub fn of_process(limit: u64) -> Self {
        Self(Total { limit: limit - (limit / 4).min(256), ..Total::default() })
    }
}

/// The memory that the attachments of all users may take together. Beyond what a memory cgroup
/// allows, the kernel would end the process.
///
/// # Examples
/// ```
/// use gpunet_proxy::access::RingMemory;
///
/// // Of 100 MiB users may take 75 MiB; the daemon keeps the others.
/// let memory = RingMemory::of_process(100 << 20);
/// assert_eq!(memory.limit(), 75 << 20);
/// ```
#[derive(Debug, Default)]
pub struct RingMemory(Total);

impl RingMemory {
    /// Returns the part for users of a process that may have `limit` bytes.
    ///
    /// The reserve is for the daemon itself: 256 MiB, or a quarter if the process may have little.
    #[must_use]
    pub fn of_process(limit: u64) -> Self {
        Self(Total { limit: limit - (limit / 4).min(256 << 20), ..Total::default() })
    }

    /// The share of users in this process: of the memory of the machine, or of the smallest limit
    /// of its memory cgroup and the ancestors of that.
    #[must_use]
    pub fn here() -> Self {
        Self::of_process(gpu_usermap::region::total_memory().unwrap_or(u64::MAX))
    }

    /// Returns the bytes that users may take.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.0.limit
    }
}

#[derive(Debug)]
struct State {
    limits: Limits,
    held: Held,
    /// When the bucket of connects and binds is full again; it is full if that is in the past.
    full_at: Option<Instant>,
}

/// What a user holds at one moment.
///
/// # Examples
/// ```
/// use gpunet_proxy::access::{Account, Held, Limits};
///
/// let account = Account::new(1000, Limits::default());
/// account.take_memory(1 << 20)?;
/// assert_eq!(account.usage(), Held { ring_memory: 1 << 20, ..Held::default() });
/// # account.give_memory(1 << 20);
/// # Ok::<(), gpunet_proxy::abi::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Sockets, listeners included.
    pub sockets: u64,
    /// Ring memory, bytes.
    pub ring_memory: u64,
    /// Memory registered with network cards, bytes.
    pub registered_memory: u64,
    /// File descriptors.
    pub descriptors: u64,
    /// Attachments.
    pub attachments: u64,
}

fn take(held: &mut u64, amount: u64, limit: u64, error: Error) -> Result<(), Error> {
    let sum = held.checked_add(amount).filter(|&sum| sum <= limit).ok_or(error)?;
    *held = sum;
    Ok(())
}

fn give(held: &mut u64, amount: u64) {
    debug_assert!(*held >= amount, "given back more than was taken");
    *held = held.saturating_sub(amount);
}

impl Account {
    /// An empty account of a process with as many descriptors and as much memory as it needs.
    #[must_use]
    pub fn new(uid: u32, limits: Limits) -> Self {
        Self::of(uid, limits, Arc::default())
    }

    fn of(uid: u32, limits: Limits, totals: Arc<Totals>) -> Self {
        let state = State { limits, held: Held::default(), full_at: None };
        Self { uid, state: Mutex::new(state), totals }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics halfway through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The user that it belongs to.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Takes a socket.
    ///
    /// # Errors
    /// [`Error::TooManySockets`] (EMFILE).
    pub fn take_socket(&self) -> Result<(), Error> {
        let State { limits, held, .. } = &mut *self.lock();
        take(&mut held.sockets, 1, limits.sockets.into(), Error::TooManySockets)
    }

    /// Gives a socket back.
    pub fn give_socket(&self) {
        give(&mut self.lock().held.sockets, 1);
    }

    /// Takes ring memory, from the user's share and from that of all users.
    ///
    /// # Errors
    /// [`Error::NoBuffers`] (ENOBUFS).
    pub fn take_memory(&self, bytes: u64) -> Result<(), Error> {
        let State { limits, held, .. } = &mut *self.lock();
        self.totals.memory.0.take(&mut held.ring_memory, bytes, limits.ring_memory, Error::NoBuffers)
    }

    /// Gives ring memory back.
    pub fn give_memory(&self, bytes: u64) {
        give(&mut self.lock().held.ring_memory, bytes);
        self.totals.memory.0.give(bytes);
    }

    /// Returns the ring memory that all users hold, and how much they may.
    #[must_use]
    pub fn memory_of_all(&self) -> (u64, u64) {
        (*self.totals.memory.0.lock(), self.totals.memory.limit())
    }

    /// Takes memory to be registered with a network card.
    ///
    /// # Errors
    /// [`Error::NoBuffers`] (ENOBUFS).
    pub fn take_registered(&self, bytes: u64) -> Result<(), Error> {
        let State { limits, held, .. } = &mut *self.lock();
        take(&mut held.registered_memory, bytes, limits.registered_memory, Error::NoBuffers)
    }

    /// Gives registered memory back.
    pub fn give_registered(&self, bytes: u64) {
        give(&mut self.lock().held.registered_memory, bytes);
    }

    /// Takes file descriptors, from the user's share and from that of all users.
    ///
    /// # Errors
    /// [`Error::TooManyFiles`] (ENFILE).
    pub fn take_descriptors(&self, count: u64) -> Result<(), Error> {
        let allowed = self.allowed_descriptors();
        let State { held, .. } = &mut *self.lock();
        self.totals.descriptors.0.take(&mut held.descriptors, count, allowed, Error::TooManyFiles)
    }

    /// Gives file descriptors back.
    pub fn give_descriptors(&self, count: u64) {
        give(&mut self.lock().held.descriptors, count);
        self.totals.descriptors.0.give(count);
    }

    /// How many file descriptors the user may have.
    #[must_use]
    pub fn allowed_descriptors(&self) -> u64 {
        self.lock().limits.descriptors.map_or(self.totals.descriptors.0.limit / 2, u64::from)
    }

    /// Takes an attachment.
    ///
    /// # Errors
    /// [`Error::TooManySockets`] (EMFILE).
    pub fn take_attachment(&self) -> Result<(), Error> {
        let State { limits, held, .. } = &mut *self.lock();
        take(&mut held.attachments, 1, limits.attachments.into(), Error::TooManySockets)
    }

    /// Gives an attachment back.
    pub fn give_attachment(&self) {
        give(&mut self.lock().held.attachments, 1);
    }

    /// Counts a connect or a bind.
    ///
    /// # Errors
    /// [`Error::WouldBlock`] (EAGAIN): too many in too short a time. It may be tried again.
    pub fn pace(&self, now: Instant) -> Result<(), Error> {
        let State { limits, full_at, .. } = &mut *self.lock();
        // The bucket is a point in time: each connect moves it forward by its share of a second.
        let share = BURST.checked_div(limits.connects_per_second).ok_or(Error::WouldBlock)?;
        let next = full_at.map_or(now, |at| at.max(now)) + share;
        if next.duration_since(now) > BURST {
            return Err(Error::WouldBlock);
        }
        *full_at = Some(next);
        Ok(())
    }

    /// Checks whether the user may bind that port.
    ///
    /// # Errors
    /// [`Error::AccessDenied`] (EACCES).
    pub fn bind(&self, port: u16) -> Result<(), Error> {
        if self.lock().limits.ports.allow(port) { Ok(()) } else { Err(Error::AccessDenied) }
    }

    /// Replaces the limits. What is taken stays taken, even if it is more than they allow.
    pub fn set_limits(&self, limits: Limits) {
        self.lock().limits = limits;
    }

    /// The limits in force.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.lock().limits.clone()
    }

    /// What is held.
    #[must_use]
    pub fn usage(&self) -> Held {
        self.lock().held
    }

    /// Returns whether it can be forgotten without losing anything.
    fn is_idle(&self, now: Instant) -> bool {
        let state = self.lock();
        state.held == Held::default() && state.full_at.is_none_or(|at| at <= now)
    }
}

/// The accounts of all users.
///
/// # Examples
/// ```
/// use gpunet_proxy::access::{Accounts, Descriptors, Limits, RingMemory};
///
/// let accounts = Accounts::new(Descriptors::of_process(1024), RingMemory::here());
/// let account = accounts.account(1000, Limits::default());
/// assert_eq!(account.uid(), 1000);
/// ```
#[derive(Debug, Default)]
pub struct Accounts {
    accounts: Mutex<BTreeMap<u32, Arc<Account>>>,
    totals: Arc<Totals>,
}

impl Accounts {
    /// Creates an empty set of accounts for a process that may have these descriptors and this
    /// memory.
    #[must_use]
    pub fn new(descriptors: Descriptors, memory: RingMemory) -> Self {
        Self { accounts: Mutex::default(), totals: Arc::new(Totals { descriptors, memory }) }
    }

    /// The account of a user, with these limits from now on.
    ///
    /// Accounts are removed here once they are unused, hold nothing and have a full bucket: so a
    /// user gets no fresh bucket by detaching and attaching again.
    pub fn account(&self, uid: u32, limits: Limits) -> Arc<Account> {
        self.account_at(uid, limits, Instant::now())
    }

    fn account_at(&self, uid: u32, limits: Limits, now: Instant) -> Arc<Account> {
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        accounts.retain(|_, account| Arc::strong_count(account) > 1 || !account.is_idle(now));
        let new = || Arc::new(Account::of(uid, limits.clone(), self.totals.clone()));
        let account = accounts.entry(uid).or_insert_with(new);
        account.set_limits(limits);
        account.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits {
            sockets: 2,
            ring_memory: 100,
            registered_memory: 50,
            connects_per_second: 3,
            descriptors: Some(7),
            attachments: 1,
            ..Limits::default()
        }
    }

    #[test]
    fn each_limit_has_its_errno_and_what_comes_back_can_be_taken_again() {
        let account = Account::new(1, limits());
        assert_eq!([(); 3].map(|()| account.take_socket()), [Ok(()), Ok(()), Err(Error::TooManySockets)]);
        account.give_socket();
        assert_eq!(account.take_socket(), Ok(()));
        assert_eq!(account.take_memory(60), Ok(()));
        assert_eq!(account.take_memory(41), Err(Error::NoBuffers));
        assert_eq!(account.take_memory(u64::MAX), Err(Error::NoBuffers));
        assert_eq!(account.take_memory(40), Ok(()));
        assert_eq!(
            (account.take_registered(50), account.take_registered(1)),
            (Ok(()), Err(Error::NoBuffers))
        );
        assert_eq!(
            [5, 3, 2].map(|count| account.take_descriptors(count)),
            [Ok(()), Err(Error::TooManyFiles), Ok(())]
        );
        assert_eq!(
            (account.take_attachment(), account.take_attachment()),
            (Ok(()), Err(Error::TooManySockets))
        );
        assert_eq!(
            account.usage(),
            Held { sockets: 2, ring_memory: 100, registered_memory: 50, descriptors: 7, attachments: 1 }
        );
        account.give_memory(100);
        account.give_registered(50);
        account.give_descriptors(7);
        account.give_attachment();
        assert_eq!(account.usage(), Held { sockets: 2, ..Held::default() });
        assert_eq!([0, 1024, 80].map(|port| account.bind(port)), [Ok(()), Ok(()), Err(Error::AccessDenied)]);
    }

    #[test]
    fn a_second_of_connects_may_come_at_once_and_then_one_at_a_time() {
        let (account, start) = (Account::new(1, limits()), Instant::now());
        let at = |ms| account.pace(start + Duration::from_millis(ms)).is_ok();
        assert_eq!([0, 0, 0, 0, 333, 334, 335].map(at), [true, true, true, false, false, true, false]);
        // However long the pause, the bucket holds the tokens of one second at most.
        assert_eq!([9000; 4].map(at), [true, true, true, false]);
        assert_eq!(account.pace(start), Err(Error::WouldBlock), "a clock that stands still");
    }

    #[test]
    fn rates_of_none_and_of_many() {
        let none = Account::new(1, Limits { connects_per_second: 0, ..limits() });
        assert_eq!(none.pace(Instant::now()), Err(Error::WouldBlock));
        let many = Account::new(1, Limits { connects_per_second: 10_000, ..limits() });
        let now = Instant::now();
        assert_eq!((0..20_000).filter(|_| many.pace(now).is_ok()).count(), 10_000);
    }

    #[test]
    fn lower_limits_leave_what_is_taken_and_refuse_more() {
        let account = Account::new(1, limits());
        account.take_socket().unwrap();
        account.take_socket().unwrap();
        account.set_limits(Limits { sockets: 1, ..limits() });
        assert_eq!(account.usage().sockets, 2);
        account.give_socket();
        assert_eq!(account.take_socket(), Err(Error::TooManySockets));
        account.give_socket();
        assert_eq!(account.take_socket(), Ok(()));
    }

    #[test]
    fn an_account_lives_as_long_as_anything_is_held_or_its_bucket_is_not_full() {
        let (accounts, start) = (Accounts::default(), Instant::now());
        let one = accounts.account_at(1, limits(), start);
        assert!(Arc::ptr_eq(&one, &accounts.account_at(1, limits(), start)));
        one.take_socket().unwrap();
        drop(one);
        let one = accounts.account_at(1, limits(), start);
        assert_eq!(one.usage().sockets, 1, "held without an owner");
        one.give_socket();
        (0..3).for_each(|_| one.pace(start).unwrap());
        drop(one);
        assert!(accounts.account_at(1, limits(), start).pace(start).is_err(), "the same bucket");
        accounts.account_at(2, limits(), start + Duration::from_secs(2));
        assert_eq!(accounts.accounts.lock().unwrap().len(), 1, "user 1 is forgotten");
    }

    #[test]
    fn one_user_leaves_descriptors_to_others_and_all_leave_the_reserve() {
        let accounts = Accounts::new(Descriptors::of_process(1000), RingMemory::default());
        let [one, two, three] = [1, 2, 3].map(|uid| accounts.account(uid, Limits::default()));
        assert_eq!(
            (one.take_descriptors(376), one.take_descriptors(375)),
            (Err(Error::TooManyFiles), Ok(()))
        );
        assert_eq!(
            (two.take_descriptors(375), three.take_descriptors(1)),
            (Ok(()), Err(Error::TooManyFiles))
        );
        assert_eq!(three.usage().descriptors, 0);
        two.give_descriptors(1);
        assert_eq!(three.take_descriptors(1), Ok(()));
        assert_eq!(Descriptors::of_process(40).0.limit, 30);
        let rich = accounts.account(4, Limits { descriptors: Some(u32::MAX), ..Limits::default() });
        one.give_descriptors(375);
        assert_eq!(
            (rich.take_descriptors(376), rich.take_descriptors(375)),
            (Err(Error::TooManyFiles), Ok(()))
        );
    }

    #[test]
    fn all_users_together_leave_the_memory_that_the_process_needs() {
        let accounts = Accounts::new(Descriptors::default(), RingMemory::of_process(1000));
        let [one, two] = [1, 2].map(|uid| accounts.account(uid, Limits::default()));
        assert_eq!(one.take_memory(700), Ok(()));
        assert_eq!(
            [51, 50, 1].map(|bytes| two.take_memory(bytes)),
            [Err(Error::NoBuffers), Ok(()), Err(Error::NoBuffers)]
        );
        assert_eq!((two.usage().ring_memory, two.memory_of_all()), (50, (750, 750)));
        one.give_memory(700);
        assert_eq!((two.take_memory(700), two.memory_of_all().0), (Ok(()), 750));
        assert_eq!(RingMemory::of_process(u64::MAX).limit(), u64::MAX - (256 << 20));
    }

    #[test]
    fn a_second_attachment_brings_the_limits_that_count_now() {
        let accounts = Accounts::default();
        let one = accounts.account(1, limits());
        accounts.account(1, Limits { sockets: 0, ..limits() });
        assert_eq!((one.uid(), one.limits().sockets), (1, 0));
        assert_eq!(one.take_socket(), Err(Error::TooManySockets));
    }
}
