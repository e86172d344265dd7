//! The program that the tests start, as another user or as this one: it does what its role says,
//! prints a line for each result, and waits for a line where it is to wait.

use crate::daemon::TempDir;
use crate::support::process::{Program, say, wait};
use crate::support::{SOLO, not_run};
use gpunet_device::{Error, Listener, Options, SockAddr, Stream, TransportKind};
use gpunet_proxy::{AttachError, Config, DaemonError, attach};
use std::collections::BTreeSet;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

pub const ROLE: &str = "GPUNET_PERMISSIONS_ROLE";
const DAEMON: &str = "GPUNET_PERMISSIONS_DAEMON";
const ADDR: &str = "GPUNET_PERMISSIONS_ADDR";
/// No program lives longer.
const LIFE: Duration = Duration::from_secs(40);

pub const PEER: Options = Options::DEFAULT.with_transport(TransportKind::Peer);
pub const TCP: Options = Options::DEFAULT.with_transport(TransportKind::Tcp);

/// The user and group "nobody", if this process can start programs of theirs.
pub fn nobody(test: &str) -> Option<(u32, u32)> {
    if !rustix::process::geteuid().is_root() {
        not_run(test, "only root starts programs of another user");
        return None;
    }
    let user = nix::unistd::User::from_name("nobody").expect("a user database");
    if user.is_none() {
        not_run(test, "this machine has no user nobody");
    }
    user.map(|user| (user.uid.as_raw(), user.gid.as_raw()))
}

/// Starts it. The file of this test may lie where others do not get, so it is copied to `dir`.
pub fn start(dir: &TempDir, role: &str, user: Option<(u32, u32)>, addr: Option<SockAddr>) -> Program {
    let copy = dir.join("program");
    if !copy.exists() {
        crate::support::copy_program(&std::env::current_exe().expect("this program"), &copy);
        std::fs::set_permissions(&copy, PermissionsExt::from_mode(0o755)).expect("its owner");
    }
    let mut command = Command::new(copy);
    command.args(["--exact", "program", "--nocapture"]).env(ROLE, role).env(DAEMON, dir.join("d.sock"));
    command.current_dir("/");
    if let Some(addr) = addr {
        command.env(ADDR, addr.to_std().expect("an address").to_string());
    }
    if let Some((uid, gid)) = user {
        command.uid(uid).gid(gid);
    }
    Program::start(&mut command)
}

/// A small attachment.
pub fn small() -> Config {
    Config { sockets: 64, controls: 16, shared_rings: 8 << 20, ..Config::small() }
}

fn path() -> PathBuf {
    std::env::var_os(DAEMON).expect("a path").into()
}

pub fn addr() -> SockAddr {
    SockAddr::from_std(std::env::var(ADDR).expect("an address").parse().expect("an address"))
}

fn number(result: Result<(), Error>) -> i32 {
    result.err().map_or(0, |error| error.errno())
}

fn refusal(error: &DaemonError) -> String {
    match error {
        DaemonError::Refused { errno, reason } => format!("{errno} {reason}"),
        other => other.to_string(),
    }
}

fn attached(config: Config) -> Result<gpunet_proxy::Attachment, String> {
    let proxy = attach(&path(), config).map_err(|error| refusal(&error))?;
    proxy.attach_cpu().map_err(|error| match error {
        AttachError::Daemon(error) => refusal(&error),
        other => other.to_string(),
    })
}

/// Memory that a process can reach, by inode: what it has descriptors of, and what it has mapped.
pub fn memories(pid: &str) -> BTreeSet<(u64, String)> {
    let is_memory = |name: &str| name.starts_with("/memfd:");
    let fds = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("allowed").flatten();
    let opened = fds.filter_map(|fd| {
        let name = std::fs::read_link(fd.path()).ok()?.display().to_string();
        let inode = std::fs::metadata(fd.path()).ok()?.ino();
        is_memory(&name).then_some((inode, name))
    });
    // Addresses, permissions, offset, device, inode, name (proc_pid_maps(5)).
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("allowed");
    let mapped = maps.lines().filter_map(|line| {
        let name = &line[line.find('/')?..];
        let inode = line.split_whitespace().nth(4)?.parse().ok()?;
        is_memory(name).then(|| (inode, name.to_owned()))
    });
    opened.chain(mapped).collect()
}

