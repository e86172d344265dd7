//! A kernel: its parameters and what it does, written once for GPU and CPU.

use crate::Group;

/// A kernel is its parameters plus [`Kernel::run`].
///
/// The parameters are plain data, copied to the device: numbers, [`crate::Net`], [`crate::Buffer`],
/// raw pointers. No references: rustc turns a `&T` in a kernel's parameters into non-coherent
/// loads, which never see what another agent writes.
///
/// ```
/// use gpunet_device::{Buffer, Group, Kernel, Listener, Net, SockAddr, kernel_entry};
///
/// #[derive(Clone, Copy)]
/// #[repr(C)]
/// pub struct Echo {
///     pub net: Net,
///     pub buffer: Buffer,
/// }
///
/// impl Kernel for Echo {
///     const ENTRY: &'static str = "echo";
///     fn run<G: Group>(self, group: &G) {
///         let _ = echo(group, self.net, self.buffer);
///     }
/// }
/// kernel_entry!(echo_entry, "echo", Echo);
///
/// fn echo<G: Group>(g: &G, net: Net, buffer: Buffer) -> gpunet_device::Result<()> {
///     let listener = Listener::bind(g, net, SockAddr::v4([0, 0, 0, 0], 7777))?;
///     let mut stream = listener.accept(g)?;
///     loop {
///         match stream.recv(g, buffer)? {
///             0 => return stream.close(g),
///             n => stream.send_all(g, buffer.first(n))?,
///         }
///     }
/// }
/// ```
pub trait Kernel: Copy + Send + 'static {
    /// The name of the PTX entry that [`kernel_entry!`](crate::kernel_entry) emits.
    const ENTRY: &'static str;

    /// What each thread block does. All threads of the block run it together.
    fn run<G: Group>(self, group: &G);
}

/// Emits the PTX entry of a [`Kernel`]; on the CPU it emits nothing.
///
/// `kernel_entry!(function, "name", Type)`: a Rust name for the function, the entry's name (equal to
/// [`Kernel::ENTRY`]), and the kernel. The crate root needs
/// `#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx))]`.
#[macro_export]
macro_rules! kernel_entry {
    ($function:ident, $name:literal, $kernel:ty) => {
        /// The kernel's entry, as the host launches it.
        ///
        /// # Safety
        /// Launched by a host that vouches for what the parameters point to.
        #[cfg(target_arch = "nvptx64")]
        #[unsafe(export_name = $name)]
        pub unsafe extern "ptx-kernel" fn $function(kernel: $kernel) {
            $crate::Kernel::run(kernel, &$crate::group::ThreadBlock::current());
        }
    };
}
