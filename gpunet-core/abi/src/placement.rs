//! Where everything lies: regions, arenas, and a kernel's context.
//!
//! | module | what it is |
//! |---|---|
//! | [`arena`] | Memory of two attachments. |
//! | [`context`] | The context of a launch. |
//! | [`layout`] | The two regions of an attachment, byte by byte. |
//! | [`opened`] | Where an open stream lies. |
//! | [`panic_record`] | Where a GPU records why it panicked. |

pub mod arena;
pub mod context;
pub mod layout;
pub mod opened;
pub mod panic_record;
