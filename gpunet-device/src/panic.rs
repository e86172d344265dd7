//! What a panic does on a GPU: it ends the kernel with a trap.

use core::arch::asm;
use core::panic::PanicInfo;

#[panic_handler]
fn panic(_: &PanicInfo<'_>) -> ! {
    // SAFETY: `trap` aborts the grid; nothing runs after it.
    unsafe { asm!("trap;", options(noreturn, nostack)) }
}
