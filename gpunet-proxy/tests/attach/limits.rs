//! Who may attach, and with how much.

use crate::support::client::client;
use crate::support::daemon::{Served, TempDir, listener};
use crate::support::world::{LOOPBACK, listen};
use crate::support::{SOLO, bounded, small, until};
use gpunet_device::abi::SockAddr;
use gpunet_device::{Error, Listener, Options, Stream, Timeout, TransportKind};
use gpunet_proxy::access::Access;
use gpunet_proxy::snapshot::State;
use gpunet_proxy::{AttachError, Config, DaemonError, attach, daemon};
use std::process::{Command, Stdio};

fn access(text: &str) -> Access {
    toml::from_str(text).expect("rules")
}

/// The reason of a refusal.
fn refusal(result: Result<gpunet_proxy::Attachment, AttachError>) -> (i32, String) {
    match result {
        Err(AttachError::Daemon(DaemonError::Refused { errno, reason })) => (errno, reason),
        other => panic!("not refused: {other:?}"),
    }
}

/// The user of this process, as a table of the rules.
fn own_table(limits: &str) -> String {
    format!("[user.{}]\n{limits}", rustix::process::getuid().as_raw())
}

#[test]
fn a_quota_says_which_and_how_much_is_allowed() {
    bounded(|| {
        let served = Served::with(small(), access(&own_table("ring_memory = 8000000\nattachments = 2")));
        let proxy = served.attach(small());
        let (errno, reason) = refusal(proxy.attach_cpu());
        assert_eq!(errno, 105, "ENOBUFS");
        assert!(reason.contains("ring_memory") && reason.contains("8000000"), "{reason}");
        let modest = Config { sockets: 64, shared_rings: 1 << 20, ..small() };
        let proxy = served.attach(modest.clone());
        let first = proxy.attach_cpu().expect("enough");
        let second = proxy.attach_cpu().expect("enough");
        let (errno, reason) = refusal(proxy.attach_cpu());
        assert_eq!(errno, 24, "EMFILE");
        assert!(reason.contains("attachments"), "{reason}");
        // What is given back can be had again: by a close, and by a death.
        assert_eq!(first.close().undelivered, 0);
        let other = served.attach(modest);
        let first = other.attach_cpu().expect("room again");
        other.abort();
        until("room again", || proxy.attach_cpu().is_ok());
        drop((first, second));
        // Other rules hold for those that are there.
        let kept = proxy.attach_cpu().expect("room");
        served.daemon().set_access(access(&own_table("attachments = 1")));
        assert_eq!(refusal(proxy.attach_cpu()).0, 24);
        served.daemon().set_access(Access::default());
        until("the new rules count", || proxy.attach_cpu().is_ok());
        drop(kept);
    });
}

/// The region of this attachment takes 6 MB, and what the daemon keeps of its sockets 16.
#[test]
fn memory_for_many_sockets_counts() {
    bounded(|| {
        let served = Served::with(small(), access(&own_table("ring_memory = 16000000")));
        let proxy = served.attach(Config { sockets: 1 << 16, shared_rings: 1 << 16, ..small() });
        let (errno, reason) = refusal(proxy.attach_cpu());
        assert_eq!(errno, 105, "ENOBUFS");
        assert!(reason.contains("ring_memory"), "{reason}");
    });
}

