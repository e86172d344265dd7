//! Measurements, each beside its floor or its peer.

use crate::bench::Bench;
use crate::table::Percentiles;
use gpunet_bench_kernel::{Copy, Ends, Flags, Flow, PingPong, Serve};
use gpunet_device::{Options, SockAddr, TransportKind};
use std::error::Error;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

type Outcome = Result<(), Box<dyn Error>>;

const LOCAL: [u8; 4] = [127, 0, 0, 1];

/// Round trips.
pub fn latency(bench: &Bench) -> Outcome {
    let rounds = if bench.quick { 2_000 } else { 20_000 };
    let threads = if bench.is_gpu() { 128 } else { 1 };
    println!("-- latency: round trips, {threads} threads per block");
    flags(bench, threads, 0, rounds)?;
    flags(bench, threads, 64, rounds)?;
    for size in [64, 1024, 8192] {
        ping_pong(bench, threads, TransportKind::Peer, size, rounds)?;
    }
    if bench.is_gpu() {
        ping_pong(bench, 32, TransportKind::Peer, 64, rounds)?;
    }
    for spin in [true, false] {
        plain_tcp(spin, 64, rounds)?;
        serve(bench, threads, spin, 64, rounds)?;
    }
    ping_pong(bench, threads, TransportKind::Tcp, 64, rounds / 4)
}

fn flags(bench: &Bench, threads: u32, size: usize, rounds: u64) -> Outcome {
    let (ping, pong, out, back) = (0, 4096, 8192, 16384);
    let pinned = bench.pinned(32768)?;
    let job = bench.job(size, rounds as usize)?;
    let launch = bench.start(1, threads, |_| Flags {
        ping: pinned.device(ping).cast(),
        pong: pinned.device(pong).cast(),
        out: pinned.device(out),
        back: pinned.device(back),
        own: job.buffer().as_ptr(),
        size: size as u64,
        rounds,
        results: job.results(),
    })?;
    for round in 1..=rounds {
        while pinned.word(ping).observe() < round {
            std::hint::spin_loop();
        }
        pinned.copy(back, out, size);
        pinned.word(pong).publish(round);
    }
    let words = bench.finish(launch, &job)?;
    let what =
        if size == 0 { "flags alone".to_owned() } else { format!("{size} B and flags, copied in and out") };
    Percentiles::of(&words).row(&format!("floor: device <-> spinning CPU, {what}"));
    Ok(())
}

fn ping_pong(bench: &Bench, threads: u32, transport: TransportKind, size: u64, rounds: u64) -> Outcome {
    let job = bench.job(2 * size as usize, rounds as usize + 2)?;
    let launch = bench.start(2, threads, |net| PingPong {
        net,
        addr: SockAddr::v4(LOCAL, 20_001),
        options: Options::DEFAULT.with_transport(transport).with_timeouts(20_000_000_000, 20_000_000_000),
        buffer: job.buffer(),
        size,
        rounds,
        ends: Ends::Both as u64,
        results: job.results(),
    })?;
    let words = bench.finish(launch, &job)?;
    Bench::no_failure(&words[..2])?;
    Percentiles::of(&words[2..])
        .row(&format!("gpunet: {size} B echo, block to block, {transport:?}, {threads} threads"));
    Ok(())
}

/// Connects to a server that may not be listening yet.
fn connect(addr: std::net::SocketAddr) -> std::io::Result<TcpStream> {
    let limit = Instant::now() + Duration::from_secs(10);
    loop {
        match TcpStream::connect(addr) {
            Err(e) if e.kind() == ErrorKind::ConnectionRefused && Instant::now() < limit => {
                std::thread::sleep(Duration::from_millis(1));
            }
            Err(e) => return Err(e),
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
        }
    }
}

/// A plain TCP server: echoes for one client until it ends.
fn echo_one(listener: &TcpListener) -> std::io::Result<()> {
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; 65536];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            n => stream.write_all(&buffer[..n])?,
        }
    }
}

/// A client's round trips against whatever echoes at `addr`.
fn client(addr: std::net::SocketAddr, spin: bool, size: usize, rounds: u64) -> std::io::Result<Vec<u64>> {
    let mut stream = loop {
        match TcpStream::connect(addr) {
            Ok(stream) => break stream,
            Err(e) if e.kind() == ErrorKind::ConnectionRefused => {
                std::thread::sleep(Duration::from_millis(1))
            }
            Err(e) => return Err(e),
        }
    };
    stream.set_nodelay(true)?;
    stream.set_nonblocking(spin)?;
    let (out, mut back) = (vec![7u8; size], vec![0u8; size]);
    let mut samples = Vec::with_capacity(rounds as usize);
    for _ in 0..rounds {
        let start = Instant::now();
        stream.write_all(&out)?;
        let mut have = 0;
        while have < size {
            match stream.read(&mut back[have..]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => have += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => std::hint::spin_loop(),
                Err(e) => return Err(e),
            }
        }
        samples.push(start.elapsed().as_nanos() as u64);
    }
    Ok(samples)
}

