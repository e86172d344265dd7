//! Streams whose last bytes and whose end come while the receiver is between two looks.

use crate::support::client::{client, reset};
use crate::support::pair::connect;
use crate::support::rng::Rng;
use crate::support::world::listen;
use crate::support::{Memory, SOLO, World};
use gpunet_device::abi::hand_off::{HandOff, Plan};
use gpunet_device::{Error, Handle, Net, Options, Stream, TransportKind};
use gpunet_proxy::FinishPolicy;
use std::io::Write;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;

const STREAMS: usize = 8;
const LAST_BYTES: &[u8] = b"0123456789";

/// Receivers stop after they have looked at a word, and before they act on it.
pub fn plan(plan: Plan) -> Plan {
    Plan { only: vec![HandOff::Observed], ..plan }
}

/// Whoever finds the end has received all bytes that came before it.
pub fn play(mut rng: Rng) {
    clients_that_reset(&mut rng);
    a_launch_that_leaves_its_streams();
}

/// The proxy says in the status that a client has reset.
fn clients_that_reset(rng: &mut Rng) {
    let world = World::new();
    let listener = listen(world.net(), Options::DEFAULT.with_transport(TransportKind::Tcp));
    let clients = [(); STREAMS].map(|()| client(listener.local_addr()));
    let streams = [(); STREAMS].map(|()| listener.accept(&SOLO).expect("accepted").handle());
    std::thread::scope(|scope| {
        let receivers = streams.map(|handle| receiver(scope, world.net(), handle));
        for mut client in clients {
            // The receivers wait, and stop now and then.
            std::thread::sleep(Duration::from_micros(rng.below(8000)));
            client.write_all(LAST_BYTES).expect("sent");
            reset(client);
        }
        for receiver in receivers {
            assert_eq!(receiver.join().expect("no panic"), (LAST_BYTES.len(), Some(Error::ConnectionReset)));
        }
    });
    listener.close(&SOLO).expect("open");
    world.end();
}

/// The proxy says in the status that a launch has ended whose streams are closed for it.
fn a_launch_that_leaves_its_streams() {
    let world = World::new();
    let options = Options::DEFAULT.with_transport(TransportKind::Peer);
    let listener = listen(world.net(), options);
    let leaver = world.attachment().token().expect("a number");
    let net = leaver.net();
    let pairs = [(); STREAMS].map(|()| connect(net, &listener, options).map(|stream| stream.handle()));
    std::thread::scope(|scope| {
        let receivers = pairs.map(|[_, accepted]| receiver(scope, world.net(), accepted));
        for [connected, _] in pairs {
            let mut stream = Stream::from_handle(&SOLO, net, connected).expect("open");
            stream.send_all(&SOLO, LAST_BYTES).expect("sent");
        }
        assert_eq!(leaver.finish(FinishPolicy::Close).left_open, STREAMS);
        for receiver in receivers {
            assert_eq!(receiver.join().expect("no panic"), (LAST_BYTES.len(), None));
        }
    });
    listener.close(&SOLO).expect("open");
    world.end();
}

/// Receives until the end; returns how many bytes came, and the error that ended them.
fn receiver<'s>(
    scope: &'s Scope<'s, '_>,
    net: Net,
    handle: Handle,
) -> ScopedJoinHandle<'s, (usize, Option<Error>)> {
    scope.spawn(move || {
        let mut stream = Stream::from_handle(&SOLO, net, handle).expect("open");
        let memory = Memory::new(16);
        let mut have = 0;
        let error = loop {
            match stream.recv(&SOLO, memory.buffer()) {
                Ok(0) => break None,
                Ok(n) => have += n,
                Err(error) => break Some(error),
            }
        };
        stream.close(&SOLO).expect("open");
        (have, error)
    })
}
