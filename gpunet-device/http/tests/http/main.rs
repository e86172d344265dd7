//! HTTP servers on CPU blocks, and clients that keep to the rules, that do not, and that others
//! wrote.

mod answers;
mod api;
mod client;
mod corpus;
mod foreign;
mod hostile;
mod hyper_server;
mod raw;