#[test]
fn descriptors_are_shared_out_and_accepts_wait_for_them() {
    bounded(|| {
        // Some for the attachment, three for the listener, and for one stream.
        let one_stream = |daemon: u32| access(&own_table(&format!("descriptors = {}", 3 + daemon + 3 + 1)));
        let served = Served::new(small());
        let shards = served.attach(small()).daemon().expect("a daemon").data_threads;
        served.daemon().set_access(one_stream(shards));
        let proxy = served.attach(small());
        let attachment = proxy.attach_cpu().expect("enough");
        let token = attachment.token().expect("a number");
        let tcp = Options::DEFAULT.with_transport(TransportKind::Tcp);
        let listener = listen(token.net(), tcp);
        let (errno, reason) = refusal(proxy.attach_cpu());
        assert_eq!(errno, 23, "ENFILE");
        assert!(reason.contains("limit: descriptors"), "{reason}");
        assert_eq!(Listener::bind(&SOLO, token.net(), LOOPBACK).unwrap_err(), Error::TooManyFiles);
        let [first, second] = [(); 2].map(|()| client(listener.local_addr()));
        let stream = listener.accept(&SOLO).expect("one is allowed");
        let to = listener.local_addr();
        let refused = Stream::connect_with(&SOLO, token.net(), to, tcp).map(|_| ());
        assert_eq!(refused, Err(Error::TooManyFiles));
        assert_eq!(listener.accept_timeout(&SOLO, Timeout::ms(200)).map(|_| ()), Err(Error::TimedOut));
        std::thread::scope(|scope| {
            let handle = listener.handle();
            let net = token.net();
            let next =
                scope.spawn(move || Listener::from_handle(&SOLO, net, handle)?.accept(&SOLO)?.close(&SOLO));
            stream.close(&SOLO).expect("open");
            drop(first);
            // It was not lost: it waited for a descriptor.
            next.join().expect("no panic").expect("there is one again");
        });
        drop(second);
        listener.close(&SOLO).expect("open");
        assert_eq!(attachment.close().undelivered, 0);
        until("all of them are back", || {
            proxy.attach_cpu().is_ok_and(|attachment| {
                let token = attachment.token().expect("a number");
                Listener::bind(&SOLO, token.net(), LOOPBACK).is_ok()
            })
        });
    });
}

/// Not a test: another user's program.
#[test]
fn other_user() {
    let Some(path) = std::env::var_os("GPUNET_TEST_OTHER_USER") else { return };
    let path = std::path::Path::new(&path);
    match attach(path, small()) {
        Err(DaemonError::Refused { errno: 13, reason }) => println!("refused: {reason}"),
        Err(error) => println!("error: {error}"),
        Ok(proxy) => {
            let attachment = proxy.attach_cpu().expect("attached");
            let own = daemon::snapshot(path).expect("it answers");
            println!("sees {} of {}", own.clients.len(), own.clients.first().map_or(0, |client| client.uid));
            if let Ok(to) = std::env::var("GPUNET_TEST_CONNECT") {
                let to: std::net::SocketAddr = to.parse().expect("an address");
                let token = attachment.token().expect("a number");
                let stream = Stream::connect_with(&SOLO, token.net(), SockAddr::from_std(to), LARGE);
                stream.expect("accepted").close(&SOLO).expect("open");
                println!("was accepted");
            }
            drop(attachment);
        }
    }
}

