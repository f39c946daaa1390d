//! What newcomers from bpftrace, perf and strace type first: it works, or the answer leads to what works.

use crate::probe::{
    EXEC, Run, assert_exit, events, has_kprobes, json_line, probe, stderr, stdout, succeed,
};
use serde_json::Value;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

/// A command line, and words of what `probe` prints: on any kernel, or with kprobes and without.
enum Expected {
    Words(&'static str),
    WithAndWithoutKprobes(&'static str, &'static str),
}

use Expected::{WithAndWithoutKprobes, Words};

/// Arguments are separated by `|`.
const FIRST: &[(&str, Expected)] = &[
    // bpftrace
    ("-l|tracepoint:*", Words("`probe list PATTERN`")),
    ("-e|BEGIN { printf(\"hi\"); }", Words("there are no scripts")),
    ("list|raw_tracepoint:sys_enter", Words("rawtp:sys_enter")),
    ("list|rawtracepoint:sys_enter", Words("rawtp:sys_enter")),
    ("info|t:syscalls:sys_enter_openat(args.filename)", Words("args.filename")),
    ("info|kfunc:vfs_read", Words("vfs_read(file: struct file *")),
    ("trace|kprobe:do_nanosleep { @[comm] = count(); }", Words("there are no scripts")),
    ("trace|BEGIN", Words("there are no scripts")),
    ("trace|usdt:/bin/sh:marker", Words("uprobe:FILE:FUNCTION")),
    ("trace|profile:hz:99", Words("probe sample -a -F 99")),
    ("trace|interval:s:1", Words("probe count")),
    ("trace|software:page-faults:100", Words("probe sample -e page-faults")),
    ("trace|hardware:cache-misses:1000000", Words("probe sample -e")),
    ("trace|t:syscalls:sys_enter_openat(str(args.filename))", Words("PATH:ustr")),
    ("trace|t:sched:sched_switch(nsecs)", Words("every event has its time")),
    ("trace|rawtp:sys_enter(curtask)", Words("pid, tid, comm and uid describe the task")),
    ("trace|uprobe:libc:malloc|{", Words("there are no scripts")),
    ("trace|vfs_raed(count)", Words("did you mean `vfs_read`")),
    ("trace|u:malloc", Words("uprobe:FILE:FUNCTION")),
    ("count|--force|rawtp:*", Words("--no-limit lifts the limits")),
    ("trace|t:syscalls:sys_enter_read if (args.fd > 3)", Words("NAME(FIELD, FIELD)/FIELD > 0/")),
    ("trace|rawtp:sys_enter/comm == 'dd'/", Words("a string is in double quotes")),
    ("trace|rawtp:sys_enter/strncmp(comm, \"a\", 1) == 0/", Words("FIELD ~ \"/etc*\"")),
    ("list|tp:sched:sched_swi*", Words("tracepoint:sched:sched_switch")),
    ("trace|raw_tracepoint:sched:sched_switch", Words("rawtp:NAME, without a category")),
    ("trace|fentry/vfs_read", Words("as in kprobe:vfs_read")),
    (
        "count|-d|0.01|t:syscalls:sys_enter_openat/filename ~ \"[ab]*\"/",
        Words("the [ is an ordinary character"),
    ),
    ("trace|t:syscalls:sys_enter_openat2(how->flags)", Words("how:bytes[16]")),
    // perf
    ("list|tracepoint:no_such_category:*", Words("nothing that can be probed matches")),
    ("trace|ftrace:print", Words("the format of an entry of ftrace's own buffer")),
    ("trace|sched:sched_switch,sched:sched_waking", Words("a separate argument")),
    ("record|-e|sched:sched_switch", Words("`probe record -o FILE sched:sched_switch`")),
    ("list|syscalls:sys_enter_openat", Words("tracepoint:syscalls:sys_enter_openat")),
    ("list|sched:sched_swi*", Words("tracepoint:sched:sched_switch")),
    ("info|sched:sched_switch", Words("sched:sched_switch(prev_comm")),
    ("trace|sched:sched_swich", Words("did you mean `sched:sched_switch`")),
    ("trace|-e|sched:sched_switch", Words("`probe trace sched:sched_switch`")),
    ("count|-e|sched:sched_switch", Words("`probe count sched:sched_switch`")),
    ("sample|-e|tracepoint:sched:sched_switch|-d|1ms", Words(", 0 lost")),
    ("sample|-F|svg", Words("the format is -f svg")),
    ("sample|sh|-l", Words("`probe sample -- sh -l`")),
    ("trace|shed:sched_switch", Words("did you mean `sched:sched_switch`")),
    ("count|rawtp:sys_enter|-d|0.01", Words("of 1 probe")),
    ("trace|-g|sched:sched_switch", Words("-K shows the kernel stack")),
    ("trace|tracepoint:syscalls:open", Words("did you mean `syscalls:sys_enter_open`?")),
    ("sample|--flamegraph", Words("-f svg")),
    ("sample|--hz|99", Words("`probe sample -F 99`")),
    ("trace|--summary|sh", Words("`probe count PROBE`")),
    ("trace|-q|rawtp:sys_enter", Words("2>/dev/null")),
    ("count|rawtp:sys_enter|--by|comm", Words("`probe stack -F folded PROBE`")),
    ("sample|-g", Words("stacks are always sampled")),
    ("record|-g|sh", Words("probe sample")),
    ("record|sh", Words("`probe sample` samples, as perf record does")),
    ("stat|sh", Words("`probe count PROBE`")),
    ("top", Words("`probe sample -a -d 10s`")),
    ("report", Words("`probe replay FILE`")),
    ("script", Words("`probe replay FILE`")),
    ("sample|-p|1,2|-d|1ms", Words(", 0 lost")),
    ("trace|sched:sched_process_exec|--filter|comm ~ \"ssh*\"", Words("'PROBE/")),
    ("trace|-C|0|rawtp:sys_enter", Words("'PROBE/cpu == 0/'")),
    // What C programs see of system calls
    ("trace|--ret|t:syscalls:sys_enter_read/errno == 2/", Words("/retval == -ENOENT/")),
    ("trace|--ret|t:syscalls:sys_enter_mmap/retval == MAP_FAILED/", Words("compare with < 0")),
    ("trace|--ret|-d|1ms|t:syscalls:sys_enter_read/retval == -1/", Words("the error EPERM alone")),
    ("trace|-d|1ms|t:syscalls:sys_exit_read/ret != -1/", Words("the error EPERM alone")),
    ("trace|--ret|t:syscalls:sys_enter_read(retval:str)", Words("retval is neither an address")),
    ("trace|--ret|t:syscalls:sys_enter_read/latency > 1ms/", Words("durations are in nanoseconds")),
    ("trace|--ret|t:syscalls:sys_enter_read/counter > 0/", Words("--counter EVENT counts")),
    ("trace|--ret|-d|1ms|t:syscalls:sys_enter_exit_group", Words("this call never returns")),
    ("latency|-d|1ms|t:syscalls:sys_enter_exit", Words("this call never returns")),
    ("latency|--longer|1ms|t:syscalls:sys_enter_read", Words("'PROBE/latency > 1000000/'")),
    ("latency|-c|t:syscalls:sys_enter_read", Words("results are always summarized")),
    ("trace|--ret|t:raw_syscalls:sys_exit", Words("or tracepoint:raw_syscalls:sys_enter")),
    (
        "trace|--flight-recorder|64K|--trigger|t:syscalls:sys_enter_read/retval == 1/|rawtp:sys_exit",
        Words(
            "so there is no retval; --ret reports calls when they return\n  t:syscalls:sys_enter_read/",
        ),
    ),
    // strace
    ("trace|sh", Words("write -- before it")),
    ("trace|-e|openat|sh", Words("`probe trace tracepoint:syscalls:sys_enter_openat -- sh`")),
    ("-e|trace=openat|sh", Words("`probe trace tracepoint:syscalls:sys_enter_openat -- sh`")),
    (
        "trace|-e|openat,close|sh",
        Words(
            "`probe trace tracepoint:syscalls:sys_enter_openat tracepoint:syscalls:sys_enter_close -- sh`",
        ),
    ),
    (
        "trace|-e|!futex|sh",
        Words("`probe trace 'tracepoint:syscalls:sys_enter_*' -x '*_futex' -- sh`"),
    ),
    ("-f|-e|trace=network|sh", Words("`probe trace 'tracepoint:syscalls:sys_enter_*' -- sh`")),
    ("-ff|sh", Words("descendants of a command are always traced")),
    ("trace|--failed-only|sh", Words("retval < 0/")),
    ("-p|1", Words("`probe trace 'tracepoint:syscalls:sys_enter_*' -p 1`")),
    ("trace|-p|1", Words("`probe trace 'tracepoint:syscalls:sys_enter_*' -p 1`")),
    ("trace|-tt|rawtp:sys_enter", Words("--time chooses the clock")),
    ("trace|rawtp:sys_enter|--json", Words("-F jsonl prints JSON")),
    ("trace|-c|sh", Words("`probe count PROBE`")),
    ("trace|-f|-p|1", Words("--children")),
    ("trace|-T|sh", Words("--ret reports each call")),
    ("trace|-o|file|rawtp:sys_enter", Words("probe record -o FILE")),
    ("trace|--|sh", Words("stands for all system calls")),
    ("trace|rawtp:sys_enter|--", Words("no command follows --")),
    ("trace|/bin/sh", Words("goes after --")),
    ("trace|rawtp:sys_enter|sh", Words("write -- before it")),
    ("trace|rawtp:sys_enter|sh|-l", Words("goes after --: `probe trace rawtp:sys_enter -- sh -l`")),
    ("sh|-c|true", Words("`probe trace 'tracepoint:syscalls:sys_enter_*' -- sh -c true`")),
    ("trace|-p|sh|rawtp:sys_enter", Words("-n NAME selects by name")),
    (
        "trace|openat",
        WithAndWithoutKprobes("`ksyscall:openat`", "`tracepoint:syscalls:sys_enter_openat`"),
    ),
    (
        "trace|sys_nanosleep",
        WithAndWithoutKprobes("`ksyscall:nanosleep`", "`tracepoint:syscalls:sys_enter_nanosleep`"),
    ),
    ("trace|sched_process_exec", Words("`tracepoint:sched:sched_process_exec`")),
    ("trace|--ret|ksyscall:no_such_call", Words("no system call of this name")),
    (
        "trace|--ret|tracepoint:syscalls:sys_exit_read",
        Words("`tracepoint:syscalls:sys_enter_read`"),
    ),
    // bcc
    ("execsnoop", Words("`probe trace tracepoint:sched:sched_process_exec`")),
    ("opensnoop-bpfcc", Words("--ret tracepoint:syscalls:sys_enter_openat")),
    ("funclatency|vfs_read", Words("`probe latency FUNCTION`")),
    ("trace|r::vfs_read \"%d\", retval", Words("kretprobe:FUNCTION")),
    ("trace|p:c:open \"%s\", arg0", Words("uprobe:FILE:FUNCTION")),
    ("trace|do_sys_openat2 \"%s\", arg2", Words("there are no format strings")),
    ("gethostlatency", Words("uprobe:libc:getaddrinfo(arg0:ustr, latency)")),
    ("vfs_read", Words("`probe trace vfs_read`")),
    ("trace|c:malloc", Words("`uprobe:c:malloc`")),
    ("count|-i|1|rawtp:sys_enter", Words("results are printed once")),
    // ltrace
    ("trace|malloc", Words("`uprobe:libc:malloc`")),
    ("trace|libc:malloc", Words("`uprobe:libc:malloc`")),
    // What does not exist is an error.
    ("list|no_such_thing", Words("nothing that can be probed is called no_such_thing")),
    ("info|no_such_thing", Words("the kernel has no function of this name")),
    ("info|rawtp:no_such_thing", Words("the kernel has no tracepoint of this name")),
    ("info|kprobe:no_such_module:vfs_read", Words("no module no_such_module is loaded")),
    ("info|uprobe:libc:no_such_thing", Words("has no function of this name")),
];

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn several_processes_are_traced_until_the_last_one_exits() {
    let shell = || {
        let mut shell = Command::new("sh");
        shell.args(["-c", "read go; exec /bin/true"]).stdin(Stdio::piped());
        shell.spawn().unwrap()
    };
    let mut shells = [shell(), shell()];
    let pids = shells.each_ref().map(|shell| shell.id().to_string());
    let run = Run::start(["trace", "-F", "jsonl", "-p", &pids.join(","), EXEC]);
    succeed(&mut Command::new("/bin/true"));
    for shell in &mut shells {
        drop(shell.stdin.take());
        assert!(shell.wait().unwrap().success());
    }
    let printed = stdout(&run.finish());
    let mut found: Vec<_> = printed
        .lines()
        .map(json_line)
        .filter(|line| line.get("time").is_some())
        .map(|event| event["pid"].to_string())
        .collect();
    found.sort();
    let mut expected = pids.to_vec();
    expected.sort();
    assert_eq!(found, expected, "{printed}");
    let args = ["trace", "--children", "-p", &pids.join(","), EXEC];
    assert_exit(&mut probe(args), 2, "--children takes one process");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_sampler_leaves_itself_out() {
    let args = ["sample", "-a", "-F", "20000", "-d", "300ms", "-f", "folded"];
    let of_probe = |output: &Output| stdout(output).lines().any(|line| line.starts_with("probe;"));
    let output = succeed(&mut probe(args));
    assert!(!of_probe(&output), "{}", stdout(&output));
    assert!(stderr(&output).contains(" of them of probe itself, left out"), "{}", stderr(&output));
    assert!(of_probe(&succeed(probe(args).arg("--include-self"))));
}

/// Tracepoints by perf's names, and fields by bpftrace's.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn spellings_of_perf_and_bpftrace_trace_the_same() {
    let specs = [
        "sched:sched_process_exec(args.filename, args->pid)/args.pid > 0/",
        "sched:sched_process_ex[e]c",
        "raw_tracepoint:sched_process_exec(args.p->tgid)",
    ];
    let events = events(specs, ["true"]);
    let named = |provider: &str| {
        let of = |event: &&Value| event["type"] == provider && event["probe"] != "";
        events.iter().filter(of).collect::<Vec<_>>()
    };
    let tracepoints = named("tracepoint");
    assert_eq!(tracepoints.len(), 2, "{events:#?}");
    for event in &tracepoints {
        assert_eq!(event["probe"], "sched:sched_process_exec");
        assert!(event["args"]["filename"].as_str().unwrap().ends_with("/true"), "{event}");
    }
    assert_eq!(named("rawtp")[0]["args"]["p.tgid"], named("rawtp")[0]["pid"], "{events:#?}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_command_is_executed_by_one_call_and_reads_its_own_strings() {
    let specs = [
        "tracepoint:syscalls:sys_enter_execve(filename:str, argv)",
        "tracepoint:syscalls:sys_enter_openat(filename:str)/filename:str ~ \"*/hostname\"/",
    ];
    let events = events(specs, ["cat", "/etc/hostname"]);
    let files: Vec<_> = events.iter().map(|event| &event["args"]["filename"]).collect();
    assert_eq!(files.len(), 2, "{events:#?}");
    assert!(files[0].as_str().unwrap().ends_with("/cat"), "{events:#?}");
    assert_eq!(files[1], "/etc/hostname");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn first_command_lines_work_or_lead_to_one_that_does() {
    let (mut wrong, mut slowest) = (String::new(), (0, ""));
    for (line, expected) in FIRST {
        let begun = Instant::now();
        let output = probe(line.split('|')).output().unwrap();
        slowest = slowest.max((begun.elapsed().as_millis(), *line));
        let expected = match expected {
            Words(words) => words,
            WithAndWithoutKprobes(with, _) if has_kprobes() => with,
            WithAndWithoutKprobes(_, without) => without,
        };
        let printed = stdout(&output) + &stderr(&output);
        // The others would trace for ever.
        let may_work =
            line.starts_with("list|") || line.starts_with("info|") || line.contains("|-d|");
        if !printed.contains(expected) || output.status.success() && !may_work {
            wrong += &format!("probe {line}: no `{expected}` in: {printed}\n");
        }
    }
    println!("the slowest: {slowest:?}");
    assert!(wrong.is_empty(), "{wrong}");
}
