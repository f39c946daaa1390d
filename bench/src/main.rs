//! Benchmarks the event pipe against its peers: the same records, on the same kernel, interleaved
//! in one run. `cargo xtask bench` builds and runs it.

mod contender;
mod generator;
mod machine;
mod measure;
mod payload;
mod plan;
mod reader;
mod report;
mod sampling;
mod sink;
mod tracer;
mod waking;
mod walk;

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand, value_parser};
use contender::Contender;
use machine::Machine;
use plan::Plan;
use report::Report;
use serde::Serialize;
use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

/// Compare the event pipe with other ways to read events from the kernel
#[derive(Parser)]
#[command(bin_name = "cargo xtask bench", args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    part: Option<Part>,
    #[command(flatten)]
    all: All,
}

#[derive(Subcommand)]
enum Part {
    /// Run one measurement and print it as JSON; each measurement of a run is such a process
    Measure(measure::Case),
    /// Compare the tracer `probe` with bpftrace, perf and bcc
    Tracer(tracer::Args),
    /// Compare the default wakeups of the pipe with one for each record, at several rates
    Waking(waking::Args),
    /// Compare the processor time of `probe sample` with that of perf
    Sampling(sampling::Args),
    /// Run a command and print its processor time
    #[command(hide = true)]
    Time(sampling::time::Args),
    /// Write to standard output at a steady rate, for the tracers
    #[command(hide = true)]
    Pace,
}

#[derive(clap::Args)]
struct All {
    /// Finish in about four minutes instead of fifteen: fewer rounds, 64-byte payloads only
    #[arg(long)]
    quick: bool,
    /// Write the figures to a file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write the chart to this file instead of docs/bench.svg
    #[arg(long, value_name = "FILE")]
    chart: Option<PathBuf>,
    /// How often to repeat each measurement
    #[arg(long, value_parser = value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Measure only these contenders, named as in the table
    #[arg(long, value_delimiter = ',')]
    only: Vec<Contender>,
    /// Ring size per CPU, in KiB
    #[arg(long, default_value_t = 8192)]
    ring_kib: usize,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    match cli.part {
        Some(Part::Measure(case)) => {
            println!("{}", serde_json::to_string(&case.measure()?)?);
            Ok(())
        }
        Some(Part::Tracer(args)) => {
            ensure_root()?;
            args.run()
        }
        Some(Part::Waking(args)) => {
            ensure_root()?;
            args.run()
        }
        Some(Part::Sampling(args)) => {
            ensure_root()?;
            args.run()
        }
        Some(Part::Time(args)) => args.run(),
        Some(Part::Pace) => Ok(tracer::pace::run().map(|_| ())?),
        None => cli.all.run(),
    }
}

impl All {
    fn run(&self) -> Result<()> {
        ensure_root()?;
        ensure!(self.ring_kib.is_power_of_two(), "--ring-kib must be a power of two");
        let plan = Plan::new(self.quick, self.rounds, &self.only, self.ring_kib);
        let report = Report::new(Machine::read()?, &plan, plan::run(&plan)?);
        publish(&report, self.json.as_deref())?;
        if let Some(path) = &self.chart {
            report::chart::draw(&report, path)
                .with_context(|| format!("cannot draw {}", path.display()))?;
        }
        ensure!(report.failures.is_empty(), "some measurements failed, see above");
        Ok(())
    }
}

/// Prints a report, and writes it to a file as JSON.
fn publish(report: &(impl Serialize + Display), json: Option<&Path>) -> Result<()> {
    print!("{report}");
    if let Some(path) = json {
        fs::write(path, serde_json::to_string_pretty(report)? + "\n")
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn ensure_root() -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "loading eBPF programs requires root");
    Ok(())
}
