//! `cargo xtask bench sampling`: the processor time that `probe sample` takes, against that of `perf record` and `perf script`.

mod load;
pub(crate) mod time;

use crate::machine::Machine;
use crate::measure::median;
use crate::report::table::{Column, show, table};
use anyhow::{Context, Result, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use load::{LOADS, Load, PROCESSES};
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

/// Samples per second and CPU.
const FREQUENCY: &str = "499";

/// How long a load runs before it is sampled.
const WARM_UP: Duration = Duration::from_secs(1);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How often to repeat each measurement
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// How long to sample, in seconds
    #[arg(long, default_value_t = 8)]
    seconds: u32,
    /// Write the figures to a file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// The `probe` binary to measure, built by xtask
    #[arg(long, value_name = "FILE", hide = true)]
    probe: PathBuf,
}

#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    machine: Machine,
    rounds: u32,
    seconds: u32,
    perf: String,
    rows: Vec<Row>,
    /// Loads that this machine cannot run.
    missing: Vec<&'static str>,
}

/// Medians, in seconds of processor time.
#[derive(Debug, Serialize)]
struct Row {
    load: &'static str,
    probe_s: Option<f64>,
    /// `perf record` and `perf script`.
    perf_s: Option<f64>,
    /// `perf record` and `perf script --no-inline`, which does not look for inlined functions.
    perf_no_inline_s: Option<f64>,
}

impl Args {
    pub(crate) fn run(&self) -> Result<()> {
        ensure!(self.rounds > 0, "--rounds must be at least 1");
        let sources = tempfile::tempdir()?;
        load::write_sources(sources.path())?;
        let perf = Command::new("perf").arg("--version").output().context("cannot start perf")?;
        let (loads, missing): (Vec<&Load>, Vec<&Load>) =
            LOADS.iter().partition(|load| load.is_possible());
        let style = ProgressStyle::with_template("{elapsed} [{wide_bar}] {pos}/{len} {msg}")?;
        let bar = ProgressBar::new(loads.len() as u64 * u64::from(self.rounds)).with_style(style);
        let mut rows = Vec::new();
        for load in loads {
            bar.set_message(load.name);
            let _running = load.start(sources.path())?;
            thread::sleep(WARM_UP);
            let mut figures = [(); 3].map(|()| Vec::new());
            for _ in 0..self.rounds {
                let round = self.round(sources.path())?;
                figures.iter_mut().zip(round).for_each(|(all, one)| all.push(one));
                bar.inc(1);
            }
            rows.push(Row::of(load.name, figures));
        }
        bar.finish_and_clear();
        let report = Report {
            machine: Machine::read()?,
            rounds: self.rounds,
            seconds: self.seconds,
            perf: String::from_utf8_lossy(&perf.stdout).trim().to_owned(),
            rows,
            missing: missing.iter().map(|load| load.name).collect(),
        };
        crate::publish(&report, self.json.as_deref())
    }

    /// The processor time of `probe sample`, and of perf with inlined functions and without, in seconds.
    fn round(&self, folder: &Path) -> Result<[f64; 3]> {
        let seconds = self.seconds.to_string();
        let recorded = folder.join("perf.data");
        let mut probe = Command::new(&self.probe);
        probe.args(["sample", "-a", "-F", FREQUENCY, "-d", &format!("{seconds}s")]);
        let mut record = Command::new("perf");
        record.args(["record", "-q", "-a", "-g", "-F", FREQUENCY, "-o"]).arg(&recorded);
        record.args(["--", "sleep", &seconds]);
        let script = |options: &[&str]| {
            let mut script = Command::new("perf");
            script.arg("script").args(options).arg("-i").arg(&recorded);
            processor_time(&script)
        };
        let probe = processor_time(&probe)?;
        let record = processor_time(&record)?;
        let figures = [probe, record + script(&[])?, record + script(&["--no-inline"])?];
        Ok(figures.map(|figure| figure.as_secs_f64()))
    }
}

/// The processor time of a command and of the processes that it starts.
fn processor_time(command: &Command) -> Result<Duration> {
    let mut time = Command::new(std::env::current_exe()?);
    let output = time.arg("time").arg(command.get_program()).args(command.get_args()).output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}", errors.trim());
    Ok(Duration::from_micros(String::from_utf8(output.stdout)?.trim().parse()?))
}

impl Row {
    fn of(load: &'static str, figures: [Vec<f64>; 3]) -> Self {
        let [probe_s, perf_s, perf_no_inline_s] = figures.map(median);
        Self { load, probe_s, perf_s, perf_no_inline_s }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { machine, rounds, seconds, perf, rows, missing } = self;
        writeln!(f, "{machine}, {perf}, medians of {rounds} rounds\n")?;
        writeln!(
            f,
            "Processor time in s, with all processes of a tool, for {seconds} s at {FREQUENCY} samples per second and CPU, \
             while {PROCESSES} processes run the load.\n"
        )?;
        writeln!(f, "{}", table(rows, &COLUMNS))?;
        for load in missing {
            writeln!(f, "not measured: {load}: the machine lacks the program")?;
        }
        Ok(())
    }
}

const COLUMNS: [Column<Row>; 6] = [
    ("load", |row| row.load.to_owned()),
    ("probe sample", |row| show(row.probe_s, seconds)),
    ("perf record, script", |row| show(row.perf_s, seconds)),
    ("ratio", |row| ratio(row.probe_s, row.perf_s)),
    ("--no-inline", |row| show(row.perf_no_inline_s, seconds)),
    ("ratio", |row| ratio(row.probe_s, row.perf_no_inline_s)),
];

fn ratio(ours: Option<f64>, theirs: Option<f64>) -> String {
    show(ours.zip(theirs), |(ours, theirs)| format!("{:.2}", ours / theirs))
}

fn seconds(seconds: f64) -> String {
    format!("{seconds:.3}")
}
