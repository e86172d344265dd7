//! Streams of which a test has both ends.

use super::SOLO;
use super::client::std_addr;
use super::world::{home, listen};
use gpunet_device::{Listener, Net, Options, Stream};
use gpunet_proxy::Attachment;
use gpunet_proxy::socket::Socket;

/// A stream to a listener, opened by single lanes: the ends that connected and accepted.
#[track_caller]
pub fn connect(net: Net, listener: &Listener, options: Options) -> [Stream; 2] {
    let addr = listener.local_addr();
    let connect = move || Stream::connect_with(&SOLO, net, addr, options).map(|stream| stream.handle());
    std::thread::scope(|scope| {
        let connecting = scope.spawn(connect);
        let accepted = listener.accept(&SOLO).expect("accepted");
        let connected = connecting.join().expect("no panic").expect("connected");
        [Stream::from_handle(&SOLO, net, connected).expect("open"), accepted]
    })
}

/// A stream, with a listener for it only.
#[track_caller]
pub fn pair(near: Net, far: Net, options: Options) -> [Stream; 2] {
    let listener = listen(far, options);
    let ends = connect(near, &listener, options);
    listener.close(&SOLO).expect("open");
    ends
}

/// A stream between two host programs: the ends that connected and accepted.
#[track_caller]
pub fn sockets(near: &Attachment, far: &Attachment, options: Options) -> [Socket; 2] {
    let listener = far.listen_blocking(std_addr(home(options)), options, 1).expect("a free port");
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| near.connect_blocking(listener.local_addr(), options));
        let accepted = listener.accept_blocking().expect("a connection");
        [connecting.join().expect("no panic").expect("connected"), accepted]
    })
}
