//! The processor time of a command and its descendants, including those that outlive it.

use anyhow::{Context, Result, ensure};
use rustix::io::Errno;
use rustix::process::{WaitOptions, getpid, set_child_subreaper, wait};
use std::ffi::OsString;
use std::process::{Command, Stdio};
use std::time::Duration;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The command
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    words: Vec<OsString>,
}

impl Args {
    /// Prints the time in microseconds. This process has no other children.
    pub(crate) fn run(&self) -> Result<()> {
        println!("{}", of(&self.words)?.as_micros());
        Ok(())
    }
}

/// Runs a command. No other children of this process may exist.
fn of(words: &[OsString]) -> Result<Duration> {
    // Processes that are left behind become children of this one.
    set_child_subreaper(Some(getpid()))?;
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null());
    let mut child =
        command.spawn().with_context(|| format!("cannot start {}", words[0].display()))?;
    let status = child.wait()?;
    ensure!(status.success(), "{} failed: {status}", words[0].display());
    loop {
        match wait(WaitOptions::empty()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::CHILD) => return Ok(of_children()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// The processor time of all children that have been waited for, and of theirs.
fn of_children() -> Duration {
    // SAFETY: zeros are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes only there.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    let of = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
    };
    of(usage.ru_utime) + of(usage.ru_stime)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::env;

    const SCRIPT: &str = "PROBE_BENCH_SCRIPT";

    /// The test runs itself in a process that has no other children.
    #[test]
    fn processes_that_a_command_leaves_behind_are_counted() {
        if let Some(script) = env::var_os(SCRIPT) {
            let time = of(&["sh".into(), "-c".into(), script]).unwrap();
            println!("\ntime {}", time.as_micros());
            return;
        }
        let of = |script: &str| {
            let name = "sampling::time::tests::processes_that_a_command_leaves_behind_are_counted";
            let mut command = Command::new(env::current_exe().unwrap());
            let output = command.args([name, "--exact", "--nocapture"]).env(SCRIPT, script);
            let printed = String::from_utf8(output.output().unwrap().stdout).unwrap();
            let time = printed.lines().find_map(|line| line.strip_prefix("time "));
            time.unwrap_or_else(|| panic!("{printed}")).parse::<u64>().unwrap()
        };
        let busy = "i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done";
        let (waited, left) = (of(busy), of(&format!("({busy}) & exit 0")));
        assert!(left > waited / 3, "{left} {waited}");
        assert!(of("true") < waited / 3, "{waited}");
    }
}
