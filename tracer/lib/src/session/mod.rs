//! Sessions, from the builder to the ledger: a trace, a count of hits, or a timing of calls.

pub(crate) mod attached;
pub(crate) mod builder;
pub(crate) mod command;
pub(crate) mod count;
mod counters;
mod delivery;
pub(crate) mod interrupt;
pub(crate) mod latency;
pub(crate) mod ledger;
mod log_reader;
pub(crate) mod missed;
pub(crate) mod planner;
pub mod privileges;
mod selection;
pub(crate) mod tracer;

mod waits;
