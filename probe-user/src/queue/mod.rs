//! One CPU's queue: its rings, and how they are drained.

pub(crate) mod backward;
pub(crate) mod batch;
pub(crate) mod consumer;
pub(crate) mod contents;
pub(crate) mod counts;
pub(crate) mod cursor;
pub(crate) mod drain;
pub(crate) mod event_ring;
pub(crate) mod evqueue;
pub(crate) mod notices;
