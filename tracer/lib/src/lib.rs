//! The tracer: probes on kernel functions, tracepoints, raw tracepoints, and functions of programs and
//! libraries, with one prebuilt eBPF object and no compiler.
//!
//! ```no_run
//! use probe_tracer::{TraceEvent, Tracer};
//! use probe_user::{Consumer, Stop};
//! use probe_user::common::RawRecord;
//! use std::ops::ControlFlow;
//!
//! struct Count(u64);
//!
//! impl Consumer for Count {
//!     fn record(&mut self, cpu: u32, record: RawRecord<'_>) -> ControlFlow<()> {
//!         if let Some(event) = TraceEvent::decode(cpu, record) {
//!             println!("{} entered probe {}", event.task.pid, event.probe);
//!             self.0 += 1;
//!         }
//!         ControlFlow::Continue(())
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut tracer = Tracer::builder().probe("do_sys_openat2".parse()?).attach()?;
//! let mut count = Count(0);
//! tracer.run(&Stop::new()?, &mut count)?;
//! println!("{}", tracer.close(&mut count)?);
//! # Ok(())
//! # }
//! ```

#![deny(missing_docs, unsafe_code)]

mod binary;
pub mod check;
mod error;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod hook;
mod kernel;
mod object;
pub mod output;
pub mod recording;
mod resolve;
mod session;
mod spec;
mod symbolize;
mod tracefs;

pub use binary::reader::{allow_symbol_reader, start_symbol_reader};
pub use binary::{BinaryError, FileProblem};
pub use error::TraceError;
pub use hook::expand::LeftOut;
pub use hook::info::{FileOffset, Info, InfoField};
pub use hook::list::{Listed, Listing, list};
pub use kernel::capabilities::Capabilities;
pub use output::Origin;
pub use probe_sys::process::User;
pub use resolve::event::{Addresses, TraceEvent, Value};
pub use resolve::names::{BitNames, Constant, ValueNames};
pub use resolve::probe::Probe;
pub use resolve::shape::{Enumeration, Field, Shape};
pub use resolve::signature::{Member, NotShown, Parameter, Signature};
pub use session::attached::Detaching;
pub use session::builder::{Attaching, Target, TracerBuilder};
pub use session::command::TracedCommand;
pub use session::count::{Counts, HitCounter};
pub use session::latency::{Latencies, Latency, Stopwatch};
pub use session::ledger::{Account, TraceLedger, Verdict};
pub use session::missed::Missed;
pub use session::privileges;
pub use session::tracer::Tracer;
pub use spec::{
    At, Builtin, Comparison, FieldBase, FieldPath, FieldSpec, FieldType, Instead, Length, Operand,
    Operator, PathStep, Predicate, ProbeSpec, Provider, SpecError,
};
pub use symbolize::sampled::SampledStacks;
pub use symbolize::stack::{EntryKind, Stack, StackEntry, StackTable};
pub use symbolize::stacks::StackCounts;
pub use symbolize::{Frame, SymbolAccess, Symbols};
