//! Running the binary `probe`.

pub mod busy;
pub mod chain;
pub mod churn;
pub mod commands;
pub mod compat;
pub mod kernel_trace;
pub mod libraries;
pub mod strace;
pub mod unprivileged;

use jsonschema::Validator;
use probe_testing::left::KernelObjects;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::{LazyLock, OnceLock};
use std::time::{Duration, Instant};

pub const EXEC: &str = "tracepoint:sched:sched_process_exec";

pub fn has_kprobes() -> bool {
    Path::new("/sys/bus/event_source/devices/kprobe/type").exists()
}

pub fn binary() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_probe"))
}

/// The directory for cargo's binaries and examples.
pub fn target_dir() -> &'static Path {
    binary().parent().unwrap()
}

/// A copy of the binary that all users can execute; the checkout may not be accessible to them.
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

pub fn probe(args: impl IntoIterator<Item: AsRef<OsStr>>) -> Command {
    let mut command = Command::new(binary());
    command.args(args).stdin(Stdio::null());
    for name in ["RUST_BACKTRACE", "SUDO_UID", "SUDO_GID"] {
        command.env_remove(name);
    }
    command
}

/// Compiles a program of this name from this text, which is written beside it.
#[track_caller]
pub fn compile(text: &str, options: &[&str], program: &Path) {
    let source = program.with_extension("c");
    std::fs::write(&source, text).unwrap();
    succeed(Command::new("cc").args(options).arg("-o").arg(program).arg(source));
}

/// Runs a command. Asserts that it succeeds.
#[track_caller]
pub fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", stderr(&output));
    output
}

/// What `probe` prints. Asserts that it succeeds.
#[track_caller]
pub fn printed(args: impl IntoIterator<Item: AsRef<OsStr>>) -> String {
    stdout(&succeed(&mut probe(args)))
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Parses a line of JSON and validates it against the published schema.
pub fn json_line(line: &str) -> Value {
    static VALIDATOR: LazyLock<Validator> = LazyLock::new(|| {
        let schema = include_str!("../../../../../tracer/lib/events.schema.json");
        jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap()
    });
    let value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{line:?}: {error}"));
    if let Err(error) = VALIDATOR.validate(&value) {
        panic!("{line}: {error}");
    }
    value
}

/// Parses standard output, which must consist of JSON lines that match the published schema. The
/// first describes the trace, the last is the ledger.
pub fn all_json_lines(output: &Output) -> Vec<Value> {
    let lines: Vec<_> = stdout(output).lines().map(json_line).collect();
    let types = [lines.first(), lines.last()].map(|line| line.map(|line| &line["type"]));
    assert_eq!(types, [Some(&"trace".into()), Some(&"ledger".into())], "{}", stderr(output));
    lines
}

/// The events among these lines, sorted by time. Unordered output is only sorted per CPU.
pub fn json_lines(output: &Output) -> Vec<Value> {
    let mut lines = all_json_lines(output);
    lines.retain(|line| line.get("time").is_some());
    lines.sort_by_key(|line| line["time"].as_u64().unwrap());
    lines
}

/// Traces a command, with JSON lines as output. Asserts that it succeeds and that no event is lost.
#[track_caller]
pub fn trace(
    args: impl IntoIterator<Item: AsRef<OsStr>>,
    command: impl IntoIterator<Item: AsRef<OsStr>>,
) -> Output {
    let mut run = probe(["trace", "-F", "jsonl"]);
    let output = succeed(run.args(args).arg("--").args(command));
    assert!(stderr(&output).contains(" + lost 0; "), "{}", stderr(&output));
    output
}

/// The events of such a trace.
#[track_caller]
pub fn events(
    args: impl IntoIterator<Item: AsRef<OsStr>>,
    command: impl IntoIterator<Item: AsRef<OsStr>>,
) -> Vec<Value> {
    json_lines(&trace(args, command))
}

/// A number among the fields of an event.
#[track_caller]
pub fn number(event: &Value, name: &str) -> u64 {
    event["args"][name].as_u64().unwrap_or_else(|| panic!("{name} of {event}"))
}

/// The hits that `probe count` counts during a command, by provider and name; and standard error.
#[track_caller]
pub fn counts(
    args: impl IntoIterator<Item: AsRef<OsStr>>,
    command: impl IntoIterator<Item: AsRef<OsStr>>,
) -> (BTreeMap<String, BTreeMap<String, u64>>, String) {
    let output = succeed(probe(["count", "-F", "jsonl"]).args(args).arg("--").args(command));
    let mut counts = BTreeMap::<String, BTreeMap<String, u64>>::new();
    for line in stdout(&output).lines().map(json_line) {
        assert_eq!(line["type"], "count");
        let text = |name: &str| line[name].as_str().unwrap().to_owned();
        let of_provider = counts.entry(text("provider")).or_default();
        of_provider.insert(text("probe"), line["count"].as_u64().unwrap());
    }
    (counts, stderr(&output))
}

/// The numbers of the ledger line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ledger {
    pub attempted: u64,
    pub handled: u64,
    pub lost: u64,
    pub overwritten: u64,
    pub unread: u64,
}

