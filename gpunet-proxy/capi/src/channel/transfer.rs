//! Transfers for which the caller waits, and what transfers tell.

use super::array::{GPUNET_HOST_MAX_DIMS, Given, gpunet_host_array, gpunet_host_dtype};
use super::line::{Op, Turn};
use super::options::{Outcome, Told, gpunet_host_transfer_options};
use super::{ChannelObject, gpunet_host_channel_t};
use crate::failure::{Failure, done};
use crate::memory::{self, Out};
use gpunet_channel::{Description, MAX_NAME, Reason, Receiver, Via};
use std::ffi::{c_char, c_int};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// How bytes went: behind the header of the transfer, which was small.
pub const GPUNET_HOST_WAY_HEADER: u32 = 1;
/// How bytes went: in pieces, over several connections at once.
pub const GPUNET_HOST_WAY_CONNECTIONS: u32 = 2;
/// How bytes went: by one copy from memory to memory.
pub const GPUNET_HOST_WAY_COPY: u32 = 3;

/// Why not by a copy: the transfer is small.
pub const GPUNET_HOST_REASON_SMALL: u32 = 1;
/// Why not by a copy: the two ends are on different machines.
pub const GPUNET_HOST_REASON_OTHER_MACHINE: u32 = 2;
/// Why not by a copy: the two ends belong to different users.
pub const GPUNET_HOST_REASON_OTHER_USER: u32 = 3;
/// Why not by a copy: the two ends are in different network namespaces.
pub const GPUNET_HOST_REASON_OTHER_NAMESPACE: u32 = 4;
/// Why not by a copy: the other end's process is not visible here.
pub const GPUNET_HOST_REASON_HIDDEN_PROCESS: u32 = 5;
/// Why not by a copy: the kernel does not permit to read the other process's memory.
pub const GPUNET_HOST_REASON_NOT_PERMITTED: u32 = 6;
/// Why not by a copy: a checksum was asked for.
pub const GPUNET_HOST_REASON_CHECKSUM_ASKED: u32 = 7;
/// Why not by a copy: one end's memory is a GPU's, and the other's is not.
pub const GPUNET_HOST_REASON_MIXED_MEMORY: u32 = 8;
/// Why not by a copy: one end has switched it off.
pub const GPUNET_HOST_REASON_SWITCHED_OFF: u32 = 9;
/// Why not by a copy: both ends are in one process, for memory of a GPU.
pub const GPUNET_HOST_REASON_SAME_PROCESS: u32 = 10;
/// Why not by a copy: the driver does not export the memory.
pub const GPUNET_HOST_REASON_NOT_EXPORTED: u32 = 11;
/// Why not by a copy: the driver does not open the exported memory.
pub const GPUNET_HOST_REASON_NOT_OPENED: u32 = 12;
/// Why not by a copy: a launch runs on the receiving GPU.
pub const GPUNET_HOST_REASON_LAUNCH_RUNS: u32 = 13;
/// Why not by a copy: the copy failed before it was known to be whole.
pub const GPUNET_HOST_REASON_COPY_FAILED: u32 = 14;
const _: () = {
    assert!(GPUNET_HOST_REASON_SMALL == Reason::Small as u32);
    assert!(GPUNET_HOST_REASON_OTHER_MACHINE == Reason::OtherMachine as u32);
    assert!(GPUNET_HOST_REASON_OTHER_USER == Reason::OtherUser as u32);
    assert!(GPUNET_HOST_REASON_OTHER_NAMESPACE == Reason::OtherNamespace as u32);
    assert!(GPUNET_HOST_REASON_HIDDEN_PROCESS == Reason::HiddenProcess as u32);
    assert!(GPUNET_HOST_REASON_NOT_PERMITTED == Reason::NotPermitted as u32);
    assert!(GPUNET_HOST_REASON_CHECKSUM_ASKED == Reason::ChecksumAsked as u32);
    assert!(GPUNET_HOST_REASON_MIXED_MEMORY == Reason::MixedMemory as u32);
    assert!(GPUNET_HOST_REASON_SWITCHED_OFF == Reason::SwitchedOff as u32);
    assert!(GPUNET_HOST_REASON_SAME_PROCESS == Reason::SameProcess as u32);
    assert!(GPUNET_HOST_REASON_NOT_EXPORTED == Reason::NotExported as u32);
    assert!(GPUNET_HOST_REASON_NOT_OPENED == Reason::NotOpened as u32);
    assert!(GPUNET_HOST_REASON_LAUNCH_RUNS == Reason::LaunchRuns as u32);
    assert!(GPUNET_HOST_REASON_COPY_FAILED == Reason::CopyFailed as u32);
};

