//! Arrays that go from one end to the other, by every way.

use gpunet_channel::{
    Array, ArrayMut, Channel, ChannelError, ChannelListener, ChannelOptions, Dtype, Reason, Side,
    TransferOptions, Via,
};
use proptest::prelude::ProptestConfig;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// Both ends of a channel, with the connecting end's settings and the accepting end's.
fn pair(near: &ChannelOptions, far: &ChannelOptions) -> (Channel, Channel) {
    let listener = ChannelListener::bind("127.0.0.1:0".parse().unwrap(), far).expect("a listener");
    let addr = listener.local_addr().expect("an address");
    thread::scope(|scope| {
        let accepted = scope.spawn(|| listener.accept().expect("a channel"));
        let connected = Channel::connect(addr, near).expect("a channel");
        (connected, accepted.join().expect("no panic"))
    })
}

fn options(streams: usize, rendezvous: bool) -> ChannelOptions {
    ChannelOptions { streams, rendezvous, piece: 64 << 10, ..ChannelOptions::default() }
}

/// Bytes that differ from place to place, and from seed to seed.
fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

#[test]
fn every_size_arrives_whole_by_every_way() {
    for streams in [1, 4] {
        for rendezvous in [false, true] {
            let (mut near, mut far) = pair(&options(streams, rendezvous), &options(1, true));
            let expected = if rendezvous { None } else { Some(Reason::SwitchedOff) };
            assert_eq!((near.why_not_local(), far.why_not_local()), (expected, expected));
            for checksum in [false, true] {
                for (seed, len) in
                    [0, 1, 65_535, 65_536, 65_537, 131_072, 1_000_003, 5 << 20].into_iter().enumerate()
                {
                    let bytes = pattern(len, seed as u64);
                    let mut got = vec![0; len];
                    let transfer = TransferOptions { checksum, ..TransferOptions::default() };
                    let (sent, received) = thread::scope(|scope| {
                        let sent = scope.spawn(|| near.send_all(&[Array::of(&bytes)], &transfer));
                        let received = far.recv_into(&mut ArrayMut::of(&mut got));
                        (sent.join().expect("no panic").expect("sent"), received.expect("received"))
                    });
                    assert!(got == bytes, "{len} bytes by {}", sent.via);
                    assert_eq!((sent, sent.bytes), (received, len as u64));
                    let why = if checksum { Reason::ChecksumAsked } else { Reason::SwitchedOff };
                    match sent.via {
                        Via::Header => assert!(len <= 65_536),
                        Via::Copy => assert!(rendezvous && !checksum && len > 65_536),
                        Via::Connections { count, reason } => {
                            assert!(len > 65_536 && usize::from(count) == streams.min(len.div_ceil(65_536)));
                            assert_eq!(reason, if rendezvous { why } else { Reason::SwitchedOff });
                        }
                        other => panic!("{other}"),
                    }
                }
            }
        }
    }
}

/// What fits one piece is not asked for: it follows the header, also while others are under way,
/// and when it is refused.
#[test]
fn one_piece_follows_its_header() {
    let settings = ChannelOptions { streams: 2, rendezvous: false, ..ChannelOptions::default() };
    let (mut near, mut far) = pair(&settings, &settings);
    let lens =
        [65_537, 1 << 20, (1 << 20) + 1, 700_000, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 300_000];
    let payloads: Vec<Vec<u8>> = lens.iter().map(|&len| pattern(len, len as u64)).collect();
    thread::scope(|scope| {
        let payloads = &payloads;
        let sending = scope.spawn(move || {
            let mut pipeline = near.pipeline(8);
            for (at, bytes) in payloads.iter().enumerate() {
                let transfer = TransferOptions { checksum: at % 2 == 1, ..TransferOptions::default() };
                let (head, tail) = bytes.split_at(1000);
                pipeline.send(&[Array::of(head), Array::of(tail)], &transfer).expect("begun");
            }
            std::iter::from_fn(|| pipeline.next()).collect::<Vec<_>>()
        });
        for (at, bytes) in payloads.iter().enumerate() {
            let incoming = far.next().expect("a transfer").expect("one");
            if at == 3 {
                incoming.refuse(libc_errno("EFBIG"), "not this one").expect("told");
                continue;
            }
            let got = incoming.receive(&TransferOptions::default()).expect("received");
            assert!([&got[0].bytes[..], &got[1].bytes].concat() == *bytes, "transfer {at}");
        }
        for (at, sent) in sending.join().expect("no panic").into_iter().enumerate() {
            match sent {
                Ok(outcome) => assert_eq!(outcome.via == Via::Header, lens[at] <= 1 << 20, "{}", outcome.via),
                Err(error) => assert!(at == 3 && error.errno() == libc_errno("EFBIG"), "{error}"),
            }
        }
    });
}

