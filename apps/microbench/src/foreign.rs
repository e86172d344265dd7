//! Measurements of foreign programs and libraries with the same purpose, if this machine has them.
//!
//! | file | holds |
//! |---|---|
//! | `rdma` | rstream and perftest |
//! | `redis`, `iperf3`, `hyper`, `triton` | servers and clients over TCP |
//!
//! `foreign/run` builds and runs the ones for GPUs. This program contains it and their sources, so
//! that they can be built without a checkout. They print their results as JSON lines, which are
//! rows of a table.

pub mod hyper;
pub mod iperf3;
mod rdma;
pub mod redis;
pub mod triton;

use crate::process::start_bound;
use crate::report::{Recorder, Role, Row};
use crate::scratch::Scratch;
pub use rdma::{bandwidth as rdma_bandwidth, latency as rdma_latency};
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The figures that are requested of a foreign program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Of {
    Latency,
    Bandwidth,
    Rate,
    PingPong,
    Barrier,
    AllGather,
    Reduce,
    Lines,
}

/// A row that a foreign program prints.
#[derive(Clone, Debug, Deserialize)]
struct ForeignRow {
    of: Of,
    #[serde(flatten)]
    row: Row,
}

/// The files of `foreign/`.
const FILES: [(&str, &str); 8] = [
    ("run", include_str!("../foreign/run")),
    ("nvshmem_start.cuh", include_str!("../foreign/nvshmem_start.cuh")),
    ("nvshmem_team.cu", include_str!("../foreign/nvshmem_team.cu")),
    ("nccl_team.py", include_str!("../foreign/nccl_team.py")),
    ("nvshmem_pingpong.cu", include_str!("../foreign/nvshmem_pingpong.cu")),
    ("cuda_copy.cu", include_str!("../foreign/cuda_copy.cu")),
    ("cuda_printf.cu", include_str!("../foreign/cuda_printf.cu")),
    ("nccl_sendrecv.py", include_str!("../foreign/nccl_sendrecv.py")),
];
/// Building takes nvcc half a minute.
const TIMEOUT: Duration = Duration::from_secs(180);

/// Records the figures of NVSHMEM, NCCL and the copy engine between two GPUs.
pub fn between_gpus(recorder: &mut Recorder, of: Of) {
    for program in ["nvshmem", "nccl"] {
        record(recorder, program, |line| line.of == of);
    }
    record(recorder, "copy", |line| line.of == of && line.row.name.contains(BETWEEN_GPUS));
}

/// Records the figures of NVSHMEM between two GPUs.
pub fn nvshmem(recorder: &mut Recorder, of: Of) {
    record(recorder, "nvshmem", |line| line.of == of);
}

/// Records the figures of NVSHMEM among the first `members` GPUs.
pub fn nvshmem_team(recorder: &mut Recorder, members: u32, of: Of) {
    record(recorder, &format!("nvshmem-team-{members}"), |line| line.of == of);
}

/// Records the figures of NCCL among the first `members` GPUs.
pub fn nccl_team(recorder: &mut Recorder, members: u32, of: Of) {
    record(recorder, &format!("nccl-team-{members}"), |line| line.of == of);
}

/// Records the figures of NCCL between two GPUs in the order of streams.
pub fn in_stream_order(recorder: &mut Recorder) {
    record(recorder, "nccl", |line| line.of == Of::PingPong);
}

/// Records the figures of the copy engine between a GPU and pinned memory.
pub fn between_gpu_and_cpu(recorder: &mut Recorder, of: Of) {
    record(recorder, "copy", |line| line.of == of && !line.row.name.contains(BETWEEN_GPUS));
}

/// Records the figures of CUDA's printf.
pub fn printf(recorder: &mut Recorder) {
    record(recorder, "printf", |line| line.of == Of::Lines);
}

/// Records all figures of NVSHMEM, NCCL and the copy engine, so that a report's other measurements
/// find them in its folder. The programs are built side by side first.
pub fn all(recorder: &mut Recorder) {
    if recorder.without_foreign {
        return recorder.note("--without-foreign");
    }
    if let Some(folder) = recorder.foreign_folder.clone() {
        // Who needs a program that could not be built says why.
        let _ = start("build", Some(&folder));
    }
    for program in ["copy", "nvshmem", "nvshmem-team-2", "nccl", "nccl-team-2"] {
        record(recorder, program, |_| true);
    }
}

/// How `foreign/cuda_copy.cu` names copies between GPUs.
const BETWEEN_GPUS: &str = "GPU to GPU";

