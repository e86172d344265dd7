//! Connections of kernels of the CPU device.

use crate::plan::{self, Hello, PIECE, Target};
use crate::support::SOLO;
use crate::support::rng::Rng;
use crate::watch::{Broken, Seat, Watch, broken};
use gpunet_device::{Buffer, Error, Handle, Listener, Net, RecvHalf, SendHalf, SockAddr, Stream, Timeout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Memory of one thread.
struct Room(Vec<u8>);

impl Room {
    fn new() -> Self {
        Self(vec![0; PIECE])
    }

    fn buffer(&mut self, len: usize) -> Buffer {
        let bytes = &mut self.0[..len];
        // SAFETY: the bytes live as long as self, which the caller, one thread, does not use
        // meanwhile.
        unsafe { Buffer::from_raw_parts(bytes.as_mut_ptr(), bytes.len()) }
    }
}

fn at(what: &'static str) -> impl Fn(Error) -> Broken {
    move |error| broken(what, error.errno())
}

fn say(stream: &mut Stream, room: &mut Room, hello: &Hello) -> Result<(), Broken> {
    room.0[..Hello::LEN].copy_from_slice(&hello.bytes());
    stream.send_all(&SOLO, room.buffer(Hello::LEN)).map_err(at("send hello"))
}

fn hear(stream: &mut Stream, room: &mut Room) -> Result<Hello, Broken> {
    let got = stream.recv_exact(&SOLO, room.buffer(Hello::LEN)).map_err(at("recv hello"))?;
    if got < Hello::LEN {
        return Err(broken("end before hello", 0));
    }
    let bytes = room.0[..Hello::LEN].try_into().expect("long enough");
    Ok(Hello::of(&bytes).unwrap_or_else(|| crate::watch::fail(crate::watch::WRONG, "no hello")))
}

/// Connects and does what one client does.
pub fn client(watch: &Arc<Watch>, net: Net, target: Target, rng: &mut Rng) -> bool {
    let seat = watch.seat("connect");
    seat.meets(target.pid);
    let options = plan::options(rng);
    let result = match Stream::connect_with(&SOLO, net, SockAddr::from_std(target.addr), options) {
        Ok(mut stream) => {
            seat.gets_on();
            let result = as_client(watch, &seat, net, &mut stream, rng);
            close(net, stream.handle());
            result
        }
        Err(error) => Err(broken("connect", error.errno())),
    };
    watch.judge(&seat, result)
}

fn as_client(watch: &Watch, seat: &Seat, net: Net, stream: &mut Stream, rng: &mut Rng) -> Result<(), Broken> {
    let hello = Hello::random(rng, plan::MOST);
    let mut room = Room::new();
    seat.does("client hello");
    say(stream, &mut room, &hello)?;
    seat.meets(hear(stream, &mut room)?.pid);
    seat.gets_on();
    let (up, down) = hello.seeds();
    if !hello.echo {
        seat.does("client duplex");
        return duplex(watch, seat, net, stream.handle(), (up, hello.up), (down, hello.down), rng);
    }
    seat.does("client echo");
    let mut position = 0;
    while position < hello.up {
        let piece = rng.range(1, PIECE as u64).min(hello.up - position).min(2048) as usize;
        plan::fill(&mut room.0[..piece], up, position);
        stream.send_all(&SOLO, room.buffer(piece)).map_err(at("send"))?;
        let got = stream.recv_exact(&SOLO, room.buffer(piece)).map_err(at("recv echo"))?;
        watch.check(seat, &room.0[..got], up, position);
        if got < piece {
            return Err(broken("end in an echo", 0));
        }
        position += piece as u64;
    }
    stream.shutdown(&SOLO, gpunet_device::Shutdown::Write);
    match stream.recv(&SOLO, room.buffer(1)).map_err(at("recv end"))? {
        0 => Ok(()),
        _ => crate::watch::fail(crate::watch::WRONG, "more comes back than was sent"),
    }
}

/// Closes what the halves have left; the watch knows how far they came.
fn close(net: Net, handle: Handle) {
    // Without a daemon there is nobody to ask.
    let _ = Stream::from_handle(&SOLO, net, handle).and_then(|stream| stream.close(&SOLO));
}

/// Accepts until it is told to stop; each connection has a thread.
pub fn serve(watch: &Arc<Watch>, net: Net, listener: &Listener, stop: &AtomicBool, rng: &mut Rng) {
    std::thread::scope(|scope| {
        while !stop.load(Ordering::Relaxed) {
            match listener.accept_timeout(&SOLO, Timeout::ms(200)) {
                Ok(stream) => {
                    let mut rng = Rng::new(rng.next());
                    let handle = stream.handle();
                    scope.spawn(move || {
                        let mut stream = Stream::from_handle(&SOLO, net, handle).expect("open");
                        let seat = watch.seat("server hello");
                        let result = as_server(watch, &seat, net, &mut stream, &mut rng);
                        close(net, handle);
                        watch.judge(&seat, result);
                    });
                }
                Err(Error::TimedOut) => {}
                Err(Error::TooManySockets | Error::NoBuffers) => {
                    watch.retries.fetch_add(1, Ordering::Relaxed);
                    std::thread::sleep(std::time::Duration::from_millis(5));
                }
                Err(Error::NetworkDown | Error::Canceled) if watch.mortal => {
                    watch.down.store(true, Ordering::Relaxed);
                    break;
                }
                Err(error) => crate::watch::fail(crate::watch::STRANGE, &format!("accept: {error}")),
            }
        }
    });
}

fn as_server(watch: &Watch, seat: &Seat, net: Net, stream: &mut Stream, rng: &mut Rng) -> Result<(), Broken> {
    let mut room = Room::new();
    let hello = hear(stream, &mut room)?;
    seat.meets(hello.pid);
    say(stream, &mut room, &Hello { pid: std::process::id(), ..hello })?;
    seat.gets_on();
    let (up, down) = hello.seeds();
    if !hello.echo {
        seat.does("server duplex");
        return duplex(watch, seat, net, stream.handle(), (down, hello.down), (up, hello.up), rng);
    }
    seat.does("server echo");
    let mut position = 0;
    loop {
        let got = stream.recv(&SOLO, room.buffer(PIECE)).map_err(at("recv"))?;
        if got == 0 {
            break;
        }
        watch.check(seat, &room.0[..got], up, position);
        position += got as u64;
        stream.send_all(&SOLO, room.buffer(got)).map_err(at("send echo"))?;
    }
    if position == hello.up { Ok(()) } else { Err(broken("end in an echo", 0)) }
}

/// Sends and receives at the same time, on two threads.
fn duplex(
    watch: &Watch,
    seat: &Seat,
    net: Net,
    handle: Handle,
    out: (u64, u64),
    into: (u64, u64),
    rng: &mut Rng,
) -> Result<(), Broken> {
    let mut rng = Rng::new(rng.next());
    let halves = move || Stream::from_handle(&SOLO, net, handle).expect("open").split();
    let (sent, got) = std::thread::scope(|scope| {
        let sent = scope.spawn(move || send(seat, &mut halves().0, out, &mut rng));
        let got = receive(watch, seat, &mut halves().1, into);
        (sent.join().expect("no panic"), got)
    });
    got.and(sent)
}

fn send(seat: &Seat, half: &mut SendHalf, (seed, total): (u64, u64), rng: &mut Rng) -> Result<(), Broken> {
    let (mut room, mut position) = (Room::new(), 0);
    while position < total {
        let piece = rng.range(1, PIECE as u64).min(total - position) as usize;
        plan::fill(&mut room.0[..piece], seed, position);
        half.send_all(&SOLO, room.buffer(piece)).map_err(at("send"))?;
        position += piece as u64;
        seat.gets_on();
    }
    half.shutdown(&SOLO);
    Ok(())
}

fn receive(watch: &Watch, seat: &Seat, half: &mut RecvHalf, (seed, total): (u64, u64)) -> Result<(), Broken> {
    let (mut room, mut position) = (Room::new(), 0);
    loop {
        let got = half.recv(&SOLO, room.buffer(PIECE)).map_err(at("recv"))?;
        if got == 0 {
            return if position == total { Ok(()) } else { Err(broken("end before the last byte", 0)) };
        }
        watch.check(seat, &room.0[..got], seed, position);
        position += got as u64;
        if position > total {
            crate::watch::fail(crate::watch::WRONG, "more bytes than were sent");
        }
    }
}
