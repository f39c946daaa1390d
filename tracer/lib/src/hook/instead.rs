//! What a user may mean by the name of a function that cannot be probed.

use crate::binary::{Binary, is_program};
use crate::error::TraceError;
use crate::kernel::features;
use crate::spec::{Instead, ProbeSpec, Provider};
use crate::tracefs::{Tracefs, syscall};
use probe_perf::pattern::Glob;

/// The most probes to name.
const MOST: usize = 3;

/// Looks for the name of a spec among system calls, tracepoints, the C library's functions and programs.
pub(super) fn instead(spec: &ProbeSpec) -> Instead {
    let name = spec.name();
    if spec.address().is_some() || spec.is_glob() && spec.module().is_some() {
        return Instead::default();
    }
    if spec.is_glob() {
        return Instead { probes: patterns(name), program: None };
    }
    if let Some(module) = spec.module() {
        return Instead { probes: in_module(module, name), program: None };
    }
    let call = system_call(name);
    let mut probes = tracepoints(name, call);
    if (probes.is_empty() || call != name) && is_in_file("libc", call) {
        probes.push(in_file("libc", call));
    }
    probes.truncate(MOST);
    Instead { probes, program: is_program(name).then(|| name.to_owned()) }
}

/// The error for calls of something that is not called.
pub(crate) fn no_call(spec: &ProbeSpec) -> TraceError {
    TraceError::NoCall { spec: spec.clone(), instead: call_instead(spec) }
}

/// The calls that a user may mean who asked for those of something else.
fn call_instead(spec: &ProbeSpec) -> Instead {
    let entry = match spec.provider() {
        Provider::Kretprobe => Some(Provider::Kprobe),
        Provider::Uretprobe => Some(Provider::Uprobe),
        _ => None,
    };
    if let Some(provider) = entry {
        let file = spec.module().map_or_else(String::new, |file| format!("{file}:"));
        let probes = vec![format!("{}:{file}{}", provider.name(), spec.name())];
        return Instead { probes, program: None };
    }
    let name = match (spec.provider(), spec.name()) {
        (Provider::Tracepoint, "syscalls:*") => Some("syscalls:sys_enter_*".to_owned()),
        (Provider::Tracepoint, "raw_syscalls:*")
        | (Provider::RawTracepoint, "sys_enter" | "sys_exit") => {
            Some("raw_syscalls:sys_enter".to_owned())
        }
        _ => spec.tracepoint().and_then(|(category, name)| syscall::entry_of(category, name)),
    };
    Instead { probes: name.map(tracepoint).into_iter().collect(), program: None }
}

fn is_in_file(file: &str, function: &str) -> bool {
    Binary::open(file, &[]).is_ok_and(|file| file.offset_of(function, 0).is_ok())
}

fn in_file(file: &str, function: &str) -> String {
    format!("{}:{file}:{function}", Provider::Uprobe.name())
}

/// A function of a library, or tracepoints of this name in other categories, or with a similar name.
fn in_module(module: &str, name: &str) -> Vec<String> {
    if is_in_file(module, name) {
        return vec![in_file(module, name)];
    }
    let Ok(tracefs) = Tracefs::open() else { return Vec::new() };
    let mut named = matching(&tracefs, &format!("*:{name}"));
    named.truncate(MOST);
    if named.is_empty() { tracefs.near(&format!("{module}:{name}")) } else { named }
}

/// The tracepoints that match a pattern, or none if it is not valid.
fn matching(tracefs: &Tracefs, pattern: &str) -> Vec<String> {
    Glob::new(pattern).map(|glob| tracefs.matching(&glob)).unwrap_or_default()
}

/// The probe of a system call, where the kernel has such probes.
fn ksyscall(call: &str) -> Option<String> {
    features::kprobe_pmu().map(|_| format!("{}:{call}", Provider::Ksyscall.name()))
}

/// The system call that a function of the kernel is for.
fn system_call(function: &str) -> &str {
    [
        "__x64_sys_",
        "__ia32_compat_sys_",
        "__ia32_sys_",
        "__se_sys_",
        "__do_sys_",
        "do_sys_",
        "sys_",
        "SyS_",
    ]
    .iter()
    .find_map(|prefix| function.strip_prefix(prefix))
    .unwrap_or(function)
}

/// A pattern of tracepoints that matches as many system calls as one of functions, or else other tracepoints.
fn patterns(name: &str) -> Vec<String> {
    let Ok(tracefs) = Tracefs::open() else { return Vec::new() };
    let patterns = [format!("syscalls:sys_enter_{name}"), format!("*:{name}")];
    let found = patterns.into_iter().find(|pattern| !matching(&tracefs, pattern).is_empty());
    found.map(tracepoint).into_iter().collect()
}

/// How a tracepoint, or a pattern of some, is written.
fn tracepoint(name: String) -> String {
    format!("{}:{name}", Provider::Tracepoint.name())
}

/// The system call, its tracepoints, the other tracepoints of this name, or those of the category of this name.
fn tracepoints(name: &str, call: &str) -> Vec<String> {
    let Ok(tracefs) = Tracefs::open() else { return Vec::new() };
    let entry = matching(&tracefs, &format!("syscalls:sys_enter_{call}"));
    let mut probes = Vec::new();
    if !entry.is_empty() {
        probes.extend(ksyscall(call));
    }
    // Files are opened by several system calls, and most programs use openat.
    match call == "open" || name.starts_with("do_sys_open") {
        true if !entry.is_empty() => probes.push(tracepoint("syscalls:sys_enter_open*".to_owned())),
        _ => probes.extend(entry.into_iter().map(tracepoint)),
    }
    probes.extend(matching(&tracefs, &format!("*:{name}")).into_iter().map(tracepoint));
    let category = format!("{name}:*");
    if probes.is_empty() && !matching(&tracefs, &category).is_empty() {
        probes.push(tracepoint(category));
    }
    probes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_looked_up() {
        let of = |name: &str| instead(&name.parse().unwrap());
        assert_eq!(of("malloc").probes, ["uprobe:libc:malloc"]);
        assert_eq!(of("sh").program.as_deref(), Some("sh"));
        assert_eq!(of("no_such_thing"), Instead::default());
        assert_eq!(of("no_such_*"), Instead::default());
        if Tracefs::open().is_ok() {
            assert_eq!(of("openat*").probes, ["tracepoint:syscalls:sys_enter_openat*"]);
            assert_eq!(of("sched_swi*").probes, ["tracepoint:*:sched_swi*"]);
            assert_eq!(of("sched").probes, ["tracepoint:sched:*"]);
        }
        assert_eq!(of("c:malloc").probes, ["uprobe:c:malloc"]);
        assert_eq!(call_instead(&"tracepoint:a:b".parse().unwrap()), Instead::default());
        for (spec, meant) in [
            ("t:syscalls:sys_exit_read", "tracepoint:syscalls:sys_enter_read"),
            ("t:syscalls:sys_exit_*", "tracepoint:syscalls:sys_enter_*"),
            ("t:syscalls:*", "tracepoint:syscalls:sys_enter_*"),
            ("t:raw_syscalls:sys_exit", "tracepoint:raw_syscalls:sys_enter"),
            ("rawtp:sys_enter", "tracepoint:raw_syscalls:sys_enter"),
            ("kretprobe:vfs_read", "kprobe:vfs_read"),
            ("uretprobe:libc:read", "uprobe:libc:read"),
        ] {
            assert_eq!(call_instead(&spec.parse().unwrap()).probes, [meant], "{spec}");
        }
    }
}
