//! Where a trace is from.

use super::output::realtime_offset;
use serde::{Deserialize, Serialize};

/// Where a trace is from, and by what clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Origin {
    /// What traced, and its version.
    pub program: String,
    /// The kernel's release, as `uname -r` tells it.
    pub kernel: String,
    /// What `CLOCK_REALTIME` was ahead of `CLOCK_MONOTONIC`, in nanoseconds.
    pub realtime_offset: i64,
}

impl Origin {
    /// This machine, now.
    pub fn here() -> Self {
        Self {
            program: concat!("probe ", env!("CARGO_PKG_VERSION")).to_owned(),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            realtime_offset: realtime_offset(),
        }
    }
}
