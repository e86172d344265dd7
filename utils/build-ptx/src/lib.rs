//! Builds Rust kernel crates into PTX with the stable compiler, and checks the result.
//!
//! | module | what it does |
//! |---|---|
//! | [`shipped`] | the project's own kernels: package, output file, features |
//! | [`toolchain`], [`debian`] | the pinned compiler, and finding the sources of `core` for it |
//! | [`graph`] | what `cargo metadata` tells about a kernel crate and its dependencies |
//! | [`ptx`], [`wrapper`] | one cargo call that leaves PTX, the same bytes on every machine |
//! | [`text`] | reads PTX text: functions, instructions, data |
//! | [`lint`] | the rules every PTX file must meet |
//! | [`constants`] | distinguishes loads of the program's constants from others |
//! | [`source`], [`report`] | describes where in the Rust program a rule is broken |
//! | [`check`], [`classes`] | compares a fresh build with the checked-in file |
//! | [`assemble`] | runs the real `ptxas` and reports registers and spills |
#![forbid(unsafe_code)]

pub mod assemble;
pub mod check;
pub mod classes;
pub mod constants;
pub mod debian;
pub mod graph;
pub mod lint;
pub mod ptx;
pub mod report;
pub mod run;
pub mod shipped;
pub mod source;
pub mod text;
pub mod toolchain;
pub mod wrapper;
