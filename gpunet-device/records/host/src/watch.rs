//! A thread that reads records, prints lines and sends both to collectors.

use crate::collectors::{Collectors, Content};
use crate::formats::Formats;
use crate::rings::Reader;
use crate::wire::{self, Frame};
use gpu_usermap::threads;
use gpunet_records::{FormatInfo, Found, Level, Line, NoLine, Record};
use std::fmt;
use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// For how long collectors may take what has come, once the watch ends.
const ENDS_WITHIN: Duration = Duration::from_secs(2);
/// Rounds over the rings after the end: each takes all that a ring keeps.
const LAST_ROUNDS: usize = 4;

type OnRecord = Box<dyn FnMut(&Record<'_>) + Send>;
type OnLine = Box<dyn FnMut(&Line) + Send>;
type OnUnprintable = Box<dyn FnMut(&Record<'_>, NoLine) + Send>;

/// What is done with records as they come. A thread of its own reads them.
///
/// # Examples
///
/// ```no_run
/// # use gpunet_records_host::{FormatInfo, Reader, Watch};
/// # fn example(reader: Reader, table: &'static [FormatInfo]) -> std::io::Result<()> {
/// let mut watch = Watch::new(reader, table);
/// watch.stderr().tracing();
/// watch.serve("127.0.0.1:7070")?; // frames, for any TCP reader
/// watch.serve_lines("127.0.0.1:7071")?; // text: nc 127.0.0.1 7071
/// let watching = watch.start()?;
/// // The kernel runs.
/// println!("{} records lost", watching.stop().lost());
/// # Ok(())
/// # }
/// ```
pub struct Watch {
    reader: Reader,
    formats: Formats,
    collectors: Vec<Collectors>,
    on_record: Vec<OnRecord>,
    on_line: Vec<OnLine>,
    on_unprintable: Vec<OnUnprintable>,
    latency: Duration,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch")
            .field("reader", &self.reader)
            .field("latency", &self.latency)
            .finish_non_exhaustive()
    }
}

impl Watch {
    /// Reads by this reader. `formats` are those of the kernel: `TABLE` of its
    /// [`gpunet_records::formats!`]. Formats that the table does not have, such as those of kernels
    /// in C and C++, are read from the rings' memory.
    #[must_use]
    pub fn new(reader: Reader, formats: &'static [FormatInfo]) -> Self {
        Self {
            formats: Formats::new(&reader, formats),
            reader,
            collectors: Vec::new(),
            on_record: Vec::new(),
            on_line: Vec::new(),
            on_unprintable: Vec::new(),
            latency: Duration::from_micros(400),
        }
    }

    /// How late a record may be found because the thread slept: 400 us unless it is set. When
    /// nothing has come, it sleeps for half of that, since to be woken takes time as well. Zero: it
    /// polls.
    pub const fn latency(&mut self, latency: Duration) -> &mut Self {
        self.latency = latency;
        self
    }

    /// Sends all records to whoever connects, as the frames of [`wire`]. Returns the address, with
    /// the actual port.
    ///
    /// Nobody is waited for: a collector that does not read fast enough misses records, and is told
    /// how many.
    ///
    /// # Errors
    /// The system's, when it cannot listen there.
    pub fn serve(&mut self, addr: impl ToSocketAddrs) -> io::Result<SocketAddr> {
        self.listen(addr, Content::Frames)
    }

    /// Sends printed lines as text to whoever connects, such as `nc`. As [`Watch::serve`].
    ///
    /// # Errors
    /// The system's, when it cannot listen there.
    pub fn serve_lines(&mut self, addr: impl ToSocketAddrs) -> io::Result<SocketAddr> {
        self.listen(addr, Content::Lines)
    }

    fn listen(&mut self, addr: impl ToSocketAddrs, content: Content) -> io::Result<SocketAddr> {
        let collectors = Collectors::bind(addr, content)?;
        let addr = collectors.addr()?;
        self.collectors.push(collectors);
        Ok(addr)
    }

    /// Calls `each` with every record.
    pub fn each(&mut self, each: impl FnMut(&Record<'_>) + Send + 'static) -> &mut Self {
        self.on_record.push(Box::new(each));
        self
    }

    /// Calls `each` with every printed line.
    pub fn each_line(&mut self, each: impl FnMut(&Line) + Send + 'static) -> &mut Self {
        self.on_line.push(Box::new(each));
        self
    }

    /// Calls `each` with every record that is a line, and cannot be printed, and says why: it has a
    /// format that does not exist, or a length that is not its format's.
    pub fn each_unprintable(&mut self, each: impl FnMut(&Record<'_>, NoLine) + Send + 'static) -> &mut Self {
        self.on_unprintable.push(Box::new(each));
        self
    }

    /// Prints lines on the standard error, and why a line cannot be printed.
    pub fn stderr(&mut self) -> &mut Self {
        self.each_line(|line| {
            // Nobody may read it.
            let _ = writeln!(io::stderr().lock(), "{line}");
        })
        .each_unprintable(|record, why| {
            let _ = writeln!(io::stderr().lock(), "{record}: {why}");
        })
    }

    /// Emits lines as events of `tracing`, with the target `gpunet::kernel`, and a warning for each
    /// that cannot be printed.
    pub fn tracing(&mut self) -> &mut Self {
        self.each_line(trace).each_unprintable(|record, why| {
            tracing::warn!(target: "gpunet::kernel", "{record}: {why}");
        })
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// The system's, when it refuses a thread.
    pub fn start(self) -> io::Result<Watching> {
        let shared = Arc::new(Shared::default());
        let run = Run { lines: Vec::new(), watch: self, shared: shared.clone() };
        let thread = threads::spawn("gpunet-records", move || run.run())?;
        Ok(Watching { thread: Some(thread), shared })
    }
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    found: Mutex<Found>,
}

/// A watch that runs. Dropping it ends it, as [`Watching::stop`] does.
#[derive(Debug)]
pub struct Watching {
    thread: Option<JoinHandle<Found>>,
    shared: Arc<Shared>,
}

impl Watching {
    /// How many records were read so far, and how many were lost, and why.
    #[must_use]
    pub fn found(&self) -> Found {
        *self.shared.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads what is there, gives collectors two seconds to take it, and ends.
    ///
    /// What kernels write from now on is not read. So it comes after their end; a kernel that has
    /// hung, and has written all that it will, counts as ended.
    #[must_use]
    pub fn stop(mut self) -> Found {
        let before = self.found();
        self.end().unwrap_or(before)
    }

    fn end(&mut self) -> Option<Found> {
        // Ordering: Relaxed; a sign to stop, which brings no data.
        self.shared.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take()?;
        thread.thread().unpark();
        // A panic of a callback is the program's, which it has seen.
        thread.join().ok()
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.end();
    }
}

/// The thread.
struct Run {
    watch: Watch,
    shared: Arc<Shared>,
    /// Lines of a round, to be put in order: rings are read one after another.
    lines: Vec<Line>,
}

impl Run {
    fn run(mut self) -> Found {
        // Short sleeps last up to 50 us longer without it.
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1000));
        // Ordering: Relaxed, as where it is set.
        while !self.shared.stop.load(Ordering::Relaxed) {
            if self.round() == 0 && !self.watch.latency.is_zero() {
                std::thread::park_timeout(self.watch.latency / 2);
            }
        }
        for _ in 0..LAST_ROUNDS {
            if self.round() == 0 {
                break;
            }
        }
        let ended = Instant::now();
        while self.watch.collectors.iter().any(|collectors| !collectors.is_done())
            && ended.elapsed() < ENDS_WITHIN
        {
            self.watch.collectors.iter_mut().for_each(Collectors::turn);
            std::thread::park_timeout(Duration::from_millis(1));
        }
        self.watch.reader.found()
    }

    /// Reads what has come, and gives it on. Returns how many records there were.
    fn round(&mut self) -> u64 {
        let Watch { reader, formats, collectors, on_record, on_line, on_unprintable, .. } = &mut self.watch;
        collectors.iter_mut().for_each(Collectors::turn);
        let takes = |content: Content| move |one: &Collectors| one.content() == content && !one.is_empty();
        let wants_lines = !(on_line.is_empty() && on_unprintable.is_empty())
            || collectors.iter().any(takes(Content::Lines));
        let lines = &mut self.lines;
        let records = reader.poll(|record| {
            for each in on_record.iter_mut() {
                each(record);
            }
            for one in collectors.iter_mut().filter(|one| one.content() == Content::Frames) {
                let frame = Frame::Record { ring: record.ring, head: record.head, payload: record.payload };
                one.put(|out| wire::put(&frame, out));
            }
            if wants_lines && record.head.kind.format().is_some() {
                match formats.line(record) {
                    Ok(line) => lines.push(line),
                    Err(why) => {
                        on_unprintable.iter_mut().for_each(|each| each(record, why));
                        for one in collectors.iter_mut().filter(|one| one.content() == Content::Lines) {
                            one.put(|out| out.extend_from_slice(format!("-- {record}: {why}\n").as_bytes()));
                        }
                    }
                }
            }
        });
        lines.sort_by_key(|line| line.head.time_ns);
        for line in lines.drain(..) {
            on_line.iter_mut().for_each(|each| each(&line));
            for one in collectors.iter_mut().filter(|one| one.content() == Content::Lines) {
                one.put(|out| out.extend_from_slice(format!("{line}\n").as_bytes()));
            }
        }
        let found = reader.found();
        for one in collectors.iter_mut() {
            one.set_lost(found.lost());
            one.turn();
        }
        *self.shared.found.lock().unwrap_or_else(PoisonError::into_inner) = found;
        records
    }
}

/// Emits a line as an event of `tracing`, with the target `gpunet::kernel`.
fn trace(line: &Line) {
    let Line { head, name, text, left_out, .. } = line;
    macro_rules! event {
        ($level:ident) => {
            tracing::event!(
                target: "gpunet::kernel",
                tracing::Level::$level,
                format = name,
                block = head.block,
                warp = head.warp,
                sm = head.sm,
                time_ns = head.time_ns,
                left_out,
                "{text}"
            )
        };
    }
    match line.level {
        Level::Error => event!(ERROR),
        Level::Warn => event!(WARN),
        Level::Info => event!(INFO),
        Level::Debug => event!(DEBUG),
        Level::Trace => event!(TRACE),
    }
}
