//! Which probe a program is for, where no cookie tells: each probe has a program of its own, then.

use aya_ebpf::Global;

/// The number of the probe. User space loads the program anew for each, with a map of one number in place
/// of this section, which therefore holds nothing else.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".rodata.probe")]
static PROBE: Global<u32> = Global::new(u32::MAX);

/// The number of the probe that this program was loaded for.
#[inline(always)]
pub(crate) fn of_program() -> u32 {
    PROBE.load()
}
