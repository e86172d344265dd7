//! CUDA C++ on CPU blocks: the C functions and gpunet.cuh, compiled by the machine's C++ compiler, with a real proxy
//! behind them.
//!
//! A block has one thread here. What blocks, warps and threads of a GPU do is checked there, by the same programs
//! (`examples/cuda_echo_client`). The tests need `c++` and cargo, and so are left out unless asked for:
//! `cargo test -p gpunet-proxy --test cuda_cpp -- --ignored`.

use gpunet_proxy::abi::{Options, Prepared};
use gpunet_proxy::{Attachment, Config, FinishPolicy, LaunchToken, Proxy, embed};
use libloading::Library;
use std::ffi::{CStr, c_char};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::mpsc::{RecvTimeoutError, Sender};
use std::thread::Scope;
use std::time::Duration;

/// `echo_result` of the examples.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct EchoResult {
    connections: u64,
    bytes: u64,
    error: i32,
}

/// `echo_listener` of the examples.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct EchoListener {
    handle: i32,
    port: u16,
}

/// `queue_result` of the examples.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct QueueResult {
    wrong: u32,
    error: i32,
    played: u64,
}

/// `gpunet_span`.
#[repr(C)]
struct Span([(*mut u8, u64); 2]);

/// An address that a test hands to its blocks.
#[derive(Clone, Copy)]
struct Shared<T>(*mut T);

// SAFETY: the tests' blocks use the memory as those of a GPU do.
unsafe impl<T> Send for Shared<T> {}

impl<T> Shared<T> {
    const fn get(self) -> *mut T {
        self.0
    }
}

struct World {
    token: LaunchToken,
    attachment: Attachment,
    _proxy: Proxy,
}

fn world() -> World {
    let proxy = embed(Config::small()).expect("a proxy");
    let attachment = proxy.attach_cpu().expect("an attachment");
    let token = attachment.token().expect("a launch");
    World { token, attachment, _proxy: proxy }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_owned()
}

fn run(command: &mut Command) {
    let done = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(done.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&done.stderr));
}

/// The blocks, compiled with the C functions. Once for all tests.
fn blocks() -> &'static Library {
    static BLOCKS: OnceLock<Library> = OnceLock::new();
    BLOCKS.get_or_init(|| {
        let (root, scratch) = (root(), PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("cuda_cpp"));
        let functions = scratch.join("debug");
        let kind = ["--features", "capi", "--crate-type", "cdylib", "--target-dir"];
        run(Command::new(env!("CARGO"))
            .args(["rustc", "--quiet", "-p", "gpunet-posix", "--lib"])
            .args(kind)
            .arg(&scratch)
            .current_dir(&root));
        std::fs::write(scratch.join("calls.inc"), calls(&root)).expect("a list of calls");
        let library = scratch.join("blocks.so");
        for standard in ["-std=c++20", "-std=c++17"] {
            let mut compiler = Command::new("c++");
            compiler.args([standard, "-O1", "-fPIC", "-shared", "-pthread", "-Wall", "-Wextra", "-Werror"]);
            compiler.args(["-fsanitize=undefined", "-fno-sanitize-recover=all"]);
            for include in [
                "gpunet-device/posix/include",
                "gpunet-proxy/tests/cuda_cpp/cpu",
                "gpunet-proxy/examples/cuda_echo_client",
                "gpunet-proxy/capi/examples/cuda-echo",
                "gpunet-proxy/capi/examples/cuda-queue",
            ] {
                compiler.arg("-I").arg(root.join(include));
            }
            compiler.arg("-I").arg(&scratch).arg(root.join("gpunet-proxy/tests/cuda_cpp/blocks.cpp"));
            compiler.arg("-o").arg(&library).arg("-L").arg(&functions).arg("-lgpunet_posix");
            run(compiler.arg(format!("-Wl,-rpath,{}", functions.display())));
        }
        // SAFETY: what its constructors do is harmless.
        unsafe { Library::new(&library) }.unwrap_or_else(|error| panic!("{}: {error}", library.display()))
    })
}