/// How a transfer goes, or went.
#[repr(C)]
pub struct gpunet_host_outcome {
    /// Bytes that are through.
    pub moved: u64,
    /// All bytes of its arrays.
    pub total: u64,
    /// 1: it has ended. 0: it has not.
    pub done: u32,
    /// How the bytes went: one of GPUNET_HOST_WAY_*; 0: they did not, or not yet.
    pub way: u32,
    /// How many connections carried them, with GPUNET_HOST_WAY_CONNECTIONS.
    pub connections: u32,
    /// Why they were not copied from memory to memory: one of GPUNET_HOST_REASON_*, or a later
    /// version's; 0: they were, or it is not known yet.
    pub reason: u32,
    /// How they went, in words: "one copy", "4 connections (the two ends are on different
    /// machines)"; "" before that.
    pub text: [c_char; 120],
}

/// A transfer that waits at the other end, as its header says.
#[repr(C)]
pub struct gpunet_host_incoming {
    /// The bytes of all arrays.
    pub bytes: u64,
    /// How many arrays it has.
    pub arrays: u64,
}

/// An array that waits at the other end.
#[repr(C)]
pub struct gpunet_host_description {
    /// How many bytes it has.
    pub bytes: u64,
    /// The lengths of its dimensions; 0 behind them.
    pub shape: [i64; GPUNET_HOST_MAX_DIMS],
    /// How many dimensions it has.
    pub rank: u32,
    /// What its elements are.
    pub dtype: gpunet_host_dtype,
    /// 1: the sender has it in the memory of a GPU.
    pub on_gpu: u32,
    /// 0.
    pub reserved: u32,
    /// Its name; "": it has none.
    pub name: [c_char; 1032],
}
const _: () = assert!(MAX_NAME < 1032);

/// Stores a text in an array, cut to its length, with a NUL.
fn put_in<const N: usize>(to: &mut [c_char; N], text: &str) {
    let mut len = text.len().min(N - 1);
    while !text.is_char_boundary(len) {
        len -= 1;
    }
    for (to, byte) in to.iter_mut().zip(text[..len].bytes()) {
        *to = byte.cast_signed();
    }
}

/// Returns how a transfer goes.
pub(super) fn outcome_of(op: &Op, ended: Option<&Result<Outcome, Failure>>) -> gpunet_host_outcome {
    let mut outcome = gpunet_host_outcome {
        moved: op.moved.load(Ordering::Relaxed),
        total: op.total.load(Ordering::Relaxed),
        done: u32::from(ended.is_some()),
        way: 0,
        connections: 0,
        reason: 0,
        text: [0; 120],
    };
    let Some(Ok(Outcome { via: Some(via) })) = ended else { return outcome };
    (outcome.way, outcome.connections, outcome.reason) = match via {
        Via::Header => (GPUNET_HOST_WAY_HEADER, 0, GPUNET_HOST_REASON_SMALL),
        Via::Connections { count, reason } => {
            (GPUNET_HOST_WAY_CONNECTIONS, u32::from(*count), *reason as u32)
        }
        Via::Copy => (GPUNET_HOST_WAY_COPY, 0, 0),
        // Of a later version of the crate.
        _ => (0, 0, 0),
    };
    put_in(&mut outcome.text, &via.to_string());
    outcome
}

