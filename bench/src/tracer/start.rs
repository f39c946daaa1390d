//! How long until the first event of a process that writes all the time, and how long until the tracer
//! is gone.

use super::busy::Process;
use super::child::Measured;
use super::tool::{Task, Tool, Tools};
use anyhow::{Context, Result};
use serde::Serialize;
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// A tracer that has told of nothing by then tells of nothing.
const FIRST: Duration = Duration::from_secs(30);
/// So long it traces before it is stopped.
const TRACED: Duration = Duration::from_millis(200);

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Start {
    /// Seconds from the tracer's start until its first event is read.
    pub(super) first_s: f64,
    /// Seconds from SIGINT until it has ended, while the process goes on writing.
    pub(super) stop_s: f64,
}

pub(super) fn measure(tools: &Tools, tool: Tool, scratch: &Path) -> Result<Start> {
    let traced = Process::writing()?;
    let task = Task::Follow { pid: traced.pid(), record: &scratch.join("record") };
    let mut command = tools.command(tool, task);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut tracer = Measured::start(&mut command)?;
    let mut output = BufReader::new(tracer.stdout()?);
    let (sender, first) = mpsc::channel();
    let reader = thread::spawn(move || -> io::Result<()> {
        let mut line = String::new();
        while output.read_line(&mut line)? > 0 {
            if tool.lines().is_event(&line) {
                // Whoever waits for it may have given up.
                let _ = sender.send(Instant::now());
                break;
            }
            line.clear();
        }
        io::copy(&mut output, &mut io::sink()).map(drop)
    });
    let first = first.recv_timeout(FIRST).context("it told of no event")?;
    thread::sleep(TRACED);
    let started = tracer.started();
    let (_, stop) = tracer.stop()?;
    // The output ends with the tracer.
    let _ = reader.join();
    Ok(Start { first_s: (first - started).as_secs_f64(), stop_s: stop.as_secs_f64() })
}
