//! Other processes: this binary again, with a task, and a socket as its standard input.

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, io};

use gpunet_cuda::{Cuda, Device};
use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use crate::support::{Hammer, Words};

/// Names the task of a child: `export`, `import`, `describe` or `ipc`, and the number of its GPU.
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

    /// Ends the process as SIGKILL does, and returns when it is gone, with all of its descriptors
    /// and contexts.
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
    let fds = [fd.as_fd()];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)));
    let sent = sendmsg(socket, &[IoSlice::new(&[0])], &mut ancillary, SendFlags::empty());
    assert_eq!(sent, Ok(1));
}

/// Receives the descriptor that [`send_fd`] sent.
pub fn receive_fd(socket: &UnixStream) -> OwnedFd {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let got = recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, flags).expect("a message");
    assert_eq!(got.bytes, 1);
    match ancillary.drain().next() {
        Some(RecvAncillaryMessage::ScmRights(mut fds)) => fds.next().expect("a descriptor"),
        _ => panic!("no descriptor came"),
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
        "ipc" => name_allocations(&device, &mut socket),
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

/// Allocates memory whenever the parent asks, and tells its name.
fn name_allocations(device: &Device, socket: &mut UnixStream) {
    let mut buffers = Vec::new();
    while socket.read(&mut [0]).is_ok_and(|read| read > 0) {
        let buffer = device.alloc(SHARED).expect("memory");
        let found = device.allocations(buffer.ptr(), SHARED).expect("its allocation");
        socket.write_all(&device.ipc_handle(&found[0]).expect("a handle").0).expect("the parent is there");
        buffers.push(buffer);
    }
}

fn wait_for_the_end(socket: &mut UnixStream) {
    while socket.read(&mut [0]).is_ok_and(|read| read > 0) {}
}
