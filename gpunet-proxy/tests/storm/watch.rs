//! A worker's watch over itself: which connections it has, how far they are, and what must not be.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What a worker ends with that has seen what must not be.
pub const WRONG: i32 = 41;
pub const LOST: i32 = 42;
pub const HANGS: i32 = 43;
pub const STRANGE: i32 = 44;
pub const LEAK: i32 = 45;

/// How often the watch looks.
const TICK: Duration = Duration::from_millis(50);
/// A call that waits for a process that is gone must end by then; it should take a second.
const GONE: Duration = Duration::from_secs(8);
/// A connection of two processes that run must get on in that time, whoever else is stopped: others
/// are for longer.
const STALLED: Duration = Duration::from_secs(4);
/// A connection must say whose it is by then: its process may be stopped before.
const UNKNOWN: Duration = Duration::from_secs(20);
/// How soon a process must turn out to be gone whose connection broke.
const SHOWN: Duration = Duration::from_secs(5);

/// What a process is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    Runs,
    Stopped,
    Gone,
}

pub fn life(pid: u32) -> Life {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return Life::Gone };
    match stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next()) {
        Some('T' | 't') => Life::Stopped,
        Some('Z' | 'X') | None => Life::Gone,
        Some(_) => Life::Runs,
    }
}

/// Ends this worker: something is wrong.
pub fn fail(code: i32, what: &str) -> ! {
    eprintln!("worker {}: code {code}: {what}", std::process::id());
    std::process::exit(code);
}

/// One connection, as its threads tell the watch.
#[derive(Debug)]
pub struct Seat {
    serial: u64,
    peer: AtomicU32,
    progress: AtomicU64,
    what: Mutex<&'static str>,
}

impl Seat {
    pub fn meets(&self, pid: u32) {
        self.peer.store(pid, Ordering::Relaxed);
    }

    pub fn peer(&self) -> u32 {
        self.peer.load(Ordering::Relaxed)
    }

    pub fn gets_on(&self) {
        self.progress.fetch_add(1, Ordering::Relaxed);
    }

    pub fn does(&self, what: &'static str) {
        *self.what.lock().expect("sane") = what;
    }
}

/// A seat that is taken until it is dropped.
pub struct Seated {
    watch: Arc<Watch>,
    seat: Arc<Seat>,
}

impl std::ops::Deref for Seated {
    type Target = Seat;

    fn deref(&self) -> &Seat {
        &self.seat
    }
}

impl Drop for Seated {
    fn drop(&mut self) {
        self.watch.seats.lock().expect("sane").retain(|seat| seat.serial != self.seat.serial);
    }
}

/// How a connection ended before its time.
#[derive(Clone, Copy, Debug)]
pub struct Broken {
    pub what: &'static str,
    /// 0: an orderly end.
    pub errno: i32,
}

pub const fn broken(what: &'static str, errno: i32) -> Broken {
    Broken { what, errno }
}

#[derive(Debug)]
pub struct Watch {
    file: PathBuf,
    new: PathBuf,
    /// The daemon may die.
    pub mortal: bool,
    /// It has.
    pub down: AtomicBool,
    seats: Mutex<Vec<Arc<Seat>>>,
    serials: AtomicU64,
    pub done: AtomicU64,
    pub broke: AtomicU64,
    pub bytes: AtomicU64,
    pub attached: AtomicU64,
    pub idle: AtomicBool,
    pub retries: AtomicU64,
}

/// Errors with which a connection may break whose other end, or whose daemon, is gone.
const ENDS: [i32; 6] =
    [0, libc::ECONNRESET, libc::EPIPE, libc::ECONNREFUSED, libc::ECONNABORTED, libc::ENOTCONN];
/// Errors after which the same may be tried again.
const AGAIN: [i32; 4] = [libc::EAGAIN, libc::ENOBUFS, libc::EMFILE, libc::EADDRNOTAVAIL];

impl Watch {
    pub fn start(dir: &Path, mortal: bool) -> Arc<Self> {
        let name = std::process::id().to_string();
        let watch = Arc::new(Self {
            file: dir.join("progress").join(&name),
            new: dir.join("new").join(format!("p{name}")),
            mortal,
            down: AtomicBool::new(false),
            seats: Mutex::default(),
            serials: AtomicU64::new(1),
            done: AtomicU64::new(0),
            broke: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            attached: AtomicU64::new(0),
            idle: AtomicBool::new(false),
            retries: AtomicU64::new(0),
        });
        let looks = watch.clone();
        std::thread::spawn(move || looks.run());
        watch
    }

    pub fn seat(self: &Arc<Self>, what: &'static str) -> Seated {
        let serial = self.serials.fetch_add(1, Ordering::Relaxed);
        let seat =
            Seat { serial, peer: AtomicU32::new(0), progress: AtomicU64::new(0), what: Mutex::new(what) };
        let seat = Arc::new(seat);
        self.seats.lock().expect("sane").push(seat.clone());
        Seated { watch: self.clone(), seat }
    }

    pub fn busy(&self) -> usize {
        self.seats.lock().expect("sane").len()
    }

