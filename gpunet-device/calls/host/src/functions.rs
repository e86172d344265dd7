//! What kernels may call.

use crate::desk::Desk;
use crate::error::Registered;
use crate::names;
use gpunet_calls::{Bytes, Function, MAX_ANSWER, Plain, Request, Return, Status};
use gpunet_device::Error;
use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

type Body = dyn Fn(&Request, &Arc<Desk>) + Send + Sync;

/// The functions that kernels may call.
///
/// # Examples
///
/// ```
/// use gpunet_calls_host::{Function, Functions};
///
/// const ADD: Function<[u32; 2], u32> = Function::new(1);
/// const SAVE: Function<[u64; 4], ()> = Function::new(2);
///
/// let mut functions = Functions::new();
/// functions.add(ADD, |[a, b]| Ok(a.wrapping_add(b)))?;
/// // The answer may be given later, by any thread.
/// functions.add_deferred(SAVE, |page, reply| {
///     std::thread::spawn(move || {
///         println!("{page:?}");
///         reply.send(());
///     });
/// })?;
/// functions.add_names()?;
/// # Ok::<(), gpunet_calls_host::Registered>(())
/// ```
#[derive(Default)]
pub struct Functions {
    all: HashMap<u32, Box<Body>>,
    longest: (usize, usize),
}

impl fmt::Debug for Functions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Functions").field("numbers", &self.all.keys()).finish_non_exhaustive()
    }
}

impl Functions {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a function that answers when it returns. It may block: the pool has other threads. Its
    /// error is [`crate::Failure::Refused`] in the kernel.
    ///
    /// # Errors
    /// [`Registered`].
    pub fn add<Q: Plain, A: Plain>(
        &mut self,
        function: Function<Q, A>,
        body: impl Fn(Q) -> Result<A, Error> + Send + Sync + 'static,
    ) -> Result<&mut Self, Registered> {
        self.add_deferred(function, move |request, reply| {
            match body(request) {
                Ok(answer) => reply.send(answer),
                Err(error) => reply.refuse(error),
            };
        })
    }

    /// Adds a function that answers by its [`Reply`], which it may hand to another thread or a
    /// task: then it keeps no thread of the pool.
    ///
    /// # Errors
    /// [`Registered`].
    pub fn add_deferred<Q: Plain, A: Plain>(
        &mut self,
        function: Function<Q, A>,
        body: impl Fn(Q, Reply<A>) + Send + Sync + 'static,
    ) -> Result<&mut Self, Registered> {
        let number = function.number();
        self.insert(number, (size_of::<Q>(), size_of::<A>()), move |request, desk| {
            let to = request.from();
            match request.value(function) {
                Some(value) => caught(number, || body(value, Reply::new(desk, to))),
                None => fail(desk, to, Status::Sizes),
            }
        })
    }

    /// Adds a function of bytes, as kernels in C call them: requests of at most `request` bytes and
    /// answers of at most `answer`. It writes its answer, and returns how many bytes that has. It
    /// gets as much room as the caller has; an answer that does not fit fails the call by
    /// [`crate::Failure::Sizes`]. Request and answer begin at a multiple of 16. Kernels in Rust
    /// call it by `Caller::start_bytes`, or as a [`Function`] of types that are as long.
    ///
    /// # Errors
    /// [`Registered`].
    ///
    /// # Panics
    /// If the number is 2^31 or more: those are gpunet's own.
    ///
    /// # Examples
    ///
    /// ```
    /// use gpunet_calls_host::{Functions, number_of};
    ///
    /// let mut functions = Functions::new();
    /// functions.add_bytes(number_of("reverse"), 100, 100, |request, answer| {
    ///     let room = answer.get_mut(..request.len()).ok_or(gpunet_device::Error::MessageTooLong)?;
    ///     room.copy_from_slice(request);
    ///     room.reverse();
    ///     Ok(request.len())
    /// })?;
    /// # Ok::<(), gpunet_calls_host::Registered>(())
    /// ```
    pub fn add_bytes(
        &mut self,
        number: u32,
        request: usize,
        answer: usize,
        body: impl Fn(&[u8], &mut [u8]) -> Result<usize, Error> + Send + Sync + 'static,
    ) -> Result<&mut Self, Registered> {
        assert!(number >> 31 == 0, "numbers from 2^31 on are gpunet's own");
        self.insert(number, (request, answer), move |given, desk| {
            let to = given.from();
            if given.bytes().len() > request {
                fail(desk, to, Status::Sizes);
                return;
            }
            let mut room = Room([0; MAX_ANSWER]);
            // Where no answer is wanted, the function has room nevertheless.
            let len = if to.is_wanted() { answer.min(given.answer_room()) } else { answer };
            caught(number, || {
                let (reply, room) =
                    (Reply::<Bytes>::new(desk, to), room.0.get_mut(..len).unwrap_or_default());
                match body(given.bytes(), room) {
                    Ok(used) => reply.send_bytes(room.get(..used)),
                    Err(error) => drop(reply.refuse(error)),
                }
            });
        })
    }

