//! Which probe a program belongs to, where there is no cookie: then each probe has a program of its own.

use aya_ebpf::Global;

/// The number of the probe. User space loads the program once for each probe, with a map of one number in place
/// of this section, which therefore must hold nothing else.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".rodata.probe")]
static PROBE: Global<u32> = Global::new(u32::MAX);

/// The number of the probe that this program was loaded for.
#[inline(always)]
pub(crate) fn of_program() -> u32 {
    PROBE.load()
}
