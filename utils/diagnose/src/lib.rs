//! What a machine offers to gpunet, what is missing, and what to do about it.
//!
//! `gpunet-diagnose` only looks: it changes nothing, repairs nothing and needs no root. Facts come first, as plain
//! data; every check is a function from facts to [`Check`]s, so that a test can invent the machine.
//!
//! | layer | modules |
//! |---|---|
//! | facts | [`system`] (`/proc` and `/sys`, of this machine or of a tree made for a test), [`facts`] (what is read there), [`libraries`] (what CUDA, verbs and a daemon say) |
//! | checks | [`checks`] (one file per area), [`selftest`] (one file per test), [`catalogue`] (all names), [`check`] (what a check says) |
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
