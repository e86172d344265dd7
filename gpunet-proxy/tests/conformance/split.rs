//! The two halves of a stream, each used by a group of its own.

use crate::support::world::listen;
use crate::support::{Case, Memory, World, team};
use gpunet_device::group::Solo;
use gpunet_device::{Error, Handle, Listener, Stream};

pub fn both_directions_run_at_full_size_at_the_same_time(case: &Case) {
    let world = World::of(case);
    let net = world.net();
    let len = case.scaled(1 << 20);
    let options = case.rings(1 << 14);
    let solo = Solo::new(0, 1);
    let listener = listen(net, options);
    let (addr, at) = (listener.local_addr(), listener.handle());
    let client = std::thread::spawn(move || {
        Stream::connect_with(&Solo::new(0, 1), net, addr, options).map(|stream| stream.handle())
    });
    let accepted = Listener::from_handle(&solo, net, at).and_then(|listener| listener.accept(&solo));
    let ends = [accepted.expect("accepted").handle(), client.join().expect("no panic").expect("connected")];

    let sent = [Memory::filled(0, 0, len), Memory::filled(1, 0, len)];
    let got = [Memory::new(len), Memory::new(len)];
    let send = |end: usize| -> Result<(), Error> {
        team(case.lanes, |g| {
            let (mut half, _) = Stream::from_handle(g, net, ends[end])?.split();
            half.send_all(g, sent[end].buffer())?;
            half.shutdown(g);
            Ok(())
        })
    };
    let receive = |end: usize| -> Result<usize, Error> {
        team(case.lanes, |g| {
            let (_, mut half) = Stream::from_handle(g, net, ends[end])?.split();
            let n = half.recv_exact(g, got[end].buffer())?;
            assert_eq!(half.recv(g, got[end].buffer())?, 0);
            Ok(n)
        })
    };
    std::thread::scope(|scope| {
        let threads = [0, 1].map(|end| (scope.spawn(move || send(end)), scope.spawn(move || receive(end))));
        for (sender, receiver) in threads {
            assert_eq!(sender.join().expect("no panic"), Ok(()));
            assert_eq!(receiver.join().expect("no panic"), Ok(len));
        }
    });
    for end in [0, 1] {
        assert!(got[end].holds(0, len, 1 - end as u64, 0), "end {end} received something else");
        close(&world, ends[end]);
    }
    listener.close(&solo).expect("open");
    world.end();
}

/// Joins the halves again and closes.
fn close(world: &World, handle: Handle) {
    let solo = Solo::new(0, 1);
    let (send, recv) = Stream::from_handle(&solo, world.net(), handle).expect("open").split();
    let stream = Stream::join(send, recv).expect("halves of one stream");
    stream.close(&solo).expect("open");
}
