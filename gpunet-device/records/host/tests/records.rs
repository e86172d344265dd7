//! Kernels of the CPU device write records and lines, and the host reads them while they run.

use gpunet_proxy::device::{Group, Kernel, Net, Timeout};
use gpunet_proxy::{Attachment, Config, FinishPolicy, Launch, embed};
use gpunet_records::{Kind, NoLine, Recorder, Records, gprintf};
use gpunet_records_host::wire::{Decoder, Frame, MAGIC, Reason};
use gpunet_records_host::{Error, Reader, Rings, Settings, Watch, WhenFull};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
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
        (Self::start_with(attachment, rings, shape, count, go), reader)
    }

    fn start_with(attachment: &Attachment, rings: Rings, shape: (u32, u32), count: u32, go: usize) -> Self {
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
        Self { launch: Some(launch.unwrap()), _rings: rings, go }
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

/// A collector gets every record, or is told how many it did not; one that does not read, and one
/// that is gone, keep neither the kernel nor the reader nor the others.
#[test]
fn collectors_that_do_not_read_or_die_stop_nobody() {
    const COUNT: u32 = 20_000;
    let attachment = embed(Config::small()).unwrap().attach_cpu().unwrap();
    // The kernel waits for the reader, and the reader for nobody.
    let waits = Settings { full: WhenFull::Wait(Timeout::NEVER), ..settings(2) };
    let (rings, reader) = Rings::create(&attachment, waits).unwrap();
    let mut watch = Watch::new(reader, lines::TABLE);
    let addr = watch.serve("127.0.0.1:0").unwrap();
    let text_addr = watch.serve_lines("127.0.0.1:0").unwrap();
    let watching = watch.start().unwrap();
    // Whoever has been sent the stream's first bytes is served.
    let join = || {
        let mut stream = TcpStream::connect(addr).unwrap();
        let mut magic = [0; 8];
        stream.read_exact(&mut magic).unwrap();
        assert_eq!(magic, MAGIC);
        stream
    };
    let (good, _does_not_read, dies) = (join(), join(), join());
    drop(dies);
    let mut text = BufReader::new(TcpStream::connect(text_addr).unwrap()).lines();
    assert_eq!(text.next().unwrap().unwrap(), "-- lines from now on");
    let good = std::thread::spawn(move || {
        let (mut bytes, mut good) = (MAGIC.to_vec(), good);
        good.read_to_end(&mut bytes).unwrap();
        let (mut decoder, mut records, mut missing) = (Decoder::new(), 0, 0);
        decoder.push(&bytes);
        while let Some(frame) = decoder.next().unwrap() {
            match frame {
                Frame::Record { .. } => records += 1,
                Frame::Missing { reason: Reason::Rings, total } => missing = total,
                Frame::Missing { .. } => panic!("it was left out"),
            }
        }
        (records, missing)
    });
    let running = Running::start_with(&attachment, rings, (2, 1), COUNT, 1);
    for _ in 0..4 {
        let line = text.next().unwrap().unwrap();
        assert!(line.contains("has started") || line.contains("stalled at 20000 of 0xff"), "{line}");
    }
    running.end();
    let found = watching.stop();
    assert_eq!((found.records, found.lost()), (2 * (u64::from(COUNT) + 2), 0));
    let (records, missing) = good.join().unwrap();
    assert_eq!((records, missing), (found.records, found.lost()));
    assert!(text.next().is_none(), "the stream has ended");
}

/// Lines of a format that the program does not have are said to be so, to all that show lines.
#[test]
fn lines_of_formats_that_do_not_exist_are_said() {
    let attachment = embed(Config::small()).unwrap().attach_cpu().unwrap();
    // Neither the program nor the rings' memory knows the kernel's formats.
    let (rings, reader) = Rings::create(&attachment, Settings::new(1)).unwrap();
    let mut watch = Watch::new(reader, &[]);
    let addr = watch.serve_lines("127.0.0.1:0").unwrap();
    let (why, told) = mpsc::channel();
    watch.each_unprintable(move |record, reason| why.send((record.head.block, reason)).unwrap());
    let mut text = BufReader::new(TcpStream::connect(addr).unwrap()).lines();
    let watching = watch.start().unwrap();
    let running = Running::start_with(&attachment, rings, (1, 1), 3, 5);
    running.end();
    assert_eq!(watching.stop().records, 5);
    let told: Vec<_> = told.iter().collect();
    assert_eq!(told, [(0, NoLine::UnknownFormat(0)), (0, NoLine::UnknownFormat(1))]);
    let text: Vec<_> = text.by_ref().map(Result::unwrap).collect();
    assert_eq!(text[0], "-- lines from now on");
    for (line, number) in text[1..].iter().zip(0..) {
        let end = format!(": the program knows no format {number}");
        assert!(line.starts_with("-- ") && line.ends_with(&end), "{line}");
    }
    assert_eq!(text.len(), 3);
}

/// What was lost before a collector came is the first that it gets; who was there is told when it
/// happens. Who sends something gets the end of the stream all the same, and no error.
#[test]
fn collectors_are_told_what_was_lost_and_end_in_order() {
    let attachment = embed(Config::small()).unwrap().attach_cpu().unwrap();
    let settings = Settings { records: 64, ..settings(1) };
    let (running, reader) = Running::start(&attachment, settings, (1, 1), 1000, 6);
    running.end();
    let mut watch = Watch::new(reader, lines::TABLE);
    let frames = watch.serve("127.0.0.1:0").unwrap();
    let text = watch.serve_lines("127.0.0.1:0").unwrap();
    let early = TcpStream::connect(text).unwrap();
    (&early).write_all(&[b'x'; 100_000]).unwrap();
    let watching = watch.start().unwrap();
    // It comes in the rings' order. The first line was overwritten.
    let mut early = BufReader::new(early).lines().map(Result::unwrap);
    let first: Vec<_> = early.by_ref().take(3).collect();
    assert!(first.contains(&"-- 938 records lost".to_owned()), "{first:?}");
    let mut late = TcpStream::connect(frames).unwrap();
    let mut begin = [0; 8 + 40];
    late.read_exact(&mut begin).unwrap();
    let mut decoder = Decoder::new();
    decoder.push(&begin);
    assert_eq!(decoder.next(), Ok(Some(Frame::Missing { reason: Reason::Rings, total: 938 })));
    late.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    let found = watching.stop();
    assert_eq!((found.records, found.overwritten), (64, 938));
    assert_eq!(late.read(&mut begin).unwrap(), 0, "the stream has ended");
    assert_eq!(early.next(), None);
}

/// Records that wait for the reader: none is lost, however small the ring and however late the
/// reader; and a cancelled kernel waits no longer.
#[test]
fn records_wait_for_the_reader_and_for_nobody_who_is_cancelled() {
    let attachment = embed(Config::small()).unwrap().attach_cpu().unwrap();
    let full = WhenFull::Wait(Timeout::NEVER);
    let waits = Settings { records: 64, full, ..settings(2) };
    let (running, mut reader) = Running::start(&attachment, waits, (2, 3), 5000, 2);
    let mut next = [0; 2];
    while reader.found().records < 2 * 5002 {
        reader.poll(|record| {
            if record.head.kind == NUMBER {
                assert_eq!(record.word(0), next[record.head.block as usize]);
                next[record.head.block as usize] += 1;
            }
        });
    }
    assert_eq!((next, reader.found().lost()), ([5000; 2], 0));
    running.end();

    let (running, mut reader) = Running::start(&attachment, waits, (2, 3), 5000, 3);
    // Both blocks wait for room: what is there stays the same, and they are cancelled.
    GO[3].store(1, Ordering::Relaxed);
    running.launch.as_ref().unwrap().cancel();
    running.end();
    while reader.poll(|_| {}) > 0 {}
    let found = reader.found();
    assert_eq!(found.records + found.refused, 2 * 5002, "{found:?}");
    assert_eq!(found.overwritten, 0);
}

#[test]
fn a_record_that_waits_is_lost_at_its_deadline() {
    let attachment = embed(Config::small()).unwrap().attach_cpu().unwrap();
    let waits = Settings { records: 64, full: WhenFull::Wait(Timeout::us(50)), ..settings(1) };
    let (running, mut reader) = Running::start(&attachment, waits, (1, 1), 100, 4);
    running.end();
    reader.poll(|_| {});
    let found = reader.found();
    assert_eq!((found.records, found.refused), (64, 38));
}

#[test]
fn rings_that_cannot_be_are_refused() {
    let attachment = embed(Config::small()).unwrap().attach_cpu().unwrap();
    let too_long = Settings { payload: 1000, ..Settings::new(1) };
    assert!(matches!(Rings::create(&attachment, too_long), Err(Error::Shape { payload: 1000, .. })));
}
