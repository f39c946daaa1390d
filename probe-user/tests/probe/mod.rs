//! Running the binary `probe`.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part of it")]

#[path = "../suite/left.rs"]
pub mod left;
pub mod unprivileged;

use left::KernelObjects;
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

/// What the line says that accounts for every record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Books {
    pub attempted: u64,
    pub handled: u64,
    pub lost: u64,
    pub unread: u64,
}

/// The books of a run, from its standard error: they have to balance, and to say that they are
/// complete.
pub fn books(said: &str) -> Books {
    let line = said.lines().find_map(|line| line.strip_prefix("ledger: "));
    let line = line.unwrap_or_else(|| panic!("no ledger: {said}"));
    let number = |name: &str| {
        let (_, rest) = line.split_once(&format!("{name} "))?;
        rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    let books = Books {
        attempted: number("attempted").unwrap(),
        handled: number("= handled").unwrap(),
        lost: number("+ lost").unwrap(),
        unread: number("+ unread").unwrap_or(0),
    };
    assert!(line.contains("; complete"), "{line}");
    assert_eq!(books.attempted, books.handled + books.lost + books.unread, "{line}");
    books
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

    /// What it has in the kernel now.
    pub fn objects(&self) -> KernelObjects {
        KernelObjects::of(&format!("/proc/{}", self.child.id()))
    }

    /// Reads what is left, and waits for the end, which leaves nothing in the kernel.
    pub fn finish(self) -> Output {
        let objects = self.objects();
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
        objects.assert_gone();
        Output { status, stdout: out, stderr: errors.join().unwrap() }
    }
}
