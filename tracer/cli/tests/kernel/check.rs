//! `probe check`: compares its report with what actually works.

use crate::probe::unprivileged::{
    BPF, DAC_READ_SEARCH, MEMLOCK, PERFMON, Paranoid, with_capabilities,
};
use crate::probe::{EXEC, binary, probe, stderr, stdout};
use probe_testing::version::kernel;
use serde_json::Value;
use std::process::Command;

/// A probe for each feature that a trace may need.
const PROBES: [(&str, &str); 5] = [
    ("kprobes", "kernel_restart"),
    ("fentry", "fentry:kernel_restart"),
    ("tracepoints", EXEC),
    ("raw_tracepoints", "rawtp:sched_process_exec"),
    ("uprobes", "uprobe:libc:malloc"),
];

/// The report of a `probe check --json` command, and whether it exits with 0.
fn report(mut check: Command) -> (Value, bool) {
    let output = check.output().unwrap();
    let value: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let (verdict, code) = (value["can_trace_kprobes"].as_bool().unwrap(), output.status.code());
    assert_eq!(code, Some(if verdict { 0 } else { 1 }), "{value:#}");
    assert_eq!(stderr(&output), "");
    (value["features"].clone(), verdict)
}

fn is_available(features: &Value, name: &str) -> bool {
    features[name]["available"].as_bool().unwrap_or_else(|| panic!("{name}: {features:#}"))
}

/// What the report suggests to make an unavailable feature available.
fn change<'f>(features: &'f Value, name: &str) -> &'f str {
    assert!(!is_available(features, name), "{name}: {features:#}");
    features[name]["change"].as_str().unwrap()
}