pub fn run(role: &str) -> ! {
    std::thread::spawn(|| {
        std::thread::sleep(LIFE);
        std::process::exit(9);
    });
    let bind =
        |net, port| Listener::bind_with(&SOLO, net, SockAddr::v4([127, 0, 0, 1], port), TCP, 4).map(|_| ());
    match role {
        "attach" => say(attached(small()).map_or_else(|refused| refused, |_| "attached".to_owned())),
        "attachments" => {
            let mut all = Vec::new();
            let refused = loop {
                match attached(small()) {
                    Ok(attachment) => all.push(attachment),
                    Err(refused) => break refused,
                }
            };
            say(format!("{} {refused}", all.len()));
        }
        "sockets" => {
            let attachment = attached(small()).expect("attached");
            let token = attachment.token().expect("a number");
            // Again after each line: the limit may have changed.
            loop {
                let mut count = 0;
                let refused = loop {
                    match bind(token.net(), 0) {
                        Ok(()) => count += 1,
                        Err(error) => break error.errno(),
                    }
                };
                say(format!("{count} {refused}"));
                wait();
            }
        }
        "ports" => {
            let attachment = attached(small()).expect("attached");
            let token = attachment.token().expect("a number");
            for port in [80, 2000, 25_501, 0] {
                say(number(bind(token.net(), port)));
            }
        }
        "connects" => {
            let attachment = attached(small()).expect("attached");
            let token = attachment.token().expect("a number");
            // Nobody listens there: what counts is that it was asked for.
            for _ in 0..20 {
                say(number(Stream::connect_with(&SOLO, token.net(), addr(), TCP).map(|_| ())));
            }
        }
        "memory" => {
            let attachment = attached(small()).expect("attached");
            say(attached(small()).map_or_else(|refused| refused, |_| "attached".to_owned()));
            let token = attachment.token().expect("a number");
            for options in [PEER, PEER.with_rings(4 << 20, 4 << 20)] {
                say(number(Stream::connect_with(&SOLO, token.net(), addr(), options).map(|_| ())));
            }
        }
        "descriptors" => {
            let list = || {
                let memories = memories("self");
                let text: Vec<_> = memories.iter().map(|(inode, name)| format!("{inode}={name}")).collect();
                text.join(";")
            };
            let bells = || {
                let fds = std::fs::read_dir("/proc/self/fd").expect("this is Linux").flatten();
                let name = |fd: &std::fs::DirEntry| std::fs::read_link(fd.path()).unwrap_or_default();
                fds.filter(|fd| name(fd) == Path::new("anon_inode:[eventfd]")).count()
            };
            let before = bells();
            let attachment = attached(small()).expect("attached");
            say(list());
            say(bells() - before);
            let token = attachment.token().expect("a number");
            let _stream = Stream::connect_with(&SOLO, token.net(), addr(), PEER).expect("connected");
            say(list());
            say(bells() - before);
            wait();
        }
        "listen" => {
            let attachment = attached(small()).expect("attached");
            let token = attachment.token().expect("a number");
            bind(token.net(), 0).expect("a port");
            let snapshot = gpunet_proxy::daemon::snapshot(&path()).expect("an answer");
            let others = snapshot.clients.iter().filter(|client| client.pid != std::process::id()).count();
            say(format!("{} {} {others}", snapshot.clients.len(), snapshot.sockets.len()));
            wait();
        }
        role if role.starts_with("member ") => {
            let mut words = role.split(' ').skip(1);
            let mut word = || words.next().expect("a word");
            crate::teams::member(word().parse().expect("a rank"), word().parse().expect("an id"));
        }
        "scribble" => crate::scribbler::scribble(&attached(small()).expect("attached")),
        other => panic!("no role {other}"),
    }
    std::process::exit(0);
}
