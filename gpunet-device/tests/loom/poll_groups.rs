//! Poll groups: a block that arms a socket, and the proxy, which tells of a change at that moment.

use crate::check;
use crate::proxy::{G, Proxy, events, room};
use gpunet_device::Timeout;
use gpunet_device::poll::POLLIN;
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
