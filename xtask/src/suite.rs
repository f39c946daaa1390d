//! The tests that need a kernel: one script runs their executables, its output tells the counts.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::libtest::{Counts, failures};
use crate::process::tail;
use crate::run::{Executable, executables};
use crate::workspace::cargo;
use crate::{apt, say, splat};

const MARK: &str = "xtask-suite:";
/// Lines that are shown of an executable that crashed.
const CRASH_LINES: usize = 40;
/// Lines that are shown of a kernel's report.
const SPLAT_LINES: usize = 40;

/// What the names of test executables begin with that need kprobes.
const NEED_KPROBES: [&str; 3] = ["kprobe", "calls", "patterns"];

/// What the names of test executables begin with that are about what happens in user space: one virtual
/// machine runs them.
const OF_USER_SPACE: [&str; 7] =
    ["cli", "discover", "ordered", "output", "perf_script", "recording", "terminal"];

/// What the names of test executables begin with that are about what the tracer does with the kernel, beside the
/// pipe: the oldest kernel and the newest run them.
const OF_EXTREMES: [&str; 12] = [
    "aux_",
    "check",
    "counter",
    "filters",
    "flight_probe",
    "kprobe_stacks",
    "multiplexed",
    "patterns",
    "privileges",
    "sampl",
    "stacks",
    "uprobe",
];

/// What machine the tests run on.
#[derive(Clone, Copy)]
pub(crate) enum Machine {
    /// This one, where nothing may be done to others' work.
    Here {
        /// Its kernel has kprobes.
        kprobes: bool,
    },
    /// One for the tests alone.
    Virtual(Share),
}

/// What a virtual machine runs beyond what each of them does.
#[derive(Clone, Copy)]
pub(crate) struct Share {
    /// What is about user space.
    pub(crate) user_space: bool,
    /// What the oldest kernel and the newest run.
    pub(crate) extremes: bool,
}

impl Machine {
    /// Whether a test executable can run there, by its name.
    fn takes(self, target: &str) -> bool {
        match self {
            Self::Virtual(share) => {
                let is_of = |names: &[&str]| names.iter().any(|begin| target.starts_with(begin));
                (share.user_space || !is_of(&OF_USER_SPACE))
                    && (share.extremes || !is_of(&OF_EXTREMES))
            }
            Self::Here { kprobes } => {
                let needs_kprobes = NEED_KPROBES.iter().any(|begin| target.starts_with(begin));
                !target.starts_with("hotplug") && (kprobes || !needs_kprobes)
            }
        }
    }
}

/// The test executables of probe-user: of its `tests` folder, and the unit tests of its library.
pub(crate) struct Suite {
    executables: Vec<Executable>,
}

impl Suite {
    pub(crate) fn build() -> Result<Self> {
        // Another reader of the kernel's types, to compare ours with.
        apt::install(&["bpftool"])?;
        // What the unit tests take, which are built by now: one package by itself has other features.
        let mut executables = executables(cargo().args(["test", "--no-run"]))?;
        let folder = folder();
        executables.retain(|executable| executable.is_test && executable.package == folder);
        executables.sort_by(|one, other| one.target.cmp(&other.target));
        Ok(Self { executables })
    }

    /// Whether there is nothing to run there.
    pub(crate) fn is_empty(&self, place: Machine) -> bool {
        self.select(place).next().is_none()
    }

    fn select(&self, place: Machine) -> impl Iterator<Item = &Executable> {
        self.executables.iter().filter(move |one| place.takes(&one.target))
    }

