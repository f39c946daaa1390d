//! Kernels in which an administrator has switched something off. For virtual machines only.

use crate::probe::{probe, stderr, stdout, trace};
use std::fs;

/// Something that is switched off until this is dropped.
struct Off(&'static str);

impl Off {
    fn switch(file: &'static str) -> Self {
        fs::write(file, "0").unwrap();
        Self(file)
    }
}

impl Drop for Off {
    fn drop(&mut self) {
        fs::write(self.0, "1").unwrap();
    }
}

#[test]
#[ignore = "needs a virtual machine: cargo xtask test"]
fn a_trace_says_that_nothing_is_hit() {
    const FTRACE: &str = "/proc/sys/kernel/ftrace_enabled";
    let all = ["vfs_read", "vfs_rea*", "kretprobe:vfs_read", "ksyscall:read"];
    for (file, specs, advice) in [
        ("/sys/kernel/debug/kprobes/enabled", &all[..], "kprobes are switched off"),
        (FTRACE, &all[..], "sysctl kernel.ftrace_enabled=1"),
        (FTRACE, &["fentry:vfs_read"], "sysctl kernel.ftrace_enabled=1"),
    ] {
        let _off = Off::switch(file);
        for spec in specs {
            let output = trace([spec], ["cat", "/etc/hostname"]);
            assert!(stderr(&output).contains(advice), "{spec}: {}", stderr(&output));
        }
        // It fails where functions cannot be traced.
        let checked = stdout(&probe(["check"]).output().unwrap());
        assert!(checked.contains(advice), "{checked}");
    }
    let output = trace(["vfs_read"], ["cat", "/etc/hostname"]);
    assert!(!stderr(&output).contains("switched off"), "{}", stderr(&output));
    assert!(!stderr(&output).contains(" 0 events"), "{}", stderr(&output));
}
