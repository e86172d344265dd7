//! How a value passes from one agent to another.
//!
//! | module | what it is |
//! |---|---|
//! | [`atomic`] | What words are made of. |
//! | [`device_scope`] | Publishing and observing among the threads of one device. |
//! | [`epoch`] | A counter of changes that a poll could wait for. |
//! | [`hand_off`] | The points at which a test makes a thread stop. |
//! | [`park`] | Sleeping, and waking who sleeps. |
//! | [`word`] | Loads and stores with a named partner. |

pub mod atomic;
pub mod device_scope;
pub mod epoch;
pub mod hand_off;
pub mod park;
pub mod word;
