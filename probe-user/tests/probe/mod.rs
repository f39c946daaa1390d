//! Running the binary `probe`.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part of it")]

pub mod unprivileged;

use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::OnceLock;

/// The version of the kernel that runs: its first two numbers.
pub fn kernel() -> (u32, u32) {
    let name = rustix::system::uname();
    let release = name.release().to_str().unwrap();
    let mut numbers = release.split(['.', '-']).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap(), numbers.next().unwrap())
}

pub fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_probe"))
}

/// Where cargo puts binaries and examples.
pub fn target_dir() -> &'static Path {
    binary().parent().unwrap()
}

/// A copy of the binary where everybody may execute it: the checkout may be anywhere.
pub fn copy_for_everybody() -> &'static Path {
    static COPY: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, copy) = COPY.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let everybody = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(dir.path(), everybody.clone()).unwrap();
        let copy = dir.path().join("probe");
        std::fs::copy(binary(), &copy).unwrap();
        std::fs::set_permissions(&copy, everybody).unwrap();
        (dir, copy)
    });
    copy
}

pub fn probe<A: AsRef<OsStr>>(args: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new(binary());
    command.args(args).stdin(Stdio::null()).env_remove("RUST_BACKTRACE");
    command
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The standard output, which has to be JSON lines and nothing else, by time: events come in the
/// order of their CPU, not in one order for all CPUs.
pub fn json_lines(output: &Output) -> Vec<serde_json::Value> {
    let parse = |line: &str| match serde_json::from_str(line) {
        Ok(serde_json::Value::Object(object)) => serde_json::Value::Object(object),
        other => panic!("{line:?} is {other:?}"),
    };
    let mut lines: Vec<_> = stdout(output).lines().map(parse).collect();
    lines.sort_by_key(|line| line["time"].as_u64().unwrap());
    lines
}

/// Fails with status 1, nothing on standard output and one line on standard error.
pub fn assert_failure(command: &mut Command, told: &str) {
    let output = command.output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{command:?}: {said}");
    assert!(said.starts_with("probe: ") && said.contains(told), "{command:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{command:?}: {said}");
}

/// A `probe` that runs, its standard output read as it comes.
pub struct Run {
    pub child: Child,
    pub stdout: BufReader<ChildStdout>,
}

impl Run {
    pub fn start(args: &[&str]) -> Self {
        let mut child = probe(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout }
    }

    /// The table's heading is printed once the probes are attached.
    pub fn wait_for_heading(&mut self) {
        let mut heading = String::new();
        self.stdout.read_line(&mut heading).unwrap();
        if heading.is_empty() {
            let mut said = String::new();
            self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            panic!("{said}");
        }
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.child.id() as i32).unwrap(), signal).unwrap();
    }

    /// Reads what is left, and waits for the end.
    pub fn finish(self) -> Output {
        let Self { mut child, mut stdout } = self;
        let mut stderr = child.stderr.take().unwrap();
        let errors = std::thread::spawn(move || {
            let mut errors = Vec::new();
            stderr.read_to_end(&mut errors).unwrap();
            errors
        });
        let mut out = Vec::new();
        stdout.read_to_end(&mut out).unwrap();
        let status = child.wait().unwrap();
        Output { status, stdout: out, stderr: errors.join().unwrap() }
    }
}
