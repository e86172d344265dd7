//! Warps that write records as fast as they can, and a block that prints lines now and then.

use crate::Results;
use crate::ping_pong::pause;
use gpunet_device::{Group, Kernel, Net, kernel_entry, now_ns};
use gpunet_records::{Kind, Recorder, Records, formats, gprintf};

/// A record of [`WriteRecords`]: which warp, and the record's number.
const NUMBER: Kind = Kind::new(1);

formats! {
    /// What [`WriteRecords`] and [`PrintLines`] print.
    pub mod lines: Debug {
        NUMBER: Info(u32, u64) = "warp {}, line {}";
        STAMPED: Info(u64, u64) = "line {} of {} ns";
        OFF: Debug(u32, u64) = "warp {}, line {}";
    }
}

/// What a warp writes each time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Written {
    /// Nothing: what the loop itself takes.
    Nothing = 0,
    /// A record of 32 bytes.
    Record = 1,
    /// A record of 32 bytes for each lane.
    Lanes = 2,
    /// A printed line.
    Line = 3,
    /// A line of a level that the host does not want.
    Off = 4,
}

/// Each warp writes `count` times. `results`: for each warp of the launch, its nanoseconds.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct WriteRecords {
    /// The sockets.
    pub net: Net,
    /// The rings: one for each warp.
    pub records: Records,
    /// How often a warp writes.
    pub count: u64,
    /// A [`Written`].
    pub written: u64,
    /// Nanoseconds.
    pub results: Results,
}

impl Kernel for WriteRecords {
    const ENTRY: &'static str = "gpunet_write_records";

    fn run<G: Group>(self, g: &G) {
        let g = &g.warp();
        let mut recorder = Recorder::open(g, self.net, self.records);
        let (warp, start, mut number) = (g.index(), now_ns(), 0);
        while number < self.count {
            let words = [warp, number as u32, (number >> 32) as u32];
            if self.written == Written::Record as u64 {
                recorder.record(g, NUMBER, words);
            } else if self.written == Written::Lanes as u64 {
                recorder.record_each(g, NUMBER, words);
            } else if self.written == Written::Line as u64 {
                gprintf!(recorder, g, lines::NUMBER, warp, number);
            } else if self.written == Written::Off as u64 {
                gprintf!(recorder, g, lines::OFF, warp, number);
            }
            number += 1;
        }
        let took = now_ns() - start;
        recorder.close(g);
        self.results.set(g, warp as usize, took);
    }
}
kernel_entry!(write_records, "gpunet_write_records", WriteRecords);

/// Block 0 prints a line that has the time before it, again and again.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct PrintLines {
    /// The sockets.
    pub net: Net,
    /// Its ring.
    pub records: Records,
    /// Lines.
    pub rounds: u64,
    /// Before each of them, nanoseconds.
    pub pause_ns: u64,
}

impl Kernel for PrintLines {
    const ENTRY: &'static str = "gpunet_print_lines";

    fn run<G: Group>(self, g: &G) {
        if g.index() > 0 {
            return;
        }
        let mut recorder = Recorder::open(g, self.net, self.records);
        let mut round = 0;
        while round < self.rounds {
            pause(self.pause_ns);
            let now = g.broadcast(now_ns());
            gprintf!(recorder, g, lines::STAMPED, round, now);
            round += 1;
        }
        recorder.close(g);
    }
}
kernel_entry!(print_lines, "gpunet_print_lines", PrintLines);
