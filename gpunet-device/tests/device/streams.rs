//! Bytes through rings.

use crate::world::{LARGE, World, buffer, pattern};
use gpunet_device::abi::Word;
use gpunet_device::abi::entry::SlotState;
use gpunet_device::abi::layout::SocketLine;
use gpunet_device::abi::position::StreamWord;
use gpunet_device::copy::{copy_into_ring, copy_out_of_ring};
use gpunet_device::group::Solo;
use gpunet_device::send::PUBLISH_CHUNK;
use gpunet_device::{Error, Handle, RecvHalf, SendHalf, Shutdown, Stream, Timeout};
use gpunet_posix as posix;
use gpunet_posix::send::MSG_PEEK;
use std::mem::offset_of;

const G: Solo = Solo::new(0, 1);

#[test]
fn a_long_stream_crosses_a_small_ring() {
    let world = World::new();
    let (a, b) = world.open_pair(0, 1);
    let net = world.net();
    let mut sent = pattern(300_001);
    let expected = sent.clone();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut stream = Stream::from_handle(&G, net, a).unwrap();
            let source = buffer(&mut sent);
            let (mut at, mut step) = (0, 1);
            while at < source.len() {
                // Odd lengths, so that every misalignment comes up.
                at += stream.send(&G, source.skip(at).first(step)).unwrap();
                step = step % 6007 + 61;
            }
            stream.shutdown(&G, Shutdown::Write);
        });
        let mut stream = Stream::from_handle(&G, net, b).unwrap();
        let mut memory = vec![0; expected.len() + 1];
        assert_eq!(stream.recv_exact(&G, buffer(&mut memory)), Ok(expected.len()));
        assert!(memory[..expected.len()] == expected);
    });
}

#[test]
fn a_half_close_is_the_end_after_the_data() {
    let world = World::new();
    let (a, b) = world.open_pair(0, 1);
    let mut one = Stream::from_handle(&G, world.net(), a).unwrap();
    let mut other = Stream::from_handle(&G, world.net(), b).unwrap();
    one.send_all(&G, b"last words").unwrap();
    one.shutdown(&G, Shutdown::Write);
    assert_eq!(one.send(&G, b"more"), Err(Error::BrokenPipe));
    let mut memory = [0; 64];
    assert_eq!(other.recv(&G, buffer(&mut memory)), Ok(10));
    assert_eq!(other.recv(&G, buffer(&mut memory)), Ok(0));
    assert_eq!(other.recv(&G, buffer(&mut memory)), Ok(0));
    // The other direction is open.
    other.send_all(&G, b"yes").unwrap();
    assert_eq!(one.recv(&G, buffer(&mut memory)), Ok(3));
}

#[test]
fn the_end_is_behind_what_has_come_and_not_behind_what_a_peek_shows() {
    let world = World::new();
    let (a, b) = world.open_pair(0, 1);
    let (mut one, _) = Stream::from_handle(&G, world.net(), a).unwrap().split();
    let (_, mut other) = Stream::from_handle(&G, world.net(), b).unwrap().split();
    one.send_all(&G, b"some").unwrap();
    assert_eq!(other.peek(&G, 100).unwrap().len(), 4);
    assert!(!other.ends_after(4));
    one.send_all(&G, b" more").unwrap();
    one.shutdown(&G);
    // It shows a part of what it has found, and has seen the end.
    assert_eq!(other.peek(&G, 6).unwrap().len(), 6);
    assert!(other.has_ended() && !other.ends_after(6) && other.ends_after(9));
    other.release(&G, 6);
    assert_eq!(other.peek(&G, usize::MAX).unwrap().len(), 3);
    assert!(other.ends_after(3) && !other.ends_after(2));
    other.release(&G, 3);
    assert_eq!(other.available(&G), Ok(0));
    assert!(other.ends_after(0));
}

