//! Either end is killed, at every step of a transfer. The other end gets an error, sees no torn
//! array as whole, and keeps nothing of the dead.

#![allow(unsafe_code, reason = "arrays of GPUs")]

use gpu_usermap::cuda::GpuBuffer;
use gpu_usermap::cuda::fake::Fake;
use gpunet_channel::{
    Array, ArrayMut, Channel, ChannelListener, ChannelOptions, Dtype, Side, TransferOptions, Via,
};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What a child does, and when it kills itself.
const TASK: &str = "GPUNET_CHANNEL_TEST_CHILD";
const LEN: usize = 8 << 20;
const ENETDOWN: i32 = 100;
const ECONNRESET: i32 = 104;
const EPIPE: i32 = 32;

fn options(rendezvous: bool) -> ChannelOptions {
    // Far longer than any of it takes: only a failing test waits for it.
    let timeout = Some(Duration::from_secs(30));
    ChannelOptions { streams: 3, piece: 64 << 10, rendezvous, timeout, ..ChannelOptions::default() }
}

fn into_gpu(buffer: &GpuBuffer) -> ArrayMut<'_> {
    // SAFETY: the array borrows the buffer, and nobody else uses it.
    unsafe { ArrayMut::on_gpu(buffer.device(), buffer.ptr(), Dtype::U8, &[LEN as u64]) }.expect("an array")
}

fn die() -> ! {
    rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL)
        .expect("a signal");
    loop {
        std::thread::park();
    }
}

#[test]
#[ignore = "other tests run it as a child process"]
fn a_child_process() {
    let Ok(task) = std::env::var(TASK) else { return };
    let (role, step) = task.split_once(' ').expect("two words");
    let step: u64 = step.parse().expect("a number");
    if role == "daemon" {
        serve_as_a_daemon();
    }
    let listener = ChannelListener::bind("127.0.0.1:0".parse().unwrap(), &options(true)).expect("a listener");
    println!("listening {}", listener.local_addr().expect("an address"));
    let mut channel = listener.accept().expect("a channel");
    // Step 0: before the header. 1 to 4: after as many quarters.
    let show = move |done: u64, total: u64| {
        if step > 0 && done >= total * step / 4 {
            die();
        }
    };
    let transfer = TransferOptions { progress: Some(&show), ..TransferOptions::default() };
    let bytes = vec![7u8; LEN];
    match role {
        "send" => {
            if step == 0 {
                die();
            }
            let _ = channel.send_all(&[Array::of(&bytes)], &transfer);
        }
        "pipeline" => {
            let mut pipeline = channel.pipeline(4);
            for _ in 0..4 {
                if step == 0 {
                    die();
                }
                let _ = pipeline.send(&[Array::of(&bytes)], &transfer);
            }
            let _ = pipeline.finish();
        }
        "send-gpu" => {
            if step == 0 {
                die();
            }
            let fake = Fake::new();
            let gpu = fake.cuda().device(0).expect("a device");
            let buffer = gpu.alloc(LEN).expect("memory");
            // SAFETY: the buffer outlives the transfer, and nobody writes it.
            let array = unsafe { Array::on_gpu(&gpu, buffer.ptr(), Dtype::U8, &[LEN as u64]) };
            let _ = channel.send_all(&[array.expect("an array")], &transfer);
        }
        "receive-gpu" => {
            let incoming = channel.next().expect("a transfer").expect("one");
            if step == 0 {
                die();
            }
            let fake = Fake::new();
            let gpu = fake.cuda().device(0).expect("a device");
            let _ = incoming.receive_on(&gpu, &transfer);
        }
        "receive" => {
            let incoming = channel.next().expect("a transfer").expect("one");
            if step == 0 {
                die();
            }
            let _ = incoming.receive(&transfer);
        }
        other => panic!("{other}"),
    }
    die();
}

