//! Warps that write as fast as they can.

use gpunet_app_kernel::put;
use gpunet_device::{Buffer, Group, Kernel, Net};
use gpunet_records::{Kind, Recorder, Records, formats, gprintf};

/// A record of [`Flood`]: which warp, and the record's number.
pub const NUMBER: Kind = Kind::new(1);

formats! {
    /// What [`Flood`] prints.
    pub mod lines: Info {
        NUMBER: Info(u32, u64) = "warp {}, line {}";
    }
}

/// What [`Flood`] writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Write {
    /// Records of a warp.
    Records = 0,
    /// A record of each lane at a time.
    Lanes = 1,
    /// Printed lines.
    Lines = 2,
    /// Nothing: what the loop itself takes.
    Nothing = 3,
}

/// Each warp writes `count` times, and leaves how many nanoseconds it has taken.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Flood {
    /// The sockets.
    pub net: Net,
    /// The rings: one for each warp.
    pub records: Records,
    /// A number for each warp: nanoseconds.
    pub times: Buffer,
    /// How often each warp writes.
    pub count: u64,
    /// What, a [`Write`].
    pub write: u32,
    /// Nothing.
    pub reserved: u32,
}

impl Kernel for Flood {
    const ENTRY: &'static str = "gpunet_watch_flood";

    fn run<G: Group>(self, g: &G) {
        let g = &g.warp();
        let mut recorder = Recorder::open(g, self.net, self.records);
        let (warp, begin) = (g.index(), gpunet_device::now_ns());
        let mut number = 0;
        while number < self.count {
            let words = [warp, number as u32, (number >> 32) as u32];
            if self.write == Write::Records as u32 {
                recorder.record(g, NUMBER, words);
            } else if self.write == Write::Lanes as u32 {
                recorder.record_each(g, NUMBER, words);
            } else if self.write == Write::Lines as u32 {
                gprintf!(recorder, g, lines::NUMBER, warp, number);
            }
            number += 1;
        }
        let took = gpunet_device::now_ns() - begin;
        recorder.close(g);
        if g.is_leader() {
            put(self.times, warp as usize, took);
        }
    }
}
