//! Programs that know nothing of gpunet: nc, socat, a tokio client.

#[path = "../support/mod.rs"]
mod support;

use gpunet_device::{Error, Listener, Net, Options, SockAddr, Stream};
use std::io::{Read, Write};
use std::net::{Ipv6Addr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use support::world::{LOOPBACK, listen};
use support::{Killed, Memory, SOLO, World, bounded, not_run, until};

/// Starts a program with pipes to and from it; `None`, loudly, when it is not installed.
fn start(test: &str, program: &str, args: &[&str]) -> Option<Killed> {
    let child = Command::new(program).args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    match child {
        Ok(child) => Some(Killed(child)),
        Err(error) => {
            not_run(test, &format!("{program}: {error}"));
            None
        }
    }
}

/// Accepts one connection and echoes what it sends.
fn echo(net: Net, listener: Listener) -> Result<(), Error> {
    let mut stream = Listener::from_handle(&SOLO, net, listener.handle())?.accept(&SOLO)?;
    let memory = Memory::new(4096);
    loop {
        match stream.recv(&SOLO, memory.buffer())? {
            0 => return stream.close(&SOLO),
            n => stream.send_all(&SOLO, memory.buffer().first(n))?,
        }
    }
}

/// Sends `hello` into the program and waits for it to come back.
fn talk(program: &mut Killed) {
    let mut input = program.stdin.take().expect("a pipe");
    input.write_all(b"hello").expect("it reads");
    let mut back = [0; 5];
    program.stdout.as_mut().expect("a pipe").read_exact(&mut back).expect("it answers");
    assert_eq!(&back, b"hello");
}

/// Has `program` talk to an echo kernel that listens at `addr`. The arguments name HOST and PORT.
fn serve(test: &'static str, program: &'static str, args: &'static [&'static str], addr: SockAddr) {
    bounded(move || {
        let world = World::new();
        let listener = Listener::bind(&SOLO, world.net(), addr).expect("a free port");
        let bound = listener.local_addr().to_std().expect("an address");
        let (host, port) = (bound.ip().to_string(), bound.port().to_string());
        let args: Vec<_> = args.iter().map(|arg| arg.replace("HOST", &host).replace("PORT", &port)).collect();
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        if let Some(mut program) = start(test, program, &args) {
            let net = world.net();
            let handle = listener.handle();
            let served = std::thread::spawn(move || {
                echo(net, Listener::from_handle(&SOLO, net, handle).expect("open"))
            });
            talk(&mut program);
            drop(program);
            assert_eq!(served.join().expect("no panic"), Ok(()));
        }
        listener.close(&SOLO).expect("open");
        world.expect_all_free();
    });
}

#[test]
fn nc_gets_its_bytes_back() {
    serve("nc_gets_its_bytes_back", "nc", &["HOST", "PORT"], LOOPBACK);
}

#[test]
fn socat_gets_its_bytes_back() {
    serve("socat_gets_its_bytes_back", "socat", &["-", "TCP:HOST:PORT"], LOOPBACK);
}

#[test]
fn nc_gets_its_bytes_back_over_ipv6() {
    if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_err() {
        return not_run("nc_gets_its_bytes_back_over_ipv6", "this machine has no IPv6 loopback");
    }
    let addr = SockAddr::v6(Ipv6Addr::LOCALHOST.octets(), 0);
    serve("nc_gets_its_bytes_back_over_ipv6", "nc", &["-6", "HOST", "PORT"], addr);
}

#[test]
fn a_kernel_talks_to_a_socat_echo_server() {
    bounded(|| {
        let world = World::new();
        let free = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let addr = free.local_addr().expect("an address");
        drop(free);
        let listen = format!("TCP-LISTEN:{},bind=127.0.0.1,reuseaddr,fork", addr.port());
        let name = "a_kernel_talks_to_a_socat_echo_server";
        let Some(_program) = start(name, "socat", &[&listen, "EXEC:cat"]) else { return };
        until("socat listens", || TcpStream::connect(addr).is_ok());
        let sent = Memory::filled(1, 0, 100_000);
        let got = Memory::new(100_000);
        let options = Options::DEFAULT.with_rings(1 << 17, 1 << 17);
        let mut stream = Stream::connect_with(&SOLO, world.net(), addr.into(), options).expect("connected");
        stream.send_all(&SOLO, sent.buffer()).expect("room");
        assert_eq!(stream.recv_exact(&SOLO, got.buffer()), Ok(100_000));
        assert!(got.holds(0, 100_000, 1, 0));
        stream.close(&SOLO).expect("open");
        world.expect_all_free();
    });
}

#[test]
fn a_tokio_client_gets_its_bytes_back() {
    bounded(|| {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let world = World::new();
        let listener = listen(world.net(), Options::DEFAULT);
        let addr = listener.local_addr().to_std().expect("an address");
        let (net, handle) = (world.net(), listener.handle());
        let served =
            std::thread::spawn(move || echo(net, Listener::from_handle(&SOLO, net, handle).expect("open")));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let bytes = Memory::filled(2, 0, 300_000).copy(0, 300_000);
        let back = runtime.block_on(async {
            let stream = tokio::net::TcpStream::connect(addr).await.expect("connected");
            let (mut reader, mut writer) = stream.into_split();
            let sent = bytes.clone();
            let write = async move {
                writer.write_all(&sent).await.expect("sent");
                writer.shutdown().await.expect("shut down");
            };
            let mut back = Vec::new();
            let (read, ()) = tokio::join!(reader.read_to_end(&mut back), write);
            read.expect("an orderly end");
            back
        });
        assert!(back == bytes);
        assert_eq!(served.join().expect("no panic"), Ok(()));
        listener.close(&SOLO).expect("open");
        world.end();
    });
}
