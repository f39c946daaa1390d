//! The tracers, with the command line that prints the writes of a process.

use super::dd;
use super::output::Lines;
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Tool {
    /// JSON lines with the written text.
    Probe,
    /// JSON lines with the buffer's address: the fields that bpftrace prints.
    ProbeAddress,
    /// The default output of `probe`: a table in time order.
    ProbeTable,
    Bpftrace,
    /// Prints nothing while recording; `perf script` prints later.
    Perf,
    Bcc,
}

/// What to trace.
#[derive(Clone, Copy)]
pub(super) enum Task {
    /// Trace a command that makes `writes` writes, from the first one on.
    Run { writes: u64 },
    /// Trace a running process.
    Follow { pid: u32 },
    /// Count the writes of a running process, with tools that [count](Tool::counts).
    Count { pid: u32 },
    /// Trace the kernel's function for writes in a running process, with a field of what an argument points to. For the same
    /// tools, on kernels with kprobes.
    Dereference { pid: u32 },
}

/// The locations of the tracers.
#[derive(Clone)]
pub(super) struct Tools {
    pub(super) probe: PathBuf,
    /// `probe`'s ring size per CPU in bytes, instead of its default.
    pub(super) ring: Option<u64>,
}

impl Tool {
    pub(super) const ALL: [Self; 6] =
        [Self::Probe, Self::ProbeAddress, Self::ProbeTable, Self::Bpftrace, Self::Perf, Self::Bcc];

    pub(super) fn is_ours(self) -> bool {
        matches!(self, Self::Probe | Self::ProbeAddress | Self::ProbeTable)
    }

    /// Whether events are printed while the trace runs.
    pub(super) fn prints_events(self) -> bool {
        self != Self::Perf
    }

    /// Whether it traces with an eBPF program.
    pub(super) fn has_program(self) -> bool {
        self != Self::Perf
    }

    /// Whether it starts the traced command; otherwise it traces all processes of that name.
    pub(super) fn runs_commands(self) -> bool {
        self != Self::Bcc
    }

    /// Whether it can count events instead of printing them.
    pub(super) fn counts(self) -> bool {
        matches!(self, Self::Probe | Self::Bpftrace)
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
        let program = match tool {
            Tool::Bcc => {
                let version = "import bcc; print('bcc', bcc.__version__)";
                return with(Command::new("/usr/bin/python3"), &["-c", version]);
            }
            Tool::Bpftrace => Path::new("bpftrace"),
            Tool::Perf => Path::new("perf"),
            Tool::Probe | Tool::ProbeAddress | Tool::ProbeTable => &self.probe,
        };
        with(Command::new(program), &["--version"])
    }

    /// The command line that traces `syscalls:sys_enter_write`. perf writes to the file `record`.
    pub(super) fn command(&self, tool: Tool, task: Task, record: &Path) -> Command {
        match tool {
            Tool::Probe => self.probe("buf", &["-F", "jsonl"], task),
            Tool::ProbeAddress => self.probe("buf:x64", &["-F", "jsonl"], task),
            Tool::ProbeTable => self.probe("buf", &[], task),
            Tool::Bpftrace => bpftrace(task),
            Tool::Perf => perf(task, record),
            Tool::Bcc => bcc(task),
        }
    }

    fn probe(&self, buf: &str, options: &[&str], task: Task) -> Command {
        let mut command = Command::new(&self.probe);
        if let Task::Count { pid } = task {
            let pid = pid.to_string();
            return with(command, &["count", "tracepoint:syscalls:sys_enter_write", "-p", &pid]);
        }
        let spec = match task {
            Task::Dereference { .. } => "kprobe:vfs_write(file->f_flags)".to_owned(),
            _ => format!("tracepoint:syscalls:sys_enter_write(fd, {buf}, count)"),
        };
        command.arg("trace").arg(spec).args(options);
        if let Some(bytes) = self.ring {
            command.args(["-B", &bytes.to_string()]);
        }
        match task {
            Task::Run { writes } => command.arg("--").args(dd::command(writes)),
            Task::Follow { pid } | Task::Count { pid } | Task::Dereference { pid } => {
                command.args(["-p", &pid.to_string()])
            }
        };
        command
    }
}

