//! Echoes over real sockets and each transport.

use super::device::{Job, TestDevice, outcome};
use super::{Found, LIMIT, pattern};
use gpunet_device::{Options, SockAddr, Timeout, TransportKind};
use gpunet_diagnose_kernel::Echo;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::time::Instant;

/// Bytes of a kernel's message.
const SIZE: usize = 3000;
/// Its messages.
const ROUNDS: u64 = 64;
/// Messages of a plain TCP client, larger and smaller than a kernel's buffer.
const MESSAGES: [usize; 6] = [1, 17, 1460, SIZE, 10_007, 60_000];
/// The word for the port.
const PORT: usize = 0;

/// An echo server on the device for a plain TCP program, then for a client on the device.
pub fn tcp(device: &TestDevice) -> Result<Found, String> {
    let here = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let (job, kernel) = prepare(device, here, TransportKind::Tcp)?;
    let (plain, words, _) = device.run(job, 1, kernel, |job| talk(job, here))?;
    let plain = plain.map_err(|why| match outcome(&words, 0, "the device") {
        Err(kernel) => format!("{why}; {kernel}"),
        Ok(_) => why,
    })?;
    let echoed = outcome(&words, 0, "the device")?;
    if echoed != plain {
        return Err(format!("the device echoed {echoed} bytes, the TCP client got {plain}"));
    }
    let verified = both_ends(device, here, TransportKind::Tcp)?;
    Ok(Found::Right(format!(
        "{plain} bytes with a plain TCP client, {verified} between two blocks, all right"
    )))
}

/// Two blocks through memory.
pub fn peer(device: &TestDevice) -> Result<Found, String> {
    let verified = both_ends(device, IpAddr::V4(Ipv4Addr::LOCALHOST), TransportKind::Peer)?;
    Ok(Found::Right(format!("{verified} bytes between two blocks, all right")))
}

/// Two blocks through a network card.
pub fn rc(device: &TestDevice, addresses: &[IpAddr]) -> Result<Found, String> {
    let [first, ..] = addresses else { return Err("no RDMA device has an address".to_owned()) };
    let mut failures = Vec::new();
    for &address in addresses {
        match both_ends(device, address, TransportKind::Rc) {
            Ok(verified) => {
                let others =
                    if failures.is_empty() { String::new() } else { format!(" ({})", failures.join("; ")) };
                return Ok(Found::Right(format!(
                    "{verified} bytes between two blocks by {address}, all right{others}"
                )));
            }
            Err(why) => failures.push(format!("{address}: {why}")),
        }
    }
    Err(if failures.is_empty() { format!("{first}: not tried") } else { failures.join("; ") })
}

fn prepare(
    device: &TestDevice,
    address: IpAddr,
    transport: TransportKind,
) -> Result<(Job, impl FnOnce(gpunet_device::Net, &Job) -> Echo + use<>), String> {
    let job = device.job(4096, 2 * SIZE)?;
    let limit = Timeout::from(LIMIT);
    let options =
        Options::DEFAULT.with_rings(16384, 16384).with_transport(transport).with_timeouts(limit, limit);
    let kernel = move |net, job: &Job| Echo {
        net,
        addr: SockAddr::from_std(SocketAddr::new(address, 0)),
        options,
        buffer: job.buffer(),
        port: job.device(PORT, 8).cast(),
        size: SIZE as u64,
        rounds: ROUNDS,
        limit_ns: LIMIT.as_nanos() as u64,
        results: job.results(),
    };
    Ok((job, kernel))
}

fn both_ends(device: &TestDevice, address: IpAddr, transport: TransportKind) -> Result<u64, String> {
    let (job, kernel) = prepare(device, address, transport)?;
    let ((), words, _) = device.run(job, 2, kernel, |_| ())?;
    let (served, asked) = (outcome(&words, 0, "the serving block"), outcome(&words, 1, "the asking block"));
    let (echoed, verified) = match (served, asked) {
        (Ok(echoed), Ok(verified)) => (echoed, verified),
        (Err(one), Err(other)) => return Err(format!("{one}; {other}")),
        (Err(one), _) | (_, Err(one)) => return Err(one),
    };
    let all = ROUNDS * SIZE as u64;
    if (echoed, verified) != (all, all) {
        return Err(format!("of {all} bytes {echoed} were echoed and {verified} came back right"));
    }
    Ok(verified)
}

/// An ordinary TCP client; returns how many bytes came back correctly.
fn talk(job: &Job, address: IpAddr) -> Result<u64, String> {
    let start = Instant::now();
    let port = loop {
        match job.word(PORT).observe() {
            0 if start.elapsed() > LIMIT => return Err("the device does not listen".to_owned()),
            0 => std::thread::yield_now(),
            port => break port as u16,
        }
    };
    let failed =
        |what: &'static str| move |why: std::io::Error| format!("the TCP client cannot {what}: {why}");
    let mut stream =
        TcpStream::connect_timeout(&SocketAddr::new(address, port), LIMIT).map_err(failed("connect"))?;
    stream.set_read_timeout(Some(LIMIT)).map_err(failed("set a timeout"))?;
    stream.set_write_timeout(Some(LIMIT)).map_err(failed("set a timeout"))?;
    stream.set_nodelay(true).map_err(failed("set an option"))?;
    let mut verified = 0;
    for len in MESSAGES {
        let sent = pattern::bytes(len as u64, len);
        stream.write_all(&sent).map_err(failed("send"))?;
        let mut back = vec![0; len];
        stream.read_exact(&mut back).map_err(failed("receive"))?;
        if let Some(at) = sent.iter().zip(&back).position(|(was, is)| was != is) {
            return Err(format!("byte {at} of {len} came back as {:02x} and was {:02x}", back[at], sent[at]));
        }
        verified += len as u64;
    }
    stream.shutdown(Shutdown::Write).map_err(failed("end its stream"))?;
    match stream.read(&mut [0; 1]).map_err(failed("see the end"))? {
        0 => Ok(verified),
        _ => Err("the device sent more than it got".to_owned()),
    }
}
