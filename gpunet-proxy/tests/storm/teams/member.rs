//! A member: this test program, started again. It plays one round after another, each in a new
//! team, as its parent tells it, until it is killed or its input ends.

use super::round::Order;
use super::script::{Ended, Phase, Script};
use crate::support::SOLO;
use crate::support::process::say;
use crate::support::rng::Rng;
use crate::watch::{HANGS, LEAK, LOST, STRANGE, fail};
use crate::worker::{all_free, config, held, soon};
use gpunet_device::Error;
use gpunet_device::team::{Rank, Signal};
use gpunet_proxy::queue::{Queue, QueueError};
use gpunet_proxy::team::{Team, TeamError, TeamFailure, TeamListener, TeamOptions};
use gpunet_proxy::{Attachment, FinishPolicy, Proxy, attach, embed};
use std::cell::Cell;
use std::path::Path;
use std::time::{Duration, Instant};

/// Which daemon a member attaches to; without a path it has a proxy of its own.
pub const DAEMON: &str = "GPUNET_STORM_TEAM_DAEMON";
/// A signal that nobody ever sends.
const NEVER: Signal = Signal(9);
/// What a call takes at most that knows of a death.
const AT_ONCE: Duration = Duration::from_secs(8);

/// Does a member's work; never returns.
pub fn run() -> ! {
    let daemon = std::env::var_os(DAEMON).filter(|path| !path.is_empty());
    let proxy = match daemon {
        Some(path) => attach(Path::new(&path), config()).expect("a daemon"),
        None => embed(config()).expect("a proxy"),
    };
    let mut attachment = attachment(&proxy);
    let first = held();
    let mut line = String::new();
    loop {
        line.clear();
        if std::io::stdin().read_line(&mut line).unwrap_or(0) == 0 {
            break;
        }
        if line.trim() == "check" {
            clean(&attachment, first);
            say("clean");
            continue;
        }
        let order: Order = line.trim().parse().unwrap_or_else(|()| fail(STRANGE, &line));
        // A chance to find what the last team has left in the attachment.
        if order.seed.is_multiple_of(3) {
            drop(attachment);
            attachment = self::attachment(&proxy);
        }
        round(&attachment, &order);
    }
    // All is given back while the proxy looks.
    clean(&attachment, first);
    drop((attachment, proxy));
    std::process::exit(0);
}

fn attachment(proxy: &Proxy) -> Attachment {
    proxy.attach_cpu().unwrap_or_else(|error| fail(STRANGE, &format!("attach: {error}")))
}

/// Nothing of a team is left: no socket, no descriptor, no thread, no mapping.
fn clean(attachment: &Attachment, first: usize) {
    let threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        names.filter(|name| name.starts_with("gpunet-team")).count()
    };
    let maps =
        || std::fs::read_to_string("/proc/self/maps").unwrap_or_default().matches("gpunet-team").count();
    if !soon(|| held() <= first && threads() == 0 && maps() == 0) {
        let (threads, maps) = (threads(), maps());
        let left =
            format!("{} descriptors ({first} at first), {threads} threads of teams, {maps} mappings", held());
        fail(LEAK, &left);
    }
    all_free(|| attachment.usage());
}

/// Plays one round and says how it ended.
fn round(attachment: &Attachment, order: &Order) {
    let phase = Cell::new(Phase::Join);
    let enter = |entered: Phase| {
        phase.set(entered);
        say(format_args!("phase {} {entered:?}", order.number));
    };
    let why = match join(attachment, order, &enter) {
        Err(error) => describe(&Ended::Host(error)),
        Ok(team) => match play(attachment, order, &team, &enter) {
            Err(ended) => {
                look_after(attachment, order, &team, phase.get(), &ended);
                drop(team);
                describe(&ended)
            }
            Ok(()) => leave(team, order, &enter),
        },
    };
    say(format_args!("end {} {:?} {why}", order.number, phase.get()));
}

fn join(attachment: &Attachment, order: &Order, enter: &dyn Fn(Phase)) -> Result<Team, TeamError> {
    let options = TeamOptions { signals: 16, timeout: order.timeout };
    let (rank, size) = (Rank(order.rank), order.size);
    let Some(id) = order.id else {
        let place = "127.0.0.1:0".parse().expect("an address");
        let listener = TeamListener::bind(place).expect("a free port");
        say(format_args!("id {} {}", order.number, listener.id()));
        enter(Phase::Join);
        return Team::lead_with(attachment, listener, size, &options);
    };
    enter(Phase::Join);
    std::thread::sleep(Duration::from_micros(Rng::new(order.own_seed()).below(5000)));
    Team::join_with(attachment, id, rank, size, &options)
}