fn record(recorder: &mut Recorder, program: &str, wanted: impl Fn(&ForeignRow) -> bool) {
    if recorder.without_foreign {
        return;
    }
    match lines(program, recorder.foreign_folder.as_deref()) {
        Ok(lines) => lines.into_iter().filter(|line| wanted(line)).for_each(|line| recorder.row(line.row)),
        Err(why) => recorder.note(format!("without {program}: {why}")),
    }
}

/// Returns the results of a program, or why it did not run. Each program runs once.
fn lines(program: &str, folder: Option<&Path>) -> Result<Vec<ForeignRow>, String> {
    type Told = BTreeMap<String, Result<Vec<ForeignRow>, String>>;
    static TOLD: Mutex<Told> = Mutex::new(BTreeMap::new());
    let mut told = TOLD.lock().unwrap_or_else(PoisonError::into_inner);
    told.entry(program.to_owned()).or_insert_with(|| parse(&ask(program, folder)?)).clone()
}

/// Returns what a program has said. A report's folder keeps it for the next process, and also why
/// there is nothing.
fn ask(program: &str, folder: Option<&Path>) -> Result<String, String> {
    let Some(folder) = folder else { return start(program, None) };
    let [said, why] = ["said", "why"].map(|end| folder.join(format!("{program}.{end}")));
    if let Ok(text) = std::fs::read_to_string(&said) {
        return Ok(text);
    }
    if let Ok(text) = std::fs::read_to_string(&why) {
        return Err(text);
    }
    let result = start(program, Some(folder));
    let (path, text) = match &result {
        Ok(text) => (said, text),
        Err(text) => (why, text),
    };
    // Whoever does not find it runs the program again.
    let _ = std::fs::write(path, text);
    result
}

/// Runs a program of `foreign/run`. With a report's folder it is built in the one above, and kept.
fn start(program: &str, folder: Option<&Path>) -> Result<String, String> {
    let text = |error: std::io::Error| error.to_string();
    let own = std::env::temp_dir().join(format!("gpunet-bench-foreign-{}", std::process::id()));
    let own = Scratch::folder(own).map_err(text)?;
    let write = |(name, text): &(_, _)| std::fs::write(own.path().join(name), text);
    FILES.iter().try_for_each(write).map_err(text)?;
    let built = folder.and_then(Path::parent).unwrap_or(own.path());
    run(Command::new("bash").arg(own.path().join("run")).arg(program).arg(built), TIMEOUT)
        .map_err(|error| error.to_string())
}

/// Returns the rows among what a program has said.
fn parse(said: &str) -> Result<Vec<ForeignRow>, String> {
    let mut lines = Vec::new();
    for line in said.lines().filter(|line| line.starts_with('{')) {
        let mut line: ForeignRow = serde_json::from_str(line).map_err(|error| format!("{error}: {line}"))?;
        line.row.role = Role::Reference;
        lines.push(line);
    }
    if lines.is_empty() { Err("it said nothing".to_owned()) } else { Ok(lines) }
}

/// Why a foreign program gave no result.
#[derive(Clone, Debug, PartialEq, Eq)]
enum RunError {
    /// It crashed, which is not this program's fault.
    Crashed(String),
    /// It ended with an error, did not end, or its output was not understood.
    Failed(String),
}

impl From<String> for RunError {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

impl From<&str> for RunError {
    fn from(why: &str) -> Self {
        Self::Failed(why.to_owned())
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Crashed(why) | Self::Failed(why)) = self;
        f.write_str(why)
    }
}

/// How often a program that crashes is run.
const TRIES: u32 = 3;

/// Runs a foreign program again if it crashes, a few times at most.
fn persist<T>(
    recorder: &mut Recorder,
    program: &str,
    mut run: impl FnMut() -> Result<T, RunError>,
) -> Result<T, String> {
    let mut tries = 0;
    loop {
        tries += 1;
        match run() {
            Ok(result) => return Ok(result),
            Err(RunError::Crashed(why)) if tries < TRIES => {
                recorder.note(format!("{program} crashed and is tried again: {why}"));
            }
            Err(RunError::Crashed(why)) => return Err(format!("it crashed {tries} times: {why}")),
            Err(RunError::Failed(why)) => return Err(why),
        }
    }
}

/// Returns whether a signal ended the program. A shell reports the signal of its child as 128 plus
/// its number.
fn has_crashed(status: ExitStatus) -> bool {
    status.signal().is_some() || status.code().is_some_and(|code| code > 128)
}

