//! Other ends that do not follow the protocol: each lie is an error of the end that hears it, and
//! nothing is seen as whole.

use crate::array::Description;
use crate::dtype::Dtype;
use crate::error::Reason;
use crate::handshake::{HELLO, Hello};
use crate::header::{Answer, Header, INLINE, Offer, PROLOGUE, PieceFrame, bye};
use crate::local::Identity;
use crate::shared::STAGED;
use crate::{Array, Channel, ChannelError, ChannelListener, ChannelOptions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

const PIECE: u32 = 4096;
const TOTAL: u64 = 3 * PIECE as u64 + 100;
/// Only a failing test waits for it.
const LIMIT: Duration = Duration::from_secs(20);

fn listener() -> (ChannelListener, SocketAddr) {
    let options = ChannelOptions { timeout: Some(LIMIT), ..ChannelOptions::default() };
    let listener = ChannelListener::bind("127.0.0.1:0".parse().unwrap(), &options).expect("a listener");
    let addr = listener.local_addr().expect("an address");
    (listener, addr)
}

fn hello(connections: u16, index: u16) -> Hello {
    let identity = Identity { machine: [9; 16], process: [9; 16], uid: 1 };
    Hello {
        connections,
        index,
        status: 0,
        channel: [5; 16],
        identity,
        door: [0; 16],
        shares: true,
        text: String::new(),
    }
}

fn dial(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).expect("a connection");
    stream.set_read_timeout(Some(LIMIT)).expect("a limit");
    stream
}

/// Connects as a channel of another machine does, with two connections for transfers.
fn liar(addr: SocketAddr) -> Vec<TcpStream> {
    let mut streams: Vec<TcpStream> = (0..3).map(|_| dial(addr)).collect();
    for (index, stream) in (0..).zip(&mut streams) {
        stream.write_all(&hello(3, index).encode()).expect("written");
    }
    for stream in &mut streams {
        let mut bytes = [0; HELLO];
        stream.read_exact(&mut bytes).expect("an answer");
        assert_eq!(Hello::decode(&bytes).expect("a hello").status, 0);
    }
    streams[2].write_all(&[Reason::OtherMachine as u8]).expect("written");
    streams[2].read_exact(&mut [0]).expect("an answer");
    streams
}

fn header() -> Header {
    let array = Description { name: String::new(), dtype: Dtype::U8, shape: vec![TOTAL], on_gpu: false };
    Header {
        number: 0,
        flags: 0,
        streams: 2,
        piece: PIECE,
        total: TOTAL,
        crc: 0,
        arrays: vec![array],
        offer: Offer::None(Reason::OtherMachine),
    }
}

/// Has a receiver hear what a liar says on its first two connections, and returns what it makes of
/// it.
fn after_handshake(said: [Vec<u8>; 2]) -> Result<usize, ChannelError> {
    received_by(said, |channel| Ok(channel.recv()?.map_or(0, |arrays| arrays.len())))
}

/// The same, with a call of the receiver's.
fn received_by<T>(
    said: [Vec<u8>; 2],
    receive: impl FnOnce(&mut Channel) -> Result<T, ChannelError>,
) -> Result<T, ChannelError> {
    let (listener, addr) = listener();
    let (mut liar, mut channel) = thread::scope(|scope| {
        let dialling = scope.spawn(|| liar(addr));
        let channel = listener.accept().expect("a channel");
        (dialling.join().expect("no panic"), channel)
    });
    let talking = thread::spawn(move || {
        for (stream, bytes) in liar.iter_mut().zip(&said) {
            // The other end may have closed it, at the first lie.
            let _ = stream.write_all(bytes);
            let _ = stream.shutdown(std::net::Shutdown::Write);
        }
        // It ends when the receiver does.
        let _ = liar[2].read_to_end(&mut Vec::new());
    });
    let result = receive(&mut channel);
    drop(channel);
    talking.join().expect("no panic");
    result
}

