//! Ways to consume: handlers by type, owned records, tokio, one order for all CPUs, and a consumer per CPU.

#[cfg(feature = "tokio")]
pub(crate) mod asynchronous;
pub(crate) mod evhandler;
mod gaps;
mod held;
pub(crate) mod item;
pub(crate) mod merge;
pub(crate) mod ordered;
pub(crate) mod owned;
pub(crate) mod per_cpu;
