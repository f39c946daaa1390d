//! An exact, fast event pipe out of the Linux kernel, over a perf event array
//! (`BPF_MAP_TYPE_PERF_EVENT_ARRAY`).
//!
//! An [`EvPipe`] is a set of per-CPU [`EvQueue`]s, each a perf event and its mapped ring. Draining
//! it gives every record to the handlers that are registered for its type, without a copy:
//!
//! ```no_run
//! use probe_user::{EvHandlers, EvPipe, Options, Stop};
//! use probe_user::common::{Record, RecordKind};
//! use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
//!
//! #[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
//! #[repr(C)]
//! struct Forked {
//!     parent: u32,
//!     child: u32,
//! }
//!
//! impl Record for Forked {
//!     const KIND: RecordKind = RecordKind::user(0);
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut pipe = EvPipe::from_pinned("/sys/fs/bpf/PIPE_EVENTS", &Options::new())?;
//! let mut handlers = EvHandlers::new();
//! handlers
//!     .on::<Forked, _>(|event| println!("{}: {} -> {}", event.cpu, event.parent, event.child))
//!     .on_loss(|loss| eprintln!("{loss}"));
//! pipe.run(&Stop::new()?, &mut handlers)?;
//! # Ok(())
//! # }
//! ```
//!
//! The way of a record, room by room: [`EvQueue`] drains a ring, [`EvPipe`] drains the queues,
//! [`EvHandlers`] dispatches by type. Records come in the order of their CPU; an [`OrderedPipe`] gives
//! those of all CPUs by time.
//!
//! # Features
//!
//! | feature | what it adds |
//! | --- | --- |
//! | none | the pipe: [`EvPipe::from_map`] takes any loader's map |
//! | `aya` | [`EvPipe::from_object`], for objects that aya loaded |
//! | `tokio` | `AsyncEvPipe` and `RecordStream` |
//! | `perf` | perf events by themselves: counters and samplers |
//! | `trace` | the tracer, as a library |
//! | `cli` | the binary `probe` |

#![deny(missing_docs, unsafe_code)]

// What the kernel tests share calls the crate by its name, inside of it as well.
#[cfg(test)]
extern crate self as probe_user;

mod adaptive;
#[cfg(feature = "tokio")]
mod asynchronous;
mod backward;
mod batch;
mod consumer;
mod counts;
pub mod cpus;
mod drain;
mod error;
mod escape;
mod evhandler;
mod evpipe;
mod evqueue;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;
mod held;
mod hotplug;
mod ledger;
mod losses;
mod merge;
#[cfg(feature = "perf")]
mod nearest;
mod options;
mod ordered;
mod owned;
mod parts;
#[cfg(feature = "perf")]
mod pattern;
mod pausing;
mod per_cpu;
#[cfg(feature = "perf")]
pub mod perf;
mod queues;
mod ring;
mod scratch;
mod stop;
#[cfg(all(test, feature = "aya"))]
#[path = "../tests/suite/mod.rs"]
mod suite;
mod sys;
mod tally;
mod ticker;
#[cfg(feature = "trace")]
pub mod trace;
#[cfg(feature = "perf")]
mod tracefs;
mod trigger;
mod turns;

#[cfg(feature = "tokio")]
pub use asynchronous::{AsyncEvPipe, Pipe, RecordStream};
pub use batch::Batch;
pub use consumer::{Consumer, CpuChange, Dump, Loss, Malformed, MalformedReason};
pub use counts::QueueCounts;
pub use error::{OpenError, PauseError, PollError, TallyError};
pub use escape::Escaped;
pub use evhandler::{EvHandlers, Event, Flow};
pub use evpipe::{EvPipe, Progress, Summary};
pub use evqueue::EvQueue;
pub use ledger::{Discrepancy, Ledger, LedgerCpu, LedgerEntry};
pub use options::{Options, Wakeup};
pub use ordered::{OrderedPipe, OrderedSummary};
pub use owned::{Item, OwnedRecord, OwnedRecords};
pub use parts::PipeParts;
pub use pausing::Pausing;
pub use per_cpu::{PerCpuPipe, PerCpuSummary};
pub use probe_common as common;
pub use stop::Stop;
pub use tally::{CpuOutputs, CpuTally, Tally};
pub use trigger::Trigger;
pub use turns::ask_for_short_turns;
