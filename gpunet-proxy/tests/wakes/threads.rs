//! Threads of a host program that sleep in the calls of its sockets.

use crate::support::World;
use crate::support::asleep::spawn_asleep_in;
use crate::{HOSTS, ROUNDS, endless};
use gpunet_device::{Options, TransportKind};
use gpunet_proxy::host::{Blocking, Host, ReadHalf, Stream};
use std::io::{ErrorKind, Read, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;
use tokio::io::ReadBuf;

/// Bytes of a ring.
const RING: u64 = 4096;

/// The connecting and the accepting end of a stream.
fn pair(from: &Host, to: &Host, transport: TransportKind) -> [Stream; 2] {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let options = Options::DEFAULT.with_transport(transport).with_rings(RING, RING);
        let listener = to.bind("127.0.0.1:0".parse().expect("an address"), options, 1).await.expect("free");
        let addr = listener.local_addr().expect("an address");
        let (client, server) = tokio::join!(from.connect(addr, options), listener.accept());
        [client.expect("connected"), server.expect("accepted").0]
    })
}

/// Plays with the ends of streams over tcp, within an attachment and between two of them.
fn with_pairs(play: impl Fn([Stream; 2]) + Send + 'static) {
    let _hosts = HOSTS.read().unwrap_or_else(PoisonError::into_inner);
    endless(move || {
        let world = World::new();
        let there = World::beside(&world);
        let [here, other] = [&world, &there].map(|world| world.attachment().host().expect("sockets"));
        for _ in 0..ROUNDS {
            play(pair(&here, &here, TransportKind::Tcp));
            play(pair(&here, &here, TransportKind::Peer));
            play(pair(&other, &here, TransportKind::Peer));
        }
        drop((here, other));
        there.end();
        world.end();
    });
}

/// A half that threads share. `None` once it is closed.
type Shared = Mutex<Option<ReadHalf>>;

fn lock(half: &Shared) -> MutexGuard<'_, Option<ReadHalf>> {
    half.lock().expect("no panic")
}

/// Reads a byte: none at the end of the stream, or when the half was closed.
fn read(half: &Shared) -> Option<u8> {
    loop {
        let mut byte = [0];
        let mut buf = ReadBuf::new(&mut byte);
        let mut waiter = {
            let mut half = lock(half);
            let half = half.as_mut()?;
            match half.try_read(&mut buf) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => half.waiter(),
                done => {
                    done.expect("received");
                    return buf.filled().first().copied();
                }
            }
        };
        assert!(waiter.wait(Duration::ZERO, None).expect("a proxy"));
    }
}

fn asleep<'s>(scope: &'s Scope<'s, '_>, half: &'s Shared) -> ScopedJoinHandle<'s, Option<u8>> {
    spawn_asleep_in(scope, || read(half))
}

#[test]
fn a_thread_hears_of_bytes_and_of_the_end() {
    with_pairs(|[client, server]| {
        let mut client = Blocking::new(client);
        let half = Mutex::new(Some(server.into_split().0));
        std::thread::scope(|scope| {
            let reader = asleep(scope, &half);
            client.write_all(&[7]).expect("sent");
            assert_eq!(reader.join().expect("no panic"), Some(7));
            let reader = asleep(scope, &half);
            drop(client);
            assert_eq!(reader.join().expect("no panic"), None);
        });
    });
}

#[test]
fn a_thread_hears_of_room() {
    with_pairs(|[client, server]| {
        // More than rings hold, and the kernel behind those of TCP.
        let all = vec![1; if client.transport() == TransportKind::Peer { 1 << 20 } else { 16 << 20 }];
        let (mut client, mut server) = (Blocking::new(client), Blocking::new(server));
        std::thread::scope(|scope| {
            let writer = spawn_asleep_in(scope, || client.write_all(&all));
            server.read_exact(&mut vec![0; all.len()]).expect("received");
            writer.join().expect("no panic").expect("sent");
        });
    });
}

/// All that wait hear of it, whichever of them goes first.
#[test]
fn threads_that_wait_for_one_half_are_all_woken() {
    with_pairs(|[client, server]| {
        let mut client = Blocking::new(client);
        let half = Mutex::new(Some(server.into_split().0));
        std::thread::scope(|scope| {
            let readers = [(); 3].map(|()| asleep(scope, &half));
            let mut got: Vec<_> = (0..3).collect();
            got.iter().for_each(|byte| client.write_all(&[*byte]).expect("sent"));
            got.clear();
            got.extend(readers.into_iter().filter_map(|reader| reader.join().expect("no panic")));
            got.sort_unstable();
            assert_eq!(got, [0, 1, 2]);
        });
    });
}

#[test]
fn threads_hear_of_a_shutdown_by_another() {
    with_pairs(|[client, server]| {
        let half = Mutex::new(Some(server.into_split().0));
        std::thread::scope(|scope| {
            let readers = [(); 2].map(|()| asleep(scope, &half));
            lock(&half).as_mut().expect("open").stop();
            readers.into_iter().for_each(|reader| assert_eq!(reader.join().expect("no panic"), None));
        });
        drop(client);
    });
}

#[test]
fn threads_hear_of_a_close_by_another() {
    with_pairs(|[client, server]| {
        let (read, write) = server.into_split();
        let half = Mutex::new(Some(read));
        std::thread::scope(|scope| {
            let readers = [(); 2].map(|()| asleep(scope, &half));
            let read = lock(&half).take().expect("open");
            drop(Stream::reunite(read, write));
            readers.into_iter().for_each(|reader| assert_eq!(reader.join().expect("no panic"), None));
        });
        drop(client);
    });
}

#[test]
fn a_thread_that_waits_for_so_long_is_told() {
    with_pairs(|[client, server]| {
        let (mut client, mut server) = (Blocking::new(client), Blocking::new(server));
        server.set_timeout(Some(Duration::from_millis(1)));
        let failed = server.read(&mut [0]).expect_err("nothing comes");
        assert_eq!(failed.raw_os_error(), Some(libc::ETIMEDOUT));
        // A thread that spins finds what comes without a sleep.
        client.set_spin(Duration::from_secs(60));
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut byte = [0];
                client.read_exact(&mut byte).map(|()| byte)
            });
            server.write_all(&[5]).expect("sent");
            assert_eq!(reader.join().expect("no panic").expect("received"), [5]);
        });
    });
}
