//! Attachments that come, daemons that stop, and programs that go without a word.

use crate::support::daemon::Served;
use crate::support::rng::Rng;
use crate::support::world::listen;
use crate::support::{Memory, SOLO, small, until};
use gpunet_device::{Error, Options, Stream, TransportKind};
use gpunet_proxy::{Config, FinishPolicy};
use std::time::Duration;

/// Two attachments talk; one of them is closed, cut off or left without a daemon. Whoever waits
/// hears of it, and what is left works.
pub fn play(mut rng: Rng) {
    let mut served = Served::new(Config { heartbeat: Duration::from_secs(5), ..small() });
    let proxy = served.attach(small());
    let stays = proxy.attach_cpu().expect("an attachment");
    let stays_token = stays.token().expect("a number");
    let transport = rng.one_of(&[TransportKind::Tcp, TransportKind::Peer]);
    let options = Options::DEFAULT.with_transport(transport).with_rings(8192, 8192);
    let listener = listen(stays_token.net(), options);
    for _ in 0..2 {
        // The arena of a pair that is new: agents map it while the connect waits.
        let comes = served.attach(small());
        let goes = comes.attach_cpu().expect("an attachment");
        let token = goes.token().expect("a number");
        let (net, addr) = (token.net(), listener.local_addr());
        let talk = std::thread::spawn(move || {
            let mut stream = Stream::connect_with(&SOLO, net, addr, options)?;
            stream.send_all(&SOLO, b"hello")?;
            stream.recv(&SOLO, Memory::new(1).buffer())
        });
        let mut stream = listener.accept(&SOLO).expect("accepted");
        let memory = Memory::new(5);
        assert_eq!(stream.recv_exact(&SOLO, memory.buffer()), Ok(5));
        assert_eq!(memory.copy(0, 5), b"hello");
        let abrupt = rng.below(2) == 0;
        if abrupt {
            // The connection ends without a detach: as if the process were dead.
            comes.abort();
        } else {
            token.cancel();
        }
        let told = talk.join().expect("no panic");
        let expected = if abrupt { Error::NetworkDown } else { Error::Canceled };
        assert_eq!(told, Err(expected));
        token.finish(FinishPolicy::Close);
        let _ = goes.close();
        let end = stream.recv(&SOLO, memory.buffer());
        // One that is gone without a word said no end.
        let fits = if abrupt { end == Err(Error::ConnectionReset) } else { end == Ok(0) };
        assert!(fits, "abrupt {abrupt}: {end:?}");
        stream.close(&SOLO).expect("open");
        until("the stream is forgotten", || stays.usage().sockets == 1);
    }
    // The daemon goes while somebody waits.
    let waits = std::thread::spawn(move || listener.accept(&SOLO).err());
    until("it waits", || stays.usage().requests == 1);
    drop(served.daemon.take());
    assert_eq!(waits.join().expect("no panic"), Some(Error::NetworkDown));
    stays_token.finish(FinishPolicy::Close);
    let _ = stays.close();
}
