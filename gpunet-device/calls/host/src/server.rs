//! Memory and threads.
#![allow(unsafe_code)]

use crate::desk::{Counts, Desk};
use crate::error::Error;
use crate::functions::Functions;
use crate::pool::Pool;
use crate::term::Term;
use gpu_usermap::cuda::Registration;
use gpu_usermap::{PinnedRegion, threads};
use gpunet_calls::{Answers, Calls, Requests, Shape};
use gpunet_proxy::{Attachment, DeviceBuffer};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the end waits for functions that run. They may block for ever.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

/// How calls are served.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Channels: one for each group (block, warp or thread) that has a caller at a time.
    pub channels: u32,
    /// Calls that a channel has in flight, at most 64.
    pub tickets: u32,
    /// Threads that run functions, at least 2. When functions keep all of them, calls wait.
    pub threads: u32,
    /// How long a thread polls after a request, before it sleeps.
    pub spin: Duration,
    /// How long the thread that polls sleeps when no calls come, which a call may wait for. Zero:
    /// it polls, and keeps a core.
    pub latency: Duration,
}

impl Settings {
    /// For so many groups that call at a time: 16 calls in flight each, four threads, polled for
    /// 100 us after a request and then every 100 us.
    #[must_use]
    pub const fn new(channels: u32) -> Self {
        let us100 = Duration::from_micros(100);
        Self { channels, tickets: 16, threads: 4, spin: us100, latency: us100 }
    }
}

/// Serves the calls of a device's kernels. Kernels that run one after another or at the same time
/// may use the same.
///
/// Dropping it ends it, as [`CallServer::stop`] does.
#[derive(Debug)]
pub struct CallServer {
    // Dropped in this order: the registration before its region.
    registration: Option<Registration>,
    region: Arc<PinnedRegion>,
    device: DeviceBuffer,
    shape: Shape,
    pool: Arc<Pool>,
    threads: Vec<JoinHandle<()>>,
}

impl CallServer {
    /// Makes the memory for a device's calls, and starts the threads. Requests and answers may be
    /// as long as those of the functions.
    ///
    /// # Errors
    /// [`Error`].
    ///
    /// # Examples
    ///
    /// ```
    /// use gpunet_calls::{Caller, Calls, Function};
    /// use gpunet_calls_host::{CallServer, Functions, Settings};
    /// use gpunet_proxy::device::{Group, Kernel, Net, Timeout};
    /// use gpunet_proxy::{Config, FinishPolicy, embed};
    ///
    /// const ADD: Function<[u32; 2], u32> = Function::new(1);
    ///
    /// #[derive(Clone, Copy)]
    /// #[repr(C)]
    /// struct Work {
    ///     net: Net,
    ///     calls: Calls,
    /// }
    ///
    /// impl Kernel for Work {
    ///     const ENTRY: &'static str = "work";
    ///     fn run<G: Group>(self, g: &G) {
    ///         let mut caller = Caller::open(g, self.net, self.calls);
    ///         let sum = caller.call(g, ADD, [g.index(), 2], Timeout::secs(30));
    ///         assert_eq!(sum, Ok(g.index() + 2));
    ///         caller.close(g);
    ///     }
    /// }
    ///
    /// let attachment = embed(Config::small())?.attach_cpu()?;
    /// let mut functions = Functions::new();
    /// functions.add(ADD, |[a, b]| Ok(a + b))?;
    /// let server = CallServer::start(&attachment, functions, Settings::new(2))?;
    /// let program = attachment.load("", 1)?;
    /// // SAFETY: `server` is dropped after the launch.
    /// let launch =
    ///     unsafe { attachment.launch(&program, 2, 1, |net| Work { net, calls: server.calls() }) }?;
    /// launch.finish(FinishPolicy::Close)?;
    /// assert_eq!(server.counts().answered, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn start(attachment: &Attachment, functions: Functions, settings: Settings) -> Result<Self, Error> {
        let (request, answer) = functions.longest();
        let Settings { channels, tickets, .. } = settings;
        let shape = Shape::new(channels, tickets, request, answer).ok_or(Error::Shape {
            tickets,
            request,
            answer,
        })?;
        let region = PinnedRegion::create("gpunet-calls", shape.bytes())?;
        let registration = attachment.cuda().map(|device| device.register(region.clone())).transpose()?;
        let device = attachment.alloc(shape.device_bytes())?;
        // SAFETY: the region is so large, page-aligned, new and therefore zero. The pool keeps it,
        // and uses no memory of the device.
        let calls = unsafe { Calls::new(region.base().as_ptr(), std::ptr::null_mut(), shape) };
        let pool = Arc::new(pool_of(calls, functions, settings, region.clone()));
        let mut server = Self { registration, region, device, shape, pool, threads: Vec::new() };
        for _ in 0..settings.threads.max(2) {
            let pool = server.pool.clone();
            let thread = threads::spawn("gpunet-calls", move || pool.run())?;
            server.threads.push(thread);
        }
        Ok(server)
    }

    /// What a kernel is given: a parameter of it.
    ///
    /// # Safety
    /// The kernel ends before this value is dropped.
    #[must_use]
    pub unsafe fn calls(&self) -> Calls {
        let memory = match &self.registration {
            Some(registration) => registration.device_ptr() as *mut u8,
            None => self.region.base().as_ptr(),
        };
        // SAFETY: the caller keeps the memory, as `DeviceBuffer::buffer` and `Calls::new` ask.
        let device = unsafe { self.device.buffer() };
        // SAFETY: both memories are so large, aligned to pages, and were zero; callers and the
        // threads alone access them.
        unsafe { Calls::new(memory, device.as_ptr().cast(), self.shape) }
    }

    /// Ends the threads: nothing is answered from now on, and callers that wait get
    /// [`crate::Failure::HostGone`]. Functions that run are waited for, for two seconds; those that
    /// still run then are left alone. Returns how many these are. The memory stays until this value
    /// is dropped.
    pub fn stop(&mut self) -> usize {
        // Ordering: Relaxed; a sign to stop, which brings no data.
        self.pool.stop.store(true, Ordering::Relaxed);
        for thread in &self.threads {
            thread.thread().unpark();
        }
        let ends = Instant::now() + ENDS_WITHIN;
        while self.threads.iter().any(|thread| !thread.is_finished()) && Instant::now() < ends {
            std::thread::sleep(Duration::from_micros(200));
        }
        self.threads.retain(|thread| !thread.is_finished());
        let running = self.threads.len();
        if running > 0 {
            tracing::warn!(target: "gpunet::calls", "{running} functions still run, and are left alone");
        }
        self.pool.requests.lock().unwrap_or_else(PoisonError::into_inner).close();
        running
    }

    /// What has happened to calls so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.pool.desk.counts()
    }
}

fn pool_of(calls: Calls, functions: Functions, settings: Settings, region: Arc<PinnedRegion>) -> Pool {
    let channels = 0..calls.shape().channels();
    // SAFETY: the caller made the memory for these values alone.
    let answers = channels.map(|channel| unsafe { Answers::new(calls, channel) }).collect();
    Pool {
        // SAFETY: as above.
        requests: Mutex::new(unsafe { Requests::new(calls) }),
        desk: Arc::new(Desk::new(answers, region)),
        functions,
        term: Term::new(),
        stop: AtomicBool::new(false),
        spin: settings.spin,
        latency: settings.latency,
    }
}

impl Drop for CallServer {
    fn drop(&mut self) {
        // Ordering: Relaxed; this thread has set it.
        if !self.pool.stop.load(Ordering::Relaxed) {
            self.stop();
        }
    }
}
