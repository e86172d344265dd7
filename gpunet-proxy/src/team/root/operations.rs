//! The operations of all members of a team: a state machine without sockets or clock.
//!
//! Each member numbers its operations. An operation without memory is complete when all have begun
//! it. One with memory is complete when all have mapped the memory that they were sent. Otherwise
//! it fails for all.

use crate::attached::session::MAX_REASON;
use crate::team::error::{Collective, TeamFailure};
use crate::team::frames::{ToMember, ToRoot, parse_len};
use gpunet_abi::team::Rank;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most bytes that a member gives for an operation: the bytes of all members fit into a frame.
pub(in crate::team) const MAX_BYTES: usize = 256;

/// How many operations a member may be ahead of another. A failed operation is kept until all have
/// begun it.
const MAX_AHEAD: u64 = 1024;

/// A frame to send, and its receiver.
pub(super) type Output = (u32, ToMember, Option<Arc<OwnedFd>>);

/// One member's beginning of an operation.
#[derive(Debug)]
struct Begun {
    what: Collective,
    bytes: Vec<u8>,
    memory: Option<Arc<OwnedFd>>,
}

/// The operation that is under way.
#[derive(Debug)]
struct Open {
    number: u64,
    deadline: Instant,
    begun: Vec<Option<Begun>>,
    /// Present once all have begun an operation with memory: which members have mapped it.
    mapped: Option<Vec<bool>>,
}

#[derive(Debug)]
pub(super) struct Operations {
    size: usize,
    timeout: Duration,
    /// The last operation that each member has begun.
    last: Vec<u64>,
    open: Option<Open>,
    /// Failed operations that not all members have begun, and how many have.
    failed: BTreeMap<u64, (TeamFailure, usize)>,
    /// The failure of all later operations.
    over: Option<TeamFailure>,
    broken: Option<TeamFailure>,
    outputs: VecDeque<Output>,
}

impl Operations {
    pub(super) fn new(size: u32, timeout: Duration) -> Self {
        Self {
            size: size as usize,
            timeout,
            last: vec![0; size as usize],
            open: None,
            failed: BTreeMap::new(),
            over: None,
            broken: None,
            outputs: VecDeque::new(),
        }
    }

    pub(super) const fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns why the team is broken, if it is.
    pub(super) fn broken(&self) -> Option<TeamFailure> {
        self.broken.clone()
    }

    /// Returns whether an operation is under way, which may take too long, or an output could not
    /// be sent yet.
    pub(super) fn is_timed(&self) -> bool {
        self.open.is_some() || !self.outputs.is_empty()
    }

    pub(super) fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// Takes back an output that could not be sent yet.
    pub(super) fn put_back(&mut self, output: Output) {
        self.outputs.push_front(output);
    }

    /// Handles a member's message about an operation.
    ///
    /// # Errors
    /// The message is invalid.
    pub(super) fn handle(
        &mut self,
        rank: u32,
        said: ToRoot,
        memory: Option<OwnedFd>,
    ) -> Result<(), TeamFailure> {
        match said {
            ToRoot::Begin { number, what, bytes } => {
                self.begin(rank, number, Begun { what, bytes, memory: memory.map(Arc::new) })
            }
            ToRoot::Unable { number, reason } => {
                let reason = shortened(&reason);
                if let Some(why) = self.may_begin(rank, number)? {
                    self.say(rank, ToMember::Failed { number, why });
                    return Ok(());
                }
                let begun = Begun { what: Collective::Barrier, bytes: Vec::new(), memory: None };
                self.open(number).begun[rank as usize] = Some(begun);
                self.fail(number, &TeamFailure::CannotMap { rank: Rank(rank), reason });
                Ok(())
            }
            ToRoot::Mapped { number, result } => {
                self.mapped(rank, number, result.map_err(|reason| shortened(&reason)))
            }
            ToRoot::Here { .. } | ToRoot::Leave => Err(TeamFailure::Protocol { rank: Rank(rank) }),
        }
    }

    /// Returns why the operation has failed already, if it has.
    fn may_begin(&mut self, rank: u32, number: u64) -> Result<Option<TeamFailure>, TeamFailure> {
        self.count(rank, number)?;
        if let Some((why, begun)) = self.failed.get_mut(&number) {
            *begun += 1;
            let why = why.clone();
            if self.failed.get(&number).is_some_and(|(_, begun)| *begun >= self.size) {
                self.failed.remove(&number);
            }
            return Ok(Some(why));
        }
        if let Some(why) = &self.over {
            return Ok(Some(why.clone()));
        }
        let fits = self.open.as_ref().is_none_or(|open| {
            open.number == number && open.mapped.is_none() && open.begun[rank as usize].is_none()
        });
        if fits { Ok(None) } else { Err(TeamFailure::Protocol { rank: Rank(rank) }) }
    }

