//! Many probes at once, each of which has a program of its own where no cookie tells them apart.

mod probe;

use probe::{assert_failure, events, probe, stdout};
use std::collections::BTreeMap;
use std::path::Path;

const COUNT: usize = 36;
const HITS: usize = 3;

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn each_of_many_probes_is_told_by_its_number() {
    let has_kprobes = Path::new("/sys/bus/event_source/devices/kprobe/type").exists();
    // Each is hit once when a program is executed.
    let mut hooks = vec!["tracepoint:sched:sched_process_exec", "rawtp:sched_process_exec"];
    if has_kprobes {
        hooks.push("kprobe:begin_new_exec");
    }
    let hooks = hooks.iter().cycle().take(COUNT).enumerate();
    let probes: Vec<_> = hooks.map(|(number, hook)| format!("{hook}(f{number}=tid)")).collect();
    let probes: Vec<_> = probes.iter().map(String::as_str).collect();
    // The last one takes the place of the shell.
    let events = events(&probes, &["sh", "-c", "cat /dev/null; exec cat /dev/null"]);
    let mut hits = BTreeMap::<String, usize>::new();
    for event in &events {
        let args = event["args"].as_object().unwrap();
        assert_eq!(args.len(), 1, "{event}");
        let (field, tid) = args.iter().next().unwrap();
        assert_eq!(*tid, event["tid"], "{event}");
        *hits.entry(field.clone()).or_default() += 1;
    }
    let expected = (0..COUNT).map(|number| (format!("f{number}"), HITS)).collect();
    assert_eq!(hits, expected);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_pattern_that_takes_many_programs_has_to_be_forced() {
    let listed = stdout(&probe(["list", "rawtp:*"]).output().unwrap());
    if listed.lines().count() > 500 {
        let told = "more than 500 take long to attach";
        assert_failure(&mut probe(["count", "rawtp:*", "--", "true"]), told);
    }
}
