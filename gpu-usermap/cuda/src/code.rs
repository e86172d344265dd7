//! Modules, the kernels in them, and how PTX becomes one.

mod function;
mod jit;
mod module;

pub(crate) use function::occupancy;
pub use function::{Function, FunctionAttributes};
pub use jit::LoadModuleError;
pub use module::Module;