/// Headers do not go by TCP where both ends are on one machine, unless the program wants them
/// apart.
#[test]
fn headers_go_by_a_socket_of_the_machine() {
    for rendezvous in [true, false] {
        let (near, far) = pair(&options(2, rendezvous), &options(1, true));
        for channel in [near, far] {
            let (_, receiver) = channel.split();
            let domain = rustix::net::sockopt::socket_domain(receiver.descriptor().expect("a socket"));
            let expected =
                if rendezvous { rustix::net::AddressFamily::UNIX } else { rustix::net::AddressFamily::INET };
            assert_eq!(domain.expect("a socket"), expected);
        }
    }
}

#[test]
fn many_arrays_are_one_transfer_and_are_found_by_their_names() {
    for rendezvous in [false, true] {
        let (mut near, mut far) = pair(&options(3, rendezvous), &options(1, true));
        let parts: Vec<Vec<u8>> =
            (0..40).map(|seed| pattern((seed * 7919) as usize % 50_000, seed)).collect();
        let arrays: Vec<Array<'_>> =
            parts.iter().enumerate().map(|(at, part)| Array::of(part).named(format!("layer.{at}"))).collect();
        let sending = thread::spawn({
            let parts = parts.clone();
            move || {
                let arrays: Vec<Array<'_>> = parts
                    .iter()
                    .enumerate()
                    .map(|(at, part)| Array::of(part).named(format!("layer.{at}")))
                    .collect();
                let first = near.send_all(&arrays, &TransferOptions::default()).expect("sent");
                assert_eq!(first, near.send_all(&arrays, &TransferOptions::default()).expect("sent"));
            }
        });
        let received = far.recv().expect("received").expect("a transfer");
        assert_eq!(received.len(), arrays.len());
        for (at, array) in received.iter().enumerate() {
            assert_eq!((&array.name, &array.bytes), (&format!("layer.{at}"), &parts[at]));
        }
        // In the other order.
        let mut memory: Vec<Vec<u8>> = parts.iter().map(|part| vec![0; part.len()]).collect();
        let wanted: Vec<ArrayMut<'_>> = memory
            .iter_mut()
            .enumerate()
            .rev()
            .map(|(at, bytes)| ArrayMut::of(bytes).named(format!("layer.{at}")))
            .collect();
        let incoming = far.next().expect("a transfer").expect("one");
        incoming.into_arrays(wanted, &TransferOptions::default()).expect("received");
        assert!(memory == parts);
        sending.join().expect("no panic");
    }
}

/// A transfer of a pipeline: its length, whether the receiver takes it, and whether it is checked.
type Planned = (usize, bool, bool);