#[test]
fn nothing_is_committed_after_the_end() {
    let world = World::new();
    let (a, b) = world.open_pair(0, 1);
    let one = Stream::from_handle(&G, world.net(), a).unwrap();
    let mut other = Stream::from_handle(&G, world.net(), b).unwrap();
    let (mut sender, receiver) = one.split();
    assert_eq!(sender.reserve(&G, 5).map(|span| span.len()), Ok(5));
    sender.shutdown(&G);
    sender.commit(&G, 5);
    assert_eq!(sender.position(), 0);
    let one = Stream::join(sender, receiver).unwrap();
    let (_, foreign) = Stream::from_handle(&G, world.net(), b).unwrap().split();
    assert!(Stream::join(one.split().0, foreign).is_none());
    assert_eq!(other.recv(&G, buffer(&mut [0; 64])), Ok(0));
}

#[test]
fn a_full_ring_takes_part_of_a_send_and_then_nothing() {
    let world = World::new();
    let (a, b) = world.open_pair(0, 1);
    let mut one = Stream::from_handle(&G, world.net(), a).unwrap();
    let mut memory = pattern(5000);
    assert_eq!(one.send(&G, buffer(&mut memory)), Ok(4096));
    assert_eq!(one.try_send(&G, b"x"), Err(Error::WouldBlock));
    assert_eq!(one.sender().send_timeout(&G, b"x", Timeout::ms(1)), Err(Error::TimedOut));
    let mut other = Stream::from_handle(&G, world.net(), b).unwrap();
    let mut back = [0; 4096];
    assert_eq!(other.recv(&G, buffer(&mut back)), Ok(4096));
    assert_eq!(one.try_send(&G, b"x"), Ok(1));
    assert_eq!(other.try_recv(&G, buffer(&mut back)), Ok(1));
    assert_eq!(other.try_recv(&G, buffer(&mut back)), Err(Error::WouldBlock));
    assert_eq!(other.receiver().recv_timeout(&G, buffer(&mut back), Timeout::ms(1)), Err(Error::TimedOut));
}

#[test]
fn little_that_is_consumed_is_announced_when_a_wait_begins() {
    let world = World::new();
    let handle = world.open_driven(5);
    world.fill(5, 0, b"abc");
    world.landed(5).publish(3);
    let mut stream = Stream::from_handle(&G, world.net(), handle).unwrap();
    let mut memory = [0; 8];
    assert_eq!(stream.recv(&G, buffer(&mut memory)), Ok(3));
    assert_eq!(world.consumed(5).observe(), 0, "a release for three bytes");
    assert_eq!(stream.try_recv(&G, buffer(&mut memory)), Err(Error::WouldBlock));
    assert_eq!(world.consumed(5).observe(), 3);
    // A quarter of the ring is announced at once.
    world.landed(5).publish(3 + 2048);
    let mut memory = [0; 1024];
    assert_eq!(stream.recv(&G, buffer(&mut memory)), Ok(1024));
    assert_eq!(world.consumed(5).observe(), 3 + 1024);
    // It counts from what was announced last.
    assert_eq!(stream.recv(&G, buffer(&mut memory[..7])), Ok(7));
    assert_eq!(world.consumed(5).observe(), 3 + 1024);
}

#[test]
fn zero_copy_spans_wrap_round_the_ring() {
    let world = World::new();
    let (a, b) = world.open_pair(0, 1);
    let mut one = Stream::from_handle(&G, world.net(), a).unwrap();
    let mut other = Stream::from_handle(&G, world.net(), b).unwrap();
    let mut memory = pattern(4000);
    let mut back = vec![0; 4000];
    one.send_all(&G, buffer(&mut memory)).unwrap();
    assert_eq!(other.recv(&G, buffer(&mut back)), Ok(4000));

    let span = one.reserve(&G, 1000).unwrap();
    assert_eq!((span.first.len, span.second.len), (96, 904));
    // SAFETY: reserved, and the source is longer.
    unsafe { copy_into_ring(&G, span, memory.as_ptr()) };
    one.commit(&G, 1000);
    let span = other.peek(&G, 4096).unwrap();
    assert_eq!(span.len(), 1000);
    // SAFETY: peeked, and the destination is longer.
    unsafe { copy_out_of_ring(&G, back.as_mut_ptr(), span) };
    other.release(&G, span.len());
    assert!(back[..1000] == memory[..1000]);
    assert_eq!(one.reserve(&G, 0), Err(Error::InvalidArgument));
}

