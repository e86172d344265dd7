//! Keys, and how they are hashed.

use crate::Bytes;

/// Spaces of keys in a map.
pub const SPACES: u32 = 16;

/// A key of a [`super::Map`]: bytes, and the space that they are in. The same bytes in two spaces
/// are two keys.
#[derive(Clone, Copy, Debug)]
pub struct Key<'k> {
    pub(super) bytes: Bytes<'k>,
    pub(super) space: u32,
    /// Its bucket is one of those that the group holds.
    pub(super) is_held: bool,
}

impl<'k> Key<'k> {
    /// A key in space `space`, of [`SPACES`].
    #[must_use]
    pub const fn in_space(bytes: Bytes<'k>, space: u32) -> Self {
        Self { bytes, space: space % SPACES, is_held: false }
    }

    /// The same key, whose bucket the group has locked by [`super::Map::hold`].
    #[must_use]
    pub const fn held(self) -> Self {
        Self { is_held: true, ..self }
    }

    /// Its bytes.
    #[must_use]
    pub const fn bytes(&self) -> Bytes<'k> {
        self.bytes
    }
}

/// A key in the first space.
impl<'k> From<Bytes<'k>> for Key<'k> {
    fn from(bytes: Bytes<'k>) -> Self {
        Self::in_space(bytes, 0)
    }
}

impl<'k> From<&'k [u8]> for Key<'k> {
    fn from(bytes: &'k [u8]) -> Self {
        Bytes::from(bytes).into()
    }
}

impl<'k, const N: usize> From<&'k [u8; N]> for Key<'k> {
    fn from(bytes: &'k [u8; N]) -> Self {
        Bytes::from(bytes).into()
    }
}
