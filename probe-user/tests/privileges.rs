//! With which privileges `probe` traces, and which it has left while it does.

mod probe;

use probe::busy::Busy;
use probe::chain::Chain;
use probe::unprivileged::{
    BPF, CHECKPOINT_RESTORE, DAC_READ_SEARCH, IPC_LOCK, KILL, MEMLOCK, NotParanoid, PERFMON,
    SYS_ADMIN, SYS_PTRACE, with_capabilities, with_two_capabilities,
};
use probe::version::kernel;
use probe::{Run, probe, stderr, stdout};
use rustix::process::Signal;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};

const EXEC: &str = "tracepoint:sched:sched_process_exec";

fn mask(capabilities: &[u32]) -> u64 {
    capabilities.iter().fold(0, |mask, number| mask | 1 << number)
}

/// What a thread may do: its effective capabilities, which have to be its permitted ones, too.
fn capabilities(status: &str) -> u64 {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    };
    assert_eq!(field("CapEff:"), field("CapPrm:"), "{status}");
    assert_eq!((field("CapInh:"), field("CapAmb:")), (0, 0), "{status}");
    assert_eq!(field("NoNewPrivs:"), 1, "{status}");
    field("CapEff:")
}

/// What each thread of a process may do, with its name, which is that of the process at first.
fn of_threads(pid: u32) -> Vec<(String, u64)> {
    let read = |file: &str, task: &fs::DirEntry| fs::read_to_string(task.path().join(file));
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    tasks
        .map(Result::unwrap)
        .map(|task| {
            let name = read("comm", &task).unwrap().trim().to_owned();
            (name, capabilities(&read("status", &task).unwrap()))
        })
        .collect()
}

/// What a trace is seen to have.
struct Look {
    threads: Vec<(String, u64)>,
    memory_is_limited: bool,
    output: Output,
}

/// Runs a trace of executions, looks at it while it runs, and ends it. It has to tell of what was
/// executed meanwhile, and to know what became of every record.
fn look_at(args: &[&str]) -> Look {
    let execute = || assert!(Command::new("/bin/true").status().unwrap().success());
    let is_told = |text: &str| text.contains("filename=\"/bin/true\"");
    let mut run = Run::start(args);
    run.wait_for_heading();
    execute();
    let mut line = String::new();
    while !is_told(&line) {
        line.clear();
        assert_ne!(run.stdout.read_line(&mut line).unwrap(), 0);
    }
    // Events come when all of its threads have been started.
    let threads = of_threads(run.child.id());
    let memory_is_limited = memory_is_limited(run.child.id());
    execute();
    run.signal(Signal::INT);
    let output = run.finish();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(is_told(&stdout(&output)), "{}", stdout(&output));
    assert!(stderr(&output).contains(" + lost 0; complete"), "{}", stderr(&output));
    Look { threads, memory_is_limited, output }
}

/// Whether a process may lock some memory alone. Before 5.11, where maps count as locked memory, aya has lifted the
/// limit of those that have maps.
fn memory_is_limited(pid: u32) -> bool {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let memory = limits.lines().find(|line| line.starts_with("Max locked memory")).unwrap();
    !memory.contains("unlimited")
}

/// What the threads of `probe sample` may do, but for the one that looks symbols up, which has what that takes.
fn of_sampling(args: &[&str]) -> (Vec<u64>, bool) {
    let run = Run::start(&[&["sample", "-F", "99"][..], args].concat());
    run.wait_for_thread("duration");
    // One that was started early may still wait for its first turn, with what it was started with. What is wrong
    // for longer is seen below.
    let has_given_up = |status: &String| status.contains("NoNewPrivs:\t1");
    run.wait_for_threads("status", |statuses| statuses.iter().all(has_given_up));
    let mut threads = of_threads(run.child.id());
    let memory_is_limited = memory_is_limited(run.child.id());
    run.signal(Signal::TERM);
    let output = run.finish();
    assert!(matches!(output.status.code(), Some(0 | 143)), "{}", stderr(&output));
    let at = threads.iter().position(|thread| thread.0 == "symbols").unwrap();
    let mut of_symbols = mask(&[SYS_PTRACE, DAC_READ_SEARCH]);
    if kernel() >= (5, 9) {
        of_symbols |= mask(&[CHECKPOINT_RESTORE]);
    }
    assert_eq!(threads.remove(at).1, of_symbols, "{of_symbols:x}");
    (threads.into_iter().map(|thread| thread.1).collect(), memory_is_limited)
}