/// Sends arrays in a turn.
pub(super) fn send(
    mut turn: Turn<'_, gpunet_channel::Sender>,
    op: &Op,
    arrays: &[Given],
    told: &Told,
) -> Result<Outcome, Failure> {
    let arrays = arrays.iter().map(Given::source).collect::<Result<Vec<_>, _>>()?;
    let sender = turn.begin()?;
    match told.with(&op.moved, |options| sender.send_all(&arrays, options)) {
        Ok(outcome) => Ok(Outcome { via: Some(outcome.via) }),
        Err(error) => Err(turn.failed(error)),
    }
}

/// Waits until a header is there, which stays there.
fn look(
    object: &ChannelObject,
    turn: &mut Turn<'_, Receiver>,
    deadline: Option<Instant>,
) -> Result<Arc<[Description]>, Failure> {
    let peeked = object.peeked().clone();
    if let Some(arrays) = peeked {
        turn.begin()?;
        return Ok(arrays);
    }
    loop {
        // What is mapped and idle is dropped by a receiver that waits.
        let is_mapped = turn.begin()?.mapped_bytes() > 0;
        let tick = is_mapped.then(|| Instant::now() + object.idle);
        if turn.wait(Receiver::descriptor, [deadline, tick].into_iter().flatten().min())? {
            break;
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(Failure::would_block());
        }
        // A header that comes just now is told by the next call.
        drop(turn.begin()?.peek_until(Some(Instant::now())));
    }
    let found = turn.begin()?.peek_until(None).map(|arrays| arrays.map(Arc::from));
    match found {
        Ok(Some(arrays)) => Ok(object.peeked().insert(arrays).clone()),
        Ok(None) => Err(Failure::new(libc::ENODATA, "the other end sends no more")),
        Err(error) => Err(turn.failed(error)),
    }
}

/// Receives into arrays in a turn.
pub(super) fn receive(
    object: &ChannelObject,
    mut turn: Turn<'_, Receiver>,
    op: &Op,
    arrays: &[Given],
    told: &Told,
) -> Result<Outcome, Failure> {
    let targets = arrays.iter().map(Given::target).collect::<Result<Vec<_>, _>>()?;
    look(object, &mut turn, told.deadline)?;
    object.peeked().take();
    let receiver = turn.begin()?;
    let received = match receiver.next_until(Some(Instant::now())) {
        Ok(Some(incoming)) => told.with(&op.moved, |options| incoming.into_arrays(targets, options)),
        Ok(None) => return Err(Failure::of(libc::EPROTO)),
        Err(error) => Err(error),
    };
    match received {
        Ok(outcome) => Ok(Outcome { via: Some(outcome.via) }),
        Err(error) => Err(turn.failed(error)),
    }
}

/// Runs a transfer for which the caller waits, and tells how it went, also if it failed.
fn now(
    arrays: &[Given],
    outcome: *mut gpunet_host_outcome,
    body: impl FnOnce(&Arc<Op>) -> Result<Outcome, Failure>,
) -> Result<(), Failure> {
    let op = Arc::<Op>::default();
    op.total.store(Given::bytes(arrays), Ordering::Relaxed);
    let result = body(&op);
    memory::put_if_wanted(outcome, outcome_of(&op, Some(&result)));
    result.map(drop)
}

