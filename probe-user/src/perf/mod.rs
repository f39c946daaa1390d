//! Perf events by themselves, without eBPF: what is observed ([`Event`]), of whom ([`Scope`]); counted
//! ([`Counter`], [`Group`]), or each by itself ([`Sampler`]).

mod aux;
mod aux_traces;
mod control_page;
mod counter;
mod error;
mod event;
mod event_opener;
mod event_source;
mod group;
mod later_cpus;
mod names;
mod opened;
mod place;
mod reading;
pub mod record;
mod sample_ring;
mod sampler;
mod sampler_builder;
mod sampler_rings;
mod scope;
mod waiting;

pub use crate::sys::perf_event::Flags;
pub use aux::{AuxFlags, AuxMode, AuxPiece, AuxTrace};
pub use aux_traces::AuxTraces;
pub use control_page::{Capabilities, ControlPage, Snapshot};
pub use counter::{Clock, Counter, CounterOptions, ReadBy};
pub use error::{EventError, PerfError};
pub use event::{Event, Source};
#[cfg(feature = "trace")]
pub(crate) use event_source::kind_of;
pub use event_source::{PmuError, PmuEvent};
pub use group::{Group, GroupReading, MemberReading};
pub use names::{Cache, CacheOperation, CacheResult, Hardware, Software};
pub use reading::{PlaceReading, Reading};
pub use sampler::{Next, Sampler, SamplerCounts};
pub use sampler_builder::SamplerBuilder;
pub use scope::Scope;
