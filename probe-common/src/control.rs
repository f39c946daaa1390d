//! The maps that both sides know by name.
//!
//! A program that uses `probe_ebpf::pipe` has them in its object. Names are at most 15 bytes, the
//! kernel's limit (`BPF_OBJ_NAME_LEN`).

/// The perf event array that blocks go into, indexed by CPU.
pub const EVENTS_MAP: &str = "PIPE_EVENTS";

/// A per-CPU array of [`KindTally`](crate::tally::KindTally), indexed by
/// [`RecordKind::index`](crate::RecordKind::index).
pub const TALLY_MAP: &str = "PIPE_TALLY";
