//! Starting a server: its memory, and the launch.
#![allow(unsafe_code)]

use crate::running::{Kept, Running};
use crate::{Error, ServerSettings};
use gpu_usermap::PinnedRegion;
use gpunet_device::{Buffer, Options};
use gpunet_proxy::{Attachment, Program};
use gpunet_serve::{Board, Listening, Memory, Server, Service};
use std::hash::{BuildHasher, Hasher};
use std::net::SocketAddr;
use std::time::{Duration, Instant, SystemTime};

/// How long a kernel may take to listen.
const STARTS_WITHIN: Duration = Duration::from_secs(30);

/// Returns a number that cannot be guessed: the seed that the standard library makes for its maps.
fn random() -> u64 {
    std::hash::RandomState::new().build_hasher().finish()
}

/// Starts a server of `blocks` blocks of `threads` threads (on the CPU usually 1) at an address,
/// and waits until it listens.
///
/// The program contains the entry of `Server<S>`. The attachment ends the server when it is
/// dropped.
///
/// # Errors
/// [`Error`].
pub fn start<S: Service>(
    attachment: &Attachment,
    program: &Program,
    (blocks, threads): (u32, u32),
    addr: SocketAddr,
    options: Options,
    settings: ServerSettings,
    service: S,
) -> Result<Running, Error> {
    let device = attachment.cuda();
    let board = PinnedRegion::create("gpunet-serve", Board::bytes(blocks as usize))?;
    let registration = device.map(|device| device.register(board.clone())).transpose()?;
    let memory = attachment.alloc(Server::bytes(&service, &settings, blocks as usize))?;
    let at_device = match &registration {
        Some(registration) => registration.device_ptr() as *mut u8,
        None => board.base().as_ptr(),
    };
    let bytes = Board::bytes(blocks as usize);
    // SAFETY: the region is so large, page-aligned and new; `Running` keeps it until the kernel has
    // ended, and host and device access it by atomic words only.
    let (here, there) = unsafe {
        (
            Memory::new(Buffer::from_raw_parts(board.base().as_ptr(), bytes)),
            Memory::new(Buffer::from_raw_parts(at_device, bytes)),
        )
    };
    // SAFETY: `Running` keeps the memory until the kernel has ended. It is new, so filled with
    // zeros, page-aligned, and this launch alone uses it, by its blocks.
    let device_memory = unsafe { Memory::new(memory.buffer()) };
    // SAFETY: the only addresses are those of the two memories, and `Server` is given what its
    // documentation says. A service has no other addresses unless unsafe code made them.
    let launch = unsafe {
        attachment.launch(program, blocks, threads, |net| Server {
            net,
            board: there,
            memory: device_memory,
            addr: addr.into(),
            options,
            seed: [random(), random()],
            unix_ns: SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .map_or(0, |since| since.as_nanos() as u64),
            // A block on the CPU has the clock of this process.
            clock_ns: if device.is_none() { gpunet_device::now_ns() } else { 0 },
            settings,
            service,
        })
    }?;
    let mut running =
        Running::new(launch, Kept { registration, board, memory }, Board::new(here), blocks, addr);
    let started = Instant::now();
    loop {
        match Board::new(here).listening() {
            Listening::At(found) => {
                running.set_addr(found.to_std().unwrap_or(addr));
                return Ok(running);
            }
            Listening::Failed(errno) => {
                let error = gpunet_device::Error::from_errno(errno);
                return Err(Error::Listen { addr, error });
            }
            Listening::NotYet if running.is_finished()? || started.elapsed() > STARTS_WITHIN => {
                return Err(Error::NotStarted(started.elapsed()));
            }
            Listening::NotYet => std::thread::sleep(Duration::from_micros(200)),
        }
    }
}
