//! Poll groups: a block that arms a socket, and the proxy, which tells of a change at that moment.

use crate::check;
use crate::proxy::{G, Proxy, events, room};
use gpunet_device::Timeout;
use gpunet_device::abi::poll_group::Phase;
use gpunet_device::poll::{POLLIN, POLLOUT};
use loom::thread;

const SOCKET: u32 = 1;

/// Bytes land while a block arms the socket: the block finds them, or is told of them.
///
/// Fails without the fence of `settle`, if `arm` stores the watch word after the socket is armed,
/// or without the last look.
#[test]
fn what_lands_while_a_socket_is_armed_is_delivered() {
    let world = crate::world();
    let proxy = Proxy::new(world, 9, 2);
    proxy.group.add(&G, world.open_driven(SOCKET), POLLIN, 7).unwrap();
    check(2, world, move |_| {
        let group = proxy.group;
        let mut teller = proxy.clone();
        let proxy = thread::spawn(move || teller.land(SOCKET, 1));
        let mut memory = room(1);
        let mut own = events(&mut memory);
        let mut delivered = group.wait(&G, &mut own, Timeout::NON_BLOCKING).unwrap();
        proxy.join().unwrap();
        if delivered == 0 {
            delivered = group.wait(&G, &mut own, Timeout::NON_BLOCKING).unwrap();
        }
        assert_eq!(delivered, 1, "something that landed was told to nobody");
    });
}

/// Two blocks wait while bytes land: one of them has the socket, and no change is lost.
///
/// Fails without the fence of `settle`, if `arm` stores no arm or no watch word, or if the last
/// look takes a socket whoever has it.
#[test]
fn one_of_two_blocks_has_what_lands() {
    let world = crate::world();
    let proxy = Proxy::new(world, 9, 2);
    proxy.group.add(&G, world.open_driven(SOCKET), POLLIN, 7).unwrap();
    check(2, world, move |_| {
        let group = proxy.group;
        let wait = move |memory: &mut [u8]| {
            let mut own = events(memory);
            group.wait(&G, &mut own, Timeout::NON_BLOCKING).unwrap()
        };
        let mut teller = proxy.clone();
        let proxy = thread::spawn(move || teller.land(SOCKET, 1));
        let other = thread::spawn(move || wait(&mut room(1)));
        let mut delivered = wait(&mut room(1));
        proxy.join().unwrap();
        delivered += other.join().unwrap();
        assert!(delivered <= 1, "two blocks have the socket");
        if delivered == 0 {
            delivered = wait(&mut room(1));
        }
        assert_eq!(delivered, 1, "something that landed was told to nobody");
    });
}

/// One block removes a socket that another is about to arm: it is out of the group, and can be
/// added again.
///
/// Fails if `arm` arms a socket that its block does not hold any more, or does not keep others off
/// while it stores the watch word, and if `change_settled` gives up on a socket that was
/// *changing*.
#[test]
fn a_socket_that_is_removed_while_it_is_armed_is_out() {
    let world = crate::world();
    let proxy = Proxy::new(world, 9, 2);
    let socket = world.open_driven(SOCKET);
    proxy.group.add(&G, socket, POLLIN, 7).unwrap();
    check(2, world, move |_| {
        let group = proxy.group;
        let wait = move || group.wait(&G, &mut events(&mut room(1)), Timeout::NON_BLOCKING).unwrap();
        let remover = thread::spawn(move || group.remove(&G, socket).unwrap());
        assert_eq!(wait(), 0);
        remover.join().unwrap();
        let state = proxy.state(SOCKET);
        assert_eq!((state.phase(), proxy.watch(SOCKET).group()), (Phase::None, None));
        group.add(&G, socket, POLLIN, 8).unwrap();
        proxy.clone().land(SOCKET, 1);
        assert_eq!(wait(), 1, "the socket that was added again is delivered");
    });
}

/// A block modifies a socket while another waits: what was asked for comes with the new token.
///
/// Fails if the state is changed or loaded without order.
#[test]
fn a_socket_that_is_modified_has_its_new_token() {
    let world = crate::world();
    let proxy = Proxy::new(world, 9, 2);
    let socket = world.open_driven(SOCKET);
    proxy.group.add(&G, socket, POLLIN, 7).unwrap();
    check(2, world, move |_| {
        let group = proxy.group;
        let modifier = thread::spawn(move || group.modify(&G, socket, POLLOUT, 8).unwrap());
        let mut memory = room(1);
        let mut tokens = proxy.take(&mut events(&mut memory));
        modifier.join().unwrap();
        if tokens.is_empty() {
            tokens = proxy.take(&mut events(&mut memory));
        }
        // Nothing has come, so there was nothing to deliver before.
        assert_eq!(tokens, [8]);
    });
}
