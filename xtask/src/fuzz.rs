//! `cargo xtask fuzz`: feeds arbitrary bytes to the code that parses kernel data, on stable Rust.
//!
//! The build is that of `cargo fuzz` without the address sanitizer, which requires nightly Rust. The code under test is
//! safe, and asserts its own invariants.

use std::fs::{self, File, Permissions};
use std::num::NonZero;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use clap::value_parser;

use crate::report::libtest::Counts;
use crate::run::{Executable, executables};
use crate::setup::apt;
use crate::setup::files::{create_folder, write_if_changed};
use crate::workspace::{self, Workspace, cargo_quiet};
use crate::{process, say};

const PACKAGE: &str = "probe-fuzz";
/// The flags of `cargo fuzz`. Only the workspace's own crates get them; dependencies are shared with the tests' build.
const FLAGS: [&str; 8] = [
    "--cfg=fuzzing",
    "-Ccodegen-units=1",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cllvm-args=-simplifycfg-branch-fold-threshold=0",
];
/// The longest input of a target whose checked-in inputs are short. Longer ones take longer.
const SHORTEST_LIMIT: u64 = 256;
const LOG_LINES: usize = 30;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Targets to fuzz [default: all]
    targets: Vec<String>,
    #[command(flatten)]
    extent: Extent,
}

/// How the targets are built.
#[derive(Clone, Copy)]
pub(crate) enum Build {
    /// In the tests' profile, sharing the dependencies built for them. The build ends sooner.
    Soon,
    /// In the release profile, for more inputs per second.
    Optimised,
}

/// How long to fuzz.
#[derive(Clone, Copy, clap::Args)]
pub(crate) struct Extent {
    /// Seconds to fuzz each target
    #[arg(long, default_value_t = 60, value_parser = value_parser!(u64).range(1..))]
    seconds: u64,
    /// Number of inputs for each target, without a time limit
    #[arg(long, conflicts_with = "seconds")]
    runs: Option<u64>,
}

impl Extent {
    pub(crate) fn seconds(seconds: u64) -> Self {
        Self { seconds, runs: None }
    }

