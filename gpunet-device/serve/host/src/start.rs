//! Starting a server: its memory, and the launch.
#![allow(unsafe_code)]

use crate::running::{Kept, Running};
use crate::{Error, ServerSettings};
use gpu_usermap::PinnedRegion;
use gpunet_device::{Buffer, Options};
use gpunet_proxy::{Attachment, Program};
use gpunet_serve::{Board, HostBells, Listening, Memory, Server, Service};
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
    start_with_data(attachment, program, (blocks, threads), addr, options, settings, service, &[])
}

/// As [`start`], of a service that reads memory of the host program: a table, weights. They are
/// copied into the device's memory, where [`gpunet_serve::Turn::data`] and
/// [`gpunet_serve::Worker::data`] show them, and nobody changes them while the server runs.
///
/// # Errors
/// [`Error`].
///
/// # Examples
///
/// ```
/// # use gpunet_proxy::{Attachment, Program, abi::Options};
/// # use gpunet_serve::Service;
/// # use gpunet_serve_host::{Error, Running, ServerSettings, start_with_data};
/// # fn example<S: Service>(attachment: &Attachment, program: &Program, service: S, weights: &[f32]) -> Result<Running, Error> {
/// let bytes: Vec<u8> = weights.iter().flat_map(|weight| weight.to_le_bytes()).collect();
/// let (addr, settings) = ("0.0.0.0:7777".parse().expect("an address"), ServerSettings::DEFAULT);
/// start_with_data(attachment, program, (64, 128), addr, Options::DEFAULT, settings, service, &bytes)
/// # }
/// ```
#[allow(clippy::too_many_arguments, reason = "as `start`, and the data")]
pub fn start_with_data<S: Service>(
    attachment: &Attachment,
    program: &Program,
    (blocks, threads): (u32, u32),
    addr: SocketAddr,
    options: Options,
    settings: ServerSettings,
    service: S,
    data: &[u8],
) -> Result<Running, Error> {
    let device = attachment.cuda();
    let workers = service.workers();
    if workers >= blocks {
        return Err(Error::Workers { blocks, workers });
    }
    let board_bytes = Board::bytes(blocks as usize).next_multiple_of(64);
    let bells_bytes = HostBells::bytes(blocks as usize, workers, settings.room);
    let board = PinnedRegion::create("gpunet-serve", board_bytes + bells_bytes)?;
    let registration = device.map(|device| device.register(board.clone())).transpose()?;
    let memory = attachment.alloc(Server::bytes(&service, &settings, blocks as usize))?;
    // A GPU has no empty memory.
    let mut given = attachment.alloc(data.len().max(1))?;
    if !data.is_empty() {
        given.write(0, data)?;
    }
    let at_device = match &registration {
        Some(registration) => registration.device_ptr() as *mut u8,
        None => board.base().as_ptr(),
    };
    let bytes = board_bytes + bells_bytes;
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
    // SAFETY: `Running` keeps it, too, and nobody writes it while the kernel runs.
    let given_memory = unsafe { Memory::new(given.buffer()) };
    let bells = HostBells::new(here.part(board_bytes, bells_bytes), blocks as usize, workers, settings.room);
    // SAFETY: the only addresses are those of these memories, and `Server` is given what its
    // documentation says. A service has no other addresses unless unsafe code made them.
    let launch = unsafe {
        attachment.launch(program, blocks, threads, |net| Server {
            net,
            board: there,
            memory: device_memory,
            bells: there.part(board_bytes, bells_bytes),
            data: given_memory.part(0, data.len()),
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
    let mut running = Running::new(
        launch,
        Kept { registration, board, memory, given },
        (Board::new(here), bells),
        blocks,
        addr,
    );
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
