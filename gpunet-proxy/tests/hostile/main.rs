//! A gpunetd between users who do not trust each other: other users attack it in every way that it
//! knows of, one after the other and all together, while innocent clients make control calls, echo,
//! and form teams. The roots of the teams are attacked, too.
//!
//! Nobody but the attackers gets an error, the daemon gives everything back, and it ends when it is
//! told to. What the innocent see, and what the daemon takes, is printed. `GPUNET_HOSTILE_SECONDS`
//! says how long (20).

#[path = "../gpunetd/daemon.rs"]
#[allow(dead_code, reason = "its suite uses all of it")]
mod daemon;
#[path = "../attach/raw.rs"]
#[allow(dead_code, reason = "its suite uses all of it")]
mod raw;
#[path = "../support/mod.rs"]
mod support;

mod attacks;
mod innocent;

use attacks::{ATTACKS, Attack};
use daemon::{Running, TempDir, gpunetd, until};
use innocent::Innocent;
use rustix::process::Signal;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use support::Killed;
use support::cgroup::MemoryCgroup;

const ATTACK: &str = "GPUNET_HOSTILE_ATTACK";
const AT: &str = "GPUNET_HOSTILE_AT";

/// Not a test: an attacker's program.
#[test]
fn attacker() {
    let (Ok(name), Ok(at)) = (std::env::var(ATTACK), std::env::var(AT)) else { return };
    let attack = ATTACKS.iter().find(|attack| attack.name == name).expect("an attack");
    loop {
        // What the daemon cuts or refuses is tried again.
        let attack = || (attack.play)(Path::new(&at));
        if std::panic::catch_unwind(attack).is_err() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Starts attackers, as another user where this one is root.
fn start(attack: &Attack, dir: &TempDir, as_others: bool) -> Killed {
    let mut command = Command::new(dir.join("attacker"));
    command.args(["--exact", "attacker", "--nocapture"]).env(ATTACK, attack.name).env(AT, dir.join("d.sock"));
    if as_others {
        command.uid(attack.user).gid(attack.user);
    }
    command.current_dir("/").stdout(Stdio::null()).stderr(Stdio::null());
    Killed(command.spawn().expect("it starts"))
}

/// What the daemon takes: resident MiB, descriptors, threads.
fn taken(daemon: &Running) -> [usize; 3] {
    let proc = format!("/proc/{}", daemon.child.id());
    let count = |what: &str| std::fs::read_dir(format!("{proc}/{what}")).map_or(0, Iterator::count);
    let pages = std::fs::read_to_string(format!("{proc}/statm")).unwrap_or_default();
    let resident = pages.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0);
    [(resident * 4096) >> 20, count("fd"), count("task")]
}

/// Clients and sockets that the daemon has.
fn held(dir: &TempDir) -> [usize; 2] {
    let snapshot = gpunet_proxy::daemon::snapshot(&dir.join("d.sock")).expect("it answers");
    [snapshot.clients.len(), snapshot.sockets.len()]
}

#[test]
fn innocent_clients_are_served_while_others_attack() {
    let seconds =
        std::env::var("GPUNET_HOSTILE_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(20);
    let as_others = rustix::process::geteuid().is_root();
    if !as_others {
        support::not_run(
            "attacks as other users",
            "only root starts programs of others; they run as this one",
        );
    }
    let dir = TempDir::new();
    let everyone = |path: &Path| std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755));
    everyone(&dir.join("")).expect("our own");
    support::copy_program(&std::env::current_exe().expect("this program"), &dir.join("attacker"));
    let file = dir.file("f.toml", &format!("socket_mode = \"0666\"\nallow_users = [{}]\n", attacks::ALLOWED));
    let mut command = gpunetd(&dir);
    command.arg("--config").arg(file);
    // What an attacker is allowed to take is more than that.
    let group = MemoryCgroup::new(1 << 30);
    match &group {
        Ok(group) => command = group.command(&command),
        Err(why) => support::not_run("attacks on the memory of the daemon's cgroup", why),
    }
    let mut daemon = Running::start(&mut command);
    let innocent = Innocent::start(&dir.join("d.sock"));
    println!(
        "attack                calls p50/p99/max ms      echoes p50/p99/max ms     over peer                 teams                     MiB  \
         descriptors  threads  sockets"
    );
    let row = |name: &str, time: Duration, daemon: &Running| {
        let [calls, echoes, peers, teams] = innocent.during(time);
        let ([resident, descriptors, threads], [_, sockets]) = (taken(daemon), held(&dir));
        println!(
            "{name:20}  {calls:24}  {echoes:24}  {peers:24}  {teams:24}  {resident:4}  {descriptors:11}  {threads:7}  {sockets:7}"
        );
    };
    // Half of the time for each alone, but no more than this; the rest for all of them.
    let whole = Duration::from_secs(seconds);
    let alone = (whole / 2 / (ATTACKS.len() as u32 + 2)).min(Duration::from_secs(30));
    row("none", alone, &daemon);
    let before = taken(&daemon);
    for attack in ATTACKS {
        let attackers: Vec<_> = (0..2).map(|_| start(attack, &dir, as_others)).collect();
        row(attack.name, alone, &daemon);
        drop(attackers);
    }
    let all: Vec<_> = ATTACKS.iter().map(|attack| start(attack, &dir, as_others)).collect();
    let mut left = whole - alone * (ATTACKS.len() as u32 + 2);
    while !left.is_zero() {
        let part = left.min(Duration::from_secs(300));
        row("all at once", part, &daemon);
        left -= part;
    }
    drop(all);
    until("only the innocent and their sockets are left", || {
        let [clients, sockets] = held(&dir);
        // Two listeners, three ends of streams, and a listener that comes and goes.
        clients == innocent.attachments() && sockets <= 6
    });
    until("descriptors and threads are back", || {
        let now = taken(&daemon);
        if now[1] > before[1] + 2 || now[2] > before[2] + 4 {
            std::thread::sleep(Duration::from_secs(1));
        }
        // The innocent open and close a listener, and threads that rest are kept for a while.
        now[1] <= before[1] + 3 && now[2] <= before[2] + 1
    });
    row("none, afterwards", alone, &daemon);
    innocent.end();
    let _last = start(&ATTACKS[0], &dir, as_others);
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end(), 0, "{}", daemon.log());
}
