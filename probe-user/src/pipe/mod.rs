//! All CPUs: opening a pipe, waiting for records, and following CPUs that go online and offline.

pub(crate) mod adaptive;
mod claims;
pub(crate) mod closing;
mod coverage;
pub(crate) mod driving;
mod due;
pub(crate) mod evpipe;
mod opening;
pub(crate) mod options;
mod part;
pub(crate) mod parts;
mod pinning;
pub(crate) mod queues;
mod rate;
pub(crate) mod room;
pub(crate) mod stop;
mod ticker;
pub(crate) mod trigger;
mod waiting;
