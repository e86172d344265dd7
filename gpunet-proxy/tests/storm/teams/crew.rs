//! The parent of the members: starts them, tells them what to play, hits them, and hears how they
//! end.

use super::member;
use super::round::{Blow, Order, Round};
use super::script::Phase;
use crate::daemon::TempDir;
use crate::parent::send;
use crate::support::Killed;
use crate::support::rng::Rng;
use gpunet_proxy::team::TeamId;
use rustix::process::Signal;
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// A round that lasts longer, beyond the time that its members may wait for each other, hangs.
const HANGS: Duration = Duration::from_secs(20);
/// So long after a death, or the end of a stop, all have their answer.
const ANSWERED: Duration = Duration::from_secs(8);

struct Fellow {
    child: Killed,
    pid: u32,
    number: usize,
    stdin: Option<ChildStdin>,
}

impl Fellow {
    fn tell(&mut self, what: &dyn std::fmt::Display) {
        let stdin = self.stdin.as_mut().expect("open");
        writeln!(stdin, "{what}").expect("it reads");
    }
}

pub struct Crew {
    pub dir: TempDir,
    pub rng: Rng,
    fellows: Vec<Fellow>,
    started: usize,
    rounds: u64,
    /// How often one was killed in each phase.
    killed: Vec<(Phase, u32)>,
    stops: u32,
    failures: u32,
    longest: Duration,
    lines: Receiver<(u32, Option<String>)>,
    heard: Sender<(u32, Option<String>)>,
}

/// What befalls the members of a round, as it goes.
struct Course<'a> {
    round: &'a Round,
    number: u64,
    /// By rank.
    pids: Vec<u32>,
    phases: Vec<Phase>,
    pending: Vec<(Instant, Blow)>,
    /// They go on then.
    stopped: Vec<(Instant, u32)>,
    killed: Vec<u32>,
    ended: Vec<Option<(Phase, String)>>,
    /// When the last one was hit, or goes on.
    last: Instant,
}

impl Crew {
    pub fn new(seed: u64) -> Self {
        let (dir, (heard, lines)) = (TempDir::new(), channel());
        Self {
            dir,
            rng: Rng::new(seed),
            fellows: Vec::new(),
            started: 0,
            rounds: 0,
            killed: Phase::ALL.map(|phase| (phase, 0)).to_vec(),
            stops: 0,
            failures: 0,
            longest: Duration::ZERO,
            lines,
            heard,
        }
    }

    pub fn len(&self) -> usize {
        self.fellows.len()
    }

    /// How often one was killed in a phase.
    pub fn killed_in(&self, phase: Phase) -> u32 {
        self.killed.iter().filter(|(of, _)| *of == phase).map(|(_, times)| times).sum()
    }

    pub fn shuffled<T: Clone>(&mut self, all: &[T]) -> Vec<T> {
        let mut all = all.to_vec();
        for at in (1..all.len()).rev() {
            all.swap(at, self.rng.below(at as u64 + 1) as usize);
        }
        all
    }

