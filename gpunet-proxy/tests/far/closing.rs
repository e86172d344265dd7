//! Ends, failures, and memory that is used again.

use crate::pair::{ONE, Two, ends, listen, peer};
use crate::support::asleep::spawn_asleep_in;
use crate::support::{Memory, World, bounded, until};
use gpunet_device::{Error, Stream, Timeout};
use std::time::Duration;

#[test]
fn rings_are_used_again_and_begin_at_zero() {
    bounded(|| {
        let two = Two::new();
        let (sent, got) = (Memory::filled(7, 0, 10_000), Memory::new(10_000));
        for _ in 0..50 {
            let (mut client, mut server) = ends(&two, peer());
            client.send_all(&ONE, sent.buffer()).expect("room");
            client.close(&ONE).expect("open");
            assert_eq!(server.recv_exact(&ONE, got.buffer()), Ok(10_000));
            assert!(got.holds(0, 10_000, 7, 0));
            assert_eq!(server.recv(&ONE, got.buffer()), Ok(0), "the end follows the data");
            server.close(&ONE).expect("open");
        }
        two.end();
    });
}

#[test]
fn an_attachment_that_closes_ends_its_streams_after_the_data() {
    bounded(|| {
        let two = Two::new();
        let (mut client, mut server) = ends(&two, peer());
        let (sent, got) = (Memory::filled(9, 0, 5000), Memory::new(5000));
        client.send_all(&ONE, sent.buffer()).expect("room");
        let (_, attachment, token) = two.there.apart();
        drop(token);
        drop(attachment);
        assert_eq!(server.recv_exact(&ONE, got.buffer()), Ok(5000));
        assert!(got.holds(0, 5000, 9, 0));
        assert_eq!(server.recv(&ONE, got.buffer()), Ok(0));
        // The ring has room for some, as a socket's buffer has.
        let broken = (0..100).find_map(|_| server.send_all(&ONE, sent.buffer()).err());
        assert_eq!(broken, Some(Error::BrokenPipe));
        server.close(&ONE).expect("open");
        // Another one can come, and has an arena of its own.
        let there = World::beside(&two.here);
        let two = Two { here: two.here, there };
        let (client, server) = ends(&two, peer());
        client.close(&ONE).expect("open");
        server.close(&ONE).expect("open");
        two.end();
    });
}

#[test]
fn a_connect_that_is_given_up_leaves_nothing() {
    bounded(|| {
        let two = Two::new();
        let options = peer().with_timeouts(Timeout::ms(20), Timeout::NEVER);
        let listener = listen(two.here.net(), options);
        let addr = listener.local_addr();
        assert_eq!(Stream::connect_with(&ONE, two.there.net(), addr, options).err(), Some(Error::TimedOut));
        listener.close(&ONE).expect("open");
        assert_eq!(
            Stream::connect_with(&ONE, two.there.net(), addr, options).err(),
            Some(Error::ConnectionRefused)
        );
        two.end();
    });
}

#[test]
fn a_closing_listener_refuses_who_waits_from_elsewhere() {
    bounded(|| {
        let two = Two::new();
        let listener = listen(two.here.net(), peer());
        let (addr, there) = (listener.local_addr(), two.there.net());
        std::thread::scope(|scope| {
            let client = scope.spawn(move || Stream::connect_with(&ONE, there, addr, peer()).err());
            two.there.expect_requests(1);
            listener.close(&ONE).expect("open");
            assert_eq!(client.join().expect("no panic"), Some(Error::ConnectionRefused));
        });
        two.end();
    });
}

