//! The real verbs, on a machine with an RDMA device: a software one will do (rdma_rxe, siw).
//!
//! One test, since the steps share a device and count its objects. In the virtual machine:
//! `utils/rdma-vm/rdma-vm test verbs-conformance`.
//! The device's address is taken from `GPUNET_RDMA_ADDRESS`, else 10.9.0.1 (the virtual machine's).

#[path = "verbs_rdma/ring.rs"]
mod ring;
#[path = "verbs_rdma/wire.rs"]
mod wire;

use gpunet_core::verbs::rdma::Rdma;
use gpunet_core::verbs::{Completion, CompletionStatus, Op, Sge, Source, Usage, Verbs, WorkRequest};
use ring::Rings;
use rustix::process::Rlimit;
use std::io::ErrorKind;
use std::time::{Duration, Instant};
use wire::{DEPTH, Pair, address, connect, listener, next_request, step, until};

#[test]
fn real_verbs() {
    let rdma = match Rdma::open() {
        Ok(rdma) => rdma,
        Err(why) => {
            println!("NOT RUN: {why}");
            eprintln!("NOT RUN: the real verbs: {why}");
            return;
        }
    };
    for device in Rdma::devices().unwrap() {
        println!("{device}");
    }
    run(all(&rdma));
    step("the locked-memory limit");
    std::thread::spawn(locked_memory).join().expect("the locked-memory test");
}

async fn all(rdma: &Rdma) {
    step("bytes and messages");
    bytes_and_messages(rdma).await;
    step("back pressure of the queue");
    full_queue(rdma).await;
    step("a wrong key");
    wrong_key(rdma).await;
    step("refusals");
    refusals(rdma).await;
    step("a client that goes away");
    gone_client(rdma).await;
    step("many connections");
    many_connections(rdma).await;
    step("memory cut anew");
    cut_anew(rdma).await;
    step("forgetting an owner");
    forgetting(rdma).await;
}

/// Waits until nothing is left but cached registrations.
async fn settled(rdma: &Rdma) -> Usage {
    until("usage to go down", || {
        let usage = rdma.usage();
        (usage.queue_pairs == 0 && usage.identifiers == 0).then_some(usage)
    })
    .await
}

async fn bytes_and_messages(rdma: &Rdma) {
    let (local, remote) = (Rings::new(1), Rings::new(2));
    let mut pair = connect(rdma, 7001, &local, &remote).await;
    assert!(pair.request_data.starts_with(b"from the client"), "{:?}", pair.request_data);
    assert!(pair.answer_data.starts_with(b"from the server"), "{:?}", pair.answer_data);
    assert_eq!(rdma.usage().queue_pairs, 2);

    // Two pieces of the send ring, out of order, arrive as one write.
    local.fill_send(0, b"world");
    local.fill_send(100, b"hello ");
    let from = Source::Ring([(local.send_address() + 100, 6), (local.send_address(), 5)]);
    pair.write(7, from, remote.recv_address() + 1000, pair.remote_keys.recv_rkey, 0x1234_5678).await;
    assert_eq!(pair.local_next().await, Completion::Sent { id: 7, status: CompletionStatus::Success });
    pair.expect_message(0x1234_5678, 11).await;
    assert_eq!(remote.received(1000, 11), b"hello world");

    // 16 bytes from the request itself into the table.
    let sge = Sge { address: 0x7000_1234, rkey: 99, len: 4096 };
    let to = pair.remote_keys.table_address + 16;
    let inline = Source::Inline(sge.to_bytes());
    pair.write(8, inline, to, pair.remote_keys.table_rkey, 0x8000_0001).await;
    assert_eq!(pair.local_next().await, Completion::Sent { id: 8, status: CompletionStatus::Success });
    pair.expect_message(0x8000_0001, 16).await;
    assert_eq!(pair.remote.table().take(0), None);
    assert_eq!(pair.remote.table().take(1), Some(sge));

    // A message alone, many times: receives are posted again and queues go round.
    for number in 0..3 * DEPTH.receives {
        pair.write(u64::from(number), Source::Nothing, 0, 0, number).await;
        assert_eq!(
            pair.local_next().await,
            Completion::Sent { id: u64::from(number), status: CompletionStatus::Success }
        );
        pair.expect_message(number, 0).await;
        pair.remote.post_receive().unwrap();
    }

    // The other end goes: this end learns of it, and what is posted then comes back.
    let Pair { mut local, remote, .. } = pair;
    assert!(!local.is_disconnected());
    let start = Instant::now();
    drop(remote);
    println!("dropping an endpoint took {:?}", start.elapsed());
    until("the end to be seen", || local.is_disconnected().then_some(())).await;
    drop(local);
    assert_eq!(settled(rdma).await, rdma.usage());
}

