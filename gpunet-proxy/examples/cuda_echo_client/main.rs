//! Runs the CUDA C++ kernels of this directory: the host's side of `gpunet.h`.
//!
//!     nvcc -arch=compute_80 -rdc=true -ptx -I gpunet-device/include gpunet_echo_client.cu
//!     cargo run --example cuda_echo_client -- gpunet_echo_client.ptx
//!     cargo run --example cuda_echo_client -- --check gpunet_check.ptx
//!
//! Exits with 2 when it has no GPU to run on.

use gpu_usermap::cuda::{Cuda, Device, LaunchSpec, Module, param};
use gpunet_proxy::{Attachment, Config, FinishPolicy, embed};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::ExitCode;

type Failure = Box<dyn std::error::Error>;

/// The library's functions, to be linked to every kernel that calls them.
const GPUNET: &str = include_str!("../../../gpunet-device/ptx/gpunet_device.ptx");
const BLOCKS: u32 = 4;
const THREADS: u32 = 128;
const MESSAGES: i32 = 100;

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let (check, path) = match &args[..] {
        [flag, path] if flag == "--check" => (true, path),
        [path] => (false, path),
        _ => {
            eprintln!("usage: cuda_echo_client [--check] KERNEL.ptx");
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
    match run(&device, path, check) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(device: &Device, path: &str, check: bool) -> Result<(), Failure> {
    let ptx = std::fs::read(path)?;
    let module = device.link(&[("kernel", &ptx), ("gpunet", GPUNET.as_bytes())])?;
    let proxy = embed(Config::default())?;
    let attachment = proxy.attach_cuda(device)?;
    let (name, blocks) = if check { ("gpunet_check", 2) } else { ("gpunet_echo_client", BLOCKS) };
    let results = device.alloc(blocks as usize * 8)?;
    // SAFETY: an address is plain data.
    let results_param = unsafe { param(results.ptr()) };
    let params = if check {
        vec![results_param]
    } else {
        // SAFETY: `struct sockaddr_in` and an int are plain data.
        unsafe { vec![param(sockaddr_in(echo_server()?)), param(MESSAGES), results_param] }
    };
    launch(&attachment, &module, name, blocks, params)?;
    let mut bytes = vec![0; blocks as usize * 8];
    device.read(&results, 0, &mut bytes)?;
    let ints: Vec<_> = bytes.chunks_exact(4).map(|b| i32::from_ne_bytes([b[0], b[1], b[2], b[3]])).collect();
    for (block, pair) in ints.chunks_exact(2).enumerate() {
        println!("{name}, block {block}: {} {}", pair[0], pair[1]);
        let good = if check { pair[0] == 0 } else { pair == [MESSAGES, 0] };
        if !good {
            return Err(format!("block {block} failed").into());
        }
    }
    Ok(())
}

/// Runs one kernel with the attachment's sockets.
fn launch(
    attachment: &Attachment,
    module: &Module,
    name: &str,
    blocks: u32,
    params: Vec<Vec<u8>>,
) -> Result<(), Failure> {
    let token = attachment.token()?;
    attachment.bind(module, &token)?;
    let spec = LaunchSpec {
        function: module.function(name)?,
        grid: (blocks, 1, 1),
        block: (THREADS, 1, 1),
        shared_bytes: 0,
        params,
    };
    // SAFETY: the parameters are those of the kernel in the .cu file, and the results' buffer
    // outlives the launch.
    let running = unsafe { module.device().launch(&[spec]) }?;
    running.wait()?;
    let report = token.finish(FinishPolicy::Close);
    if report.left_open != 0 {
        return Err(format!("{} sockets left open", report.left_open).into());
    }
    Ok(())
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
