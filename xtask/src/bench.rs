//! `cargo xtask bench`: the event pipe beside its peers, on this machine's kernel.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

use crate::run::{executables, may_trace};
use crate::workspace::{self, Workspace, cargo, environment};
use crate::{apt, ebpf, say};

/// What libbpf's own build needs, by Debian's names.
const LIBBPF_NEEDS: [&str; 3] = ["libelf-dev", "pkg-config", "zlib1g-dev"];

const CHART: &str = "docs/bench.svg";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Two minutes instead of a quarter of an hour: fewer rounds, 64-byte payloads only
    #[arg(long)]
    quick: bool,
    /// Write the figures to a file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw the chart elsewhere
    #[arg(long, value_name = "FILE")]
    chart: Option<PathBuf>,
    /// How often each measurement is made
    #[arg(long)]
    rounds: Option<u32>,
    /// Only these contenders, by the names in the table
    #[arg(long, value_name = "NAMES")]
    only: Option<String>,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode> {
        ensure!(may_trace(), "the benchmark loads eBPF programs: run it as root");
        ebpf::refresh(&Workspace::load()?)?;
        let bench = build_with_libbpf().or_else(|error| {
            say::line(format_args!("libbpf's contenders will be missing: {error:#}"));
            build(&[])
        })?;
        let mut command = Command::new(&bench);
        command.env_clear().envs(environment());
        command.arg("--chart").arg(self.chart.unwrap_or_else(|| workspace::root().join(CHART)));
        if self.quick {
            command.arg("--quick");
        }
        if let Some(path) = &self.json {
            command.arg("--json").arg(path);
        }
        if let Some(rounds) = self.rounds {
            command.arg("--rounds").arg(rounds.to_string());
        }
        if let Some(names) = &self.only {
            command.arg("--only").arg(names);
        }
        let status = command.status().context("cannot start the benchmark")?;
        Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

fn build_with_libbpf() -> Result<PathBuf> {
    apt::install(&LIBBPF_NEEDS)?;
    build(&["--features", "libbpf"])
}

fn build(features: &[&str]) -> Result<PathBuf> {
    let mut command = cargo();
    command.args(["build", "--release", "--package", "probe-bench"]).args(features);
    let built = executables(&mut command)?;
    built.into_iter().map(|one| one.path).find(|path| is_bench(path)).context("cargo built none")
}

fn is_bench(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "probe-bench")
}
