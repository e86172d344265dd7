//! Launches of kernels on an attached device.
//!
//! | module | what it is |
//! |---|---|
//! | `running` | a kernel that runs, as PTX on a GPU or as thread blocks on the CPU |
//! | `program` | kernels that are loaded |
//! | `token` | launch numbers: what cancels a kernel's waits and reaps what it leaves |

pub(crate) mod program;
#[allow(unsafe_code)]
pub(crate) mod running;
pub(crate) mod token;
