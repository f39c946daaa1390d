//! What test executables print.

use std::io::{self, Write};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

/// Sums of libtest's `test result:` lines.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: u32,
    pub(crate) failed: u32,
}

impl Counts {
    /// Of all `test result:` lines of a text; nothing when it has none.
    pub(crate) fn of(text: &str) -> Option<Self> {
        text.lines().filter_map(Self::of_line).reduce(Self::plus)
    }

    fn of_line(line: &str) -> Option<Self> {
        // A test that prints no newline at its end has the result on its own last line.
        let (_, result) = line.split_once("test result: ")?;
        let count = |what: &str| {
            let words = result.split([' ', ';', '.']).filter(|word| !word.is_empty());
            let words = words.collect::<Vec<_>>();
            words.windows(2).find(|pair| pair[1] == what)?[0].parse().ok()
        };
        Some(Self { passed: count("passed")?, failed: count("failed")? })
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self { passed: self.passed + other.passed, failed: self.failed + other.failed }
    }
}

/// Runs a command that runs tests, and shows what it printed if any of them failed.
pub(crate) fn run(command: &mut Command) -> Result<Counts> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let name = command.get_program().to_string_lossy();
    let output = child.with_context(|| format!("cannot start {name}"))?.wait_with_output()?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let mut counts = Counts::of(&printed).unwrap_or_default();
    if !output.status.success() {
        io::stderr().write_all(printed.as_bytes())?;
        counts.failed = counts.failed.max(1);
    }
    Ok(counts)
}

/// The part of an executable's output that tells why tests failed.
pub(crate) fn failures(text: &str) -> &str {
    text.find("\nfailures:\n").map_or(text, |at| &text[at + 1..])
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
        assert_eq!(Counts::of(text), Some(Counts { passed: 12, failed: 3 }));
        assert_eq!(Counts::of("running 2 tests\ntest a ... "), None);
        assert_eq!(Counts::of("test result: nonsense"), None);
    }

    #[test]
    fn failures_begin_where_libtest_says() {
        let text = "test a ... FAILED\n\nfailures:\n\n---- a stdout ----\npanicked\n";
        assert!(failures(text).starts_with("failures:\n\n---- a"));
        assert_eq!(failures("died"), "died");
    }
}
