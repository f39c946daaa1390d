//! CPUs: lists of their ids, which of them are online, and what one thread asks of the CPU that it runs on.

pub mod affinity;
pub mod cpus;
pub mod hardware;
pub mod hotplug;
pub mod prefetch;
