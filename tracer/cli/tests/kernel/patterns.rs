//! Probes on many functions at once, by pattern.

use crate::bystanders::TracefsProbe;
use crate::probe::commands::{Readable, shell};
use crate::probe::{
    self, all_json_lines, assert_failure, binary, events, json_lines, probe, stderr, stdout,
    succeed, trace,
};
use probe_testing::skip::skip;
use probe_testing::version;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

const TRACEFS: &str = "/sys/kernel/tracing";

/// Whether this kernel can attach one probe to many functions (kprobe_multi).
fn has_kprobe_multi() -> bool {
    let report = stdout(&probe(["check", "--json"]).output().unwrap());
    let report: Value = serde_json::from_str(&report).unwrap();
    report["features"]["kprobe_multi"]["available"] == true
}

/// A shell script that creates and removes directories and files. It avoids overlays, which create
/// each directory twice.
fn make_and_remove(folders: u32, files: u32) -> String {
    format!(
        "cd /run; seq -f d$$.%g {folders} | xargs mkdir; seq -f d$$.%g {folders} | xargs rmdir; \
         seq -f f$$.%g {files} | xargs touch; seq -f f$$.%g {files} | xargs rm"
    )
}

/// The counts that `probe count` prints for a script, by function; and standard error.
fn counts(args: &[&str], script: &str) -> (BTreeMap<String, u64>, String) {
    let (counts, printed) = probe::counts(args, shell(script));
    (counts.into_values().flatten().collect(), printed)
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn a_pattern_stands_for_each_matching_function() {
    let args = ["vfs_re*(count)", "kr:vfs_re*", "-x", "*link*"];
    let output = trace(args, Readable::new(5000).reads(100));
    // Functions without that argument are reported.
    assert!(stderr(&output).contains("left out: "), "{}", stderr(&output));
    let events = json_lines(&output);
    let of = |kind: &str, arg: &str| {
        let is_it = |event: &&Value| {
            event["type"] == kind && event["probe"] == "vfs_read" && event["args"][arg] == 100
        };
        events.iter().filter(is_it).count()
    };
    // The last read hits the end of the file.
    assert_eq!((of("kprobe", "count"), of("kretprobe", "retval")), (51, 50), "{events:#?}");
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn excluded_functions_are_not_probed() {
    let (all, _) = counts(&["vfs_[rm]*"], &make_and_remove(2, 1));
    assert_eq!(all["vfs_mkdir"], 2, "{all:?}");
    let (some, _) = counts(&["vfs_[rm]*", "-x", "*mk*"], &make_and_remove(2, 1));
    let others: Vec<_> = all.keys().filter(|name| !name.contains("mk")).collect();
    assert!(!others.is_empty() && some.keys().eq(others), "{some:?} of {all:?}");
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn counts_agree_with_the_kernels_own() {
    let tracefs = Path::new(TRACEFS);
    let names = ["vfs_mkdir", "vfs_rmdir", "vfs_unlink"];
    let probes = names.map(|name| TracefsProbe::new("kprobe_events", name, name));
    let switch = |on: &str| {
        let enable =
            |probe: &TracefsProbe| tracefs.join("events").join(probe.name()).join("enable");
        probes.iter().for_each(|probe| fs::write(enable(probe), on).unwrap());
    };
    switch("1");
    // A program for each takes emulated machines long to load.
    let pattern = if has_kprobe_multi() { "vfs_*" } else { "vfs_[mru]*" };
    let (counts, errors) = counts(&[pattern, "-a"], &make_and_remove(60, 40));
    switch("0");
    let profile = fs::read_to_string(tracefs.join("kprobe_profile")).unwrap();

    let own = |name: &str| {
        let at = names.iter().position(|one| *one == name).unwrap();
        let (_, event) = probes[at].name().split_once('/').unwrap();
        let mut lines = profile.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let line = lines.find(|line| line[0] == event).unwrap();
        assert_eq!(line[2], "0", "{name} was missed: {profile}");
        line[1].parse::<u64>().unwrap()
    };
    // The compiler may inline the others, wholly or in part.
    assert!(own("vfs_mkdir") >= 60, "{profile}");
    for name in names {
        assert_eq!(counts.get(name).copied().unwrap_or(0), own(name), "{name}: {errors}{profile}");
    }
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn only_hits_that_satisfy_the_condition_are_counted() {
    let script = &make_and_remove(10, 1);
    for (args, expected) in [
        (vec!["vfs_mkdir/comm == \"mkdir\"/"], Some(10)),
        (vec!["vfs_mkdir/comm == \"rmdir\"/"], None),
        (vec!["vfs_mkdir", "-n", "mkdir"], Some(10)),
        (vec!["vfs_mkdir", "-u", "4242"], None),
        (vec!["vmlinux:vfs_mk[d]ir"], Some(10)),
    ] {
        let (counts, errors) = counts(&args, script);
        assert_eq!(counts.get("vfs_mkdir").copied(), expected, "{args:?}: {errors}");
    }
    assert_failure(&mut probe(["count", "no_module:vfs_mkdir"]), "no module no_module is loaded");
    let expected = "nothing in the kernel matches this pattern";
    assert_failure(&mut probe(["count", "no_such_*"]), expected);
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn a_name_that_the_kernel_does_not_know_does_not_keep_others_from_being_attached_at_once() {
    if !has_kprobe_multi() {
        return skip("this kernel attaches functions one by one");
    }
    let traceable = format!("{TRACEFS}/available_filter_functions");
    let known = fs::read_to_string(&traceable).unwrap();
    assert!(known.lines().filter(|line| line.starts_with('p')).count() > 1000);
    let with_unknown = tempfile::NamedTempFile::new_in(".").unwrap();
    fs::write(&with_unknown, known + "p_vanished [module]\n").unwrap();
    let mount = format!(
        "mount --bind '{}' {traceable} && exec \"$0\" \"$@\"",
        with_unknown.path().display()
    );
    let output =
        succeed(Command::new("unshare").args(["-m", "sh", "-c", &mount]).arg(binary()).args([
            "count",
            "p*",
            "--",
            "cat",
            "/etc/hostname",
        ]));
    let (errors, counted) = (stderr(&output), stdout(&output));
    assert!(errors.contains(" could not be probed"), "{errors}");
    assert!(counted.contains(" path_openat"), "{counted}");
    // In virtual machines, this module serves the file.
    if Path::new("/sys/module/9pnet").exists() {
        assert!(counted.contains(" p9_client_"), "{counted}");
    }
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn returns_that_the_kernel_does_not_report_are_counted() {
    const CALLS: u64 = 60;
    let script = format!("for n in $(seq {CALLS}); do sleep 5 & done; wait");
    let args = ["trace", "-F", "jsonl", "kretprobe:hrtimer_nanoslee?", "--"];
    let output = succeed(probe(args).args(shell(&script)));
    let lines = all_json_lines(&output);
    let ledger = &lines[lines.len() - 1];
    let seen = lines.iter().filter(|line| line["type"] == "kretprobe").count() as u64;
    if version::kernel() < (6, 7) {
        assert!(ledger["skipped"].is_null(), "{seen}: {ledger}");
        return;
    }
    // Calls of other programs are skipped, too.
    let skipped = ledger["skipped"].as_u64().unwrap_or(0) + by_kernel(ledger);
    assert!(seen + skipped >= CALLS, "{seen}: {ledger}");
    let verdict = if skipped > 0 { "except_skipped" } else { "complete" };
    assert_eq!(ledger["verdict"], verdict, "{seen}: {ledger}");
}

/// What the ledger of a trace of one probe says of the hits that the kernel did not pass on.
fn by_kernel(ledger: &Value) -> u64 {
    ledger["missed"][0]["by_kernel"].as_u64().unwrap_or(0)
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn tracepoints_have_patterns_too() {
    let args = ["t:sched:sched_process_*", "-x", "*wait*"];
    let events = events(args, shell("cat /dev/null; cat /dev/null"));
    let of =
        |probe: &str| events.iter().filter(|event| event["probe"] == probe).collect::<Vec<_>>();
    assert_eq!(of("sched:sched_process_exec").len(), 3, "{events:#?}");
    assert_eq!(of("sched:sched_process_fork").len(), 2);
    assert!(of("sched:sched_process_wait").is_empty());
    assert!(of("sched:sched_process_exec").iter().all(|exec| exec["args"]["filename"].is_string()));
    assert!(of("sched:sched_process_fork").iter().all(|fork| fork["args"]["child_pid"].is_u64()));
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn an_offset_in_a_function_is_hit_as_often_as_its_beginning() {
    // The instruction after the patch area of ftrace, without and with a CET instruction in front.
    let mut hits = ["vfs_mkdir+5", "vfs_mkdir+9"].into_iter().filter_map(|offset| {
        let script = make_and_remove(10, 1);
        let mut run = probe(["count", "vfs_mkdir", offset, "-F", "jsonl", "--"]);
        let output = run.args(shell(&script)).output().unwrap();
        output.status.success().then(|| stdout(&output))
    });
    let hits = hits.next().expect("one of them is the beginning of an instruction");
    assert_eq!(hits.matches("\"count\":10}").count(), 2, "{hits}");
    assert_failure(&mut probe(["count", "vfs_mkdir+1"]), "the kernel cannot probe this offset");
}

/// Patterns that match at least a thousand functions, and the number of matches.
fn a_thousand() -> (Vec<String>, usize) {
    let all = fs::read_to_string(Path::new(TRACEFS).join("available_filter_functions")).unwrap();
    let mut counts = BTreeMap::<char, usize>::new();
    for name in all.lines() {
        *counts.entry(name.chars().next().unwrap()).or_default() += 1;
    }
    let mut patterns = (Vec::new(), 0);
    for (letter, count) in counts.into_iter().filter(|(letter, _)| letter.is_ascii_lowercase()) {
        if patterns.1 < 1200 && count < 4000 {
            patterns.0.push(format!("{letter}*"));
            patterns.1 += count;
        }
    }
    patterns
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn a_thousand_functions_are_attached_or_refused() {
    let (patterns, count) = a_thousand();
    assert!(count >= 1000);
    let command = |args: &[&str]| {
        let mut command = probe(args);
        command.args(&patterns).args(["--", "true"]);
        command
    };
    if !has_kprobe_multi() {
        assert_failure(&mut command(&["count"]), "or lift the limit (--no-limit)");
        return;
    }
    for name in ["count", "trace"] {
        let start = Instant::now();
        let output = succeed(&mut command(&[name]));
        let taken = start.elapsed();
        eprintln!("probe {name}: {count} functions, {taken:?} in all\n{}", stderr(&output));
        assert!(taken.as_secs() < 300, "{taken:?}");
    }
    assert_failure(&mut probe(["trace", "*"]), "or lift the limit (--no-limit)");
    // Calls are attached one by one.
    let all = ["trace", "--ret", "vmlinux:s*"];
    assert_failure(&mut probe(all), "and more than 1000 take long to attach");
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn nothing_stays_attached() {
    let attached = || fs::read_to_string(Path::new(TRACEFS).join("enabled_functions")).unwrap();
    let before = attached();
    counts(&["vfs_[rm]*"], "true");
    assert_eq!(attached(), before);
}