/// The two names of each call of gpunet.h and gpunet_team.h.
fn calls(root: &Path) -> String {
    let of = |header: &str, marks: &[&str], name: &str| -> Vec<String> {
        let path = root.join("gpunet-device/posix/include").join(header);
        let header = std::fs::read_to_string(path).expect("a header");
        let (_, table) = header.split_once("extern \"C\" {").expect("the table of calls");
        let calls = marks.iter().flat_map(|mark| table.split(*mark).skip(1));
        calls
            .map(|call| {
                let call = &call[..call.find(')').expect("its end")];
                let names: Vec<_> = call.split(',').skip(1).take(2).map(str::trim).collect();
                format!("{name}({})\n", names.join(", "))
            })
            .collect()
    };
    let sockets = of("gpunet.h", &["GPUNET_CALL("], "GPUNET_CALL");
    let teams = of("gpunet_team.h", &["GPUNET_TEAM_CALL(", "GPUNET_TEAM_CALL0("], "GPUNET_TEAM_CALL");
    assert!(sockets.len() > 60 && teams.len() > 50, "the headers were not read");
    sockets.concat() + &teams.concat()
}

/// Ends the waits of blocks that have failed to talk to each other: after a minute, unless what is returned was
/// dropped.
fn cancel_when_late<'scope>(scope: &'scope Scope<'scope, '_>, token: &'scope LaunchToken) -> Sender<()> {
    let (ended, has_ended) = std::sync::mpsc::channel();
    scope.spawn(move || {
        if has_ended.recv_timeout(Duration::from_secs(60)) == Err(RecvTimeoutError::Timeout) {
            token.cancel();
        }
    });
    ended
}

#[test]
#[ignore = "needs c++"]
fn every_call_without_a_context_returns_enetdown() {
    type WithoutNetwork = unsafe extern "C" fn(u64) -> *const c_char;
    // SAFETY: blocks.cpp has it with this signature.
    let call = unsafe { blocks().get::<WithoutNetwork>(b"without_network") }.expect("a function");
    #[repr(align(64))]
    struct Zeros([u64; 64]);
    let zeros = Zeros([0; 64]);
    let nowhere = zeros.0.as_ptr() as u64;
    for net in [0, nowhere, nowhere + 4] {
        // SAFETY: 0, or 512 readable bytes that are no context.
        let wrong = unsafe { call(net) };
        // SAFETY: a string of the program.
        let name = (!wrong.is_null()).then(|| unsafe { CStr::from_ptr(wrong) });
        assert_eq!(name, None, "with {net:#x}");
    }
}

#[test]
#[ignore = "needs c++"]
fn the_check_of_gpunet_cuh_passes() {
    type Block = unsafe extern "C" fn(u32, u64, *mut i32);
    // SAFETY: blocks.cpp has it with this signature.
    let block = unsafe { blocks().get::<Block>(b"check_block") }.expect("a function");
    let world = world();
    let net = world.token.context();
    let mut results = [[0i32; 2]; 2];
    let shared = Shared(results.as_mut_ptr().cast::<i32>());
    std::thread::scope(|scope| {
        let _ended = cancel_when_late(scope, &world.token);
        std::thread::scope(|scope| {
            for number in 0..2 {
                let block = &block;
                // SAFETY: a result for each block, which outlives them.
                scope.spawn(move || unsafe { block(number, net, shared.get()) });
            }
        });
    });
    assert_eq!(results, [[0, 0]; 2], "(line of gpunet_cuh_check.cu, value found)");
    assert_eq!(world.token.finish(FinishPolicy::Close).left_open, 0);
}