/// Runs a program to its end. Returns its output, or an error with the last line of its stderr.
fn run(command: &mut Command, limit: Duration) -> Result<String, RunError> {
    let log = |what: &str| {
        let nth = NTH.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("gpunet-bench-{}-{nth}-{what}", std::process::id());
        Scratch::file(std::env::temp_dir().join(name))
    };
    static NTH: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let (out, err) = (log("out"), log("err"));
    let result = run_into(command, limit, out.path(), err.path());
    let texts = [out, err].map(|log| std::fs::read_to_string(log.path()).unwrap_or_default());
    let [said, complaint] = texts;
    match result {
        Ok(()) => Ok(said),
        Err(error) => {
            let last = complaint.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
            let why = format!("{error} {last}").trim_end_matches([' ', ':']).to_owned();
            Err(if matches!(error, RunError::Crashed(_)) {
                RunError::Crashed(why)
            } else {
                RunError::Failed(why)
            })
        }
    }
}

fn run_into(command: &mut Command, limit: Duration, out: &Path, err: &Path) -> Result<(), RunError> {
    use std::fs::File;
    let text = |error: std::io::Error| error.to_string();
    // In a process group of its own, so that everything a script has started ends with it.
    command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(File::create(out).map_err(text)?)
        .stderr(File::create(err).map_err(text)?);
    let mut child = start_bound(command, Signal::KILL).map_err(text)?;
    let _group = Scratch::group(Pid::from_child(&child));
    let end = Instant::now() + limit;
    loop {
        match child.try_wait().map_err(text)? {
            Some(status) if status.success() => return Ok(()),
            Some(status) if has_crashed(status) => return Err(RunError::Crashed(format!("{status}:"))),
            Some(status) => return Err(RunError::Failed(format!("{status}:"))),
            None if Instant::now() > end => {
                let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
                let _ = child.wait();
                return Err(RunError::Failed(format!("no end within {limit:?}")));
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Returns whether a program can be started.
fn is_installed(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|folder| folder.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_that_does_not_end_takes_what_it_has_started_with_it() {
        let file = std::env::temp_dir().join(format!("gpunet-bench-orphan-{}", std::process::id()));
        let script = format!("sleep 1000 & echo $! > {0}.new; mv {0}.new {0}; wait", file.display());
        let why = run(Command::new("bash").args(["-c", &script]), Duration::from_secs(2));
        assert_eq!(why, Err(RunError::Failed("no end within 2s".to_owned())));
        let orphan = std::fs::read_to_string(&file).expect("it had begun");
        std::fs::remove_file(&file).expect("written");
        let gone = || {
            // A zombie has ended too; init reaps it later.
            std::fs::read_to_string(format!("/proc/{}/stat", orphan.trim()))
                .map_or(true, |stat| stat.contains(") Z "))
        };
        let limit = Instant::now() + Duration::from_secs(20);
        while !gone() {
            assert!(Instant::now() < limit, "process {orphan} lives on");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// A report asks each library once, also one that is not there.
    #[test]
    fn what_a_program_has_said_is_kept_in_the_reports_folder() {
        let name = format!("gpunet-bench-kept-{}", std::process::id());
        let folder = Scratch::folder(std::env::temp_dir().join(name)).expect("a folder");
        let nth = folder.path().join("0");
        std::fs::create_dir(&nth).expect("a folder");
        let why = ask("no-such-program", Some(&nth)).expect_err("it is not there");
        assert!(why.contains("no such program"), "{why}");
        let kept = nth.join("no-such-program.why");
        assert_eq!(std::fs::read_to_string(&kept).ok().as_ref(), Some(&why));
        std::fs::write(&kept, "for a reason").expect("written");
        assert_eq!(ask("no-such-program", Some(&nth)), Err("for a reason".to_owned()));
        let row = r#"{"of":"latency","role":"peer","name":"8 B","gigabytes_per_second":1.0}"#;
        std::fs::write(nth.join("copy.said"), format!("warning\n{row}\n")).expect("written");
        let rows = parse(&ask("copy", Some(&nth)).expect("kept")).expect("rows");
        assert_eq!((rows.len(), rows[0].of), (1, Of::Latency));
    }

    #[test]
    fn a_missing_program_is_named() {
        let why = run(Command::new("bash").args(["-c", "echo nvcc is not installed >&2; exit 3"]), TIMEOUT);
        let Err(RunError::Failed(why)) = why else { panic!("{why:?}") };
        assert!(why.contains("nvcc is not installed"), "{why}");
    }
}
