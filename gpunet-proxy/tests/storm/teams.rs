//! Members of teams die and stand still, in every phase; the others get an answer, and form a new
//! team.

mod crew;
mod kernel;
pub mod member;
mod round;
mod script;

use crate::daemon::{Running, gpunetd, until};
use crate::parent::{Held, sane, seed};
use crate::storm::deserted;
use crew::Crew;
use round::{Blow, Round};
use rustix::process::Signal;
use script::Phase;
use std::time::{Duration, Instant};

/// Half of them are attached to the daemon, the others have a proxy of their own.
const CREW: usize = 4;
/// So long after a member has entered a phase it is hit, at most.
const LATER_US: u64 = 4000;
/// So often one is hit in a phase before it counts as impossible; each time sooner after its begin.
const MOST_TRIES: u32 = 20;

/// How long it blows at least, beyond one death in each phase: `GPUNET_STORM_SECONDS`, else not at
/// all.
fn time() -> Duration {
    let given = std::env::var("GPUNET_STORM_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(given.unwrap_or(0))
}

#[test]
fn members_that_live_get_an_answer_in_every_phase_and_form_a_new_team() {
    let seed = seed();
    eprintln!("GPUNET_STORM_SEED={seed}");
    let mut crew = Crew::new(seed);
    let mut daemon = Running::start(&mut gpunetd(&crew.dir));
    let at_first = Held::of(daemon.child.id());
    crew.fill(CREW);
    crew.play(&Round::calm(CREW as u32));

    let start = Instant::now();
    loop {
        for phase in crew.shuffled(&Phase::ALL) {
            let before = crew.killed_in(phase);
            for again in 0.. {
                let round = deadly(&mut crew, phase, again);
                crew.play(&round);
                // Those who are left, at once.
                let left = Round::calm(crew.len() as u32);
                crew.play(&left);
                crew.fill(CREW);
                // A quick one may be in the next phase when it is hit, or was hit before.
                if crew.killed_in(phase) > before {
                    break;
                }
                assert!(again < MOST_TRIES, "nobody dies in the phase {phase:?}: {}", crew.sum());
            }
            let round = match crew.rng.below(4) {
                0 => halting(&mut crew),
                1 => tiring(&mut crew),
                2 => leaving(&mut crew),
                _ => continue,
            };
            crew.play(&round);
            crew.fill(CREW);
        }
        if start.elapsed() >= time() {
            break;
        }
    }
    eprintln!("{} in {:?}", crew.sum(), start.elapsed());
    let dir = crew.end();
    deserted(&dir);
    until("the daemon holds what it held at first", || {
        let (now, then) = (Held::of(daemon.child.id()), &at_first);
        now.fds.len() <= then.fds.len() && now.memory() <= then.memory()
    });
    sane(&daemon);
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.end(), 0, "{}", daemon.log());
}

fn blow(crew: &mut Crew, size: u32, phase: Phase, stop: Option<Duration>) -> Blow {
    let rank = crew.rng.below(size.into()) as u32;
    Blow { rank, phase, after: Duration::from_micros(crew.rng.below(LATER_US)), stop }
}

fn size(crew: &mut Crew) -> u32 {
    crew.rng.range(2, CREW as u64 + 1) as u32
}

/// One dies in that phase, now and then another one in some phase, too, or stands still there.
fn deadly(crew: &mut Crew, phase: Phase, again: u32) -> Round {
    let size = size(crew);
    let mut round = Round::calm(size);
    let mut first = blow(crew, size, phase, None);
    first.after /= 1 << again.min(12);
    round.blows.push(first);
    if again == 0 && crew.rng.chance(30) {
        let (phase, stop) = (crew.rng.one_of(&Phase::ALL), crew.rng.chance(60));
        let stop = stop.then(|| Duration::from_millis(crew.rng.range(1, 300)));
        let second = blow(crew, size, phase, stop);
        if second.rank != round.blows[0].rank {
            round.blows.push(second);
        }
    }
    if round.blows.iter().any(|blow| blow.phase == Phase::Join) {
        // Those who have come wait so long for one who has not.
        round.timeout = Duration::from_millis(700);
    }
    round
}

/// Some stand still for a while, which changes nothing.
fn halting(crew: &mut Crew) -> Round {
    let size = size(crew);
    let blows = (0..2).map(|_| {
        let (phase, time) = (crew.rng.one_of(&Phase::ALL), Duration::from_millis(crew.rng.range(1, 400)));
        blow(crew, size, phase, Some(time))
    });
    Round { blows: blows.collect(), ..Round::calm(size) }
}

/// One stands still for longer than the others wait.
fn tiring(crew: &mut Crew) -> Round {
    let size = size(crew);
    let phase = crew.rng.one_of(&Phase::ALL);
    let timeout = Duration::from_millis(300);
    let blows = vec![blow(crew, size, phase, Some(Duration::from_millis(900)))];
    Round { blows, timeout, limit: Some(timeout), ..Round::calm(size) }
}

/// One ends its program as soon as it has left.
fn leaving(crew: &mut Crew) -> Round {
    let size = size(crew);
    let who = if crew.rng.chance(50) { 0 } else { crew.rng.below(size.into()) as u32 };
    Round { exits: Some(who), ..Round::calm(size) }
}
