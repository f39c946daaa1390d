//! Memory and descriptors that `probe` keeps while processes, mappings and addresses come and go.

use crate::probe::churn::Churn;
use crate::probe::{Run, stderr};
use rustix::process::Signal;
use std::fs;
use std::thread::sleep;
use std::time::Duration;

/// A phase brings names of 23 MiB and mappings of 19 MiB.
const PROCESSES: u32 = 48;

/// What a phase may add, in KiB: much less than either.
const MORE: u64 = 12 << 10;

#[test]
#[ignore = "needs root: cargo xtask test"]
fn what_sample_keeps_is_limited() {
    assert_limited(&["sample", "-e", "syscalls:sys_enter_getpgid", "-c", "1", "-f", "folded"]);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn what_stack_keeps_is_limited() {
    assert_limited(&["stack", "-U", "-F", "folded", "tracepoint:syscalls:sys_enter_getpgid"]);
}

/// The first phase fills what is limited. Each of the others brings as much again.
fn assert_limited(args: &[&str]) {
    const PHASES: u32 = 4;
    let churn = Churn::compile();
    let command = churn.command(PROCESSES, PHASES);
    let args = args.iter().map(|&arg| arg.to_owned());
    let run = Run::spawn(args.chain(["--".to_owned()]).chain(command));
    let mut kept = Vec::new();
    for phase in 1..=PHASES {
        let process = churn.wait_for(phase);
        kept.push(Kept::by(run.child.id()));
        rustix::process::kill_process(process, Signal::USR1).unwrap();
    }
    let output = run.finish();
    let printed = stderr(&output);
    assert!(output.status.success(), "{printed}");
    // Without names, nothing would be kept.
    let folded = String::from_utf8_lossy(&output.stdout);
    let named = folded.lines().filter(|line| line.contains(&churn.function()));
    let hits: u32 =
        named.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u32>().unwrap()).sum();
    assert!(hits > PHASES * PROCESSES * 9 / 10, "{hits} of {}: {printed}", PHASES * PROCESSES);
    let [_, second, _, last] = kept.try_into().unwrap();
    assert!(last.memory < second.memory + MORE, "{second:?} {last:?}");
    // One or two are open only for a moment.
    assert!(last.descriptors <= second.descriptors + 2, "{second:?} {last:?}");
    assert!(last.mappings <= second.mappings + 4, "{second:?} {last:?}");
}

/// What a process has.
#[derive(Debug)]
struct Kept {
    /// In KiB.
    memory: u64,
    descriptors: usize,
    mappings: usize,
}

impl Kept {
    /// Waits until the process has nothing to do.
    fn by(pid: u32) -> Self {
        let (mut before, mut now) = (u64::MAX, processor_time(pid));
        while now > before.saturating_add(1) || before == u64::MAX {
            sleep(Duration::from_millis(500));
            (before, now) = (now, processor_time(pid));
        }
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let memory = memory.trim().trim_end_matches(" kB").parse().unwrap();
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
        let mappings = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap().lines().count();
        Self { memory, descriptors, mappings }
    }
}

/// The processor time that a process has used, in ticks.
fn processor_time(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    fields.split(' ').skip(11).take(2).map(|ticks| ticks.parse::<u64>().unwrap()).sum()
}
