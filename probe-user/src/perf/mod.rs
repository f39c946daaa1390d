//! Perf events by themselves, without eBPF: what is observed ([`Event`]), of whom ([`Scope`]), and each by itself
//! ([`Sampler`]).

mod aux;
mod error;
mod event;
mod names;
mod place;
pub mod record;
mod sample_ring;
mod sampler;
mod sampler_builder;
mod scope;

pub use crate::sys::perf_event::Flags;
pub use aux::{AuxFlags, AuxMode, AuxPiece, AuxTrace};
pub use error::{EventError, PerfError};
pub use event::{Event, Source};
pub use names::{Cache, CacheOperation, CacheResult, Hardware, Software};
pub use sampler::{Next, Sampler, SamplerCounts};
pub use sampler_builder::SamplerBuilder;
pub use scope::Scope;
