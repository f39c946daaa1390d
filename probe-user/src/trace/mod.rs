//! The tracer: probes on kernel functions, tracepoints, raw tracepoints, and functions of programs and
//! libraries, with one prebuilt eBPF object and no compiler.
//!
//! ```no_run
//! use probe_user::trace::{TraceEvent, Tracer};
//! use probe_user::{Consumer, Loss, Malformed, Stop};
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
//!     fn lost(&mut self, _: Loss) -> ControlFlow<()> { ControlFlow::Continue(()) }
//!     fn malformed(&mut self, _: Malformed) -> ControlFlow<()> { ControlFlow::Continue(()) }
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

mod account;
mod aggregate;
mod attach;
mod binary;
pub(crate) mod btf;
mod builder;
mod calls;
mod capabilities;
pub mod check;
mod command;
mod count;
mod counters;
mod delivery;
mod deny;
mod error;
mod event;
mod expand;
mod features;
mod filter;
mod glob;
mod images;
mod info;
mod kernel_types;
mod latency;
mod ledger;
mod list;
mod log_reader;
mod missed;
mod object;
mod origin;
pub mod output;
mod per_cpu;
mod pieces;
mod planner;
pub mod privileges;
mod probe;
pub mod recording;
pub(crate) mod resolve;
mod sampled;
mod sampling;
mod selection;
mod shape;
mod spec;
mod stacks;
mod symbolize;
mod symbols;
mod syscall;
mod tracefs;
mod tracer;
mod trampolines;
mod ways;

pub use account::Account;
pub use binary::BinaryError;
pub use builder::{Attaching, Scope, TracerBuilder};
pub use capabilities::Capabilities;
pub use command::TracedCommand;
pub use count::{Counter, Counts};
pub use error::TraceError;
pub use event::{Addresses, TraceEvent, Value};
pub use expand::LeftOut;
pub use info::{FilePlace, Info, InfoField, Member, Parameter, Signature};
pub use latency::{Latencies, Latency, Stopwatch};
pub use ledger::Ledger;
pub use list::{Listed, Listing, list};
pub use missed::Missed;
pub use origin::Origin;
pub use probe::Probe;
pub use sampled::SampledWays;
pub use shape::{Enumeration, Field, Shape};
pub use spec::{
    At, Comparison, FieldBase, FieldPath, FieldSpec, FieldType, Literal, Operator, PathStep,
    Predicate, ProbeSpec, Provider, SpecError,
};
pub use stacks::StackCounts;
pub use symbolize::{Frame, Symbols, Whose};
pub use tracer::Tracer;
pub use ways::{Step, StepKind, Way, WayCounts};
