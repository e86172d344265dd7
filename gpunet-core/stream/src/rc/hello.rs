//! Private data: what both ends exchange while the connection is made.

/// Bytes of a [`Hello`] in private data, without gpunet's block.
pub const HELLO_LEN: usize = 40;
/// gpunet's block behind it; 56 bytes is all that a request on InfiniBand or RoCE can carry.
const BLOCK_LEN: usize = 16;
const VERSION: u8 = 1;
const MAGIC: [u8; 4] = *b"gpun";
/// Version of gpunet's block.
const BLOCK_VERSION: u8 = 1;

const NET: u8 = 1;

/// Memory of the other end: address, key, and a length whose unit the field's owner defines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Remote {
    /// First byte.
    pub address: u64,
    /// Key.
    pub rkey: u32,
    /// Length.
    pub len: u32,
}

/// What one end of a connection announces about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The host stores integers big end first; its table is written in that order.
    pub big_endian: bool,
    /// Data messages that the other end may send before the first credit update.
    pub credits: u16,
    /// Where the other end writes descriptors of its receive buffers; the length counts entries.
    pub table: Remote,
    /// The first receive buffer, in bytes.
    pub area: Remote,
    /// Present if the end is gpunet.
    pub gpunet: Option<Capabilities>,
}

/// What a gpunet end can do beyond the rsocket protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// It understands [`crate::rc::Message::Reset`].
    pub reset: bool,
}

impl Capabilities {
    /// What this version can do.
    pub const OURS: Self = Self { reset: true };
}

/// Private data that no rsocket peer of version 1 sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadHello {
    /// Too short.
    #[error("{0} bytes of private data; an rsocket peer sends 40")]
    TooShort(usize),
    /// Another version.
    #[error("protocol version {0}; only 1 is known")]
    Version(u8),
    /// A table of fewer than two entries, or one that wraps round the address space.
    #[error("an invalid table of {0} buffer descriptors")]
    Table(u32),
    /// A buffer of no bytes, or one that wraps round the address space.
    #[error("an invalid receive buffer")]
    Area,
}

impl Hello {
    /// The private data to send: [`HELLO_LEN`] bytes, and gpunet's block.
    #[must_use]
    pub fn encode(&self) -> [u8; HELLO_LEN + BLOCK_LEN] {
        let mut bytes = [0; HELLO_LEN + BLOCK_LEN];
        bytes[0] = VERSION;
        bytes[1] = if self.big_endian { NET } else { 0 };
        bytes[2..4].copy_from_slice(&self.credits.to_be_bytes());
        // Byte 7, the size of the table for remote registrations, stays 0: a peer then sends none.
        put(&mut bytes[8..24], &self.table);
        put(&mut bytes[24..40], &self.area);
        if let Some(Capabilities { reset }) = self.gpunet {
            bytes[40..44].copy_from_slice(&MAGIC);
            bytes[44] = BLOCK_VERSION;
            bytes[45] = u8::from(reset);
        }
        bytes
    }

    /// Reads what a peer sent. Bytes behind are ignored: InfiniBand and RoCE pad with zeros.
    ///
    /// # Errors
    /// [`BadHello`].
    pub fn decode(bytes: &[u8]) -> Result<Self, BadHello> {
        let Some((hello, rest)) = bytes.split_first_chunk::<HELLO_LEN>() else {
            return Err(BadHello::TooShort(bytes.len()));
        };
        if hello[0] != VERSION {
            return Err(BadHello::Version(hello[0]));
        }
        let table = get(&hello[8..24]);
        let area = get(&hello[24..40]);
        let table_bytes = u64::from(table.len) * 16;
        if table.len < 2 || table.address.checked_add(table_bytes).is_none() {
            return Err(BadHello::Table(table.len));
        }
        if area.len == 0 || area.address.checked_add(u64::from(area.len)).is_none() {
            return Err(BadHello::Area);
        }
        let block = rest.first_chunk::<BLOCK_LEN>();
        let gpunet = block
            .filter(|block| block[..4] == MAGIC && block[4] >= BLOCK_VERSION)
            .map(|block| Capabilities { reset: block[5] & 1 != 0 });
        let credits = u16::from_be_bytes([hello[2], hello[3]]);
        Ok(Self { big_endian: hello[1] & NET != 0, credits, table, area, gpunet })
    }
}

