//! A tracer's eBPF program: its run time for each hit and its size, as the kernel has them.

use super::attached::{ATTACHED, Process};
use super::child::Measured;
use super::output::Lines;
use super::tool::{self, Task, Tool, Tools};
use super::{dd, output, pace};
use anyhow::{Context, Result, ensure};
use aya::programs::{ProgramInfo, loaded_programs};
use aya::sys::{Stats, enable_stats};
use std::fs::{self, File};
use std::io::BufReader;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

/// How long the program is observed.
const OBSERVED: Duration = Duration::from_secs(1);

/// The program of a tracer that is hit most often, under several loads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Program {
    /// By a flood, of which a tracer may lose a part: what is dropped costs less.
    pub(super) flood: Hits,
    /// At a rate at which all events are printed.
    pub(super) paced: Hits,
    /// By a flood that is counted, if the tracer can.
    pub(super) counting: Option<Hits>,
    /// By a flood in which a kprobe reads what a pointer leads to, if the kernel has kprobes and the tracer counts.
    pub(super) dereferencing: Option<Hits>,
    /// By a flood about which the program does nothing: the least that a hit takes. `None` without bpftrace.
    pub(super) nothing: Option<Hits>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Hits {
    /// Nanoseconds of a hit, those that its filter rejects included. The kernel's two readings of the clock are a part of them.
    pub(super) ns: f64,
    /// The bytes of its machine code.
    pub(super) code_bytes: u32,
    /// The losses that the tracer reports, in its own unit.
    pub(super) losses: u64,
}

impl Program {
    pub(super) fn measure(tools: &Tools, tool: Tool, scratch: &Path) -> Result<Self> {
        // The kernel measures run times as long as this is open.
        let _statistics = enable_stats(Stats::RunTime)?;
        let lines = tool.lines();
        let command = |task| tools.command(tool, task, &scratch.join("record"));
        let follow = |pid| command(Task::Follow { pid });
        let count = |pid| command(Task::Count { pid });
        let dereference = |pid| command(Task::Dereference { pid });
        let flood = dd::endless();
        Ok(Self {
            flood: Hits::measure(follow, lines, &flood, scratch)?,
            paced: Hits::measure(follow, lines, &pace::command()?, scratch)?,
            counting: (tool.counts())
                .then(|| Hits::measure(count, lines, &flood, scratch))
                .transpose()?,
            dereferencing: (tool.counts() && tool::has_kprobes())
                .then(|| Hits::measure(dereference, lines, &flood, scratch))
                .transpose()?,
            nothing: Hits::measure(|_| tool::nothing(), lines, &flood, scratch).ok(),
        })
    }
}

impl Hits {
    /// Measures a tracer of the process that `words` start.
    fn measure(
        tracer: impl FnOnce(u32) -> Command,
        lines: Lines,
        words: &[String],
        scratch: &Path,
    ) -> Result<Self> {
        let traced = Process::start(words)?;
        let [out, err] = ["out", "err"].map(|name| scratch.join(name));
        let mut command = tracer(traced.id());
        command.stdin(Stdio::null()).stdout(File::create(&out)?).stderr(File::create(&err)?);
        let tracer = Measured::start(&mut command)?;
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
        let printed = lines.count(BufReader::new(File::open(&out)?))?;
        let errors = String::from_utf8_lossy(&fs::read(&err)?).into_owned();
        let losses = output::add(printed.losses, output::own_losses(&errors)).unwrap_or(0);
        Ok(Self { ns: time.as_secs_f64() * 1e9 / hits as f64, code_bytes, losses })
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
