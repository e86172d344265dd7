//! Other processes: this binary again, with a task, and a socket as its standard input.

use std::ffi::c_void;
use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, io, ptr};

use gpu_usermap::cuda::{Cuda, Device};

use crate::support::{Hammer, Words};

/// Names the task of a child: `export`, `import` or `describe`, and the number of its GPU.
const TASK: &str = "GPUNET_TEST_CHILD";

/// Longer than a driver takes to start in a fresh process.
const TIMEOUT: Duration = Duration::from_secs(20);

/// How much memory the processes share.
pub const SHARED: usize = 4 << 20;

/// Where the owner's kernel writes, in bytes: away from the importer's at 0.
pub const OWNERS: u64 = 1 << 20;

/// A child process. It is killed when this drops.
pub struct Child {
    process: std::process::Child,
    pub socket: UnixStream,
}

impl Child {
    pub fn start(task: &str, ordinal: u32) -> Self {
        Self::with(task, ordinal, &[])
    }

    /// Starts it with further variables in its environment.
    pub fn with(task: &str, ordinal: u32, environment: &[(&str, String)]) -> Self {
        let (socket, theirs) = UnixStream::pair().expect("a pair");
        socket.set_read_timeout(Some(TIMEOUT)).expect("a limit");
        let process = Command::new(env::current_exe().expect("this file"))
            .args(["--exact", "child::a_child_process", "--ignored", "--nocapture"])
            .env(TASK, format!("{task} {ordinal}"))
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .spawn()
            .expect("a child");
        Self { process, socket }
    }

    /// Ends the process as SIGKILL does, and returns when it is gone, with all of its descriptors and contexts.
    pub fn kill(&mut self) {
        // Fails only if it is gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Sends a descriptor, with one byte, since a message must have some.
pub fn send_fd(socket: &UnixStream, fd: &OwnedFd) {
    let mut message = Message::new();
    let number = fd.as_raw_fd();
    message.with(|header| {
        // SAFETY: the buffer has room for one header, which this returns.
        let part = unsafe { libc::CMSG_FIRSTHDR(header) };
        // SAFETY: it points into the buffer, and is aligned.
        let part = unsafe { &mut *part };
        part.cmsg_level = libc::SOL_SOCKET;
        part.cmsg_type = libc::SCM_RIGHTS;
        // SAFETY: arithmetic.
        part.cmsg_len = unsafe { libc::CMSG_LEN(size_of_val(&number) as u32) } as usize;
        // SAFETY: the address of that header's data.
        let data = unsafe { libc::CMSG_DATA(part) };
        // SAFETY: the buffer has room for one int there, of any alignment.
        unsafe { data.cast::<i32>().write_unaligned(number) };
        // SAFETY: an open socket and a complete message.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), header, 0) };
        assert_eq!(sent, 1, "{}", io::Error::last_os_error());
    });
}

/// Receives the descriptor that [`send_fd`] sent.
pub fn receive_fd(socket: &UnixStream) -> OwnedFd {
    Message::new().with(|header| {
        // SAFETY: an open socket and room for a message.
        let received = unsafe { libc::recvmsg(socket.as_raw_fd(), header, libc::MSG_CMSG_CLOEXEC) };
        assert_eq!(received, 1, "{}", io::Error::last_os_error());
        // SAFETY: the kernel filled the message in.
        let part = unsafe { libc::CMSG_FIRSTHDR(header) };
        assert!(!part.is_null(), "no descriptor came");
        // SAFETY: a header of the message.
        let data = unsafe { libc::CMSG_DATA(part) };
        // SAFETY: it is of type SCM_RIGHTS, the only one sent here, and holds one int.
        let number = unsafe { data.cast::<i32>().read_unaligned() };
        // SAFETY: the kernel made this descriptor for us.
        unsafe { OwnedFd::from_raw_fd(number) }
    })
}

/// Room for a message of one byte and one descriptor.
struct Message {
    byte: u8,
    control: [u64; 8],
}

impl Message {
    fn new() -> Self {
        Self { byte: 0, control: [0; 8] }
    }

    fn with<R>(&mut self, act: impl FnOnce(&mut libc::msghdr) -> R) -> R {
        let mut bytes = libc::iovec { iov_base: (&raw mut self.byte).cast::<c_void>(), iov_len: 1 };
        // SAFETY: integers and null pointers.
        let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
        header.msg_iov = ptr::from_mut(&mut bytes);
        header.msg_iovlen = 1;
        header.msg_control = self.control.as_mut_ptr().cast();
        // SAFETY: arithmetic.
        header.msg_controllen = unsafe { libc::CMSG_SPACE(4) } as usize;
        act(&mut header)
    }
}

#[test]
#[ignore = "other tests run it as a child process"]
fn a_child_process() {
    let Ok(task) = env::var(TASK) else { return };
    let mut socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned().expect("a copy"));
    let (task, ordinal) = task.split_once(' ').expect("two words");
    let device = Cuda::load()
        .expect("the parent has it")
        .device(ordinal.parse().expect("a number"))
        .expect("the parent's GPU");
    match task {
        "export" => export(&device, &mut socket),
        "import" => import(&device, &mut socket),
        "describe" => describe(&device, &mut socket),
        other => panic!("{other}"),
    }
    // The end of this process is to be a violent one, also if the parent's came first.
    std::process::abort();
}

/// Shares memory, and writes into a part of it for as long as the parent lives.
fn export(device: &Device, socket: &mut UnixStream) {
    let shared = device.alloc_shareable(SHARED).expect("memory");
    let words = Words::new(device);
    let hammer = Hammer::start(device, shared.ptr() + OWNERS, &words);
    hammer.wait_for_beats(&words, 100);
    send_fd(socket, &shared.export().expect("a descriptor"));
    wait_for_the_end(socket);
}

/// Writes into the parent's memory, for as long as the parent lives.
fn import(device: &Device, socket: &mut UnixStream) {
    let imported = device.import(receive_fd(socket), SHARED).expect("a mapping");
    let words = Words::new(device);
    let hammer = Hammer::start(device, imported.ptr(), &words);
    hammer.wait_for_beats(&words, 100);
    socket.write_all(&[1]).expect("the parent is there");
    wait_for_the_end(socket);
}

/// Says which GPU this is, and what comes of using the parent's memory.
fn describe(device: &Device, socket: &mut UnixStream) {
    let result = match device.import(receive_fd(socket), SHARED) {
        Ok(imported) => {
            eprintln!("the GPU's number here: {:?}", imported.location());
            let words = Words::new(device);
            let hammer = Hammer::start(device, imported.ptr(), &words);
            hammer.wait_for_beats(&words, 100);
            format!("wrote {}", hammer.stop(&words))
        }
        Err(refused) => format!("refused: {refused}"),
    };
    let text = format!("{:?}: {result}\n", device.uuid());
    socket.write_all(text.as_bytes()).expect("the parent is there");
}

fn wait_for_the_end(socket: &mut UnixStream) {
    while socket.read(&mut [0]).is_ok_and(|read| read > 0) {}
}
