//! Perf's files: written for the tests, and read both by us and by perf.

pub mod generator;
pub mod recording;
pub mod shown;

use probe_testing::skip::skip;
use std::process::Command;

/// The options of `perf script` that show records other than samples.
pub const SHOW_ALL: [&str; 8] = [
    "--show-task-events",
    "--show-mmap-events",
    "--show-switch-events",
    "--show-namespace-events",
    "--show-bpf-events",
    "--show-cgroup-events",
    "--show-text-poke-events",
    "--show-lost-events",
];

/// What perf prints. Without perf, `None`, and the test is skipped.
pub fn perf(args: &[&str]) -> Option<String> {
    let Ok(output) = Command::new("perf").args(args).output() else {
        skip("there is no perf here");
        return None;
    };
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

pub fn without_spaces(text: &str) -> String {
    text.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

/// Asserts that both have the same lines, at least `at_least`, in any order.
pub fn assert_same_lines(mut ours: Vec<String>, mut theirs: Vec<String>, at_least: usize) {
    ours.sort();
    theirs.sort();
    assert!(ours.len() >= at_least, "only {} lines", ours.len());
    assert_eq!(ours.len(), theirs.len());
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs);
    }
}
