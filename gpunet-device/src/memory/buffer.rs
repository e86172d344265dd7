//! Memory that a whole group uses together.

/// A run of bytes in the device's memory, shared by all lanes of a group.
///
/// Many lanes cannot hold one `&mut [u8]`, so socket calls take this: a raw address and a length,
/// `Copy`, fit for kernel parameters. The unsafe constructor vouches for the memory once.
///
/// # Examples
///
/// ```
/// use gpunet_device::Buffer;
///
/// let mut bytes = [0u8; 64];
/// // SAFETY: `bytes` outlives the buffer, which alone uses it.
/// let buffer = unsafe { Buffer::from_raw_parts(bytes.as_mut_ptr(), bytes.len()) };
/// let (header, body) = (buffer.first(8), buffer.skip(8));
/// assert_eq!((header.len(), body.len()), (8, 56));
/// ```
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Buffer {
    ptr: *mut u8,
    len: usize,
}

// SAFETY: an address and a length; `from_raw_parts`' contract covers all lanes and threads.
unsafe impl Send for Buffer {}
// SAFETY: as above.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Makes a buffer of `len` bytes at `ptr`.
    ///
    /// # Safety
    /// The bytes stay mapped in the device's address space while any copy of the value is used.
    /// While one group receives into them nobody else uses them; while groups send them nobody
    /// writes them.
    ///
    /// # Examples
    ///
    /// ```
    /// # use gpunet_device::Buffer;
    /// # fn example(block: u32, memory: *mut u8) -> Buffer {
    /// // SAFETY: the host allocated 4 KiB for each block, and blocks use only their own.
    /// let buffer = unsafe { Buffer::from_raw_parts(memory.wrapping_add(block as usize * 4096), 4096) };
    /// # buffer }
    /// ```
    #[must_use]
    #[inline(always)]
    pub const unsafe fn from_raw_parts(ptr: *mut u8, len: usize) -> Self {
        Self { ptr, len }
    }

    /// The first byte's address.
    #[must_use]
    #[inline(always)]
    pub const fn as_ptr(self) -> *mut u8 {
        self.ptr
    }

    /// The length in bytes.
    #[must_use]
    #[inline(always)]
    pub const fn len(self) -> usize {
        self.len
    }

    /// Returns whether there are no bytes.
    #[must_use]
    #[inline(always)]
    pub const fn is_empty(self) -> bool {
        self.len == 0
    }

    /// The first `len` bytes, or all if there are fewer.
    ///
    /// # Examples
    ///
    /// ```
    /// # let mut bytes = [0u8; 10];
    /// # // SAFETY: `bytes` outlives the buffer.
    /// # let buffer = unsafe { gpunet_device::Buffer::from_raw_parts(bytes.as_mut_ptr(), bytes.len()) };
    /// assert_eq!(buffer.first(4).len(), 4);
    /// assert_eq!(buffer.first(99).len(), 10);
    /// ```
    #[must_use]
    #[inline(always)]
    pub const fn first(self, len: usize) -> Self {
        Self { ptr: self.ptr, len: if len < self.len { len } else { self.len } }
    }

    /// Returns the bytes that follow the first `len`; empty if there are none.
    ///
    /// # Examples
    ///
    /// ```
    /// # let mut bytes = [0u8; 10];
    /// # // SAFETY: `bytes` outlives the buffer.
    /// # let buffer = unsafe { gpunet_device::Buffer::from_raw_parts(bytes.as_mut_ptr(), bytes.len()) };
    /// assert_eq!(buffer.skip(4).as_ptr(), buffer.as_ptr().wrapping_add(4));
    /// assert!(buffer.skip(99).is_empty());
    /// ```
    #[must_use]
    #[inline(always)]
    pub const fn skip(self, len: usize) -> Self {
        let len = if len < self.len { len } else { self.len };
        Self { ptr: self.ptr.wrapping_add(len), len: self.len - len }
    }

    /// `len` bytes from `start`, cut to what is there.
    ///
    /// # Examples
    ///
    /// ```
    /// # let mut bytes = [0u8; 10];
    /// # // SAFETY: `bytes` outlives the buffer.
    /// # let buffer = unsafe { gpunet_device::Buffer::from_raw_parts(bytes.as_mut_ptr(), bytes.len()) };
    /// assert_eq!(buffer.slice(2, 3).len(), 3);
    /// assert_eq!(buffer.slice(8, 3).len(), 2);
    /// ```
    #[must_use]
    #[inline(always)]
    pub const fn slice(self, start: usize, len: usize) -> Self {
        self.skip(start).first(len)
    }
}

/// Bytes to send: a [`Buffer`], or bytes that never change.
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Buffer, Group, Net, Result, Stream};
/// # fn example<G: Group>(g: &G, net: Net, stream: &mut Stream, buffer: Buffer) -> Result<()> {
/// stream.send_all(g, b"HTTP/1.1 200 OK\r\n\r\n")?; // bytes of the program
/// stream.send_all(g, buffer)?; // memory of the group
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Source {
    pub(crate) ptr: *const u8,
    pub(crate) len: usize,
}

impl Source {
    /// Returns the bytes that follow the first `len`.
    #[inline(always)]
    #[doc(hidden)]
    pub const fn skip(self, len: usize) -> Self {
        let len = if len < self.len { len } else { self.len };
        Self { ptr: self.ptr.wrapping_add(len), len: self.len - len }
    }
}

impl From<Buffer> for Source {
    #[inline(always)]
    fn from(buffer: Buffer) -> Self {
        Self { ptr: buffer.ptr, len: buffer.len }
    }
}

impl From<&'static [u8]> for Source {
    #[inline(always)]
    fn from(bytes: &'static [u8]) -> Self {
        Self { ptr: bytes.as_ptr(), len: bytes.len() }
    }
}

impl<const N: usize> From<&'static [u8; N]> for Source {
    #[inline(always)]
    fn from(bytes: &'static [u8; N]) -> Self {
        Self { ptr: bytes.as_ptr(), len: N }
    }
}
