//! Where events wait until they are read.

use super::value;
use crate::cli::ring;
use probe_user::Options;

/// Where events wait until they are read.
#[derive(Debug, clap::Args)]
pub(crate) struct Ring {
    /// Ring buffer for each CPU: a power of two, like 64K or 1M. The default is 8M, less on machines with
    /// more than 8 CPUs, and 1M without CAP_IPC_LOCK
    #[arg(short = 'B', long, value_name = "BYTES", value_parser = value::bytes)]
    buffer_size: Option<usize>,
}

impl Ring {
    pub(crate) fn options(&self) -> Options {
        Options::new().bytes_per_cpu(self.buffer_size.unwrap_or_else(ring::bytes))
    }
}