/// What gpunetd does, at a path in the directory for temporary files.
fn serve_as_a_daemon() -> ! {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with};
    let path = std::env::temp_dir().join(format!("gpunet-deaths-{}", std::process::id()));
    let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let listener = listener.expect("a socket");
    bind(&listener, &SocketAddrUnix::new(&path).expect("a short path")).expect("a free path");
    listen(&listener, 8).expect("a listener");
    let access = gpunet_proxy::access::Access::default();
    let _daemon =
        gpunet_proxy::daemon::start(listener, gpunet_proxy::Config::small(), access).expect("a daemon");
    println!("listening {}", path.display());
    loop {
        std::thread::park();
    }
}

fn start(role: &str, step: u64) -> (Child, String) {
    let mut child = Command::new(std::env::current_exe().expect("this file"))
        .args(["--exact", "a_child_process", "--ignored", "--nocapture"])
        .env(TASK, format!("{role} {step}"))
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child");
    let output = BufReader::new(child.stdout.take().expect("piped"));
    let addr =
        output.lines().find_map(|line| line.ok()?.split_once("listening ").map(|(_, addr)| addr.to_owned()));
    (child, addr.expect("an address"))
}

/// One test at a time, because one counts this process's descriptors.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("it is there").count()
}

#[test]
fn either_end_is_killed_at_every_step() {
    let _turn = turn();
    // What a first use opens.
    drop(std::net::TcpListener::bind("127.0.0.1:0").expect("a listener"));
    let before = descriptors();
    for rendezvous in [false, true] {
        for step in 0..=4 {
            let (mut child, addr) = start("send", step);
            let mut channel = Channel::connect(&*addr, &options(rendezvous)).expect("a channel");
            let mut got = vec![0u8; LEN];
            let result = channel.recv_into(&mut ArrayMut::of(&mut got));
            match result {
                // The sender died when it had the answer; it hears of a copy only then.
                Ok(outcome) => {
                    assert!(step == 4 || rendezvous && step > 0);
                    assert!(outcome.bytes == LEN as u64 && got == vec![7u8; LEN]);
                }
                Err(error) => assert_eq!(error.errno(), ECONNRESET, "sender, {step}, {rendezvous}: {error}"),
            }
            assert!(channel.recv().is_err(), "a sender that dies says no farewell");
            drop(channel);
            child.wait().expect("it has ended");

            let (mut child, addr) = start("receive", step);
            let mut channel = Channel::connect(&*addr, &options(rendezvous)).expect("a channel");
            let bytes = vec![7u8; LEN];
            match channel.send(&Array::of(&bytes)) {
                // It died after its answer.
                Ok(outcome) => assert!(step == 4 && outcome.bytes == LEN as u64),
                Err(error) => {
                    assert_eq!(error.errno(), ECONNRESET, "receiver, {step}, {rendezvous}: {error}")
                }
            }
            drop(channel);
            child.wait().expect("it has ended");
        }
    }
    assert_eq!(descriptors(), before, "nothing of the dead is kept");
}

/// Memory of GPUs at both ends, on a driver without a GPU: the pieces are on their way through
/// pinned memory when either end is killed.
#[test]
fn either_end_is_killed_while_memory_of_a_gpu_is_copied() {
    let _turn = turn();
    let fake = Fake::new();
    let gpu = fake.cuda().device(0).expect("a device");
    for step in [0, 1, 3] {
        let (mut child, addr) = start("send-gpu", step);
        let mut channel = Channel::connect(&*addr, &options(true)).expect("a channel");
        let buffer = gpu.alloc(LEN).expect("memory");
        let error = channel.recv_into(&mut into_gpu(&buffer)).expect_err("the sender is dead");
        assert_eq!(error.errno(), ECONNRESET, "{step}: {error}");
        drop(channel);
        child.wait().expect("it has ended");

        let (mut child, addr) = start("receive-gpu", step);
        let mut channel = Channel::connect(&*addr, &options(true)).expect("a channel");
        // SAFETY: the buffer outlives the transfer, and nobody writes it.
        let array = unsafe { Array::on_gpu(&gpu, buffer.ptr(), Dtype::U8, &[LEN as u64]) }.expect("an array");
        let error = channel.send(&array).expect_err("the receiver is dead");
        assert_eq!(error.errno(), ECONNRESET, "{step}: {error}");
        drop(channel);
        child.wait().expect("it has ended");
        // Whatever used it has ended.
        let before = fake.events().iter().filter(|&&event| event == "free").count();
        drop(buffer);
        while fake.events().iter().filter(|&&event| event == "free").count() == before {
            gpu.is_busy().expect("the agent is there");
        }
    }
}

