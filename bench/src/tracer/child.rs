//! A measured process: run time, CPU time and peak memory.

use crate::machine::peak_kib;
use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::fs;
use std::process::{Child, ChildStdout, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Polling interval. Memory allocated later than this before the exit is not seen.
const LOOK: Duration = Duration::from_millis(20);
/// A process that has not exited by then gets SIGTERM. Python may lose a Ctrl-C that arrives during
/// a callback from C, and never sees one if it was started with SIGINT ignored.
const PATIENCE: Duration = Duration::from_secs(3);
/// Only a hung process takes this long; it is killed.
const LIMIT: Duration = Duration::from_secs(180);

pub(super) struct Measured {
    child: Child,
    pid: Pid,
    pub(super) started: Instant,
    watch: Option<Watch>,
}

/// The measurements of a process that has exited.
pub(super) struct Ended {
    at: Instant,
    /// Wall time, measured from before the start.
    pub(super) wall: Duration,
    /// CPU time of the process and its reaped children, in clock ticks of usually 10 ms.
    pub(super) cpu: Duration,
    pub(super) children_cpu: Duration,
    /// Peak resident memory, in KiB.
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

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn stdout(&mut self) -> Result<ChildStdout> {
        self.child.stdout.take().context("its standard output is not piped")
    }

    /// Sends SIGINT, as Ctrl-C does, and waits for the exit. Also returns how long that took. Fails if the process has ended by
    /// itself.
    pub(super) fn stop(self) -> Result<(Ended, Duration)> {
        ensure!(!self.has_ended()?, "the tracer ended by itself");
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

    /// Waits for the exit.
    pub(super) fn end(mut self) -> Result<Ended> {
        // The process stays a zombie for now, because its cost is read from /proc.
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
        // After a failed measurement the process still runs; otherwise it has been reaped.
        if self.watch.is_some() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// A thread that watches a process until it exits: its memory, and whether it reacts to SIGINT.
struct Watch {
    thread: JoinHandle<u64>,
    asked: Arc<AtomicBool>,
}

impl Watch {
    fn start(pid: Pid) -> Self {
        let asked = Arc::new(AtomicBool::new(false));
        let sees = asked.clone();
        Self { thread: thread::spawn(move || look(pid, &sees)), asked }
    }

    /// SIGINT has been sent.
    fn asked(&self) {
        self.asked.store(true, Ordering::Relaxed);
    }

    /// Peak resident memory in KiB, read after the exit and before the process is reaped.
    fn peak_kib(self) -> u64 {
        self.thread.join().unwrap_or_default()
    }
}

fn look(pid: Pid, asked: &AtomicBool) -> u64 {
    let status = format!("/proc/{}/status", pid.as_raw_pid());
    let started = Instant::now();
    let mut since = None;
    let mut peak = 0;
    while let Some(kib) = fs::read_to_string(&status).ok().as_deref().and_then(peak_kib) {
        peak = peak.max(kib);
        // A failure means that the process has just exited.
        if started.elapsed() >= LIMIT {
            let _ = kill_process(pid, Signal::KILL);
        } else if asked.load(Ordering::Relaxed) {
            let since = since.get_or_insert_with(Instant::now);
            if since.elapsed() >= PATIENCE {
                let _ = kill_process(pid, Signal::TERM);
            }
        }
        thread::sleep(LOOK);
    }
    peak
}

fn seconds(ticks: u64) -> Duration {
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

/// `utime + stime` and `cutime + cstime` from `/proc/PID/stat`. The name before them may contain
/// anything, including `)`.
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
