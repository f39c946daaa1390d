//! `cargo xtask bench sampling`: the processor time that `probe sample` takes, against that of `perf record` and `perf script`.

mod load;
pub(crate) mod time;

use crate::machine::Machine;
use crate::measure::median;
use crate::report::table::{Column, show, table};
use anyhow::{Context, Result, ensure};
use clap::value_parser;
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
    #[arg(long, default_value_t = 5, value_parser = value_parser!(u32).range(1..))]
    rounds: u32,
    /// How long to sample, in seconds
    #[arg(long, default_value_t = 8, value_parser = value_parser!(u32).range(1..))]
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
    /// Samples that each tool has taken.
    probe_samples: Option<f64>,
    perf_samples: Option<f64>,
}

/// The figures of one round.
struct Round {
    /// Processor time of `probe sample`, and of perf with inlined functions and without, in seconds.
    seconds: [f64; 3],
    /// Samples that `probe` has taken, and that perf has.
    samples: [u64; 2],
}

impl Args {
    pub(crate) fn run(&self) -> Result<()> {
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
            let mut rounds = Vec::new();
            for _ in 0..self.rounds {
                rounds.push(self.round(sources.path())?);
                bar.inc(1);
            }
            rows.push(Row::of(load.name, &rounds));
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

    fn round(&self, folder: &Path) -> Result<Round> {
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
            processor_time(&script).map(|(time, _)| time)
        };
        let (probe, printed) = processor_time(&probe)?;
        let taken = samples_of_probe(&printed).with_context(|| format!("no samples: {printed}"))?;
        let (record, _) = processor_time(&record)?;
        let times = [probe, record + script(&[])?, record + script(&["--no-inline"])?];
        let mut stats = Command::new("perf");
        let stats = stats.args(["report", "--stats", "-i"]).arg(&recorded).output()?;
        let printed = String::from_utf8_lossy(&stats.stdout);
        let recorded =
            samples_of_perf(&printed).with_context(|| format!("no samples: {printed}"))?;
        Ok(Round { seconds: times.map(|time| time.as_secs_f64()), samples: [taken, recorded] })
    }
}

/// The number of samples in the summary of `probe sample`.
fn samples_of_probe(printed: &str) -> Option<u64> {
    let line = printed.lines().find(|line| line.contains(" samples, "))?;
    line.strip_prefix("probe: ")?.split(' ').next()?.parse().ok()
}

/// The number of samples in the statistics of `perf report`.
fn samples_of_perf(printed: &str) -> Option<u64> {
    let line = printed.lines().find_map(|line| line.trim().strip_prefix("SAMPLE events:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The processor time of a command and of the processes that it starts, and what it prints on standard error.
fn processor_time(command: &Command) -> Result<(Duration, String)> {
    let mut time = Command::new(std::env::current_exe()?);
    let output = time.arg("time").arg(command.get_program()).args(command.get_args()).output()?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{}", errors.trim());
    let time = Duration::from_micros(String::from_utf8(output.stdout)?.trim().parse()?);
    Ok((time, errors))
}

impl Row {
    fn of(load: &'static str, rounds: &[Round]) -> Self {
        let seconds = |at: usize| median(rounds.iter().map(|one| one.seconds[at]).collect());
        let samples = |at: usize| median(rounds.iter().map(|one| one.samples[at] as f64).collect());
        let [probe_s, perf_s, perf_no_inline_s] = [0, 1, 2].map(seconds);
        let [probe_samples, perf_samples] = [0, 1].map(samples);
        Self { load, probe_s, perf_s, perf_no_inline_s, probe_samples, perf_samples }
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

const COLUMNS: [Column<Row>; 8] = [
    ("load", |row| row.load.to_owned()),
    ("probe sample", |row| show(row.probe_s, seconds)),
    ("perf record, script", |row| show(row.perf_s, seconds)),
    ("ratio", |row| ratio(row.probe_s, row.perf_s)),
    ("--no-inline", |row| show(row.perf_no_inline_s, seconds)),
    ("ratio", |row| ratio(row.probe_s, row.perf_no_inline_s)),
    ("probe's samples", |row| show(row.probe_samples, |samples| format!("{samples:.0}"))),
    ("perf's samples", |row| show(row.perf_samples, |samples| format!("{samples:.0}"))),
];

fn ratio(ours: Option<f64>, theirs: Option<f64>) -> String {
    show(ours.zip(theirs), |(ours, theirs)| format!("{:.2}", ours / theirs))
}

fn seconds(seconds: f64) -> String {
    format!("{seconds:.3}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_counted() {
        let printed =
            "probe: 7984 samples, 0 lost; 12 of them of probe itself, left out (--include-self)\n";
        assert_eq!(samples_of_probe(printed), Some(7984));
        assert_eq!(samples_of_probe("probe: cannot sample\n"), None);
        let printed = "\nAggregated stats:\n           TOTAL events:      12345\n\
            \x20         SAMPLE events:       7990  (64.7%)\n";
        assert_eq!(samples_of_perf(printed), Some(7990));
        assert_eq!(samples_of_perf("           TOTAL events:      12345\n"), None);
    }
}
