//! A kernel: its parameters and what it does, written once for GPU and CPU.
//!
//! | file | holds |
//! |---|---|
//! | `parameters` | what `kernel_entry!` checks when it is compiled |
//! | `references` | what finds references in parameters, in the PTX build |
//! | `panic` | the record of a panic on a GPU |

use crate::Group;

#[cfg(target_arch = "nvptx64")]
mod panic;
#[doc(hidden)]
pub mod parameters;
#[cfg(target_arch = "nvptx64")]
#[doc(hidden)]
pub mod references;

/// A kernel is its parameters plus [`Kernel::run`].
///
/// The parameters are plain data, copied to the device byte by byte: numbers, [`crate::Net`],
/// [`crate::Buffer`], raw pointers, and `#[repr(C)]` structures of these, without padding. No
/// references: what a `&T` points to lies in the host's memory, and the compiler expects that
/// nobody changes it.
///
/// # Examples
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

    /// The body of each thread block. All threads of the block run it together.
    fn run<G: Group>(self, group: &G);
}

/// Emits the PTX entry of a [`Kernel`] and, on every target, checks its name and its parameters.
///
/// `kernel_entry!(function, "name", Type)`: a Rust name for the function, the entry's name (equal
/// to [`Kernel::ENTRY`]), and the kernel, a structure whose fields are visible here. The crate root
/// needs `#![cfg_attr(target_arch = "nvptx64", feature(abi_ptx))]`.
///
/// # Compile-time errors
/// - The name differs from [`Kernel::ENTRY`], by which the host finds the entry.
/// - A parameter is a reference, a function pointer or another value that cannot be zero, such as
///   `NonNull`. A reference that may be zero, such as `Option<&T>`, is found when the PTX is built.
/// - There is padding between the parameters or behind the last one: bytes that nobody set would be
///   copied to the device. Padding inside a parameter is found when the PTX is built.
/// - The structure, or that of a parameter, lacks `#[repr(C)]`.
///
/// # Examples
///
/// ```
/// # use gpunet_device::{Group, Kernel, Net, kernel_entry};
/// #[derive(Clone, Copy)]
/// #[repr(C)]
/// pub struct Serve {
///     pub net: Net,
/// }
/// # impl Kernel for Serve {
/// #     const ENTRY: &'static str = "serve";
/// #     fn run<G: Group>(self, _: &G) {}
/// # }
/// kernel_entry!(serve_entry, "serve", Serve);
/// ```
#[macro_export]
macro_rules! kernel_entry {
    ($function:ident, $name:literal, $kernel:ty) => {
        const _: () = {
            // Names in here hide the caller's in `$kernel`: no kernel is called so.
            type KernelOfTheEntry = $kernel;

            const ENTRY_HAS_THE_KERNELS_NAME: () = assert!(
                $crate::kernel::parameters::same_name($name, <KernelOfTheEntry as $crate::Kernel>::ENTRY),
                "{}",
                concat!(
                    "the entry is named `",
                    $name,
                    "`, and `Kernel::ENTRY` of `",
                    stringify!($kernel),
                    "` is another name, by which the host does not find it: write the same name in both places"
                )
            );

            #[cfg(target_arch = "nvptx64")]
            const PARAMETERS_HOLD_NO_REFERENCES: () =
                $crate::kernel::references::absent_from::<KernelOfTheEntry>();

            // SAFETY: the value of a constant.
            const PARAMETERS_MAY_BE_ZERO: () = assert!(
                !unsafe { $crate::kernel::parameters::is_never_zero::<KernelOfTheEntry>() },
                "{}",
                concat!(
                    "`",
                    stringify!($kernel),
                    "` holds a reference, a function pointer or another parameter that is never zero: ",
                    "pass a `Buffer`, a raw pointer or a number"
                )
            );

            // SAFETY: the value of a constant.
            const KERNEL_OF_ZEROS: KernelOfTheEntry = unsafe { $crate::kernel::parameters::zero() };

            // A value that is built field by field has uninitialised padding.
            // SAFETY: the value of a constant.
            const PARAMETERS_HAVE_NO_PADDING: () =
                unsafe { $crate::kernel::parameters::read_every_byte(KernelOfTheEntry { ..KERNEL_OF_ZEROS }) };

            // The lint finds a missing `#[repr(C)]`, here or in the type of a field.
            #[allow(dead_code)]
            #[deny(improper_ctypes_definitions)]
            extern "C" fn parameters_have_a_c_layout(_: $kernel) {}
        };

        /// The kernel's entry, as the host launches it.
        ///
        /// # Safety
        /// Launched by a host that vouches for what the parameters point to.
        #[cfg(target_arch = "nvptx64")]
        #[allow(improper_ctypes_definitions)]
        #[unsafe(export_name = $name)]
        pub unsafe extern "ptx-kernel" fn $function(kernel: $kernel) {
            $crate::Kernel::run(kernel, &$crate::group::ThreadBlock::current());
        }
    };
}
