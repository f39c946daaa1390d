//! Perf events without eBPF. An [`Event`] says what is observed, a [`Target`] on which threads or CPUs. A [`Counter`]
//! or a [`Group`] counts events, a [`Sampler`] records them one by one, and an [`AuxTrace`] gives access to hardware
//! trace data.

#![deny(missing_docs, unsafe_code)]

mod aux;
mod counter;
mod error;
mod event;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
pub mod nearest;
pub mod pattern;
pub mod record;
mod record_ring;
mod sampler;
mod target;
pub mod tracefs;
mod waiting;

pub use aux::{AuxFlags, AuxMode, AuxPiece, AuxTrace, AuxTraces};
pub use counter::{Clock, Counter, CounterBuilder, ReadBy, Reading, SiteReading};
pub use counter::{ControlPage, PageCapabilities, Snapshot};
pub use counter::{Group, GroupReading, MemberReading};
pub use error::PerfError;
pub use event::{Cache, CacheOperation, CacheResult, Hardware, Software};
pub use event::{Event, EventError, PmuError, PmuEvent, Rate, Source, kind_of};
pub use probe_sys::perf_event::Flags;
pub use sampler::{Next, Sampler, SamplerBuilder, SamplerCounts};
pub use target::Target;
