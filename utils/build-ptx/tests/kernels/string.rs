//! Strings of the program are compared with received bytes: the compiler loads them without
//! coherence, as it may.

#![no_std]
#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx))]

use gpunet_device::{Buffer, Group, Kernel, Net, SockAddr, Stream, kernel_entry};

#[derive(Clone, Copy)]
#[repr(C)]
struct Http {
    net: Net,
    buffer: Buffer,
}

const METHODS: [&[u8]; 3] = [b"GET ", b"HEAD ", b"DELETE "];

impl Kernel for Http {
    const ENTRY: &'static str = "http";

    fn run<G: Group>(self, g: &G) {
        let Ok(mut stream) = Stream::connect(g, self.net, SockAddr::v4([127, 0, 0, 1], 80)) else { return };
        let len = stream.recv(g, self.buffer).unwrap_or(0);
        if METHODS.iter().any(|method| starts_with(self.buffer.first(len), method)) {
            let _ = stream.send_all(g, b"HTTP/1.1 200 OK\r\n\r\n");
        }
    }
}
kernel_entry!(http, "http", Http);

fn starts_with(buffer: Buffer, text: &'static [u8]) -> bool {
    let mut at = 0;
    while at < text.len() && at < buffer.len() {
        // SAFETY: inside the buffer.
        if unsafe { buffer.as_ptr().add(at).read() } != text[at] {
            return false;
        }
        at += 1;
    }
    at == text.len()
}