/// Whether this kernel opens perf events for `CAP_PERFMON`.
fn perfmon_is_enough() -> bool {
    let args = ["trace", "rawtp:sched_process_exec", "-B4K", "-d1ms"];
    with_two_capabilities(MEMLOCK, &args).output().unwrap().status.success()
}

/// What calls of `bpf(2)` take that create nothing.
fn needed_by_bpf() -> u64 {
    let disabled = fs::read_to_string("/proc/sys/kernel/unprivileged_bpf_disabled");
    let disabled = disabled.is_ok_and(|setting| setting.trim() != "0");
    if disabled && kernel() < (5, 19) { mask(&[BPF]) } else { 0 }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_trace_keeps_what_later_cpus_need() {
    for sysctl in [NotParanoid::ensure as fn() -> _, NotParanoid::not_at_all] {
        let _sysctl = sysctl();
        let mut kept = mask(&[BPF, PERFMON]);
        if !perfmon_is_enough() {
            kept |= mask(&[SYS_ADMIN]);
        }
        let Look { threads, memory_is_limited, .. } = look_at(&["trace", EXEC]);
        if memory_is_limited {
            kept |= mask(&[IPC_LOCK]);
        }
        assert!(threads.iter().all(|&(_, thread)| thread == kept), "{threads:x?} is not {kept:x}");
        assert!(threads.len() > 1);
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_sealed_trace_keeps_nothing() {
    let kept = needed_by_bpf();
    let Look { threads, output, .. } = look_at(&["trace", "--sealed", EXEC]);
    assert!(threads.iter().all(|&(_, thread)| thread == kept), "{threads:x?} is not {kept:x}");
    let says_so = stderr(&output).contains("probe: sealed but for CAP_BPF, which this kernel");
    assert_eq!(says_so, kept != 0, "{}", stderr(&output));
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn samples_keep_what_later_cpus_need() {
    let minute = ["-d", "60s"];
    for sysctl in [NotParanoid::ensure as fn() -> _, NotParanoid::not_at_all] {
        let _sysctl = sysctl();
        let mut kept = mask(&[PERFMON]);
        if !perfmon_is_enough() {
            kept |= mask(&[SYS_ADMIN]);
        }
        let (threads, memory_is_limited) = of_sampling(&[&["-a"][..], &minute].concat());
        if memory_is_limited {
            kept |= mask(&[IPC_LOCK]);
        }
        assert!(threads.len() > 1);
        assert!(threads.iter().all(|&thread| thread == kept), "{threads:x?} is not {kept:x}");
    }
    let _sysctl = NotParanoid::of_all();
    let (threads, _) = of_sampling(&[&["-a"][..], &minute].concat());
    assert!(threads.iter().all(|&thread| thread & !mask(&[IPC_LOCK]) == 0), "{threads:x?}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn samples_of_threads_keep_nothing() {
    let busy = Busy::beside_us();
    let (threads, _) = of_sampling(&["-p", &busy.pid(), "-d", "60s"]);
    assert!(threads.len() > 1 && threads.iter().all(|&thread| thread == 0), "{threads:x?}");
    let (threads, _) = of_sampling(&["-d", "60s", "--", "sleep", "60"]);
    let kept = mask(&[KILL]);
    assert!(threads.iter().all(|&thread| thread == kept), "{threads:x?} is not {kept:x}");
}

/// A program of somebody else, who lets nobody read it, and whom nobody may look into.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn functions_of_other_users_have_names() {
    let chain = Chain::compile();
    let nobody = 65534;
    let dir = chain.program.parent().unwrap();
    for path in [&*chain.program, dir] {
        std::os::unix::fs::chown(path, Some(nobody), Some(nobody)).unwrap();
        fs::set_permissions(path, PermissionsExt::from_mode(0o700)).unwrap();
    }
    let mut run = probe(["sample", "-e", "syscalls:sys_enter_getpgid", "-c", "1", "-f", "folded"]);
    run.args(["--", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
    let output = run.arg(&chain.program).args(["30", "12"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let folded = stdout(&output);
    for way in [";main;left;innermost ", ";main;right;innermost "] {
        assert!(folded.contains(way), "{folded}");
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn what_is_sampled_is_written_where_root_may_write() {
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(dir.path(), Some(65534), Some(65534)).unwrap();
    let path = dir.path().join("ways");
    let mut run = probe(["sample", "-a", "-d", "300ms", "-f", "folded", "-o"]);
    let output = run.arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(path.exists());
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn the_reader_of_the_log_keeps_nothing() {
    // The log is more than a pipe holds that nobody reads.
    let mut child =
        probe(["-v", "trace", EXEC]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut run = Run { stdout: BufReader::new(child.stdout.take().unwrap()), child };
    run.wait_for_heading();
    let threads = of_threads(run.child.id());
    run.signal(Signal::INT);
    assert!(run.child.wait().unwrap().success());
    let of = |name| threads.iter().find(|thread| thread.0 == name).unwrap().1;
    assert_eq!(of("bpf-log"), 0, "{threads:x?}");
    assert_ne!(of("probe"), 0, "{threads:x?}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn the_command_keeps_its_privileges() {
    let own = fs::read_to_string("/proc/self/status").unwrap();
    let args = ["trace", "--sealed", EXEC, "--", "cat", "/proc/self/status"];
    let output = probe(args).output().unwrap();
    let of_command = stderr(&output);
    for name in ["CapPrm:", "CapEff:", "NoNewPrivs:"] {
        let line =
            |text: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        assert_eq!(line(&of_command), line(&own));
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn sigterm_reaches_a_command_that_became_somebody_else() {
    let become_nobody = ["setpriv", "--reuid=65534", "--clear-groups", "sleep", "20"];
    let mut run = Run::start(&[&["trace", EXEC, "--"][..], &become_nobody].concat());
    run.wait_for_heading();
    let mut line = String::new();
    while !line.contains("sleep") {
        line.clear();
        assert_ne!(run.stdout.read_line(&mut line).unwrap(), 0);
    }
    run.signal(Signal::TERM);
    assert_eq!(run.finish().status.code(), Some(128 + 15));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn nobody_with_capabilities_traces() {
    let _sysctl = NotParanoid::ensure();
    let mut specs = vec!["rawtp:sched_process_exec"];
    if std::path::Path::new("/sys/bus/event_source/devices/kprobe/type").exists() {
        specs.push("vfs_read");
    }
    let trace = |held: &[u32], specs: &[&str], mode: &[&str]| {
        let limits = ["-B", "64K", "--", "cat", "/etc/hostname"];
        let args = [&["trace"][..], mode, specs, &limits].concat();
        let output = with_capabilities(held, MEMLOCK, &args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(" + lost 0; complete"), "{args:?}: {}", stderr(&output));
        for spec in specs {
            let name = spec.split_once(':').map_or(*spec, |(_, name)| name);
            assert!(stdout(&output).contains(name), "{args:?}: {}", stdout(&output));
        }
    };
    for mode in [&[][..], &["--sealed"]] {
        trace(&[PERFMON, BPF], &specs, mode);
        // Tracefs is root's.
        trace(&[PERFMON, BPF, DAC_READ_SEARCH], &[EXEC], mode);
    }
}
