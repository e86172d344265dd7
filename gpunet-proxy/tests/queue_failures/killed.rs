//! Kill -9 of the other rank's process, and of gpunetd, while queues and kernels wait: all are
//! released at once, and know why.

use super::*;
use crate::support::Killed;
use crate::support::SOLO;
use crate::support::asleep::spawn_asleep;
use crate::support::daemon::TempDir;
use crate::support::process::Program;
use gpunet_device::Timeout;
use gpunet_device::abi::{Direction, Gate};
use gpunet_device::trigger::GateExt;
use gpunet_proxy::{LaunchToken, Proxy};
use std::process::{Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Within a second, on a machine that has nothing else to do.
const SOON: Duration = Duration::from_secs(10);

/// A silent heartbeat releases nobody here.
fn config() -> Config {
    Config { heartbeat: Duration::from_secs(600), ..small() }
}

/// Two blocks of the CPU device that wait at gates: for a message that does not come, and until
/// what a queue sends is released.
struct Blocks {
    token: LaunchToken,
    blocks: [JoinHandle<Result<(), Error>>; 2],
}

impl Blocks {
    fn new(attachment: &Attachment, socket: &Socket, receiver: &mut Receiver) -> Self {
        let token = attachment.token().expect("a launch number");
        let message = receiver.prepare(MESSAGE).expect("room");
        let sent = Gate::new(socket.handle(), Direction::Send, MUCH as u64);
        let net = token.net();
        let blocks =
            [message.arrived, sent].map(|gate| spawn_asleep(move || gate.wait(&SOLO, net, Timeout::NEVER)));
        Self { token, blocks }
    }

    #[track_caller]
    fn expect_errors(self, receive: &[Error], send: &[Error]) {
        let errors = self.blocks.map(|block| block.join().expect("no panic").expect_err("it failed"));
        assert!(receive.contains(&errors[0]) && send.contains(&errors[1]), "{errors:?}");
        self.token.finish(FinishPolicy::Close);
    }
}

/// All that waits for the other rank of a socket.
struct All {
    receiver: Waiting<Receiver>,
    sender: Waiting<Sender>,
    blocks: Blocks,
}

impl All {
    fn new(attachment: &Attachment, socket: &Socket, much: &Memory) -> Self {
        let mut receiver = receiving(attachment, socket);
        let sender = sending(attachment, socket, much);
        let blocks = Blocks::new(attachment, socket, &mut receiver.direction);
        receiver.expect_waiting();
        sender.expect_waiting();
        Self { receiver, sender, blocks }
    }

    /// Kills, and checks that all fail at once.
    #[track_caller]
    fn expect_failures(
        self,
        kill: impl FnOnce(),
        receive: &[Error],
        send: &[Error],
    ) -> (Failed<Receiver>, Failed<Sender>) {
        let start = Instant::now();
        kill();
        // Both directions stay taken: a block that comes to its gate only now is to find why it
        // does not pass.
        let failed = (self.receiver.expect_failure(receive), self.sender.expect_failure(send));
        self.blocks.expect_errors(receive, send);
        assert!(start.elapsed() < SOON, "released after {:?}", start.elapsed());
        println!("released after {:?}", start.elapsed());
        failed
    }
}

/// The program of the other rank, which sends a part of a message and waits.
fn other_rank(daemon: &Path, kind: TransportKind, addr: std::net::SocketAddr) -> Command {
    let name = if kind == TransportKind::Peer { "peer" } else { "tcp" };
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--exact", "program", "--nocapture"]);
    command.env(DAEMON, daemon).env(ADDR, format!("{name} {addr}"));
    command
}

#[test]
fn a_program_that_is_killed_releases_queues_and_kernels() {
    bounded(|| {
        let much = Memory::filled(3, 0, MUCH);
        let served = Served::new(small());
        let attachment = served.attach(config()).attach_cpu().expect("attached");
        for kind in KINDS {
            println!("{kind:?}");
            let any = "127.0.0.1:0".parse().expect("an address");
            let listener = attachment.listen_blocking(any, options(kind), 1).expect("listening");
            let mut command = other_rank(&served.path, kind, listener.local_addr());
            let mut peer = Program::start(&mut command);
            let socket = listener.accept_blocking().expect("a connection");
            assert_eq!(peer.hear(), "sent");
            let all = All::new(&attachment, &socket, &much);
            let lost = [Error::ConnectionReset, Error::BrokenPipe];
            let (receiver, sender) = all.expect_failures(|| drop(peer), &lost[..1], &lost);
            let mut queue = receiver.expect_outcome();
            sender.expect_outcome();
            // The next program has a socket of the same daemon.
            let mut peer = Program::start(&mut command);
            let (next, came) = (listener.accept_blocking().expect("a connection"), Memory::new(CAME));
            queue.recv(&mut next.take_recv().expect("nobody uses it"), came.buffer()).expect("a position");
            assert_eq!(peer.hear(), "sent");
            queue.synchronize().expect_err("it keeps its failure");
            assert!(came.holds(0, CAME, 1, 0));
        }
    });
}

/// A gpunetd, as a process.
struct Gpunetd {
    dir: TempDir,
    child: Option<Killed>,
}

impl Gpunetd {
    fn new() -> Self {
        let mut gpunetd = Self { dir: TempDir::new(), child: None };
        gpunetd.start();
        gpunetd
    }

    fn start(&mut self) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gpunetd"));
        command.arg("--listen-path").arg(self.dir.join("sock")).args(["--rc", "off"]);
        command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.child = Some(Killed(command.spawn().expect("it starts")));
    }

    /// Kill -9.
    fn kill(&mut self) {
        self.child = None;
    }

    fn attach(&self) -> Proxy {
        let mut proxy = None;
        until("it takes clients", || {
            proxy = attach(&self.dir.join("sock"), config()).ok();
            proxy.is_some()
        });
        proxy.expect("just now")
    }

    fn attachment(&self) -> Attachment {
        self.attach().attach_cpu().expect("attached")
    }
}

#[test]
fn a_daemon_that_is_killed_releases_queues_and_kernels_of_its_programs() {
    bounded(|| {
        let (mut daemon, much) = (Gpunetd::new(), Memory::filled(3, 0, MUCH));
        for kind in KINDS {
            println!("{kind:?}");
            let (here, there) = (daemon.attachment(), daemon.attachment());
            let [near, far] = sockets(&here, &there, options(kind));
            send_a_part_by(&there, &far);
            let all = All::new(&here, &near, &much);
            let down = [Error::NetworkDown];
            drop(all.expect_failures(|| daemon.kill(), &down, &down));
            // Sockets of the next daemon work, while those of the last one are still there.
            daemon.start();
            expect_next_between(&daemon.attachment(), &daemon.attachment(), options(kind));
        }
    });
}

/// The peer's daemon, that is: here it is a connection that ends, or is reset.
#[test]
fn a_daemon_that_is_killed_releases_queues_and_kernels_of_its_peers() {
    bounded(|| {
        let (mut daemon, much) = (Gpunetd::new(), Memory::filled(3, 0, MUCH));
        let here = gpunet_proxy::embed(config()).expect("a proxy").attach_cpu().expect("attached");
        let there = daemon.attachment();
        let [near, far] = sockets(&here, &there, options(TransportKind::Tcp));
        send_a_part_by(&there, &far);
        let all = All::new(&here, &near, &much);
        let lost = [Error::ConnectionReset, Error::BrokenPipe, Error::NoData];
        drop(all.expect_failures(|| daemon.kill(), &lost, &lost));
        daemon.start();
        expect_next_between(&here, &daemon.attachment(), options(TransportKind::Tcp));
    });
}
