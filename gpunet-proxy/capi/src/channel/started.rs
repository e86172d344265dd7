//! Transfers that go on beside the program.

use super::array::{Given, gpunet_host_array};
use super::line::Op;
use super::options::{Outcome, Told, gpunet_host_transfer_options};
use super::transfer::{gpunet_host_outcome, outcome_of, receive, send};
use super::{ChannelObject, gpunet_host_channel_t};
use crate::failure::{Failure, caught, done};
use crate::handle::handles;
use crate::memory::{self, Out};
use std::ffi::c_int;
use std::sync::Arc;

/// A transfer that was started. Any thread may use it.
pub struct gpunet_host_transfer_t(());

handles! { gpunet_host_transfer_t, TRANSFERS: TransferObject, 15, "transfer" }

pub(crate) struct TransferObject {
    channel: Arc<ChannelObject>,
    op: Arc<Op>,
    sends: bool,
}

impl TransferObject {
    fn wait(&self, timeout_ns: i64) -> bool {
        let deadline = memory::deadline(timeout_ns);
        match self.sends {
            true => self.channel.sending.wait(&self.op, deadline),
            false => self.channel.receiving.wait(&self.op, deadline),
        }
    }

    fn cancel(&self) {
        let end = || self.channel.ender.end("a transfer was cancelled in the middle");
        match self.sends {
            true => self.channel.sending.cancel(&self.op, end),
            false => self.channel.receiving.cancel(&self.op, end),
        }
    }

    /// Starts a transfer, and enters it.
    fn start(
        channel: &Arc<ChannelObject>,
        arrays: Vec<Given>,
        told: Told,
        sends: bool,
        out: &Out<*mut gpunet_host_transfer_t>,
    ) -> Result<(), Failure> {
        let op = Arc::new(Op::started(arrays, told));
        let object = Self { channel: channel.clone(), op: op.clone(), sends };
        // First: a transfer without a handle could not be waited for.
        let handle = gpunet_host_transfer_t::new(Arc::new(object))?;
        let body = {
            let (channel, op) = (channel.clone(), op.clone());
            move || run(&channel, &op, sends)
        };
        let begun = match sends {
            true => channel.sending.start(&op, body),
            false => channel.receiving.start(&op, body),
        };
        if let Err(failure) = begun {
            gpunet_host_transfer_t::take(handle)?;
            return Err(failure);
        }
        out.put(handle);
        Ok(())
    }
}

/// Carries a transfer out that was started.
fn run(channel: &ChannelObject, op: &Arc<Op>, sends: bool) {
    // It was cancelled in the line.
    let Some((arrays, told)) = op.take_payload() else { return };
    let result = caught(|| match sends {
        true => send(channel.sending.started(op, told.deadline)?, op, &arrays, &told),
        false => receive(channel, channel.receiving.started(op, told.deadline)?, op, &arrays, &told),
    });
    let result = result.map_err(|failure| match failure.errno() {
        // Whoever waits for a transfer takes EAGAIN for one that goes on.
        libc::EAGAIN => Failure::new(libc::ETIMEDOUT, "the transfer had not begun when its time was over"),
        _ => failure,
    });
    // Its end uses the program's stream, which may go when the transfer has ended.
    drop(told);
    match sends {
        true => channel.sending.finish(op, result),
        false => channel.receiving.finish(op, result),
    }
}

/// Begins to send `count` arrays, as gpunet_host_channel_send does, behind the transfers of the
/// direction that were begun before, and returns at once. What `arrays` and `options` point to is
/// used during the call only; the arrays' data stays, and nobody writes it, until the transfer has
/// ended (gpunet_host_transfer_wait), and so do the stream and `user`.
///
///     gpunet_host_transfer_t *out, *in;
///     gpunet_host_channel_start_send(channel, &gradients, 1, NULL, &out);
///     gpunet_host_channel_start_recv(channel, &weights, 1, NULL, &in);
///     gpunet_host_transfer_wait(out, -1, NULL);
///     gpunet_host_transfer_wait(in, -1, NULL);
///     gpunet_host_transfer_close(out);
///     gpunet_host_transfer_close(in);
///
/// On success `*transfer` is a handle that gpunet_host_transfer_close ends. Errors: those of
/// gpunet_host_channel_send for arguments; the system's, when it refuses a thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_channel_start_send(
    channel: *const gpunet_host_channel_t,
    arrays: *const gpunet_host_array,
    count: usize,
    options: *const gpunet_host_transfer_options,
    transfer: *mut *mut gpunet_host_transfer_t,
) -> c_int {
    done(|| {
        let out = Out::new(transfer, "transfer")?;
        let channel = gpunet_host_channel_t::of(channel)?;
        let arrays = Given::all(arrays, count, &channel.devices)?;
        let told = Told::new(options, &channel.devices)?;
        TransferObject::start(&channel, arrays, told, true, &out)
    })
}

