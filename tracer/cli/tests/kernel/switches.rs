//! Kernels in which an administrator has switched something off. For virtual machines only.

use crate::probe::{assert_failure, events, probe, stdout};
use std::fs;

/// Something that is switched off until this is dropped.
struct Off(&'static str);

impl Off {
    /// `None` if the kernel does not switch it off, as 7.3 does not.
    fn switch(file: &'static str) -> Option<Self> {
        match fs::write(file, "0") {
            Ok(()) => Some(Self(file)),
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => None,
            Err(error) => panic!("{file}: {error}"),
        }
    }
}

impl Drop for Off {
    fn drop(&mut self) {
        fs::write(self.0, "1").unwrap();
    }
}

#[test]
#[ignore = "needs a virtual machine: cargo xtask test"]
fn functions_that_would_not_be_hit_are_refused() {
    const FTRACE: &str = "/proc/sys/kernel/ftrace_enabled";
    let all = ["vfs_read", "vfs_rea*", "kretprobe:vfs_read", "ksyscall:read"];
    for (file, specs, advice) in [
        ("/sys/kernel/debug/kprobes/enabled", &all[..], "kprobes are switched off"),
        (FTRACE, &all[..], "sysctl kernel.ftrace_enabled=1"),
        (FTRACE, &["fentry:vfs_read"], "sysctl kernel.ftrace_enabled=1"),
    ] {
        let Some(_off) = Off::switch(file) else { continue };
        for spec in specs {
            assert_failure(&mut probe(["trace", spec, "--", "true"]), advice);
        }
        // It fails where functions cannot be traced.
        if file == FTRACE {
            // Inside the function, wherever an instruction begins.
            let is_hit = |offset: u32| {
                let spec = format!("vfs_read+{offset:#x}");
                let output = probe(["trace", &spec, "--", "cat", "/etc/hostname"]).output();
                stdout(&output.unwrap()).contains("vfs_read+")
            };
            assert!((0x10..0x20).any(is_hit));
        }
        let checked = stdout(&probe(["check"]).output().unwrap());
        assert!(checked.contains(advice), "{checked}");
    }
    assert!(!events(["vfs_read"], ["cat", "/etc/hostname"]).is_empty());
    assert!(!events(["fentry:vfs_read"], ["cat", "/etc/hostname"]).is_empty());
}
