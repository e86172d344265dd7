//! Blocks that share a poll group, and clients whose connections they serve in turns.

use crate::support::client::std_addr;
use crate::support::rng::Rng;
use crate::support::world::listen;
use crate::support::{Memory, SOLO, World, pattern, small};
use gpunet_device::poll::{POLLIN, POLLOUT};
use gpunet_device::poll_group::Events;
use gpunet_device::{
    Error, Handle, Listener, Net, Options, PollGroup, RecvHalf, Result, SendHalf, Source, Stream, Timeout,
    TransportKind,
};
use gpunet_proxy::Config;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

const SERVERS: usize = 3;
const CLIENTS: usize = 4;
/// Connections of each client.
const ROUNDS: u64 = 4;
/// The listener's token.
const LISTENER: u64 = 0;

/// Every byte of every client comes back, through rings that are mostly full, whichever block
/// serves it.
pub fn play(mut rng: Rng) {
    let world = World::with(Config { data_threads: 2, ..small() });
    let net = world.net();
    let tcp = Options::DEFAULT.with_transport(TransportKind::Tcp).with_rings(4096, 4096);
    let listener = listen(net, tcp);
    let group = PollGroup::create(&SOLO, net, 0).expect("a group");
    group.add(&SOLO, listener.handle(), POLLIN, LISTENER).expect("added");
    let addr = std_addr(listener.local_addr());
    std::thread::scope(|scope| {
        let servers: Vec<_> =
            (0..SERVERS).map(|_| scope.spawn(move || serve(net, group, listener))).collect();
        let clients: Vec<_> = (0..CLIENTS)
            .map(|_| {
                let mut rng = Rng::new(rng.next());
                scope.spawn(move || (0..ROUNDS).for_each(|_| exchange(addr, &mut rng)))
            })
            .collect();
        clients.into_iter().for_each(|client| client.join().expect("no panic"));
        // A group that is closed ends its waits.
        group.close(&SOLO).expect("open");
        for server in servers {
            assert_eq!(server.join().expect("no panic"), Err(Error::BadHandle));
        }
    });
    listener.close(&SOLO).expect("open");
    world.end();
}

/// Sends some bytes and receives them again.
fn exchange(addr: SocketAddr, rng: &mut Rng) {
    let stream = TcpStream::connect(addr).expect("connected");
    let (seed, len) = (rng.next(), 1 + rng.below(40_000) as usize);
    let bytes: Vec<_> = (0..len).map(|at| pattern(seed, at)).collect();
    let back = std::thread::scope(|scope| {
        scope.spawn(|| {
            (&stream).write_all(&bytes).expect("sent");
            stream.shutdown(Shutdown::Write).expect("open");
        });
        let mut back = Vec::new();
        (&stream).read_to_end(&mut back).expect("an answer");
        back
    });
    assert!(back == bytes, "{} of {len} bytes", back.len());
}

/// Serves whatever the group delivers to this block.
fn serve(net: Net, group: PollGroup, listener: Listener) -> Result<()> {
    let memory = Memory::new(8 + 2 * 16);
    let mut events = Events::new(memory.buffer());
    loop {
        group.wait(&SOLO, &mut events, Timeout::NEVER)?;
        for event in (0..events.len()).map(|index| events.get(index)) {
            let handle = Handle::from_raw(event.handle).expect("a socket");
            if event.token == LISTENER {
                match listener.try_accept(&SOLO) {
                    Ok(stream) => {
                        group.add(&SOLO, stream.handle(), POLLIN, i16::cast_unsigned(POLLIN).into())?
                    }
                    Err(Error::WouldBlock | Error::TooManySockets | Error::NoBuffers) => {}
                    Err(error) => return Err(error),
                }
                continue;
            }
            match echo(net, handle)? {
                0 => Stream::from_handle(&SOLO, net, handle)?.close(&SOLO)?,
                // The token says what was asked for. Whoever changes it gives the socket away.
                wanted if u64::from(wanted.cast_unsigned()) != event.token => {
                    group.modify(&SOLO, handle, wanted, u64::from(wanted.cast_unsigned()))?;
                }
                _ => {}
            }
        }
    }
}

/// Sends back what has come, as far as it fits; returns what to wait for next, and 0 at the end of
/// the stream.
fn echo(net: Net, handle: Handle) -> Result<i16> {
    let mut receiver = RecvHalf::from_handle(&SOLO, net, handle)?;
    let piece = match receiver.try_peek(&SOLO, usize::MAX) {
        Ok(span) if span.is_empty() => return Ok(0),
        Ok(span) => span.first,
        Err(Error::WouldBlock) => return Ok(POLLIN),
        Err(error) => return Err(error),
    };
    // SAFETY: what was peeked is this block's until it is released.
    let source = unsafe { gpunet_device::Buffer::from_raw_parts(piece.ptr, piece.len) };
    match SendHalf::from_handle(&SOLO, net, handle)?.try_send(&SOLO, Source::from(source)) {
        Ok(n) => {
            receiver.release(&SOLO, n);
            Ok(POLLIN)
        }
        Err(Error::WouldBlock) => Ok(POLLOUT),
        Err(error) => Err(error),
    }
}
