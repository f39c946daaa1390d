//! Whose hits the binary `probe` tells.

mod cgroup;
mod probe;

use cgroup::Cgroup;
use probe::{Run, assert_failure, events, probe as run, stderr};
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn filters_hold_for_every_probe() {
    let probes = ["rawtp:sched_process_exec", "rawtp:sched_process_exit/cpu >= 0/"];
    let script = ["sh", "-c", "/bin/true; /bin/cat /dev/null; exit 0"];
    let count = |filters: &[&str]| {
        let args: Vec<_> = probes.iter().chain(filters).copied().collect();
        events(&args, &script).iter().filter(|event| event["comm"] == "true").count()
    };
    let all = |filters: &[&str]| {
        let args: Vec<_> = probes.iter().chain(filters).copied().collect();
        events(&args, &script).len()
    };
    assert_eq!((count(&["-n", "true"]), all(&["-n", "true"])), (2, 2));
    assert_eq!(all(&["-n", "tru"]), 0);
    let uid = rustix::process::getuid().as_raw();
    assert_eq!(count(&["-u", &uid.to_string()]), 2);
    assert_eq!(all(&["-u", &(uid + 1).to_string()]), 0);
    assert_eq!(all(&["-t", "1"]), 0);
}

/// Writes of one byte by `dd`, so many of them.
fn writes(count: u32) -> String {
    format!("dd if=/dev/zero of=/dev/null bs=1 count={count} status=none")
}

const WRITES: &str = "tracepoint:syscalls:sys_enter_write(count)/comm == \"dd\"/";

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_cgroup_is_traced_and_what_is_in_it() {
    let cgroup = Cgroup::new("probe-test");
    let within = |path: &Path, count| {
        format!("sh -c 'echo $$ > {}/cgroup.procs; exec {}'; ", path.display(), writes(count))
    };
    let (outer, inner) = (cgroup.path(), cgroup.inner());
    let script = writes(3) + "; " + &within(&outer, 5) + &within(&inner, 70) + "exit 0";
    let count = |cgroup: &Path| {
        events(&[WRITES, "--cgroup", cgroup.to_str().unwrap()], &["sh", "-c", &script]).len()
    };
    assert_eq!(count(&outer), 75);
    assert_eq!(count(&inner), 70);
    assert_eq!(count(cgroup.root()), 78);
    let trace = |path| run(["trace", WRITES, "--cgroup", path]);
    assert_failure(
        &mut trace("/no/such/cgroup"),
        "cannot trace the cgroup /no/such/cgroup: No such",
    );
    assert_failure(&mut trace("/proc"), "a directory of the cgroup v2 file system is wanted");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn children_of_a_process_are_followed_if_one_says_so() {
    let count = |more: &[&str]| {
        let script = format!("read go; {}; ({}; true); exit 0", writes(30), writes(4));
        let mut traced =
            Command::new("sh").args(["-c", &script]).stdin(Stdio::piped()).spawn().unwrap();
        let pid = traced.id().to_string();
        let mut trace = Run::start(&[&["trace", WRITES, "-p", &pid][..], more].concat());
        trace.wait_for_heading();
        drop(traced.stdin.take());
        traced.wait().unwrap();
        let output = trace.finish();
        assert!(output.status.success(), "{}", stderr(&output));
        probe::stdout(&output).lines().count()
    };
    assert_eq!(count(&["--children"]), 34);
    assert_eq!(count(&[]), 0);
    let alone = run(["trace", WRITES, "--children"]).output().unwrap();
    assert!(stderr(&alone).contains("--pid <PID>"), "{}", stderr(&alone));
}
