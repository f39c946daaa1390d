//! Running the binary `probe`.

#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part of it")]

pub mod busy;
pub mod chain;
#[path = "../suite/left.rs"]
pub mod left;
#[path = "../suite/set_on_drop.rs"]
pub mod set_on_drop;
pub mod unprivileged;
#[path = "../suite/version.rs"]
pub mod version;

use jsonschema::Validator;
use left::KernelObjects;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::{LazyLock, OnceLock};
use std::time::{Duration, Instant};

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

/// A line of JSON, which has to be as the published schema describes it.
pub fn json_line(line: &str) -> Value {
    static VALIDATOR: LazyLock<Validator> = LazyLock::new(|| {
        let schema = include_str!("../../../docs/events.schema.json");
        jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap()
    });
    let value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line:?}: {error}"));
    if let Err(error) = VALIDATOR.validate(&value) {
        panic!("{line}: {error}");
    }
    value
}

/// The standard output, which has to be JSON lines and nothing else: what is traced, what happened,
/// and the ledger, each as the published schema describes it.
pub fn all_json_lines(output: &Output) -> Vec<Value> {
    let lines: Vec<_> = stdout(output).lines().map(json_line).collect();
    let types = [lines.first(), lines.last()].map(|line| line.map(|line| &line["type"]));
    assert_eq!(types, [Some(&"trace".into()), Some(&"ledger".into())], "{}", stderr(output));
    lines
}

/// The events among them, by time: they come in the order of their CPU, not in one order for all CPUs.
pub fn json_lines(output: &Output) -> Vec<Value> {
    let mut lines = all_json_lines(output);
    lines.retain(|line| line.get("time").is_some());
    lines.sort_by_key(|line| line["time"].as_u64().unwrap());
    lines
}

/// The events of a command, none of which is lost.
pub fn events(probes: &[&str], command: &[&str]) -> Vec<Value> {
    let mut run = probe(["trace", "-F", "jsonl"]);
    let output = run.args(probes).arg("--").args(command).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains(" + lost 0; complete"), "{}", stderr(&output));
    json_lines(&output)
}

/// What the line says that accounts for every record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Books {
    pub attempted: u64,
    pub handled: u64,
    pub lost: u64,
    pub overwritten: u64,
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
        overwritten: number("+ overwritten").unwrap_or(0),
        unread: number("+ unread").unwrap_or(0),
    };
    assert!(line.contains("; complete"), "{line}");
    let told = books.handled + books.lost + books.overwritten + books.unread;
    assert_eq!(books.attempted, told, "{line}");
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

    /// The first line, which is the table's heading or tells what is traced, is printed once the probes
    /// are attached.
    pub fn wait_for_heading(&mut self) {
        self.heading();
    }

    /// The same, and gives it.
    pub fn heading(&mut self) -> String {
        let mut heading = String::new();
        self.stdout.read_line(&mut heading).unwrap();
        if heading.is_empty() {
            let mut said = String::new();
            self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
            panic!("{said}");
        }
        heading
    }

    /// Waits until it has a thread of this name.
    pub fn wait_for_thread(&self, name: &str) {
        let has = self.wait_for_threads("comm", |names| names.iter().any(|one| one.trim() == name));
        assert!(has, "probe has no thread {name}");
    }

    /// Waits until what its threads have in their files of this name in /proc is as it should be. Whether it ever was.
    pub fn wait_for_threads(&self, file: &str, is_right: impl Fn(&[String]) -> bool) -> bool {
        let tasks = format!("/proc/{}/task", self.child.id());
        let read = |task: std::io::Result<std::fs::DirEntry>| {
            // A thread that has just ended has none.
            task.and_then(|task| std::fs::read_to_string(task.path().join(file)))
                .unwrap_or_default()
        };
        let start = Instant::now();
        while !is_right(&std::fs::read_dir(&tasks).unwrap().map(read).collect::<Vec<_>>()) {
            if start.elapsed() > Duration::from_secs(60) {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        true
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
