//! Where everything lies: regions, arenas, and what a kernel is handed.
//!
//! | module | what it is |
//! |---|---|
//! | [`arena`] | Memory of two attachments. |
//! | [`context`] | What a kernel is handed. |
//! | [`layout`] | The two regions of an attachment, byte by byte. |
//! | [`opened`] | Where an open stream lies. |
//! | [`panic_record`] | Where a GPU records why it panicked. |

pub mod arena;
pub mod context;
pub mod layout;
pub mod opened;
pub mod panic_record;
