//! What the outputs of a ring contain.

use probe_common::RecordKind;

/// What the outputs of a ring contain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Contents {
    /// Blocks of records, as `probe_ebpf::pipe` sends them.
    #[default]
    Blocks,
    /// Whatever a program passes to `bpf_perf_event_output`.
    Raw,
}

/// The kind of the records of a raw pipe ([`Options::raw`](crate::Options::raw)). No record type can have it.
pub const RAW: RecordKind = RecordKind(u32::MAX);

const _: () = assert!(RAW.index().is_none());
