//! The gate that makes all probes of a trace start together and end together, however long it takes to attach and
//! detach them.

use aya_ebpf::Global;

/// Whether hits count. User space writes it while programs run, so it is in a map of its own, which is not read-only.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".data.gate")]
static GATE: Global<u32> = Global::new(0);

/// Whether all probes are attached, and none is about to be detached.
#[inline(always)]
pub(crate) fn is_open() -> bool {
    GATE.load() != 0
}
