//! What a user may mean by the name of a function that cannot be probed.

use crate::binary::{Binary, is_program};
use crate::kernel::features;
use crate::spec::{Instead, ProbeSpec, Provider};
use crate::tracefs::Tracefs;
use probe_perf::pattern::Glob;

/// The most probes to name.
const MOST: usize = 3;

/// Looks for the name of a spec among system calls, tracepoints, the C library's functions and programs.
pub(super) fn instead(spec: &ProbeSpec) -> Instead {
    if spec.is_glob() || spec.module().is_some() {
        return Instead::default();
    }
    let name = spec.name();
    let mut probes = tracepoints(name);
    let in_libc = || Binary::open("libc", None).is_ok_and(|libc| libc.offset_of(name, 0).is_ok());
    if probes.is_empty() && in_libc() {
        probes.push(format!("{}:libc:{name}", Provider::Uprobe.name()));
    }
    probes.truncate(MOST);
    Instead { probes, program: is_program(name).then(|| name.to_owned()) }
}

/// The system call and the tracepoints of this name.
fn tracepoints(name: &str) -> Vec<String> {
    let Ok(tracefs) = Tracefs::open() else { return Vec::new() };
    let named =
        |pattern: &str| Glob::new(pattern).map(|glob| tracefs.matching(&glob)).unwrap_or_default();
    let call = ["__x64_sys_", "__se_sys_", "__do_sys_", "do_sys_", "sys_", "SyS_"]
        .iter()
        .find_map(|prefix| name.strip_prefix(prefix))
        .unwrap_or(name);
    let entry = named(&format!("syscalls:sys_enter_{call}"));
    let mut probes = Vec::new();
    if !entry.is_empty() && features::kprobe_pmu().is_some() {
        probes.push(format!("{}:{call}", Provider::Ksyscall.name()));
    }
    let all = entry.into_iter().chain(named(&format!("*:{name}")));
    probes.extend(all.map(|one| format!("{}:{one}", Provider::Tracepoint.name())));
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
        assert_eq!(of("ma*c"), Instead::default());
    }
}
