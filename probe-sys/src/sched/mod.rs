//! How the scheduler treats the calling thread.

pub mod realtime;
pub mod slice;