fn put(bytes: &mut [u8], remote: &Remote) {
    bytes[..8].copy_from_slice(&remote.address.to_be_bytes());
    bytes[8..12].copy_from_slice(&remote.rkey.to_be_bytes());
    bytes[12..16].copy_from_slice(&remote.len.to_be_bytes());
}

fn get(bytes: &[u8]) -> Remote {
    let u32_at = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let address = u64::from(u32_at(0)) << 32 | u64::from(u32_at(4));
    Remote { address, rkey: u32_at(8), len: u32_at(12) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A request captured from rstream on Soft-RoCE: 384 credits, half of a 1 MiB ring.
    const RSTREAM: [u8; 56] = [
        0x01, 0x02, 0x01, 0x80, 0, 0, 0, 0, 0x00, 0x00, 0x56, 0x4b, 0x8e, 0xbe, 0xc0, 0x00, 0x00, 0x00, 0x03,
        0x68, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x7f, 0x2d, 0xc1, 0xd7, 0xd0, 0x00, 0x00, 0x00, 0x04, 0xa7,
        0x00, 0x08, 0x00, 0x00, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];

    #[test]
    fn a_captured_request_is_read() {
        let hello = Hello::decode(&RSTREAM).unwrap();
        assert_eq!(hello.credits, 384);
        assert_eq!(hello.table, Remote { address: 0x564b_8ebe_c000, rkey: 0x368, len: 2 });
        assert_eq!(hello.area, Remote { address: 0x7f2d_c1d7_d000, rkey: 0x4a7, len: 524_288 });
        assert_eq!((hello.big_endian, hello.gpunet), (false, None));
        assert_eq!(Hello::decode(&RSTREAM[..40]).unwrap(), hello, "iWARP delivers just what was sent");
    }

    #[test]
    fn other_private_data_is_refused_with_the_reason() {
        assert_eq!(Hello::decode(&[]), Err(BadHello::TooShort(0)));
        assert_eq!(Hello::decode(&RSTREAM[..39]), Err(BadHello::TooShort(39)));
        let mut other = RSTREAM;
        other[0] = 2;
        assert_eq!(Hello::decode(&other), Err(BadHello::Version(2)));
        other = RSTREAM;
        other[23] = 1;
        assert_eq!(Hello::decode(&other), Err(BadHello::Table(1)));
        other = RSTREAM;
        other[24..32].fill(0xff);
        assert_eq!(Hello::decode(&other), Err(BadHello::Area));
        other = RSTREAM;
        other[36..40].fill(0);
        assert_eq!(
            Hello::decode(&other),
            Err(BadHello::Area),
            "the areas after it would come in another order"
        );
    }

    #[test]
    fn a_table_of_two_entries_ends_inside_the_address_space() {
        for (last, fits) in [(0xdf, true), (0xe0, false)] {
            let mut other = RSTREAM;
            other[8..16].fill(0xff);
            other[15] = last;
            // 32 bytes from there, or one beyond the last address.
            assert_eq!(Hello::decode(&other).is_ok(), fits, "{last:x}");
        }
    }

    #[test]
    fn a_block_of_another_program_is_ignored() {
        for (magic, version) in [(*b"else", BLOCK_VERSION), (MAGIC, 0)] {
            let mut other = RSTREAM;
            other[40..44].copy_from_slice(&magic);
            (other[44], other[45]) = (version, 1);
            assert_eq!(Hello::decode(&other).unwrap().gpunet, None, "{magic:?}, version {version}");
        }
    }

    proptest! {
        #[test]
        fn what_one_end_writes_the_other_reads(
            big_endian: bool, credits: u16, table in (0u64..1 << 56, any::<u32>(), 2u32..9),
            area in (0u64..1 << 56, any::<u32>(), 1u32..), gpunet: bool, reset: bool
        ) {
            let remote = |(address, rkey, len)| Remote { address, rkey, len };
            let gpunet = gpunet.then_some(Capabilities { reset });
            let hello = Hello { big_endian, credits, table: remote(table), area: remote(area), gpunet };
            prop_assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = Hello::decode(&bytes);
        }
    }
}
