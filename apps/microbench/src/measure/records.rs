//! Records and printed lines of kernels.

use super::handoff::Offset;
use super::{Run, settings};
use crate::bench::Bench;
use crate::foreign;
use crate::outcome::Outcome;
use crate::report::{Axis, Role, Row, counted};
use crate::sockets;
use gpunet_bench_kernel::{PrintLines, WriteRecords, Written, record_lines};
use gpunet_device::{Timeout, now_ns};
use gpunet_records_host::wire::{Decoder, Frame, Reason};
use gpunet_records_host::{Found, Settings, Watch, WhenFull};
use std::io::{BufRead, BufReader, ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Threads of a block, on a GPU.
const THREADS: u32 = 128;
/// Threads of a warp, on a GPU.
const WARP: u32 = 32;
/// Bytes of a record with the payload that the kernels write: five words of its own, and three.
const RECORD: u64 = 32;
/// How long a record may wait for its reader.
const LIMIT: Timeout = Timeout::secs(60);
/// The place of lines, which stand beside those of CUDA's printf.
const LINES: u64 = 1;
/// Between two lines: long enough that the reader sleeps.
const PAUSE_NS: u64 = 1_700_000;

/// Measures what a warp takes to write a record, how many a second reach a plain TCP reader, that
/// lost ones are counted, and how soon a printed line is read; beside CUDA's printf.
pub fn records(run: &mut Run<'_>) -> Outcome<()> {
    let bench = run.open()?;
    let title = format!("{}, records of {RECORD} B, and lines", bench.title());
    run.recorder.table("records", title, Axis::None, settings(&bench, THREADS), 16)?;
    if bench.is_gpu() {
        foreign::printf(run.recorder);
    }
    bench.prepare::<WriteRecords>(THREADS)?;
    let most = if bench.is_gpu() { bench.processors() } else { 2 };
    by_warps(run, &bench, most)?;
    lost(run, &bench, most)?;
    for waits in [true, false] {
        collected(run, &bench, most, waits)?;
    }
    lines(run, &bench)
}

/// What a launch writes, and by how many warps.
#[derive(Clone, Copy)]
struct Shape {
    blocks: u32,
    /// Threads of a block.
    threads: u32,
    count: u64,
    written: Written,
}

impl Shape {
    fn warps(self) -> u32 {
        self.blocks * self.threads.div_ceil(WARP)
    }

    fn records(self) -> u64 {
        let each = match self.written {
            Written::Nothing | Written::Off => 0,
            Written::Record | Written::Line => 1,
            Written::Lanes => self.threads.min(WARP).into(),
        };
        self.count * each * u64::from(self.warps())
    }
}

/// Makes a reader of records, runs the kernel under its eyes, and says what it has found, and how
/// many nanoseconds each warp has taken.
fn write(
    bench: &Bench,
    shape: Shape,
    full: WhenFull,
    prepare: impl FnOnce(&mut Watch) -> Outcome<()>,
) -> Outcome<(Found, Vec<u64>)> {
    let warps = shape.warps();
    let formats = record_lines::TABLE;
    let settings = Settings { records: 1024, payload: 12, full, formats, ..Settings::new(warps) };
    let (rings, reader) = bench.rings(settings)?;
    let mut watch = Watch::new(reader, settings.formats);
    watch.latency(Duration::ZERO);
    prepare(&mut watch)?;
    let watching = watch.start()?;
    let job = bench.job(0, warps as usize)?;
    let records = Bench::records(&rings);
    let launch = bench.start(shape.blocks, shape.threads, |net| WriteRecords {
        net,
        records,
        count: shape.count,
        written: shape.written as u64,
        results: job.results(),
    })?;
    let words = bench.finish(launch, &job)?;
    let found = watching.stop();
    if found.records + found.lost() != shape.records() {
        let (records, lost, written) = (found.records, found.lost(), shape.records());
        return Err(format!("{records} records read and {lost} lost, of {written}").into());
    }
    Ok((found, words))
}

/// What a warp takes for each of them, alone and when all write.
fn by_warps(run: &mut Run<'_>, bench: &Bench, most: u32) -> Outcome<()> {
    let threads = bench.threads(THREADS);
    let what = [
        (Written::Nothing, "the loop alone"),
        (Written::Record, "a record by a warp"),
        (Written::Lanes, "a record by each lane of a warp"),
        (Written::Line, "a line by a warp"),
        (Written::Off, "a line of a level that is off"),
    ];
    let count = run.effort.of(10_000, 50_000, 200_000);
    for (blocks, threads) in [(1, threads.min(WARP)), (most, threads)] {
        for (written, name) in what {
            let shape = Shape { blocks, threads, count, written };
            let (_, words) = write(bench, shape, WhenFull::Overwrite, |_| Ok(()))?;
            let mean = words.iter().sum::<u64>() as f64 / words.len() as f64 / count as f64;
            let role = if written == Written::Nothing { Role::Floor } else { Role::Gpunet };
            let name = format!("{name}, {}", counted(shape.warps(), "warp"));
            let row = Row::number(role, name, mean, "ns");
            let is_line = written == Written::Line && blocks == 1;
            run.recorder.row(if is_line { row.at("gpunet", LINES) } else { row });
        }
    }
    Ok(())
}

/// Records as fast as all warps write them: every one is read or counted.
fn lost(run: &mut Run<'_>, bench: &Bench, most: u32) -> Outcome<()> {
    let count = if bench.is_gpu() { run.effort.of(2_000, 10_000, 40_000) } else { 200_000 };
    let shape = Shape { blocks: most, threads: bench.threads(THREADS), count, written: Written::Lanes };
    let (found, words) = write(bench, shape, WhenFull::Overwrite, |_| Ok(()))?;
    let slowest = words.iter().copied().max().unwrap_or(1).max(1);
    let rate = shape.records() as f64 / slowest as f64 * 1e3;
    let name = format!("written by {}, and all accounted for", counted(shape.warps(), "warp"));
    run.recorder.row(Row::number(Role::Gpunet, name, rate, "million records a second"));
    run.recorder.note(format!(
        "of {} records {} were read and {} counted as lost: none is missing",
        shape.records(),
        found.records,
        found.lost()
    ));
    Ok(())
}

/// What a collector has got.
struct Collected {
    records: u64,
    /// Records that it was told of, and has not got.
    missing: [u64; 2],
    bytes: u64,
    /// From the first byte to the last.
    took: Duration,
}

/// A plain TCP program that reads frames until its stream ends.
fn collector(addr: SocketAddr) -> Outcome<JoinHandle<Result<Collected, String>>> {
    let stream = TcpStream::connect(addr)?;
    stream.set_read_timeout(Some(sockets::TIMEOUT))?;
    Ok(std::thread::Builder::new().spawn(move || collect(stream).map_err(|error| error.to_string()))?)
}

fn collect(mut stream: TcpStream) -> Outcome<Collected> {
    let (mut decoder, mut piece) = (Decoder::new(), vec![0; 1 << 20]);
    let (mut records, mut missing, mut bytes) = (0, [0; 2], 0);
    // The stream's first bytes come before any record.
    let (mut began, mut last) = (None, Instant::now());
    loop {
        let len = match stream.read(&mut piece) {
            Ok(0) => break,
            Ok(len) => len,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        };
        decoder.push(&piece[..len]);
        while let Some(frame) = decoder.next()? {
            match frame {
                Frame::Record { .. } => records += 1,
                Frame::Missing { reason: Reason::Rings, total } => missing[0] = total,
                Frame::Missing { reason: Reason::Collector, total } => missing[1] = total,
                Frame::Missing { .. } => {}
            }
        }
        if records > 0 {
            (last, bytes) = (Instant::now(), bytes + len as u64);
            began.get_or_insert(last);
        }
    }
    Ok(Collected { records, missing, bytes, took: began.map_or(Duration::ZERO, |began| last - began) })
}

/// Records that a plain TCP program reads.
fn collected(run: &mut Run<'_>, bench: &Bench, most: u32, waits: bool) -> Outcome<()> {
    let count = if bench.is_gpu() { run.effort.of(20_000, 60_000, 200_000) } else { 400_000 };
    let shape = Shape { blocks: most, threads: bench.threads(THREADS), count, written: Written::Record };
    let full = if waits { WhenFull::Wait(LIMIT) } else { WhenFull::Overwrite };
    let mut reader = None;
    let (found, _) = write(bench, shape, full, |watch| {
        reader = Some(collector(watch.serve((std::net::Ipv4Addr::LOCALHOST, 0))?)?);
        Ok(())
    })?;
    let reader = reader.ok_or("no collector")?.join().map_err(|_| "the collector panicked")??;
    let Collected { records, missing, bytes, took } = reader;
    if records + missing[1] != found.records || missing[0] != found.lost() {
        let (read, lost) = (found.records, found.lost());
        return Err(
            format!("{read} read and {lost} lost, and a collector has {records} and {missing:?}").into()
        );
    }
    let what = if waits { "which warps wait for" } else { "the oldest are lost" };
    let name = format!("to a plain TCP reader, {what}");
    run.recorder.row(Row::rate(Role::Gpunet, &name, bytes, took));
    let rate = records as f64 / took.as_secs_f64().max(1e-9) / 1e6;
    run.recorder.row(Row::number(Role::Gpunet, name, rate, "million records a second"));
    Ok(())
}

/// How soon a line is read, by a program as simple as `nc`.
fn lines(run: &mut Run<'_>, bench: &Bench) -> Outcome<()> {
    let clock = Offset::measure(bench)?;
    run.recorder.note(clock.note());
    let rounds = run.effort.of(200, 600, 2000);
    for (latency, name) in [
        (None, "a line, until a TCP reader has it"),
        (Some(Duration::from_micros(100)), "a line, until a TCP reader has it, `latency` 100 us"),
        (Some(Duration::ZERO), "a line, until a TCP reader has it, `latency` 0"),
    ] {
        let times = printed(bench, clock, rounds, latency)?;
        run.recorder.row(Row::times(Role::Gpunet, name, &times));
    }
    Ok(())
}

/// Returns how many nanoseconds each line has taken from its call until it was read.
fn printed(bench: &Bench, clock: Offset, rounds: u64, latency: Option<Duration>) -> Outcome<Vec<u64>> {
    let threads = bench.threads(WARP);
    bench.prepare::<PrintLines>(threads)?;
    let formats = record_lines::TABLE;
    let (rings, reader) = bench.rings(Settings { formats, ..Settings::new(1) })?;
    let mut watch = Watch::new(reader, formats);
    if let Some(latency) = latency {
        watch.latency(latency);
    }
    let stream = TcpStream::connect(watch.serve_lines((std::net::Ipv4Addr::LOCALHOST, 0))?)?;
    stream.set_read_timeout(Some(sockets::TIMEOUT))?;
    let watching = watch.start()?;
    let mut reader = BufReader::new(stream);
    // Once it is there, the reader is a collector.
    let mut welcome = String::new();
    reader.read_line(&mut welcome)?;
    let reading = std::thread::Builder::new().spawn(move || read_stamps(reader))?;
    let job = bench.job(0, 1)?;
    let records = Bench::records(&rings);
    let launch = bench.start(1, threads, |net| PrintLines { net, records, rounds, pause_ns: PAUSE_NS })?;
    bench.finish(launch, &job)?;
    let found = watching.stop();
    let stamps = reading.join().map_err(|_| "the reader panicked")??;
    let is_whole = stamps.iter().enumerate().all(|(at, [number, ..])| *number == at as u64);
    if stamps.len() as u64 != rounds || found.records != rounds || !is_whole {
        return Err(format!("{rounds} lines were printed, and {} read", stamps.len()).into());
    }
    Ok(stamps.into_iter().map(|[_, printed, read]| read.saturating_sub(clock.here(printed))).collect())
}

/// Reads lines until there are no more: the number of each, when it was printed, and when it was
/// read.
fn read_stamps(reader: BufReader<TcpStream>) -> std::io::Result<Vec<[u64; 3]>> {
    let mut stamps = Vec::new();
    for line in reader.lines() {
        let (line, now) = (line?, now_ns());
        let words = line.rsplit_once(": line ").and_then(|(_, line)| line.strip_suffix(" ns"));
        let numbers = words.and_then(|line| line.split_once(" of "));
        if let Some((Ok(number), Ok(printed))) =
            numbers.map(|(number, printed)| (number.parse(), printed.parse()))
        {
            stamps.push([number, printed, now]);
        }
    }
    Ok(stamps)
}
