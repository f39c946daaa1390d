//! Many probes at once. Without cookies, each needs its own program.

use crate::probe::commands::shell;
use crate::probe::{EXEC, assert_failure, events, has_kprobes, printed, probe};
use probe_testing::skip::skip;
use std::collections::BTreeMap;

const COUNT: usize = 36;
const HITS: usize = 3;

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn each_of_many_probes_has_its_own_events() {
    // Each exec hits each hook once.
    let mut hooks = vec![EXEC, "rawtp:sched_process_exec"];
    if has_kprobes() {
        hooks.push("kprobe:begin_new_exec");
    }
    let hooks = hooks.iter().cycle().take(COUNT).enumerate();
    let probes = hooks.map(|(number, hook)| format!("{hook}(f{number}=tid)"));
    // The last command replaces the shell.
    let events = events(probes, shell("cat /dev/null; exec cat /dev/null"));
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
fn a_pattern_that_needs_many_programs_requires_an_option() {
    if printed(["list", "rawtp:*"]).lines().count() <= 500 {
        return skip("this kernel has too few tracepoints");
    }
    let expected = "more than 500 take long to attach";
    assert_failure(&mut probe(["count", "rawtp:*", "--", "true"]), expected);
}