async fn full_queue(rdma: &Rdma) {
    let (local, remote) = (Rings::new(1), Rings::new(2));
    let mut pair = connect(rdma, 7002, &local, &remote).await;
    // Plain writes take no receive.
    let op = Op::Write {
        from: Source::Ring([(local.send_address(), 64), (0, 0)]),
        to: remote.recv_address(),
        rkey: pair.remote_keys.recv_rkey,
        immediate: None,
    };
    for id in 0..u64::from(DEPTH.sends) {
        pair.local.post(&WorkRequest { id, op }).unwrap();
    }
    let error = pair.local.post(&WorkRequest { id: 999, op }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    for id in 0..u64::from(DEPTH.sends) {
        assert_eq!(pair.local_next().await, Completion::Sent { id, status: CompletionStatus::Success });
    }
    assert_eq!(pair.remote.post_receive().unwrap_err().kind(), ErrorKind::OutOfMemory);
}

async fn wrong_key(rdma: &Rdma) {
    let (local, remote) = (Rings::new(1), Rings::new(2));
    let mut pair = connect(rdma, 7003, &local, &remote).await;
    let other = connect(rdma, 7004, &Rings::new(3), &Rings::new(4)).await;
    // The key of another connection of the same two programs opens nothing here.
    local.fill_send(0, &[0xff; 16]);
    let op = Op::Write {
        from: Source::Ring([(local.send_address(), 16), (0, 0)]),
        to: other.remote_keys.table_address,
        rkey: other.remote_keys.table_rkey,
        immediate: None,
    };
    pair.local.post(&WorkRequest { id: 1, op }).unwrap();
    match pair.local_next().await {
        // iWARP's completion means only that TCP has the bytes.
        Completion::Sent { id: 1, status } => {
            assert!(pair.iwarp || status == CompletionStatus::RemoteRefused, "{status:?}")
        }
        unexpected => panic!("{unexpected:?}"),
    }
    // And the queue pair is in error: its receives come back.
    assert_eq!(pair.local_next().await, Completion::Flushed);
    assert_eq!(other.remote.table().take(0), None);
}

async fn refusals(rdma: &Rdma) {
    let rings = Rings::new(1);
    // Nobody listens.
    let mut handshake = rdma.resolve(address(7010), None).await.unwrap();
    handshake.prepare(&rings.memory(), DEPTH).unwrap();
    let error = handshake.connect(b"").await.err().expect("refused");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");

    // The server rejects.
    let mut listening = listener(rdma, 7011);
    let mut handshake = rdma.resolve(address(7011), None).await.unwrap();
    assert_eq!(handshake.peer(), address(7011));
    handshake.prepare(&rings.memory(), DEPTH).unwrap();
    let refuse = async {
        next_request(&mut *listening).await.handshake.reject();
    };
    let (outcome, ()) = tokio::join!(handshake.connect(b"let me in"), refuse);
    assert_eq!(outcome.err().expect("refused").kind(), ErrorKind::ConnectionRefused);

    // A number that is taken, and an address that is not ours.
    assert_eq!(rdma.listen(address(7011), 1).err().unwrap().kind(), ErrorKind::AddrInUse);
    let elsewhere = "203.0.113.9:7012".parse().unwrap();
    let error = rdma.listen(elsewhere, 1).err().unwrap();
    println!("listening elsewhere: {error}");
    let error = rdma.resolve(elsewhere, None).await.err().expect("no way there");
    println!("resolving elsewhere: {error}");
    drop(listening);
    // The number is free again at once.
    drop(listener(rdma, 7011));
    settled(rdma).await;
}

async fn gone_client(rdma: &Rdma) {
    let mut listening = listener(rdma, 7020);
    let rings = Rings::new(1);
    let mut handshake = rdma.resolve(address(7020), None).await.unwrap();
    handshake.prepare(&rings.memory(), DEPTH).unwrap();
    let iwarp = handshake.device().iwarp;
    // Asks, and gives up before the answer.
    let asked = tokio::time::timeout(Duration::from_millis(300), handshake.connect(b"first")).await;
    assert!(asked.is_err());
    settled_but(rdma, 1).await;
    let mut handshake = rdma.resolve(address(7020), None).await.unwrap();
    handshake.prepare(&rings.memory(), DEPTH).unwrap();
    let refuse = async {
        let mut request = next_request(&mut *listening).await;
        // InfiniBand's connection manager takes it back, unless the listener has seen it before.
        if request.private_data.starts_with(b"first") {
            if iwarp {
                // Its kernel part reports only when the request is accepted.
                request.handshake.prepare(&rings.memory(), DEPTH).unwrap();
                assert!(request.handshake.accept(b"").await.is_err());
            }
            request = next_request(&mut *listening).await;
        }
        assert!(request.private_data.starts_with(b"second"), "{:?}", request.private_data);
    };
    let (outcome, ()) = tokio::join!(handshake.connect(b"second"), refuse);
    assert_eq!(outcome.err().expect("refused").kind(), ErrorKind::ConnectionRefused);
    drop(listening);
    settled(rdma).await;
}

async fn settled_but(rdma: &Rdma, identifiers: usize) {
    until("the client to be gone", || {
        let usage = rdma.usage();
        (usage.queue_pairs == 0 && usage.identifiers == identifiers).then_some(())
    })
    .await;
}

async fn many_connections(rdma: &Rdma) {
    let (local, remote) = (Rings::new(5), Rings::new(6));
    drop(connect(rdma, 7030, &local, &remote).await);
    let before = settled(rdma).await;
    let start = Instant::now();
    let count = 200;
    for _ in 0..count {
        let mut pair = connect(rdma, 7030, &local, &remote).await;
        pair.write(1, Source::Nothing, 0, 0, 77).await;
        assert_eq!(pair.local_next().await, Completion::Sent { id: 1, status: CompletionStatus::Success });
        pair.expect_message(77, 0).await;
        drop(pair);
        settled(rdma).await;
    }
    println!("{count} connections: {:?}", start.elapsed());
    assert_eq!(settled(rdma).await, before);
}

async fn cut_anew(rdma: &Rdma) {
    let (local, remote) = (Rings::new(10), Rings::new(11));
    drop(connect(rdma, 7035, &local, &remote).await);
    let before = settled(rdma).await;
    // The same memory in other rings: what was registered for the old ones goes.
    let (local, remote) = (local.halved(), remote.halved());
    drop(connect(rdma, 7035, &local, &remote).await);
    assert_eq!(settled(rdma).await, before);
}

async fn forgetting(rdma: &Rdma) {
    let (local, remote) = (Rings::new(7), Rings::new(8));
    let before = settled(rdma).await.memory_regions;
    let pair = connect(rdma, 7040, &local, &remote).await;
    let each = (rdma.usage().memory_regions - before) / 2;
    assert!(each >= 3, "{each}");
    rdma.forget(8);
    drop(pair);
    settled(rdma).await;
    until("the forgotten one to go", || (rdma.usage().memory_regions == before + each).then_some(())).await;
    rdma.forget(7);
    assert_eq!(rdma.usage().memory_regions, before);
    // Memory that nobody else holds is free now.
    assert_eq!(local.holders(), 1);
}

/// Registers with a low limit, and again with the old one.
///
/// On a thread of its own: rdma_cm's descriptors refuse a thread whose credentials have changed
/// since they were opened, and root must lose a capability to feel the limit.
fn locked_memory() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    let mut fewer = capabilities(None).unwrap();
    fewer.effective.remove(CapabilitySet::IPC_LOCK);
    set_capabilities(None, fewer).unwrap();
    let rdma = Rdma::open().unwrap();
    run(async {
        let rings = Rings::new(9);
        let _listening = listener(&rdma, 7050);
        let mut handshake = rdma.resolve(address(7050), None).await.unwrap();
        let old = getrlimit(Resource::Memlock);
        setrlimit(Resource::Memlock, Rlimit { current: Some(4096), ..old }).unwrap();
        let result = handshake.prepare(&rings.memory(), DEPTH);
        setrlimit(Resource::Memlock, old).unwrap();
        let error = result.unwrap_err();
        println!("locked memory: {error}");
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        assert!(error.to_string().contains("4096 bytes") && error.to_string().contains("ulimit -l"));
        // The handshake is still good for another try.
        handshake.prepare(&rings.memory(), DEPTH).unwrap();
    });
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, future)
}
