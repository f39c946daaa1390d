//! A million consecutive writes: what tracing costs them, and how many the tracer reports.

use super::child::Measured;
use super::dd::{self, Took};
use super::output::{self, Printed};
use super::tool::{Task, Tool, Tools};
use anyhow::{Context, Result, ensure};
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A tracer that prints nothing for this long has printed everything.
const SILENCE: Duration = Duration::from_millis(500);
/// The longest wait for a tracer to attach.
const ATTACHED: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Flood {
    /// Seconds that dd took untraced just before, and while traced, by its own clock.
    pub(super) untraced_s: f64,
    pub(super) traced_s: f64,
    /// Seconds of CPU time for the same two runs.
    pub(super) untraced_cpu_s: f64,
    pub(super) traced_cpu_s: f64,
    /// Seconds from the tracer's start to its exit.
    pub(super) wall_s: f64,
    /// Seconds until the events are text, if a separate command converts them.
    pub(super) text_s: Option<f64>,
    /// Seconds of CPU time that the tracer took, without dd's.
    pub(super) cpu_s: f64,
    pub(super) peak_kib: u64,
    pub(super) printed: u64,
    pub(super) missing: u64,
    pub(super) out_of_order: u64,
    /// The losses that the tracer reports, in its own unit.
    pub(super) own_losses: Option<u64>,
    /// Whether `probe` accounts for all records.
    pub(super) ledger_balances: Option<bool>,
}

impl Flood {
    pub(super) fn measure(tools: &Tools, tool: Tool, writes: u64, scratch: &Path) -> Result<Self> {
        let [out, err, record, dd] = ["out", "err", "record", "dd"].map(|name| scratch.join(name));
        let files = Files { out, err, record, dd };
        let untraced = dd::run(writes, &files.dd)?;
        let mut command = tools.command(tool, Task::Run { writes }, &files.record);
        command.stdin(Stdio::null()).stdout(File::create(&files.out)?);
        let tracer = Measured::start(command.stderr(File::create(&files.err)?))?;
        let (ended, traced) = if tool.runs_commands() {
            let ended = tracer.end()?;
            ensure!(ended.success, "{}", files.reason());
            let elapsed = dd::elapsed(&files.stderr()?);
            let elapsed =
                elapsed.with_context(|| format!("no time from dd: {}", files.reason()))?;
            let cpu = ended.children_cpu;
            (ended, Took { elapsed, cpu })
        } else {
            let traced = run_beside(&tracer, &files, writes)?;
            (tracer.stop()?.0, traced)
        };
        let (printed, text) = files.events(tool)?;
        ensure!(printed.events > 0, "the tracer reported no event: {}", files.reason());
        ensure!(
            printed.events <= writes,
            "the tracer reported {} events of {writes} writes",
            printed.events
        );
        let stderr = files.stderr()?;
        Ok(Self {
            untraced_s: untraced.elapsed.as_secs_f64(),
            traced_s: traced.elapsed.as_secs_f64(),
            untraced_cpu_s: untraced.cpu.as_secs_f64(),
            traced_cpu_s: traced.cpu.as_secs_f64(),
            wall_s: ended.wall.as_secs_f64(),
            text_s: text.map(|text| text.as_secs_f64()),
            cpu_s: ended.cpu.as_secs_f64(),
            peak_kib: ended.peak_kib,
            printed: printed.events,
            missing: writes - printed.events,
            out_of_order: printed.out_of_order,
            own_losses: output::add(printed.losses, output::own_losses(&stderr)),
            ledger_balances: tool.is_ours().then(|| output::balances(&stderr)),
        })
    }

    /// Whether every write was reported in order and, for `probe`, the ledger balances.
    pub(super) fn is_complete(&self) -> bool {
        self.missing == 0 && self.out_of_order == 0 && self.ledger_balances != Some(false)
    }

    pub(super) fn slowdown_s(&self) -> f64 {
        self.traced_s - self.untraced_s
    }

    pub(super) fn slowdown_cpu_s(&self) -> f64 {
        self.traced_cpu_s - self.untraced_cpu_s
    }
}

/// The files for a tracer's output.
struct Files {
    out: PathBuf,
    err: PathBuf,
    record: PathBuf,
    /// dd's report, if the tracer does not start dd.
    dd: PathBuf,
}

/// Runs dd next to a tracer that starts no commands: waits until the tracer is attached, and
/// afterwards until it has printed everything.
fn run_beside(tracer: &Measured, files: &Files, writes: u64) -> Result<Took> {
    let size = || fs::metadata(&files.out).map_or(0, |file| file.len());
    // The tracer prints a header once it is attached.
    while size() == 0 {
        ensure!(!tracer.has_ended()?, "{}", files.reason());
        ensure!(tracer.started.elapsed() < ATTACHED, "the tracer did not attach in time");
        thread::sleep(Duration::from_millis(10));
    }
    let traced = dd::run(writes, &files.dd)?;
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
    /// Standard error of the tracer and of dd.
    fn stderr(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&fs::read(&self.err)?).into_owned())
    }

    /// The last line of output, for an error message.
    fn reason(&self) -> String {
        let lines = [&self.err, &self.out].map(|path| {
            let printed = fs::read(path).unwrap_or_default();
            String::from_utf8_lossy(last_line(&printed)).into_owned()
        });
        lines.into_iter().filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
    }

    /// The printed events, and the time for the extra command if the tracer needs one.
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
    fn complete_floods_have_all_events_in_order() {
        let flood = Flood { ledger_balances: Some(true), ..Flood::default() };
        assert!(flood.is_complete());
        assert!(Flood::default().is_complete());
        assert!(!Flood { missing: 1, ..flood }.is_complete());
        assert!(!Flood { out_of_order: 1, ..flood }.is_complete());
        assert!(!Flood { ledger_balances: Some(false), ..flood }.is_complete());
    }

    #[test]
    fn a_slowdown_is_the_time_beyond_the_untraced_flood() {
        let flood = Flood {
            untraced_s: 0.25,
            traced_s: 0.75,
            untraced_cpu_s: 0.25,
            traced_cpu_s: 0.5,
            ..Flood::default()
        };
        assert_eq!((flood.slowdown_s(), flood.slowdown_cpu_s()), (0.5, 0.25));
    }

    #[test]
    fn last_lines_are_found() {
        assert_eq!(last_line(b"a\nb\n\n"), b"b");
        assert_eq!(last_line(b"a"), b"a");
        assert_eq!(last_line(b""), b"");
    }
}
