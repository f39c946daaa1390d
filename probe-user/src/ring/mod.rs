//! One perf ring, read: the mapped pages, the arithmetic of positions in them, and the perf records
//! between those positions.

pub(crate) mod cursor;
pub(crate) mod page;
pub(crate) mod perf_record;
