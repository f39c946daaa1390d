//! Features of the kernel that decide how probes are attached.

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

/// Whether the kernel refuses to probe a function by a name that others share (6.6+, and later releases of older kernels).
/// Others probe the first one of the name. If it cannot be found out, the answer is no.
pub(crate) fn refuses_shared_names() -> bool {
    static REFUSES: LazyLock<bool> = LazyLock::new(|| {
        // Several files of the kernel iterate in a static function of this name.
        let shared = ProbePoint::Function { name: c"s_next", offset: 0 };
        let refusal = kprobe_pmu().map(|pmu| PerfEvent::kprobe(pmu, shared, false).err());
        let errno = refusal.flatten().and_then(|error| error.raw_os_error());
        errno == Some(libc::EADDRNOTAVAIL)
    });
    *REFUSES
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
