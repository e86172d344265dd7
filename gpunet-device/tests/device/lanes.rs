//! The same calls made by a group of many lanes.

use crate::world::{LARGE, World, buffer, pattern};
use gpunet_device::abi::position::StreamWord;
use gpunet_device::group::Lanes;
use gpunet_device::{Buffer, Error, Group, Handle, Kernel, Net, RecvHalf, SendHalf, Shutdown, Stream, cpu};
use std::sync::atomic::{AtomicU64, Ordering};

fn run(size: u32, body: impl Fn(&Lanes) + Sync) {
    std::thread::scope(|scope| {
        for lane in Lanes::group(0, 1, size) {
            let body = &body;
            scope.spawn(move || body(&lane));
        }
    });
}

#[test]
fn thirty_three_lanes_move_bytes_together() {
    let world = World::new();
    let (a, b) = world.open_pair(0, 1);
    let net = world.net();
    let mut out = pattern(20_011);
    let expected = out.clone();
    let source = buffer(&mut out);
    let mut back = vec![0; 20_011];
    let target = buffer(&mut back);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            run(33, |g| {
                let mut stream = Stream::from_handle(g, net, a).unwrap();
                stream.send_all(g, source).unwrap();
                stream.shutdown(g, Shutdown::Both);
            });
        });
        scope.spawn(|| {
            run(5, |g| {
                let mut stream = Stream::from_handle(g, net, b).unwrap();
                assert_eq!(stream.recv_exact(g, target), Ok(20_011));
                assert_eq!(stream.recv(g, target), Ok(0));
            });
        });
    });
    assert!(back == expected);
}

#[test]
fn a_block_writes_its_buffer_and_sends_it_without_a_barrier_of_its_own() {
    let world = World::new();
    let (a, b) = world.open_pair(0, 1);
    let net = world.net();
    let (mut out, mut back) = (vec![0; 64], vec![0; 64]);
    let (source, target) = (buffer(&mut out), buffer(&mut back));
    let at = |buffer: Buffer, lane: u32| buffer.as_ptr().wrapping_add(lane as usize);
    run(64, |g| {
        let mut one = Stream::from_handle(g, net, a).unwrap();
        let mut other = Stream::from_handle(g, net, b).unwrap();
        for round in 0..100u8 {
            // SAFETY: each lane its own byte.
            unsafe { at(source, g.rank()).write_volatile(round ^ g.rank() as u8) };
            one.send_all(g, source).unwrap();
            assert_eq!(other.recv_exact(g, target), Ok(64));
            let from = g.size() - 1 - g.rank();
            // SAFETY: written before the call returned.
            assert_eq!(unsafe { at(target, from).read_volatile() }, round ^ from as u8);
        }
    });
}

#[test]
fn the_warps_of_a_block_use_sockets_of_their_own() {
    let world = World::new();
    let pairs = [world.open_pair(0, 1), world.open_pair(2, 3)];
    let net = world.net();
    let mut memory = vec![0; 128];
    let all = buffer(&mut memory);
    run(64, |g| {
        let warp = g.warp();
        let (a, b) = pairs[warp.index() as usize];
        let mine = all.slice(64 * warp.index() as usize, 64);
        let text: &'static [u8] = [&b"warp 0"[..], b"warp 1"][warp.index() as usize];
        for _ in 0..20 {
            Stream::from_handle(&warp, net, a).unwrap().send_all(&warp, text).unwrap();
            let n = Stream::from_handle(&warp, net, b).unwrap().recv(&warp, mine);
            assert_eq!(n, Ok(6));
        }
    });
    assert_eq!((&memory[..6], &memory[64..70]), (&b"warp 0"[..], &b"warp 1"[..]));
}

/// Waits for bytes that never come, while one lane dies.
#[derive(Clone, Copy)]
struct Doomed {
    net: Net,
    handle: Handle,
    buffer: Buffer,
}

impl Kernel for Doomed {
    const ENTRY: &'static str = "doomed";
    fn run<G: Group>(self, g: &G) {
        let mut stream = Stream::from_handle(g, self.net, self.handle).unwrap();
        assert!(g.rank() != 3, "on purpose");
        let _ = stream.recv(g, self.buffer);
        g.sync();
    }
}

