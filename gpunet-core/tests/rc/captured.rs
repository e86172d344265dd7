//! A conversation with rstream that was captured: `rstream -S 20000` as client, over siw, and the
//! request that rstream sends.

use gpunet_core::rc::{Config, Hello, Machine, Message, Remote, Variant};
use gpunet_core::verbs::{Op, Sge, Source};

/// Its connection request on Soft-RoCE: 384 credits, half of a 1 MiB ring.
const REQUEST: &str = "0102018000000000 0000564b8ebec000 00000368 00000002 00007f2dc1d7d000 000004a7 00080000
    00000000000000000000000000000000";

fn request() -> Hello {
    let digits: Vec<u8> = REQUEST.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
    let bytes: Vec<u8> = digits.chunks(2).map(byte).collect();
    assert_eq!(bytes.len(), 56);
    Hello::decode(&bytes).unwrap()
}

const DATA: u64 = 0x7f2d_c1d7_d000;

fn machine() -> Machine {
    let config = Config {
        variant: Variant::Send,
        send_ring: (0x1000_0000, 1 << 18),
        recv_ring: Remote { address: 0x2000_0000, rkey: 7, len: 1 << 18 },
        sends: 64,
        receives: 384,
        keepalive: u64::MAX,
    };
    Machine::new(&config, request(), 0)
}

fn write(offset: u64, to: u64, len: u32) -> Option<Op> {
    let from = Source::Ring([(0x1000_0000 + offset, len), (0x1000_0000, 0)]);
    Some(Op::Write { from, to, rkey: 0x4a7, immediate: None })
}

#[test]
fn the_captured_request_is_that_of_rstream() {
    let hello = request();
    assert_eq!((hello.credits, hello.big_endian, hello.gpunet), (384, false, None));
    assert_eq!(hello.table, Remote { address: 0x564b_8ebe_c000, rkey: 0x368, len: 2 });
    assert_eq!(hello.area, Remote { address: DATA, rkey: 0x4a7, len: 524_288 });
}

#[test]
fn the_captured_conversation_takes_place() {
    let mut m = machine();
    assert_eq!(m.poll(0), None, "we have nothing to grant: all was, in the private data");

    // Its first words: the second half of its ring.
    assert_eq!(m.handle_message(0x8000_0180, None, 0), Ok(Message::Credits(384)));
    assert_eq!(m.expected_entry(), 1);
    m.handle_area(Sge { address: DATA + 0x8_0000, rkey: 0x4a7, len: 0x8_0000 }).unwrap();

    // 16 bytes to synchronise, and 16 in answer.
    assert_eq!(m.handle_message(0x0000_0010, None, 0), Ok(Message::Data(16)));
    m.handle_consumed(16);
    m.offer(16);
    assert_eq!(m.poll(0), write(0, DATA, 16));
    assert_eq!(m.poll(0), Some(Op::Send { message: 0x0000_0010 }));
    assert_eq!(m.poll(0), None);
    m.handle_sent(0);
    m.handle_sent(0);
    assert_eq!(m.completed(), 16);

    // A transfer of 20,000 bytes in chunks that double.
    for message in [0x0000_0800, 0x0000_1000, 0x0000_2000, 0x0000_1620] {
        assert_eq!(m.handle_message(message, None, 0), Ok(Message::Data(message)));
        m.handle_consumed(m.received());
        assert_eq!(m.poll(0), None, "too little to be worth a grant");
    }
    assert_eq!(m.received(), 16 + 20_000);

    // And as many back, of which we make one message.
    m.offer(16 + 20_000);
    assert_eq!(m.poll(0), write(16, DATA + 16, 20_000));
    assert_eq!(m.poll(0), Some(Op::Send { message: 20_000 }));
    m.handle_sent(0);
    m.handle_sent(0);

    // Its last word.
    assert_eq!(m.handle_message(0xe000_0000, None, 0), Ok(Message::Disconnect));
    assert!(m.is_peer_shut() && m.is_settled());
    m.disconnect();
    assert_eq!(m.poll(0), None, "it would not take an answer");
    m.handle_disconnected();
    assert_eq!(m.failure(), None);
}
