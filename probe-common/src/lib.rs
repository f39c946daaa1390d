//! The wire between eBPF programs and user space: record layouts, the block that carries them, and
//! the maps that both sides know by name.
//!
//! A program emits *records*. One or more of them travel in a *block*, which is the raw data of one
//! `bpf_perf_event_output` call. All values have the machine's byte order, since both sides run on the
//! same machine.
//!
//! ```text
//! block   := prefix(4): used: u16 in 8-byte words, seq: u16 = slot(3 bits), count(13 bits) | record*
//! record  := header(16): kind: u32, len: u32 bytes of payload, time: u64 ns | payload, padded to 8
//! ```
//!
//! The kernel puts raw data at offset 12 of a perf record (`struct perf_event_header`, then a
//! `u32` size: `PERF_SAMPLE_RAW` in `include/uapi/linux/perf_event.h`). The 4-byte prefix therefore
//! aligns every record of a block to 8 bytes in the ring, where it can be read in place.
//!
//! `slot` is the CPU's buffer in which the block was filled, and `count` numbers the blocks of that buffer, wrapping.
//!
//! This crate is `no_std`, has no `unsafe`, and compiles for eBPF as well as for the host.

#![no_std]
#![deny(missing_docs, unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod block;
pub mod control;
pub mod limits;
pub mod record;
pub mod slot;
pub mod tally;

pub use block::{BlockError, BlockPrefix, BlockWriter, RawRecord, Records, record_span};
pub use record::{Record, RecordHeader, RecordKind};
