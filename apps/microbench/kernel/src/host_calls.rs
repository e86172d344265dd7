//! Blocks that call a function of the host.

use crate::Results;
use crate::group::cooperate;
use gpunet_calls::{Caller, Calls, Failure, Function, Ticket};
use gpunet_device::{Error, Group, Kernel, Net, Timeout, kernel_entry, now_ns};

/// A request, and an answer: 64 bytes.
pub type Message = [u32; 16];
/// Returns the request with its first word increased by one.
pub const NEXT: Function<Message, Message> = Function::new(1);
/// The most calls in flight of a block.
pub const MOST_IN_FLIGHT: u32 = 16;
/// A call that takes longer has hung.
const LIMIT: Timeout = Timeout::secs(30);

/// Each block calls [`NEXT`] `rounds` times and checks the answers. `results`: per block its
/// nanoseconds; then, with one call in flight, block 0's nanoseconds of each call.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct HostCalls {
    /// The sockets.
    pub net: Net,
    /// The way to the host.
    pub calls: Calls,
    /// Calls of a block.
    pub rounds: u64,
    /// Blocks of the launch.
    pub blocks: u32,
    /// Calls in flight of a block, at most [`MOST_IN_FLIGHT`].
    pub in_flight: u32,
    /// A [`GroupKind`](crate::GroupKind).
    pub group: u64,
    /// Nanoseconds.
    pub results: Results,
}

impl Kernel for HostCalls {
    const ENTRY: &'static str = "gpunet_host_calls";

    fn run<G: Group>(self, g: &G) {
        cooperate!(self, g, self.group);
    }
}
kernel_entry!(host_calls, "gpunet_host_calls", HostCalls);

impl HostCalls {
    #[inline(always)]
    fn play<G: Group>(&self, g: &G, block: u32) {
        let mut caller = Caller::open(g, self.net, self.calls);
        g.sync();
        let start = now_ns();
        let done = if self.in_flight <= 1 {
            self.one_by_one(g, &mut caller, block)
        } else {
            self.in_flight(g, &mut caller)
        };
        let took = now_ns() - start;
        caller.close(g);
        let result = done.map(|()| took).map_err(Failure::error);
        self.results.set_result(g, block as usize, result);
    }

    #[inline(always)]
    fn one_by_one<G: Group>(&self, g: &G, caller: &mut Caller, block: u32) -> Result<(), Failure> {
        let mut round = 0;
        while round < self.rounds {
            let start = now_ns();
            let answer = caller.call(g, NEXT, message(round), LIMIT)?;
            check(answer, round)?;
            if block == 0 {
                self.results.set(g, (u64::from(self.blocks) + round) as usize, now_ns() - start);
            }
            round += 1;
        }
        Ok(())
    }

    #[inline(always)]
    fn in_flight<G: Group>(&self, g: &G, caller: &mut Caller) -> Result<(), Failure> {
        let mut tickets: [Option<Ticket<Message>>; MOST_IN_FLIGHT as usize] =
            [const { None }; MOST_IN_FLIGHT as usize];
        let (mut started, mut done) = (0, 0);
        let (mut next_start, mut next_wait) = (0, 0);
        let in_flight =
            u64::from(if self.in_flight < MOST_IN_FLIGHT { self.in_flight } else { MOST_IN_FLIGHT });
        while done < self.rounds {
            while started < self.rounds && started - done < in_flight {
                if let Some(ticket) = tickets.get_mut(next_start as usize) {
                    *ticket = Some(caller.start(g, NEXT, message(started), LIMIT)?);
                }
                next_start = if next_start + 1 == in_flight { 0 } else { next_start + 1 };
                started += 1;
            }
            if let Some(Some(ticket)) = tickets.get_mut(next_wait as usize) {
                check(caller.wait(g, ticket, LIMIT)?, done)?;
            }
            next_wait = if next_wait + 1 == in_flight { 0 } else { next_wait + 1 };
            done += 1;
        }
        Ok(())
    }
}

#[inline(always)]
const fn message(round: u64) -> Message {
    [round as u32; 16]
}

#[inline(always)]
fn check(answer: Message, round: u64) -> Result<(), Failure> {
    let is_right = answer[0] == (round as u32).wrapping_add(1) && answer[15] == round as u32;
    if is_right { Ok(()) } else { Err(Failure::Refused(Error::Protocol)) }
}
