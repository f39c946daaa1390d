//! How large rings are if nobody says.

use probe_user::cpus;
use probe_user::trace::Capabilities;

/// For each CPU, and for all of them.
const LEAST: usize = 1 << 20;
const MOST: usize = 8 << 20;
const ALL: usize = 64 << 20;

/// Bytes of ring for each CPU: as much as holds what is emitted at full speed while the tracer waits for its
/// turn, on machines of not too many CPUs. Less for those whose locked memory is limited.
pub(crate) fn bytes() -> usize {
    let cpus = cpus::online().map_or(1, |cpus| cpus.len());
    let may_lock = Capabilities::effective().is_ok_and(|own| own.contains(Capabilities::IPC_LOCK));
    if may_lock { of_cpus(cpus) } else { LEAST }
}

fn of_cpus(cpus: usize) -> usize {
    let share = (ALL / cpus.max(1)).clamp(LEAST, MOST);
    // A power of two, not more than that.
    1 << share.ilog2()
}

#[cfg(test)]
mod tests {
    use super::of_cpus;

    #[test]
    fn rings_share_so_much_memory() {
        let sizes = [1, 2, 8, 9, 16, 48, 64, 1000].map(|cpus| of_cpus(cpus) >> 20);
        assert_eq!(sizes, [8, 8, 8, 4, 4, 1, 1, 1]);
    }
}