    /// Judges how a connection ended. Returns whether to take a breath before the next.
    pub fn judge(&self, seat: &Seat, ended: Result<(), Broken>) -> bool {
        let Err(Broken { what, errno }) = ended else {
            self.done.fetch_add(1, Ordering::Relaxed);
            return false;
        };
        self.broke.fetch_add(1, Ordering::Relaxed);
        if self.mortal && errno == libc::ENETDOWN {
            self.down.store(true, Ordering::Relaxed);
        }
        if self.mortal && (ENDS.contains(&errno) || [libc::ENETDOWN, libc::ECANCELED].contains(&errno)) {
            return true;
        }
        if AGAIN.contains(&errno) && what == "connect" {
            self.retries.fetch_add(1, Ordering::Relaxed);
            return true;
        }
        let peer = seat.peer();
        if !ENDS.contains(&errno) {
            fail(STRANGE, &format!("{what}: errno {errno}, peer {peer} {:?}", life(peer)));
        }
        // A client that dies before it said who it is.
        if peer == 0 {
            return true;
        }
        let mut waited = Duration::ZERO;
        while life(peer) != Life::Gone {
            if waited > SHOWN {
                fail(LOST, &format!("{what}: errno {errno}, and {peer} lives"));
            }
            std::thread::sleep(TICK);
            if life(peer) == Life::Runs {
                waited += TICK;
            }
        }
        true
    }

    /// Checks bytes that came.
    pub fn check(&self, seat: &Seat, bytes: &[u8], seed: u64, position: u64) {
        if let Some(at) = super::plan::differ(bytes, seed, position) {
            let (found, what) = (bytes[at], *seat.what.lock().expect("sane"));
            let at = position + at as u64;
            fail(WRONG, &format!("{what}: byte {at} of stream {seed:x} is {found:#x}, peer {}", seat.peer()));
        }
        self.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        seat.gets_on();
    }

    /// The thread's body. Time is counted in looks, so that a stop of this process does not count.
    fn run(&self) {
        #[derive(Default)]
        struct Seen {
            progress: u64,
            stalled: Duration,
            gone: Duration,
            unknown: Duration,
        }
        let mut seen: HashMap<u64, Seen> = HashMap::new();
        let (mut most_gone, mut most_stalled, mut stalled_at) = (Duration::ZERO, Duration::ZERO, "nothing");
        loop {
            let before = Instant::now();
            std::thread::sleep(TICK);
            let tick = before.elapsed().min(2 * TICK);
            let seats = self.seats.lock().expect("sane").clone();
            seen.retain(|serial, _| seats.iter().any(|seat| seat.serial == *serial));
            for seat in &seats {
                let (peer, progress) = (seat.peer(), seat.progress.load(Ordering::Relaxed));
                let entry = seen.entry(seat.serial).or_default();
                let alive = if peer == 0 { None } else { Some(life(peer)) };
                if entry.progress != progress {
                    (entry.progress, entry.stalled) = (progress, Duration::ZERO);
                }
                match alive {
                    Some(Life::Runs) => entry.stalled += tick,
                    Some(Life::Stopped) => {}
                    Some(Life::Gone) => entry.gone += tick,
                    None => entry.unknown += tick,
                }
                let what = *seat.what.lock().expect("sane");
                most_gone = most_gone.max(entry.gone);
                if entry.stalled > most_stalled {
                    (most_stalled, stalled_at) = (entry.stalled, what);
                }
                if entry.gone > GONE || entry.stalled > STALLED || entry.unknown > UNKNOWN {
                    let (gone, stalled) = (entry.gone, entry.stalled);
                    let seat = format!("{seat:?}");
                    fail(
                        HANGS,
                        &format!("{what}: peer {peer} gone for {gone:?}, stalled {stalled:?}: {seat}"),
                    );
                }
            }
            let load = |value: &AtomicU64| value.load(Ordering::Relaxed);
            let text = format!(
                "{} {} {} {} {} {} {} {} {}",
                load(&self.done),
                load(&self.broke),
                load(&self.bytes),
                load(&self.attached),
                u8::from(self.idle.load(Ordering::Relaxed)),
                load(&self.retries),
                most_gone.as_millis(),
                most_stalled.as_millis(),
                stalled_at.replace(' ', "_"),
            );
            if std::fs::write(&self.new, text).is_ok() {
                let _ = std::fs::rename(&self.new, &self.file);
            }
        }
    }
}

/// What a worker said of itself last.
#[derive(Clone, Debug, Default)]
pub struct Report {
    pub done: u64,
    pub broke: u64,
    pub bytes: u64,
    pub attached: u64,
    pub idle: bool,
    pub retries: u64,
    pub most_gone_ms: u64,
    pub most_stalled_ms: u64,
    pub stalled_at: String,
}

impl Report {
    pub fn of(dir: &Path, pid: u32) -> Option<Self> {
        let text = std::fs::read_to_string(dir.join("progress").join(pid.to_string())).ok()?;
        let words: Vec<_> = text.split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
        let report = Self {
            done: number(0),
            broke: number(1),
            bytes: number(2),
            attached: number(3),
            idle: number(4) == 1,
            retries: number(5),
            most_gone_ms: number(6),
            most_stalled_ms: number(7),
            stalled_at: words.get(8).copied().unwrap_or_default().to_owned(),
        };
        Some(report)
    }
}
