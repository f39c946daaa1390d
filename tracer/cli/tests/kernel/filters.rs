//! Filters of the binary `probe`: which tasks it reports.

use crate::probe::commands::{requested_work, shell, workload as workload_of, writes};
use crate::probe::{assert_exit, assert_failure, events, probe, stdout, trace_shell};
use probe_testing::cgroup::Cgroup;
use probe_testing::skip::skip;
use probe_testing::version;
use std::path::Path;

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn filters_hold_for_every_probe() {
    let probes = ["rawtp:sched_process_exec", "rawtp:sched_process_exit/cpu >= 0/"];
    // The number of events, and how many of them are of `true`.
    let count = |filter: [&str; 2]| {
        let script = shell("/bin/true; /bin/cat /dev/null; exit 0");
        let events = events(probes.into_iter().chain(filter), script);
        (events.len(), events.iter().filter(|event| event["comm"] == "true").count())
    };
    let uid = rustix::process::getuid().as_raw();
    assert_eq!(count(["-n", "true"]), (2, 2));
    assert_eq!(count(["-n", "tru"]).0, 0);
    assert_eq!(count(["-u", &uid.to_string()]).1, 2);
    assert_eq!(count(["-u", &(uid + 1).to_string()]).0, 0);
}

#[test]
#[ignore = "a workload that tests trace"]
fn workload() {
    if requested_work() != "ring" {
        return;
    }
    // `struct io_uring_params`, of which only the flags matter: a thread of the kernel polls the ring.
    const IORING_SETUP_SQPOLL: u32 = 1 << 1;
    let mut parameters = [0_u32; 30];
    parameters[2] = IORING_SETUP_SQPOLL;
    // SAFETY: the kernel reads and writes the parameters, which are as long as it expects.
    let ring = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, &raw mut parameters) };
    assert!(ring >= 0, "{}", std::io::Error::last_os_error());
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn threads_that_the_kernel_creates_for_a_descendant_are_followed() {
    let is_off = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled");
    if version::kernel() < (5, 12) || is_off.is_ok_and(|off| off.trim() != "0") {
        return skip("this kernel has no threads of io_uring");
    }
    // The thread names itself.
    let renamed = "tracepoint:task:task_rename(newcomm)/newcomm ~ \"iou-sqp*\"/";
    let command = ["sh", "-c", "\"$@\"; true", "sh"].map(str::to_owned).into_iter();
    let events = events([renamed], command.chain(workload_of("filters", "ring")));
    assert_eq!(events.len(), 1, "{events:?}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn filters_are_about_the_current_task() {
    // Its fields `comm` and `pid` are those of the process that gets the signal: `probe` itself, which ignores it.
    let probe = "tracepoint:signal:signal_generate(sig, comm, pid, $comm, task=$pid)/sig == 28 && $comm == \"sh\"/";
    let script = || shell("kill -WINCH $PPID; exit 0");
    let events = events([probe, "-n", "sh"], script());
    let [event] = &events[..] else { panic!("{events:#?}") };
    let args = &event["args"];
    assert_eq!((&args["comm"], &args["$comm"]), (&"probe".into(), &"sh".into()));
    assert_eq!(args["task"], event["pid"]);
    assert_ne!(args["pid"], event["pid"]);
    assert_eq!(self::events([probe, "-n", "probe"], script()).len(), 0);
}

const WRITES: &str = "tracepoint:syscalls:sys_enter_write(count)/comm == \"dd\"/";

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_cgroup_and_its_descendants_are_traced() {
    let cgroup = Cgroup::new("probe-test");
    let writes = |count| writes(count).join(" ");
    let within = |path: &Path, count| {
        format!("sh -c 'echo $$ > {}/cgroup.procs; exec {}'; ", path.display(), writes(count))
    };
    let (outer, inner) = (cgroup.path(), cgroup.inner());
    let script = writes(3) + "; " + &within(&outer, 5) + &within(&inner, 70) + "exit 0";
    let count = |cgroup: &Path| {
        events([WRITES, "--cgroup", cgroup.to_str().unwrap()], shell(&script)).len()
    };
    assert_eq!(count(&outer), 75);
    assert_eq!(count(&inner), 70);
    assert_eq!(count(cgroup.root()), 78);
    let trace = |path| probe(["trace", WRITES, "--cgroup", path]);
    let expected = "cannot trace the cgroup /no/such/cgroup: No such";
    assert_failure(&mut trace("/no/such/cgroup"), expected);
    assert_failure(&mut trace("/proc"), "it has to be a directory of the cgroup v2 file system");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn children_of_a_process_are_traced_on_request() {
    let [many, few] = [30, 4].map(|count| writes(count).join(" "));
    let script = format!("{many}; ({few}; true); exit 0");
    for (args, expected) in [(&[WRITES, "--children"][..], 34), (&[WRITES], 0)] {
        let output = trace_shell(args, &script);
        assert_eq!(stdout(&output).lines().count(), expected, "{args:?}");
    }
    assert_exit(&mut probe(["trace", WRITES, "--children"]), 2, "--pid <PID,...>");
}