/// Sends through a pipeline, and returns what became of each at either end.
fn pipelined(planned: &[Planned], under_way: usize, rendezvous: bool) -> Vec<Result<Via, i32>> {
    let (mut near, mut far) = pair(&options(3, rendezvous), &options(1, true));
    let payloads: Vec<Vec<u8>> =
        planned.iter().enumerate().map(|(seed, &(len, ..))| pattern(len, seed as u64)).collect();
    let (sent, received) = thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let mut pipeline = near.pipeline(under_way);
            let mut results = Vec::new();
            for ((bytes, &(_, _, checksum)), at) in payloads.iter().zip(planned).zip(0..) {
                let transfer = TransferOptions { checksum, ..TransferOptions::default() };
                pipeline.send(&[Array::of(bytes).named(format!("{at}"))], &transfer).expect("begun");
                if at % 5 == 4 {
                    results.push(pipeline.next().expect("one is under way"));
                }
            }
            results.extend(std::iter::from_fn(|| pipeline.next()));
            assert!(pipeline.finish().expect("none is left").is_empty());
            drop(near);
            results
        });
        let mut received = Vec::new();
        for (at, &(len, takes, _)) in planned.iter().enumerate() {
            let incoming = far.next().expect("a transfer").expect("one");
            assert_eq!(incoming.arrays()[0].name, at.to_string(), "in the order of the sender");
            if takes {
                let mut got = vec![0; len];
                let outcome = incoming.into_arrays(vec![ArrayMut::of(&mut got)], &TransferOptions::default());
                assert!(got == payloads[at], "transfer {at}");
                received.push(outcome);
            } else {
                incoming.refuse(libc_errno("EFBIG"), "not this one").expect("told");
                received.push(Err(ChannelError::Mismatch(String::new())));
            }
        }
        assert!(far.recv().expect("the end").is_none());
        (sending.join().expect("no panic"), received)
    });
    assert_eq!(sent.len(), planned.len());
    for (sent, received) in sent.iter().zip(&received) {
        assert_eq!(sent.as_ref().ok(), received.as_ref().ok());
    }
    sent.into_iter().map(|result| result.map(|outcome| outcome.via).map_err(|error| error.errno())).collect()
}

#[test]
fn transfers_under_way_arrive_whole_in_order_and_each_has_its_result() {
    let planned: Vec<Planned> = [0, 70_000, 65_536, 500_000, 1, 131_073, 300_000, 65_537, 9]
        .into_iter()
        .cycle()
        .take(40)
        .enumerate()
        .map(|(at, len)| (len, at % 7 != 3, at % 4 == 2))
        .collect();
    for rendezvous in [false, true] {
        for under_way in [1, 4, 100] {
            for (result, &(len, takes, checksum)) in
                pipelined(&planned, under_way, rendezvous).into_iter().zip(&planned)
            {
                match result {
                    Err(errno) => assert!(!takes && errno == libc_errno("EFBIG"), "{errno}"),
                    Ok(Via::Header) => assert!(takes && len <= 65_536),
                    Ok(Via::Copy) => assert!(takes && len > 65_536 && rendezvous && !checksum),
                    Ok(_) => assert!(takes && len > 65_536 && (!rendezvous || checksum)),
                }
            }
        }
    }
}

/// A hundred cases, or as many as `PROPTEST_CASES` says: 900 are some 11,000 transfers.
fn cases() -> ProptestConfig {
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => ProptestConfig::default(),
        None => ProptestConfig::with_cases(100),
    }
}

proptest::proptest! {
    #![proptest_config(cases())]
    /// As many results as transfers, whatever their sizes, and those that were taken are whole.
    #[test]
    fn any_sequence_goes_through_a_pipeline(
        planned in proptest::collection::vec((0usize..200_000, proptest::prelude::any::<bool>(), proptest::prelude::any::<bool>()), 0..25),
        under_way in 1usize..8,
        rendezvous in proptest::prelude::any::<bool>(),
    ) {
        let results = pipelined(&planned, under_way, rendezvous);
        for (result, (_, takes, _)) in results.into_iter().zip(planned) {
            proptest::prop_assert_eq!(result.is_ok(), takes);
        }
    }
}

