//! Connections of a program that knows nothing of gpunet: plain TCP.

use crate::plan::{self, Hello, PIECE, Target};
use crate::support::rng::Rng;
use crate::watch::{Broken, Seat, WRONG, Watch, broken, fail};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;

/// Most bytes of one direction: these connections are many, and short.
const MOST: u64 = 20_000;

fn at(what: &'static str) -> impl Fn(io::Error) -> Broken {
    move |error| match error.kind() {
        io::ErrorKind::UnexpectedEof => broken(what, 0),
        _ => broken(what, error.raw_os_error().unwrap_or(-1)),
    }
}

/// Connects and does what one client does.
pub fn client(watch: &Arc<Watch>, target: Target, rng: &mut Rng) -> bool {
    let seat = watch.seat("foreign connect");
    seat.meets(target.pid);
    let connected = TcpStream::connect(target.addr).map_err(at("connect"));
    let result = connected.and_then(|stream| {
        seat.gets_on();
        as_client(watch, &seat, &stream, rng)
    });
    watch.judge(&seat, result)
}

fn as_client(watch: &Watch, seat: &Seat, mut stream: &TcpStream, rng: &mut Rng) -> Result<(), Broken> {
    let hello = Hello::random(rng, MOST);
    seat.does("foreign hello");
    stream.write_all(&hello.bytes()).map_err(at("send hello"))?;
    let mut bytes = [0; Hello::LEN];
    stream.read_exact(&mut bytes).map_err(at("recv hello"))?;
    seat.meets(Hello::of(&bytes).unwrap_or_else(|| fail(WRONG, "no hello")).pid);
    seat.gets_on();
    let (up, down) = hello.seeds();
    if hello.echo {
        seat.does("foreign echo");
        return echo(watch, seat, stream, (up, hello.up), rng);
    }
    seat.does("foreign duplex");
    std::thread::scope(|scope| {
        let mut rng = Rng::new(rng.next());
        let sent = scope.spawn(move || send(seat, stream, (up, hello.up), &mut rng));
        let got = receive(watch, seat, stream, (down, hello.down));
        got.and(sent.join().expect("no panic"))
    })
}

fn echo(
    watch: &Watch,
    seat: &Seat,
    mut stream: &TcpStream,
    (seed, total): (u64, u64),
    rng: &mut Rng,
) -> Result<(), Broken> {
    let (mut room, mut position) = (vec![0; PIECE], 0);
    while position < total {
        let piece = rng.range(1, 2048).min(total - position) as usize;
        plan::fill(&mut room[..piece], seed, position);
        stream.write_all(&room[..piece]).map_err(at("send"))?;
        stream.read_exact(&mut room[..piece]).map_err(at("recv echo"))?;
        watch.check(seat, &room[..piece], seed, position);
        position += piece as u64;
    }
    stream.shutdown(Shutdown::Write).map_err(at("shutdown"))?;
    match stream.read(&mut room[..1]).map_err(at("recv end"))? {
        0 => Ok(()),
        _ => fail(WRONG, "more comes back than was sent"),
    }
}

fn send(seat: &Seat, mut stream: &TcpStream, (seed, total): (u64, u64), rng: &mut Rng) -> Result<(), Broken> {
    let (mut room, mut position) = (vec![0; PIECE], 0);
    while position < total {
        let piece = rng.range(1, PIECE as u64).min(total - position) as usize;
        plan::fill(&mut room[..piece], seed, position);
        stream.write_all(&room[..piece]).map_err(at("send"))?;
        position += piece as u64;
        seat.gets_on();
    }
    stream.shutdown(Shutdown::Write).map_err(at("shutdown"))
}

fn receive(
    watch: &Watch,
    seat: &Seat,
    mut stream: &TcpStream,
    (seed, total): (u64, u64),
) -> Result<(), Broken> {
    let (mut room, mut position) = (vec![0; PIECE], 0);
    loop {
        let got = stream.read(&mut room).map_err(at("recv"))?;
        if got == 0 {
            return if position == total { Ok(()) } else { Err(broken("end before the last byte", 0)) };
        }
        watch.check(seat, &room[..got], seed, position);
        position += got as u64;
        if position > total {
            fail(WRONG, "more bytes than were sent");
        }
    }
}