/// Whether this machine's kernel has kprobes.
pub(super) fn has_kprobes() -> bool {
    Path::new("/sys/bus/event_source/devices/kprobe").exists()
}

/// An empty program on the same tracepoint, by bpftrace.
pub(super) fn nothing() -> Command {
    with(Command::new("bpftrace"), &["-e", "tracepoint:syscalls:sys_enter_write { }"])
}

fn bpftrace(task: Task) -> Command {
    let filter = match task {
        Task::Run { .. } => "pid == cpid".to_owned(),
        Task::Follow { pid } | Task::Count { pid } | Task::Dereference { pid } => {
            format!("pid == {pid}")
        }
    };
    if let Task::Count { .. } = task {
        let program = format!("tracepoint:syscalls:sys_enter_write /{filter}/ {{ @ = count() }}");
        return with(Command::new("bpftrace"), &["-e", &program]);
    }
    let (kind, hook, format, args) = match task {
        Task::Dereference { .. } => (
            "kprobe",
            "kprobe:vfs_write",
            r#"\"file->f_flags\":%u"#,
            "((struct file *)arg0)->f_flags",
        ),
        _ => (
            "tracepoint",
            "tracepoint:syscalls:sys_enter_write",
            r#"\"fd\":%d,\"buf\":\"0x%llx\",\"count\":%d"#,
            "args->fd, args->buf, args->count",
        ),
    };
    let program = format!(
        r#"{hook} /{filter}/ {{ printf("{{\"type\":\"{kind}\",\"time\":%llu,\"cpu\":%d,\"pid\":%d,\"tid\":%d,\"comm\":\"%s\",\"probe\":\"%s\",\"args\":{{{format}}}}}\n", nsecs, cpu, pid, tid, comm, probe, {args}) }}"#
    );
    let mut command = with(Command::new("bpftrace"), &["-e", &program]);
    if let Task::Run { writes } = task {
        command.args(["-c", &dd::command(writes).join(" ")]);
    }
    command
}

fn perf(task: Task, record: &Path) -> Command {
    let mut command = with(Command::new("perf"), &["record", "-e", "syscalls:sys_enter_write"]);
    command.arg("-o").arg(record);
    match task {
        Task::Run { writes } => command.arg("--").args(dd::command(writes)),
        Task::Follow { pid } | Task::Count { pid } | Task::Dereference { pid } => {
            command.args(["-p", &pid.to_string()])
        }
    };
    command
}

fn bcc(task: Task) -> Command {
    let spec =
        r#"t:syscalls:sys_enter_write "fd=%d buf=%lx count=%d", args->fd, args->buf, args->count"#;
    let filter = match task {
        Task::Run { .. } => ["-n".to_owned(), "dd".to_owned()],
        Task::Follow { pid } | Task::Count { pid } | Task::Dereference { pid } => {
            ["-p".to_owned(), pid.to_string()]
        }
    };
    let mut command = Command::new("trace-bpfcc");
    command.args(filter).arg(spec);
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
    fn every_tool_traces_the_given_target() {
        let record = Path::new("/r");
        let tools = Tools { probe: "/p".into(), ring: Some(4096) };
        for tool in Tool::ALL {
            let follow = words(&tools.command(tool, Task::Follow { pid: 4711 }, record));
            assert!(follow.contains("4711") && !follow.contains("bs=1"), "{follow}");
            let run = words(&tools.command(tool, Task::Run { writes: 7 }, record));
            assert_eq!(run.contains("count=7"), tool.runs_commands(), "{run}");
            assert_eq!(run.contains("-B 4096"), tool.is_ours(), "{run}");
            assert_eq!(run.contains("-o /r"), tool == Tool::Perf, "{run}");
            if tool.counts() {
                let count = words(&tools.command(tool, Task::Count { pid: 4711 }, record));
                assert!(count.contains("4711") && !count.contains("printf"), "{count}");
                assert!(["/p count ", "count()"].iter().any(|one| count.contains(one)), "{count}");
                let dereference =
                    words(&tools.command(tool, Task::Dereference { pid: 4711 }, record));
                let expected = ["4711", "kprobe:vfs_write", "->f_flags"];
                assert!(expected.iter().all(|one| dereference.contains(one)), "{dereference}");
            }
        }
    }
}
