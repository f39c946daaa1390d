//! A program whose calls go through functions of known names.

use super::{json_lines, probe, stderr, version};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use tempfile::{NamedTempFile, TempDir};

/// A program whose calls go through functions of these names, compiled with frame pointers.
pub struct Chain {
    _dir: TempDir,
    pub program: PathBuf,
}

impl Chain {
    pub fn compile() -> Self {
        static COMPILED: LazyLock<Vec<u8>> = LazyLock::new(compile);
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("chain");
        fs::write(&program, &*COMPILED).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
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

/// Compiles it, unless that was done before: an emulated machine takes a minute.
fn compile() -> Vec<u8> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/chain.c");
    let compiled = Path::new(env!("CARGO_TARGET_TMPDIR")).join("chain");
    let written = |path: &Path| fs::metadata(path)?.modified();
    if written(&compiled).is_ok_and(|compiled| compiled > written(&source).unwrap()) {
        return fs::read(compiled).unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("chain");
    // Whatever the C library has, of debug information, too, is not read, then.
    let options = ["-O0", "-fno-omit-frame-pointer", "-static"];
    let mut cc = Command::new("cc");
    let output = cc.args(options).arg("-o").arg(&program).arg(source).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let bytes = fs::read(program).unwrap();
    // Others may be reading it, or be here, too. Without a folder to write into, it is compiled each time.
    if let Ok(mut file) = NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")) {
        file.write_all(&bytes).unwrap();
        file.persist(compiled).unwrap();
    }
    bytes
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

/// Whether an event of a system call's tracepoint has the kernel's own way from the instruction to there. Older
/// kernels take these tracepoints for the process's own, and tell no way.
pub fn comes_by_a_system_call(event: &Value) -> bool {
    let kernel = functions(event, "kstack");
    let is_old = event["args"]["kstack"].as_array().is_some_and(Vec::is_empty);
    is_old && version::kernel() < (6, 12) || kernel.contains(&"do_syscall_64")
}
