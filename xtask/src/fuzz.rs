//! `cargo xtask fuzz`: arbitrary bytes for the code that reads what the kernel gives, on stable Rust.
//!
//! It builds what `cargo fuzz` builds, without its sanitizer, which takes a nightly Rust: the code under
//! test is safe, and what it must not do, it asserts itself.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::num::NonZero;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::{Context, Result, bail, ensure};

use crate::libtest::Counts;
use crate::run::{Executable, executables};
use crate::workspace::{self, Workspace, cargo};
use crate::{apt, process, say};

const PACKAGE: &str = "probe-fuzz";
/// The flags of `cargo fuzz`, for what is ours: the crates that it is built on are those of the tests.
const FLAGS: [&str; 7] = [
    "-Ccodegen-units=1",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Cllvm-args=-simplifycfg-branch-fold-threshold=0",
];
/// What is longer takes longer, and has nothing new in it.
const MAX_LEN: u32 = 256;
const LOG_LINES: usize = 30;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// All of them, unless named
    targets: Vec<String>,
    #[command(flatten)]
    extent: Extent,
}

/// How the targets are built.
#[derive(Clone, Copy)]
pub(crate) enum Build {
    /// As the tests are, on what was built for them.
    Soon,
    /// For more inputs a second.
    Optimised,
}

/// How much is to be tried.
#[derive(Clone, Copy, clap::Args)]
pub(crate) struct Extent {
    /// Seconds for each target
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Inputs for each target, however long they take
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

/// Runs these targets, or all, as many at a time as there are CPUs.
pub(crate) fn fuzz(
    workspace: &Workspace,
    names: &[String],
    extent: Extent,
    how: Build,
) -> Result<Counts> {
    let built = build(workspace, how)?;
    let known = built.iter().map(|one| one.target.as_str()).collect::<Vec<_>>().join(", ");
    for name in names {
        ensure!(built.iter().any(|one| one.target == *name), "no target {name}; there is {known}");
    }
    let wanted = |one: &&Executable| names.is_empty() || names.contains(&one.target);
    let wanted = built.iter().filter(wanted).collect::<Vec<_>>();

    let (next, ends) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let work = || {
        while let Some(one) = wanted.get(next.fetch_add(1, Ordering::Relaxed)) {
            say::line(format_args!("fuzzing {}", one.target));
            let end = Target::new(workspace, one).and_then(|target| target.run(extent));
            ends.lock().unwrap_or_else(PoisonError::into_inner).insert(&one.target, end);
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, NonZero::get).min(wanted.len()) {
            scope.spawn(work);
        }
    });
    let mut counts = Counts::default();
    for (name, end) in ends.into_inner().unwrap_or_else(PoisonError::into_inner) {
        match end {
            Ok(stats) => {
                say::line(format_args!("{name}: {stats}"));
                counts.passed += 1;
            }
            Err(error) => {
                say::line(format_args!("{name} failed: {error:#}"));
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
    let mut build = cargo();
    // What it compiles is kept apart from what others do.
    build.args(["build", "--package", PACKAGE]).env("RUSTC_WORKSPACE_WRAPPER", compiler);
    match how {
        Build::Soon => {}
        Build::Optimised => {
            build.arg("--release");
            // What is wrong is noticed, and told with its line.
            build.env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true");
            build.env("CARGO_PROFILE_RELEASE_DEBUG", "line-tables-only");
        }
    }
    executables(&mut build)
}

/// Writes what is run instead of the compiler, with its words, for the workspace's own crates.
fn instrumenting_compiler(workspace: &Workspace) -> Result<PathBuf> {
    let folder = workspace.target().join("fuzz");
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let path = folder.join("instrumenting-compiler");
    let script = format!("#!/bin/sh\nexec \"$@\" {}\n", FLAGS.join(" "));
    // One that is there may be running.
    if fs::read_to_string(&path).ok().as_ref() != Some(&script) {
        fs::write(&path, script).with_context(|| format!("cannot write {}", path.display()))?;
        fs::set_permissions(&path, Permissions::from_mode(0o755))?;
    }
    Ok(path)
}

/// A target and its files.
struct Target {
    name: String,
    executable: PathBuf,
    /// What is checked in.
    corpus: PathBuf,
    /// What was found on this machine.
    found: PathBuf,
    /// Inputs that fail.
    failures: PathBuf,
    log: PathBuf,
}

impl Target {
    fn new(workspace: &Workspace, built: &Executable) -> Result<Self> {
        let name = built.target.clone();
        let (fuzz, target) = (workspace::root().join("fuzz"), workspace.target().join("fuzz"));
        let this = Self {
            corpus: fuzz.join("corpus").join(&name),
            found: target.join("corpus").join(&name),
            failures: fuzz.join("artifacts").join(&name),
            log: target.join(format!("{name}.log")),
            executable: built.path.clone(),
            name,
        };
        for folder in [&this.found, &this.failures] {
            fs::create_dir_all(folder)
                .with_context(|| format!("cannot create {}", folder.display()))?;
        }
        Ok(this)
    }

    fn run(&self, extent: Extent) -> Result<String> {
        let log = File::create(&self.log)?;
        let mut command = Command::new(&self.executable);
        command.arg(extent.option()).arg(format!("-max_len={MAX_LEN}"));
        command.args(["-print_final_stats=1", "-timeout=10", "-rss_limit_mb=1024"]);
        command.arg(format!("-artifact_prefix={}/", self.failures.display()));
        command.arg(&self.found).arg(&self.corpus);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let status = command.status().context("cannot start it")?;
        let printed = String::from_utf8_lossy(&fs::read(&self.log)?).into_owned();
        if status.success() {
            return stats(&printed).context("it does not say how much it has tried");
        }
        let Some(input) = failing_input(&printed) else {
            bail!("{status}:\n{}", process::tail(&printed, LOG_LINES));
        };
        bail!(
            "{}\nThe input is kept. Have the tests replay it, now and from now on:\n    \
             cp {} {}/ && cargo test --package probe-user --lib corpus_of_{}",
            process::tail(&printed, LOG_LINES),
            input.display(),
            relative(&self.corpus).display(),
            self.name
        )
    }
}

/// How much was tried, as libFuzzer says in the end.
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

/// A path as one would type it in the clone's root.
fn relative(path: &Path) -> &Path {
    let root = workspace::root();
    path.strip_prefix(&root).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libfuzzers_last_words_are_understood() {
        let printed = "#4\tDONE\nstat::number_of_executed_units: 1234567\n\
            stat::average_exec_per_sec:     411522\nstat::new_units_added: 3\n";
        assert_eq!(stats(printed).unwrap(), "1234567 executions, 411522 a second");
        assert!(stats("Done 4 runs in 1 second(s)\n").is_none());
        let printed =
            "panicked\nartifact_prefix='/x/'; Test unit written to /x/crash-1\nBase64: AA\n";
        assert_eq!(failing_input(printed), Some(Path::new("/x/crash-1")));
    }
}
