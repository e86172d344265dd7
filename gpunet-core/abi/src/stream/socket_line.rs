//! The line of a socket, in which the proxy reports to it and which the device polls.

/// The proxy's words for one socket.
///
/// A GPU's loads from one line of host memory take their trips one after the other (1.3 us for the
/// first, 1 us more for the second, on an H200). So one load takes `landed` and `released`
/// together, and the socket's [`crate::Status`] lies elsewhere: its load is under way meanwhile.
#[derive(Debug)]
#[repr(C, align(64))]
pub struct SocketLine {
    /// Bytes that have landed in the receive ring, with END at the end. Of a listener: connections
    /// that wait for an accept.
    pub landed: u64,
    /// Bytes of the send ring that are free again, with END when nobody reads any more. Of a
    /// listener: connections that were accepted ahead ([`crate::accept`]), as many as there ever
    /// were.
    pub released: u64,
    reserved: u64,
    /// Of a stream with [units](crate::units), in an arena: how many slots of the unit ring that it
    /// writes the line's owner may have used. 0: none yet.
    pub unit_limit: u64,
    /// Not 0 while a CPU thread block, or threads of a host program, sleep until they can send.
    pub send_park: u32,
    /// Not 0 while a CPU thread block, or threads of a host program, sleep until something lands.
    pub recv_park: u32,
    reserved2: [u64; 3],
}

const _: () = assert!(size_of::<SocketLine>() == 64);
// An agent sets both words of a stream in an arena back by one write.
const _: () = assert!(
    core::mem::offset_of!(SocketLine, landed) == 0 && core::mem::offset_of!(SocketLine, released) == 8
);
// Where `RingEnd::unit_limit` finds it.
const _: () = assert!(
    core::mem::offset_of!(SocketLine, unit_limit)
        == core::mem::offset_of!(SocketLine, released) + crate::stream::units::LIMIT_AT
);