/// The headers are so large that the receiver could not keep two of them.
#[test]
fn large_headers_do_not_run_ahead() {
    let (mut near, mut far) = pair(&options(2, false), &options(1, true));
    let element = [1u8; 3];
    let arrays: Vec<Array<'_>> =
        (0..30_000).map(|at| Array::of(&element).named(format!("{at:0>80}"))).collect();
    thread::scope(|scope| {
        let arrays = &arrays;
        scope.spawn(move || {
            let mut pipeline = near.pipeline(8);
            for _ in 0..4 {
                pipeline.send(arrays, &TransferOptions::default()).expect("begun");
            }
            assert_eq!(pipeline.finish().expect("sent").len(), 4);
        });
        for _ in 0..4 {
            assert_eq!(far.recv().expect("received").expect("one").len(), arrays.len());
        }
    });
}

#[test]
fn what_does_not_fit_is_refused_at_both_ends_and_the_channel_goes_on() {
    for (len, rendezvous) in [(100, true), (1 << 20, true), (1 << 20, false)] {
        let far_options = ChannelOptions { most: 2 << 20, ..options(1, true) };
        let (mut near, mut far) = pair(&options(2, rendezvous), &far_options);
        let bytes = pattern(len, 1);
        let sending = thread::spawn({
            let bytes = bytes.clone();
            move || {
                let refused: Vec<_> =
                    (0..4).map(|_| near.send(&Array::of(&bytes)).expect_err("refused")).collect();
                let large = vec![0u8; 3 << 20];
                let too_large = near.send(&Array::of(&large)).expect_err("refused");
                near.send(&Array::of(&bytes)).expect("the channel goes on");
                (refused, too_large)
            }
        });
        let mut memory = vec![0; len + 1];
        let short = far.recv_into(&mut ArrayMut::of(&mut memory[..len - 1])).expect_err("another length");
        assert!(matches!(&short, ChannelError::Mismatch(why) if why.contains("uint8")), "{short}");
        let signed: &mut [i8] = &mut vec![0; len];
        let other = far.recv_into(&mut ArrayMut::of(signed)).expect_err("another type");
        assert_eq!(other.errno(), libc_errno("EMSGSIZE"));
        far.next().expect("a transfer").expect("one").refuse(libc_errno("EFBIG"), "not today").expect("told");
        drop(far.next().expect("a transfer").expect("one"));
        let too_large = far.recv().expect_err("more than is allowed");
        assert!(matches!(too_large, ChannelError::Mismatch(_)), "{too_large}");
        far.recv_into(&mut ArrayMut::of(&mut memory[..len])).expect("the channel goes on");
        assert!(memory[..len] == bytes);
        let (refused, too_large) = sending.join().expect("no panic");
        let errnos: Vec<i32> = refused.iter().map(ChannelError::errno).collect();
        let expected = ["EMSGSIZE", "EMSGSIZE", "EFBIG", "ECANCELED"].map(libc_errno);
        assert_eq!(errnos, expected);
        assert!(refused[2].to_string().contains("not today"), "{}", refused[2]);
        assert_eq!(too_large.errno(), libc_errno("EFBIG"));
    }
}

fn libc_errno(name: &str) -> i32 {
    match name {
        "EMSGSIZE" => 90,
        "EFBIG" => 27,
        "ECANCELED" => 125,
        "ETIMEDOUT" => 110,
        "ECONNRESET" => 104,
        "EPIPE" => 32,
        other => panic!("{other}"),
    }
}

#[test]
fn both_directions_go_at_once() {
    let (near, far) = pair(&options(3, false), &options(1, true));
    let bytes = pattern(3 << 20, 3);
    thread::scope(|scope| {
        for channel in [near, far] {
            let (mut sender, mut receiver) = channel.split();
            let bytes = &bytes;
            scope.spawn(move || {
                for _ in 0..5 {
                    sender.send(&Array::of(bytes)).expect("sent");
                }
            });
            scope.spawn(move || {
                let mut got = vec![0; bytes.len()];
                for _ in 0..5 {
                    got.fill(0);
                    receiver.recv_into(&mut ArrayMut::of(&mut got)).expect("received");
                    assert!(got == *bytes);
                }
                assert!(receiver.recv().expect("the end").is_none());
            });
        }
    });
}

