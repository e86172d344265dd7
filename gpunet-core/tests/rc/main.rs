//! The rc state machine against peers: one that behaves like unmodified librdmacm, another machine,
//! and liars.
//!
//! | file | what |
//! |---|---|
//! | `nic` | a card's side of a connection: memory under keys, queues, completions |
//! | `audit` | what a machine may do, written from the specification; checks every request |
//! | `ours` | a `Machine` with rings and an application |
//! | `reference` | the rsocket of librdmacm, written from the specification; `shape`: its sizes and places |
//! | `wire` | two ends and the wire between them, which delivers in order at times of its own |
//! | `size` | sizes and places of a machine |
//! | `victim` | a machine whose peer lies; utils/fuzz plays it, too |
//! | `transfer`, `ending`, `liar`, `keepalive`, `captured` | the properties |

mod audit;
mod captured;
mod ending;
mod keepalive;
mod liar;
mod nic;
mod ours;
mod reference;
mod shape;
mod size;
mod transfer;
mod victim;
mod wire;
