//! The C functions, exported from the PTX under GPUnet's names.
//!
//! Only wrappers: each finds the attachment, names the group that calls, and hands on to
//! [`crate::posix`]. Built with the feature `capi` for `ptx/gpunet_device.ptx`, because exported
//! functions of a dependency would land in every kernel module. The declarations that C sees are in
//! `include/gpunet.h`.

mod control;
mod data;
mod names;
mod single;

use crate::group::ThreadBlock;
use crate::{Group, Net, posix};
use gpunet_abi::{Error, Result};

/// The context of the launch, as a device address. The host sets it in each module:
/// `attachment.bind(module)`. 0: no attachment, and every call returns -ENETDOWN.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static mut gpunet_attachment: u64 = 0;

/// The block that calls, after a barrier: the leader sees what all lanes have written, as an address.
#[inline(always)]
fn block() -> ThreadBlock {
    let block = ThreadBlock::current();
    block.sync();
    block
}

/// Runs a call with the module's attachment, by the group `g`.
#[inline(always)]
fn call<G: Group>(g: &G, body: impl FnOnce(&G, Net) -> Result<i64>) -> i64 {
    // SAFETY: the host writes the variable between launches only.
    let address = unsafe { (&raw const gpunet_attachment).read_volatile() };
    // SAFETY: the host put the address of a context there, which lives as long as the attachment.
    let net = unsafe { Net::from_raw(address) };
    if !net.is_attached() {
        return posix::returned(Err(Error::NetworkDown));
    }
    posix::returned(body(g, net))
}

/// The same for calls that return an `int`.
#[inline(always)]
fn int<G: Group>(g: &G, body: impl FnOnce(&G, Net) -> Result<i64>) -> i32 {
    call(g, body) as i32
}
