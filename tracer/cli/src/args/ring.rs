//! The ring buffers of a trace.

use super::value;
use probe_sys::cpus;
use probe_tracer::Capabilities;
use probe_user::Options;

/// The limits in bytes: the most for each CPU; the total for all of them, where there are few; the least for each CPU; and
/// the total, where there are many.
const MOST: usize = 8 << 20;
const ALL_OF_FEW: usize = 64 << 20;
const LEAST: usize = 1 << 20;
const ALL: usize = 256 << 20;

/// The ring buffers of a trace.
#[derive(Debug, clap::Args)]
pub(crate) struct Ring {
    /// Size of the ring buffer of each CPU, like 64K or 1M, rounded up to a power of two. The default is 8M, less on
    /// machines with more than 8 CPUs, and at most 1M without CAP_IPC_LOCK
    #[arg(short = 'B', long, value_name = "BYTES", value_parser = value::bytes)]
    buffer_size: Option<usize>,
}

impl Ring {
    pub(crate) fn options(&self) -> Options {
        Options::new().bytes_per_cpu(self.buffer_size.unwrap_or_else(default_ring_bytes))
    }
}

/// The default ring size for each CPU, in bytes. On machines with few CPUs, it holds what is emitted at full
/// speed while the tracer waits for a time slice. It is smaller if locked memory is limited.
pub(crate) fn default_ring_bytes() -> usize {
    let cpus = cpus::online().map_or(1, |cpus| cpus.len());
    let may_lock = Capabilities::effective().is_ok_and(|own| own.contains(Capabilities::IPC_LOCK));
    of_cpus(cpus).min(if may_lock { MOST } else { LEAST })
}

fn of_cpus(cpus: usize) -> usize {
    let cpus = cpus.max(1);
    let share = (ALL_OF_FEW / cpus).clamp(LEAST, MOST).min(ALL / cpus);
    // Round down to a power of two.
    1 << share.ilog2()
}

#[cfg(test)]
mod tests {
    use super::of_cpus;

    #[test]
    fn all_rings_share_64_mib_or_256_on_large_machines() {
        let sizes = [1, 2, 8, 9, 16, 48, 64, 256, 257, 1000].map(|cpus| of_cpus(cpus) >> 10);
        assert_eq!(sizes, [8192, 8192, 8192, 4096, 4096, 1024, 1024, 1024, 512, 256]);
    }
}
