//! The values in which a socket is named, asked for and answered.
//!
//! | module | what it is |
//! |---|---|
//! | [`addr`] | Addresses and ports. |
//! | [`direction`] | The two directions of a stream. |
//! | [`errno`] | Errors, numbered as on Linux. |
//! | [`handle`] | The number by which a kernel names a socket. |
//! | [`link`] | Who is at the other side of a stream. |
//! | [`options`] | What a socket is opened with. |
//! | [`region`] | Region numbers and offsets. |
//! | [`status`] | How far a socket is. |
//! | [`timeout`] | How long a call may wait. |
//! | [`waiting`] | What a block waits for. |

pub mod addr;
pub mod direction;
pub mod errno;
pub mod handle;
pub mod link;
pub mod options;
pub mod region;
pub mod status;
pub mod timeout;
pub mod waiting;