/// Sends `count` arrays as one transfer, and returns when the other end has all of it. With names
/// the other end may receive them in another order. `options` and `outcome` may be NULL. Once the
/// arguments are valid, `*outcome` is stored, also when the call fails: then it says how far the
/// transfer came.
///
///     gpunet_host_array array = {weights, shape, NULL, 2, {GPUNET_HOST_FLOAT, 32, 1}, GPUNET_HOST_CPU, 0};
///     gpunet_host_outcome outcome;
///     if (gpunet_host_channel_send(channel, &array, 1, NULL, &outcome) < 0) puts(gpunet_host_last_error());
///     else printf("%llu bytes by %s\n", (unsigned long long)outcome.moved, outcome.text);
///
/// Two ends that both send first wait for each other: start one of the two, or receive on another
/// thread.
///
/// Errors: -EBADF; -EFAULT; -EINVAL (too many arrays or dimensions, a negative dimension, a type
/// without size, a name that is too long, a device or stream that is none); -ENODEV, -EIO and
/// -EOPNOTSUPP for GPUs; -EAGAIN when the time is over before its turn. After them the channel goes
/// on, and also after what the other end answers: -EMSGSIZE when it asks for arrays of another
/// number, type, shape or name; -ECANCELED when it does not want the transfer; the errno of its
/// gpunet_host_channel_refuse. After these the channel has ended: -ECONNRESET when the other end
/// has died or closed; -ETIMEDOUT when the time is over in the middle of the transfer; -EPROTO;
/// -EBADMSG; -EIO with CUDA's error. -EPIPE when it had ended before, or by
/// gpunet_host_channel_shutdown.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_channel_send(
    channel: *const gpunet_host_channel_t,
    arrays: *const gpunet_host_array,
    count: usize,
    options: *const gpunet_host_transfer_options,
    outcome: *mut gpunet_host_outcome,
) -> c_int {
    done(|| {
        let object = gpunet_host_channel_t::of(channel)?;
        let arrays = Given::all(arrays, count, &object.devices)?;
        let told = Told::new(options, &object.devices)?;
        now(&arrays, outcome, |op| {
            let turn = object.sending.turn(op, told.deadline)?;
            send(turn, op, &arrays, &told)
        })
    })
}

/// Receives the next transfer into the memory of `count` arrays, which have its types and shapes:
/// those of its names, or, if none of them has a name, in its order. It returns when all bytes are
/// there. Only then is the memory whole. `options` and `outcome` are as in
/// gpunet_host_channel_send.
///
/// A program that does not know what comes looks first (gpunet_host_channel_peek).
///
/// Errors: -EBADF; -EFAULT; -EINVAL as in gpunet_host_channel_send, and for arrays that share
/// memory; -ENODEV, -EIO and -EOPNOTSUPP for GPUs; -EAGAIN when no transfer came in time; -ENODATA
/// when the other end sends no more; -EMSGSIZE when the transfer has other arrays: it is refused,
/// and the channel goes on. After these the channel has ended, and the memory has any mixture of
/// what it had and what was sent: -ECONNRESET when the other end has died; -ETIMEDOUT when the time
/// is over in the middle of the transfer; -EBADMSG when a checksum is wrong; -EPROTO; -EIO with
/// CUDA's error. -EPIPE when it had ended before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_channel_recv(
    channel: *const gpunet_host_channel_t,
    arrays: *const gpunet_host_array,
    count: usize,
    options: *const gpunet_host_transfer_options,
    outcome: *mut gpunet_host_outcome,
) -> c_int {
    done(|| {
        let object = gpunet_host_channel_t::of(channel)?;
        let arrays = Given::all(arrays, count, &object.devices)?;
        Given::check_apart(&arrays)?;
        let told = Told::new(options, &object.devices)?;
        now(&arrays, outcome, |op| {
            let turn = object.receiving.turn(op, told.deadline)?;
            receive(&object, turn, op, &arrays, &told)
        })
    })
}

