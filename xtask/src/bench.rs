//! `cargo xtask bench`: the event pipe beside its peers, on this machine's kernel.

mod tracer;

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

use crate::libtest::{self, Counts};
use crate::run::{executables, may_trace};
use crate::workspace::{self, Workspace, cargo, environment};
use crate::{apt, ebpf, say};

/// What libbpf's own build needs, by Debian's names.
const LIBBPF_NEEDS: [&str; 3] = ["libelf-dev", "pkg-config", "zlib1g-dev"];

const NAME: &str = "probe-bench";

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

/// The benchmark's own tests: where programs may be loaded, each contender is measured for a moment.
pub(crate) fn test() -> Result<Counts> {
    let mut command = Command::new(build(&["test", "--no-run"])?);
    command.env_clear().envs(environment()).arg("--test-threads=1");
    if may_trace() {
        command.arg("--include-ignored");
    }
    libtest::run(&mut command)
}

/// The command that measures the pipe.
fn pipe(options: &[OsString]) -> Result<Command> {
    let bench = build(&["build", "--release"])?;
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

/// The arguments that lint the benchmark.
pub(crate) fn clippy() -> Vec<&'static str> {
    let features = libbpf().unwrap_or_else(|error| without_libbpf(&error));
    [&["clippy", "--package", NAME, "--all-targets"], features].concat()
}

/// Builds the benchmark, or its tests, with libbpf's contenders if these can be built.
fn build(command: &[&str]) -> Result<PathBuf> {
    let with_libbpf = libbpf().and_then(|features| build_with(command, features));
    with_libbpf.or_else(|error| build_with(command, without_libbpf(&error)))
}

fn build_with(command: &[&str], features: &[&str]) -> Result<PathBuf> {
    let built = executables(cargo().args(command).args(["--package", NAME]).args(features))?;
    let bench = built.into_iter().find(|one| one.target == NAME);
    Ok(bench.context("cargo built none")?.path)
}

/// The arguments that have libbpf's contenders built in, for which there is everything.
fn libbpf() -> Result<&'static [&'static str]> {
    apt::install(&LIBBPF_NEEDS)?;
    Ok(&["--features", "libbpf"])
}

fn without_libbpf(error: &anyhow::Error) -> &'static [&'static str] {
    say::line(format_args!("libbpf's contenders will be missing: {error:#}"));
    &[]
}
