//! Listeners: many groups, one queue.

use crate::support::world::listen;
use crate::support::{Case, Memory, World, team, until};
use gpunet_device::group::Solo;
use gpunet_device::{Error, Listener, Stream};

pub fn several_groups_are_served_in_the_order_they_came(case: &Case) {
    const GROUPS: usize = 3;
    let world = World::of(case);
    let (net, there) = (world.net(), world.there());
    let options = case.options();
    let listener = listen(net, options);
    let (addr, handle) = (listener.local_addr(), listener.handle());
    let memories: Vec<Memory> = (0..GROUPS).map(|_| Memory::new(1)).collect();
    let accept = |memory: &Memory| -> Result<(), Error> {
        team(case.lanes, |g| {
            let mut stream = Listener::from_handle(g, net, handle)?.accept(g)?;
            assert_eq!(stream.recv_exact(g, memory.buffer())?, 1);
            stream.close(g)
        })
    };
    let names: [&'static [u8; 1]; GROUPS] = [b"a", b"b", b"c"];
    let connect = |name: &'static [u8; 1]| -> Result<(), Error> {
        let solo = Solo::new(0, 1);
        let mut stream = Stream::connect_with(&solo, there, addr, options)?;
        stream.send_all(&solo, name)?;
        stream.close(&solo)
    };
    std::thread::scope(|scope| {
        let mut servers = Vec::new();
        for (i, memory) in memories.iter().enumerate() {
            let accept = &accept;
            servers.push(scope.spawn(move || accept(memory)));
            until("the group waits", || world.attachment().usage().requests == i + 1);
        }
        for name in names {
            assert_eq!(connect(name), Ok(()));
        }
        for server in servers {
            assert_eq!(server.join().expect("no panic"), Ok(()));
        }
    });
    let served: Vec<_> = memories.iter().flat_map(|memory| memory.copy(0, 1)).collect();
    assert_eq!(served, b"abc");
    listener.close(&Solo::new(0, 1)).expect("open");
    world.end();
}

pub fn connections_wait_in_the_backlog_until_they_are_accepted(case: &Case) {
    const CLIENTS: usize = 5;
    let world = World::of(case);
    let (net, there) = (world.net(), world.there());
    let options = case.options();
    let listener = listen(net, options);
    let (addr, handle) = (listener.local_addr(), listener.handle());
    let client = move || {
        let solo = Solo::new(0, 1);
        let mut stream = Stream::connect_with(&solo, there, addr, options)?;
        stream.send_all(&solo, b"x")?;
        stream.close(&solo)
    };
    let clients: Vec<_> = (0..CLIENTS).map(|_| std::thread::spawn(client)).collect();
    let memory = Memory::new(1);
    let result = team(case.lanes, |g| {
        let listener = Listener::from_handle(g, net, handle)?;
        for _ in 0..CLIENTS {
            let mut stream = listener.accept(g)?;
            assert_eq!(stream.recv_exact(g, memory.buffer())?, 1);
            stream.close(g)?;
        }
        assert!(matches!(listener.try_accept(g), Err(Error::WouldBlock)));
        listener.close(g)
    });
    assert_eq!(result, Ok(()));
    for client in clients {
        assert_eq!(client.join().expect("no panic"), Ok(()));
    }
    world.end();
}

pub fn a_closed_listener_refuses_and_frees_its_address(case: &Case) {
    let world = World::of(case);
    let (net, there) = (world.net(), world.there());
    let solo = Solo::new(0, 1);
    let first = listen(net, case.options());
    let (addr, handle) = (first.local_addr(), first.handle());
    let waiter = std::thread::spawn(move || {
        let solo = Solo::new(0, 1);
        Listener::from_handle(&solo, net, handle).and_then(|l| l.accept(&solo)).map(|_| ())
    });
    until("the accept waits", || world.attachment().usage().requests == 1);
    first.close(&solo).expect("open");
    assert_eq!(waiter.join().expect("no panic"), Err(Error::BadHandle));
    assert!(matches!(Listener::from_handle(&solo, net, handle), Err(Error::BadHandle)));
    let refused = team(case.lanes, |g| Stream::connect_with(g, there, addr, case.options()).map(|_| ()));
    assert_eq!(refused, Err(Error::ConnectionRefused));
    // The address is free at once, again and again.
    for _ in 0..20 {
        let again = Listener::bind_with(&solo, net, addr, case.options(), 1).expect("a free address");
        assert_eq!(again.local_addr(), addr);
        again.close(&solo).expect("open");
    }
    world.end();
}