#[test]
fn progress_comes_to_the_end_and_never_beyond() {
    for rendezvous in [false, true] {
        let (mut near, mut far) = pair(&options(2, rendezvous), &options(1, true));
        let bytes = pattern(1 << 20, 5);
        let seen = [Mutex::new(Vec::new()), Mutex::new(Vec::new())];
        thread::scope(|scope| {
            scope.spawn(|| {
                let show = |done, total| seen[0].lock().unwrap().push((done, total));
                let transfer = TransferOptions { progress: Some(&show), ..TransferOptions::default() };
                near.send_all(&[Array::of(&bytes)], &transfer).expect("sent");
            });
            let show = |done, total| seen[1].lock().unwrap().push((done, total));
            let transfer = TransferOptions { progress: Some(&show), ..TransferOptions::default() };
            far.next().expect("a transfer").expect("one").receive(&transfer).expect("received");
        });
        for (end, seen) in seen.iter().enumerate() {
            let seen = seen.lock().unwrap();
            assert!(seen.iter().all(|&(done, total)| done <= total && total == 1 << 20), "{seen:?}");
            assert_eq!(seen.last(), Some(&(1 << 20, 1 << 20)));
            assert!(seen.len() > 10 || rendezvous && end == 0, "{seen:?}");
        }
    }
}

#[test]
fn a_wait_for_a_transfer_can_be_bounded_and_loses_nothing() {
    let (mut near, far) = pair(&options(1, true), &options(1, true));
    let (_sender, mut receiver) = far.split();
    for _ in 0..2 {
        let error = receiver.next_until(Some(Instant::now())).expect_err("nothing was sent");
        assert_eq!(error.errno(), libc_errno("ETIMEDOUT"));
    }
    let sending = thread::spawn(move || near.send(&Array::of(&[1u8, 2, 3])).map(drop));
    assert_eq!(receiver.recv().expect("received").expect("one")[0].bytes, [1, 2, 3]);
    sending.join().expect("no panic").expect("sent");
}

#[test]
fn a_transfer_that_was_looked_at_is_the_next_one() {
    let (mut near, far) = pair(&options(2, false), &options(2, false));
    let bytes = pattern(200_000, 3);
    thread::scope(|scope| {
        let sending = scope.spawn(|| {
            assert!(near.send(&Array::of(&bytes).named("refused")).is_err());
            near.send(&Array::of(&bytes).named("taken")).expect("sent");
            drop(near);
        });
        let (_, mut receiver) = far.split();
        let seen = |receiver: &mut gpunet_channel::Receiver| {
            let arrays = receiver.peek_until(None).expect("a header").expect("one");
            (arrays[0].name.clone(), arrays[0].bytes())
        };
        for _ in 0..2 {
            assert_eq!(seen(&mut receiver), ("refused".to_owned(), 200_000));
        }
        receiver.next().expect("a header").expect("one").refuse(22, "not this one").expect("refused");
        assert_eq!(seen(&mut receiver), ("taken".to_owned(), 200_000));
        let mut got = vec![0; bytes.len()];
        receiver.recv_into(&mut ArrayMut::of(&mut got)).expect("received");
        assert!(got == bytes);
        for _ in 0..2 {
            assert!(receiver.peek_until(None).expect("the end").is_none());
        }
        sending.join().expect("no panic");
    });
}

