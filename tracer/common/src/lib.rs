//! What the tracer's eBPF programs share with user space: fetch tables, calls, counts, histograms.
//!
//! This crate is `no_std`, has no `unsafe`, and compiles for eBPF and for the host alike.

#![no_std]
#![deny(missing_docs, unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod call;
pub mod count;
pub mod counter;
pub mod fetch;
pub mod histogram;
pub mod sampling;
pub mod specialized;
pub mod trace;
pub mod wait;
