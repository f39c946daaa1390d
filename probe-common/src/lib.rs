//! The wire between eBPF programs and user space: record layouts, the block that carries them, and
//! the maps that both sides know by name.
//!
//! A program emits *records*; one or more of them travel in a *block*, which is the raw data of one
//! `bpf_perf_event_output` call. Everything is in the byte order of the machine: both sides are the
//! same machine.
//!
//! ```text
//! block   := prefix(4): used: u16 in 8-byte words, seq: u16 per CPU, wrapping   | record*
//! record  := header(16): kind: u32, len: u32 bytes of payload, time: u64 ns     | payload, padded to 8
//! ```
//!
//! The kernel puts raw data at offset 12 of a perf record (`struct perf_event_header`, then a
//! `u32` size: `PERF_SAMPLE_RAW` in `include/uapi/linux/perf_event.h`). With a prefix of 4 bytes,
//! every record of a block is therefore 8-aligned in the ring, and can be read where it lies.
//!
//! This crate is `no_std`, has no `unsafe`, and compiles for eBPF and for the host alike.

#![no_std]
#![deny(missing_docs, unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod block;
pub mod call;
pub mod control;
pub mod count;
pub mod counter;
pub mod fetch;
pub mod histogram;

pub mod limits;
pub mod record;
pub mod sampling;
pub mod slot;
pub mod tally;
pub mod trace;

pub use block::{BlockError, BlockPrefix, BlockWriter, RawRecord, Records, record_span};
pub use record::{Record, RecordHeader, RecordKind};
