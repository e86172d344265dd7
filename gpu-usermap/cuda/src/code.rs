//! Modules, the kernels in them, and how PTX becomes one.
//!
//! | file | holds |
//! |---|---|
//! | `cubin` | machine code that is loaded as it is |
//! | `jit` | from PTX text to a loaded module |
//! | `module` | a loaded module, and the names in it |
//! | `function` | a kernel that was looked up, and what it needs |

mod cubin;
mod function;
mod jit;
mod module;

#[cfg(test)]
pub(crate) use cubin::tests::sample as sample_cubin;
pub(crate) use function::occupancy;
pub use function::{Function, FunctionAttributes};
pub use jit::LoadModuleError;
pub use module::Module;