#[test]
fn an_end_from_another_thread_ends_what_waits_at_both_ends() {
    let (mut near, mut far) = pair(&options(2, true), &options(2, true));
    let ender = near.ender();
    let bytes = pattern(200_000, 4);
    let (sent, received) = thread::scope(|scope| {
        let sending = scope.spawn(|| near.send(&Array::of(&bytes)));
        // The header has come, so the sender waits for the answer.
        let incoming = far.next().expect("a header").expect("one");
        ender.end("enough");
        let sent = sending.join().expect("no panic");
        let mut got = vec![0u8; bytes.len()];
        (sent, incoming.into_arrays(vec![ArrayMut::of(&mut got)], &TransferOptions::default()))
    });
    assert_eq!(sent.expect_err("ended").errno(), libc_errno("ECONNRESET"));
    assert_eq!(received.expect_err("ended").errno(), libc_errno("ECONNRESET"));
    let later = near.send(&Array::of(&bytes)).expect_err("broken");
    assert!(later.to_string().contains("enough"), "{later}");
    drop(near);
    ender.end("there is nothing");
}

#[test]
fn an_accept_without_patience_takes_what_has_come() {
    let listener =
        ChannelListener::bind("127.0.0.1:0".parse().unwrap(), &options(2, true)).expect("a listener");
    let addr = listener.local_addr().expect("an address");
    let connecting = thread::spawn(move || Channel::connect(addr, &options(2, true)).map(drop));
    let accepted = loop {
        match listener.accept_until(Some(Instant::now())) {
            Ok(channel) => break Some(channel),
            // The connect gives up in time, if nobody answers.
            Err(error) if error.errno() == libc_errno("ETIMEDOUT") && !connecting.is_finished() => {}
            Err(_) => break None,
        }
    };
    assert!(accepted.is_some());
    connecting.join().expect("no panic").expect("connected");
}

#[test]
fn a_listener_that_is_shut_down_ends_accepts() {
    let listener =
        ChannelListener::bind("127.0.0.1:0".parse().unwrap(), &options(2, true)).expect("a listener");
    thread::scope(|scope| {
        let accepting = scope.spawn(|| listener.accept());
        listener.shut_down();
        assert!(accepting.join().expect("no panic").is_err());
    });
}

#[test]
fn a_sender_whom_nobody_receives_from_gives_up_and_the_channel_with_it() {
    for rendezvous in [false, true] {
        let (mut near, mut far) = pair(&options(2, rendezvous), &options(1, true));
        let bytes = pattern(1 << 20, 7);
        let soon = Some(Instant::now() + Duration::from_millis(50));
        let transfer = TransferOptions { deadline: soon, ..TransferOptions::default() };
        let error = near.send_all(&[Array::of(&bytes)], &transfer).expect_err("nobody receives");
        assert_eq!(error.errno(), libc_errno("ETIMEDOUT"), "{error}");
        let again = near.send(&Array::of(&bytes)).expect_err("it is broken");
        assert!(matches!(again, ChannelError::Broken(_)) && again.errno() == libc_errno("EPIPE"), "{again}");
        let mut got = vec![0u8; bytes.len()];
        let error = far.recv_into(&mut ArrayMut::of(&mut got)).expect_err("the sender has given up");
        assert_eq!(error.errno(), libc_errno("ECONNRESET"), "{error}");
    }
}

/// The receiver's copy runs while the sender gives up and uses its memory for something else.
#[test]
fn an_array_is_not_whole_if_its_sender_gave_up_during_the_copy() {
    let (mut near, mut far) = pair(&options(1, true), &options(1, true));
    let mut bytes = vec![1u8; 1 << 20];
    let (gave_up, has_given_up) = std::sync::mpsc::channel();
    let (begun, has_begun) = std::sync::mpsc::channel();
    thread::scope(|scope| {
        let bytes = &mut bytes;
        scope.spawn(move || {
            // It cannot end before the receiver has begun, and has little to wait for then.
            let soon = Instant::now() + Duration::from_millis(300);
            let transfer = TransferOptions { deadline: Some(soon), ..TransferOptions::default() };
            let error = near.send_all(&[Array::of(bytes)], &transfer).expect_err("it takes too long");
            assert_eq!(error.errno(), libc_errno("ETIMEDOUT"), "{error}");
            has_begun.recv().expect("the copy was under way");
            bytes.fill(2);
            gave_up.send(()).expect("the receiver waits");
        });
        let (once, has_given_up) = (std::sync::Once::new(), Mutex::new(has_given_up));
        let show = |_, _| {
            once.call_once(|| {
                begun.send(()).expect("the sender waits");
                has_given_up.lock().unwrap().recv().expect("the sender gives up");
            });
        };
        let transfer = TransferOptions { progress: Some(&show), ..TransferOptions::default() };
        let error =
            far.next().expect("a transfer").expect("one").receive(&transfer).expect_err("a torn array");
        assert_eq!(error.errno(), libc_errno("ECONNRESET"), "{error}");
    });
}

