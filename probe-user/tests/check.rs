//! `probe check`: what it says is compared with what happens.

mod probe;

use probe::unprivileged::{BPF, DAC_READ_SEARCH, MEMLOCK, NotParanoid, PERFMON, with_capabilities};
use probe::version::kernel;
use probe::{probe, stderr, stdout};
use serde_json::Value;
use std::process::Command;

const TRACEPOINT: &str = "tracepoint:sched:sched_process_exec";

/// What a command says that is `probe check --json`, and whether it exits with 0.
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

/// What has to change for a feature that is not available.
fn change<'f>(features: &'f Value, name: &str) -> &'f str {
    assert!(!is_available(features, name), "{name}: {features:#}");
    features[name]["change"].as_str().unwrap()
}

fn succeeds(mut command: Command) -> bool {
    command.output().unwrap().status.success()
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn what_root_is_told_is_true() {
    let (features, verdict) = report(probe(["check", "--json"]));
    let trace = |spec| succeeds(probe(["trace", spec, "-d", "1ms"]));
    for (name, spec) in [
        ("kprobes", "kernel_restart"),
        ("tracepoints", TRACEPOINT),
        ("raw_tracepoints", "rawtp:sched_process_exec"),
        ("uprobes", "uprobe:libc:malloc"),
    ] {
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
    // Stable kernels before that have it, too.
    assert!(is_available(&features, "exact_loss") || !kernel_is((6, 0)));
    if is_available(&features, "kprobe_multi") {
        assert!(kernel_is((5, 18)));
    } else {
        assert!(change(&features, "kprobe_multi").contains("CONFIG_FPROBE"));
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn the_table_says_what_the_json_says() {
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
    let told = if verdict { ": functions can be traced\n" } else { "CONFIG_KPROBES" };
    assert!(table.contains(told), "{table}");
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
    let told = change(&one, "capabilities");
    assert!(told.starts_with("CAP_PERFMON: "), "{told}");
    assert!(change(&one, "perf_events").contains("CAP_PERFMON"));
    let other = check(&[PERFMON]);
    assert!(change(&other, "programs").starts_with("CAP_BPF: "), "{other:#}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn nobody_with_capabilities_is_told_what_works() {
    let _sysctl = NotParanoid::ensure();
    for held in [&[PERFMON, BPF][..], &[PERFMON, BPF, DAC_READ_SEARCH]] {
        let (features, _) = report(with_capabilities(held, MEMLOCK, &["check", "--json"]));
        for (name, spec) in [
            ("kprobes", "kernel_restart"),
            ("tracepoints", TRACEPOINT),
            ("raw_tracepoints", "rawtp:sched_process_exec"),
            ("uprobes", "uprobe:libc:malloc"),
        ] {
            let trace = with_capabilities(held, MEMLOCK, &["trace", spec, "-B4K", "-d1ms"]);
            assert_eq!(is_available(&features, name), succeeds(trace), "{held:?}: {name}");
        }
        if held.contains(&DAC_READ_SEARCH) {
            assert!(is_available(&features, "tracepoints"));
        } else {
            assert!(change(&features, "tracefs").contains("CAP_DAC_READ_SEARCH"));
            assert!(change(&features, "tracepoints").contains("CAP_DAC_READ_SEARCH"));
        }
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_kernel_that_is_too_paranoid_is_told_of() {
    let _sysctl = NotParanoid::not_at_all();
    let check = |held: &[u32]| report(with_capabilities(held, MEMLOCK, &["check", "--json"])).0;
    let two = check(&[PERFMON, BPF]);
    let args = ["trace", "rawtp:sched_process_exec", "-B4K", "-d1ms"];
    let traces = succeeds(with_capabilities(&[PERFMON, BPF], MEMLOCK, &args));
    assert_eq!(is_available(&two, "perf_events"), traces);
    if !traces {
        let told = change(&two, "perf_events");
        assert!(told.contains("CAP_SYS_ADMIN") && told.contains("kernel.perf_event_paranoid=2"));
    }
    assert!(report(probe(["check", "--json"])).0["perf_events"]["available"] == true);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn too_little_locked_memory_names_the_limits() {
    let _sysctl = NotParanoid::ensure();
    let inner = with_capabilities(&[PERFMON, BPF], 4096, &["check", "--json"]);
    let mut limited = Command::new("prlimit");
    limited.arg("--memlock=4096").arg(inner.get_program()).args(inner.get_args());
    let (features, verdict) = report(limited);
    assert!(!verdict);
    // Before 5.11 maps are locked memory, too, and nothing loads.
    let told = match is_available(&features, "programs") {
        true => change(&features, "locked_memory"),
        false => change(&features, "programs"),
    };
    assert!(told.contains("RLIMIT_MEMLOCK (ulimit -l)"), "{told}");
}