/// Runs this program's test `other_user` as user 4242; `None` where that cannot be.
fn as_other_user(path: &std::path::Path) -> Option<String> {
    let output = other_users_program(path)?.output().expect("this program again");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// This program's test `other_user`, to be run as user 4242; `None` where that cannot be.
fn other_users_program(path: &std::path::Path) -> Option<Command> {
    use std::os::unix::process::CommandExt;
    if !rustix::process::getuid().is_root() {
        crate::support::not_run("as another user", "only root can be another user");
        return None;
    }
    // The test binary may lie where another user cannot read it.
    let program = path.parent().expect("a directory").join("program");
    if !program.exists() {
        crate::support::copy_program(&std::env::current_exe().expect("this program"), &program);
    }
    let mut command = Command::new(program);
    command.args(["--exact", "limits::other_user", "--nocapture"]).uid(4242).gid(4242);
    command.env("GPUNET_TEST_OTHER_USER", path);
    Some(command)
}

const LARGE: Options = Options::DEFAULT.with_transport(TransportKind::Peer).with_rings(1 << 22, 1 << 22);

/// What another user's connect takes is that user's: before an accept, and afterwards what only
/// that end asked for.
#[test]
fn memory_for_a_connect_is_its_users() {
    bounded(|| {
        use std::os::unix::fs::PermissionsExt;
        let dir = TempDir::new();
        let path = dir.join("sock");
        let daemon = daemon::start(listener(&path), small(), Access::default()).expect("a daemon");
        let everyone = |path| std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777));
        everyone(dir.path()).and_then(|()| everyone(&path)).expect("own files");
        let proxy = attach(&path, small()).expect("a daemon");
        let attachment = proxy.attach_cpu().expect("attached");
        // Two attachments of this user, and not much more.
        let most = 2 * small().shared_rings + (1 << 20);
        daemon.set_access(access(&format!(
            "allow_users = [4242]\n{}",
            own_table(&format!("ring_memory = {most}"))
        )));
        let token = attachment.token().expect("a number");
        let listener = listen(token.net(), Options::DEFAULT.with_transport(TransportKind::Peer));
        let to = listener.local_addr().to_std().expect("an address");
        let Some(mut command) = other_users_program(&path) else { return };
        let program = command.env("GPUNET_TEST_CONNECT", to.to_string()).stdout(Stdio::piped()).spawn();
        let program = program.expect("this program again");
        until("it waits", || {
            let sockets = daemon.snapshot().expect("it answers").sockets;
            sockets.iter().any(|socket| socket.state == State::Listen && socket.waiting == 1)
        });
        // The one before may still be given back.
        let second = || until("nothing of this user's is taken", || proxy.attach_cpu().is_ok());
        second();
        let stream = listener.accept(&SOLO).expect("accepted");
        second();
        stream.close(&SOLO).expect("open");
        let said = program.wait_with_output().expect("it ends").stdout;
        assert!(
            String::from_utf8_lossy(&said).contains("was accepted"),
            "{}",
            String::from_utf8_lossy(&said)
        );
    });
}

#[test]
fn other_users_are_refused_unless_they_are_allowed_and_see_only_their_own() {
    bounded(|| {
        use std::os::unix::fs::PermissionsExt;
        let dir = TempDir::new();
        let path = dir.join("sock");
        let everyone = |path| std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777));
        let daemon = daemon::start(listener(&path), small(), Access::default()).expect("a daemon");
        everyone(dir.path()).and_then(|()| everyone(&path)).expect("own files");
        let own = attach(&path, small()).expect("a daemon").attach_cpu().expect("attached");
        let Some(said) = as_other_user(&path) else { return };
        assert!(said.contains("refused: user 4242 may not use this daemon"), "{said}");
        daemon.set_access(access("allow_users = [4242]"));
        let said = as_other_user(&path).expect("root");
        assert!(said.contains("sees 1 of 4242"), "{said}");
        let all = daemon::snapshot(&path).expect("it answers");
        assert_eq!((all.clients.len(), all.pid), (1, std::process::id()));
        daemon.set_access(access("allow_users = [4242]\n[user.4242]\nadmin = true"));
        let said = as_other_user(&path).expect("root");
        assert!(said.contains("sees 2 of 0"), "{said}");
        drop(own);
    });
}

#[test]
fn a_snapshot_of_many_clients_comes_in_pieces() {
    bounded(|| {
        let served = Served::new(small());
        let proxy = served.attach(Config {
            sockets: 4,
            controls: 1,
            shared_rings: 8192,
            device_rings: 8192,
            ..small()
        });
        let attachments: Vec<_> = (0..60).map(|_| proxy.attach_cpu().expect("attached")).collect();
        let snapshot = daemon::snapshot(&served.path).expect("it answers");
        assert_eq!(snapshot.clients.len(), 60);
        assert!(
            snapshot.clients.iter().all(|client| client.pid == std::process::id() && client.device == "cpu")
        );
        drop(attachments);
        assert!(served.daemon().is_alive());
        let error = daemon::snapshot(std::path::Path::new("/nonexistent")).unwrap_err();
        assert!(matches!(error, DaemonError::NotThere { .. }), "{error:?}");
        assert!(error.to_string().contains("no daemon at"), "{error}");
    });
}