fn play(attachment: &Attachment, order: &Order, team: &Team, enter: &dyn Fn(Phase)) -> Result<(), Ended> {
    let token = attachment.token().unwrap_or_else(|error| fail(STRANGE, &format!("a launch: {error}")));
    let rng = Rng::new(order.own_seed());
    let mut script = Script { attachment, team, token, seed: order.seed, limit: order.limit, rng, enter };
    let result = script.play();
    script.token.finish(FinishPolicy::Close);
    result
}

fn leave(team: Team, order: &Order, enter: &dyn Fn(Phase)) -> String {
    enter(Phase::Leave);
    if order.seed.is_multiple_of(4) {
        drop(team);
        return "ok".to_owned();
    }
    let left = team.leave();
    if order.exits && left.is_ok() {
        // A program whose end this is.
        std::process::exit(0);
    }
    left.map_or_else(|error| describe(&Ended::Host(error)), |()| "ok".to_owned())
}

/// A member that has learnt of a death learns of it whatever it calls, and at once.
fn look_after(attachment: &Attachment, order: &Order, team: &Team, phase: Phase, ended: &Ended) {
    let Some(why) = team.broken() else {
        // That of a part may be broken before this one is known to be.
        if phase != Phase::Split && describe(ended) == format!("errno {}", libc::ECONNRESET) {
            fail(LOST, "a wait ended with ECONNRESET, and the team is whole");
        }
        return;
    };
    let start = Instant::now();
    match team.barrier() {
        Err(error) if error.failure() == Some(&why) => {}
        other => fail(LOST, &format!("a barrier of a team that is broken ({why}): {other:?}")),
    }
    let token = attachment.token().unwrap_or_else(|error| fail(STRANGE, &format!("a launch: {error}")));
    // SAFETY: the group is this thread, which ends before the team.
    let handle = unsafe { team.handle(token.net()) };
    for source in (0..team.size()).map(Rank) {
        let waited = handle.wait_until(&SOLO, NEVER, source, 1);
        if waited != Err(Error::ConnectionReset) {
            fail(LOST, &format!("a wait for {source} in a team that is broken ({why}): {waited:?}"));
        }
    }
    // The dead one may have come to the next barrier, and to the one after it where this member was
    // the first to give up.
    let met: Vec<_> = (0..3).map(|_| handle.barrier(&SOLO)).collect();
    if !matches!(met[2], Err(Error::ConnectionReset | Error::ConnectionAborted)) {
        fail(LOST, &format!("barriers of kernels in a team that is broken ({why}): {met:?}"));
    }
    let mut queue = Queue::cpu(attachment).expect("a queue");
    let refused = queue.signal(team, NEVER, 1, Rank(0));
    if !matches!(refused, Err(QueueError::TeamBroken(_))) {
        fail(LOST, &format!("a queue's signal in a team that is broken ({why}): {refused:?}"));
    }
    token.finish(FinishPolicy::Close);
    if start.elapsed() > AT_ONCE + order.stops {
        fail(HANGS, &format!("calls of a broken team took {:?}", start.elapsed()));
    }
}

fn describe(ended: &Ended) -> String {
    let ranks = |ranks: &[Rank]| ranks.iter().map(Rank::to_string).collect::<Vec<_>>().join(",");
    match ended {
        Ended::Kernel(error) => format!("errno {}", error.errno()),
        Ended::Queue(error @ (QueueError::Failed(_) | QueueError::Canceled | QueueError::TeamBroken(_))) => {
            format!("errno {}", error.errno())
        }
        Ended::Queue(error) => format!("queue {error}"),
        Ended::Host(TeamError::Failed(failure) | TeamError::FailedInPart { failure, .. }) => match failure {
            TeamFailure::Died { rank } => format!("died {rank}"),
            TeamFailure::Left { rank } => format!("left {rank}"),
            TeamFailure::Missing { ranks: who } => format!("missing {}", ranks(who)),
            TeamFailure::TimedOut { ranks: who } => format!("late {}", ranks(who)),
            other => format!("failure {other}"),
        },
        Ended::Host(TeamError::Silent(_)) => "silent".to_owned(),
        Ended::Host(error @ TeamError::Io { .. }) => format!("io {error}"),
        Ended::Host(error) => format!("host {error}"),
    }
}
