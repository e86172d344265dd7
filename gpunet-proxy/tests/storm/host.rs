//! Connections of host programs, on tokio.

use crate::plan::{self, Hello, PIECE, Target};
use crate::support::rng::Rng;
use crate::watch::{Broken, STRANGE, Seat, WRONG, Watch, broken, fail};
use gpunet_proxy::Host;
use gpunet_proxy::host::{Listener, ReadHalf, Stream, WriteHalf};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn at(what: &'static str) -> impl Fn(io::Error) -> Broken {
    move |error| match error.kind() {
        io::ErrorKind::UnexpectedEof => broken(what, 0),
        _ => broken(what, error.raw_os_error().unwrap_or(-1)),
    }
}

/// Waits on a thread where it may take a while.
async fn judge(watch: &Arc<Watch>, seat: crate::watch::Seated, result: Result<(), Broken>) -> bool {
    let watch = watch.clone();
    tokio::task::spawn_blocking(move || watch.judge(&seat, result)).await.expect("no panic")
}

/// Connects and does what one client does.
pub async fn client(watch: &Arc<Watch>, host: &Host, target: Target, rng: &mut Rng) -> bool {
    let seat = watch.seat("connect");
    seat.meets(target.pid);
    let result = match host.connect(target.addr, plan::options(rng)).await {
        Ok(stream) => {
            seat.gets_on();
            as_client(watch, &seat, stream, rng).await
        }
        Err(error) => Err(broken("connect", error.errno())),
    };
    judge(watch, seat, result).await
}

async fn hear(stream: &mut Stream) -> Result<Hello, Broken> {
    let mut bytes = [0; Hello::LEN];
    stream.read_exact(&mut bytes).await.map_err(at("recv hello"))?;
    Ok(Hello::of(&bytes).unwrap_or_else(|| fail(WRONG, "no hello")))
}

async fn as_client(watch: &Watch, seat: &Seat, mut stream: Stream, rng: &mut Rng) -> Result<(), Broken> {
    let hello = Hello::random(rng, plan::MOST);
    seat.does("task client hello");
    stream.write_all(&hello.bytes()).await.map_err(at("send hello"))?;
    seat.meets(hear(&mut stream).await?.pid);
    seat.gets_on();
    let (up, down) = hello.seeds();
    if !hello.echo {
        seat.does("task client duplex");
        return duplex(watch, seat, stream, (up, hello.up), (down, hello.down), rng).await;
    }
    seat.does("task client echo");
    let (mut room, mut position) = (vec![0; PIECE], 0);
    while position < hello.up {
        let piece = rng.range(1, PIECE as u64).min(hello.up - position).min(2048) as usize;
        plan::fill(&mut room[..piece], up, position);
        stream.write_all(&room[..piece]).await.map_err(at("send"))?;
        stream.read_exact(&mut room[..piece]).await.map_err(at("recv echo"))?;
        watch.check(seat, &room[..piece], up, position);
        position += piece as u64;
    }
    stream.shutdown().await.map_err(at("shutdown"))?;
    match stream.read(&mut room[..1]).await.map_err(at("recv end"))? {
        0 => Ok(()),
        _ => fail(WRONG, "more comes back than was sent"),
    }
}

/// Accepts until it is told to stop; each connection has a task.
pub async fn serve(watch: Arc<Watch>, listener: Listener, stop: Arc<AtomicBool>, mut rng: Rng) {
    while !stop.load(Ordering::Relaxed) {
        match tokio::time::timeout(Duration::from_millis(200), listener.accept()).await {
            Ok(Ok((stream, _))) => {
                let (watch, mut rng) = (watch.clone(), Rng::new(rng.next()));
                tokio::spawn(async move {
                    let seat = watch.seat("task server hello");
                    let result = as_server(&watch, &seat, stream, &mut rng).await;
                    judge(&watch, seat, result).await;
                });
            }
            Ok(Err(error)) => match error.errno() {
                libc::ENETDOWN | libc::ECANCELED if watch.mortal => {
                    watch.down.store(true, Ordering::Relaxed);
                    return;
                }
                libc::EMFILE | libc::ENOBUFS => {
                    watch.retries.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                _ => fail(STRANGE, &format!("accept: {error}")),
            },
            Err(_) => {}
        }
    }
}

async fn as_server(watch: &Watch, seat: &Seat, mut stream: Stream, rng: &mut Rng) -> Result<(), Broken> {
    let hello = hear(&mut stream).await?;
    seat.meets(hello.pid);
    let answer = Hello { pid: std::process::id(), ..hello };
    stream.write_all(&answer.bytes()).await.map_err(at("send hello"))?;
    seat.gets_on();
    let (up, down) = hello.seeds();
    if !hello.echo {
        seat.does("task server duplex");
        return duplex(watch, seat, stream, (down, hello.down), (up, hello.up), rng).await;
    }
    seat.does("task server echo");
    let (mut room, mut position) = (vec![0; PIECE], 0);
    loop {
        let got = stream.read(&mut room).await.map_err(at("recv"))?;
        if got == 0 {
            break;
        }
        watch.check(seat, &room[..got], up, position);
        position += got as u64;
        stream.write_all(&room[..got]).await.map_err(at("send echo"))?;
    }
    if position == hello.up { Ok(()) } else { Err(broken("end in an echo", 0)) }
}

async fn duplex(
    watch: &Watch,
    seat: &Seat,
    stream: Stream,
    out: (u64, u64),
    into: (u64, u64),
    rng: &mut Rng,
) -> Result<(), Broken> {
    let (mut read, mut write) = stream.into_split();
    let (sent, got) = tokio::join!(send(seat, &mut write, out, rng), receive(watch, seat, &mut read, into));
    got.and(sent)
}

async fn send(
    seat: &Seat,
    half: &mut WriteHalf,
    (seed, total): (u64, u64),
    rng: &mut Rng,
) -> Result<(), Broken> {
    let (mut room, mut position) = (vec![0; PIECE], 0);
    while position < total {
        let piece = rng.range(1, PIECE as u64).min(total - position) as usize;
        plan::fill(&mut room[..piece], seed, position);
        half.write_all(&room[..piece]).await.map_err(at("send"))?;
        position += piece as u64;
        seat.gets_on();
    }
    half.shutdown().await.map_err(at("shutdown"))
}

async fn receive(
    watch: &Watch,
    seat: &Seat,
    half: &mut ReadHalf,
    (seed, total): (u64, u64),
) -> Result<(), Broken> {
    let (mut room, mut position) = (vec![0; PIECE], 0);
    loop {
        let got = half.read(&mut room).await.map_err(at("recv"))?;
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