#[test]
fn a_sleeping_reader_and_a_sleeping_writer_are_woken() {
    bounded(|| {
        let two = Two::new();
        let (mut client, server) = ends(&two, peer().with_rings(4096, 4096));
        let (sent, got) = (Memory::filled(3, 0, 64 << 10), Memory::new(64 << 10));
        let into = got.buffer();
        let (here, handle) = (two.here.net(), server.handle());
        let mut round = || {
            std::thread::scope(|scope| {
                let read = move || Stream::from_handle(&ONE, here, handle)?.recv_exact(&ONE, into);
                let reader = spawn_asleep_in(scope, read);
                let before = std::time::Instant::now();
                client.send_all(&ONE, sent.buffer()).expect("a reader");
                assert_eq!(reader.join().expect("no panic"), Ok(64 << 10));
                before.elapsed()
            })
        };
        // Sixteen rings full: if each had to wait for the waiters' own look, it would take seconds,
        // each time.
        assert!((0..5).any(|_| round() < Duration::from_secs(2)), "nobody was woken");
        client.close(&ONE).expect("open");
        // The other thread's copy has moved on.
        let server = Stream::from_handle(&ONE, two.here.net(), server.handle()).expect("open");
        server.close(&ONE).expect("open");
        two.end();
    });
}

#[test]
fn a_poller_that_sleeps_is_woken_by_the_bell() {
    use gpunet_device::poll::{POLLIN, PollFd, PollSet, poll};
    bounded(|| {
        let two = Two::new();
        let (mut client, mut server) = ends(&two, peer());
        let (here, sent, got) = (two.here.net(), Memory::filled(3, 0, 100), Memory::new(100));
        let handle = server.handle().raw();
        let mut round = || {
            std::thread::scope(|scope| {
                let poller = spawn_asleep_in(scope, move || {
                    let mut fds = [PollFd { handle, events: POLLIN, revents: 0 }];
                    // SAFETY: the entry lives until the poll is over, and nobody else uses it.
                    let set = unsafe { PollSet::from_raw_parts(fds.as_mut_ptr(), 1) };
                    let began = std::time::Instant::now();
                    let ready = poll(&ONE, here, set, Timeout::NEVER);
                    (ready, began.elapsed())
                });
                client.send_all(&ONE, sent.buffer()).expect("room");
                let (ready, waited) = poller.join().expect("no panic");
                assert_eq!(ready, Ok(1));
                assert_eq!(server.recv(&ONE, got.buffer()), Ok(100));
                waited
            })
        };
        // By its own look a poller wakes after 200 ms, on however busy a machine.
        let quick = (0..10).any(|_| round() < Duration::from_millis(150));
        assert!(quick, "the poller woke by its own look");
        client.close(&ONE).expect("open");
        server.close(&ONE).expect("open");
        until("nothing is left", || two.here.attachment().usage().sockets == 0);
        two.end();
    });
}

#[test]
fn a_close_while_the_other_side_copies_breaks_its_pipe_and_frees_everything() {
    bounded(|| {
        let two = Two::new();
        for (linger, expected) in [(-1, Error::BrokenPipe), (0, Error::ConnectionReset)] {
            let options = peer().with_rings(64 << 10, 64 << 10).with_linger_ms(linger);
            let (client, mut server) = ends(&two, options);
            let (there, handle) = (two.there.net(), client.handle());
            let (sent, got) = (Memory::filled(3, 0, 40_000), Memory::new(50_000));
            let from = sent.buffer();
            std::thread::scope(|scope| {
                let sender = scope.spawn(move || {
                    let mut stream = Stream::from_handle(&ONE, there, handle)?;
                    let error = loop {
                        if let Err(error) = stream.send_all(&ONE, from) {
                            break error;
                        }
                    };
                    stream.close(&ONE)?;
                    Ok::<_, Error>(error)
                });
                for _ in 0..20 {
                    server.recv(&ONE, got.buffer()).expect("data");
                }
                server.close(&ONE).expect("open");
                let error = sender.join().expect("no panic").expect("open until then");
                // A reset closes without END, and the sender may see either first.
                assert!(error == expected || error == Error::BrokenPipe, "{error}");
            });
        }
        two.here.expect_all_free();
        two.there.expect_all_free();
    });
}
