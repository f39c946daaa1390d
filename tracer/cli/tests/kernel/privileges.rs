//! The privileges that `probe` needs, and those it keeps while tracing.

use crate::probe::busy::Busy;
use crate::probe::chain::Chain;
use crate::probe::unprivileged::{
    BPF, CHECKPOINT_RESTORE, DAC_READ_SEARCH, IPC_LOCK, KILL, MEMLOCK, PERFMON, Paranoid, SETGID,
    SETUID, SYS_ADMIN, SYS_PTRACE, SYSLOG, with_capabilities, with_two_capabilities,
};
use crate::probe::{
    EXEC, Run, assert_exit, assert_failure, binary, has_kprobes, probe, stderr, stdout, succeed,
};
use probe_testing::version::kernel;
use rustix::process::Signal;
use std::fs;
use std::io::{Write, pipe};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

fn mask(capabilities: &[u32]) -> u64 {
    capabilities.iter().fold(0, |mask, number| mask | 1 << number)
}

/// The effective capabilities of a thread. Asserts that the permitted ones are the same.
fn capabilities(status: &str) -> u64 {
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    };
    assert_eq!(field("CapEff:"), field("CapPrm:"), "{status}");
    assert_eq!((field("CapInh:"), field("CapAmb:")), (0, 0), "{status}");
    assert_eq!(field("NoNewPrivs:"), 1, "{status}");
    // SECCOMP_MODE_FILTER.
    assert_eq!(field("Seccomp:"), 2, "{status}");
    field("CapEff:")
}

/// The user and the group that own nothing.
const NOBODY: u32 = 65534;

/// The user of a thread. Asserts that it has no other ids, and no other groups.
fn user(status: &str) -> u32 {
    let numbers = |name: &str| -> Vec<u32> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_ascii_whitespace().map(|id| id.parse().unwrap()).collect()
    };
    let users = numbers("Uid:");
    let id = users[0];
    assert_eq!(users, [id; 4], "{status}");
    if id != 0 {
        assert!(!numbers("Gid:").contains(&0), "{status}");
        assert!(numbers("Groups:").is_empty(), "{status}");
    }
    id
}

/// The name and the capabilities of each thread of a process. Asserts that all of them have left root's identity.
fn of_threads(pid: u32) -> Vec<(String, u64)> {
    of_threads_as(pid, |_| NOBODY)
}

/// The same, if each thread is of the expected user.
fn of_threads_as(pid: u32, expected: impl Fn(&str) -> u32) -> Vec<(String, u64)> {
    let read = |file: &str, task: &fs::DirEntry| fs::read_to_string(task.path().join(file));
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let of_thread = |task: fs::DirEntry| {
        let name = read("comm", &task).unwrap().trim().to_owned();
        let status = read("status", &task).unwrap();
        assert_eq!(user(&status), expected(&name), "{name}");
        (name, capabilities(&status))
    };
    tasks.map(|task| of_thread(task.unwrap())).collect()
}

/// What [`inspect`] observed.
struct Inspected {
    threads: Vec<(String, u64)>,
    memory_is_limited: bool,
    output: Output,
}

/// Traces execs, inspects the process while it runs, and stops it. Asserts that the trace reports
/// what was executed meanwhile and accounts for every record.
fn inspect(args: &[&str]) -> Inspected {
    const EVENT: &str = "filename=\"/bin/true\"";
    let mut run = Run::start(args);
    succeed(&mut Command::new("/bin/true"));
    run.wait_for_line(EVENT);
    // All threads are running once events arrive, but one may not have given up anything yet.
    settle(&run, "probe");
    let threads = of_threads(run.child.id());
    let memory_is_limited = memory_is_limited(run.child.id());
    succeed(&mut Command::new("/bin/true"));
    run.signal(Signal::INT);
    let output = run.finish();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains(EVENT), "{}", stdout(&output));
    assert!(stderr(&output).contains(" + lost 0; complete"), "{}", stderr(&output));
    Inspected { threads, memory_is_limited, output }
}

