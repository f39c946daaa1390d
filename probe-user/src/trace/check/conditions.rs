//! What decides over tracing besides the kernel's version: privileges, settings, limits.

use super::{Feature, Finding};
use crate::hotplug::CpuWatch;
use crate::trace::btf::Btf;
use crate::trace::capabilities::Capabilities;
use rustix::process::{Resource, getrlimit};
use std::fs;
use std::path::Path;

/// The capabilities that make a difference.
pub(super) fn capabilities(held: Capabilities) -> Finding {
    let matter = Capabilities::BPF
        | Capabilities::PERFMON
        | Capabilities::SYS_ADMIN
        | Capabilities::IPC_LOCK
        | Capabilities::DAC_READ_SEARCH;
    let uses = held.of(matter).to_string();
    match held.missing_to_trace() {
        Capabilities::NONE => Finding::yes(Feature::Capabilities, uses),
        missing => Finding::no(Feature::Capabilities, uses, lacking(missing)),
    }
}

/// How to get capabilities.
pub(super) fn lacking(missing: Capabilities) -> String {
    format!("{missing}: run as root, or setcap cap_bpf,cap_perfmon+ep on the binary")
}

/// What the kernel's own lockdown and its security modules forbid.
pub(super) fn lockdown() -> Finding {
    let security = |file: &str| fs::read_to_string(Path::new("/sys/kernel/security").join(file));
    let bpf_lsm = match security("lsm") {
        Ok(list) if list.trim().split(',').any(|name| name == "bpf") => {
            "; the bpf LSM is on, whose policies can refuse programs"
        }
        _ => "",
    };
    // "none [integrity] confidentiality"
    let lockdown = security("lockdown").unwrap_or_default();
    let level = lockdown.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    match level.map(|(level, _)| level) {
        Some("confidentiality") => Finding::no(
            Feature::Lockdown,
            format!("confidentiality: nothing may read the kernel's memory{bpf_lsm}"),
            "boot with lockdown=integrity, or without Secure Boot's lockdown",
        ),
        Some(level) => Finding::yes(Feature::Lockdown, format!("{level}{bpf_lsm}")),
        None => Finding::yes(Feature::Lockdown, format!("none is known of{bpf_lsm}")),
    }
}

/// What stands between this process and perf events.
pub(super) fn paranoia(held: Capabilities) -> String {
    let level: i32 = sysctl("kernel/perf_event_paranoid").unwrap_or(2);
    match held.contains(Capabilities::PERFMON) && level > 2 {
        // Upstream's levels end at 2.
        true => format!(
            "CAP_SYS_ADMIN, or sysctl kernel.perf_event_paranoid=2: at {level}, which is a patch \
             of distributions, CAP_PERFMON is not enough"
        ),
        false => "CAP_PERFMON".to_owned(),
    }
}

/// The setting of perf events, in words.
pub(super) fn paranoid_level() -> String {
    match sysctl::<i32>("kernel/perf_event_paranoid") {
        Some(level) => format!("kernel.perf_event_paranoid is {level}"),
        None => "kernel.perf_event_paranoid is not there".to_owned(),
    }
}

/// What limits the memory of rings, in words.
pub(super) fn memory_limits(held: Capabilities) -> String {
    let lifted = held.contains(Capabilities::IPC_LOCK);
    let limit = match getrlimit(Resource::Memlock).current {
        Some(bytes) if lifted => format!("{} KiB, which CAP_IPC_LOCK lifts", bytes >> 10),
        Some(bytes) => format!("{} KiB", bytes >> 10),
        None => "unlimited".to_owned(),
    };
    let free: u64 = sysctl("kernel/perf_event_mlock_kb").unwrap_or_default();
    format!("kernel.perf_event_mlock_kb is {free} for each CPU, RLIMIT_MEMLOCK {limit}")
}

/// The kernel's types, as it gives them to everybody.
pub(super) fn btf() -> Finding {
    match Btf::kernel() {
        Ok(_) => Finding::yes(Feature::Btf, "names and types of arguments"),
        Err(error) => Finding::no(
            Feature::Btf,
            "arguments are shown as registers",
            format!("a kernel with CONFIG_DEBUG_INFO_BTF ({error})"),
        ),
    }
}

/// Whether the kernel's notices of CPUs reach this process.
pub(super) fn cpu_hotplug() -> Finding {
    match CpuWatch::new() {
        Ok(_) => Finding::yes(Feature::CpuHotplug, "uevents tell of CPUs that come and go"),
        Err(error) => Finding::no(
            Feature::CpuHotplug,
            format!("nothing tells of CPUs that come later ({error})"),
            "let the process have a NETLINK_KOBJECT_UEVENT socket (CONFIG_NET, seccomp)",
        ),
    }
}

fn sysctl<T: std::str::FromStr>(name: &str) -> Option<T> {
    let text = fs::read_to_string(Path::new("/proc/sys").join(name)).ok()?;
    text.trim().parse().ok()
}
