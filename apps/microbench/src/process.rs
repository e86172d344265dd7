//! Resources of this process: processor time of the proxy's threads, memory, descriptors; and
//! programs that it starts.

use crate::outcome::Outcome;
use rustix::process::{
    Resource, Rlimit, Signal, getpid, getppid, getrlimit, set_parent_process_death_signal, setrlimit,
};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

/// The names of a proxy's threads in this process. Linux cuts names at 15 bytes.
const PROXY: [&str; 4] = ["gpunet-data-", "gpunet-control", "gpunet-heartbea", "gpunet-memory"];

/// Measures the processor time of the proxy's threads.
pub struct Cost {
    start: Instant,
    before: Duration,
}

/// The processor time that the proxy's threads used.
pub struct Spent {
    pub busy: Duration,
    pub elapsed: Duration,
}

impl Cost {
    /// Starts measuring.
    pub fn begin() -> Outcome<Self> {
        Ok(Self { before: proxy_time()?, start: Instant::now() })
    }

    /// Returns the processor time since then.
    pub fn end(&self) -> Outcome<Spent> {
        let elapsed = self.start.elapsed();
        Ok(Spent { busy: proxy_time()?.saturating_sub(self.before), elapsed })
    }
}

impl Spent {
    /// Percent of a core.
    pub fn share(&self) -> f64 {
        100.0 * self.busy.as_secs_f64() / self.elapsed.as_secs_f64().max(1e-9)
    }
}

fn proxy_time() -> Outcome<Duration> {
    let times = thread_times("self")?;
    Ok(times
        .iter()
        .filter(|(name, _)| PROXY.iter().any(|proxy| name.starts_with(proxy)))
        .map(|(_, t)| t)
        .sum())
}

/// The names of a process's threads, and the processor time of each.
fn thread_times(process: &str) -> Outcome<Vec<(String, Duration)>> {
    let mut times = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{process}/task"))? {
        let task = task?.path();
        // A thread may end in the meantime. It is not one of the proxy's threads, which live
        // longer.
        let Ok(name) = std::fs::read_to_string(task.join("comm")) else { continue };
        if let Ok(time) = thread_time(&task) {
            times.push((name.trim().to_owned(), time));
        }
    }
    Ok(times)
}

/// What the threads of another process do in the meantime: which of them have no time left.
pub struct Profile {
    process: String,
    start: Instant,
    before: Vec<(String, Duration)>,
}

impl Profile {
    /// Starts measuring.
    pub fn begin(process: u32) -> Outcome<Self> {
        let process = process.to_string();
        Ok(Self { before: thread_times(&process)?, process, start: Instant::now() })
    }

    /// Returns, in words, how busy the threads were since then: data threads, the control thread,
    /// blocks on the CPU, and the others together.
    pub fn end(&self) -> Outcome<String> {
        let (after, elapsed) = (thread_times(&self.process)?, self.start.elapsed());
        Ok(in_words(&self.before, &after, elapsed))
    }
}

fn in_words(before: &[(String, Duration)], after: &[(String, Duration)], elapsed: Duration) -> String {
    const KINDS: [(&str, &str); 3] =
        [("gpunet-data-", "data threads"), ("gpunet-control", "control thread"), ("gpunet-block-", "blocks")];
    let kind_of = |name: &str| KINDS.iter().position(|(prefix, _)| name.starts_with(prefix));
    let mut shares: [Vec<f64>; KINDS.len() + 1] = Default::default();
    for (name, time) in after {
        // Names are the threads' own, but for those of no kind, which only their sum is told of.
        let earlier = before.iter().filter(|(other, _)| other == name).map(|(_, time)| *time).max();
        let busy = time.saturating_sub(earlier.unwrap_or_default());
        let share = 100.0 * busy.as_secs_f64() / elapsed.as_secs_f64().max(1e-9);
        shares[kind_of(name).unwrap_or(KINDS.len())].push(share);
    }
    let names = KINDS.iter().map(|(_, name)| *name).chain(["other threads"]);
    let told = names.zip(&shares).filter(|(_, shares)| !shares.is_empty()).map(|(name, shares)| {
        let most = shares.iter().copied().fold(0.0, f64::max);
        format!("{} {name}: {:.0} %, the busiest {most:.0} %", shares.len(), shares.iter().sum::<f64>())
    });
    told.collect::<Vec<_>>().join("; ")
}

