//! The threads that poll for requests and run functions.

use crate::desk::Desk;
use crate::functions::Functions;
use crate::term::{MyTerm, Term};
use gpunet_calls::{Request, Requests, Taken};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long a function may keep the thread that polls, before another one polls.
const LONG: Duration = Duration::from_millis(1);
/// How often a thread looks that waits to poll, while no calls come.
const IDLE: Duration = Duration::from_millis(10);
/// Rounds without a request between two looks at the clock.
const ROUNDS: u32 = 64;

/// What the threads share.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) requests: Mutex<Requests>,
    pub(crate) desk: Arc<Desk>,
    pub(crate) functions: Functions,
    pub(crate) term: Term,
    pub(crate) stop: AtomicBool,
    /// How long the thread polls after a request before it sleeps, and for how long it sleeps.
    pub(crate) spin: Duration,
    pub(crate) latency: Duration,
}

impl Pool {
    /// The body of each thread.
    pub(crate) fn run(&self) {
        // Short sleeps last up to 50 us longer without it.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1000));
        let mut last = self.term.seen();
        while !self.stops() {
            if let Some(mine) = self.term.take_over(last) {
                self.poll(mine);
            }
            let seen = self.term.seen();
            std::thread::park_timeout(if seen == last { IDLE } else { LONG });
            last = seen;
        }
    }

    fn stops(&self) -> bool {
        // Ordering: Relaxed; a sign to stop, which brings no data.
        self.stop.load(Ordering::Relaxed)
    }

    /// Polls for requests and runs their functions, as long as it is this thread's term.
    fn poll(&self, mut mine: MyTerm) {
        let (mut request, mut rounds, mut last) = (Request::empty(), 0_u32, Instant::now());
        while !self.stops() {
            match self.take(&mut request) {
                Taken::Request => {
                    if !self.term.step(&mut mine) {
                        // It cannot be: nobody takes a term over while its thread polls.
                        debug_assert!(false, "a term was taken over while its thread polled");
                    }
                    self.functions.run(&request, &self.desk);
                    if !self.term.step(&mut mine) {
                        return;
                    }
                    rounds = 0;
                }
                Taken::Malformed => self.desk.count_malformed(),
                Taken::Nothing => {
                    if rounds == 0 {
                        last = Instant::now();
                    }
                    rounds += 1;
                    if rounds.is_multiple_of(ROUNDS) && !self.latency.is_zero() {
                        if last.elapsed() < self.spin {
                            std::thread::yield_now();
                        } else {
                            std::thread::park_timeout(self.latency);
                            // The next look sleeps, too.
                            rounds = ROUNDS - 1;
                        }
                    } else {
                        std::hint::spin_loop();
                    }
                }
            }
        }
    }

    fn take(&self, request: &mut Request) -> Taken {
        // One thread polls; another that was superseded has let go of it.
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = requests.take(request);
        if taken == Taken::Request {
            // Before another thread takes the next request of the same ticket.
            self.desk.expect(request.from());
        }
        taken
    }
}