#[test]
fn a_dying_lane_ends_the_wait_of_its_leader() {
    let world = World::new();
    let mut memory = vec![0; 8];
    let kernel = Doomed { net: world.net(), handle: world.open_driven(1), buffer: buffer(&mut memory) };
    let launch = cpu::launch(1, 4, kernel).unwrap();
    assert!(launch.wait().is_err());
}

/// Says which signals its threads block.
#[derive(Clone, Copy)]
struct Blocked(&'static AtomicU64);

impl Kernel for Blocked {
    const ENTRY: &'static str = "blocked";
    fn run<G: Group>(self, _: &G) {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        let blocked = u64::from_str_radix(line.trim(), 16).unwrap();
        self.0.fetch_and(blocked, Ordering::Relaxed);
    }
}

#[test]
fn blocks_leave_the_programs_signals_alone() {
    static BLOCKED: AtomicU64 = AtomicU64::new(u64::MAX);
    for threads in [1, 3] {
        cpu::launch(2, threads, Blocked(&BLOCKED)).unwrap().wait().unwrap();
    }
    let blocked = |signal: libc::c_int| BLOCKED.load(Ordering::Relaxed) >> (signal - 1) & 1 != 0;
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGCHLD, libc::SIGUSR1, libc::SIGALRM] {
        assert!(blocked(signal), "{signal}");
    }
    for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL] {
        assert!(!blocked(signal), "{signal}");
    }
}

#[test]
fn large_blocks_send_and_receive_pieces_of_all_sizes() {
    let world = World::new();
    let (a, b) = world.open_pair(0, 1);
    let net = world.net();
    let mut out = pattern(200_003);
    let expected = out.clone();
    let source = buffer(&mut out);
    let mut back = vec![0; 200_003];
    let target = buffer(&mut back);
    // Pieces of many sizes on both sides, long calls and short ones in turns.
    let piece = |done: usize| 1 + (done * 7919) % 6007;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            run(40, |g| {
                let mut stream = Stream::from_handle(g, net, a).unwrap();
                let mut done = 0;
                while done < source.len() {
                    let part = source.slice(done, piece(done));
                    stream.send_all(g, part).unwrap();
                    done += part.len();
                }
                stream.shutdown(g, Shutdown::Both);
            });
        });
        scope.spawn(|| {
            run(65, |g| {
                let mut stream = Stream::from_handle(g, net, b).unwrap();
                let mut done = 0;
                while done < target.len() {
                    let part = target.slice(done, 2 * piece(done));
                    done += stream.recv(g, part).unwrap();
                }
                assert_eq!(stream.recv(g, target), Ok(0));
            });
        });
    });
    assert!(back == expected);
}

#[test]
fn a_long_call_goes_out_piece_by_piece() {
    let world = World::new();
    let (a, b) = world.open_large_pair(0, 1);
    let net = world.net();
    let mut out = pattern(1_500_007);
    let expected = out.clone();
    let source = buffer(&mut out);
    let mut back = vec![0; 1_500_007];
    let target = buffer(&mut back);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            run(64, |g| {
                let mut half = SendHalf::from_handle(g, net, a).unwrap();
                let first = half.send(g, source).unwrap();
                assert!(first as u64 >= LARGE / 2, "{first}");
                half.send_all(g, source.skip(first)).unwrap();
                assert_eq!(half.position(), 1_500_007);
            });
        });
        scope.spawn(|| {
            run(33, |g| {
                let got = RecvHalf::from_handle(g, net, b).unwrap().recv_exact(g, target);
                assert_eq!(got, Ok(1_500_007));
            });
        });
    });
    assert!(back == expected);
}

#[test]
fn a_word_that_cannot_be_ends_a_long_call_after_what_is_sent() {
    let world = World::new();
    let (a, _) = world.open_large_pair(0, 1);
    world.own_consumed(1).set(LARGE * 9);
    let mut out = pattern(3 * LARGE as usize);
    let source = buffer(&mut out);
    run(64, |g| {
        let mut half = SendHalf::from_handle(g, world.net(), a).unwrap();
        // The ring takes that much before anybody polls.
        assert_eq!(half.send(g, source), Ok(LARGE as usize));
        assert_eq!(half.send(g, source), Err(Error::Protocol));
    });
    assert_eq!(StreamWord(world.own_published(0).observe()), StreamWord::at(LARGE).with_err());
}

