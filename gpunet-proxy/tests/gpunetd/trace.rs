//! Spans, counters and lines of attached programs, as `gpunetctl trace` writes them.

use crate::daemon::{GPUNETCTL, Running, TempDir, clean, gpunetd, output, text, until};
use gpunet_proxy::device::{Group, Kernel, Net};
use gpunet_proxy::{Attachment, Config, FinishPolicy};
use gpunet_records::{Recorder, Records, gprintf};
use gpunet_records_host::{Level, Rings, Settings};
use rustix::process::Signal;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

#[path = "../../../gpunet-device/records/tests/trace/check.rs"]
mod check;

gpunet_records::formats! {
    mod said: Debug {
        STEP: Info() = "step";
        HANGS: Info() = "hangs";
        DONE: Info() = "steps \"done\"";
        LINE: Info(u32) = "{} steps";
        TRACE: Trace() = "not compiled";
    }
}

const STEPS: u32 = 5;

/// Takes steps, and hangs in a span until [`GO`].
#[derive(Clone, Copy)]
#[repr(C)]
struct Steps {
    net: Net,
    records: Records,
}

static GO: AtomicBool = AtomicBool::new(false);

impl Kernel for Steps {
    const ENTRY: &'static str = "steps";
    fn run<G: Group>(self, g: &G) {
        let mut recorder = Recorder::open(g, self.net, self.records);
        for step in 1..=STEPS {
            recorder.begin(g, said::STEP);
            recorder.begin(g, said::TRACE);
            recorder.count(g, said::DONE, i64::from(step) - 3);
            recorder.end(g, said::TRACE);
            recorder.end(g, said::STEP);
        }
        gprintf!(recorder, g, said::LINE, STEPS);
        recorder.begin(g, said::HANGS);
        while !GO.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        recorder.end(g, said::HANGS);
        recorder.close(g);
    }
}

fn attached(dir: &TempDir) -> (Attachment, String) {
    let proxy = gpunet_proxy::attach(&dir.join("d.sock"), Config::small()).expect("a daemon");
    let attachment = proxy.attach_cpu().expect("attached");
    let snapshot = gpunet_proxy::daemon::snapshot(&dir.join("d.sock")).expect("an answer");
    (attachment, snapshot.clients[0].id.to_string())
}

fn gpunetctl(dir: &TempDir, args: &[&str], out: &Path) -> Command {
    let mut command = clean(GPUNETCTL);
    command.arg("--path").arg(dir.join("d.sock")).arg("trace").args(args).arg("--out").arg(out);
    command
}

fn read(file: &Path) -> check::Checked {
    check::check(&std::fs::read_to_string(file).expect("a file"))
}

#[test]
fn a_trace_of_a_kernel_that_hangs_is_valid_whenever_it_ends() {
    let dir = TempDir::new();
    let _daemon = Running::start(&mut gpunetd(&dir));
    let (attachment, id) = attached(&dir);
    let settings = Settings { level: Level::Trace, formats: said::TABLE, ..Settings::new(2) };
    let rings = Rings::create(&attachment, settings).expect("rings").0;
    let program = attachment.load("", 1).expect("the CPU device");
    // SAFETY: the rings are dropped after the launch.
    let launch = unsafe { attachment.launch(&program, 2, 1, |net| Steps { net, records: rings.records() }) };
    let launch = launch.expect("it starts");

    // Two that follow, one of which is interrupted.
    let (file, followed) = (dir.join("t.json"), dir.join("followed.json"));
    let follows = |out: &Path| {
        let mut command = gpunetctl(&dir, &[&id, "--follow"], out);
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("it starts")
    };
    let (interrupted, waits) = (follows(&file), follows(&followed));
    let hangs =
        |file: &Path| std::fs::read_to_string(file).is_ok_and(|text| text.matches("\"hangs\"").count() == 2);
    until("both follow", || hangs(&file) && hangs(&followed));
    let pid = rustix::process::Pid::from_child(&interrupted);
    rustix::process::kill_process(pid, Signal::INT).expect("it runs");
    let ended = interrupted.wait_with_output().expect("it ends");
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert!(text(&ended.stderr).contains("2 spans that have not ended"), "{ended:?}");
    let trace = read(&file);
    let count = |names: Vec<&str>, name: &str| names.into_iter().filter(|found| *found == name).count();
    assert_eq!((count(trace.names("B"), "step"), count(trace.names("B"), "hangs")), (10, 2));
    assert_eq!((count(trace.names("i"), "5 steps"), trace.names("i").len()), (2, 2));
    let mut threads: Vec<_> = trace.threads.values().cloned().collect();
    threads.sort();
    assert_eq!(threads, ["block 0", "block 1", "gpunet"]);
    let values: Vec<_> = trace
        .of("C")
        .into_iter()
        .filter(|event| event["name"] == "steps \"done\"" && event["id"] == "block 1")
        .map(|event| event["args"]["value"].as_i64().expect("a number"))
        .collect();
    assert_eq!(values, [-2, -1, 0, 1, 2]);
    assert!(trace.events.iter().all(|event| event["pid"] == std::process::id()));

    // One block, once, while the kernel hangs.
    let once = output(&mut gpunetctl(&dir, &[&id, "--block", "1"], &file));
    assert_eq!(once.status.code(), Some(0), "{once:?}");
    assert_eq!(read(&file).names("B").len(), 6);
    // A time that is over.
    let late = output(&mut gpunetctl(&dir, &[&id, "--follow", "--for", "0.1"], &file));
    assert_eq!((late.status.code(), read(&file).names("B").len()), (Some(0), 12));

    GO.store(true, Ordering::Relaxed);
    launch.finish(FinishPolicy::Close).expect("it ends");
    drop(rings);
    drop(attachment);
    let ended = waits.wait_with_output().expect("it ends with the client");
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    assert!(!text(&ended.stderr).contains("not ended"), "{ended:?}");
    assert_eq!(read(&followed).names("E").len(), 12);
}

#[test]
fn what_cannot_be_traced_is_said_and_leaves_no_file() {
    let dir = TempDir::new();
    let mut daemon = Running::start(&mut gpunetd(&dir));
    let file = dir.join("t.json");
    let failed = |args: &[&str], out: &Path| {
        let ended = output(&mut gpunetctl(&dir, args, out));
        (ended.status.code(), text(&ended.stderr))
    };
    let (code, why) = failed(&["9"], &file);
    assert!(code == Some(1) && why.contains("client 9 has no records") && !file.exists(), "{why}");

    let (attachment, id) = attached(&dir);
    let _rings = Rings::create(&attachment, Settings::new(1)).expect("rings").0;
    let nowhere = dir.join("none").join("t.json");
    let (code, why) = failed(&[&id], &nowhere);
    assert!(code == Some(1) && why.contains("cannot write") && why.contains("--out"), "{why}");
    let (code, why) = failed(&[&id], Path::new("/dev/full"));
    assert!(code == Some(1) && why.contains("cannot write /dev/full"), "{why}");

    // A daemon that goes: the file is ended all the same.
    let follows =
        gpunetctl(&dir, &[&id, "--follow"], &file).stderr(Stdio::piped()).spawn().expect("it starts");
    until("it follows", || file.exists());
    daemon.signal(Signal::KILL);
    daemon.end();
    let ended = follows.wait_with_output().expect("it ends");
    assert!(matches!(ended.status.code(), Some(1 | 2)), "{ended:?}");
    assert!(read(&file).of("C").len() == 1);
}
