//! An exact, fast event pipe from the Linux kernel, over a perf event array (`BPF_MAP_TYPE_PERF_EVENT_ARRAY`).
//!
//! An [`EvPipe`] is a set of per-CPU [`EvQueue`]s, each a perf event and its mapped ring. A drain passes every record
//! to the handlers registered for its type, without a copy:
//!
//! ```no_run
//! use probe_user::{EvHandlers, EvPipe, Options, Stop};
//! use probe_user::common::{Record, RecordKind};
//! use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
//!
//! #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
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
//! The folders follow the path of a record: an [`EvQueue`] drains a ring (`queue`), an [`EvPipe`] drains the queues
//! (`pipe`), and [`EvHandlers`] dispatch by type (`consume`). The records of one CPU arrive in order; an
//! [`OrderedPipe`] delivers the records of all CPUs in time order.
//!
//! # Features
//!
//! | feature | what it adds |
//! | --- | --- |
//! | none | the pipe: [`EvPipe::from_map`] takes any loader's map |
//! | `aya` | [`EvPipe::from_object`], for objects that aya loaded |
//! | `tokio` | `AsyncEvPipe` and `RecordStream` |

#![deny(missing_docs, unsafe_code)]

// The helpers that the kernel tests share refer to this crate by its name.
#[cfg(test)]
extern crate self as probe_user;

mod consume;
mod error;
pub mod flight;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
pub mod ledger;
mod pipe;
mod queue;
#[cfg(all(test, feature = "aya"))]
#[path = "../tests/kernel/suite/mod.rs"]
#[allow(dead_code, reason = "the unit tests use a part of what the kernel tests share")]
mod suite;

/// The version of aya that the feature `aya` works with.
#[cfg(feature = "aya")]
pub use aya;
#[cfg(feature = "tokio")]
pub use consume::asynchronous::{AsyncEvPipe, Pipe, RecordStream};
pub use consume::evhandler::{AnyThread, Emitted, EvHandlers, Flow, OneThread, Threads};
pub use consume::item::{CpuState, Item, OwnedRecord};
pub use consume::merge::{Intake, Merge};
pub use consume::ordered::OrderedPipe;
pub use consume::owned::OwnedRecords;
pub use consume::per_cpu::{PerCpuPipe, request_short_slices};
pub use error::{OpenError, PauseError, PollError, TallyError};
pub use pipe::closing::Summary;
pub use pipe::evpipe::{EvPipe, Progress};
pub use pipe::options::{Options, Wakeup};
pub use pipe::parts::PipeParts;
pub use pipe::stop::Stop;
pub use probe_common as common;
pub use probe_sys::cpus;
pub use probe_sys::escape::Escaped;
pub use queue::batch::Batch;
pub use queue::consumer::Consumer;
pub use queue::contents::RAW;
pub use queue::counts::QueueCounts;
pub use queue::evqueue::EvQueue;
pub use queue::notices::{CpuChange, Failure, Loss, Malformed, MalformedReason};

/// The examples of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../docs/embedding.md")]
struct Embedding;

/// Types that may move between threads.
const _: () = {
    const fn assert_send<T: Send>() {}
    const fn assert_sync<T: Sync>() {}
    assert_send::<EvPipe>();
    assert_send::<OrderedPipe>();
    assert_send::<PerCpuPipe<EvHandlers<'_>, fn(u32) -> EvHandlers<'static>>>();
    assert_send::<EvHandlers<'_>>();
    assert_send::<OwnedRecord>();
    assert_send::<ledger::Ledger>();
    assert_send::<ledger::Meter>();
    assert_sync::<ledger::Meter>();
    assert_send::<OpenError>();
    assert_send::<PollError>();
    assert_send::<Stop>();
    assert_sync::<Stop>();
    assert_send::<flight::Trigger>();
    assert_sync::<flight::Trigger>();
};
