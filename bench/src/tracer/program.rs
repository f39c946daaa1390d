//! A tracer's eBPF program: its run time for each hit and its size, as the kernel has them.

use super::attached::{ATTACHED, Process, follow};
use super::dd;
use super::tool::{Tool, Tools};
use anyhow::{Context, Result, ensure};
use aya::programs::{ProgramInfo, loaded_programs};
use aya::sys::{Stats, enable_stats};
use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

/// How long the program is observed.
const OBSERVED: Duration = Duration::from_secs(1);

/// The program of a tracer that is hit most often.
#[derive(Clone, Copy, Debug)]
pub(super) struct Program {
    /// Nanoseconds of a hit, those that its filter rejects included. The kernel's two readings of the clock are a part of them.
    pub(super) hit_ns: f64,
    /// The bytes of its machine code.
    pub(super) code_bytes: u32,
}

impl Program {
    pub(super) fn measure(tools: &Tools, tool: Tool, scratch: &Path) -> Result<Self> {
        // The kernel measures run times as long as this is open.
        let _statistics = enable_stats(Stats::RunTime)?;
        let traced = Process::start(&dd::endless())?;
        let tracer = follow(tools, tool, &traced, scratch, Stdio::null())?;
        thread::sleep(ATTACHED);
        let before = programs(tracer.id())?;
        thread::sleep(OBSERVED);
        let now = programs(tracer.id())?;
        tracer.stop()?;
        let deltas = now.iter().map(|now| {
            let then = before.iter().find(|then| then.id() == now.id());
            let (time, hits) =
                then.map_or((Duration::ZERO, 0), |then| (then.run_time(), then.run_count()));
            (now.run_count() - hits, now.run_time() - time, now.size_jitted())
        });
        let (hits, time, code_bytes) = deltas.max().context("the tracer has no program")?;
        ensure!(hits > 0, "the tracer's program was not hit");
        Ok(Self { hit_ns: time.as_secs_f64() * 1e9 / hits as f64, code_bytes })
    }
}

/// The programs that a process has descriptors of.
fn programs(pid: u32) -> Result<Vec<ProgramInfo>> {
    let mut ids: Vec<u32> = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fdinfo"))? {
        // A descriptor may be closed by now.
        let text = fs::read_to_string(entry?.path()).unwrap_or_default();
        let id = text.lines().find_map(|line| line.strip_prefix("prog_id:"));
        ids.extend(id.and_then(|id| id.trim().parse::<u32>().ok()));
    }
    // Other programs may be gone by now.
    let all = loaded_programs().filter_map(Result::ok);
    Ok(all.filter(|program| ids.contains(&program.id())).collect())
}
