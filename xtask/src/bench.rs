//! `cargo xtask bench`: benchmarks the event pipe or the tracer against their peers on this machine's kernel.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};

use crate::report::libtest::{self, Counts};
use crate::run::{TRACING_REQUIRES, build_probe, executables, may_trace};
use crate::setup::peers::Peers;
use crate::setup::{self, apt};
use crate::workspace::{self, Workspace, cargo_quiet, environment};
use crate::{ebpf, say};

/// The Debian packages that building libbpf requires.
const LIBBPF_NEEDS: [&str; 3] = ["libelf-dev", "pkg-config", "zlib1g-dev"];

pub(crate) const NAME: &str = "probe-bench";

/// The first option, which selects the benchmark of the tracer, of its sampler, or of the pipe's wakeups alone.
const TRACER: &str = "tracer";
const SAMPLING: &str = "sampling";
const WAKING: &str = "waking";

const CHART: &str = "docs/bench.svg";

#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// Options of the benchmark, including --help; begin with `tracer` to benchmark the tracer, with `sampling` for `probe
    /// sample`, or with `waking` for the wakeups of the pipe at several rates
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    options: Vec<OsString>,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let asks = self.options.iter().any(|option| option == "--help" || option == "-h");
        ensure!(asks || may_trace(), "the benchmark loads eBPF programs: run it as root");
        ebpf::refresh(&Workspace::load()?)?;
        let mut command = match self.options.first() {
            Some(first) if first == TRACER || first == SAMPLING => tracer(&self.options)?,
            _ => pipe(&self.options)?,
        };
        let status = command.status().context("cannot start the benchmark")?;
        Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Runs the benchmark's own tests. If this user may load programs, they measure each contender briefly.
pub(crate) fn test() -> Result<Counts> {
    let tests = build("test", "--no-run")?;
    let mut command = Command::new(&tests);
    command.env_clear().envs(environment()).arg("--test-threads=1");
    if may_trace() {
        return libtest::run(command.arg("--include-ignored"));
    }
    let ignored = libtest::list_ignored(&tests)?.lines().count();
    say::line(format_args!("skipping tests of the benchmark: {TRACING_REQUIRES}"));
    Ok(libtest::run(&mut command)?.plus(Counts::skipped(ignored)))
}

/// The command that benchmarks the pipe.
fn pipe(options: &[OsString]) -> Result<Command> {
    let mut command = Command::new(build("build", "--release")?);
    command.env_clear().envs(environment()).args(options);
    let has_chart = options.first().is_none_or(|first| first != WAKING);
    if has_chart && !options.iter().any(|option| names_chart(option)) {
        command.arg("--chart").arg(workspace::root().join(CHART));
    }
    Ok(command)
}

/// The command that benchmarks the tracer.
fn tracer(options: &[OsString]) -> Result<Command> {
    let probe = build_probe()?;
    let bench = build("build", "--release")?;
    let mut command = match Peers::set_up(&setup::cache()?) {
        Ok(peers) => peers.command(&bench),
        Err(error) => {
            say::line(format_args!("the peers are those that this machine has: {error:#}"));
            Command::new(&bench)
        }
    };
    command.env_clear().envs(environment()).args(options).arg("--probe").arg(probe);
    Ok(command)
}

fn names_chart(option: &OsStr) -> bool {
    option == "--chart" || option.as_encoded_bytes().starts_with(b"--chart=")
}

/// The cargo arguments that select every part of the benchmark that this machine can build.
pub(crate) fn packages() -> Vec<&'static str> {
    let features = libbpf().unwrap_or_else(|error| without_libbpf(&error));
    [&["--package", NAME, "--all-targets"], features].concat()
}

/// Builds the benchmark or its tests, with libbpf's contenders if possible.
fn build(verb: &str, option: &str) -> Result<PathBuf> {
    let build = |features: &[&str]| {
        let mut command = cargo_quiet(verb);
        let built = executables(command.args([option, "--package", NAME]).args(features))?;
        let bench = built.into_iter().find(|one| one.target == NAME);
        Ok(bench.context("cargo did not build the benchmark")?.path)
    };
    libbpf().and_then(build).or_else(|error| build(without_libbpf(&error)))
}

/// Installs the packages that libbpf requires, and returns the arguments that enable its contenders.
fn libbpf() -> Result<&'static [&'static str]> {
    apt::install(&LIBBPF_NEEDS)?;
    Ok(&["--features", "libbpf"])
}

fn without_libbpf(error: &anyhow::Error) -> &'static [&'static str] {
    say::line(format_args!("skipping libbpf's contenders: {error:#}"));
    &[]
}