#[test]
fn a_closed_half_is_the_end_and_the_other_direction_goes_on() {
    let (near, far) = pair(&options(2, true), &options(1, true));
    let (sender, mut receiver) = near.split();
    let (mut far_sender, mut far_receiver) = far.split();
    drop(sender);
    assert!(far_receiver.recv().expect("the end").is_none());
    assert!(far_receiver.recv().expect("still the end").is_none());
    let sending = thread::spawn(move || far_sender.send(&Array::of(&[5u16])).map(drop));
    assert_eq!(receiver.recv().expect("received").expect("one")[0].to_vec::<u16>(), Some(vec![5]));
    sending.join().expect("no panic").expect("sent");
    assert!(receiver.recv().expect("the end").is_none());
}

#[test]
fn types_and_shapes_arrive_as_they_are() {
    let (mut near, mut far) = pair(&options(1, true), &options(1, true));
    let sending = thread::spawn(move || {
        let halves = [1u8, 2, 3, 4, 5, 6];
        let nibbles = Dtype { code: 1, bits: 4, lanes: 1 };
        let arrays = [
            Array::new(Dtype::BF16, &[3, 1], &halves).unwrap().named("half"),
            Array::new(nibbles, &[5], &halves[..3]).unwrap().named("quarter"),
            Array::of(&[1.5f64]).with_shape(&[]).unwrap().named("scalar"),
            Array::of::<i32>(&[]).with_shape(&[4, 0]).unwrap().named("empty"),
        ];
        assert!(Array::new(nibbles, &[5], &halves[..2]).is_err());
        near.send_all(&arrays, &TransferOptions::default()).map(drop)
    });
    let arrays = far.recv().expect("received").expect("one");
    let described: Vec<_> =
        arrays.iter().map(|array| (array.dtype.to_string(), array.shape.clone())).collect();
    let shapes = [("bfloat16", vec![3, 1]), ("uint4", vec![5]), ("float64", vec![]), ("int32", vec![4, 0])];
    assert_eq!(described, shapes.map(|(name, shape)| (name.to_owned(), shape)));
    assert_eq!(arrays[2].to_vec::<f64>(), Some(vec![1.5]));
    assert_eq!(arrays[2].to_vec::<f32>(), None);
    sending.join().expect("no panic").expect("sent");
}

