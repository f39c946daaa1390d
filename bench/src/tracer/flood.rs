//! A million writes in a row: what they cost while they are traced, and how many were told of.

use super::child::Measured;
use super::dd::{self, Took};
use super::output::{self, Printed};
use super::tool::{Task, Tool, Tools};
use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A tracer that prints nothing for so long has printed all.
const SILENCE: Duration = Duration::from_millis(500);
/// A tracer that is not attached by then never is.
const ATTACHED: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Flood {
    /// Seconds that dd took right before, by itself, and while it was traced: by its own clock.
    pub(super) alone_s: f64,
    pub(super) traced_s: f64,
    /// Seconds of CPU time, of the same.
    pub(super) alone_cpu_s: f64,
    pub(super) traced_cpu_s: f64,
    /// Seconds from the tracer's start to its end.
    pub(super) wall_s: f64,
    /// Seconds until the events are text, where that is a command of its own.
    pub(super) text_s: Option<f64>,
    /// Seconds of CPU time that the tracer took, without dd.
    pub(super) cpu_s: f64,
    pub(super) peak_kib: u64,
    pub(super) printed: u64,
    pub(super) missing: u64,
    pub(super) out_of_order: u64,
    /// What the tracer says that it lost, in its own unit.
    pub(super) own_losses: Option<u64>,
    /// Whether `probe` accounts for all records.
    pub(super) complete: Option<bool>,
}

impl Flood {
    /// Whether each write was told of, in order, and `probe` says so itself.
    pub(super) fn is_whole(&self) -> bool {
        self.missing == 0 && self.out_of_order == 0 && self.complete != Some(false)
    }

    pub(super) fn slowdown_s(&self) -> f64 {
        self.traced_s - self.alone_s
    }

    pub(super) fn slowdown_cpu_s(&self) -> f64 {
        self.traced_cpu_s - self.alone_cpu_s
    }
}

/// Where a tracer's output goes.
struct Files {
    out: PathBuf,
    err: PathBuf,
    record: PathBuf,
    /// What dd says where the tracer does not run it.
    beside: PathBuf,
}

pub(super) fn measure(tools: &Tools, tool: Tool, writes: u64, scratch: &Path) -> Result<Flood> {
    let paths = ["out", "err", "record", "beside"].map(|name| scratch.join(name));
    let [out, err, record, beside] = paths;
    let files = Files { out, err, record, beside };
    let alone = dd::alone(writes, &files.beside)?;
    let mut command = tools.command(tool, Task::Run { writes, record: &files.record });
    command
        .stdin(Stdio::null())
        .stdout(File::create(&files.out)?)
        .stderr(File::create(&files.err)?);
    let tracer = Measured::start(&mut command)?;
    let (ended, traced) = if tool.runs_commands() {
        let ended = tracer.end()?;
        ensure!(ended.success, "{}", files.reason());
        let elapsed = dd::elapsed(&files.said()?);
        let elapsed = elapsed.with_context(|| format!("dd told no time: {}", files.reason()))?;
        let cpu = ended.children_cpu;
        (ended, Took { elapsed, cpu })
    } else {
        let traced = run_beside(&tracer, &files, writes)?;
        (tracer.stop()?.0, traced)
    };
    let (printed, text) = files.events(tool)?;
    ensure!(printed.events > 0, "it told of no event: {}", files.reason());
    let said = files.said()?;
    Ok(Flood {
        alone_s: alone.elapsed.as_secs_f64(),
        traced_s: traced.elapsed.as_secs_f64(),
        alone_cpu_s: alone.cpu.as_secs_f64(),
        traced_cpu_s: traced.cpu.as_secs_f64(),
        wall_s: ended.wall.as_secs_f64(),
        text_s: text.map(|text| text.as_secs_f64()),
        cpu_s: ended.cpu.as_secs_f64(),
        peak_kib: ended.peak_kib,
        printed: printed.events,
        missing: writes.saturating_sub(printed.events),
        out_of_order: printed.out_of_order,
        own_losses: output::add(printed.losses, output::own_losses(&said)),
        complete: tool.is_ours().then(|| output::is_complete(&said)),
    })
}

/// Runs dd beside a tracer that runs no commands, once that is attached, until it has printed all.
fn run_beside(tracer: &Measured, files: &Files, writes: u64) -> Result<Took> {
    let size = || fs::metadata(&files.out).map_or(0, |file| file.len());
    // It prints a header then.
    while size() == 0 {
        ensure!(!tracer.has_ended()?, "{}", files.reason());
        ensure!(tracer.started().elapsed() < ATTACHED, "it was not attached in time");
        thread::sleep(Duration::from_millis(10));
    }
    let traced = dd::alone(writes, &files.beside)?;
    let (mut last, mut since) = (size(), Instant::now());
    while since.elapsed() < SILENCE && !tracer.has_ended()? {
        thread::sleep(Duration::from_millis(10));
        if size() != last {
            (last, since) = (size(), Instant::now());
        }
    }
    Ok(traced)
}

impl Files {
    /// What was said on standard error, by the tracer and by dd.
    fn said(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(&self.err)?).into_owned())
    }

    /// The last that it said, for an error.
    fn reason(&self) -> String {
        let [err, out] = [&self.err, &self.out].map(|path| {
            let said = fs::read(path).unwrap_or_default();
            String::from_utf8_lossy(last_line(&said)).into_owned()
        });
        [err, out].into_iter().filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
    }

    /// What was printed, and how long that took if it took a command more.
    fn events(&self, tool: Tool) -> Result<(Printed, Option<Duration>)> {
        if tool.prints_events() {
            return Ok((tool.lines().count(BufReader::new(File::open(&self.out)?))?, None));
        }
        let mut script = Command::new("perf");
        script.args(["script", "-i"]).arg(&self.record).stdin(Stdio::null());
        script.stdout(File::create(&self.out)?).stderr(Stdio::null());
        let ended = Measured::start(&mut script)?.end()?;
        ensure!(ended.success, "perf script failed");
        let printed = tool.lines().count(BufReader::new(File::open(&self.out)?))?;
        Ok((printed, Some(ended.wall)))
    }
}

fn last_line(text: &[u8]) -> &[u8] {
    let text = text.trim_ascii_end();
    text.rsplit(|&byte| byte == b'\n').next().unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_is_all_in_order_and_accounted_for() {
        let flood = Flood {
            alone_s: 0.25,
            traced_s: 0.75,
            alone_cpu_s: 0.25,
            traced_cpu_s: 0.5,
            wall_s: 1.0,
            text_s: None,
            cpu_s: 0.5,
            peak_kib: 1,
            printed: 10,
            missing: 0,
            out_of_order: 0,
            own_losses: Some(0),
            complete: Some(true),
        };
        assert!(flood.is_whole());
        assert!(Flood { complete: None, ..flood }.is_whole());
        assert!(!Flood { missing: 1, ..flood }.is_whole());
        assert!(!Flood { out_of_order: 1, ..flood }.is_whole());
        assert!(!Flood { complete: Some(false), ..flood }.is_whole());
        assert_eq!((flood.slowdown_s(), flood.slowdown_cpu_s()), (0.5, 0.25));
    }

    #[test]
    fn last_lines_are_found() {
        assert_eq!(last_line(b"a\nb\n\n"), b"b");
        assert_eq!(last_line(b"a"), b"a");
        assert_eq!(last_line(b""), b"");
    }
}