    /// Runs every executable, whatever the one before did, and prints the kernel's log last.
    pub(crate) fn script(&self, place: Machine) -> Result<String> {
        let mut script = String::from("exec 2>&1\n");
        // A machine that is emulated has not the time for all.
        let faults = match place {
            Machine::Here { .. } => "all",
            Machine::Virtual(_) => "few",
        };
        writeln!(script, "export PROBE_FAULTS={faults}")?;
        for Executable { target, path, .. } in self.select(place) {
            let path = path.to_str().context("the target folder's path is not UTF-8")?;
            let path = shlex::try_quote(path)?;
            writeln!(script, "echo {MARK} begin {target}")?;
            writeln!(script, "{path} --ignored --test-threads=1 </dev/null")?;
            writeln!(script, r#"printf '\n%s\n' "{MARK} end {target} $?""#)?;
        }
        writeln!(script, "echo {MARK} kernel log\ndmesg")?;
        Ok(script)
    }

    /// Counts what the script printed, and shows what failed.
    pub(crate) fn judge(&self, place: &str, machine: Machine, log: &str) -> Counts {
        let mut counts = Counts::default();
        for Executable { target, .. } in self.select(machine) {
            let (one, why) = judge_one(target, log);
            counts = counts.plus(one);
            if let Some(why) = why {
                say::line(format_args!("{target} failed on {place}:\n{why}"));
            }
        }
        let kernel = log.split_once(&format!("{MARK} kernel log\n")).map_or("", |(_, log)| log);
        counts.plus(judge_kernel(place, kernel))
    }
}

/// Counts a kernel's log as failed if there is a report in it.
pub(crate) fn judge_kernel(place: &str, log: &str) -> Counts {
    let reports = splat::find(log);
    if reports.is_empty() {
        return Counts::default();
    }
    say::line(format_args!(
        "the kernel log of {place} has {} reports:\n{}",
        reports.len(),
        splat::excerpt(log, SPLAT_LINES)
    ));
    Counts { passed: 0, failed: 1 }
}

/// One executable's counts, and what to show of its output if it failed.
fn judge_one(target: &str, log: &str) -> (Counts, Option<String>) {
    let failed = Counts { passed: 0, failed: 1 };
    let Some((_, printed)) = log.split_once(&format!("{MARK} begin {target}\n")) else {
        return (failed, Some("it did not run".to_owned()));
    };
    let end = format!("\n{MARK} end {target} ");
    let (printed, status) = match printed.split_once(&end) {
        Some((printed, rest)) => (printed, rest.lines().next()),
        None => (printed.split(MARK).next().unwrap_or_default(), None),
    };
    match (Counts::of(printed), status) {
        (Some(counts), Some("0")) if counts.failed == 0 => (counts, None),
        (Some(counts), Some(_)) if counts.failed > 0 => {
            (counts, Some(failures(printed).trim_end().to_owned()))
        }
        (counts, status) => {
            let status =
                status.map_or("no exit status".to_owned(), |code| format!("status {code}"));
            let why = format!("it ended with {status}:\n{}", tail(printed, CRASH_LINES));
            (counts.unwrap_or_default().plus(failed), Some(why))
        }
    }
}

/// `probe-user`, where the tests run.
pub(crate) fn folder() -> PathBuf {
    crate::workspace::root().join("probe-user")
}

/// The script as a command.
pub(crate) fn bash(script: &Path) -> Command {
    let mut command = Command::new("bash");
    command.arg(script).current_dir(folder()).env_clear().envs(crate::workspace::environment());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: &str = "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n";

    fn log(target: &str, printed: &str, status: &str) -> String {
        format!("{MARK} begin {target}\n{printed}\n{MARK} end {target} {status}\n")
    }

    #[test]
    fn good_executable_is_counted() {
        let log = log("one", OK, "0") + &log("two", OK, "0");
        assert_eq!(judge_one("two", &log), (Counts { passed: 3, failed: 0 }, None));
    }

    #[test]
    fn failing_tests_are_shown() {
        let printed = "test a ... FAILED\n\nfailures:\n\n---- a stdout ----\nwhy\n\n\
            test result: FAILED. 2 passed; 1 failed; 0 ignored\n";
        let (counts, why) = judge_one("one", &log("one", printed, "101"));
        assert_eq!(counts, Counts { passed: 2, failed: 1 });
        assert!(why.unwrap().starts_with("failures:"));
    }

    #[test]
    fn crash_hang_and_silence_are_failures() {
        let one = Counts { passed: 0, failed: 1 };
        let crashed = log("one", "running 1 test\ntest a ... ", "139");
        assert_eq!(judge_one("one", &crashed).0, one);
        let hung = format!("{MARK} begin one\nrunning 1 test\ntest a ... ");
        assert_eq!(judge_one("one", &hung).0, one);
        assert_eq!(judge_one("one", "").0, one);
        // Tests that passed before the process died count, the death does too.
        let died_late = log("one", OK, "134");
        assert_eq!(judge_one("one", &died_late).0, Counts { passed: 3, failed: 1 });
    }

    #[test]
    fn a_report_of_the_kernel_fails_a_run_whose_tests_passed() {
        let suite = Suite { executables: Vec::new() };
        let here = Machine::Here { kprobes: true };
        let judge = |line: &str| suite.judge("x", here, &format!("{MARK} kernel log\n{line}\n"));
        assert_eq!(judge("[ 1.0] all is well"), Counts::default());
        let hung = "[ 1.0] INFO: task probe:9 blocked for more than 120 seconds.";
        assert_eq!(judge(hung), Counts { passed: 0, failed: 1 });
    }

    #[test]
    fn targets_run_where_they_can() {
        let executable = |target: &str| Executable {
            package: folder(),
            target: target.to_owned(),
            is_test: true,
            path: format!("/t/{target}-1").into(),
        };
        const NAMES: [&str; 5] = ["hotplug", "kprobe_args", "pipe", "recording", "sampler"];
        let suite = Suite { executables: NAMES.map(executable).into() };
        let run = |place| {
            let script = suite.script(place).unwrap();
            NAMES.map(|one| script.contains(&format!("/t/{one}-1 ")))
        };
        let vm = |user_space, extremes| run(Machine::Virtual(Share { user_space, extremes }));
        assert_eq!(vm(true, true), [true; 5]);
        assert_eq!(vm(true, false), [true, true, true, true, false]);
        assert_eq!(vm(false, true), [true, true, true, false, true]);
        assert_eq!(run(Machine::Here { kprobes: true }), [false, true, true, true, true]);
        assert_eq!(run(Machine::Here { kprobes: false }), [false, false, true, true, true]);
        assert!(!suite.is_empty(Machine::Here { kprobes: false }));
    }
}
