//! A process that is measured: how long it runs, what it costs, how much memory it has at most.

use super::watch::{LIMIT, Watch};
use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::fs;
use std::process::{Child, ChildStdout, Command};
use std::time::{Duration, Instant};

pub(super) struct Measured {
    child: Child,
    pid: Pid,
    started: Instant,
    watch: Option<Watch>,
}

/// What is known of one that has ended.
pub(super) struct Ended {
    at: Instant,
    /// From before it was started.
    pub(super) wall: Duration,
    /// Its own CPU time, and that of the children it has waited for: by the clock tick, 10 ms mostly.
    pub(super) cpu: Duration,
    pub(super) children_cpu: Duration,
    /// The most that was resident, in KiB.
    pub(super) peak_kib: u64,
    pub(super) success: bool,
}

impl Measured {
    pub(super) fn start(command: &mut Command) -> Result<Self> {
        let started = Instant::now();
        let child = command
            .env("LC_ALL", "C")
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        let pid = Pid::from_child(&child);
        let watch = Some(Watch::start(pid));
        Ok(Self { child, pid, started, watch })
    }

    pub(super) fn started(&self) -> Instant {
        self.started
    }

    pub(super) fn stdout(&mut self) -> Result<ChildStdout> {
        self.child.stdout.take().context("its output was to be piped")
    }

    /// Asks it to end, as Ctrl-C does, and waits until it has; also tells how long that took.
    pub(super) fn stop(self) -> Result<(Ended, Duration)> {
        let asked = Instant::now();
        kill_process(self.pid, Signal::INT)?;
        self.watch.iter().for_each(Watch::asked);
        let ended = self.end()?;
        let took = ended.at - asked;
        Ok((ended, took))
    }

    pub(super) fn has_ended(&self) -> Result<bool> {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        Ok(waitid(WaitId::Pid(self.pid), options)?.is_some())
    }

    /// Waits until it has ended.
    pub(super) fn end(mut self) -> Result<Ended> {
        // It is left to be reaped, since what it cost is read from /proc.
        waitid(WaitId::Pid(self.pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)?;
        let at = Instant::now();
        let wall = at - self.started;
        let peak_kib = self.watch.take().map(Watch::peak_kib).unwrap_or_default();
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid.as_raw_pid()))?;
        let [own, children] = cpu_ticks(&stat).context("/proc/PID/stat has no CPU time")?;
        let status = self.child.wait()?;
        if wall >= LIMIT {
            bail!("did not end within {} s", LIMIT.as_secs());
        }
        Ok(Ended {
            at,
            wall,
            cpu: seconds(own),
            children_cpu: seconds(children),
            peak_kib,
            success: status.success(),
        })
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        // Where a measurement failed, it runs still; where it did not, it has been reaped.
        if self.watch.is_some() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn seconds(ticks: u64) -> Duration {
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// `utime` and `stime` of `/proc/PID/stat`, and `cutime` and `cstime`, behind a name that may have anything
/// in it.
fn cpu_ticks(stat: &str) -> Option<[u64; 2]> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some([next()? + next()?, next()? + next()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_read_behind_any_name() {
        let stat = "7 (a) b c) Z 1 7 7 0 -1 4 100 200 0 0 28 64 500 600 20 0 3 0 1 2 3";
        assert_eq!(cpu_ticks(stat), Some([28 + 64, 500 + 600]));
        assert_eq!(cpu_ticks("7 (a) Z 1"), None);
    }

    #[test]
    fn children_are_measured_to_their_end() {
        let mut command = Command::new("sh");
        let ended =
            Measured::start(command.args(["-c", "sleep 0.1; exit 3"])).unwrap().end().unwrap();
        assert!(!ended.success);
        assert!(ended.peak_kib > 0);
        assert!(ended.wall >= Duration::from_millis(100));
    }
}
