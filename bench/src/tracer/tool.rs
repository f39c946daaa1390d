//! The tracers, and what a user types to have each tell the writes of a process.

use super::dd;
use super::output::Lines;
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Tool {
    /// JSON lines, with the text that is written.
    Probe,
    /// JSON lines, with its address: the fields that bpftrace prints.
    ProbeAddress,
    /// What `probe` prints if nothing is said: a table, in the order of time.
    ProbeTable,
    Bpftrace,
    /// Prints nothing while it records: `perf script` does, later.
    Perf,
    Bcc,
}

/// What a tracer is started for.
#[derive(Clone, Copy)]
pub(super) enum Task<'a> {
    /// Trace a command that makes so many writes, from its first one on.
    Run { writes: u64, record: &'a Path },
    /// Trace a process that is there.
    Follow { pid: u32, record: &'a Path },
}

/// Where the tracers are.
#[derive(Clone)]
pub(super) struct Tools {
    pub(super) probe: PathBuf,
    /// Bytes of `probe`'s ring for each CPU, instead of what it takes by itself.
    pub(super) ring: Option<u64>,
}

impl Tool {
    pub(super) const ALL: [Self; 6] =
        [Self::Probe, Self::ProbeAddress, Self::ProbeTable, Self::Bpftrace, Self::Perf, Self::Bcc];

    pub(super) fn is_ours(self) -> bool {
        matches!(self, Self::Probe | Self::ProbeAddress | Self::ProbeTable)
    }

    /// Whether events come while the trace goes on.
    pub(super) fn prints_events(self) -> bool {
        self != Self::Perf
    }

    /// Whether it starts the command that it traces; otherwise it traces all that have the name.
    pub(super) fn runs_commands(self) -> bool {
        self != Self::Bcc
    }

    pub(super) fn lines(self) -> Lines {
        match self {
            Self::Probe | Self::ProbeAddress | Self::Bpftrace => Lines::Json,
            Self::ProbeTable | Self::Bcc => Lines::Text(" fd=1 "),
            Self::Perf => Lines::Text(" fd: 0x00000001,"),
        }
    }
}

impl fmt::Display for Tool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Probe => "probe",
            Self::ProbeAddress => "probe-address",
            Self::ProbeTable => "probe-table",
            Self::Bpftrace => "bpftrace",
            Self::Perf => "perf record",
            Self::Bcc => "bcc trace",
        })
    }
}

impl Tools {
    pub(super) fn version(&self, tool: Tool) -> Command {
        let (program, args) = match tool {
            Tool::Bpftrace => ("bpftrace", vec!["--version"]),
            Tool::Perf => ("perf", vec!["--version"]),
            Tool::Bcc => {
                ("/usr/bin/python3", vec!["-c", "import bcc; print('bcc', bcc.__version__)"])
            }
            _ => return with(Command::new(&self.probe), &["--version"]),
        };
        with(Command::new(program), &args)
    }

    /// The command that traces `syscalls:sys_enter_write`.
    pub(super) fn command(&self, tool: Tool, task: Task<'_>) -> Command {
        match tool {
            Tool::Probe => self.probe("buf", &["-F", "jsonl"], task),
            Tool::ProbeAddress => self.probe("buf:x64", &["-F", "jsonl"], task),
            Tool::ProbeTable => self.probe("buf", &[], task),
            Tool::Bpftrace => bpftrace(task),
            Tool::Perf => perf(task),
            Tool::Bcc => bcc(task),
        }
    }

    fn probe(&self, buf: &str, options: &[&str], task: Task<'_>) -> Command {
        let spec = format!("tracepoint:syscalls:sys_enter_write(fd, {buf}, count)");
        let mut command = Command::new(&self.probe);
        command.arg("trace").arg(spec).args(options);
        if let Some(bytes) = self.ring {
            command.args(["-B", &bytes.to_string()]);
        }
        match task {
            Task::Run { writes, .. } => command.arg("--").args(dd::command(writes)),
            Task::Follow { pid, .. } => command.args(["-p", &pid.to_string()]),
        };
        command
    }
}

fn bpftrace(task: Task<'_>) -> Command {
    let whose = match task {
        Task::Run { .. } => "pid == cpid".to_owned(),
        Task::Follow { pid, .. } => format!("pid == {pid}"),
    };
    let program = format!(
        r#"tracepoint:syscalls:sys_enter_write /{whose}/ {{ printf("{{\"type\":\"tracepoint\",\"time\":%llu,\"cpu\":%d,\"pid\":%d,\"tid\":%d,\"comm\":\"%s\",\"probe\":\"%s\",\"args\":{{\"fd\":%d,\"buf\":\"0x%llx\",\"count\":%d}}}}\n", nsecs, cpu, pid, tid, comm, probe, args->fd, args->buf, args->count) }}"#
    );
    let mut command = with(Command::new("bpftrace"), &["-e", &program]);
    if let Task::Run { writes, .. } = task {
        command.args(["-c", &dd::command(writes).join(" ")]);
    }
    command
}

fn perf(task: Task<'_>) -> Command {
    let mut command = with(Command::new("perf"), &["record", "-e", "syscalls:sys_enter_write"]);
    let (Task::Run { record, .. } | Task::Follow { record, .. }) = task;
    command.arg("-o").arg(record);
    match task {
        Task::Run { writes, .. } => command.arg("--").args(dd::command(writes)),
        Task::Follow { pid, .. } => command.args(["-p", &pid.to_string()]),
    };
    command
}

fn bcc(task: Task<'_>) -> Command {
    let spec =
        r#"t:syscalls:sys_enter_write "fd=%d buf=%lx count=%d", args->fd, args->buf, args->count"#;
    let whose = match task {
        Task::Run { .. } => ["-n".to_owned(), "dd".to_owned()],
        Task::Follow { pid, .. } => ["-p".to_owned(), pid.to_string()],
    };
    let mut command = Command::new("trace-bpfcc");
    command.args(whose).arg(spec);
    command
}

fn with(mut command: Command, args: &[&str]) -> Command {
    command.args(args);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(command: &Command) -> String {
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn all_are_told_whom_to_trace() {
        let record = Path::new("/r");
        let tools = Tools { probe: "/p".into(), ring: Some(4096) };
        for tool in Tool::ALL {
            let follow = words(&tools.command(tool, Task::Follow { pid: 4711, record }));
            assert!(follow.contains("4711") && !follow.contains("bs=1"), "{follow}");
            let run = words(&tools.command(tool, Task::Run { writes: 7, record }));
            assert_eq!(run.contains("count=7"), tool.runs_commands(), "{run}");
            assert_eq!(run.contains("-B 4096"), tool.is_ours(), "{run}");
            assert_eq!(run.contains("-o /r"), tool == Tool::Perf, "{run}");
        }
    }
}