fn piece(number: u64, offset: u64, len: u32) -> Vec<u8> {
    let mut bytes = PieceFrame::Piece { number, offset, len, crc: 0 }.encode().to_vec();
    bytes.extend(vec![1; len as usize]);
    bytes
}

fn last(number: u64) -> Vec<u8> {
    PieceFrame::Last { number }.encode().to_vec()
}

#[test]
fn an_honest_end_is_believed() {
    let first =
        [header().encode().unwrap(), piece(0, 0, PIECE), piece(0, 2 * 4096, PIECE), last(0), bye().to_vec()];
    let second = [piece(0, 3 * 4096, 100), piece(0, 4096, PIECE), last(0)];
    assert_eq!(after_handshake([first.concat(), second.concat()]).expect("it is whole"), 1);
}

#[test]
fn pieces_that_lie_are_errors() {
    let whole = [piece(0, 4096, PIECE), piece(0, 2 * 4096, PIECE), piece(0, 3 * 4096, 100), last(0)].concat();
    let lies: [(&str, Vec<u8>); 10] = [
        ("missing", last(0)),
        ("twice", [piece(0, 4096, PIECE), last(0)].concat()),
        ("twice on one", [piece(0, 0, PIECE), piece(0, 0, PIECE), last(0)].concat()),
        ("between", [piece(0, 1, PIECE), last(0)].concat()),
        ("longer", [piece(0, 0, PIECE + 1), last(0)].concat()),
        ("shorter", [piece(0, 0, PIECE - 1), last(0)].concat()),
        ("behind the end", [piece(0, 4 * 4096, 1), last(0)].concat()),
        ("far behind the end", [piece(0, u64::MAX - 4095, PIECE), last(0)].concat()),
        ("of another", [piece(1, 0, PIECE), last(0)].concat()),
        ("garbage", vec![0x55; 5000]),
    ];
    for (what, said) in lies {
        let first = [header().encode().unwrap(), said].concat();
        let error = after_handshake([first, whole.clone()]).expect_err(what);
        // The other connection may have been first to notice that its end is gone.
        assert!([libc::EPROTO, libc::ECONNRESET].contains(&error.errno()), "{what}: {error}");
    }
}

/// Headers of later transfers come between the pieces of an earlier one; so many, and no more.
#[test]
fn headers_that_come_early_are_kept_and_bounded() {
    let small = |number: u64| {
        let mut header = Header { number, flags: INLINE, total: 8, ..header() };
        header.arrays[0].shape = vec![8];
        [header.encode().unwrap(), vec![number as u8; 8]].concat()
    };
    let second = [piece(0, 3 * 4096, 100), piece(0, 4096, PIECE), last(0)].concat();
    let early = |count: u64| -> Vec<u8> {
        let headers: Vec<u8> = (1..=count).flat_map(small).collect();
        let pieces = [piece(0, 0, PIECE), headers, piece(0, 2 * 4096, PIECE), last(0), bye().to_vec()];
        [vec![header().encode().unwrap()], pieces.to_vec()].concat().concat()
    };
    let most = crate::header::MAX_AHEAD as u64;
    assert_eq!(after_handshake([early(most), second.clone()]).expect("it is whole"), 1);
    let lies = [
        ("too many", early(most + 1)),
        ("out of turn", [header().encode().unwrap(), small(2), piece(0, 0, PIECE)].concat()),
        ("garbage", [header().encode().unwrap(), small(1)[..40].to_vec(), vec![0x55; 5000]].concat()),
        ("too large", {
            let mut large = Header { number: 1, ..header() };
            large.arrays[0].name = "n".repeat(1000);
            large.arrays.resize(4100, large.arrays[0].clone());
            large.total *= 4100;
            let large = large.encode().unwrap();
            let next = Header { number: 2, ..header() };
            [header().encode().unwrap(), large, next.encode().unwrap(), vec![0; 1 << 20]].concat()
        }),
    ];
    for (what, said) in lies {
        let error = after_handshake([said, second.clone()]).expect_err(what);
        assert!([libc::EPROTO, libc::ECONNRESET].contains(&error.errno()), "{what}: {error}");
    }
    // By another connection than the first none may come.
    let first = [header().encode().unwrap(), piece(0, 0, PIECE), piece(0, 2 * 4096, PIECE), last(0)].concat();
    let error = after_handshake([first, [small(1), second].concat()]).expect_err("by the second");
    assert!([libc::EPROTO, libc::ECONNRESET].contains(&error.errno()), "{error}");
}