    fn insert(
        &mut self,
        number: u32,
        (request, answer): (usize, usize),
        run: impl Fn(&Request, &Arc<Desk>) + Send + Sync + 'static,
    ) -> Result<&mut Self, Registered> {
        if self.all.contains_key(&number) {
            return Err(Registered(number));
        }
        self.longest = (self.longest.0.max(request), self.longest.1.max(answer));
        self.all.insert(number, Box::new(run));
        Ok(self)
    }

    /// Adds the resolver of host names ([`gpunet_calls::resolve`]): the system's, asked by a thread
    /// of the pool.
    ///
    /// # Errors
    /// [`Registered`].
    pub fn add_names(&mut self) -> Result<&mut Self, Registered> {
        self.add(gpunet_calls::RESOLVE, |name| names::resolve(&name))
    }

    /// The longest request and the longest answer, in bytes.
    pub(crate) const fn longest(&self) -> (usize, usize) {
        self.longest
    }

    /// Runs the function that a request names.
    pub(crate) fn run(&self, request: &Request, desk: &Arc<Desk>) {
        match self.all.get(&request.function()) {
            Some(body) => body(request, desk),
            None => fail(desk, request.from(), Status::NoFunction),
        }
    }
}

/// Room for an answer, aligned for any structure of C.
#[repr(align(16))]
struct Room([u8; MAX_ANSWER]);

/// Runs a function, whose panic is the answer of this call alone: the reply that is dropped by it
/// says so.
fn caught(number: u32, body: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(body)).is_err() {
        tracing::error!(target: "gpunet::calls", "function {number} panicked");
    }
}

/// Answers that there is no answer. A caller that has given it up is not told.
fn fail(desk: &Desk, to: Return, status: Status) {
    let _ = desk.answer(to, true, |answers| answers.fail(to, status));
}

/// The right to answer a call, once. If it is dropped, the caller is told that nobody answers.
pub struct Reply<A> {
    desk: Arc<Desk>,
    to: Return,
    done: bool,
    answer: PhantomData<fn(A)>,
}

impl<A> fmt::Debug for Reply<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("to", &self.to).finish_non_exhaustive()
    }
}

impl<A: Plain> Reply<A> {
    /// Answers. Returns whether somebody may still wait for it: `false` if the caller has given it
    /// up and has called another function since, or wanted no answer.
    pub fn send(mut self, answer: A) -> bool {
        self.done = true;
        let to = self.to;
        self.desk.answer(to, false, |answers| answers.answer(to, &answer)).is_ok() && to.is_wanted()
    }
}

impl Reply<Bytes> {
    /// Answers by bytes. `None`: they did not fit.
    fn send_bytes(mut self, answer: Option<&[u8]>) {
        self.done = true;
        let to = self.to;
        match answer {
            // Whether the caller still waits is its own matter.
            Some(bytes) => drop(self.desk.answer(to, false, |answers| answers.answer_bytes(to, bytes))),
            None => fail(&self.desk, to, Status::Sizes),
        }
    }
}

impl<A> Reply<A> {
    fn new(desk: &Arc<Desk>, to: Return) -> Self {
        Self { desk: desk.clone(), to, done: false, answer: PhantomData }
    }

    /// Answers by an error, [`crate::Failure::Refused`] in the kernel. Returns as [`Reply::send`]
    /// does.
    pub fn refuse(mut self, error: Error) -> bool {
        self.done = true;
        let to = self.to;
        self.desk.answer(to, false, |answers| answers.refuse(to, error)).is_ok() && to.is_wanted()
    }

    /// Returns whether the caller waits for an answer.
    #[must_use]
    pub const fn is_wanted(&self) -> bool {
        self.to.is_wanted()
    }
}

impl<A> Drop for Reply<A> {
    fn drop(&mut self) {
        if !self.done {
            let status = if std::thread::panicking() { Status::Panicked } else { Status::Unanswered };
            fail(&self.desk, self.to, status);
        }
    }
}
