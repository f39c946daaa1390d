//! Features of the kernel that decide how probes are attached.

use probe_perf::kind_of;
use probe_sys::bpf;
use probe_sys::bpf::load::Purpose;
use std::io;
use std::os::fd::AsFd;
use std::sync::LazyLock;

/// The type of the kprobe PMU, if this kernel has kprobes.
pub(crate) fn kprobe_pmu() -> Option<u32> {
    kind_of("kprobe").ok()
}

/// The type of the uprobe PMU, if this kernel has uprobes.
pub(crate) fn uprobe_pmu() -> Option<u32> {
    kind_of("uprobe").ok()
}

/// Whether programs can be attached with a cookie (5.15+).
pub(crate) fn has_cookies() -> bool {
    aya::features().bpf_cookie()
}

/// Whether one program can be attached to many functions at once (5.18+, with CONFIG_FPROBE).
pub(crate) fn has_kprobe_multi() -> bool {
    static HAS: LazyLock<bool> = LazyLock::new(bpf::multi::has_kprobe_multi);
    *HAS
}

/// Whether the kernel prevents trampoline programs from recursing (5.12+). Since then, it counts the prevented runs.
pub(crate) fn guards_trampolines() -> bool {
    static GUARDS: LazyLock<bool> = LazyLock::new(|| {
        let program = bpf::load::load_empty(Purpose::Function);
        program.is_ok_and(|program| matches!(bpf::recursion_misses(program.as_fd()), Ok(Some(_))))
    });
    *GUARDS
}

/// Whether a call failed for lack of privilege.
pub(crate) fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}
