//! What has a number of its own.

/// An attachment of a proxy: one device's sockets. No two attachments in the life of a proxy have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttachmentId(pub u32);

impl std::fmt::Display for AttachmentId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A launch of an attachment: one of [`LAUNCHES`](gpunet_abi::layout::LAUNCHES) numbers, which are used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaunchId(pub u32);

impl std::fmt::Display for LaunchId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A request that waits for its answer: of a device, by control slot and sequence number; of a host program, by its number
/// (beyond those of all control slots) and 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId {
    /// The control slot, or the host program's number.
    pub control: u32,
    /// The sequence number in the slot.
    pub seq: u64,
}

/// A socket of an attachment: its slot, and how often that was given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketId {
    /// The slot.
    pub slot: u32,
    /// Which of the slot's sockets.
    pub generation: u32,
}
