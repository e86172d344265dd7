//! What the thread finds of a stream that was let pass a wait: it has failed, whatever comes later.

use super::*;
use crate::model::config::Config;
use crate::queue::QueueSettings;
use crate::queue::cuda::page::Page;
use crate::queue::cuda::record::SignalWait;
use crate::queue::cuda::streams::QueueStreams;
use crate::team::{Team, TeamHold, TeamListener};
use crate::{Attachment, embed};
use gpu_usermap::cuda::StreamPriority;
use gpu_usermap::cuda::fake::Fake;
use gpunet_abi::Options;
use gpunet_abi::team::Signal;
use gpunet_device::Rank;
use std::net::TcpListener;
use std::sync::{Condvar, Mutex};

/// A queue's thread whose turns the test makes.
fn follower(attachment: &Attachment, device: &Device) -> Follower {
    let streams = QueueStreams::new(device).expect("streams");
    let shared = Shared {
        stream: device.create_stream(StreamPriority::Normal).expect("a stream"),
        lane: streams.enter(device).expect("the first"),
        streams,
        page: Page::new(device).expect("a page"),
        settings: QueueSettings::default(),
        host: attachment.sockets.launch().expect("a number").clone(),
        state: Mutex::default(),
        changed: Condvar::new(),
        scratch: Mutex::default(),
    };
    Follower::new(Arc::new(shared), device.clone())
}

/// The stream has passed the operation, as the thread finds.
fn failure_after(follower: &Follower) -> Option<Failure> {
    follower.shared.page.publish(At::Passed, 1);
    assert!(follower.shared.note_passed(), "it was under way");
    follower.shared.outcome().failure
}

#[test]
fn a_word_has_come_when_it_is_not_marked_and_far_enough() {
    for (word, has_come_so_far) in [
        (StreamWord::at(63), false),
        (StreamWord::at(64), true),
        (StreamWord::at(64).with_end(), true),
        (StreamWord::at(63).with_end(), false),
        (StreamWord::at(64).with_err(), false),
    ] {
        assert_eq!(has_come(word, 64), has_come_so_far, "{word:?}");
    }
}

/// Between the mark that releases the stream and the look at what it has passed, the proxy
/// publishes the word once more.
#[test]
fn a_wait_that_was_released_has_failed_also_when_the_word_comes_after_the_mark() {
    let fake = Fake::new();
    let device = fake.cuda().device(0).expect("a device");
    let attachment = embed(Config::small()).expect("a proxy").attach_cuda(&device).expect("attached");
    let server = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let addr = server.local_addr().expect("an address");
    let socket = attachment.connect_blocking(addr, Options::DEFAULT).expect("connected");
    let peer = server.accept().expect("a connection").0;
    let receiver = socket.take_recv().expect("free");
    let mut follower = follower(&attachment, &device);
    let hold = follower.shared.host.hold(socket.handle().raw(), Direction::Recv as u32).expect("taken");
    let waits = vec![(hold.clone(), 64)];
    follower.shared.add(Record { number: 1, is_issued: true, waits, len: 64, ..Record::default() });
    let word = hold.pinned_other().expect("the proxy writes it");
    // While the peer may send, the stream waits.
    follower.look();
    assert!(!StreamWord::read(word.observe()).err());
    socket2::SockRef::from(&peer).set_linger(Some(Duration::ZERO)).expect("an option");
    drop(peer);
    while hold.end().is_none() {
        std::thread::yield_now();
    }
    follower.look();
    assert!(StreamWord::read(word.observe()).err(), "the stream passes");
    word.publish(StreamWord::at(64).0);
    let failed = failure_after(&follower).expect("it has passed by the mark");
    assert_eq!((failed.operation, failed.error), (0, Error::ConnectionReset));
    drop((receiver, hold));
}

/// The same of a signal, whose source stores it after the mark.
#[test]
fn a_wait_for_a_signal_that_was_released_has_failed_also_when_that_comes_after_the_mark() {
    const WAITED: SignalWait = SignalWait { signal: Signal(0), source: Rank(1), value: 5 };
    let fake = Fake::new();
    let device = fake.cuda().device(0).expect("a device");
    let proxy = embed(Config::small()).expect("a proxy");
    let attachment = proxy.attach_cuda(&device).expect("attached");
    let other = proxy.attach_cpu().expect("attached");
    let listener = TeamListener::bind("127.0.0.1:0".parse().expect("an address")).expect("a listener");
    let id = listener.id();
    let joining = std::thread::spawn(move || Team::join(&other, id, Rank(1), 2).map(|team| (team, other)));
    let team = Team::lead(&attachment, listener, 2).expect("a team");
    let (theirs, other) = joining.join().expect("no panic").expect("a team");
    let mut follower = follower(&attachment, &device);
    let hold = Arc::new(TeamHold::new(&team, [None, None]));
    let (block, offset) = hold.own_word(WAITED.signal, WAITED.source);
    let word = block.host_word(offset).expect("pinned memory, with a CPU");
    let (team_hold, signal_wait) = (Some(hold.clone()), Some(WAITED));
    follower.shared.add(Record {
        number: 1,
        is_issued: true,
        team: team_hold,
        signal_wait,
        ..Record::default()
    });
    follower.look();
    assert_eq!(word.observe(), 0, "the source may signal");
    drop(theirs);
    while hold.failure(WAITED.source).is_none() {
        std::thread::yield_now();
    }
    follower.look();
    assert_ne!(word.observe(), 0, "the stream passes");
    word.publish(WAITED.value);
    let failed = failure_after(&follower).expect("it has passed by the mark");
    assert_eq!((failed.operation, failed.error), (0, Error::NotConnected));
    drop(other);
}
