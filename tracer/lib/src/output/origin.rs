//! The origin of a trace.

use super::wall_clock::realtime_offset;
use serde::{Deserialize, Serialize};

/// Where a trace was made, and with which clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Origin {
    /// The tracing program and its version.
    pub program: String,
    /// The kernel release, as printed by `uname -r`.
    pub kernel: String,
    /// How far `CLOCK_REALTIME` was ahead of `CLOCK_MONOTONIC`, in nanoseconds.
    pub realtime_offset: i64,
}

impl Origin {
    /// The origin of a trace that this process makes now.
    pub fn here() -> Self {
        Self {
            program: concat!("probe ", env!("CARGO_PKG_VERSION")).to_owned(),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            realtime_offset: realtime_offset(),
        }
    }
}