#[test]
fn what_ends_too_early_says_how_far_it_came() {
    let first =
        [header().encode().unwrap(), piece(0, 0, PIECE), piece(0, 4096, PIECE)[..100].to_vec()].concat();
    let second = [piece(0, 2 * 4096, PIECE), piece(0, 3 * 4096, 100), last(0)].concat();
    match after_handshake([first, second]).expect_err("it is torn") {
        error @ ChannelError::Failed { moved, total: TOTAL, .. } => {
            assert!(moved <= 2 * 4096 + 100, "{error}");
            assert_eq!(error.errno(), libc::ECONNRESET);
        }
        other => panic!("{other}"),
    }
}

/// A small transfer goes into a GPU part by part, and the sender is gone before the last one.
#[test]
fn a_small_transfer_that_ends_in_its_middle_is_no_array() {
    let fake = gpu_usermap::cuda::fake::Fake::new();
    let gpu = fake.cuda().device(0).expect("a device");
    let total = 3 * STAGED as u64 / 2;
    let array = Description { name: String::new(), dtype: Dtype::U8, shape: vec![total], on_gpu: true };
    let header = Header { flags: INLINE, total, arrays: vec![array], ..header() };
    let whole = [header.encode().unwrap(), vec![1; total as usize]].concat();
    let received = received_by([[&whole[..], &bye()].concat(), Vec::new()], |channel| channel.recv_on(&gpu));
    assert_eq!(received.expect("it is whole").expect("one")[0].shape, [total]);
    let freed = || fake.events().iter().filter(|&&event| event == "free").count();
    for missing in [1, STAGED / 2, STAGED, whole.len() - 200] {
        let before = freed();
        let torn = whole[..whole.len() - missing].to_vec();
        let error = received_by([torn, Vec::new()], |channel| channel.recv_on(&gpu)).expect_err("it is torn");
        assert_eq!(error.errno(), libc::ECONNRESET, "{missing}: {error}");
        // The memory that was allocated for it is given back.
        while freed() == before {
            gpu.is_busy().expect("the agent is there");
        }
    }
}

#[test]
fn headers_that_lie_are_errors() {
    let changed = |change: fn(&mut Header)| {
        let mut header = header();
        change(&mut header);
        header.encode().expect("it can be said")
    };
    let mut crc = header().encode().unwrap();
    crc[PROLOGUE + 1] ^= 1;
    let lies: [(&str, Vec<u8>); 8] = [
        ("garbage", vec![0xaa; 100]),
        ("checksum", crc),
        ("total", changed(|header| header.total -= 1)),
        ("number", changed(|header| header.number = 1)),
        ("connections", changed(|header| header.streams = 3)),
        ("piece", changed(|header| header.piece = 1)),
        ("flags", changed(|header| header.flags = 0x80)),
        (
            "inline",
            changed(|header| {
                header.flags = INLINE;
                header.arrays[0].shape = vec![2 << 20];
                header.total = 2 << 20;
            }),
        ),
    ];
    for (what, said) in lies {
        let error = after_handshake([said, Vec::new()]).expect_err(what);
        assert_eq!(error.errno(), libc::EPROTO, "{what}: {error}");
    }
    let cut = header().encode().unwrap();
    for len in [1, PROLOGUE - 1, PROLOGUE, cut.len() - 1] {
        let error = after_handshake([cut[..len].to_vec(), Vec::new()]).expect_err("cut");
        assert_eq!(error.errno(), libc::ECONNRESET, "{len}: {error}");
    }
    let died = after_handshake([Vec::new(), Vec::new()]).expect_err("no farewell");
    assert_eq!(died.errno(), libc::ECONNRESET);
    assert_eq!(after_handshake([bye().to_vec(), Vec::new()]).expect("a farewell"), 0);
}

