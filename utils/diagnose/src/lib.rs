//! What a machine offers to gpunet, what is missing, and what to do about it.
//!
//! `gpunet-diagnose` only inspects: it changes nothing, repairs nothing and needs no root. Facts
//! are read first, as plain data. Every check is a function from facts to [`Check`]s, so that a
//! test can invent the machine.
//!
//! | layer | modules |
//! |---|---|
//! | facts | [`system`] (`/proc` and `/sys`, of this machine or of a tree made for a test), [`facts`] (what is read there), [`libraries`] (the answers of CUDA, verbs and a daemon) |
//! | checks | [`checks`] (one file per area), [`selftest`] (one file per test), [`catalogue`] (all names), [`check`] (the outcome of a check) |
//! | safety | [`child`] (library calls and self-tests run in child processes, with limits) |
//! | outcome | [`verdict`] (what works, the exit code), [`report`] (for people, as JSON) |
//! | program | [`args`], [`run`](mod@run) |
#![deny(unsafe_code)]

pub mod args;
pub mod catalogue;
pub mod check;
pub mod checks;
pub mod child;
pub mod facts;
pub mod libraries;
pub mod report;
pub mod run;
pub mod selftest;
pub mod system;
pub mod verdict;

pub use check::{Check, Impact, Status};
