//! What kernels of attached programs print, as `gpunetctl logs` shows it.

use crate::daemon::{GPUNETCTL, Running, TempDir, clean, gpunetd, output, text, until};
use crate::support::Killed;
use gpunet_proxy::device::{Group, Kernel, Net};
use gpunet_proxy::{Attachment, Config, FinishPolicy};
use gpunet_records::{Kind, Recorder, Records, gprintf};
use gpunet_records_host::{Level, Rings, Settings};
use rustix::process::Signal;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

gpunet_records::formats! {
    mod lines: Trace {
        STARTED: Info(u32) = "block {} has started";
        STALLED: Warn(u64) = "stalled at {:#x}";
        DETAIL: Debug(f64) = "{:.1} us";
    }
}

/// Says that it stalls, and stalls until [`GO`].
#[derive(Clone, Copy)]
#[repr(C)]
struct Stall {
    net: Net,
    records: Records,
}

static GO: AtomicBool = AtomicBool::new(false);

impl Kernel for Stall {
    const ENTRY: &'static str = "stall";
    fn run<G: Group>(self, g: &G) {
        let mut recorder = Recorder::open(g, self.net, self.records);
        gprintf!(recorder, g, lines::STARTED, g.index());
        recorder.record(g, Kind::new(5), [1, 2]);
        gprintf!(recorder, g, lines::DETAIL, 1.25);
        gprintf!(recorder, g, lines::STALLED, 255);
        while !GO.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        g.sync();
    }
}

fn attached(dir: &TempDir) -> Attachment {
    let proxy = gpunet_proxy::attach(&dir.join("d.sock"), Config::small()).expect("a daemon");
    proxy.attach_cpu().expect("attached")
}

fn rings(attachment: &Attachment) -> Rings {
    let settings = Settings { level: Level::Trace, formats: lines::TABLE, ..Settings::new(2) };
    Rings::create(attachment, settings).expect("rings").0
}

fn gpunetctl(dir: &TempDir, args: &[&str]) -> Command {
    let mut command = clean(GPUNETCTL);
    command.arg("--path").arg(dir.join("d.sock")).arg("logs").args(args);
    command
}

/// The lines that it prints, once there are so many.
fn lines_of(dir: &TempDir, args: &[&str], count: usize) -> Vec<String> {
    loop {
        let output = output(&mut gpunetctl(dir, args));
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let lines: Vec<String> = text(&output.stdout).lines().map(str::to_owned).collect();
        if lines.len() >= count {
            return lines;
        }
    }
}

fn failed(Output { status, stdout, stderr }: &Output) -> (Option<i32>, String) {
    assert!(stdout.is_empty(), "{}", text(stdout));
    (status.code(), text(stderr))
}

#[test]
fn what_a_kernel_prints_is_read_while_it_hangs_and_after_its_program_has_ended() {
    let dir = TempDir::new();
    let mut daemon = Running::start(&mut gpunetd(&dir));
    let none = output(&mut gpunetctl(&dir, &["1"]));
    let (code, why) = failed(&none);
    assert!(
        code == Some(1) && why.contains("client 1 has no records") && why.contains("no client has any"),
        "{why}"
    );

    let attachment = attached(&dir);
    let client = daemon_clients(&dir)[0];
    let (id, other) = (client.to_string(), (client + 9).to_string());
    let rings = rings(&attachment);
    let program = attachment.load("", 1).expect("the CPU device");
    // SAFETY: the rings are dropped after the launch.
    let launch = unsafe { attachment.launch(&program, 2, 1, |net| Stall { net, records: rings.records() }) };
    let launch = launch.expect("it starts");
    // While it hangs.
    let all = lines_of(&dir, &[&id], 6);
    assert_eq!(all.len(), 6, "{all:?}");
    for block in 0..2 {
        for line in [
            format!("INFO  block {block}: block {block} has started"),
            format!("DEBUG block {block}: 1.2 us"),
            format!("WARN  block {block}: stalled at 0xff"),
        ] {
            assert!(all.contains(&line), "{line}: {all:?}");
        }
    }
    assert_eq!(
        lines_of(&dir, &[&id, "--level", "warn", "--block", "1"], 1),
        ["WARN  block 1: stalled at 0xff"]
    );
    assert_eq!(lines_of(&dir, &[&id, "--records"], 8).len(), 8);
    let (code, why) = failed(&output(&mut gpunetctl(&dir, &[&other])));
    assert!(code == Some(1) && why.contains(&format!("those that have are {id}")), "{why}");

    // One that follows ends with the client.
    let mut follows = gpunetctl(&dir, &[&id, "--follow"]).stdout(Stdio::piped()).spawn().expect("it starts");
    let mut followed = BufReader::new(follows.stdout.take().expect("piped")).lines();
    let begun: Vec<_> = followed.by_ref().take(6).collect::<Result<_, _>>().expect("it prints");
    assert_eq!(begun.len(), 6);
    GO.store(true, Ordering::Relaxed);
    launch.finish(FinishPolicy::Close).expect("it ends");
    drop(rings);
    drop(attachment);
    assert!(followed.next().is_none(), "nothing more was said");
    assert_eq!(follows.wait().expect("it ends").code(), Some(0));
    // Nobody of the program is there any more.
    assert_eq!(lines_of(&dir, &[&id], 6), all);

    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end(), 0, "{}", daemon.log());
    let (code, why) = failed(&output(&mut gpunetctl(&dir, &[&id])));
    assert!(code == Some(2) && why.contains("no gpunetd at"), "{why}");
}

