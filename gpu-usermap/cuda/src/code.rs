//! Modules, the kernels in them, and how PTX becomes one.
//!
//! | file | holds |
//! |---|---|
//! | `jit` | from PTX text to a loaded module |
//! | `module` | a loaded module, and the names in it |
//! | `function` | a kernel that was looked up, and what it needs |

mod function;
mod jit;
mod module;

pub(crate) use function::occupancy;
pub use function::{Function, FunctionAttributes};
pub use jit::LoadModuleError;
pub use module::Module;
