//! A program whose calls go through functions of known names.

use super::{json_lines, probe, stderr};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A program whose calls go through functions of these names, compiled with frame pointers.
pub struct Chain {
    _dir: TempDir,
    pub program: PathBuf,
}

impl Chain {
    pub fn compile() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("chain");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/chain.c");
        // Whatever the C library has, of debug information, too, is not read, then.
        let options = ["-O0", "-fno-omit-frame-pointer", "-static"];
        let mut cc = Command::new("cc");
        let output = cc.args(options).arg("-o").arg(&program).arg(source).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        Self { _dir: dir, program }
    }

    /// The events of these calls.
    pub fn trace(&self, args: &[&str], left: u32, right: u32) -> Vec<Value> {
        let mut run = probe(["trace", "-F", "jsonl"]);
        run.args(args).arg("--").arg(&self.program);
        let output = run.args([left.to_string(), right.to_string()]).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(stderr(&output).contains("lost 0; complete"), "{}", stderr(&output));
        json_lines(&output)
    }
}

/// The names of a stack's functions, the innermost first: those that are known.
pub fn functions<'v>(event: &'v Value, stack: &str) -> Vec<&'v str> {
    let frames = event["args"][stack].as_array().unwrap_or_else(|| panic!("no {stack}: {event}"));
    frames.iter().filter_map(|frame| frame["symbol"].as_str()).collect()
}

/// How many events went through this function before they came to the innermost one.
pub fn through(events: &[Value], function: &str) -> usize {
    let way = ["innermost", function, "main"];
    events.iter().filter(|event| functions(event, "ustack").starts_with(&way)).count()
}
