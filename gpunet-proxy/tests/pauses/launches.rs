//! Launches that come and go while others use their sockets.

use crate::support::rng::Rng;
use crate::support::world::listen;
use crate::support::{Memory, SOLO, World, small, until};
use gpunet_device::{Error, Handle, Listener, Options, Stream, Timeout, TransportKind};
use gpunet_proxy::{Attachment, Config, FinishPolicy};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

/// Every message on a stream is that many times the stream's number.
const MESSAGE: usize = 64;

/// Launches open streams and end, others send on them meanwhile and afterwards, and one serves:
/// whatever the server gets on a connection is that connection's.
pub fn play(mut rng: Rng) {
    let transport = rng.one_of(&[TransportKind::Tcp, TransportKind::Peer]);
    let options = Options::DEFAULT.with_transport(transport).with_rings(4096, 4096);
    // Few slots and rings: they are used again soon.
    let world = World::with(Config { sockets: 16, shared_rings: 16 << 13, ..small() });
    let server = world.attachment().token().expect("a number");
    let listener = listen(server.net(), options);
    let over = AtomicBool::new(false);
    let (hand, take) = mpsc::sync_channel(4);
    let take = Mutex::new(take);
    let (served, rounds) = std::thread::scope(|scope| {
        let _over = SetAtEnd(&over);
        let servers: Vec<_> = (0..3).map(|_| scope.spawn(|| serve(&listener, &over))).collect();
        let attachment = world.attachment();
        for _ in 0..3 {
            scope.spawn(|| use_them(attachment, &take));
        }
        let rounds = 30 + rng.below(30);
        let openers = [0, 1].map(|which| {
            let (hand, listener, mut rng) = (hand.clone(), &listener, Rng::new(rng.next()));
            scope.spawn(move || {
                for number in (which..rounds).step_by(2) {
                    let policy = rng.one_of(&[FinishPolicy::Close, FinishPolicy::Reset]);
                    let linger = Duration::from_micros(rng.below(2000));
                    open_and_end(attachment, listener, options, number, policy, linger, &hand);
                }
            })
        });
        openers.into_iter().for_each(|opener| opener.join().expect("no panic"));
        drop(hand);
        over.store(true, Ordering::Release);
        let served: u64 = servers.into_iter().map(|server| server.join().expect("no panic")).sum();
        (served, rounds)
    });
    assert!(served <= rounds);
    listener.close(&SOLO).expect("open");
    server.finish(FinishPolicy::Close);
    let (_proxy, attachment, token) = world.apart();
    // What this launch knows is free when it has ended.
    token.finish(FinishPolicy::Close);
    until("everything is free", || {
        let usage = attachment.usage();
        usage.sockets == 0 && usage.free_ring_bytes == usage.ring_bytes
    });
    let _ = attachment.close();
}

/// Ends the servers, also when another thread fails.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// A launch that opens a stream, hands it on, and ends.
fn open_and_end(
    attachment: &Attachment,
    listener: &Listener,
    options: Options,
    number: u64,
    policy: FinishPolicy,
    linger: Duration,
    hand: &mpsc::SyncSender<(Handle, u8)>,
) {
    let token = attachment.token().expect("a number");
    let stream = match Stream::connect_with(&SOLO, token.net(), listener.local_addr(), options) {
        Ok(stream) => stream,
        // All rings or slots are out of use for the moment.
        Err(Error::NoBuffers | Error::TooManySockets) => return,
        Err(error) => panic!("connect: {error}"),
    };
    let handle = stream.handle();
    hand.send((handle, number as u8 + 1)).expect("somebody takes it");
    std::thread::sleep(linger);
    token.finish(policy);
    // Dead for everybody, from now on.
    let stale = Stream::from_handle(&SOLO, attachment.token().expect("a number").net(), handle).err();
    assert_eq!(stale, Some(Error::BadHandle), "stream {number}");
}

/// Sends on each stream, slowly, until it is told that the handle is dead, or the peer gone.
fn use_them(attachment: &Attachment, take: &Mutex<mpsc::Receiver<(Handle, u8)>>) {
    loop {
        let next = take.lock().expect("no panic").recv();
        let Ok((handle, number)) = next else { return };
        // A launch of its own: what it knows stays out of use until it ends.
        let token = attachment.token().expect("a number");
        let message = Memory::from_fn(MESSAGE, |_| number);
        let Ok(mut stream) = Stream::from_handle(&SOLO, token.net(), handle) else { continue };
        for _ in 0..60 {
            std::thread::sleep(Duration::from_micros(100));
            match stream.sender().send_timeout(&SOLO, message.buffer(), Timeout::ms(20)) {
                // The rest of a message would come late: it does not matter whose number it is.
                Ok(_) => {}
                Err(Error::BadHandle | Error::ConnectionReset | Error::BrokenPipe | Error::TimedOut) => break,
                Err(error) => panic!("stream {number}: {error}"),
            }
        }
    }
}

/// Accepts and reads until it is over; returns how many connections there were.
fn serve(listener: &Listener, over: &AtomicBool) -> u64 {
    let mut served = 0;
    let memory = Memory::new(1000);
    loop {
        let mut stream = match listener.accept_timeout(&SOLO, Timeout::ms(20)) {
            Ok(stream) => stream,
            Err(Error::TimedOut) if over.load(Ordering::Acquire) => return served,
            Err(Error::TimedOut | Error::NoBuffers | Error::TooManySockets) => continue,
            Err(error) => panic!("accept: {error}"),
        };
        served += 1;
        let mut number = None;
        loop {
            match stream.receiver().recv_timeout(&SOLO, memory.buffer(), Timeout::secs(10)) {
                Ok(0) | Err(Error::ConnectionReset) => break,
                Ok(n) => {
                    let bytes = memory.copy(0, n);
                    let first = *number.get_or_insert(bytes[0]);
                    let foreign = bytes.iter().position(|&byte| byte != first);
                    assert_eq!(foreign, None, "in {n} bytes of stream {first}: another stream's");
                }
                Err(error) => panic!("recv: {error}"),
            }
        }
        stream.close(&SOLO).expect("open");
    }
}
