//! Panics on a GPU: the panic records where it happened, and ends the kernel with a trap.

use crate::Group;
use crate::group::ThreadBlock;
use core::arch::asm;
use core::panic::PanicInfo;
use core::sync::atomic::{AtomicU32, Ordering};
use gpunet_abi::panic_record::{PANIC_TEXT, PanicRecord};

/// Where a panic is recorded. The host sets it in each module that it loads; 0: no record is
/// wanted. Its name is [`gpunet_abi::panic_record::PANIC_SYMBOL`].
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static mut gpunet_panic_record: u64 = 0;

/// How far the record is: one thread writes it, and the others leave it the time.
static RECORDING: AtomicU32 = AtomicU32::new(NOBODY);
const NOBODY: u32 = 0;
const SOMEBODY: u32 = 1;
const DONE: u32 = 2;

/// Polls of [`RECORDING`] before a thread ends the grid under one that records: far longer than
/// that takes.
const POLLS: u32 = 100_000;

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    // SAFETY: the host writes the variable between launches only.
    let record = unsafe { (&raw const gpunet_panic_record).read_volatile() };
    if record != 0 {
        record_once(record as *mut PanicRecord, info);
    }
    // SAFETY: `trap` aborts the grid; nothing runs after it.
    unsafe { asm!("trap;", options(noreturn, nostack)) }
}

#[cold]
#[inline(never)]
fn record_once(record: *mut PanicRecord, info: &PanicInfo<'_>) {
    // Ordering: Relaxed; it only decides who records.
    if RECORDING.compare_exchange(NOBODY, SOMEBODY, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
        write_record(record, info);
        RECORDING.store(DONE, Ordering::Relaxed);
    }
    let mut polls = 0;
    while RECORDING.load(Ordering::Relaxed) != DONE && polls < POLLS {
        polls += 1;
    }
}

fn write_record(record: *mut PanicRecord, info: &PanicInfo<'_>) {
    let (file, line, column) = info.location().map_or(("", 0, 0), |at| (at.file(), at.line(), at.column()));
    let message = info.message().as_str().unwrap_or("");
    let block = ThreadBlock::current();
    // SAFETY: the host put the address of a record in pinned memory there, and reads it only once
    // `told` is set; the recording thread is the only one that writes.
    unsafe {
        (&raw mut (*record).line).write_volatile(line);
        (&raw mut (*record).column).write_volatile(column);
        (&raw mut (*record).block).write_volatile(block.index());
        (&raw mut (*record).thread).write_volatile(block.rank());
        (&raw mut (*record).file_len).write_volatile(text((&raw mut (*record).file).cast(), file));
        (&raw mut (*record).message_len).write_volatile(text((&raw mut (*record).message).cast(), message));
    }
    // Ordering: Release at system scope, pairs with the host's Acquire load: the record is written.
    // SAFETY: as above; an aligned word that the host accesses atomically.
    unsafe { AtomicU32::from_ptr(&raw mut (*record).told) }.store(1, Ordering::Release);
    // It has to arrive before the trap.
    core::sync::atomic::fence(Ordering::SeqCst);
}

/// Writes as much of a text as there is room for; returns how much.
///
/// # Safety
/// `to` has room for [`PANIC_TEXT`] bytes.
unsafe fn text(to: *mut u8, from: &str) -> u32 {
    let mut written = 0;
    for &byte in from.as_bytes().iter().take(PANIC_TEXT) {
        // SAFETY: below PANIC_TEXT.
        unsafe { to.wrapping_add(written).write_volatile(byte) };
        written += 1;
    }
    written as u32
}