    /// Starts members until there are so many.
    pub fn fill(&mut self, count: usize) {
        while self.fellows.len() < count {
            let number = self.started;
            self.started += 1;
            let log = std::fs::File::create(self.log(number)).expect("a log");
            let daemon = if number.is_multiple_of(2) { self.dir.join("d.sock") } else { Default::default() };
            let child = Command::new(std::env::current_exe().expect("this program"))
                .args(["--exact", "worker", "--nocapture"])
                .env(member::DAEMON, daemon)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(log)
                .spawn();
            let mut child = Killed(child.expect("this program again"));
            let (pid, stdin) = (child.id(), child.stdin.take());
            let (stdout, heard) = (child.stdout.take().expect("piped"), self.heard.clone());
            std::thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    // The test harness prints lines of its own.
                    if let Some((_, line)) = line.split_once("> ") {
                        let _ = heard.send((pid, Some(line.to_owned())));
                    }
                }
                let _ = heard.send((pid, None));
            });
            self.fellows.push(Fellow { child, pid, number, stdin });
        }
    }

    fn log(&self, number: usize) -> std::path::PathBuf {
        self.dir.join(&format!("log{number}"))
    }

    fn fellow(&mut self, pid: u32) -> &mut Fellow {
        self.fellows.iter_mut().find(|fellow| fellow.pid == pid).expect("it lives")
    }

    /// Ends the test: a member has ended of its own.
    fn fails(&mut self, pid: u32) -> ! {
        let number = self.fellow(pid).number;
        let status = self.fellow(pid).child.wait();
        let log = std::fs::read_to_string(self.log(number)).unwrap_or_default();
        panic!("member {pid} (number {number}) ended: {status:?}\n{log}")
    }

    /// The next line of a member within a time.
    fn hear(&mut self, within: Duration) -> Option<(u32, Option<String>)> {
        self.lines.recv_timeout(within).ok()
    }

    /// Plays a round with some of those who live, and judges how they end.
    pub fn play(&mut self, round: &Round) {
        self.rounds += 1;
        let number = self.rounds;
        let pids: Vec<u32> = self.fellows.iter().map(|fellow| fellow.pid).collect();
        let mut pids = self.shuffled(&pids);
        pids.truncate(round.size as usize);
        let order = Order {
            number,
            rank: 0,
            size: round.size,
            // Where one waits until all leave, all do: by an odd seed.
            seed: self.rng.next() | u64::from(round.exits.is_some()),
            timeout: round.timeout,
            limit: round.limit,
            stops: round.stops(),
            exits: round.exits == Some(0),
            id: None,
        };
        let size = round.size as usize;
        let mut course = Course {
            round,
            number,
            pids,
            phases: vec![Phase::Join; size],
            pending: Vec::new(),
            stopped: Vec::new(),
            killed: Vec::new(),
            ended: vec![None; size],
            last: Instant::now(),
        };
        self.fellow(course.pids[0]).tell(&order);
        let begun = Instant::now();
        while !course.is_over() {
            self.strike(&mut course);
            if let Some((pid, line)) = self.hear(course.next()) {
                self.take(&mut course, &order, pid, line);
            }
            let limit =
                HANGS + round.stops() + if round.timeout < HANGS { round.timeout } else { Duration::ZERO };
            assert!(begun.elapsed() < limit, "hangs: {}", course.report());
            let answered = ANSWERED + course.waits();
            assert!(
                course.killed.is_empty() || course.last.elapsed() < answered,
                "no answer: {}",
                course.report()
            );
        }
        if !course.killed.is_empty() {
            self.longest = self.longest.max(course.last.elapsed());
        }
        for (_, rank) in std::mem::take(&mut course.stopped) {
            send(course.pids[rank as usize], Signal::CONT);
        }
        for (phase, why) in course.ended.iter().flatten() {
            self.failures += u32::from(why != "ok");
            if let Err(wrong) = round.judge(&course.killed, *phase, why) {
                panic!("{wrong}: {}", course.report());
            }
        }
        self.check(&course);
    }

    /// Hits those whose time has come, and lets those go on who have stood still.
    fn strike(&mut self, course: &mut Course<'_>) {
        let now = Instant::now();
        let due: Vec<Blow> =
            course.pending.iter().filter(|(at, _)| *at <= now).map(|(_, blow)| *blow).collect();
        course.pending.retain(|(at, _)| *at > now);
        for blow in due {
            let pid = course.pids[blow.rank as usize];
            if course.killed.contains(&blow.rank) || course.round.exits == Some(blow.rank) {
                continue;
            }
            if let Some(time) = blow.stop {
                send(pid, Signal::STOP);
                course.stopped.push((now + time, blow.rank));
                course.last = course.last.max(now + time);
                self.stops += 1;
                continue;
            }
            let at = self.fellows.iter().position(|fellow| fellow.pid == pid).expect("it lives");
            let mut fellow = self.fellows.swap_remove(at);
            fellow.child.kill().expect("SIGKILL");
            fellow.child.wait().expect("dead");
            course.killed.push(blow.rank);
            course.stopped.retain(|(_, rank)| *rank != blow.rank);
            course.last = course.last.max(Instant::now());
            let phase = course.phases[blow.rank as usize];
            self.killed.iter_mut().filter(|(of, _)| *of == phase).for_each(|(_, times)| *times += 1);
        }
        let go_on: Vec<u32> =
            course.stopped.iter().filter(|(until, _)| *until <= now).map(|(_, rank)| *rank).collect();
        course.stopped.retain(|(until, _)| *until > now);
        // One may have been stopped twice.
        for rank in go_on.into_iter().filter(|rank| !course.stopped.iter().any(|(_, other)| other == rank)) {
            send(course.pids[rank as usize], Signal::CONT);
        }
    }

    /// What a member says.
    fn take(&mut self, course: &mut Course<'_>, order: &Order, pid: u32, line: Option<String>) {
        let Some(rank) = course.pids.iter().position(|of| *of == pid) else {
            // The last words of one who was killed, or one who was to end.
            assert!(
                line.is_none() || !self.fellows.iter().any(|fellow| fellow.pid == pid),
                "{pid}: {line:?}"
            );
            if self.fellows.iter().any(|fellow| fellow.pid == pid) {
                self.fails(pid);
            }
            return;
        };
        let Some(line) = line else {
            if course.killed.contains(&(rank as u32)) {
                return;
            }
            if course.round.exits != Some(rank as u32)
                || !self.fellow(pid).child.wait().expect("ended").success()
            {
                self.fails(pid);
            }
            self.fellows.retain(|fellow| fellow.pid != pid);
            course.ended[rank] = Some((Phase::Leave, "ok".to_owned()));
            return;
        };
        let words: Vec<_> = line.splitn(4, ' ').collect();
        assert_eq!(words.get(1), Some(&&*course.number.to_string()), "{pid}: {line}");
        match words[..] {
            ["id", _, id] => {
                let id: TeamId = id.parse().expect("an id");
                for rank in 1..course.round.size {
                    let exits = course.round.exits == Some(rank);
                    let order = Order { rank, exits, id: Some(id), ..order.clone() };
                    self.fellow(course.pids[rank as usize]).tell(&order);
                }
            }
            ["phase", _, name] => {
                let phase = Phase::named(name).expect("a phase");
                course.phases[rank] = phase;
                let now = Instant::now();
                let blows = course.round.blows.iter();
                let hits = |blow: &&Blow| blow.rank as usize == rank && blow.phase == phase;
                let mut blows: Vec<_> = blows.filter(hits).map(|blow| (now + blow.after, *blow)).collect();
                // Of a phase that is entered several times, the first.
                blows.retain(|(_, blow)| !course.pending.iter().any(|(_, other)| other.phase == blow.phase));
                course.pending.extend(blows);
            }
            ["end", _, phase, why] => {
                course.ended[rank] = Some((Phase::named(phase).expect("a phase"), why.to_owned()));
            }
            _ => panic!("{pid}: {line}"),
        }
    }

    /// Nothing of the team is left in those who live.
    fn check(&mut self, course: &Course<'_>) {
        let living: Vec<u32> = course
            .pids
            .iter()
            .copied()
            .filter(|pid| self.fellows.iter().any(|fellow| fellow.pid == *pid))
            .collect();
        for pid in &living {
            self.fellow(*pid).tell(&"check");
        }
        let (mut clean, begun) = (0, Instant::now());
        while clean < living.len() {
            assert!(begun.elapsed() < HANGS, "they do not clean up: {}", course.report());
            match self.hear(HANGS) {
                Some((_, Some(line))) if line == "clean" => clean += 1,
                Some((pid, None)) if living.contains(&pid) => self.fails(pid),
                _ => {}
            }
        }
    }

    /// Ends all in good order; returns where the daemon is.
    pub fn end(mut self) -> TempDir {
        for mut fellow in std::mem::take(&mut self.fellows) {
            drop(fellow.stdin.take());
            let status = fellow.child.wait().expect("our child");
            let log = || std::fs::read_to_string(self.log(fellow.number)).unwrap_or_default();
            assert!(status.success(), "member {} ended: {status}\n{}", fellow.pid, log());
        }
        self.dir
    }

    /// What all did together, in a line.
    pub fn sum(&self) -> String {
        let killed: Vec<_> = self.killed.iter().map(|(phase, times)| format!("{phase:?} {times}")).collect();
        format!(
            "{} members, {} rounds, killed: {}; {} stops; {} ended by an error, the last {:?} after the last death",
            self.started,
            self.rounds,
            killed.join(", "),
            self.stops,
            self.failures,
            self.longest,
        )
    }
}

impl Course<'_> {
    fn is_over(&self) -> bool {
        (0..).zip(&self.ended).all(|(rank, ended)| ended.is_some() || self.killed.contains(&rank))
    }

    /// How long to wait for a line before somebody is to be hit.
    fn next(&self) -> Duration {
        let times =
            self.pending.iter().map(|(at, _)| *at).chain(self.stopped.iter().map(|(until, _)| *until));
        let next = times.min().map(|at| at.saturating_duration_since(Instant::now()));
        next.unwrap_or(Duration::from_millis(100)).min(Duration::from_millis(100))
    }

    /// How long the members may wait for one who was killed before anybody knew who it is.
    fn waits(&self) -> Duration {
        if self.round.timeout < HANGS { self.round.timeout } else { Duration::ZERO }
    }

    fn report(&self) -> String {
        format!(
            "round {}: {:?}\nmembers {:?}, killed {:?}, in phases {:?}, ended {:?}",
            self.number, self.round, self.pids, self.killed, self.phases, self.ended
        )
    }
}
