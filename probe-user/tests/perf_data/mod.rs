//! Files of perf: read by us and by perf, and written for both.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part of it")]

pub mod generator;
pub mod recording;
pub mod shown;
pub mod writer;

use std::process::Command;

/// What perf prints. `None` without perf, or without what it was not built with: which is said.
pub fn perf(args: &[&str]) -> Option<String> {
    let Ok(output) = Command::new("perf").args(args).output() else {
        eprintln!("skipped: there is no perf here");
        return None;
    };
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

pub fn without_spaces(text: &str) -> String {
    text.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}