fn client_name(spin: bool) -> &'static str {
    if spin { "spinning client" } else { "blocking client" }
}

fn plain_tcp(spin: bool, size: usize, rounds: u64) -> Outcome {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let addr = listener.local_addr()?;
    let server = std::thread::spawn(move || echo_one(&listener));
    let samples = client(addr, spin, size, rounds)?;
    let _ = server.join();
    Percentiles::of(&samples).row(&format!("peer: {size} B echo, plain TCP server, {}", client_name(spin)));
    Ok(())
}

fn serve(bench: &Bench, threads: u32, spin: bool, size: usize, rounds: u64) -> Outcome {
    let job = bench.job(65536, 2)?;
    let addr = SockAddr::v4(LOCAL, 20_002 + u16::from(spin));
    let launch = bench.start(1, threads, |net| Serve {
        net,
        addr,
        options: Options::DEFAULT,
        buffer: job.buffer(),
        results: job.results(),
    })?;
    let to = addr.to_std().ok_or("no address")?;
    let samples = client(to, spin, size, rounds);
    let words = bench.finish(launch, &job)?;
    Bench::no_failure(&words[1..2])?;
    Percentiles::of(&samples?).row(&format!("gpunet: {size} B echo, server block, {}", client_name(spin)));
    Ok(())
}

/// One stream as fast as it goes.
pub fn bandwidth(bench: &Bench) -> Outcome {
    let bytes: u64 = if bench.quick { 1 << 30 } else { 4 << 30 };
    let (threads, message) = if bench.is_gpu() { (512, 1 << 20) } else { (1, 1 << 18) };
    println!("-- bandwidth: one stream, {message} B a call, {threads} threads per block");
    plain_stream(bytes, message)?;
    let options = Options::DEFAULT.with_rings(4 << 20, 4 << 20).with_timeouts(20_000_000_000, 20_000_000_000);
    for send in [true, false] {
        tcp_flow(bench, threads, options.with_transport(TransportKind::Tcp), bytes, message as u64, send)?;
    }
    for pairs in [1, 4, 16] {
        if bench.is_gpu() || pairs == 1 {
            peer_flow(
                bench,
                threads,
                options.with_transport(TransportKind::Peer),
                bytes,
                message as u64,
                pairs,
            )?;
        }
    }
    Ok(())
}

pub fn show(name: &str, bytes: u64, time: Duration) {
    println!("{name:<58} {:>8.2} GB/s", bytes as f64 / time.as_secs_f64() / 1e9);
}

/// Reads to the end; returns how much and how long.
fn drain(stream: &mut TcpStream, message: usize) -> std::io::Result<(u64, Duration)> {
    let mut buffer = vec![0; message];
    let (mut total, mut start) = (0, None);
    loop {
        let n = stream.read(&mut buffer)?;
        let began = *start.get_or_insert_with(Instant::now);
        if n == 0 {
            return Ok((total, began.elapsed()));
        }
        total += n as u64;
    }
}

fn pour(stream: &mut TcpStream, message: usize, bytes: u64) -> std::io::Result<()> {
    let buffer = vec![1; message];
    let mut sent = 0;
    while sent < bytes {
        stream.write_all(&buffer)?;
        sent += message as u64;
    }
    Ok(())
}

fn plain_stream(bytes: u64, message: usize) -> Outcome {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let addr = listener.local_addr()?;
    let sender = std::thread::spawn(move || pour(&mut TcpStream::connect(addr)?, message, bytes));
    let (total, time) = drain(&mut listener.accept()?.0, message)?;
    let _ = sender.join();
    show("peer: two plain threads over TCP", total, time);
    Ok(())
}

fn tcp_flow(bench: &Bench, threads: u32, options: Options, bytes: u64, message: u64, send: bool) -> Outcome {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let addr = SockAddr::from(listener.local_addr()?);
    let other = std::thread::spawn(move || -> std::io::Result<(u64, Duration)> {
        let mut stream = listener.accept()?.0;
        if send {
            return drain(&mut stream, message as usize);
        }
        let start = Instant::now();
        pour(&mut stream, message as usize, bytes)?;
        Ok((bytes, start.elapsed()))
    });
    let job = bench.job(message as usize, 4)?;
    let launch = bench.start(1, threads, |net| Flow {
        net,
        addr,
        options,
        buffer: job.buffer(),
        message,
        bytes,
        send: u32::from(send),
        ends: Ends::Clients as u32,
        results: job.results(),
    })?;
    let words = bench.finish(launch, &job)?;
    Bench::no_failure(&words[..1])?;
    let (total, time) = other.join().map_err(|_| "the TCP thread panicked")??;
    let name = if send { "gpunet: block -> plain TCP receiver" } else { "gpunet: plain TCP sender -> block" };
    show(name, total, if send { time } else { Duration::from_nanos(words[2] - words[1]) });
    Ok(())
}