/// Whether the locked memory of a process is limited. Before 5.11, where maps count as locked
/// memory, aya lifts the limit.
fn memory_is_limited(pid: u32) -> bool {
    let limits = fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
    let memory = limits.lines().find(|line| line.starts_with("Max locked memory")).unwrap();
    !memory.contains("unlimited")
}

/// The threads of `probe` once it has a thread of this name and has given up what it does not need.
fn settle(run: &Run, thread: &str) {
    run.wait_for_thread(thread);
    // A new thread may not have run yet, and so still have its initial capabilities. Permanent
    // errors are caught later.
    let has_given_up =
        |status: &String| ["NoNewPrivs:\t1", "Seccomp:\t2"].iter().all(|it| status.contains(it));
    run.wait_for_threads("status", |statuses| statuses.iter().all(has_given_up));
}

/// The threads of a `probe` that runs for a given time, and whether its memory is limited.
fn of_run(args: &[&str]) -> (Vec<(String, u64)>, bool) {
    let run = Run::spawn(args);
    settle(&run, "duration");
    let threads = of_threads(run.child.id());
    let memory_is_limited = memory_is_limited(run.child.id());
    run.signal(Signal::TERM);
    let output = run.finish();
    assert!(matches!(output.status.code(), Some(0 | 143)), "{args:?}: {}", stderr(&output));
    (threads, memory_is_limited)
}

/// The capabilities of the threads of `probe sample`, without those of the symbol thread, which are
/// checked here.
fn of_sampling(args: &[&str]) -> (Vec<u64>, bool) {
    let (mut threads, memory_is_limited) = of_run(&[&["sample", "-F", "99"], args].concat());
    let at = threads.iter().position(|thread| thread.0 == "symbols").unwrap();
    let mut of_symbols = mask(&[SYS_PTRACE, DAC_READ_SEARCH]);
    if kernel() >= (5, 9) {
        of_symbols |= mask(&[CHECKPOINT_RESTORE]);
    }
    // It watches what processes map, also on CPUs that come online later.
    let needed = needed_by_perf_events(memory_is_limited);
    of_symbols |= if Paranoid::now() > 0 { needed } else { needed & mask(&[IPC_LOCK]) };
    assert_eq!(threads.remove(at).1, of_symbols, "{of_symbols:x}");
    (threads.into_iter().map(|thread| thread.1).collect(), memory_is_limited)
}

/// Whether `CAP_PERFMON` is enough to open perf events on this kernel.
fn perfmon_is_enough() -> bool {
    let args = ["trace", "rawtp:sched_process_exec", "-B4K", "-d1ms"];
    with_two_capabilities(MEMLOCK, &args).output().unwrap().status.success()
}

/// The capabilities for `bpf(2)` calls that create nothing.
fn needed_by_bpf() -> u64 {
    let disabled = fs::read_to_string("/proc/sys/kernel/unprivileged_bpf_disabled");
    let disabled = disabled.is_ok_and(|setting| setting.trim() != "0");
    if disabled && kernel() < (5, 19) { mask(&[BPF]) } else { 0 }
}