#[test]
fn answers_that_lie_are_errors() {
    let (listener, addr) = listener();
    for (what, said) in [
        ("garbage", vec![0x55; 24]),
        ("of another", Answer::Done { copied: false }.encode(7)),
        ("done before it came", Answer::Done { copied: false }.encode(0)),
        (
            "copied what was not offered",
            [Answer::Go { reason: Reason::Small }.encode(0), Answer::Done { copied: true }.encode(0)]
                .concat(),
        ),
        (
            "go twice",
            [Answer::Go { reason: Reason::Small }.encode(0), Answer::Go { reason: Reason::Small }.encode(0)]
                .concat(),
        ),
        ("descriptors", Answer::Need { allocations: vec![0] }.encode(0)),
    ] {
        thread::scope(|scope| {
            let lying = scope.spawn(|| {
                let mut liar = liar(addr);
                liar[2].write_all(&said).expect("written");
                let draining = liar.remove(1);
                let other = thread::spawn(move || {
                    let mut draining = draining;
                    let _ = draining.read_to_end(&mut Vec::new());
                });
                let _ = liar[0].read_to_end(&mut Vec::new());
                other.join().expect("no panic");
            });
            let mut channel = listener.accept().expect("a channel");
            let error = channel.send(&Array::of(&vec![1u8; 2 << 20])).expect_err(what);
            assert_eq!(error.errno(), libc::EPROTO, "{what}: {error}");
            drop(channel);
            lying.join().expect("no panic");
        });
    }
}

#[test]
fn foreign_connections_are_told_and_hold_up_nobody() {
    let (listener, addr) = listener();
    let told = |said: &[u8]| {
        let mut stream = dial(addr);
        stream.write_all(said).expect("written");
        thread::scope(|scope| {
            // One that says nothing, and one that stops in the middle.
            let _silent = dial(addr);
            let mut halted = dial(addr);
            halted.write_all(&hello(2, 0).encode()[..100]).expect("written");
            let accepting =
                scope.spawn(|| listener.accept_until(Some(Instant::now() + Duration::from_millis(200))));
            let mut answer = [0; HELLO];
            stream.read_exact(&mut answer).expect("an answer");
            let error = accepting.join().expect("no panic").expect_err("no channel");
            assert_eq!(error.errno(), libc::ETIMEDOUT);
            let hello = Hello::decode(&answer).expect("a hello");
            (hello.status, hello.text)
        })
    };
    let (status, text) = told(b"GET / HTTP/1.1\r\n\r\n");
    assert_eq!((status, text.as_str()), (libc::EPROTO as u16, "this port is for channels of gpunet"));
    let mut other = hello(2, 0).encode();
    other[8] = 77;
    let (_, text) = told(&other);
    assert!(text.starts_with("version 77"), "{text}");
    let (_, text) = told(&hello(1, 0).encode());
    assert!(text.contains("connections"), "{text}");
    let mut channel = thread::scope(|scope| {
        let connecting =
            scope.spawn(|| Channel::connect(addr, &ChannelOptions::default()).expect("a channel"));
        listener.accept().expect("a channel");
        connecting.join().expect("no panic")
    });
    assert_eq!(channel.recv().expect("the end").map(|arrays| arrays.len()), None);
}

#[test]
fn a_port_of_something_else_is_a_protocol_error() {
    let other = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
    let addr = other.local_addr().expect("an address");
    let serving = thread::spawn(move || {
        let (mut stream, _) = other.accept().expect("a connection");
        let _ = stream.write_all(&[b'x'; 300]);
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let options = ChannelOptions { streams: 1, timeout: Some(LIMIT), ..ChannelOptions::default() };
    let error = Channel::connect(addr, &options).expect_err("no channel");
    assert_eq!(error.errno(), libc::EPROTO, "{error}");
    serving.join().expect("no panic");
}
