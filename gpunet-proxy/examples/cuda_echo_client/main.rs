//! Runs the CUDA C++ kernels of this directory: the host's side of `gpunet.h`.
//!
//!     nvcc -arch=compute_80 -rdc=true -ptx -I gpunet-device/posix/include gpunet_echo_client.cu
//!     cargo run --example cuda_echo_client -- gpunet_echo_client.ptx
//!     cargo run --example cuda_echo_client -- --check gpunet_check.ptx
//!     cargo run --example cuda_echo_client -- --cuh gpunet_cuh_check.ptx
//!
//! Exits with 2 when it has no GPU to run on.

use gpu_usermap::cuda::{Cuda, Device, LaunchSpec, Module, param};
use gpunet_proxy::{Attachment, Config, FinishPolicy, LaunchToken, embed};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::ExitCode;
use std::time::{Duration, Instant};

type Failure = Box<dyn std::error::Error>;

/// The library's functions, to be linked to every kernel that calls them.
const GPUNET: &str = include_str!("../../../gpunet-device/ptx/gpunet_device.ptx");
const BLOCKS: u32 = 4;
const THREADS: u32 = 128;
const MESSAGES: i32 = 100;
/// Threads of the blocks that check `gpunet.cuh`.
const CUH_THREADS: &[u32] = &[32, 64, 96, 128, 256, 512, 1024];
/// How long a kernel may take; then its waits are cancelled, and it tells where it was.
const LIMIT: Duration = Duration::from_secs(60);

/// The kernels of this directory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    Client,
    Check,
    Cuh,
}

impl Which {
    const fn entry(self) -> &'static str {
        match self {
            Self::Client => "gpunet_echo_client",
            Self::Check => "gpunet_check",
            Self::Cuh => "gpunet_cuh_check",
        }
    }
}

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let (which, path) = match &args[..] {
        [flag, path] if flag == "--check" => (Which::Check, path),
        [flag, path] if flag == "--cuh" => (Which::Cuh, path),
        [path] => (Which::Client, path),
        _ => {
            eprintln!("usage: cuda_echo_client [--check | --cuh] KERNEL.ptx");
            return ExitCode::FAILURE;
        }
    };
    let device = match Cuda::load().map_err(Failure::from).and_then(|cuda| Ok(cuda.device(0)?)) {
        Ok(device) => device,
        Err(why) => {
            eprintln!("NOT RUN: no GPU: {why}");
            return ExitCode::from(2);
        }
    };
    match run(&device, path, which) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(device: &Device, path: &str, which: Which) -> Result<(), Failure> {
    let ptx = std::fs::read(path)?;
    let proxy = embed(Config::default())?;
    let attachment = proxy.attach_cuda(device)?;
    let sizes = if which == Which::Cuh { CUH_THREADS } else { &[THREADS] };
    for &threads in sizes {
        // The functions, too, are assembled for blocks of that size.
        let module = device.link_for(&[("kernel", &ptx), ("gpunet", GPUNET.as_bytes())], threads)?;
        run_blocks(&attachment, &module, which, threads)?;
    }
    Ok(())
}

/// Runs a kernel by blocks of so many threads, and checks what each block has left.
fn run_blocks(attachment: &Attachment, module: &Module, which: Which, threads: u32) -> Result<(), Failure> {
    let (device, name) = (module.device(), which.entry());
    let blocks = if which == Which::Client { BLOCKS } else { 2 };
    let results = device.alloc(blocks as usize * 8)?;
    let token = attachment.token()?;
    // SAFETY: an address is plain data.
    let results_param = unsafe { param(results.ptr()) };
    let params = match which {
        // SAFETY: `struct sockaddr_in` and an int are plain data.
        Which::Client => unsafe { vec![param(sockaddr_in(echo_server()?)), param(MESSAGES), results_param] },
        Which::Check => vec![results_param],
        // SAFETY: `gpunet_net_t` is an address.
        Which::Cuh => unsafe { vec![param(token.context()), results_param] },
    };
    if which != Which::Cuh {
        attachment.bind(module, &token)?;
    }
    let left_open = launch(token, module, name, (blocks, threads), params)?;
    let mut bytes = vec![0; blocks as usize * 8];
    device.read(&results, 0, &mut bytes)?;
    let ints: Vec<_> = bytes.chunks_exact(4).map(|b| i32::from_ne_bytes([b[0], b[1], b[2], b[3]])).collect();
    for (block, pair) in ints.chunks_exact(2).enumerate() {
        println!("{name}, {threads} threads, block {block}: {} {}", pair[0], pair[1]);
    }
    let good = |pair: &[i32]| if which == Which::Client { pair == [MESSAGES, 0] } else { pair[0] == 0 };
    if !ints.chunks_exact(2).all(good) {
        return Err("a block failed".into());
    }
    if left_open == 0 { Ok(()) } else { Err(format!("{left_open} sockets left open").into()) }
}

/// Runs one kernel with the sockets of a launch; returns how many it left open.
fn launch(
    token: LaunchToken,
    module: &Module,
    name: &str,
    (blocks, threads): (u32, u32),
    params: Vec<Vec<u8>>,
) -> Result<usize, Failure> {
    let spec = LaunchSpec {
        function: module.function(name)?,
        grid: (blocks, 1, 1),
        block: (threads, 1, 1),
        shared_bytes: 0,
        params,
    };
    // SAFETY: the parameters are those of the kernel in the .cu file, and the results' buffer
    // outlives the launch.
    let running = unsafe { module.device().launch(&[spec]) }?;
    let start = Instant::now();
    while !running.is_finished()? {
        if start.elapsed() > LIMIT {
            token.cancel();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    running.wait()?;
    Ok(token.finish(FinishPolicy::Close).left_open)
}

/// A TCP echo server on a free port.
fn echo_server() -> std::io::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let addr = listener.local_addr()?;
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            std::thread::spawn(move || {
                let mut bytes = [0; 65536];
                while let Ok(n @ 1..) = stream.read(&mut bytes) {
                    if stream.write_all(&bytes[..n]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    Ok(addr)
}

/// Linux's `struct sockaddr_in`.
fn sockaddr_in(addr: SocketAddr) -> [u32; 4] {
    let SocketAddr::V4(v4) = addr else { return [0; 4] };
    let port = u32::from(v4.port().to_be());
    [2 | port << 16, u32::from_ne_bytes(v4.ip().octets()), 0, 0]
}
