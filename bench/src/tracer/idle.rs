//! A trace of a process that does nothing: what memory it takes, and how long until it is gone.

use super::busy::Process;
use super::child::Measured;
use super::tool::{Task, Tool, Tools};
use anyhow::Result;
use serde::Serialize;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

/// By then every tracer is attached.
const ATTACHED: Duration = Duration::from_millis(2500);

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Idle {
    pub(super) peak_kib: u64,
    /// Seconds from SIGINT until it has ended.
    pub(super) stop_s: f64,
    /// Seconds of CPU time that it took from its start to its end.
    pub(super) cpu_s: f64,
}

pub(super) fn measure(tools: &Tools, tool: Tool, scratch: &Path) -> Result<Idle> {
    let traced = Process::sleeping()?;
    let task = Task::Follow { pid: traced.pid(), record: &scratch.join("record") };
    let mut command = tools.command(tool, task);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let tracer = Measured::start(&mut command)?;
    thread::sleep(ATTACHED);
    let (ended, stop) = tracer.stop()?;
    Ok(Idle {
        peak_kib: ended.peak_kib,
        stop_s: stop.as_secs_f64(),
        cpu_s: ended.cpu.as_secs_f64(),
    })
}