#[test]
fn a_stream_goes_on_by_its_handle() {
    let world = World::new();
    let (a, b) = world.open_pair(2, 9);
    let mut memory = [0; 4];
    for round in 0..4000u32 {
        let word = round.to_le_bytes();
        memory.copy_from_slice(&word);
        let mut stream = Stream::from_handle(&G, world.net(), a).unwrap();
        stream.send_all(&G, buffer(&mut memory)).unwrap();
        let mut stream = Stream::from_handle(&G, world.net(), b).unwrap();
        assert_eq!(stream.available(&G), Ok(4));
        assert_eq!(stream.recv_exact(&G, buffer(&mut memory)), Ok(4));
        assert_eq!(memory, word);
    }
    let mut stream = Stream::from_handle(&G, world.net(), a).unwrap();
    assert_eq!(stream.sender().position(), 16_000);
    let before = stream.out_queue(&G).unwrap();
    stream.send_all(&G, b"12345").unwrap();
    assert_eq!(stream.out_queue(&G), Ok(before + 5));
    assert_eq!(StreamWord(world.own_published(2).observe()).position(), 16_005);
}

#[test]
fn halves_are_found_by_handle_where_the_last_call_left_them() {
    let world = World::new();
    let (a, b) = world.open_pair(0, 1);
    let net = world.net();
    let mut memory = [0; 4];
    for round in 0..3000u32 {
        let mut bytes = round.to_le_bytes();
        SendHalf::from_handle(&G, net, a).unwrap().send_all(&G, buffer(&mut bytes)).unwrap();
        let mut half = RecvHalf::from_handle(&G, net, b).unwrap();
        assert_eq!(half.recv(&G, buffer(&mut memory)), Ok(4));
        assert_eq!(u32::from_le_bytes(memory), round);
    }
    let nobody = Handle::new(9, 1);
    assert_eq!(SendHalf::from_handle(&G, net, nobody).err(), Some(Error::BadHandle));
    assert_eq!(RecvHalf::from_handle(&G, net, nobody).err(), Some(Error::BadHandle));
}

/// SHUT_RD freezes the position: what still comes is neither counted nor received.
#[test]
fn nothing_is_available_after_a_shutdown_of_reading() {
    let world = World::new();
    let handle = world.open_driven(5);
    world.fill(5, 0, b"abcdef");
    world.landed(5).publish(3);
    let mut stream = Stream::from_handle(&G, world.net(), handle).unwrap();
    assert_eq!(stream.recv(&G, buffer(&mut [0; 1])), Ok(1));
    stream.shutdown(&G, Shutdown::Read);
    let end = StreamWord::at(3).with_end();
    assert_eq!(StreamWord(world.consumed(5).observe()), end);
    world.landed(5).publish(6);
    assert_eq!(stream.available(&G), Ok(0));
    assert_eq!(stream.recv(&G, buffer(&mut [0; 8])), Ok(0));
    assert_eq!(stream.peek(&G, 8).map(|span| span.len()), Ok(0));
    assert_eq!(StreamWord(world.consumed(5).observe()), end);
    // The same by handle.
    let mut again = Stream::from_handle(&G, world.net(), handle).unwrap();
    assert_eq!((again.available(&G), again.recv(&G, buffer(&mut [0; 8]))), (Ok(0), Ok(0)));
    assert_eq!(StreamWord(world.consumed(5).observe()), end);
}

/// After the end of a stream its word is not polled again, whatever it holds.
#[test]
fn what_a_word_says_after_the_end_changes_nothing() {
    let world = World::new();
    let mut reader = Stream::from_handle(&G, world.net(), world.open_driven(1)).unwrap();
    world.landed(1).publish(StreamWord::at(2).with_end().0);
    assert_eq!(reader.recv(&G, buffer(&mut [0; 1])), Ok(1));
    for lie in [StreamWord::at(3).with_end(), StreamWord::at(2)] {
        let mut again = Stream::from_handle(&G, world.net(), reader.handle()).unwrap();
        world.landed(1).publish(lie.0);
        assert_eq!(again.available(&G), Ok(1), "nothing is read after the end");
        world.landed(1).publish(StreamWord::at(2).with_end().0);
    }

    let mut writer = Stream::from_handle(&G, world.net(), world.open_driven(2)).unwrap();
    writer.send_all(&G, b"12345").unwrap();
    world.line(2, 8).publish(StreamWord::at(3).with_end().0);
    let mut big = pattern(4096);
    assert_eq!(writer.send(&G, buffer(&mut big)).err(), Some(Error::BrokenPipe));
    assert_eq!(writer.send(&G, b"x").err(), Some(Error::BrokenPipe));
}

