//! Features of the kernel that decide how probes are attached.

use crate::kernel::symbols;
use aya::maps::MapType;
use aya::sys::is_map_supported;
use probe_perf::kind_of;
use probe_sys::bpf;
use probe_sys::bpf::load::Purpose;
use probe_sys::perf_event::{PerfEvent, ProbePoint};
use std::fs;
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

/// Whether the kernel refuses to probe a function by a name that others share, in modules as well (6.7+, and later releases of
/// older kernels). Others probe the first one of the name, and releases in between do not find functions of modules. If it
/// cannot be found out, the answer is no.
pub(crate) fn refuses_shared_names() -> bool {
    static REFUSES: LazyLock<bool> = LazyLock::new(|| {
        let is_refused = |name| {
            let shared = ProbePoint::Function { name, offset: 0 };
            let refusal = kprobe_pmu().and_then(|pmu| PerfEvent::kprobe(pmu, shared, false).err());
            refusal.is_some_and(|error| error.raw_os_error() == Some(libc::EADDRNOTAVAIL))
        };
        // Nearly every module has the one function. Several files of the kernel have the other.
        let has_no_modules =
            || fs::read_to_string("/proc/modules").is_ok_and(|modules| modules.is_empty());
        is_refused(c"cleanup_module") || has_no_modules() && is_refused(c"s_next")
    });
    *REFUSES
}

/// Whether programs that kprobe.multi attaches to addresses get their cookies. Before 6.1, they get 0 if the kernel was
/// compiled with `CONFIG_X86_KERNEL_IBT`.
pub(crate) fn passes_cookies_of_addresses() -> bool {
    static PASSES: LazyLock<bool> = LazyLock::new(|| {
        // This type of map came with the same version as the fix.
        let is_fixed = is_map_supported(MapType::UserRingBuf).unwrap_or(false);
        let of_ibt = || symbols::extents("ibt_save", Some(symbols::NO_MODULE)).unwrap_or_default();
        is_fixed || of_ibt().is_empty()
    });
    *PASSES
}

/// Whether programs can be attached with a cookie (5.15+).
pub(crate) fn has_cookies() -> bool {
    aya::features().bpf_cookie()
}

/// Why kprobes can be attached but would not be hit, and how to change that. `None` if no reason is known.
pub(crate) fn kprobes_are_off() -> Option<&'static str> {
    is_off("/sys/kernel/debug/kprobes/enabled").then_some(
        "kprobes are switched off, so they would never be hit; `echo 1 >/sys/kernel/debug/kprobes/enabled` switches them on",
    )
}

/// The same for trampolines, and for kprobes at the beginning of functions. On 5.10, attaching a trampoline in this state
/// also ends function tracing until the kernel is restarted.
pub(crate) fn ftrace_is_off() -> Option<&'static str> {
    is_off("/proc/sys/kernel/ftrace_enabled").then_some(
        "function tracing is switched off, so the probe would never be hit; `sysctl kernel.ftrace_enabled=1` switches it on",
    )
}

fn is_off(file: &str) -> bool {
    fs::read_to_string(file).is_ok_and(|text| text.trim() == "0")
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
