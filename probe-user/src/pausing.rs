//! Two ways to keep a pipe from taking records.

/// How a pipe is [paused](crate::EvPipe::pause).
///
/// Either way, what was emitted before is in the rings, and may be consumed meanwhile; every record that is
/// emitted meanwhile fails at once, and is never given; and the [`Ledger`](crate::Ledger) balances. What
/// differs is who counts.
///
/// Nothing is packed during a pause, and blocks that are open when it begins are sent before it is in effect.
/// If a program is just then in the middle of a record and stays there (one that may sleep or be preempted),
/// its block goes the way of what is emitted meanwhile, unless the pause is over first. A block is taken, or
/// fails, whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Pausing {
    /// The rings take nothing (`PERF_EVENT_IOC_PAUSE_OUTPUT`, 4.7+). What is emitted fails for
    /// [`NoSpace`](probe_common::tally::FailureClass::NoSpace), as if the rings were full; the kernel counts
    /// it as lost, and the consumer is told so ([`Loss`](crate::Loss)).
    Output,
    /// The slots of the map are empty. What is emitted fails for
    /// [`NoEvent`](probe_common::tally::FailureClass::NoEvent); the eBPF side alone counts it, and the
    /// consumer is told nothing. It costs programs less, and each pause a grace period of RCU.
    Slots,
}
