//! Blocks that take steps, one of which stalls.

use gpunet_device::{Error, Group, Kernel, Listener, Net, Result, SockAddr};
use gpunet_records::{Kind, Recorder, Records, formats, gprintf};

/// A step was taken: its number, and how many nanoseconds it took.
pub const STEP: Kind = Kind::new(1);

formats! {
    /// What [`Work`] prints.
    pub mod lines: Debug {
        STARTED: Info(u32, u32) = "block {} takes {} steps";
        SLOW: Warn(u32, f64) limit 10 = "step {} took {:.1} us";
        DETAIL: Debug(u32, u64) = "step {} begins with {:#018x}";
        WAITS: Warn(u32, u32) = "after step {}, waits for a connection to port {}";
        ENDED: Info(Error) = "the wait has ended: {}";
        DONE: Info(u32) = "{} steps taken";
        IN_STEP: Info() = "step";
        IN_STALL: Info() = "waits for a connection";
        STEPS_LEFT: Info() = "steps left";
    }
}

/// Each block takes steps, and block `stalls` waits in the middle for a connection that nobody
/// makes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Work {
    /// The sockets.
    pub net: Net,
    /// What the blocks say.
    pub records: Records,
    /// Steps of a block.
    pub steps: u32,
    /// Rounds of work in a step.
    pub rounds: u32,
    /// Which block stalls; a number that no block has: none.
    pub stalls: u32,
    /// A step of more nanoseconds is slow.
    pub slow_ns: u32,
}

impl Kernel for Work {
    const ENTRY: &'static str = "gpunet_watch_work";

    fn run<G: Group>(self, g: &G) {
        let mut recorder = Recorder::open(g, self.net, self.records);
        gprintf!(recorder, g, lines::STARTED, g.index(), self.steps);
        let (mut step, mut state) = (0, u64::from(g.index()) + 1);
        while step < self.steps {
            recorder.begin(g, lines::IN_STEP);
            recorder.count(g, lines::STEPS_LEFT, i64::from(self.steps - step));
            gprintf!(recorder, g, lines::DETAIL, step, state);
            let begin = gpunet_device::now_ns();
            let mut round = 0;
            while round < self.rounds {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
                round += 1;
            }
            // All lanes of the group say the same.
            let took = g.broadcast(gpunet_device::now_ns() - begin);
            recorder.record(g, STEP, [step, took as u32]);
            if took > u64::from(self.slow_ns) {
                gprintf!(recorder, g, lines::SLOW, step, took as f64 / 1e3);
            }
            if g.index() == self.stalls && step == self.steps / 2 {
                let result = self.stall(g, &mut recorder, step);
                gprintf!(recorder, g, lines::ENDED, result.err().unwrap_or(Error::AlreadyExists));
                recorder.end(g, lines::IN_STEP);
                break;
            }
            recorder.end(g, lines::IN_STEP);
            step += 1;
        }
        gprintf!(recorder, g, lines::DONE, step);
        recorder.close(g);
    }
}

impl Work {
    fn stall<G: Group>(self, g: &G, recorder: &mut Recorder, step: u32) -> Result<()> {
        let listener = Listener::bind(g, self.net, SockAddr::v4([127, 0, 0, 1], 0))?;
        gprintf!(recorder, g, lines::WAITS, step, u32::from(listener.local_addr().port));
        recorder.begin(g, lines::IN_STALL);
        let result = listener.accept(g);
        recorder.end(g, lines::IN_STALL);
        result?.close(g)
    }
}
