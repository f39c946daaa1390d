//! `cargo xtask bench`: the event pipe beside its peers, on this machine's kernel.

mod tracer;

use std::ffi::{OsStr, OsString};
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
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// The benchmark's own, --help among them; with `tracer` as the first, the tracer's
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    options: Vec<OsString>,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode> {
        ensure!(may_trace(), "the benchmark loads eBPF programs: run it as root");
        ebpf::refresh(&Workspace::load()?)?;
        let mut command = match self.options.first() {
            Some(first) if first == tracer::NAME => tracer::command(&self.options)?,
            _ => pipe(&self.options)?,
        };
        let status = command.status().context("cannot start the benchmark")?;
        Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// The command that measures the pipe.
fn pipe(options: &[OsString]) -> Result<Command> {
    let bench = build_with_libbpf().or_else(|error| {
        say::line(format_args!("libbpf's contenders will be missing: {error:#}"));
        build(&[])
    })?;
    let mut command = Command::new(&bench);
    command.env_clear().envs(environment()).args(options);
    if !options.iter().any(|option| names_chart(option)) {
        command.arg("--chart").arg(workspace::root().join(CHART));
    }
    Ok(command)
}

fn names_chart(option: &OsStr) -> bool {
    option == "--chart" || option.as_encoded_bytes().starts_with(b"--chart=")
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