#[test]
#[ignore = "needs c++"]
fn the_echo_examples_talk_to_each_other() {
    type Server = unsafe extern "C" fn(u32, u64, *mut u8, *mut EchoListener, *mut EchoResult);
    type Client = unsafe extern "C" fn(u32, u64, u16, *mut u8, *mut EchoResult);
    // SAFETY: blocks.cpp has it with this signature.
    let server = unsafe { blocks().get::<Server>(b"server_block") }.expect("a function");
    // SAFETY: as above.
    let client = unsafe { blocks().get::<Client>(b"client_block") }.expect("a function");
    const SERVERS: usize = 2;
    const CLIENTS: usize = 4;
    let world = world();
    let net = world.token.context();
    let mut listener = EchoListener::default();
    let (mut served, mut asked) = ([EchoResult::default(); SERVERS], [EchoResult::default(); CLIENTS]);
    let (mut server_memory, mut client_memory) = (vec![0; 5000 * SERVERS], vec![0; 7000 * CLIENTS]);
    let at = Shared(&raw mut listener);
    let (served_at, asked_at) = (Shared(served.as_mut_ptr()), Shared(asked.as_mut_ptr()));
    let (theirs, ours) = (Shared(server_memory.as_mut_ptr()), Shared(client_memory.as_mut_ptr()));
    std::thread::scope(|scope| {
        let _ended = cancel_when_late(scope, &world.token);
        for number in 0..SERVERS as u32 {
            let server = &server;
            // SAFETY: memory for each block, which outlives them.
            scope.spawn(move || unsafe { server(number, net, theirs.get(), at.get(), served_at.get()) });
        }
        let port = loop {
            // SAFETY: plain integers, which the first block writes.
            let now = unsafe { at.get().read_volatile() };
            assert!(now.handle >= 0, "errno {}", -now.handle);
            if now.handle > 0 {
                break now.port;
            }
            std::thread::yield_now();
        };
        std::thread::scope(|scope| {
            for number in 0..CLIENTS as u32 {
                let client = &client;
                // SAFETY: as above.
                scope.spawn(move || unsafe { client(number, net, port, ours.get(), asked_at.get()) });
            }
        });
        world.token.cancel();
    });
    let bytes = 50 * 7000;
    assert_eq!(asked, [EchoResult { connections: 1, bytes, error: 0 }; CLIENTS]);
    assert_eq!(served.iter().map(|one| one.connections).sum::<u64>(), CLIENTS as u64, "{served:?}");
    assert_eq!(served.iter().map(|one| one.bytes).sum::<u64>(), bytes * CLIENTS as u64, "{served:?}");
    assert!(served.iter().all(|one| one.error == 0), "{served:?}");
    assert_eq!(world.token.finish(FinishPolicy::Close).left_open, 0);
}

#[test]
#[ignore = "needs c++"]
fn the_queue_example_plays_prepared_messages() {
    type Play = unsafe extern "C" fn(u64, *const Prepared, u64, *const Prepared, u64, *mut QueueResult);
    type FillAndCheck = unsafe extern "C" fn(*const Span) -> u32;
    // SAFETY: blocks.cpp has it with this signature.
    let play = unsafe { blocks().get::<Play>(b"play_block") }.expect("a function");
    // SAFETY: as above.
    let fill_and_check =
        unsafe { blocks().get::<FillAndCheck>(b"fill_and_check_block") }.expect("a function");
    let echo = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let World { token, attachment, _proxy } = world();
    let options = Options::DEFAULT.with_rings(4096, 4096);
    let socket = attachment.connect_blocking(echo.local_addr().expect("bound"), options).expect("connected");
    let (mut sender, mut receiver) = (socket.take_send().expect("free"), socket.take_recv().expect("free"));
    let (out, back) = (sender.prepare(1000).expect("room"), receiver.prepare(1000).expect("room"));
    let mut pieces = out.span.pieces().into_iter().map(|piece| (piece.ptr, piece.len as u64));
    let span = Span(std::array::from_fn(|_| pieces.next().unwrap_or((std::ptr::null_mut(), 0))));
    // SAFETY: the first message of a fresh ring, which has room for it.
    assert_eq!(unsafe { fill_and_check(&raw const span) }, 0);

    let mut result = QueueResult::default();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut peer, _) = echo.accept().expect("a connection");
            let mut all = peer.try_clone().expect("a descriptor");
            // It ends when the socket is closed.
            let _ = std::io::copy(&mut all, &mut peer);
        });
        let ring = sender.capacity() as u64;
        // SAFETY: values of this test, which outlive the block.
        unsafe {
            play(
                token.context(),
                &raw const out.prepared,
                ring,
                &raw const back.prepared,
                500,
                &raw mut result,
            );
        }
        // The socket is closed when no launch knows it.
        token.finish(FinishPolicy::Keep);
        drop((sender, receiver, socket));
    });
    assert_eq!(result, QueueResult { wrong: 0, error: 0, played: 500 });
}
