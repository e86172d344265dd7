//! Channels: whole arrays between two processes.
//!
//! A channel has a [`Line`] for each direction, in which transfers go one after the other,
//! whichever threads make them. A call that waits carries its transfer out itself, when it is its
//! turn; those that a program starts are carried out by a thread of the line.
//!
//! | file | holds |
//! |---|---|
//! | `array` | arrays as C describes them |
//! | `line` | turns, their end from another thread, the thread of what is started |
//! | `opening` | listeners and channels; their settings and end |
//! | `options` | what a transfer is told |
//! | `transfer` | send, receive, look, refuse; how it went |
//! | `started` | transfers that go on beside the program |

mod line;

// In the order of the header.
mod array;

mod opening;

mod options;

mod transfer;

mod started;

pub use array::*;
pub use opening::*;
pub use options::*;
pub use started::*;
pub use transfer::*;

use crate::failure::Failure;
use crate::handle::handles;
use array::Devices;
use gpunet_channel::{Channel, ChannelOptions, Description, Ender, Receiver, Sender};
use line::Line;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Sends and receives arrays. Any thread may use it. Transfers of the two directions go on at once;
/// those of one direction one after the other, in the order of the calls.
pub struct gpunet_host_channel_t(());

handles! { gpunet_host_channel_t, CHANNELS: ChannelObject, 13, "channel" }

pub(crate) struct ChannelObject {
    sending: Line<Sender>,
    receiving: Line<Receiver>,
    ender: Ender,
    /// Why there is no copy from memory to memory; 0 if there is.
    reason: u32,
    /// What the transfer has that was looked at last, until it is received or refused. Written by
    /// the thread whose turn it is to receive.
    peeked: Mutex<Option<Arc<[Description]>>>,
    devices: Devices,
    idle: std::time::Duration,
}

impl ChannelObject {
    fn enter(channel: Channel, options: &ChannelOptions) -> Result<*mut gpunet_host_channel_t, Failure> {
        let (ender, reason) = (channel.ender(), channel.why_not_local().map_or(0, |reason| reason as u32));
        let (sender, receiver) = channel.split();
        let object = Self {
            sending: Line::new(sender)?,
            receiving: Line::new(receiver)?,
            ender,
            reason,
            peeked: Mutex::default(),
            devices: Devices::default(),
            idle: options.idle,
        };
        gpunet_host_channel_t::new(Arc::new(object))
    }

    fn peeked(&self) -> MutexGuard<'_, Option<Arc<[Description]>>> {
        self.peeked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        // Both first: the end of a transfer of one direction ends those of the other.
        let (sends, receives) = (self.sending.close(), self.receiving.close());
        if sends.1 || receives.1 {
            self.ender.end("it was closed in the middle of a transfer");
        }
        self.sending.take_away(&sends.0);
        self.receiving.take_away(&receives.0);
    }
}
