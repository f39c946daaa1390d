//! Tracing a running process: the time to its first event, the time to stop, and memory.

use super::child::Measured;
use super::dd;
use super::tool::{Task, Tool, Tools};
use anyhow::{Context, Result};
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// The longest wait for a first event.
const FIRST: Duration = Duration::from_secs(30);
/// How long the tracer of a busy process runs before it is stopped.
const TRACED: Duration = Duration::from_millis(200);
/// Every tracer has attached by then.
pub(super) const ATTACHED: Duration = Duration::from_millis(2500);

/// Tracing a process that writes continuously.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    /// Seconds from the tracer's start until its first event is read.
    pub(super) first_s: f64,
    /// Seconds from SIGINT to the exit, while the process keeps writing.
    pub(super) stop_s: f64,
}

/// Tracing an idle process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Idle {
    pub(super) peak_kib: u64,
    /// Seconds from SIGINT to the exit.
    pub(super) stop_s: f64,
}

impl Start {
    pub(super) fn measure(tools: &Tools, tool: Tool, scratch: &Path) -> Result<Self> {
        let traced = Process::start(&dd::endless())?;
        let mut tracer = follow(tools, tool, &traced, scratch, Stdio::piped())?;
        let mut output = BufReader::new(tracer.stdout()?);
        let (sender, first) = mpsc::channel();
        let reader = thread::spawn(move || -> io::Result<()> {
            let mut line = String::new();
            while output.read_line(&mut line)? > 0 {
                if tool.lines().is_event(&line) {
                    // The receiver may have timed out.
                    let _ = sender.send(Instant::now());
                    break;
                }
                line.clear();
            }
            io::copy(&mut output, &mut io::sink()).map(drop)
        });
        let first = first.recv_timeout(FIRST).context("the tracer reported no event")?;
        thread::sleep(TRACED);
        let started = tracer.started;
        let (_, stop) = tracer.stop()?;
        // The output ends when the tracer exits.
        let _ = reader.join();
        Ok(Self { first_s: (first - started).as_secs_f64(), stop_s: stop.as_secs_f64() })
    }
}

impl Idle {
    pub(super) fn measure(tools: &Tools, tool: Tool, scratch: &Path) -> Result<Self> {
        let traced = Process::start(&["sleep", "infinity"].map(str::to_owned))?;
        let tracer = follow(tools, tool, &traced, scratch, Stdio::null())?;
        thread::sleep(ATTACHED);
        let (ended, stop) = tracer.stop()?;
        Ok(Self { peak_kib: ended.peak_kib, stop_s: stop.as_secs_f64() })
    }
}

/// Starts a tracer of a process.
fn follow(
    tools: &Tools,
    tool: Tool,
    traced: &Process,
    scratch: &Path,
    output: Stdio,
) -> Result<Measured> {
    let task = Task::Follow { pid: traced.id() };
    let mut command = tools.command(tool, task, &scratch.join("record"));
    Measured::start(command.stdin(Stdio::null()).stdout(output).stderr(Stdio::null()))
}

/// A process to trace, which runs until it is dropped.
pub(super) struct Process(Child);

impl Process {
    pub(super) fn id(&self) -> u32 {
        self.0.id()
    }

    pub(super) fn start(words: &[String]) -> Result<Self> {
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self(command.spawn().with_context(|| format!("cannot start {}", words[0]))?))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