fn peer_flow(bench: &Bench, threads: u32, options: Options, bytes: u64, message: u64, pairs: u32) -> Outcome {
    let blocks = 2 * pairs;
    let job = bench.job(message as usize * blocks as usize, 4 * blocks as usize)?;
    let launch = bench.start(blocks, threads, |net| Flow {
        net,
        addr: SockAddr::v4(LOCAL, 20_100),
        options,
        buffer: job.buffer(),
        message,
        bytes,
        send: 1,
        ends: Ends::Both as u32,
        results: job.results(),
    })?;
    let words = bench.finish(launch, &job)?;
    let receivers: Vec<u64> = words.chunks_exact(8).flat_map(|pair| pair[..4].to_vec()).collect();
    Bench::no_failure(&words.chunks_exact(4).map(|block| block[0]).collect::<Vec<_>>())?;
    show(&format!("gpunet: block -> block, peer, {pairs} pairs"), bytes * u64::from(pairs), span(&receivers));
    Ok(())
}

/// The time from the first block's begin to the last one's end, of four words a block as
/// [`Flow`] leaves them.
pub fn span(blocks: &[u64]) -> Duration {
    let began = blocks.chunks_exact(4).map(|block| block[1]).min().unwrap_or(0);
    let ended = blocks.chunks_exact(4).map(|block| block[2]).max().unwrap_or(1);
    Duration::from_nanos(ended.saturating_sub(began).max(1))
}

/// The copy routine.
pub fn copy(bench: &Bench) -> Outcome {
    println!("-- copy: one block, 4 MiB between device and pinned memory");
    let len = 4 << 20;
    let times = if bench.quick { 20 } else { 100 };
    let pinned = bench.pinned(len + 4096)?;
    let shapes: &[u32] = if bench.is_gpu() { &[128, 256, 512, 1024] } else { &[1] };
    for &threads in shapes {
        for (name, offset) in [("aligned", 0), ("7 bytes off", 7)] {
            for out in [true, false] {
                let job = bench.job(len + 64, 1)?;
                let (device, host) = (job.buffer().as_ptr(), pinned.device(offset));
                let (src, dst) = if out { (device, host) } else { (host, device) };
                let launch = bench.start(1, threads, |_| Copy {
                    src,
                    dst,
                    len: len as u64,
                    times,
                    results: job.results(),
                })?;
                let words = bench.finish(launch, &job)?;
                let way = if out { "device -> pinned" } else { "pinned -> device" };
                show(
                    &format!("{way}, {threads} threads, {name}"),
                    len as u64 * times,
                    Duration::from_nanos(words[0].max(1)),
                );
            }
        }
    }
    Ok(())
}

/// Waking after idleness, and what an idle proxy costs.
pub fn idle(bench: &Bench) -> Outcome {
    println!("-- idle: round trip of the first 64 B after a pause, plain TCP server beside it");
    let threads = if bench.is_gpu() { 128 } else { 1 };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let plain = listener.local_addr()?;
    let echo = std::thread::spawn(move || echo_one(&listener));
    let job = bench.job(65536, 2)?;
    let addr = SockAddr::v4(LOCAL, 20_004);
    let launch = bench.start(1, threads, |net| Serve {
        net,
        addr,
        options: Options::DEFAULT,
        buffer: job.buffer(),
        results: job.results(),
    })?;
    let mut peers =
        [("peer: plain TCP", connect(plain)?), ("gpunet", connect(addr.to_std().ok_or("no address")?)?)];
    for pause_ms in [1, 5, 20, 200] {
        for (name, stream) in &mut peers {
            let mut samples = Vec::new();
            for _ in 0..if bench.quick { 10 } else { 30 } {
                std::thread::sleep(Duration::from_millis(pause_ms));
                let start = Instant::now();
                stream.write_all(&[1; 64])?;
                stream.read_exact(&mut [0; 64])?;
                samples.push(start.elapsed().as_nanos() as u64);
            }
            Percentiles::of(&samples).row(&format!("{name}, after {pause_ms} ms"));
        }
    }
    let (start, before) = (Instant::now(), processor_time()?);
    std::thread::sleep(Duration::from_secs(3));
    let share = (processor_time()? - before).as_secs_f64() / start.elapsed().as_secs_f64();
    println!("{:<58} {:>8.2} % of a core", "the proxy, idle beside a waiting kernel", share * 100.0);
    drop(peers);
    let _ = echo.join();
    let words = bench.finish(launch, &job)?;
    Bench::no_failure(&words[1..2])
}

/// This process's processor time, from /proc/self/stat in clock ticks of 10 ms.
fn processor_time() -> Result<Duration, Box<dyn Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: u64 = fields.get(11).ok_or("no utime")?.parse::<u64>()?
        + fields.get(12).ok_or("no stime")?.parse::<u64>()?;
    Ok(Duration::from_millis(ticks * 10))
}