/// Four transfers are under way when the sender is killed in the middle of the first: no torn array
/// is seen as whole, and neither are those whose headers have come.
#[test]
fn a_sender_that_dies_with_transfers_under_way_leaves_no_torn_array() {
    let _turn = turn();
    for rendezvous in [false, true] {
        for step in [0, 1, 2, 4] {
            let (mut child, addr) = start("pipeline", step);
            let mut channel = Channel::connect(&*addr, &options(rendezvous)).expect("a channel");
            let mut whole = 0;
            let error = loop {
                let mut got = vec![0u8; LEN];
                match channel.recv_into(&mut ArrayMut::of(&mut got)) {
                    Ok(_) => assert!(got == vec![7u8; LEN]),
                    Err(error) => break error,
                }
                whole += 1;
            };
            assert!(whole <= 4, "{step}, {rendezvous}: a fifth was never sent");
            assert!([ECONNRESET, EPIPE].contains(&error.errno()), "{step}, {rendezvous}: {error}");
            drop(channel);
            child.wait().expect("it has ended");
        }
    }
}

/// The receiver is killed in the middle: each transfer that is under way ends with an error.
#[test]
fn a_receiver_that_dies_ends_all_transfers_under_way() {
    let _turn = turn();
    for rendezvous in [false, true] {
        for step in [0, 2, 4] {
            let (mut child, addr) = start("receive", step);
            let mut channel = Channel::connect(&*addr, &options(rendezvous)).expect("a channel");
            let bytes = vec![7u8; LEN];
            let mut pipeline = channel.pipeline(4);
            let mut begun = 0;
            for _ in 0..4 {
                if pipeline.send(&[Array::of(&bytes)], &TransferOptions::default()).is_err() {
                    break;
                }
                begun += 1;
            }
            let results: Vec<_> = std::iter::from_fn(|| pipeline.next()).collect();
            assert_eq!(results.len(), begun);
            let failed = results.iter().filter_map(|result| result.as_ref().err());
            assert!(failed.clone().count() + usize::from(step == 4) >= begun, "{step}, {rendezvous}");
            for error in failed {
                assert!([ECONNRESET, EPIPE].contains(&error.errno()), "{step}, {rendezvous}: {error}");
            }
            drop(pipeline);
            drop(channel);
            child.wait().expect("it has ended");
        }
    }
}

/// The copy is under way when the process whose memory it reads is killed.
#[test]
fn a_sender_that_dies_during_the_copy_is_never_seen_as_whole() {
    let _turn = turn();
    let (mut child, addr) = start("send", 5);
    let mut channel = Channel::connect(&*addr, &options(true)).expect("a channel");
    assert_eq!(channel.why_not_local(), None);
    let killed = std::sync::Once::new();
    let (id, begun) = (child.id(), Instant::now());
    let show = |_, _| {
        killed.call_once(|| {
            let pid = rustix::process::Pid::from_raw(id.cast_signed()).expect("a process");
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("a signal");
            // Its memory is gone when it has ended; as a zombie its number stays.
            while std::fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|stat| !stat.contains(") Z"))
            {
                assert!(begun.elapsed() < Duration::from_secs(20), "it does not die");
                std::thread::yield_now();
            }
        });
    };
    let transfer = TransferOptions { progress: Some(&show), ..TransferOptions::default() };
    let error =
        channel.next().expect("a transfer").expect("one").receive(&transfer).expect_err("a torn array");
    assert_eq!(error.errno(), ECONNRESET, "{error}");
    child.wait().expect("it has ended");
}