    /// Checks that a member begins its operations one after the other.
    fn count(&mut self, rank: u32, number: u64) -> Result<(), TeamFailure> {
        let last = &mut self.last[rank as usize];
        if last.checked_add(1) != Some(number) {
            return Err(TeamFailure::Protocol { rank: Rank(rank) });
        }
        *last = number;
        let operations = number - self.last.iter().min().copied().unwrap_or(0);
        // Nothing is kept once a member has left.
        if operations > MAX_AHEAD && self.over.is_none() {
            return Err(TeamFailure::Ahead { rank: Rank(rank), operations });
        }
        Ok(())
    }

    fn open(&mut self, number: u64) -> &mut Open {
        let (size, deadline) = (self.size, Instant::now() + self.timeout);
        self.open.get_or_insert_with(|| Open {
            number,
            deadline,
            begun: (0..size).map(|_| None).collect(),
            mapped: None,
        })
    }

    fn begin(&mut self, rank: u32, number: u64, begun: Begun) -> Result<(), TeamFailure> {
        let is_whole = match begun.what.shared_len() {
            Some(len) => {
                begun.memory.is_some() && parse_len(&begun.bytes).is_some_and(|mapped| mapped >= len)
            }
            None => begun.memory.is_none(),
        };
        if begun.bytes.len() > MAX_BYTES || !is_whole {
            return Err(TeamFailure::Protocol { rank: Rank(rank) });
        }
        if let Some(why) = self.may_begin(rank, number)? {
            self.say(rank, ToMember::Failed { number, why });
            return Ok(());
        }
        let what = begun.what.clone();
        let open = self.open(number);
        let other = (0..).zip(&open.begun).find_map(|(other, begun)| Some((other, &begun.as_ref()?.what)));
        let different =
            other.filter(|(_, others)| **others != what).map(|(other, others)| TeamFailure::Different {
                rank: Rank(rank),
                its: what.clone(),
                other: Rank(other),
                others: others.clone(),
            });
        open.begun[rank as usize] = Some(begun);
        let count = open.begun.iter().flatten().count();
        if let Some(why) = different {
            self.fail(number, &why);
        } else if count == self.size {
            self.agree(&what);
        }
        Ok(())
    }

    /// Handles an operation that all members have begun.
    fn agree(&mut self, what: &Collective) {
        let Some(open) = &mut self.open else { return };
        let number = open.number;
        let begun: Vec<_> = open.begun.iter().flatten().collect();
        let bytes: Vec<_> = begun.iter().map(|begun| begun.bytes.clone()).collect();
        if what.shared_len().is_some() {
            let is_reserved = matches!(what, Collective::Alloc { is_reserved: true, .. });
            for to in 0..self.size as u32 {
                for (rank, begun) in (0..).zip(&begun).filter(|(rank, _)| *rank != to) {
                    let len = parse_len(&begun.bytes).unwrap_or(0);
                    let part = ToMember::Part { number, rank, len, is_reserved };
                    self.outputs.push_back((to, part, begun.memory.clone()));
                }
            }
            open.begun.iter_mut().flatten().for_each(|begun| begun.memory = None);
            open.mapped = Some(vec![false; self.size]);
        } else {
            self.open = None;
        }
        // Member 0 last: once all leave, its program may end, and this thread with it.
        for to in (1..self.size as u32).chain([0]) {
            self.say(to, ToMember::Agreed { number, bytes: bytes.clone() });
        }
    }

    fn mapped(&mut self, rank: u32, number: u64, result: Result<(), String>) -> Result<(), TeamFailure> {
        let Some(open) = self.open.as_mut().filter(|open| open.number == number) else {
            // It has failed in the meantime, and this member has been told, or will be.
            return Ok(());
        };
        let Some(mapped) = &mut open.mapped else { return Err(TeamFailure::Protocol { rank: Rank(rank) }) };
        if let Err(reason) = result {
            self.fail(number, &TeamFailure::CannotMap { rank: Rank(rank), reason });
            return Ok(());
        }
        mapped[rank as usize] = true;
        if mapped.iter().all(|&mapped| mapped) {
            self.open = None;
            for to in 0..self.size as u32 {
                self.say(to, ToMember::Done { number });
            }
        }
        Ok(())
    }

    /// Fails the operation: members that have begun it are told now, the others when they begin it.
    fn fail(&mut self, number: u64, why: &TeamFailure) {
        let Some(open) = self.open.take() else { return };
        let begun = (0..).zip(&open.begun).filter(|(_, begun)| begun.is_some());
        let told: Vec<u32> = begun.map(|(rank, _)| rank).collect();
        if told.len() < self.size {
            self.failed.insert(number, (why.clone(), told.len()));
        }
        for rank in told {
            self.say(rank, ToMember::Failed { number, why: why.clone() });
        }
    }

    /// Handles a member that has left: all operations fail from now on.
    pub(super) fn leave(&mut self, rank: u32) {
        let why = TeamFailure::Left { rank: Rank(rank) };
        self.end(&why);
    }

