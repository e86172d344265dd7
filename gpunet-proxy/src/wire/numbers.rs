//! The numbers that name questions and their answers. Calls have those below 2^31, requests of the
//! host program the others; a frame with a number of the wrong half is garbage.

use gpunet_core::ids::HostRequestId;
use serde::{Deserialize, Serialize};

/// A question to the daemon itself, not to a socket: usage, or what a launch left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub(crate) struct CallId(u32);

impl CallId {
    /// The id of the call after this one.
    pub(crate) const fn next(self) -> Self {
        Self((self.0 + 1) % HostRequestId::COUNT)
    }
}

impl From<CallId> for u32 {
    fn from(id: CallId) -> Self {
        id.0
    }
}

impl TryFrom<u32> for CallId {
    type Error = &'static str;

    fn try_from(number: u32) -> Result<Self, Self::Error> {
        if number < HostRequestId::COUNT { Ok(Self(number)) } else { Err("the number of a host request") }
    }
}

/// [`HostRequestId`] on its way, for `#[serde(with)]`.
pub(super) mod host_request {
    use super::{Deserialize, HostRequestId, Serialize};
    use serde::de::Error;
    use serde::{Deserializer, Serializer};

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub(crate) fn serialize<S: Serializer>(id: &HostRequestId, to: S) -> Result<S::Ok, S::Error> {
        (id.number() + HostRequestId::COUNT).serialize(to)
    }

    pub(crate) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<HostRequestId, D::Error> {
        let number = u32::deserialize(from)?.checked_sub(HostRequestId::COUNT);
        number.map(HostRequestId::new).ok_or_else(|| D::Error::custom("the number of a call"))
    }
}