/// Another group changes a socket's options while a block makes calls on it: all lanes do the same.
#[test]
fn lanes_agree_whatever_happens_to_the_options_meanwhile() {
    use gpunet_device::group::Solo;
    use gpunet_posix::options::{SO_RCVTIMEO, SOL_SOCKET, set};
    use gpunet_posix::recv::recv;
    use std::sync::atomic::{AtomicBool, Ordering};
    let world = World::new();
    let (a, b) = world.open_pair(0, 1);
    let net = world.net();
    /// Ends the other threads, also when this one fails.
    struct Over<'a>(&'a AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = Over(&over);
        scope.spawn(|| {
            let g = Solo::new(9, 10);
            let mut limited = false;
            while !over.load(Ordering::Relaxed) {
                limited = !limited;
                let limit = [0, i64::from(limited) * 50];
                // SAFETY: a timeval of this stack.
                unsafe { set(&g, net, a.raw(), SOL_SOCKET, SO_RCVTIMEO, limit.as_ptr().cast(), 16) }.unwrap();
            }
        });
        scope.spawn(|| {
            let mut sender = Stream::from_handle(&Solo::new(8, 10), net, b).unwrap();
            while !over.load(Ordering::Relaxed) {
                // Ends the calls that have no limit.
                let _ = sender.try_send(&Solo::new(8, 10), b"x");
                std::thread::sleep(std::time::Duration::from_micros(200));
            }
        });
        run(3, |g| {
            let mut bytes = [0u8; 64];
            // One lane's memory for all of them.
            let target = g.broadcast(bytes.as_mut_ptr() as u64) as *mut u8;
            for _ in 0..1000 {
                // SAFETY: bytes of lane 0's stack, which all lanes use together.
                let got = unsafe { recv(g, net, a.raw(), target, 64, 0) };
                assert!(matches!(got, Ok(1..) | Err(Error::WouldBlock)), "{got:?}");
            }
            g.sync();
        });
    });
}

/// By handle, so that each call finds in the table what the one before has left there.
#[test]
fn lanes_write_and_read_in_place_together() {
    use gpunet_posix::in_place::{commit, peek, release, reserve};
    let world = World::new();
    let (a, b) = world.open_pair(0, 1);
    let (net, a, b) = (world.net(), a.raw(), b.raw());
    run(33, |g| {
        let own = |len: usize| (g.rank() as usize..len).step_by(33);
        for round in 0..300usize {
            let len = 1 + round * 97 % 3000;
            let span = reserve(g, net, a, len, 0).unwrap();
            assert_eq!(span.len(), len);
            let at = |span: &gpunet_device::RingSpan, i: usize| match i.checked_sub(span.first.len) {
                None => span.first.ptr.wrapping_add(i),
                Some(i) => span.second.ptr.wrapping_add(i),
            };
            for i in own(len) {
                // SAFETY: each lane its own bytes of the reserved span.
                unsafe { at(&span, i).write_volatile((i + round) as u8) };
            }
            assert_eq!(commit(g, net, a, len), Ok(0));
            let span = peek(g, net, b, 4096, -1).unwrap();
            assert_eq!(span.len(), len);
            for i in own(len) {
                // SAFETY: inside the peeked span.
                assert_eq!(unsafe { at(&span, i).read_volatile() }, (i + round) as u8, "{i} of {round}");
            }
            assert_eq!(release(g, net, b, len), Ok(0));
            assert_eq!(peek(g, net, b, 1, 0), Err(Error::WouldBlock));
            assert_eq!(release(g, net, b, 1), Err(Error::InvalidArgument));
        }
        // The ring is empty, but this end does not know how much of it: it polls for the rest.
        assert_eq!(reserve(g, net, a, 4096, 0).map(|span| span.len() > 2048), Ok(true));
    });
}
