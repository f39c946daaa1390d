//! Perf events by themselves, without eBPF: what is observed ([`Event`]), and of whom ([`Scope`]).

mod error;
mod event;
mod names;
mod place;
mod scope;

pub use crate::sys::perf_event::Flags;
pub use error::{EventError, PerfError};
pub use event::{Event, Source};
pub use names::{Cache, CacheOperation, CacheResult, Hardware, Software};
pub(crate) use place::Place;
pub use scope::Scope;
