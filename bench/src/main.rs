//! The event pipe beside its peers: the same records, on the same kernel, in the same run, taking
//! turns. `cargo xtask bench` builds and runs it.

mod contender;
mod generator;
mod machine;
mod measure;
mod payload;
mod plan;
mod reader;
mod report;
mod resident;
mod rounds;
mod sink;
mod tracer;
mod walk;

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};
use contender::Contender;
use machine::Machine;
use plan::Plan;
use report::Report;
use std::fs;
use std::path::PathBuf;

/// Compare the event pipe with other ways out of the kernel
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
    /// One measurement, printed as JSON: what every measurement of a run is, in its own process
    Measure(measure::Case),
    /// The tracer `probe` beside bpftrace, perf and bcc
    Tracer(tracer::Args),
}

#[derive(clap::Args)]
struct All {
    /// Some four minutes instead of a quarter of an hour: fewer rounds, 64-byte payloads only
    #[arg(long)]
    quick: bool,
    /// Write the figures to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw the chart there; otherwise it goes to docs/bench.svg
    #[arg(long, value_name = "FILE")]
    chart: Option<PathBuf>,
    /// How often each measurement is made
    #[arg(long)]
    rounds: Option<u32>,
    /// Only these contenders, by the names in the table
    #[arg(long, value_delimiter = ',')]
    only: Vec<Contender>,
    /// KiB of ring for each CPU
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
        None => cli.all.run(),
    }
}

impl All {
    fn run(&self) -> Result<()> {
        ensure_root()?;
        ensure!(self.ring_kib.is_power_of_two(), "--ring-kib has to be a power of two");
        let plan = Plan::new(self.quick, self.rounds, &self.only, self.ring_kib);
        let report = Report::new(Machine::read()?, &plan, rounds::run(&plan)?);
        print!("{report}");
        if let Some(path) = &self.json {
            fs::write(path, serde_json::to_string_pretty(&report)? + "\n")
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        if let Some(path) = &self.chart {
            report::chart::draw(&report, path)
                .with_context(|| format!("cannot draw {}", path.display()))?;
        }
        ensure!(report.failures.is_empty(), "some measurements failed, see above");
        Ok(())
    }
}

fn ensure_root() -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "the benchmark loads programs: run it as root");
    Ok(())
}