/// Parses the ledger from standard error. Asserts that it balances.
#[track_caller]
pub fn ledger(output: &Output) -> Ledger {
    let printed = stderr(output);
    let line = printed.lines().find_map(|line| line.strip_prefix("ledger: "));
    let line = line.unwrap_or_else(|| panic!("no ledger: {printed}"));
    let number = |name: &str| {
        let (_, rest) = line.split_once(&format!("{name} "))?;
        rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    let ledger = Ledger {
        attempted: number("attempted").unwrap(),
        handled: number("= handled").unwrap(),
        lost: number("+ lost").unwrap(),
        overwritten: number("+ overwritten").unwrap_or(0),
        unread: number("+ unread").unwrap_or(0),
    };
    assert!(!line.contains("do not balance"), "{line}");
    let sum = ledger.handled + ledger.lost + ledger.overwritten + ledger.unread;
    assert_eq!(ledger.attempted, sum, "{line}");
    ledger
}

/// Asserts that the command exits with this status and prints this text on standard error, which is
/// returned.
#[track_caller]
pub fn assert_exit(command: &mut Command, code: i32, expected: &str) -> String {
    let output = command.output().unwrap();
    let printed = stderr(&output);
    assert_eq!(output.status.code(), Some(code), "{command:?}: {printed}");
    assert!(printed.contains(expected), "{command:?}: {printed}");
    // Nothing is traced after a usage error.
    assert!(code != 2 || output.stdout.is_empty(), "{command:?}: {}", stdout(&output));
    printed
}

/// Asserts that the command fails with status 1 and one line on standard error.
#[track_caller]
pub fn assert_failure(command: &mut Command, expected: &str) {
    let printed = assert_exit(command, 1, expected);
    assert!(printed.starts_with("probe: "), "{command:?}: {printed}");
    assert_eq!(printed.lines().count(), 1, "{command:?}: {printed}");
}

/// Traces a shell with `-p`, from before it begins with the script until it exits.
#[track_caller]
pub fn trace_shell(args: &[&str], script: &str) -> Output {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("read go; {script}")]).stdin(Stdio::piped());
    let mut shell = shell.spawn().unwrap();
    let run = Run::start(["trace", "-p", &shell.id().to_string()].iter().chain(args));
    drop(shell.stdin.take());
    assert!(shell.wait().unwrap().success());
    let output = run.finish();
    assert!(output.status.success(), "{}", stderr(&output));
    output
}

/// A running `probe` whose standard output is read as it comes.
pub struct Run {
    pub child: Child,
    pub stdout: BufReader<ChildStdout>,
    /// The first line, if it was waited for. It is not part of the output of [`Run::finish`].
    pub heading: String,
    /// The BPF objects that `probe` held at the heading and at each signal.
    held: RefCell<KernelObjects>,
}

impl Run {
    pub fn spawn(args: impl IntoIterator<Item: AsRef<OsStr>>) -> Self {
        Self::of(probe(args).stderr(Stdio::piped()))
    }

    pub fn of(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout, heading: String::new(), held: RefCell::default() }
    }

    /// Also waits for the first line, which `probe` prints once the probes are attached. It is the
    /// table's heading or describes the trace.
    #[track_caller]
    pub fn start(args: impl IntoIterator<Item: AsRef<OsStr>>) -> Self {
        Self::spawn(args).wait_for_heading()
    }

    #[track_caller]
    pub fn wait_for_heading(mut self) -> Self {
        self.heading = self.read_line();
        if self.heading.is_empty() {
            panic!("{}", stderr(&self.child.wait_with_output().unwrap()));
        }
        self.note_objects();
        self
    }

    /// The next line of standard output; empty at its end.
    pub fn read_line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line
    }

    /// Reads lines up to one that contains this text.
    #[track_caller]
    pub fn wait_for_line(&mut self, text: &str) {
        let mut line = self.read_line();
        while !line.contains(text) {
            assert_ne!(line, "", "no line contains {text}");
            line = self.read_line();
        }
    }

    /// Waits until `probe` has a thread of this name.
    pub fn wait_for_thread(&self, name: &str) {
        let has = self.wait_for_threads("comm", |names| names.iter().any(|one| one.trim() == name));
        assert!(has, "probe has no thread {name}");
    }

    /// Waits until the contents of this file in the threads' `/proc` directories satisfy
    /// `is_right`. Returns false after a timeout.
    pub fn wait_for_threads(&self, file: &str, is_right: impl Fn(&[String]) -> bool) -> bool {
        let tasks = format!("/proc/{}/task", self.child.id());
        let read = |task: std::io::Result<std::fs::DirEntry>| {
            // The thread may have just exited.
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
        self.note_objects();
        kill_process(Pid::from_raw(self.child.id() as i32).unwrap(), signal).unwrap();
    }

    /// The BPF objects that `probe` holds now.
    pub fn objects(&self) -> KernelObjects {
        KernelObjects::of(&format!("/proc/{}", self.child.id()))
    }

    fn note_objects(&self) {
        self.held.borrow_mut().extend(self.objects());
    }

    /// Reads the remaining output and waits for the exit. Asserts that no BPF objects remain.
    pub fn finish(self) -> Output {
        self.note_objects();
        let Self { child, mut stdout, held, .. } = self;
        let printed = std::thread::spawn(move || {
            let mut printed = Vec::new();
            stdout.read_to_end(&mut printed).unwrap();
            printed
        });
        let output = child.wait_with_output().unwrap();
        held.into_inner().assert_gone();
        Output { stdout: printed.join().unwrap(), ..output }
    }
}
