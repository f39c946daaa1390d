//! The traced program: `dd`, which writes byte by byte and reports its run time.

use super::child::Measured;
use anyhow::{Context, Result};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The full path, which bpftrace requires.
const DD: &str = "/bin/dd";

/// A command that makes `writes` writes to `/dev/null`.
pub(super) fn command(writes: u64) -> Vec<String> {
    let mut words = endless();
    words.push(format!("count={writes}"));
    words
}

/// The same command without a limit.
pub(super) fn endless() -> Vec<String> {
    [DD, "if=/dev/zero", "of=/dev/null", "bs=1"].map(str::to_owned).to_vec()
}

/// What a number of writes cost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Took {
    /// Run time by dd's own clock.
    pub(super) elapsed: Duration,
    pub(super) cpu: Duration,
}

/// Runs dd for `writes` writes. Its report goes to the file `stderr`.
pub(super) fn run(writes: u64, stderr: &Path) -> Result<Took> {
    let words = command(writes);
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null());
    let ended = Measured::start(command.stderr(File::create(stderr)?))?.end()?;
    let elapsed = elapsed(&fs::read_to_string(stderr)?).context("no time from dd")?;
    Ok(Took { elapsed, cpu: ended.cpu })
}

/// The run time that dd reports on standard error, possibly between other output. dd measures from
/// before its first read to after its last write, by the monotonic clock.
pub(super) fn elapsed(stderr: &str) -> Option<Duration> {
    let (_, after) = stderr.rsplit_once(" copied, ")?;
    let (seconds, _) = after.split_once(" s")?;
    Duration::try_from_secs_f64(seconds.parse().ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_found_between_other_output() {
        let stderr = "ERROR: couldn't set RLIMIT_MEMLOCK\n\
            1000000+0 records in\n1000000+0 records out\n\
            1000000 bytes (1.0 MB, 977 KiB) copied, 0.287681 s, 3.5 MB/s\n\
            [ perf record: Woken up 365 times to write data ]\n";
        assert_eq!(elapsed(stderr), Some(Duration::from_nanos(287_681_000)));
        assert_eq!(
            elapsed("1 byte copied, 3.8881e-05 s, 25.7 kB/s"),
            Some(Duration::from_nanos(38_881))
        );
        assert_eq!(elapsed("1000000 bytes copied, 11 s, 89.1 kB/s"), Some(Duration::from_secs(11)));
        assert_eq!(elapsed("dd: failed to open '/dev/zero'"), None);
        assert_eq!(elapsed("1 byte copied, soon"), None);
    }
}
