//! One round: what its members are told, who is hit and when, and how it may end.

use super::script::Phase;
use gpunet_proxy::team::TeamId;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// What a member is told, in a line.
#[derive(Clone, Debug)]
pub struct Order {
    pub number: u64,
    pub rank: u32,
    pub size: u32,
    /// Of all members.
    pub seed: u64,
    /// Of the team.
    pub timeout: Duration,
    /// Of waits of kernels and queues.
    pub limit: Option<Duration>,
    /// How long members are stopped, at most.
    pub stops: Duration,
    /// The program ends as soon as it has left.
    pub exits: bool,
    /// `None` for the one that leads.
    pub id: Option<TeamId>,
}

impl Order {
    /// What this member alone draws from.
    pub fn own_seed(&self) -> u64 {
        self.seed ^ (u64::from(self.rank) + 1) << 56
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: Duration| time.as_millis();
        let Self { number, rank, size, seed, timeout, limit, stops, exits, id } = self;
        let (timeout, limit, stops) = (ms(*timeout), limit.map_or(0, ms), ms(*stops));
        write!(f, "{number} {rank} {size} {seed} {timeout} {limit} {stops} {} ", u8::from(*exits))?;
        match id {
            Some(id) => write!(f, "{id}"),
            None => f.write_str("-"),
        }
    }
}

impl FromStr for Order {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        let (numbers, id) = line.rsplit_once(' ').ok_or(())?;
        let numbers: Vec<u64> =
            numbers.split(' ').map(str::parse).collect::<Result<_, _>>().map_err(|_| ())?;
        let [number, rank, size, seed, timeout, limit, stops, exits] = numbers[..] else { return Err(()) };
        Ok(Self {
            number,
            rank: rank as u32,
            size: size as u32,
            seed,
            timeout: Duration::from_millis(timeout),
            limit: (limit > 0).then(|| Duration::from_millis(limit)),
            stops: Duration::from_millis(stops),
            exits: exits == 1,
            id: if id == "-" { None } else { Some(id.parse().map_err(|_| ())?) },
        })
    }
}

/// What befalls a member, so long after it has entered a phase.
#[derive(Clone, Copy, Debug)]
pub struct Blow {
    pub rank: u32,
    pub phase: Phase,
    pub after: Duration,
    /// `None`: it is killed. Else it stands still for so long.
    pub stop: Option<Duration>,
}

/// How long members wait for each other where they are not to give up.
pub const PATIENT: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub struct Round {
    pub size: u32,
    pub blows: Vec<Blow>,
    pub timeout: Duration,
    pub limit: Option<Duration>,
    /// This member's program ends as soon as it has left the team.
    pub exits: Option<u32>,
}

impl Round {
    /// In which all goes well.
    pub fn calm(size: u32) -> Self {
        Self { size, blows: Vec::new(), timeout: PATIENT, limit: None, exits: None }
    }

    /// The longest stop.
    pub fn stops(&self) -> Duration {
        self.blows.iter().filter_map(|blow| blow.stop).max().unwrap_or_default()
    }

    /// Checks how a member may end that lives, where `killed` do not.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn judge(&self, killed: &[u32], phase: Phase, why: &str) -> Result<(), String> {
        let (what, who) = why.split_once(' ').unwrap_or((why, ""));
        if what == "ok" {
            return Ok(());
        }
        let gives_up = self.timeout < PATIENT;
        if killed.is_empty() && !gives_up {
            return Err("nobody has died, and nobody was to give up".to_owned());
        }
        let ranks: Vec<u32> = who.split(',').filter_map(|rank| rank.parse().ok()).collect();
        // In a part of the team they have other ranks.
        let are_dead = phase == Phase::Split || ranks.iter().all(|rank| killed.contains(rank));
        let errno: i32 = who.parse().unwrap_or(0);
        let may_be = match what {
            "died" => are_dead || gives_up,
            // Before it has said who it is, nobody knows of its death.
            "missing" => phase == Phase::Join && are_dead || gives_up,
            "left" => true,
            "late" | "silent" => gives_up,
            "errno" if [libc::ECONNRESET, libc::ENOTCONN].contains(&errno) => true,
            "errno" => gives_up && [libc::ETIMEDOUT, libc::EAGAIN].contains(&errno),
            // Nobody is where they were to meet.
            "io" => phase == Phase::Split || phase == Phase::Join && (killed.contains(&0) || gives_up),
            "failure" => gives_up && who.contains("complete"),
            _ => false,
        };
        if may_be { Ok(()) } else { Err(format!("that is no answer to the death of {killed:?}")) }
    }
}
