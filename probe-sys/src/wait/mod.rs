//! Waiting: for descriptors, for a time, and for eBPF programs to end.

pub mod clock;
pub mod epoll;
pub mod eventfd;
pub mod membarrier;
#[cfg(feature = "tokio")]
pub mod runtime;
pub mod timer;
