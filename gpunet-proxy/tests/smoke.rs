//! The thinnest path end to end.
use gpunet_device::group::Solo;
use gpunet_device::{Buffer, Listener, SockAddr, Stream};
use gpunet_proxy::{Config, FinishPolicy, embed};
use std::io::{Read, Write};

#[test]
fn a_tcp_program_gets_its_bytes_back() {
    let proxy = embed(Config::small()).unwrap();
    let attachment = proxy.attach_cpu().unwrap();
    let token = attachment.token().unwrap();
    let g = Solo::new(0, 1);
    let net = token.net();
    let listener = Listener::bind(&g, net, SockAddr::v4([127, 0, 0, 1], 0)).unwrap();
    let addr = listener.local_addr().to_std().unwrap();
    let client = std::thread::spawn(move || {
        let mut c = std::net::TcpStream::connect(addr).unwrap();
        c.write_all(b"hello").unwrap();
        c.shutdown(std::net::Shutdown::Write).unwrap();
        let mut back = String::new();
        c.read_to_string(&mut back).unwrap();
        back
    });
    let mut s = listener.accept(&g).unwrap();
    let mut memory = vec![0u8; 4096];
    let buffer = unsafe { Buffer::from_raw_parts(memory.as_mut_ptr(), memory.len()) };
    loop {
        let n = s.recv(&g, buffer).unwrap();
        if n == 0 {
            break;
        }
        s.send_all(&g, buffer.first(n)).unwrap();
    }
    s.close(&g).unwrap();
    listener.close(&g).unwrap();
    assert_eq!(client.join().unwrap(), "hello");
    assert_eq!(token.finish(FinishPolicy::Close).left_open, 0);
    assert_eq!(attachment.close().undelivered, 0);
}

#[test]
fn two_sockets_of_one_device_talk_directly() {
    let proxy = embed(Config::small()).unwrap();
    let attachment = proxy.attach_cpu().unwrap();
    let token = attachment.token().unwrap();
    let g = Solo::new(0, 1);
    let net = token.net();
    let listener = Listener::bind(&g, net, SockAddr::v4([127, 0, 0, 1], 0)).unwrap();
    let addr = listener.local_addr();
    let client = std::thread::spawn(move || {
        let g = Solo::new(0, 1);
        let mut s = Stream::connect(&g, net, addr).unwrap();
        s.send_all(&g, b"hello").unwrap();
        let mut memory = vec![0u8; 5];
        let buffer = unsafe { Buffer::from_raw_parts(memory.as_mut_ptr(), memory.len()) };
        assert_eq!(s.recv_exact(&g, buffer).unwrap(), 5);
        s.close(&g).unwrap();
        memory
    });
    let mut s = listener.accept(&g).unwrap();
    let mut memory = vec![0u8; 4096];
    let buffer = unsafe { Buffer::from_raw_parts(memory.as_mut_ptr(), memory.len()) };
    let n = s.recv(&g, buffer).unwrap();
    s.send_all(&g, buffer.first(n)).unwrap();
    assert_eq!(s.recv(&g, buffer).unwrap(), 0);
    s.close(&g).unwrap();
    assert_eq!(client.join().unwrap(), b"hello");
}
