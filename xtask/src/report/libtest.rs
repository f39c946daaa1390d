//! The output of test executables: counts, skipped tests, failures.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::workspace::environment;
use crate::{process, say};

/// Sums of libtest's `test result:` lines. A skipped test does not count as passed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u32,
    pub(crate) failed: u32,
    pub(crate) skipped: u32,
}

impl Counts {
    /// One success.
    pub(crate) const PASSED: Self = Self { passed: 1, failed: 0, skipped: 0 };
    /// One failure.
    pub(crate) const FAILED: Self = Self { passed: 0, failed: 1, skipped: 0 };

    /// Tests that could not run.
    pub(crate) fn skipped(tests: usize) -> Self {
        Self { skipped: u32::try_from(tests).unwrap_or(u32::MAX), ..Self::default() }
    }

    /// Sums all `test result:` lines of a text. `None` if there are none.
    pub(crate) fn of(text: &str) -> Option<Self> {
        let mut counts = text.lines().filter_map(Self::of_line).reduce(Self::plus)?;
        counts.skipped = u32::try_from(skipped(text).count()).ok()?.min(counts.passed);
        counts.passed -= counts.skipped;
        Some(counts)
    }

    fn of_line(line: &str) -> Option<Self> {
        // The result follows on the same line if the last test's output has no final newline.
        let (_, result) = line.split_once("test result: ")?;
        let count = |what: &str| {
            let words = result.split([' ', ';', '.']).filter(|word| !word.is_empty());
            let words = words.collect::<Vec<_>>();
            words.windows(2).find(|pair| pair[1] == what)?[0].parse().ok()
        };
        Some(Self { passed: count("passed")?, failed: count("failed")?, skipped: 0 })
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            passed: self.passed + other.passed,
            failed: self.failed + other.failed,
            skipped: self.skipped + other.skipped,
        }
    }
}

/// The tests that were skipped, with the reason. libtest reports them as passed; their output, which `--show-output`
/// includes, has a line that begins with `skipped: `.
pub(crate) fn skipped(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut lines = text.lines();
    let mut test = None;
    std::iter::from_fn(move || {
        for line in lines.by_ref() {
            if let Some(name) = line.strip_prefix("---- ") {
                test = name.strip_suffix(" stdout ----");
            } else if line.starts_with("test result: ") || line == "failures:" {
                test = None;
            } else if let Some(why) = line.strip_prefix("skipped: ")
                && let Some(test) = test.take()
            {
                return Some((test, why));
            }
        }
        None
    })
}

/// Prints which tests were skipped, and why.
pub(crate) fn report_skipped(machine: &str, text: &str) {
    let mut reasons = BTreeMap::<_, Vec<_>>::new();
    for (test, why) in skipped(text) {
        reasons.entry(why).or_default().push(test);
    }
    for (why, tests) in reasons {
        let tests = tests.join(", ");
        say::line(format_args!("skipped on {machine} because {why}: {tests}"));
    }
}

/// Runs a test command, and shows the failures.
pub(crate) fn run(command: &mut Command) -> Result<Counts> {
    // A backtrace for each panic that a test catches would bury everything else.
    command.env("RUST_BACKTRACE", "0");
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let name = command.get_program().to_string_lossy();
    let output = child.with_context(|| format!("cannot start {name}"))?.wait_with_output()?;
    let printed = String::from_utf8_lossy(&output.stdout);
    report_skipped("this machine", &printed);
    let mut counts = Counts::of(&printed).unwrap_or_default();
    if !output.status.success() {
        io::stderr().write_all(failures(&printed).as_bytes())?;
        counts.failed = counts.failed.max(1);
    }
    Ok(counts)
}

/// Lists the `#[ignore]`d tests of an executable, such as `module::name: test`, each on a line.
pub(crate) fn list_ignored(executable: &Path) -> Result<String> {
    let mut list = Command::new(executable);
    list.args(["--ignored", "--list", "--format", "terse"]);
    process::read(list.env_clear().envs(environment()))
}

/// What explains the failures in the output of executables: all of it if no test is known to have failed.
pub(crate) fn failures(text: &str) -> String {
    const BEGIN: &str = "\nfailures:\n";
    let mut parts = String::new();
    let mut rest = text;
    while let Some((_, failures)) = rest.split_once(BEGIN) {
        let end = failures.find("\ntest result: ").map_or(failures.len(), |at| at + 1);
        parts += &BEGIN[1..];
        parts += &failures[..end];
        rest = &failures[end..];
    }
    if parts.is_empty() { text.to_owned() } else { parts }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_summed() {
        let text = "running 2 tests\ntest a ... ok\n\n\
            test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
            running 1 test\n\
            xtest result: FAILED. 10 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.20s\n";
        assert_eq!(Counts::of(text), Some(Counts { passed: 12, failed: 3, skipped: 0 }));
        assert_eq!(Counts::of("running 2 tests\ntest a ... "), None);
        assert_eq!(Counts::of("test result: nonsense"), None);
    }

    #[test]
    fn skipped_tests_do_not_count_as_passed() {
        let text = "running 3 tests\ntest a ... ok\ntest b ... ok\ntest c ... ok\n\nsuccesses:\n\n\
            ---- a stdout ----\nskipped: no PMU\nskipped: again\n\n\
            ---- b::d stdout ----\nthis was not skipped: it ran\n\n\nsuccesses:\n    a\n    b::d\n\n\
            test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\nskipped: outside of a test\n";
        assert_eq!(Counts::of(text), Some(Counts { passed: 2, failed: 0, skipped: 1 }));
        assert_eq!(skipped(text).collect::<Vec<_>>(), [("a", "no PMU")]);
    }

    #[test]
    fn failures_are_found_in_the_output() {
        let of_a = "failures:\n\n---- a stdout ----\npanicked\n\nfailures:\n    a\n\n";
        let of_c = "failures:\n\n---- c stdout ----\nfatal\n";
        let text = format!(
            "test a ... FAILED\n\nsuccesses:\n\n---- b stdout ----\nnoise\n\n{of_a}\
             test result: FAILED. 1 passed; 1 failed\n\nrunning 1 test\nnoise\n\n{of_c}"
        );
        assert_eq!(failures(&text), format!("{of_a}{of_c}"));
        assert_eq!(failures("died"), "died");
    }
}
