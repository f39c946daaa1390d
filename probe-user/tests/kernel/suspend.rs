//! A machine that is suspended: the kernel's own test of that (`pm_test`, `CONFIG_PM_DEBUG`), which suspends everything but
//! the hardware, and resumes.
//!
//! Afterwards, the file systems of a virtual machine do not answer any more: the kernel's 9p does not support suspensions.
//! So `cargo xtask test` runs this module at the end, from memory. It can suspend the machine only once: tasks that wait for
//! a file cannot be frozen.

use crate::adaptive::lull;
use crate::suite::{Log, emit_one_on, online, open};
use probe_testing::skip::skip;
use probe_testing::version::kernel;
use probe_user::Options;
use std::fs;
use std::time::{Duration, Instant};

/// How long a pipe sleeps unless it is woken.
const ASLEEP: Duration = Duration::from_secs(60);

#[test]
#[ignore = "needs a virtual machine: cargo xtask test"]
fn an_idle_pipe_receives_records_of_all_cpus_after_a_suspension() {
    if kernel() > (6, 12) {
        return skip("virtual machines with 7.3 cannot print anything after a suspension");
    }
    // Only at this level do the clocks stop, too, as they do when a machine is really suspended.
    if fs::write("/sys/power/pm_test", "core").is_err() {
        return skip("this kernel cannot test suspensions (CONFIG_PM_DEBUG)");
    }
    let (mut object, mut pipe) = open(&Options::new());
    lull(|wait| assert!(pipe.poll(Some(wait), &mut Log::default()).is_ok()));
    fs::write("/sys/power/state", "mem").unwrap();
    let (mut log, start) = (Log::default(), Instant::now());
    let _ = pipe.poll(Some(ASLEEP), &mut log).unwrap();
    assert!(start.elapsed() < ASLEEP, "it sleeps");
    let cpus = online();
    let changes: Vec<_> = cpus.iter().map(|cpu| format!("CPU {cpu} is online")).collect();
    assert_eq!(log.changes, changes);
    cpus.iter().for_each(|&cpu| emit_one_on(&mut object, cpu));
    while log.received.total() < cpus.len() as u64 {
        let _ = pipe.poll(Some(ASLEEP), &mut log).unwrap();
        assert!(start.elapsed() < ASLEEP, "{:?}", log.received);
    }
    log.received.assert_complete(&cpus, 1);
    assert!(pipe.ledger().unwrap().is_complete());
}