    /// Breaks the team. Whoever begins an operation from now on, and knows that the team is broken,
    /// is told the same, also if a member had left before.
    pub(super) fn break_up(&mut self, why: &TeamFailure) {
        let why = self.broken.get_or_insert_with(|| why.clone()).clone();
        self.end(&why);
        self.failed.values_mut().for_each(|(failure, _)| *failure = why.clone());
        self.over = Some(why);
    }

    fn end(&mut self, why: &TeamFailure) {
        if let Some(number) = self.open.as_ref().map(|open| open.number) {
            self.fail(number, why);
        }
        self.over.get_or_insert_with(|| why.clone());
    }

    /// Fails an operation that has been under way for too long.
    pub(super) fn check_deadline(&mut self, now: Instant) {
        let Some(open) = self.open.as_ref().filter(|open| now >= open.deadline) else { return };
        let is_absent = |rank: usize| match &open.mapped {
            Some(mapped) => !mapped[rank],
            None => open.begun[rank].is_none(),
        };
        let ranks = (0..self.size).filter(|&rank| is_absent(rank)).map(|rank| Rank(rank as u32)).collect();
        let number = open.number;
        self.fail(number, &TeamFailure::TimedOut { ranks });
    }

    fn say(&mut self, rank: u32, frame: ToMember) {
        self.outputs.push_back((rank, frame, None));
    }
}

/// Shortens the reason that a member gives, to pass it on.
fn shortened(reason: &str) -> String {
    reason.chars().take(MAX_REASON).filter(|c| !c.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn member_0_hears_last_that_all_leave_because_the_root_ends_with_its_program() {
        let mut operations = Operations::new(3, Duration::from_secs(1));
        for rank in [1, 0, 2] {
            let leave = ToRoot::Begin { number: 1, what: Collective::Leave, bytes: Vec::new() };
            operations.handle(rank, leave, None).expect("it may");
        }
        let told: Vec<u32> = std::iter::from_fn(|| operations.poll_output()).map(|(rank, ..)| rank).collect();
        assert_eq!(told, [1, 2, 0]);
    }

    fn unable(number: u64, reason: &str) -> ToRoot {
        ToRoot::Unable { number, reason: reason.to_owned() }
    }

    fn told(operations: &mut Operations) -> Vec<(u32, ToMember)> {
        std::iter::from_fn(|| operations.poll_output()).map(|(rank, frame, _)| (rank, frame)).collect()
    }

    #[test]
    fn a_death_is_what_a_member_is_told_also_after_another_one_has_left() {
        let (left, died) = (TeamFailure::Left { rank: Rank(0) }, TeamFailure::Died { rank: Rank(2) });
        let mut operations = Operations::new(4, Duration::from_secs(1));
        let begin = |operations: &mut Operations, rank, number| {
            let barrier = ToRoot::Begin { number, what: Collective::Barrier, bytes: Vec::new() };
            operations.handle(rank, barrier, None).expect("it may");
        };
        let failures = |operations: &mut Operations| -> Vec<_> {
            let all = told(operations).into_iter();
            all.map(|(rank, frame)| match frame {
                ToMember::Failed { number, why } => (rank, number, why),
                other => panic!("member {rank} is told {other:?}"),
            })
            .collect()
        };
        begin(&mut operations, 1, 1);
        operations.leave(0);
        assert_eq!(failures(&mut operations), [(1, 1, left)]);
        operations.break_up(&died);
        // One begins the operation that failed before, and the other one the next.
        begin(&mut operations, 3, 1);
        begin(&mut operations, 1, 2);
        assert_eq!(failures(&mut operations), [(3, 1, died.clone()), (1, 2, died)]);
    }

    #[test]
    fn one_who_runs_ahead_of_the_others_is_stopped_before_much_is_kept() {
        let mut operations = Operations::new(2, Duration::from_secs(1));
        let why = (1..100_000).find_map(|number| operations.handle(1, unable(number, "none"), None).err());
        why.expect("it may not go on for ever");
        assert!(told(&mut operations).len() < 10_000);
    }

    #[test]
    fn members_number_what_they_do_one_by_one() {
        let protocol = Err(TeamFailure::Protocol { rank: Rank(1) });
        for numbers in [&[2][..], &[1, 1], &[1, 3], &[0], &[u64::MAX]] {
            let mut operations = Operations::new(2, Duration::from_secs(1));
            let said: Vec<_> =
                numbers.iter().map(|&number| operations.handle(1, unable(number, "none"), None)).collect();
            assert_eq!(said.last(), Some(&protocol), "{numbers:?}");
        }
    }

    #[test]
    fn the_longest_reason_of_one_can_be_told_to_the_others() {
        let mut reason = "x".repeat(crate::wire::MAX_FRAME);
        while postcard::to_stdvec(&unable(1, &reason)).expect("bytes").len() > crate::wire::MAX_FRAME {
            reason.pop();
        }
        let mut operations = Operations::new(2, Duration::from_secs(1));
        operations.handle(1, unable(1, &reason), None).expect("it may");
        for (_, frame) in told(&mut operations) {
            crate::wire::encode(&frame);
        }
    }
}