    fn option(self) -> String {
        match self.runs {
            Some(runs) => format!("-runs={runs}"),
            None => format!("-max_total_time={}", self.seconds),
        }
    }
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let counts = fuzz(&Workspace::load()?, &self.targets, self.extent, Build::Optimised)?;
        Ok(if counts.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// Fuzzes the named targets, or all if none is named, one for each CPU at a time.
pub(crate) fn fuzz(
    workspace: &Workspace,
    names: &[String],
    extent: Extent,
    how: Build,
) -> Result<Counts> {
    let built = build(workspace, how)?;
    let known = built.iter().map(|one| one.target.as_str()).collect::<Vec<_>>().join(", ");
    for name in names {
        ensure!(
            built.iter().any(|one| one.target == *name),
            "unknown target `{name}`; the targets are {known}"
        );
    }
    let wanted = |one: &Executable| names.is_empty() || names.contains(&one.target);
    let mut wanted = built.into_iter().filter(wanted).collect::<Vec<_>>();
    wanted.sort_by(|one, other| one.target.cmp(&other.target));

    let cpus = thread::available_parallelism().map_or(1, NonZero::get);
    let ends = process::in_parallel(&wanted, cpus, |one| {
        say::line(format_args!("fuzzing {}", one.target));
        fuzz_one(workspace, one, extent)
    });
    let mut counts = Counts::default();
    for (Executable { target, .. }, end) in wanted.iter().zip(ends) {
        match end {
            Ok(stats) => {
                say::line(format_args!("{target}: {stats}"));
                counts.passed += 1;
            }
            Err(error) => {
                say::line(format_args!("{target} failed: {error:#}"));
                counts.failed += 1;
            }
        }
    }
    Ok(counts)
}

/// Builds all targets.
fn build(workspace: &Workspace, how: Build) -> Result<Vec<Executable>> {
    // libFuzzer is C++.
    if which::which("c++").is_err() {
        apt::install(&["g++"])?;
    }
    say::line("building the fuzz targets");
    let compiler = instrumenting_compiler(workspace)?;
    let mut build = cargo_quiet("build");
    // Cargo keeps the artifacts of a wrapper apart from the others.
    build.args(["--package", PACKAGE]).env("RUSTC_WORKSPACE_WRAPPER", compiler);
    if let Build::Optimised = how {
        build.arg("--release");
        // Assertions stay enabled, and a panic's backtrace has line numbers.
        build.env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true");
        build.env("CARGO_PROFILE_RELEASE_DEBUG", "line-tables-only");
    }
    executables(&mut build)
}

/// Writes a wrapper that runs the compiler with [`FLAGS`], for the workspace's own crates.
fn instrumenting_compiler(workspace: &Workspace) -> Result<PathBuf> {
    let path = workspace.target().join("fuzz/instrumenting-compiler");
    let script = format!("#!/bin/sh\nexec \"$@\" {}\n", FLAGS.join(" "));
    // An unchanged wrapper is not rewritten: it may be running.
    write_if_changed(&path, script.as_bytes())?;
    fs::set_permissions(&path, Permissions::from_mode(0o755))?;
    Ok(path)
}

/// Fuzzes a target. Returns its statistics, or fails with the input that failed.
fn fuzz_one(workspace: &Workspace, built: &Executable, extent: Extent) -> Result<String> {
    let name = &built.target;
    let (fuzz, target) = (workspace::root().join("fuzz"), workspace.target().join("fuzz"));
    // The checked-in inputs, those found on this machine, and those that failed.
    let corpus = fuzz.join("corpus").join(name);
    let found = target.join("corpus").join(name);
    let failures = fuzz.join("artifacts").join(name);
    create_folder(&found)?;
    create_folder(&failures)?;
    let log = target.join(format!("{name}.log"));
    let file = File::create(&log)?;
    let mut command = Command::new(&built.path);
    command.arg(extent.option()).arg(format!("-max_len={}", longest_input(&corpus)?));
    command.args(["-print_final_stats=1", "-timeout=10", "-rss_limit_mb=1024"]);
    command.arg(format!("-artifact_prefix={}/", failures.display()));
    command.arg(&found).arg(&corpus);
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let status = command.status().context("cannot start the fuzz target")?;
    let printed = String::from_utf8_lossy(&fs::read(&log)?).into_owned();
    if status.success() {
        return stats(&printed).context("libFuzzer printed no statistics");
    }
    let tail = process::tail(&printed, LOG_LINES);
    let Some(input) = failing_input(&printed) else { bail!("{status}:\n{tail}") };
    bail!(
        "{tail}\nThe input was saved. To add it to the corpus that the tests replay:\n    \
         cp {} {}/ && cargo test --lib corpus_of_{name}",
        input.display(),
        relative(&corpus).display()
    )
}

/// The longest input to try, in bytes: what is checked in, which libFuzzer would cut at this length, has room to grow.
fn longest_input(corpus: &Path) -> Result<u64> {
    let mut longest = 0;
    for entry in
        fs::read_dir(corpus).with_context(|| format!("cannot read {}", corpus.display()))?
    {
        longest = longest.max(entry?.metadata()?.len());
    }
    Ok(SHORTEST_LIMIT.max(2 * longest))
}

/// The number and rate of executions, from libFuzzer's final statistics.
fn stats(printed: &str) -> Option<String> {
    let stat = |name: &str| {
        printed.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
    };
    let count = stat("stat::number_of_executed_units:")?;
    let rate = stat("stat::average_exec_per_sec:")?;
    Some(format!("{count} executions, {rate} a second"))
}

fn failing_input(printed: &str) -> Option<&Path> {
    let (_, path) = printed.split_once("Test unit written to ")?;
    Some(relative(Path::new(path.lines().next()?)))
}

/// A path relative to the clone's root, to show in messages.
fn relative(path: &Path) -> &Path {
    let root = workspace::root();
    path.strip_prefix(&root).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_checked_in_input_has_room_to_grow() {
        for target in fs::read_dir(workspace::root().join("fuzz/corpus")).unwrap() {
            let corpus = target.unwrap().path();
            let limit = longest_input(&corpus).unwrap();
            for input in fs::read_dir(&corpus).unwrap() {
                let input = input.unwrap();
                assert!(2 * input.metadata().unwrap().len() <= limit, "{}", input.path().display());
            }
        }
    }

    #[test]
    fn final_statistics_are_parsed() {
        let printed = "#4\tDONE\nstat::number_of_executed_units: 1234567\n\
            stat::average_exec_per_sec:     411522\nstat::new_units_added: 3\n";
        assert_eq!(stats(printed).unwrap(), "1234567 executions, 411522 a second");
        assert!(stats("Done 4 runs in 1 second(s)\n").is_none());
        let printed =
            "panicked\nartifact_prefix='/x/'; Test unit written to /x/crash-1\nBase64: AA\n";
        assert_eq!(failing_input(printed), Some(Path::new("/x/crash-1")));
    }
}
