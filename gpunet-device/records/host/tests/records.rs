//! Kernels of the CPU device write records and lines, and the host reads them while they run.

use gpunet_proxy::device::{Group, Kernel, Net};
use gpunet_proxy::{Attachment, Config, FinishPolicy, Launch, embed};
use gpunet_records::{Kind, Recorder, Records, gprintf};
use gpunet_records_host::{Reader, Rings, Settings, Watch};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

const NUMBER: Kind = Kind::new(1);
/// What it takes to be sure that something never comes.
const LONG: Duration = Duration::from_secs(20);

gpunet_records::formats! {
    mod lines: Info {
        STARTED: Info(u32) = "block {} has started";
        STALLED: Warn(u32, u64) = "stalled at {} of {:#x}";
    }
}

/// Writes numbers, says that it stalls, and stalls until it is told to end.
#[derive(Clone, Copy)]
#[repr(C)]
struct Stall {
    net: Net,
    records: Records,
    /// Numbers that each block writes.
    count: u32,
    /// Which of [`GO`] it waits for.
    go: u32,
}

/// Kernels that may end.
static GO: [AtomicU32; 8] = [const { AtomicU32::new(0) }; 8];

impl Kernel for Stall {
    const ENTRY: &'static str = "stall";
    fn run<G: Group>(self, g: &G) {
        let mut recorder = Recorder::open(g, self.net, self.records);
        gprintf!(recorder, g, lines::STARTED, g.index());
        for number in 0..self.count {
            recorder.record(g, NUMBER, [number]);
        }
        gprintf!(recorder, g, lines::STALLED, self.count, 255);
        // Nothing more is written, and the recorder is not closed: as if it hung.
        while GO[self.go as usize].load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        g.sync();
    }
}

struct Running {
    // Dropped in this order: the launch before its memory.
    launch: Option<Launch>,
    _rings: Rings,
    go: usize,
}

impl Running {
    fn start(
        attachment: &Attachment,
        settings: Settings,
        shape: (u32, u32),
        count: u32,
        go: usize,
    ) -> (Self, Reader) {
        let (rings, reader) = Rings::create(attachment, settings).unwrap();
        let program = attachment.load("", shape.1).unwrap();
        // SAFETY: `Running` keeps the rings until the kernel has ended.
        let launch = unsafe {
            attachment.launch(&program, shape.0, shape.1, |net| Stall {
                net,
                records: rings.records(),
                count,
                go: go as u32,
            })
        };
        (Self { launch: Some(launch.unwrap()), _rings: rings, go }, reader)
    }

    fn end(mut self) {
        GO[self.go].store(1, Ordering::Relaxed);
        self.launch.take().unwrap().finish(FinishPolicy::Close).unwrap();
    }
}

fn settings(rings: u32) -> Settings {
    Settings { formats: lines::TABLE, ..Settings::new(rings) }
}

#[test]
fn what_a_kernel_says_is_read_while_it_hangs() {
    let attachment = embed(Config::small()).unwrap().attach_cpu().unwrap();
    let (running, reader) = Running::start(&attachment, settings(3), (3, 4), 100, 0);
    let mut watch = Watch::new(reader, lines::TABLE);
    let (records, said) = mpsc::channel();
    watch.each(move |record| records.send((record.head.block, record.word(0), record.head.kind)).unwrap());
    let (line, lines) = mpsc::channel();
    watch.each_line(move |text| line.send((text.name, text.to_string())).unwrap());
    let watching = watch.start().unwrap();
    let mut next = [0; 3];
    for _ in 0..3 * 102 {
        let (block, number, kind) = said.recv_timeout(LONG).unwrap();
        if kind == NUMBER {
            assert_eq!(number, next[block as usize]);
            next[block as usize] += 1;
        }
    }
    assert_eq!(next, [100; 3]);
    let mut all: Vec<_> = (0..6).map(|_| lines.recv_timeout(LONG).unwrap()).collect();
    all.sort();
    let line = |name, text: &str| (name, text.to_owned());
    assert_eq!(all[0], line("STALLED", "WARN  block 0: stalled at 100 of 0xff"));
    assert_eq!(all[5], line("STARTED", "INFO  block 2: block 2 has started"));
    assert!(!running.launch.as_ref().unwrap().is_finished().unwrap(), "it still hangs");
    let found = watching.stop();
    assert_eq!((found.records, found.lost()), (306, 0));
    running.end();
}