/// Begins to receive a transfer into `count` arrays, as gpunet_host_channel_recv does, behind the
/// receives that were begun before, and returns at once. The memory stays, and nobody else uses it,
/// until the transfer has ended; else as gpunet_host_channel_start_send.
///
/// On success `*transfer` is a handle that gpunet_host_transfer_close ends. Errors: those of
/// gpunet_host_channel_recv for arguments; the system's, when it refuses a thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_channel_start_recv(
    channel: *const gpunet_host_channel_t,
    arrays: *const gpunet_host_array,
    count: usize,
    options: *const gpunet_host_transfer_options,
    transfer: *mut *mut gpunet_host_transfer_t,
) -> c_int {
    done(|| {
        let out = Out::new(transfer, "transfer")?;
        let channel = gpunet_host_channel_t::of(channel)?;
        let arrays = Given::all(arrays, count, &channel.devices)?;
        Given::check_apart(&arrays)?;
        let told = Told::new(options, &channel.devices)?;
        TransferObject::start(&channel, arrays, told, false, &out)
    })
}

/// Waits until a transfer has ended, for at most `timeout_ns` nanoseconds; negative: without limit;
/// 0: asks only. `outcome` may be NULL; `*outcome` is stored in any case but -EBADF, and says how
/// far a transfer is that has not ended. Further calls return the same.
///
///     while (gpunet_host_transfer_wait(transfer, 1000000000, &outcome) == -EAGAIN && !outcome.done)
///         printf("%llu of %llu bytes\n", (unsigned long long)outcome.moved, (unsigned long long)outcome.total);
///
/// Errors: -EBADF; -EAGAIN when it has not ended, and `done` is 0; otherwise how the transfer
/// failed, as gpunet_host_channel_send and gpunet_host_channel_recv return it, with -ETIMEDOUT also
/// for one whose time was over before it began; -ECANCELED when it was cancelled; -EBADF with
/// `done` 1 when the channel was closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_transfer_wait(
    transfer: *const gpunet_host_transfer_t,
    timeout_ns: i64,
    outcome: *mut gpunet_host_outcome,
) -> c_int {
    done(|| {
        let object = gpunet_host_transfer_t::of(transfer)?;
        object.wait(timeout_ns);
        let ended = object.op.done();
        memory::put_if_wanted(outcome, outcome_of(&object.op, ended));
        match ended {
            Some(Ok(Outcome { .. })) => Ok(()),
            Some(Err(failure)) => Err(failure.clone()),
            None => Err(Failure::new(libc::EAGAIN, "the transfer has not ended")),
        }
    })
}

/// Cancels a transfer: gpunet_host_transfer_wait then returns -ECANCELED, soon. If it has not
/// begun, the channel goes on: it waits behind others, or for a transfer of the other end. One that
/// moves bytes takes the channel with it, at both ends. A transfer that has ended stays as it is.
/// The memory is in use until gpunet_host_transfer_wait says that the transfer has ended.
///
/// Errors: -EBADF.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_transfer_cancel(transfer: *const gpunet_host_transfer_t) -> c_int {
    done(|| {
        gpunet_host_transfer_t::of(transfer)?.cancel();
        Ok(())
    })
}

/// Ends the handle of a transfer. One that has not ended is cancelled, and the call waits until it
/// has: the memory is free then. Not from within its gpunet_host_progress_fn.
///
/// Errors: -EBADF.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn gpunet_host_transfer_close(transfer: *mut gpunet_host_transfer_t) -> c_int {
    done(|| {
        let object = gpunet_host_transfer_t::take(transfer)?;
        object.cancel();
        object.wait(-1);
        Ok(())
    })
}