fn succeeds(mut command: Command) -> bool {
    command.output().unwrap().status.success()
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn the_report_for_root_is_true() {
    let (features, verdict) = report(probe(["check", "--json"]));
    let trace = |spec| succeeds(probe(["trace", spec, "-d", "1ms"]));
    for (name, spec) in PROBES {
        assert_eq!(is_available(&features, name), trace(spec), "{name}");
    }
    assert_eq!(verdict, trace("kernel_restart"));
    let kernel_is = |version| kernel() >= version;
    for (name, is_true) in [
        ("attach_cookies", kernel_is((5, 15))),
        ("adaptive_wakeup", kernel_is((5, 10))),
        ("btf", std::path::Path::new("/sys/kernel/btf/vmlinux").exists()),
        ("tracefs", true),
        ("perf_events", true),
        ("locked_memory", true),
        ("programs", true),
        ("capabilities", true),
        ("cpu_hotplug", true),
    ] {
        assert_eq!(is_available(&features, name), is_true, "{name}: {}", features[name]);
    }
    // Kernels are built without Landlock, and started without it.
    assert!(
        is_available(&features, "confinement")
            || change(&features, "confinement").contains("landlock")
    );
    // Older stable kernels may have it as a backport.
    assert!(is_available(&features, "exact_loss") || !kernel_is((6, 0)));
    if is_available(&features, "kprobe_multi") {
        assert!(kernel_is((5, 18)));
    } else {
        assert!(change(&features, "kprobe_multi").contains("CONFIG_FPROBE"));
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn hidden_addresses_are_reported() {
    // As with kernel.kptr_restrict=2, but only for these processes.
    let script = "sed 's/^[0-9a-f]*/0000000000000000/' /proc/kallsyms >$0; \
                  mount --bind $0 /proc/kallsyms && exec \"$@\"";
    let hidden = tempfile::NamedTempFile::new().unwrap();
    let run = |args: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["-m", "sh", "-c", script]).arg(hidden.path()).arg(binary()).args(args);
        command
    };
    let (features, _) = report(run(&["check", "--json"]));
    assert!(change(&features, "kernel_symbols").contains("kernel.kptr_restrict"), "{features:#}");
    let output = run(&["trace", "-K", "rawtp:sys_enter", "-M", "3"]).output().unwrap();
    let printed = stderr(&output);
    assert_eq!(printed.matches("because kernel.kptr_restrict").count(), 1, "{printed}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn the_table_agrees_with_the_json() {
    let (features, verdict) = report(probe(["check", "--json"]));
    let output = probe(["check"]).output().unwrap();
    let table = stdout(&output);
    assert_eq!(output.status.success(), verdict);
    for (name, found) in features.as_object().unwrap() {
        let available = if found["available"] == true { "yes" } else { "no" };
        let line = table.lines().find(|line| line.starts_with(&format!("{name} ")));
        let words: Vec<_> = line.unwrap().split_whitespace().take(2).collect();
        assert_eq!(words, [name.as_str(), available]);
    }
    let expected = if verdict { ": functions can be traced\n" } else { "CONFIG_KPROBES" };
    assert!(table.contains(expected), "{table}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn missing_capabilities_are_named() {
    let check = |held: &[u32]| {
        let (features, verdict) = report(with_capabilities(held, MEMLOCK, &["check", "--json"]));
        assert!(!verdict);
        features
    };
    let none = check(&[]);
    for name in ["capabilities", "programs", "raw_tracepoints", "adaptive_wakeup"] {
        let change = change(&none, name);
        assert!(change.contains("CAP_BPF") && change.contains("CAP_PERFMON"), "{name}: {change}");
    }
    let one = check(&[BPF]);
    assert!(change(&one, "capabilities").starts_with("CAP_PERFMON: "), "{one:#}");
    assert!(change(&one, "perf_events").contains("CAP_PERFMON"));
    let other = check(&[PERFMON]);
    assert!(change(&other, "programs").starts_with("CAP_BPF: "), "{other:#}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn the_report_for_nobody_with_capabilities_is_true() {
    let _sysctl = Paranoid::at_most_2();
    for held in [&[PERFMON, BPF][..], &[PERFMON, BPF, DAC_READ_SEARCH]] {
        let (features, _) = report(with_capabilities(held, MEMLOCK, &["check", "--json"]));
        for (name, spec) in PROBES {
            let trace = with_capabilities(held, MEMLOCK, &["trace", spec, "-B4K", "-d1ms"]);
            assert_eq!(is_available(&features, name), succeeds(trace), "{held:?}: {name}");
        }
        for name in ["tracefs", "tracepoints"] {
            if held.contains(&DAC_READ_SEARCH) {
                assert!(is_available(&features, name));
            } else {
                assert!(change(&features, name).contains("CAP_DAC_READ_SEARCH"));
            }
        }
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_paranoid_sysctl_is_reported() {
    let _sysctl = Paranoid::set(3);
    let check = |held: &[u32]| report(with_capabilities(held, MEMLOCK, &["check", "--json"])).0;
    let two = check(&[PERFMON, BPF]);
    let args = ["trace", "rawtp:sched_process_exec", "-B4K", "-d1ms"];
    let traces = succeeds(with_capabilities(&[PERFMON, BPF], MEMLOCK, &args));
    assert_eq!(is_available(&two, "perf_events"), traces);
    if !traces {
        let change = change(&two, "perf_events");
        assert!(
            change.contains("CAP_SYS_ADMIN") && change.contains("kernel.perf_event_paranoid=2")
        );
    }
    assert!(is_available(&report(probe(["check", "--json"])).0, "perf_events"));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn too_little_locked_memory_names_the_limits() {
    let _sysctl = Paranoid::at_most_2();
    let inner = with_capabilities(&[PERFMON, BPF], 4096, &["check", "--json"]);
    let mut limited = Command::new("prlimit");
    limited.arg("--memlock=4096").arg(inner.get_program()).args(inner.get_args());
    let (features, verdict) = report(limited);
    assert!(!verdict);
    // Before 5.11, maps also count as locked memory, and no program loads.
    let name = if is_available(&features, "programs") { "locked_memory" } else { "programs" };
    let change = change(&features, name);
    assert!(change.contains("RLIMIT_MEMLOCK (ulimit -l)"), "{change}");
}
