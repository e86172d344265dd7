//! Streams outlive the values and the launches that opened them.

use crate::support::world::listen;
use crate::support::{Case, Memory, Team, World, team};
use gpunet_device::group::Solo;
use gpunet_device::{Error, Handle, Listener, Stream};
use gpunet_proxy::FinishPolicy;

pub fn a_stream_is_found_again_by_its_handle(case: &Case) {
    let world = World::of(case);
    let (net, there) = (world.net(), world.there());
    let (sent, got) = (Memory::filled(1, 0, 9000), Memory::new(9000));
    // Each call looks the stream up anew, as C programs do: positions and ends are kept.
    let client = |g: &Team, stream: Stream| {
        let raw = stream.handle().raw();
        let find = || Stream::from_handle(g, there, Handle::from_raw(raw).expect("a handle"));
        for at in (0..9000).step_by(1000) {
            find()?.send_all(g, sent.buffer().slice(at, 1000))?;
        }
        find()?.shutdown(g, gpunet_device::Shutdown::Write);
        assert_eq!(find()?.send(g, b"x"), Err(Error::BrokenPipe));
        find()?.close(g)
    };
    let server = |g: &Team, stream: Stream| {
        let handle = stream.handle();
        let mut at = 0;
        loop {
            match Stream::from_handle(g, net, handle)?.recv(g, got.buffer().slice(at, 700))? {
                0 => break,
                n => at += n,
            }
        }
        assert!(matches!(Listener::from_handle(g, net, handle), Err(Error::InvalidArgument)));
        Stream::from_handle(g, net, handle)?.close(g)?;
        Ok(at)
    };
    let (n, ()) = case.pair(&world, case.rings(4096), server, client);
    assert!(n == 9000 && got.holds(0, 9000, 1, 0));
    world.end();
}

pub fn a_later_launch_goes_on_with_a_kept_stream(case: &Case) {
    let mut world = World::of(case);
    let options = case.options();
    let solo = Solo::new(0, 1);
    let listener = listen(world.net(), options);
    let (net, addr) = (world.net(), listener.local_addr());
    let client = std::thread::spawn(move || {
        let solo = Solo::new(0, 1);
        let mut stream = Stream::connect_with(&solo, net, addr, options)?;
        stream.send_all(&solo, b"first")?;
        Ok::<_, Error>(stream.handle())
    });
    let server = listener.accept(&solo).expect("accepted").handle();
    let client = client.join().expect("no panic").expect("connected");
    let at = listener.handle();

    // Neither that end nor the next one's touches what was kept.
    assert_eq!(world.relaunch(FinishPolicy::Keep).left_open, 3);
    assert_eq!(world.relaunch(FinishPolicy::Close).left_open, 0);

    let net = world.net();
    let got = Memory::new(11);
    let result = team(case.lanes, |g| {
        let mut stream = Stream::from_handle(g, net, server)?;
        let mut other = Stream::from_handle(g, net, client)?;
        other.send_all(g, b"second")?;
        assert_eq!(stream.recv_exact(g, got.buffer())?, 11);
        other.close(g)?;
        stream.close(g)?;
        Listener::from_handle(g, net, at)?.close(g)
    });
    assert_eq!(result, Ok(()));
    assert_eq!(got.copy(0, 11), b"firstsecond");
    world.end();
}
