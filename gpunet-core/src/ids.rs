//! Ids of attachments, launches, sockets and requests.

/// An attachment of a proxy: one device's sockets. No two attachments in the life of a proxy have
/// the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttachmentId(pub u32);

impl std::fmt::Display for AttachmentId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A launch of an attachment: one of [`LAUNCHES`](gpunet_abi::layout::LAUNCHES) numbers, which are
/// used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaunchId(pub u32);

/// A request of an attachment that waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestId {
    /// A request of the device.
    Device {
        /// The control slot that it stands in.
        control: u32,
        /// Its sequence number in the slot.
        seq: u64,
    },
    /// A request of the host program.
    Host(HostRequestId),
}

impl RequestId {
    /// The control slot of a device's request.
    #[must_use]
    pub const fn control(self) -> Option<u32> {
        match self {
            Self::Device { control, .. } => Some(control),
            Self::Host(_) => None,
        }
    }
}

/// A request of a host program: a number below [`HostRequestId::COUNT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostRequestId(u32);

impl HostRequestId {
    /// How many ids there are.
    pub const COUNT: u32 = 1 << 31;

    /// The id of the program's request number `n`; ids repeat after [`HostRequestId::COUNT`]
    /// requests.
    #[must_use]
    pub const fn new(n: u32) -> Self {
        Self(n % Self::COUNT)
    }

    /// The number.
    #[must_use]
    pub const fn number(self) -> u32 {
        self.0
    }
}

/// A socket of an attachment: its slot, and how often that was given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SocketId {
    /// The slot.
    pub slot: u32,
    /// Which of the slot's sockets.
    pub generation: u32,
}
