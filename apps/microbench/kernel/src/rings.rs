//! A server whose worker rings for a connection, and takes the time until that has heard it.

use gpunet_device::{Group, Result, kernel_entry, now_ns};
use gpunet_serve::{Bell, Carve, Next, Server, Service, Shared, Turn, WorkQueue, Worker};

/// A connection says `W`: the worker rings for it, again and again, and each turn sends the times
/// that were taken before, 8 bytes each. Or it says `H`: the host rings for it, by the bell that it
/// finds in a counter.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Rings {
    /// How often the worker rings.
    pub rounds: u64,
    /// From one ring to the next.
    pub pause_ns: u64,
}

kernel_entry!(rings, "gpunet_bench_rings", Server<Rings>);

/// The counter that has the bell for the host, and the one of turns by a bell.
pub const BELL: usize = 0;
/// See [`BELL`].
pub const HEARD: usize = 1;
/// How long the worker waits for a turn.
const LOST_NS: u64 = 1_000_000_000;

/// What the worker and the turns share.
#[derive(Clone, Copy, Debug)]
pub struct Rung {
    asked: WorkQueue<1>,
    heard: Shared<1>,
    taken: WorkQueue<1>,
}

impl Service for Rings {
    const ENTRY: &'static str = "gpunet_bench_rings";
    /// The connection has said what it wants.
    type State = bool;
    type Shared = Rung;

    fn shared(&self, carve: &mut Carve) -> Rung {
        Rung {
            asked: WorkQueue::new(carve, 1),
            heard: Shared::new(carve),
            taken: WorkQueue::new(carve, self.rounds as usize),
        }
    }

    fn workers(&self) -> u32 {
        1
    }

    fn serve<G: Group>(&mut self, g: &G, turn: &mut Turn<'_, Self>) -> Result<Next> {
        let (bell, shared) = (turn.bell(), turn.shared);
        if !*turn.state {
            match turn.input.line(1) {
                Ok(Some(line)) if line == b"W" => {
                    shared.asked.push(g, &turn.context, [bell.raw()])?;
                    turn.bells.ring_workers(g);
                }
                Ok(Some(_)) => turn.counters.own[BELL] = bell.raw(),
                Ok(None) => return Ok(Next::Input),
                Err(_) => return Ok(Next::Close),
            }
            *turn.state = true;
            return Ok(Next::Bell);
        }
        turn.counters.own[HEARD] += 1;
        shared.heard.update(g, &turn.context, |[heard]| [heard + 1])?;
        if turn.input.has_ended() {
            return Ok(Next::Close);
        }
        while turn.output.make_room(g, 8)? {
            match shared.taken.pop(g, &turn.context)? {
                Some([ns]) => turn.output.put(g, &ns.to_le_bytes()),
                None => return Ok(Next::Bell),
            };
        }
        Ok(Next::Output)
    }

    fn work<G: Group>(&mut self, g: &G, worker: &mut Worker<'_, Self>) -> Result<()> {
        let (shared, bells) = (*worker.shared, worker.bells);
        while worker.wait(g, u64::MAX)? {
            let Some([raw]) = shared.asked.pop(g, &worker.context)? else { continue };
            let bell = Bell::from_raw(raw);
            for _ in 0..self.rounds {
                if !worker.wait(g, worker.context.now + self.pause_ns)? {
                    return Ok(());
                }
                let [before] = shared.heard.peek(g);
                let start = g.broadcast(now_ns());
                bells.ring(g, bell);
                let took = loop {
                    let is_heard = shared.heard.peek(g) != [before];
                    let took = g.broadcast(now_ns()).saturating_sub(start);
                    if is_heard || took > LOST_NS {
                        break took;
                    }
                };
                shared.taken.push(g, &worker.context, [took])?;
            }
            bells.ring(g, bell);
        }
        Ok(())
    }
}
