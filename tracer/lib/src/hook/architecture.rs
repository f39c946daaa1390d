//! What depends on the processor's architecture.

use super::of;
use crate::error::{Result, TraceError};
use crate::spec::ProbeSpec;
use std::env;

/// A processor architecture, by its name in Rust.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Architecture(pub(crate) &'static str);

impl Architecture {
    /// That of this machine.
    pub(crate) const HERE: Self = Self(env::consts::ARCH);

    /// Checks that the programs of this probe are right here. Those of functions read registers and the stack pointer,
    /// as on x86-64. A trampoline passes the arguments in memory, as tracepoints do.
    pub(crate) fn check(self, spec: &ProbeSpec) -> Result<()> {
        if of(spec.provider()).reads_registers() && self.0 != "x86_64" {
            return Err(TraceError::Architecture { spec: spec.clone(), architecture: self.0 });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_are_read_on_x86_64_only() {
        for (spec, is_right) in [
            ("vfs_read", false),
            ("kretprobe:vfs_read", false),
            ("uprobe:libc:malloc", false),
            ("uretprobe:libc:malloc", false),
            ("ksyscall:openat", false),
            ("fentry:vfs_read", true),
            ("fexit:vfs_read", true),
            ("tracepoint:sched:sched_switch", true),
            ("rawtp:sched_switch", true),
        ] {
            let spec: ProbeSpec = spec.parse().unwrap();
            assert!(Architecture("x86_64").check(&spec).is_ok(), "{spec}");
            let checked = Architecture("aarch64").check(&spec).map_err(|error| error.to_string());
            assert_eq!(checked.is_ok(), is_right, "{spec}: {checked:?}");
            let expected =
                "probe does not know which registers hold arguments and results on aarch64";
            assert!(checked.err().is_none_or(|message| message.contains(expected)), "{spec}");
        }
    }
}