/// The capabilities for perf events on CPUs that come online later.
fn needed_by_perf_events(memory_is_limited: bool) -> u64 {
    let admin = if perfmon_is_enough() { 0 } else { mask(&[SYS_ADMIN]) };
    let lock = if memory_is_limited { mask(&[IPC_LOCK]) } else { 0 };
    mask(&[PERFMON]) | admin | lock
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_trace_keeps_what_later_cpus_need() {
    for sysctl in [Paranoid::at_most_2 as fn() -> _, || Paranoid::set(3)] {
        let _sysctl = sysctl();
        let Inspected { threads, memory_is_limited, .. } = inspect(&["trace", EXEC]);
        let kept = mask(&[BPF]) | needed_by_perf_events(memory_is_limited);
        assert!(threads.iter().all(|&(_, thread)| thread == kept), "{threads:x?} is not {kept:x}");
        assert!(threads.len() > 1);
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_sealed_trace_keeps_nothing() {
    let kept = needed_by_bpf();
    let Inspected { threads, output, .. } = inspect(&["trace", "--sealed", EXEC]);
    assert!(threads.iter().all(|&(_, thread)| thread == kept), "{threads:x?} is not {kept:x}");
    let is_reported =
        stderr(&output).contains("probe: sealed except for CAP_BPF, which this kernel");
    assert_eq!(is_reported, kept != 0, "{}", stderr(&output));
}

/// The table in SECURITY.md.
#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn every_subcommand_gives_up_what_it_does_not_need() {
    const FUNCTION: &str = "uprobe:libc:getenv";
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace");
    let file = file.to_str().unwrap();
    let command = ["--", "sleep", "60"];
    for (args, needs_later_cpus) in [
        (&["trace", EXEC][..], true),
        // With a thread that ends the waiting for strings.
        (&["trace", "syscalls:sys_enter_openat(filename)/pid == 1/"], true),
        (&["record", "-o", file, EXEC], true),
        (&["stack", EXEC], true),
        (&["count", EXEC], false),
        (&["latency", FUNCTION], false),
    ] {
        let args = [args, &["-d", "60s"]].concat();
        let (of_command, sealed) =
            ([&args[..], &command].concat(), [&args[..], &["--sealed"]].concat());
        for (args, own) in [(args, 0), (of_command, mask(&[KILL]))] {
            let (threads, memory_is_limited) = of_run(&args);
            let needed = match needs_later_cpus {
                true => mask(&[BPF]) | needed_by_perf_events(memory_is_limited),
                false => needed_by_bpf(),
            };
            // The threads that look up names and end waits need less.
            let main = needed | own;
            assert!(threads.iter().all(|thread| thread.1 & !main == 0), "{args:?}: {threads:x?}");
            assert!(threads.iter().any(|thread| thread.1 == main), "{args:?}: {threads:x?}");
        }
        let (threads, _) = of_run(&sealed);
        let kept = needed_by_bpf();
        assert!(threads.iter().all(|thread| thread.1 & !kept == 0), "{threads:x?}");
        assert!(threads.iter().any(|thread| thread.1 == kept), "{threads:x?}");
    }
    let (threads, _) = of_run(&["sample", "-a", "--sealed", "-d", "60s"]);
    assert!(threads.iter().all(|thread| thread.1 == 0), "{threads:x?}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn what_reads_without_tracing_cannot_do_more() {
    let to_look = mask(&[DAC_READ_SEARCH, SYSLOG, SYS_PTRACE, CHECKPOINT_RESTORE]);
    for (args, kept) in [
        (&["replay", "-"][..], 0),
        (&["list", "tracepoint:*"], to_look),
        (&["info", "uprobe:libc:getenv"], to_look),
    ] {
        // It cannot go on: nothing is in one pipe, and nothing fits into the other.
        let (input, _nothing) = pipe().unwrap();
        let (_full, mut output) = pipe().unwrap();
        output.write_all(&[0; 1 << 16]).unwrap();
        let mut run = probe(args);
        let mut child = run.stdin(input).stdout(output).spawn().unwrap();
        let run = format!("/proc/{}", child.id());
        // It is asleep in one of these calls when it has given up its privileges.
        let start = Instant::now();
        let is_asleep = || {
            let call = fs::read_to_string(format!("{run}/syscall")).unwrap();
            // The number of the call, and the descriptor: read(2) of standard input, write(2) to standard output.
            call.starts_with("0 0x0 ") || call.starts_with("1 0x1 ")
        };
        while !is_asleep() {
            assert!(start.elapsed() < Duration::from_secs(60), "{args:?}");
            sleep(Duration::from_millis(10));
        }
        let threads = of_threads(child.id());
        child.kill().unwrap();
        child.wait().unwrap();
        // Not every kernel has every capability.
        assert!(threads.iter().all(|thread| thread.1 & !kept == 0), "{args:?}: {threads:x?}");
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn root_is_left_for_the_user_who_has_called_sudo() {
    for (user, group, expected) in
        [("4711", "4712", 4711), ("0", "0", NOBODY), ("4711", "x", NOBODY)]
    {
        let mut command = probe(["sample", "-a", "-d", "60s"]);
        command.env("SUDO_UID", user).env("SUDO_GID", group);
        let run = Run::of(command.stderr(Stdio::piped()));
        settle(&run, "duration");
        of_threads_as(run.child.id(), |_| expected);
        run.signal(Signal::TERM);
        run.finish();
    }
}

/// It can send signals.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_user_cannot_take_over_a_probe_with_the_same_identity() {
    let run = Run::start(["trace", "--sealed", EXEC]);
    let pid = run.child.id();
    let as_nobody = |script: &str| {
        let mut shell = Command::new("setpriv");
        shell.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", script]);
        shell.arg(pid.to_string()).output().unwrap()
    };
    // Each needs what ptrace(2) needs.
    let inspect =
        "for task in /proc/$0/task/*; do ls $task/fd && exit; cat $task/maps && exit; done; false";
    let output = as_nobody(inspect);
    assert!(!output.status.success() && output.stdout.is_empty(), "{}", stdout(&output));
    // With `hidepid`, the process is not there.
    let is_refused =
        ["Permission denied", "No such file"].iter().any(|one| stderr(&output).contains(one));
    assert!(is_refused, "{}", stderr(&output));
    assert!(as_nobody("kill -INT $0").status.success());
    assert!(run.finish().status.success());
}

/// The file gets its name at the end, from another process, and belongs to root.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn samples_for_a_file_of_root_are_taken_as_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("stacks");
    let args = ["sample", "-a", "--sealed", "-d", "60s", "-o", file.to_str().unwrap()];
    let run = Run::spawn(args);
    settle(&run, "duration");
    let threads = of_threads(run.child.id());
    assert!(threads.iter().all(|thread| thread.1 == 0), "{threads:x?}");
    assert!(!file.exists());
    run.signal(Signal::TERM);
    run.finish();
    assert_eq!(fs::metadata(&file).unwrap().uid(), 0);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn samples_keep_what_later_cpus_need() {
    let args = ["-a", "-d", "60s"];
    for sysctl in [Paranoid::at_most_2 as fn() -> _, || Paranoid::set(3)] {
        let _sysctl = sysctl();
        let (threads, memory_is_limited) = of_sampling(&args);
        let kept = needed_by_perf_events(memory_is_limited);
        assert!(threads.len() > 1);
        assert!(threads.iter().all(|&thread| thread == kept), "{threads:x?} is not {kept:x}");
    }
    let _sysctl = Paranoid::set(-1);
    let (threads, _) = of_sampling(&args);
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

/// A program of another user that is neither readable nor traceable by others.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn functions_of_other_users_have_names() {
    let chain = Chain::compile();
    let dir = chain.program.parent().unwrap();
    for path in [&*chain.program, dir] {
        chown(path, Some(65534), Some(65534)).unwrap();
        fs::set_permissions(path, PermissionsExt::from_mode(0o700)).unwrap();
    }
    let mut run = probe(["sample", "-e", "syscalls:sys_enter_getpgid", "-c", "1", "-f", "folded"]);
    run.args(["--", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
    let folded = stdout(&succeed(run.args(chain.command(30, 12))));
    for stack in [";main;left;innermost ", ";main;right;innermost "] {
        assert!(folded.contains(stack), "{folded}");
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn samples_are_written_where_root_may_write() {
    let dir = tempfile::tempdir().unwrap();
    chown(dir.path(), Some(65534), Some(65534)).unwrap();
    let path = dir.path().join("stacks");
    let sample = |more: &[&str]| {
        let mut run = probe(["sample", "-a", "-d", "300ms", "-f", "folded"]);
        run.args(more).arg("-o").arg(&path).output().unwrap()
    };
    let refused = stderr(&sample(&[]));
    assert!(refused.contains("user 65534 can write to"), "{refused}");
    assert!(!path.exists());
    let output = sample(&["--force"]);
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn the_reader_of_the_log_keeps_nothing() {
    // Nothing reads the log, and it does not fit into a pipe.
    let mut run = Run::of(probe(["-v", "trace", EXEC]).stderr(Stdio::null())).wait_for_heading();
    settle(&run, "bpf-log");
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

/// The command prints its ids, its capabilities and its environment.
#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn every_subcommand_runs_the_command_as_a_user() {
    let dir = tempfile::tempdir().unwrap();
    let group = dir.path().join("group");
    fs::write(&group, "nogroup:x:65534:\nextra:x:4711:nobody\n").unwrap();
    let file = dir.path().join("trace");
    let file = file.to_str().unwrap();
    for args in [
        &["trace", EXEC][..],
        &["record", "-o", file, EXEC],
        &["stack", EXEC],
        &["count", EXEC],
        &["latency", "uprobe:libc:getenv"],
        &["sample"],
        &["sample", "-o", file],
    ] {
        for user in ["nobody", "65534"] {
            // nobody is in another group, too, as far as this command can see.
            let mut run = Command::new("unshare");
            run.args(["-m", "sh", "-c", "mount --bind \"$0\" /etc/group && exec \"$@\""]);
            run.arg(&group).arg(binary()).args(args).args(["--user", user, "--"]);
            let output = succeed(run.args(["sh", "-c", "cat /proc/self/status; env"]));
            let printed = stderr(&output).replace('\t', " ");
            for line in [
                "Uid: 65534 65534 65534 65534",
                "Gid: 65534 65534 65534 65534",
                "Groups: 4711 65534 ",
                "CapInh: 0000000000000000",
                "CapPrm: 0000000000000000",
                "CapAmb: 0000000000000000",
                "NoNewPrivs: 0",
                "USER=nobody",
                "LOGNAME=nobody",
                "HOME=/nonexistent",
                "SHELL=/usr/sbin/nologin",
            ] {
                assert!(printed.lines().any(|one| one == line), "{args:?}: {line}: {printed}");
            }
        }
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_command_of_a_user_who_cannot_run_it_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("program");
    fs::copy("/bin/true", &program).unwrap();
    let open_to = |mode| fs::set_permissions(dir.path(), PermissionsExt::from_mode(mode)).unwrap();
    let as_nobody = |program: &str| {
        let mut run = probe(["count", EXEC, "--user", "nobody", "--", program]);
        run.env("PATH", format!("{}:{}", dir.path().display(), std::env::var("PATH").unwrap()));
        run
    };
    open_to(0o700);
    let path = program.to_str().unwrap();
    let denied = format!("cannot run `{path}` as user nobody: Permission denied");
    for program in [path, "program"] {
        assert_failure(&mut as_nobody(program), &denied);
    }
    // Not that nobody may not search a folder.
    let missing = "cannot run `no-such-program` as user nobody: No such file or directory";
    assert_failure(&mut as_nobody("no-such-program"), missing);
    open_to(0o755);
    succeed(&mut as_nobody("program"));
    fs::set_permissions(&program, PermissionsExt::from_mode(0o700)).unwrap();
    assert_failure(&mut as_nobody("program"), &denied);
    let unknown = ["no-such-user", "4294967294"];
    for user in unknown {
        let mut run = probe(["trace", EXEC, "--user", user, "--", "true"]);
        assert_exit(&mut run, 2, "no such user");
    }
    assert_exit(&mut probe(["trace", EXEC, "--user", "nobody"]), 2, "required");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn capabilities_are_not_passed_on_to_a_command_of_another_user() {
    let args = ["trace", "-B64K", "rawtp:sched_process_exec", "--user", "games", "--"];
    let args = [&args[..], &["cat", "/proc/self/status"]].concat();
    let _sysctl = Paranoid::at_most_2();
    let needed = "as user games: this requires CAP_SETGID, CAP_SETUID, or root";
    assert_failure(&mut with_two_capabilities(MEMLOCK, &args), needed);
    let held = [PERFMON, BPF, SETUID, SETGID];
    let printed = stderr(&succeed(&mut with_capabilities(&held, MEMLOCK, &args)));
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
        let line = format!("{set}\t0000000000000000");
        assert!(printed.lines().any(|one| one == line), "{printed}");
    }
}

/// With a seal, a command of root would not end otherwise.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn sigterm_reaches_a_command_of_root_from_a_sealed_trace() {
    for args in [&["trace", EXEC][..], &["sample"]] {
        let run = Run::spawn([args, &["--sealed", "-d", "60s", "--", "sleep", "60"]].concat());
        settle(&run, "duration");
        let kept = mask(&[KILL]) | if args[0] == "trace" { needed_by_bpf() } else { 0 };
        let threads = of_threads(run.child.id());
        assert!(threads.iter().any(|thread| thread.1 == kept), "{threads:x?}");
        assert!(threads.iter().all(|thread| thread.1 & !kept == 0), "{threads:x?}");
        run.signal(Signal::TERM);
        assert_eq!(run.finish().status.code(), Some(128 + 15));
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn sigterm_reaches_a_command_that_became_another_user() {
    let become_nobody = ["setpriv", "--reuid=65534", "--clear-groups", "sleep", "20"];
    let mut run = Run::start(["trace", EXEC, "--"].into_iter().chain(become_nobody));
    run.wait_for_line("sleep");
    run.signal(Signal::TERM);
    assert_eq!(run.finish().status.code(), Some(128 + 15));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn nobody_with_capabilities_traces() {
    let _sysctl = Paranoid::at_most_2();
    let mut specs = vec!["rawtp:sched_process_exec"];
    if has_kprobes() {
        specs.push("vfs_read");
    }
    let trace = |held: &[u32], specs: &[&str], mode: &[&str]| {
        let limits = ["-B", "64K", "--", "cat", "/etc/hostname"];
        let args = [&["trace"][..], mode, specs, &limits].concat();
        let output = succeed(&mut with_capabilities(held, MEMLOCK, &args));
        assert!(stderr(&output).contains(" + lost 0; complete"), "{args:?}: {}", stderr(&output));
        for spec in specs {
            let name = spec.split_once(':').map_or(*spec, |(_, name)| name);
            assert!(stdout(&output).contains(name), "{args:?}: {}", stdout(&output));
        }
    };
    for mode in [&[][..], &["--sealed"]] {
        trace(&[PERFMON, BPF], &specs, mode);
        // Only root can read tracefs.
        trace(&[PERFMON, BPF, DAC_READ_SEARCH], &[EXEC], mode);
    }
}

/// Kernels from July 2025 on require more for functions of programs.
#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn a_refusal_of_uprobes_names_a_privilege_that_is_missing() {
    let as_nobody = |args: &[&str]| with_two_capabilities(MEMLOCK, args).output().unwrap();
    let run = as_nobody(&["count", "uprobe:libc:getenv", "-d", "1ms"]);
    let check = stdout(&as_nobody(&["check"]));
    let line = check.lines().find(|line| line.starts_with("uprobes ")).unwrap();
    match run.status.success() {
        true => assert!(line.contains(" yes "), "{line}"),
        false => {
            let expected = "or with CAP_SYS_ADMIN, which kernels require";
            assert!(stderr(&run).contains(expected), "{}", stderr(&run));
            assert!(check.contains("CAP_SYS_ADMIN, which kernels require"), "{check}");
        }
    }
}