/// Over streams of gpunet's own, by two transports.
#[test]
fn streams_of_any_transport_become_a_channel() {
    use gpunet_proxy::abi::{Options, TransportKind};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let host = gpunet_proxy::embed(gpunet_proxy::Config::small()).expect("a proxy").host().expect("a host");
    for transport in [TransportKind::Tcp, TransportKind::Peer] {
        let wanted = Options::DEFAULT.with_transport(transport);
        let (mut near, mut far) = (Vec::new(), Vec::new());
        runtime.block_on(async {
            let listener = host.bind("127.0.0.1:0".parse().unwrap(), wanted, 8).await.expect("a listener");
            let addr = listener.local_addr().expect("an address");
            for _ in 0..3 {
                let both = tokio::try_join!(host.connect(addr, wanted), listener.accept());
                let (connected, (accepted, _)) = both.expect("a stream");
                near.push(connected);
                far.push(accepted);
            }
        });
        let bytes = pattern(1 << 20, 11);
        let settings = options(2, false);
        let receiving = thread::spawn({
            let (bytes, settings) = (bytes.clone(), settings.clone());
            move || {
                far.reverse();
                let mut channel = Channel::of_streams(far, Side::Accepts, &settings).expect("a channel");
                for _ in 0..2 {
                    let arrays = channel.recv().expect("received").expect("one");
                    assert!(arrays[0].bytes == bytes);
                }
                assert!(channel.recv().expect("the end").is_none());
            }
        });
        let mut channel = Channel::of_streams(near, Side::Connects, &settings).expect("a channel");
        let transfer = TransferOptions { checksum: true, ..TransferOptions::default() };
        for _ in 0..2 {
            let sent = channel.send_all(&[Array::of(&bytes)], &transfer).expect("sent");
            assert_eq!(sent.via, Via::Connections { count: 2, reason: Reason::SwitchedOff });
        }
        drop(channel);
        receiving.join().expect("no panic");
    }
}

/// Streams of which no channel can be made are closed, and the error says why.
#[test]
fn streams_that_make_no_channel_are_told_why() {
    use gpunet_proxy::abi::Options;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let host = gpunet_proxy::embed(gpunet_proxy::Config::small()).expect("a proxy").host().expect("a host");
    let pairs = |count: usize| {
        runtime.block_on(async {
            let any = "127.0.0.1:0".parse().unwrap();
            let listener = host.bind(any, Options::DEFAULT, 8).await.expect("a listener");
            let addr = listener.local_addr().expect("an address");
            let (mut near, mut far) = (Vec::new(), Vec::new());
            for _ in 0..count {
                let both = tokio::try_join!(host.connect(addr, Options::DEFAULT), listener.accept());
                let (connected, (accepted, _)) = both.expect("a stream");
                near.push(connected);
                far.push(accepted);
            }
            (near, far)
        })
    };
    let settings = options(1, false);
    let refused = |streams, side, settings: &ChannelOptions| {
        Channel::of_streams(streams, side, settings).expect_err("no channel")
    };

    let error = refused(pairs(1).0, Side::Connects, &settings);
    assert!(matches!(error, ChannelError::Invalid(_)), "{error}");
    assert!(error.to_string().contains("1 streams: a channel has 2 to 65"), "{error}");
    let error = refused(pairs(2).0, Side::Connects, &ChannelOptions { piece: 1, ..settings.clone() });
    assert!(error.to_string().contains("pieces of 1 bytes"), "{error}");

    // Two ends that both connect, or of which one has hung up.
    let (near, far) = pairs(2);
    thread::scope(|scope| {
        let other = scope.spawn(|| refused(far, Side::Connects, &settings));
        let error = refused(near, Side::Connects, &settings);
        let other = other.join().expect("no panic");
        let ours = [&error, &other].iter().any(|error| matches!(error, ChannelError::Protocol(_)));
        assert!(ours, "{error}; {other}");
    });
    let (near, far) = pairs(2);
    drop(far);
    assert_eq!(refused(near, Side::Accepts, &settings).errno(), libc::ECONNRESET);

    // Streams of two channels at one end.
    let (near, mut far) = pairs(2);
    let (others, mut other_far) = pairs(2);
    std::mem::swap(&mut far[1], &mut other_far[0]);
    thread::scope(|scope| {
        let clients =
            [near, others].map(|streams| scope.spawn(|| refused(streams, Side::Connects, &settings)));
        let error = refused(far, Side::Accepts, &settings);
        assert!(error.to_string().contains("not all of one channel"), "{error}");
        // Each hears it by its first stream.
        for client in clients {
            let error = client.join().expect("no panic");
            assert!(
                matches!(&error, ChannelError::Refused { reason, .. } if reason.contains("one channel")),
                "{error}"
            );
        }
        drop(other_far);
    });
}