/// Waits for the header of the next transfer, which stays the next one: a further call returns the
/// same, until it is received or refused. It waits for at most `timeout_ns` nanoseconds; negative:
/// without limit; 0: not at all.
///
///     gpunet_host_incoming incoming;
///     while (gpunet_host_channel_peek(channel, -1, &incoming) == 0) {
///         gpunet_host_description description;
///         gpunet_host_channel_describe(channel, 0, &description);
///         void *memory = malloc(description.bytes);
///         gpunet_host_array array = {memory, description.shape, NULL, description.rank, description.dtype, GPUNET_HOST_CPU, 0};
///         gpunet_host_channel_recv(channel, &array, 1, NULL, NULL);
///     }
///
/// Errors: -EBADF; -EFAULT; -EAGAIN when the time is over; -ENODATA when the other end sends no
/// more; -ECONNRESET and its like as in gpunet_host_channel_recv.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_channel_peek(
    channel: *const gpunet_host_channel_t,
    timeout_ns: i64,
    incoming: *mut gpunet_host_incoming,
) -> c_int {
    done(|| {
        let out = Out::new(incoming, "incoming")?;
        let object = gpunet_host_channel_t::of(channel)?;
        let (op, deadline) = (Arc::<Op>::default(), memory::deadline(timeout_ns));
        let mut turn = object.receiving.turn(&op, deadline)?;
        let arrays = look(&object, &mut turn, deadline)?;
        let bytes = arrays.iter().map(Description::bytes).sum();
        out.put(gpunet_host_incoming { bytes, arrays: arrays.len() as u64 });
        Ok(())
    })
}

/// Stores what array `index` of the transfer is that gpunet_host_channel_peek has seen. 0 is the
/// first one.
///
/// Errors: -EBADF; -EFAULT; -EINVAL when it has no such array, or none is waiting.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_channel_describe(
    channel: *const gpunet_host_channel_t,
    index: usize,
    description: *mut gpunet_host_description,
) -> c_int {
    done(|| {
        let out = Out::new(description, "description")?;
        let arrays = gpunet_host_channel_t::of(channel)?.peeked().clone().ok_or_else(nothing_seen)?;
        let array = arrays.get(index).ok_or_else(|| {
            Failure::new(
                libc::EINVAL,
                format!("the transfer has {} arrays, and no array {index}", arrays.len()),
            )
        })?;
        let mut found = gpunet_host_description {
            bytes: array.bytes(),
            shape: [0; GPUNET_HOST_MAX_DIMS],
            rank: array.shape.len() as u32,
            dtype: array.dtype.into(),
            on_gpu: u32::from(array.on_gpu),
            reserved: 0,
            name: [0; 1032],
        };
        for (to, &dim) in found.shape.iter_mut().zip(&array.shape) {
            *to = i64::try_from(dim).unwrap_or(i64::MAX);
        }
        put_in(&mut found.name, &array.name);
        out.put(found);
        Ok(())
    })
}

fn nothing_seen() -> Failure {
    Failure::new(libc::EINVAL, "no transfer is waiting: gpunet_host_channel_peek waits for one")
}

/// Refuses the transfer that gpunet_host_channel_peek has seen: its sender's call returns `-error`,
/// with `why` in its text. `error` is an errno, 1 to 4095. The channel goes on.
///
///     if (incoming.bytes > most) gpunet_host_channel_refuse(channel, EFBIG, "at most a gigabyte, please");
///
/// Errors: -EBADF; -EFAULT; -EINVAL, also when no transfer is waiting; -ECONNRESET and its like as
/// in gpunet_host_channel_recv.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_channel_refuse(
    channel: *const gpunet_host_channel_t,
    error: c_int,
    why: *const c_char,
) -> c_int {
    done(|| {
        let object = gpunet_host_channel_t::of(channel)?;
        let why = memory::text(why, "why")?.ok_or_else(|| Failure::new(libc::EFAULT, "why is null"))?;
        if !(1..=4095).contains(&error) {
            return Err(Failure::new(libc::EINVAL, format!("{error} is no errno: they are 1 to 4095")));
        }
        let op = Arc::<Op>::default();
        let mut turn = object.receiving.turn(&op, None)?;
        object.peeked().take().ok_or_else(nothing_seen)?;
        let refused = match turn.begin()?.next_until(Some(Instant::now())) {
            Ok(Some(incoming)) => incoming.refuse(error, why),
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        refused.map_err(|error| turn.failed(error))
    })
}
