//! Launches that accept from one listener, come and go, and leave connections; at last the listener
//! is closed.

use crate::support::client::client;
use crate::support::rng::Rng;
use crate::support::world::listen;
use crate::support::{Memory, SOLO, World, small, until};
use gpunet_device::{Error, Handle, Listener, Net, Options, Stream, Timeout, TransportKind};
use gpunet_posix as posix;
use gpunet_proxy::{Attachment, Config, FinishPolicy};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};

/// Enough for the listener to hold some.
const SOCKETS: u32 = 128;

/// Every client gets its own byte back, or an end. Afterwards each slot is free, once.
pub fn play(mut rng: Rng) {
    let options = Options::DEFAULT.with_transport(TransportKind::Tcp).with_rings(4096, 4096);
    let mut world = World::with(Config { sockets: SOCKETS, ..small() });
    let owner = world.attachment().token().expect("a number");
    let listener = listen(owner.net(), options);
    let over = AtomicBool::new(false);
    let rounds = 10 + rng.below(10);
    std::thread::scope(|scope| {
        let (attachment, over, listener) = (world.attachment(), &over, &listener);
        let servers = [(); 3].map(|()| {
            let rng = Rng::new(rng.next());
            scope.spawn(move || serve(attachment, listener.handle(), rng, over))
        });
        let clients =
            [1, 2, 3].map(|byte| scope.spawn(move || (0..rounds).filter(|_| ask(listener, byte)).count()));
        let answered: usize = clients.into_iter().map(|client| client.join().expect("no panic")).sum();
        // These nobody waits for: the listener closes while they come and others accept.
        let late: Vec<_> = (0..4).map(|_| client(listener.local_addr())).collect();
        if rng.one_of(&[true, false]) {
            listener.close(&SOLO).expect("open");
        }
        over.store(true, Ordering::Release);
        let served: usize = servers.into_iter().map(|server| server.join().expect("no panic")).sum();
        assert!(answered <= served, "{answered} of {served}");
        drop(late);
    });
    owner.finish(FinishPolicy::Close);
    let net = world.net();
    until("everything is free", || world.attachment().usage().sockets == 0);
    let make = || posix::socket::socket(&SOLO, net, 2, posix::socket::SOCK_STREAM, 0);
    let slots: BTreeSet<i64> = (0..SOCKETS).map(|_| make().expect("a free slot") & 0xffff).collect();
    assert_eq!((slots.len(), make()), (SOCKETS as usize, Err(Error::TooManySockets)));
    world.relaunch(FinishPolicy::Close);
    world.end();
}

/// Sends a byte; returns whether it came back.
fn ask(listener: &Listener, byte: u8) -> bool {
    let mut client = client(listener.local_addr());
    let mut back = [0];
    let answered = client.write_all(&[byte]).and_then(|()| client.read(&mut back));
    let answered = matches!(answered, Ok(1));
    assert!(!answered || back == [byte], "{back:?} for {byte}");
    answered
}

/// One launch after the other accepts some connections and ends; returns how many there were.
fn serve(attachment: &Attachment, listener: Handle, mut rng: Rng, over: &AtomicBool) -> usize {
    let mut served = 0;
    while !over.load(Ordering::Acquire) {
        let token = attachment.token().expect("a number");
        for _ in 0..1 + rng.below(4) {
            match accept(token.net(), listener, &mut rng) {
                Ok(stream) => served += usize::from(echo(stream, &mut rng)),
                Err(Error::WouldBlock | Error::TimedOut) => {}
                Err(Error::BadHandle) => break,
                Err(error) => panic!("accept: {error}"),
            }
        }
        token.finish(rng.one_of(&[FinishPolicy::Close, FinishPolicy::Reset]));
    }
    served
}

fn accept(net: Net, listener: Handle, rng: &mut Rng) -> Result<Stream, Error> {
    let listener = Listener::from_handle(&SOLO, net, listener)?;
    if rng.one_of(&[true, false]) {
        listener.try_accept(&SOLO)
    } else {
        listener.accept_timeout(&SOLO, Timeout::ms(2))
    }
}

/// Answers a client, or leaves it to the end of the launch; returns whether it was answered.
fn echo(mut stream: Stream, rng: &mut Rng) -> bool {
    let memory = Memory::new(1);
    if rng.below(4) == 0 {
        return false;
    }
    let answered = stream.receiver().recv_timeout(&SOLO, memory.buffer(), Timeout::secs(5)) == Ok(1)
        && stream.send_all(&SOLO, memory.buffer()).is_ok();
    stream.close(&SOLO).expect("open");
    answered
}
