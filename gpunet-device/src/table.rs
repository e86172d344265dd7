//! The device's socket table: slots, the entries in them, and what groups of threads know of each.
//!
//! | module | holds |
//! |---|---|
//! | [`slots`] | the state of a slot, its users, the locks of its halves |
//! | [`entry`] | a socket's entry: rings, positions, options, addresses |
//! | [`accepted`] | the queue of a listener: connections that were accepted ahead |
//! | [`lists`] | the lists of a poll group that the proxy pushes to |
//! | [`member`] | a socket as its poll group knows it, and the stack of those to look at |
//! | [`membership`] | which sockets are in which poll group, and what a close leaves |
//! | [`free_slots`] | slots taken from the recycling ring, and prepared |

pub(crate) mod accepted;
pub mod entry;
pub mod free_slots;
pub(crate) mod lists;
pub(crate) mod member;
pub(crate) mod membership;
pub mod slots;