/// Of what has come by now a peek shows all that it is asked for, also the second time.
#[test]
fn a_peek_shows_what_has_come_since_the_last_one() {
    let world = World::new();
    let (a, b) = world.open_pair(0, 1);
    let net = world.net();
    let mut sender = Stream::from_handle(&G, net, a).unwrap();
    let mut reader = Stream::from_handle(&G, net, b).unwrap();
    let mut memory = [0; 16];
    let mut peek_by_handle = |len: usize| {
        // SAFETY: bytes of this stack.
        unsafe { posix::recv::recv(&G, net, b.raw(), memory.as_mut_ptr(), len, MSG_PEEK) }
    };
    sender.send_all(&G, b"abc").unwrap();
    assert_eq!(reader.peek(&G, 16).map(|span| span.len()), Ok(3));
    assert_eq!(peek_by_handle(16), Ok(3));
    sender.send_all(&G, b"defg").unwrap();
    assert_eq!(reader.peek(&G, 16).map(|span| span.len()), Ok(7));
    assert_eq!(reader.peek(&G, 2).map(|span| span.len()), Ok(2));
    assert_eq!(peek_by_handle(16), Ok(7));
    sender.shutdown(&G, Shutdown::Write);
    reader.release(&G, 7);
    assert_eq!(reader.peek(&G, 16).map(|span| span.len()), Ok(0));
}

#[test]
fn a_peek_of_what_is_known_looks_no_further() {
    let world = World::new();
    let mut stream = Stream::from_handle(&G, world.net(), world.open_driven(1)).unwrap();
    world.landed(1).publish(3);
    assert_eq!(stream.peek(&G, 3).map(|span| span.len()), Ok(3));
    // An invalid word is not seen before somebody wants more.
    world.landed(1).publish(9999);
    assert_eq!(stream.peek(&G, 3).map(|span| span.len()), Ok(3));
    assert_eq!(stream.peek(&G, 4), Err(Error::Protocol));
}

/// A poll would show that the reader has left, and end the call.
#[test]
fn a_send_into_space_that_is_known_looks_no_further() {
    // What is known is just enough for a call's only piece, for its last one, or for one after a
    // call of two pieces.
    for before in [LARGE - PUBLISH_CHUNK, 1000, PUBLISH_CHUNK + 1000] {
        let world = World::new();
        let mut half = SendHalf::from_handle(&G, world.net(), world.open_large_pair(0, 1).0).unwrap();
        let mut memory = pattern(LARGE as usize);
        let source = buffer(&mut memory);
        half.send_all(&G, source.first(before as usize)).unwrap();
        world.own_consumed(1).publish(StreamWord::at(before).with_end().0);
        assert_eq!(half.send(&G, source.skip(before as usize)), Ok((LARGE - before) as usize));
        assert_eq!(half.send(&G, b"x"), Err(Error::BrokenPipe));
    }
}

/// What it finds ends the call: the reader has left.
#[test]
fn a_long_send_looks_before_a_piece_for_which_too_little_space_is_known() {
    let world = World::new();
    let mut half = SendHalf::from_handle(&G, world.net(), world.open_large_pair(0, 1).0).unwrap();
    let mut memory = pattern(LARGE as usize);
    let (source, chunk) = (buffer(&mut memory), PUBLISH_CHUNK as usize);
    // Of what is known five bytes remain after the next piece.
    let before = LARGE as usize - chunk - 5;
    half.send_all(&G, source.first(before)).unwrap();
    world.own_consumed(1).publish(StreamWord::at(before as u64).with_end().0);
    assert_eq!(half.send(&G, source.first(chunk + 100_000)), Ok(chunk));
    assert_eq!(StreamWord(world.own_published(0).observe()).position(), (before + chunk) as u64);
    assert_eq!(half.send(&G, b"x"), Err(Error::BrokenPipe));
}