/// Returns a thread's processor time: the scheduler's in nanoseconds if the kernel counts it,
/// otherwise in ticks.
fn thread_time(task: &Path) -> Outcome<Duration> {
    let scheduled = std::fs::read_to_string(task.join("schedstat")).ok();
    if let Some(time) = scheduled.and_then(|text| of_schedstat(&text)) {
        return Ok(time);
    }
    let stat = std::fs::read_to_string(task.join("stat"))?;
    of_stat(&stat).ok_or_else(|| "/proc/self/task/*/stat is not as expected".into())
}

/// Returns the first number of a `schedstat`, the nanoseconds on a processor. Zero means that the
/// kernel does not count them.
fn of_schedstat(text: &str) -> Option<Duration> {
    let ns = text.split_whitespace().next()?.parse().ok()?;
    if ns == 0 { None } else { Some(Duration::from_nanos(ns)) }
}

/// Returns the user and system time of a `stat`. The name before them may contain any characters,
/// also brackets.
fn of_stat(text: &str) -> Option<Duration> {
    let mut fields = text.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    // USER_HZ is 100 on every Linux.
    Some(Duration::from_millis(10 * (ticks()? + ticks()?)))
}

/// As [`resident`], after returning free memory to the system, so that everything allocated from
/// now on counts and not only what exceeds the memory that was free.
pub fn resident_afresh() -> Outcome<u64> {
    give_back();
    resident()
}

#[cfg(target_env = "gnu")]
#[allow(unsafe_code)]
fn give_back() {
    // SAFETY: it has no preconditions; it takes the allocator's own locks.
    unsafe { libc::malloc_trim(0) };
}

/// Other allocators return memory when they choose.
#[cfg(not(target_env = "gnu"))]
fn give_back() {}

/// Resident memory of this process, in bytes.
pub fn resident() -> Outcome<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    of_status(&status).ok_or_else(|| "/proc/self/status is not as expected".into())
}

fn of_status(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

/// Raises the limit of open descriptors as far as this process may. Returns the limit.
pub fn more_descriptors() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Starts a program that gets `signal` when this one ends for any reason. More exactly, it gets the
/// signal when the calling thread ends, so the main thread should call this.
#[allow(unsafe_code)]
pub fn start_bound(command: &mut Command, signal: Signal) -> io::Result<Child> {
    let parent = getpid();
    let bind = move || {
        set_parent_process_death_signal(Some(signal))?;
        // The parent may have ended before.
        if getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::NotConnected.into()) }
    };
    // SAFETY: between fork and exec it makes two system calls; it neither allocates nor takes a
    // lock.
    unsafe { command.pre_exec(bind) };
    command.spawn()
}

/// A process that is killed when its owner is dropped.
pub struct Owned(pub Child);

impl Drop for Owned {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_program_goes_with_the_thread_that_started_it() {
        let start = || start_bound(Command::new("sleep").arg("1000"), Signal::TERM).unwrap();
        let mut child = std::thread::spawn(start).join().unwrap();
        let status = child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(Signal::TERM.as_raw()));
    }

    #[test]
    fn a_profile_tells_which_threads_have_no_time_left() {
        let ms = Duration::from_millis;
        let times = |of: [u64; 4]| {
            let names = ["gpunet-data-0", "gpunet-data-1", "gpunet-control", "gpunet-echo"];
            names.into_iter().map(str::to_owned).zip(of.map(ms)).collect::<Vec<_>>()
        };
        let told = in_words(&times([10, 20, 30, 40]), &times([110, 60, 35, 40]), ms(100));
        assert_eq!(
            told,
            "2 data threads: 140 %, the busiest 100 %; 1 control thread: 5 %, the busiest 5 %; \
             1 other threads: 0 %, the busiest 0 %"
        );
        let own = Profile::begin(std::process::id()).unwrap().end().unwrap();
        assert!(own.contains("other threads"), "{own}");
    }

    #[test]
    fn times_and_sizes_are_found_in_the_systems_texts() {
        let stat = "7 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 12 30 0 0 20 0 1 0 99\n";
        assert_eq!(of_stat(stat), Some(Duration::from_millis(420)));
        assert_eq!(of_stat("7 (a) S 1"), None);
        assert_eq!(of_schedstat("12345 6 7\n"), Some(Duration::from_nanos(12345)));
        assert_eq!(of_schedstat("0 0 0\n"), None);
        assert_eq!(of_status("VmHWM:\t 9 kB\nVmRSS:\t    20 kB\nRss: 1"), Some(20480));
        assert_eq!(of_status("VmHWM:\t 9 kB\n"), None);
    }

    #[test]
    fn this_process_has_memory_and_a_share() {
        assert!(resident().unwrap() > 4096);
        let spent = Spent { busy: Duration::from_millis(5), elapsed: Duration::from_millis(500) };
        assert!((spent.share() - 1.0).abs() < 1e-9);
    }
}