/// Where the program that is killed finds the daemon's socket.
const DAEMON: &str = "GPUNET_TEST_KILLED_DAEMON";

/// The program that [`what_a_killed_program_has_said_is_read`] starts and kills.
#[test]
fn killed_program() {
    let Some(daemon) = std::env::var_os(DAEMON) else { return };
    let proxy = gpunet_proxy::attach(Path::new(&daemon), Config::small()).expect("a daemon");
    let attachment = proxy.attach_cpu().expect("attached");
    let rings = rings(&attachment);
    let program = attachment.load("", 1).expect("the CPU device");
    // SAFETY: the rings live as long as the process.
    let launch = unsafe { attachment.launch(&program, 2, 1, |net| Stall { net, records: rings.records() }) };
    // The kernel hangs until the end.
    let _ = launch.expect("it starts").wait_timeout(Duration::from_secs(3600));
    unreachable!("it was to be killed");
}

/// The last records of a program that was killed while its kernel hung are there.
#[test]
fn what_a_killed_program_has_said_is_read() {
    let dir = TempDir::new();
    let _daemon = Running::start(&mut gpunetd(&dir));
    let this = std::env::current_exe().expect("this program");
    let child = Command::new(this)
        .args(["--exact", "logs::killed_program", "--nocapture"])
        .env(DAEMON, dir.join("d.sock"))
        .stdout(Stdio::null())
        .spawn()
        .expect("this program again");
    let mut child = Killed(child);
    let id = loop {
        if let [id] = daemon_clients(&dir)[..] {
            break id.to_string();
        }
    };
    // It has no records yet, or not all.
    until("it has said all", || {
        let output = output(&mut gpunetctl(&dir, &[&id]));
        text(&output.stdout).lines().filter(|line| line.contains("stalled at 0xff")).count() == 2
    });
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    until("the daemon knows", || daemon_clients(&dir).is_empty());
    let all = lines_of(&dir, &[&id], 6);
    let last = |block: u32| all.iter().rfind(|line| line.contains(&format!("block {block}:"))).cloned();
    for block in 0..2 {
        assert_eq!(last(block), Some(format!("WARN  block {block}: stalled at 0xff")));
    }
}

/// A log that is followed shows what has come, and says that the daemon has gone.
#[test]
fn a_daemon_that_ends_is_said_after_what_has_come() {
    let dir = TempDir::new();
    let mut daemon = Running::start(&mut gpunetd(&dir));
    let attachment = attached(&dir);
    let _rings = rings(&attachment);
    let id = daemon_clients(&dir)[0].to_string();
    let mut command = gpunetctl(&dir, &[&id, "--follow"]);
    let follows = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    daemon.signal(Signal::KILL);
    daemon.end();
    let (code, why) = failed(&follows.wait_with_output().expect("it ends"));
    assert!(matches!(code, Some(1 | 2)) && why.starts_with("gpunetctl: "), "{why}");
}

/// The daemon keeps a bounded number of sets of rings, the last ones.
#[test]
fn the_daemon_keeps_the_last_sets_of_rings() {
    let dir = TempDir::new();
    let _daemon = Running::start(&mut gpunetd(&dir));
    let attachment = attached(&dir);
    let client = daemon_clients(&dir)[0];
    let all: Vec<_> = (0..20).map(|_| rings(&attachment)).collect();
    let log = gpunet_proxy::daemon::logs(&dir.join("d.sock"), client).expect("its records");
    assert_eq!((log.sets, log.has_ended, log.pid), (16, false, std::process::id()));
    drop(all);
}

/// The numbers of the clients.
fn daemon_clients(dir: &TempDir) -> Vec<u32> {
    let snapshot = gpunet_proxy::daemon::snapshot(&dir.join("d.sock")).expect("an answer");
    snapshot.clients.iter().map(|client| client.id).collect()
}