#[test]
fn two_processes_copy_once() {
    let _turn = turn();
    let (mut child, addr) = start("send", 5);
    let mut channel = Channel::connect(&*addr, &options(true)).expect("a channel");
    let mut got = vec![0u8; LEN];
    let outcome = channel.recv_into(&mut ArrayMut::of(&mut got)).expect("received");
    assert!(got == vec![7u8; LEN] && outcome.via == Via::Copy, "{}", outcome.via);
    drop(channel);
    child.wait().expect("it has ended");
}

/// A channel over streams of gpunetd, which is killed before a transfer and at quarters of it: both
/// ends get an error or the whole array, and nobody waits for ever.
#[test]
fn a_daemon_that_is_killed_ends_channels_over_its_streams() {
    use gpunet_proxy::abi::{Options, TransportKind};
    let _turn = turn();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let bytes = vec![7u8; LEN];
    for (transport, step) in [TransportKind::Tcp, TransportKind::Peer]
        .into_iter()
        .flat_map(|transport| [0, 1, 3].map(|step| (transport, step)))
    {
        let (daemon, path) = start("daemon", 0);
        let daemon = Mutex::new(daemon);
        let kill = || {
            let mut daemon = daemon.lock().unwrap_or_else(PoisonError::into_inner);
            daemon.kill().expect("a signal");
            daemon.wait().expect("it has ended");
        };
        let path = std::path::Path::new(&path);
        let wanted = Options::DEFAULT.with_transport(transport);
        let hosts = [(); 2].map(|()| {
            let proxy = gpunet_proxy::attach(path, gpunet_proxy::Config::small()).expect("attached");
            proxy.host().expect("a host")
        });
        let (mut near, mut far) = (Vec::new(), Vec::new());
        runtime.block_on(async {
            let any = "127.0.0.1:0".parse().unwrap();
            let listener = hosts[0].bind(any, wanted, 8).await.expect("a listener");
            let addr = listener.local_addr().expect("an address");
            for _ in 0..3 {
                let both = tokio::try_join!(hosts[1].connect(addr, wanted), listener.accept());
                let (connected, (accepted, _)) = both.expect("a stream");
                near.push(connected);
                far.push(accepted);
            }
        });
        let settings = options(false);
        let (sent, received) = std::thread::scope(|scope| {
            let sending = scope.spawn(|| {
                let mut channel = Channel::of_streams(near, Side::Connects, &settings).expect("a channel");
                if step == 0 {
                    kill();
                }
                channel.send(&Array::of(&bytes)).map(drop)
            });
            let mut channel = Channel::of_streams(far, Side::Accepts, &settings).expect("a channel");
            let killed = std::sync::Once::new();
            let show = |done: u64, total: u64| {
                if step > 0 && done >= total * step / 4 {
                    killed.call_once(kill);
                }
            };
            let transfer = TransferOptions { progress: Some(&show), ..TransferOptions::default() };
            let incoming = match channel.next() {
                Ok(incoming) => {
                    incoming.expect("no farewell").receive(&transfer).map(|mut arrays| arrays.remove(0))
                }
                Err(error) => Err(error),
            };
            (sending.join().expect("no panic"), incoming)
        });
        for error in [sent.as_ref().err(), received.as_ref().err()].into_iter().flatten() {
            let expected = [ENETDOWN, ECONNRESET, EPIPE];
            assert!(expected.contains(&error.errno()), "{transport:?}, {step}: {error}");
        }
        if let Ok(array) = &received {
            assert!(array.bytes == bytes, "{transport:?}, {step}: a torn array");
        }
        let _ = std::fs::remove_file(path);
    }
}