#[test]
fn a_full_buffer_is_returned_whatever_becomes_of_the_handle() {
    let world = World::new();
    let handle = world.open_driven(1);
    let mut stream = Stream::from_handle(&G, world.net(), handle).unwrap();
    world.landed(1).publish(8);
    world.set_state(1, SlotState::retired(handle.generation()));
    assert_eq!(stream.recv_exact(&G, buffer(&mut [0; 8])), Ok(8));
    assert_eq!(stream.recv_exact(&G, buffer(&mut [0; 8])), Err(Error::BadHandle));
}

#[test]
fn each_half_says_how_far_it_is() {
    let world = World::new();
    let mut stream = Stream::from_handle(&G, world.net(), world.open_driven(1)).unwrap();
    world.landed(1).publish(300);
    assert_eq!(stream.recv_exact(&G, buffer(&mut [0; 200])), Ok(200));
    stream.send_all(&G, b"1234567").unwrap();
    assert_eq!((stream.receiver().position(), stream.sender().position()), (200, 7));
}

/// The proxy does not scan the words of direct streams; a group that waits has time to show them.
#[test]
fn the_proxy_is_shown_how_far_a_direct_stream_is_whose_groups_wait() {
    let world = World::new();
    let net = world.net();
    let (a, b) = world.open_pair(0, 1);
    let shown = |word: Word, position| {
        while word.observe() != position {
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        let sends = scope.spawn(move || {
            let mut stream = Stream::from_handle(&G, net, a).unwrap();
            assert_eq!(stream.send(&G, buffer(&mut [7; 5000])), Ok(4096));
            stream.send(&G, b"x")
        });
        shown(world.published(0), 4096);
        let mut stream = Stream::from_handle(&G, net, b).unwrap();
        assert_eq!(stream.recv_exact(&G, buffer(&mut [0; 4096])), Ok(4096));
        assert_eq!(sends.join().unwrap(), Ok(1));
        let receives =
            scope.spawn(move || Stream::from_handle(&G, net, b).unwrap().recv_exact(&G, buffer(&mut [0; 9])));
        shown(world.consumed(1), 4097);
        Stream::from_handle(&G, net, a).unwrap().send_all(&G, b"12345678").unwrap();
        assert_eq!(receives.join().unwrap(), Ok(9));
    });
}

/// Each on the flag that the mover of the bytes checks.
#[test]
fn groups_sleep_on_the_flags_of_their_own_slot() {
    let world = World::new();
    let net = world.net();
    for handle in [world.open_driven(5), world.open_pair(0, 1).0] {
        let slot = handle.slot();
        std::thread::scope(|scope| {
            let waits = scope.spawn(move || {
                let mut stream = Stream::from_handle(&G, net, handle).unwrap();
                let received = stream.recv(&G, buffer(&mut [0; 8]));
                while stream.try_send(&G, buffer(&mut [7; 4096])).is_ok() {}
                (received, stream.send(&G, b"x"))
            });
            let publish = |word: Word, direct: Word, position| {
                let word = if slot == 5 { word } else { direct };
                word.publish(position);
            };
            world.await_receiver(slot);
            publish(world.landed(5), world.own_published(1), 3);
            world.await_sender(slot);
            publish(world.line(5, offset_of!(SocketLine, released)), world.own_consumed(1), 1);
            assert_eq!(waits.join().unwrap(), (Ok(3), Ok(1)));
        });
    }
}

#[test]
fn a_commit_of_more_than_was_reserved_publishes_what_is_free() {
    let world = World::new();
    let mut stream = Stream::from_handle(&G, world.net(), world.open_driven(1)).unwrap();
    assert_eq!(stream.reserve(&G, 10).unwrap().len(), 10);
    stream.commit(&G, 10);
    stream.commit(&G, usize::MAX);
    assert_eq!(world.published(1).observe(), 4096);
    stream.commit(&G, usize::MAX);
    assert_eq!(world.published(1).observe(), 4096);
}
