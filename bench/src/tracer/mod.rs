//! Compares the tracer with other tracers on what a user notices: the cost to the traced program,
//! the time to the first event, the time to stop, memory, and the run time and size of its
//! eBPF program. `cargo xtask bench tracer` builds and runs it.

mod attached;
mod child;
mod dd;
mod flood;
mod goal;
mod output;
pub(crate) mod pace;
mod program;
mod report;
mod round;
mod row;
mod tool;

use anyhow::{Result, ensure};
use clap::value_parser;
use report::Report;
use round::Plan;
use std::path::PathBuf;
use tool::Tools;

const WRITES: u64 = 1_000_000;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Finish in about a minute instead of several: 100,000 writes, two rounds
    #[arg(long)]
    quick: bool,
    /// Write the figures to a file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// How often to repeat each measurement, after one discarded warm-up
    #[arg(long, value_parser = value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// The `probe` binary to measure, built by xtask
    #[arg(long, value_name = "FILE", hide = true)]
    probe: PathBuf,
}

impl Args {
    pub(crate) fn run(&self) -> Result<()> {
        let (rounds, writes) = if self.quick { (2, WRITES / 10) } else { (5, WRITES) };
        let scratch = tempfile::tempdir()?;
        let plan = Plan {
            rounds: self.rounds.unwrap_or(rounds) as usize,
            writes,
            tools: Tools { probe: self.probe.clone(), ring: None },
            scratch: scratch.path().to_owned(),
        };
        let report = Report::new(&plan)?;
        crate::publish(&report, self.json.as_deref())?;
        ensure!(report.failures.is_empty(), "some measurements failed, see above");
        Ok(())
    }
}
