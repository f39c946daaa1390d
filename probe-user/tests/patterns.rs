//! Probes on many functions at once.

mod probe;

use probe::{assert_failure, json_line, json_lines, probe, stderr, stdout};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

const TRACEFS: &str = "/sys/kernel/tracing";

/// Whether this kernel can attach many functions at once.
fn has_kprobe_multi() -> bool {
    let told: Value =
        serde_json::from_str(&stdout(&probe(["check", "--json"]).output().unwrap())).unwrap();
    told["features"]["kprobe_multi"]["available"] == true
}

/// A shell that makes so many folders, and files, and takes them away; not on an overlay, which makes
/// each twice.
fn make_and_remove(folders: u32, files: u32) -> String {
    format!(
        "cd /run; seq -f d$$.%g {folders} | xargs mkdir; seq -f d$$.%g {folders} | xargs rmdir; \
         seq -f f$$.%g {files} | xargs touch; seq -f f$$.%g {files} | xargs rm"
    )
}

/// What a command makes of `probe count`, by function.
fn counts(args: &[&str], script: &str) -> (BTreeMap<String, u64>, String) {
    let output = probe(["count", "-F", "jsonl"])
        .args(args)
        .args(["--", "sh", "-c", script])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let count = |line: &str| {
        let line = json_line(line);
        assert_eq!(line["type"], "count");
        (line["probe"].as_str().unwrap().to_owned(), line["count"].as_u64().unwrap())
    };
    (stdout(&output).lines().map(count).collect(), stderr(&output))
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn a_pattern_is_each_function_that_matches() {
    let mut file = tempfile::NamedTempFile::new_in(".").unwrap();
    std::io::Write::write_all(&mut file, &[b'x'; 5000]).unwrap();
    let dd = format!("if={}", file.path().display());
    let output = probe(["trace", "vfs_re*(count)", "kr:vfs_re*", "-x", "*link*", "-F", "jsonl"])
        .args(["--", "dd", &dd, "of=/dev/null", "bs=100"])
        .output()
        .unwrap();
    assert!(stderr(&output).contains(" + lost 0; complete"), "{}", stderr(&output));
    // That which has no such argument is told of.
    assert!(stderr(&output).contains("left out: "), "{}", stderr(&output));
    let events = json_lines(&output);
    let of = |kind: &str, arg: &str| {
        let is_it = |event: &&Value| {
            event["type"] == kind && event["probe"] == "vfs_read" && event["args"][arg] == 100
        };
        events.iter().filter(is_it).count()
    };
    // The last one finds the end.
    assert_eq!((of("kprobe", "count"), of("kretprobe", "retval")), (51, 50), "{events:#?}");
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn what_is_excluded_is_not_there() {
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
    for name in names {
        let mut events =
            fs::OpenOptions::new().append(true).open(tracefs.join("kprobe_events")).unwrap();
        std::io::Write::write_all(&mut events, format!("p:agree/{name} {name}\n").as_bytes())
            .unwrap();
    }
    let enable = tracefs.join("events/agree/enable");
    fs::write(&enable, "1").unwrap();
    // A program for each takes emulated machines long to load.
    let pattern = if has_kprobe_multi() { "vfs_*" } else { "vfs_[mru]*" };
    let (counts, said) = counts(&[pattern, "-a"], &make_and_remove(60, 40));
    fs::write(&enable, "0").unwrap();
    let profile = fs::read_to_string(tracefs.join("kprobe_profile")).unwrap();
    fs::write(tracefs.join("kprobe_events"), "").unwrap();

    let own = |name: &str| {
        let mut lines = profile.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let line = lines.find(|line| line[0] == name).unwrap();
        assert_eq!(line[2], "0", "{name} was missed: {profile}");
        line[1].parse::<u64>().unwrap()
    };
    // Compilers may put the others, or their beginnings, into those who call them.
    assert!(own("vfs_mkdir") >= 60, "{profile}");
    for name in names {
        assert_eq!(counts.get(name).copied().unwrap_or(0), own(name), "{name}: {said}{profile}");
    }
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn conditions_are_looked_at_before_a_hit_is_counted() {
    let script = &make_and_remove(10, 1);
    for (args, expected) in [
        (vec!["vfs_mkdir/comm == \"mkdir\"/"], Some(10)),
        (vec!["vfs_mkdir/comm == \"rmdir\"/"], None),
        (vec!["vfs_mkdir", "-n", "mkdir"], Some(10)),
        (vec!["vfs_mkdir", "-u", "4242"], None),
        (vec!["vmlinux:vfs_mk[d]ir"], Some(10)),
    ] {
        let (counts, said) = counts(&args, script);
        assert_eq!(counts.get("vfs_mkdir").copied(), expected, "{args:?}: {said}");
    }
    assert_failure(&mut probe(["count", "no_module:vfs_mkdir"]), "no module no_module is loaded");
    assert_failure(&mut probe(["count", "no_such_*"]), "nothing that the kernel has is matched");
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn tracepoints_have_patterns_too() {
    let output = probe(["trace", "t:sched:sched_process_*", "-x", "*wait*", "-F", "jsonl"])
        .args(["--", "sh", "-c", "cat /dev/null; cat /dev/null"])
        .output()
        .unwrap();
    let lines = json_lines(&output);
    let of = |probe: &str| lines.iter().filter(|line| line["probe"] == probe).collect::<Vec<_>>();
    assert_eq!(of("sched:sched_process_exec").len(), 3, "{lines:#?}");
    assert_eq!(of("sched:sched_process_fork").len(), 2);
    assert!(of("sched:sched_process_wait").is_empty());
    assert!(of("sched:sched_process_exec").iter().all(|exec| exec["args"]["filename"].is_string()));
    assert!(of("sched:sched_process_fork").iter().all(|fork| fork["args"]["child_pid"].is_u64()));
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn a_place_inside_a_function_is_hit_as_often_as_its_beginning() {
    // Behind what ftrace patches, with and without an instruction for CET before it.
    let mut hits = ["vfs_mkdir+5", "vfs_mkdir+9"].into_iter().filter_map(|place| {
        let script = make_and_remove(10, 1);
        let output = probe(["count", "vfs_mkdir", place, "-F", "jsonl", "--", "sh", "-c", &script])
            .output()
            .unwrap();
        output.status.success().then(|| stdout(&output))
    });
    let hits = hits.next().expect("one of them is the beginning of an instruction");
    assert_eq!(hits.matches("\"count\":10}").count(), 2, "{hits}");
    assert_failure(&mut probe(["count", "vfs_mkdir+1"]), "the kernel takes no probe there");
}

/// Patterns that a thousand functions match, and how many do.
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
        assert_failure(&mut command(&["count"]), "or lift the limit (--force)");
        return;
    }
    for sort in ["count", "trace"] {
        let start = Instant::now();
        let output = command(&[sort]).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let taken = start.elapsed();
        eprintln!("probe {sort}: {count} functions, {taken:?} in all\n{}", stderr(&output));
        assert!(taken.as_secs() < 120, "{taken:?}");
    }
    assert_failure(&mut probe(["trace", "*"]), "or lift the limit (--force)");
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn nothing_stays_attached() {
    let attached = || {
        Command::new("cat").arg("/sys/kernel/tracing/enabled_functions").output().unwrap().stdout
    };
    let before = attached();
    counts(&["vfs_[rm]*"], "true");
    assert_eq!(attached(), before);
}
