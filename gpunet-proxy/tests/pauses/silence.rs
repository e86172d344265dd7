//! A proxy that gives no sign of life now and then.

use crate::support::rng::Rng;
use crate::support::world::listen;
use crate::support::{Memory, SOLO, World, small, until};
use gpunet_device::abi::hand_off::{HandOff, Plan};
use gpunet_device::{Error, Listener, Net, Options, Stream, Timeout, TransportKind};
use gpunet_proxy::{Config, FinishPolicy};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const CONTROLS: u32 = 4;
const HEARTBEAT: Duration = Duration::from_millis(60);

/// The proxy's threads stand still for longer than the heartbeat.
pub fn plan(plan: Plan) -> Plan {
    Plan { longest: 12 * HEARTBEAT, only: vec![HandOff::MessageTaken, HandOff::CommandTaken], ..plan }
}

/// Blocks serve clients, and go on when they are told ENETDOWN: every client is served, and no
/// control slot is lost.
pub fn play(mut rng: Rng) {
    let world = World::with(Config { controls: CONTROLS, heartbeat: HEARTBEAT, ..small() });
    let tcp = Options::DEFAULT.with_transport(TransportKind::Tcp);
    let listener = loop {
        let bound = Listener::bind_with(&SOLO, world.net(), crate::support::world::LOOPBACK, tcp, 128);
        match bound {
            Ok(listener) => break listener,
            Err(Error::NetworkDown) => {}
            Err(error) => panic!("bind: {error}"),
        }
    };
    let over = AtomicBool::new(false);
    let clients = 6 + rng.below(10);
    std::thread::scope(|scope| {
        for _ in 0..CONTROLS - 1 {
            scope.spawn(|| serve(world.net(), &listener, &over));
        }
        for _ in 0..clients {
            be_served(&listener);
            std::thread::sleep(Duration::from_millis(rng.below(40)));
        }
        over.store(true, Ordering::Release);
    });
    // From here on nobody pauses; who has begun to is awaited.
    gpunet_device::abi::hand_off::stop();
    let accept = move || loop {
        match listener.accept(&SOLO) {
            Err(Error::NetworkDown) => {}
            other => return other.err(),
        }
    };
    let accepts: Vec<_> = (0..CONTROLS - 1).map(|_| std::thread::spawn(accept)).collect();
    until("as many accepts wait as ever", || world.attachment().usage().requests == accepts.len());
    assert_eq!(listener.close(&SOLO), Ok(()));
    for accept in accepts {
        assert_eq!(accept.join().expect("no panic"), Some(Error::BadHandle));
    }
    let (_proxy, attachment, token) = world.apart();
    token.finish(FinishPolicy::Reset);
    until("everything is free", || attachment.usage().sockets == 0 && attachment.usage().requests == 0);
    // Orphans of closes are adopted, too.
    let token = attachment.token().expect("a number");
    for _ in 0..3 * CONTROLS {
        listen(token.net(), tcp).close(&SOLO).expect("open");
    }
    token.finish(FinishPolicy::Close);
    let _ = attachment.close();
}

fn serve(net: Net, listener: &Listener, over: &AtomicBool) {
    let memory = Memory::new(1);
    while !over.load(Ordering::Acquire) {
        let mut stream = match listener.accept_timeout(&SOLO, Timeout::ms(300)) {
            Ok(stream) => stream,
            Err(Error::NetworkDown | Error::TimedOut) => continue,
            Err(error) => panic!("accept: {error}"),
        };
        // It is this block's now, whatever the proxy does.
        loop {
            match stream.recv(&SOLO, memory.buffer()) {
                Ok(0) | Err(Error::ConnectionReset) => break,
                Ok(_) => match stream.send_all(&SOLO, memory.buffer()) {
                    Ok(()) => {}
                    Err(Error::NetworkDown | Error::ConnectionReset | Error::BrokenPipe) => break,
                    Err(error) => panic!("send: {error}"),
                },
                Err(Error::NetworkDown) => {}
                Err(error) => panic!("recv: {error}"),
            }
        }
        let mut handle = Some(stream);
        while let Some(stream) = handle.take() {
            let again = stream.handle();
            match stream.close(&SOLO) {
                Ok(()) | Err(Error::BadHandle) => {}
                // Not posted: the stream is still open. Posted: it is not.
                Err(Error::NetworkDown) => {
                    handle = Stream::from_handle(&SOLO, net, again).ok();
                }
                Err(error) => panic!("close: {error}"),
            }
        }
    }
}

/// A client that gets its byte back, at the latest on a connection that is not closed before.
fn be_served(listener: &Listener) {
    loop {
        let mut peer =
            TcpStream::connect(listener.local_addr().to_std().expect("an address")).expect("connected");
        peer.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        if peer.write_all(b"x").is_err() {
            continue;
        }
        let mut back = [0];
        match peer.read(&mut back) {
            Ok(1) => return,
            // A late success that nobody waited for was closed.
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
            Err(error) => panic!("a client that nobody serves: {error}"),
        }
    }
}
