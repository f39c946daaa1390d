//! The tracer as a person feels it, beside other tracers: what it costs the traced, how long until the
//! first event, how long until it is gone, how much memory it takes. `cargo xtask bench tracer` builds
//! and runs it.

mod aim;
mod busy;
mod child;
mod dd;
mod figure;
mod flood;
mod idle;
mod output;
mod report;
mod ring;
mod round;
mod row;
mod start;
mod table;
mod tool;
mod watch;

use anyhow::{Context, Result, ensure};
use report::Report;
use round::Plan;
use std::fs;
use std::path::PathBuf;
use tool::Tools;

const WRITES: u64 = 1_000_000;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// A minute instead of several: 100,000 writes, two rounds
    #[arg(long)]
    quick: bool,
    /// Write the figures to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// How often each measurement is made, after one that is thrown away
    #[arg(long)]
    rounds: Option<usize>,
    /// The binary that is measured, which xtask builds
    #[arg(long, value_name = "FILE", hide = true)]
    probe: PathBuf,
}

impl Args {
    pub(crate) fn run(&self) -> Result<()> {
        let (rounds, writes) = if self.quick { (2, WRITES / 10) } else { (5, WRITES) };
        let scratch = tempfile::tempdir()?;
        let plan = Plan {
            rounds: self.rounds.unwrap_or(rounds),
            writes,
            tools: Tools { probe: self.probe.clone(), ring: None },
            scratch: scratch.path().to_owned(),
        };
        ensure!(plan.rounds > 0, "--rounds has to be 1 at least");
        let report = Report::new(&plan)?;
        print!("{report}");
        if let Some(path) = &self.json {
            fs::write(path, serde_json::to_string_pretty(&report)? + "\n")
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
        ensure!(report.failures.is_empty(), "some measurements failed, see above");
        Ok(())
    }
}
