//! Where a GPU records its panic: the kernel ends with a trap, after which the GPU's memory cannot
//! be read. So the panicking thread writes into pinned memory first.

/// The record of one thread's panic. In the shared region.
///
/// | field | writer | reader |
/// |---|---|---|
/// | all but `told` | the first GPU thread that panics | the host, once the kernel has failed and `told` is 1 |
/// | `told` | the same thread, last | the host |
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub struct PanicRecord {
    /// 1 once the rest is written.
    pub told: u32,
    /// Line in the file.
    pub line: u32,
    /// Column in the line.
    pub column: u32,
    /// Linear index of the block.
    pub block: u32,
    /// Linear index of the thread in its block.
    pub thread: u32,
    /// Bytes of `file`.
    pub file_len: u32,
    /// Bytes of `message`; 0 when it is not a literal, which is all that a GPU can record.
    pub message_len: u32,
    reserved: [u32; 9],
    /// The source file, cut at its end.
    pub file: [u8; PANIC_TEXT],
    /// The panic's text, cut at its end.
    pub message: [u8; PANIC_TEXT],
}

/// Longest text in a [`PanicRecord`], in bytes.
pub const PANIC_TEXT: usize = 224;

/// The variable of a module that holds the address of a [`PanicRecord`], in the device's address
/// space. 0: no record is wanted.
pub const PANIC_SYMBOL: &str = "gpunet_panic_record";

const _: () = assert!(size_of::<PanicRecord>() == 512);
