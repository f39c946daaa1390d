//! A program with a known call chain.

use super::{events, succeed};
use probe_testing::version;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use tempfile::{NamedTempFile, TempDir};

/// A program whose calls pass through known functions, compiled with frame pointers.
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

    /// The program, to be run with `left` and `right` calls.
    pub fn command(&self, left: u32, right: u32) -> [String; 3] {
        [self.program.to_str().unwrap().to_owned(), left.to_string(), right.to_string()]
    }

    /// The events of that command.
    pub fn trace(&self, args: &[&str], left: u32, right: u32) -> Vec<Value> {
        events(args, self.command(left, right))
    }
}

/// Adds sections with debug information to a program: the abbreviations, and a unit.
pub fn add_debug_info(program: &Path, [abbreviations, unit]: [&[u8]; 2]) {
    let mut objcopy = Command::new("objcopy");
    for (name, bytes) in [("debug_abbrev", abbreviations), ("debug_info", unit)] {
        let path = program.with_extension(name);
        fs::write(&path, bytes).unwrap();
        objcopy.arg(format!("--add-section=.{name}={}", path.display()));
    }
    succeed(objcopy.arg(program));
}

/// Compiles the program unless it is up to date: that takes a minute on an emulated machine.
fn compile() -> Vec<u8> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/chain.c");
    let compiled = Path::new(env!("CARGO_TARGET_TMPDIR")).join("chain");
    let written = |path: &Path| fs::metadata(path)?.modified();
    if written(&compiled).is_ok_and(|compiled| compiled > written(&source).unwrap()) {
        return fs::read(compiled).unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("chain");
    // Static linking keeps the C library's debug information out.
    let options = ["-O0", "-fno-omit-frame-pointer", "-static"];
    // Functions begin with `endbr64`, except where the source says otherwise.
    let of_entries = cfg!(target_arch = "x86_64").then_some("-fcf-protection=branch");
    succeed(Command::new("cc").args(options).args(of_entries).arg("-o").arg(&program).arg(source));
    let bytes = fs::read(program).unwrap();
    // Replaces the file atomically, because other tests may read or write it. Without a writable
    // directory, each run compiles.
    if let Ok(mut file) = NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")) {
        file.write_all(&bytes).unwrap();
        file.persist(compiled).unwrap();
    }
    bytes
}

/// The known function names of a stack, innermost first.
pub fn functions<'v>(event: &'v Value, stack: &str) -> Vec<&'v str> {
    let frames = event["args"][stack].as_array().unwrap_or_else(|| panic!("no {stack}: {event}"));
    frames.iter().filter_map(|frame| frame["symbol"].as_str()).collect()
}

/// Number of events whose stack passes through this function right before the innermost one.
pub fn through(events: &[Value], function: &str) -> usize {
    let stack = ["innermost", function, "main"];
    events.iter().filter(|event| functions(event, "ustack").starts_with(&stack)).count()
}

/// Sum of the counts in the lines of folded stacks that contain `part`.
pub fn count(folded: &str, part: &str) -> u64 {
    let lines = folded.lines().filter(|line| line.contains(part));
    lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
}

/// Whether the event of a syscall tracepoint has the kernel's stack from the system call on. Older
/// kernels attribute these tracepoints to user space, and have no kernel stack.
pub fn is_from_a_system_call(event: &Value) -> bool {
    let kernel = functions(event, "kstack");
    let is_old = event["args"]["kstack"].as_array().is_some_and(Vec::is_empty);
    is_old && version::kernel() < (6, 12) || kernel.contains(&"do_syscall_64")
}
