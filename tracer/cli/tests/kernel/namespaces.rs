//! Tracers in namespaces of their own.

use crate::probe::{EXEC, all_json_lines, assert_exit, binary, json_lines, stderr, stdout};
use probe_sys::clock;
use std::process::{Command, Output, Stdio};

/// Runs `probe` in new namespaces: `$probe` in the script is its path.
fn unshared(options: &[&str], script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(options).args(["sh", "-c", script]).env("probe", binary()).stdin(Stdio::null());
    command
}

#[track_caller]
fn output(mut command: Command) -> Output {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", stderr(&output));
    output
}

const PID: [&str; 2] = ["-fp", "--mount-proc"];

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_command_has_the_process_ids_of_the_tracers_namespace() {
    let trace =
        "exec $probe trace rawtp:sys_exit -F jsonl -- sh -c 'echo \"pid $$.\" >&2; /bin/true'";
    let output = output(unshared(&PID, trace));
    let events = json_lines(&output);
    for comm in ["sh", "true"] {
        assert!(events.iter().any(|event| event["comm"] == comm), "no {comm}: {}", stderr(&output));
    }
    // The tracer itself is the first process of the namespace.
    assert!(events.iter().all(|event| event["pid"].as_u64().unwrap() > 1));
    let shell = events.iter().find(|event| event["comm"] == "sh").unwrap();
    assert!(stderr(&output).contains(&format!("pid {}.", shell["pid"])), "{shell}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_tracer_does_not_trace_itself_whatever_its_process_id() {
    let trace = "exec $probe trace rawtp:sys_enter -a -F jsonl -- sh -c 'for i in 1 2 3; do /bin/true; done'";
    let events = json_lines(&output(unshared(&PID, trace)));
    assert!(events.iter().any(|event| event["comm"] == "true"));
    assert!(events.iter().all(|event| event["pid"] != 1));
    // Before it executes its program, the command has the name of the tracer.
    let shell = &events.iter().find(|event| event["comm"] == "sh").unwrap()["pid"];
    let named = events.iter().filter(|event| event["comm"] == "probe");
    assert_eq!(named.filter(|event| event["pid"] != *shell).count(), 0);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn processes_are_found_in_nested_namespaces() {
    let busy = "while :; do :</dev/null; done";
    let script = format!(
        "sh -c '{busy}' & beside=$!
        unshare -fp --kill-child sh -c 'read go; {busy}' </dev/null & outer=$!
        until nested=$(pgrep -P $outer); do :; done
        $probe trace rawtp:sys_enter -F jsonl -M 5 -p $beside
        $probe trace rawtp:sys_enter -F jsonl -M 5 -t $beside
        $probe trace rawtp:sys_enter -F jsonl -M 5 -p $nested
        $probe trace rawtp:sys_enter -F jsonl -M 5 -t $nested
        $probe trace rawtp:sys_enter -F jsonl -M 5 -p $beside,$nested
        echo \"beside $beside.\" >&2; kill -9 $beside $nested"
    );
    let output = unshared(&PID, &script).output().unwrap();
    let (stdout, stderr) = (stdout(&output), stderr(&output));
    let pids: Vec<_> = stdout
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter_map(|line| line["pid"].as_u64())
        .collect();
    let [direct @ .., _, _, _, _, _] = &pids[..] else { panic!("{stdout}{stderr}") };
    assert_eq!(direct.len(), 10, "{stdout}{stderr}");
    assert!(direct.iter().all(|pid| stderr.contains(&format!("beside {pid}."))), "{pids:?}");
    // Programs do not see the ids of nested namespaces.
    assert_eq!(pids[10..], [0; 5]);
    for (task, others) in [("thread", "thread"), ("process", "process")] {
        let expected =
            format!("is in a nested PID namespace, where programs see other {others} ids");
        let is_it = |line: &str| line.contains(&format!("{task} ")) && line.contains(&expected);
        assert!(stderr.lines().any(is_it), "{stderr}");
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn times_are_those_of_the_kernel_in_every_time_namespace() {
    if !std::path::Path::new("/proc/self/ns/time").exists() {
        return probe_testing::skip::skip("this kernel has no time namespaces");
    }
    let trace = format!(
        "exec $probe trace {EXEC} -F jsonl --ordered --time local -- sh -c '/bin/true; /bin/true'"
    );
    let before = clock::monotonic();
    let output = output(unshared(&["-T", "-f", "--monotonic", "100000"], &trace));
    let lines = all_json_lines(&output);
    let offset: i64 = lines[0]["realtime_offset"].as_str().unwrap().parse().unwrap();
    let events: Vec<_> = lines.iter().filter(|line| line.get("time").is_some()).collect();
    assert_eq!(events.len(), 3);
    for event in events {
        let time = event["time"].as_u64().unwrap();
        assert!((before..clock::monotonic()).contains(&time), "{event}");
        let real = time.saturating_add_signed(offset);
        let hour = 3_600_000_000_000;
        assert!(real.abs_diff(clock::realtime()) < hour, "{}", lines[0]);
    }
    assert_eq!(lines.last().unwrap()["late"], 0);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn namespaces_that_do_not_fit_together_are_refused() {
    for (options, expected) in [
        (&["-fp"][..], "/proc shows another PID namespace"),
        (&["-p"], "a command would start in another PID namespace"),
        (&["-Ur"], "this process is in a user namespace of its own"),
    ] {
        let mut command = Command::new("unshare");
        command.args(options).arg(binary()).args(["trace", EXEC, "--", "true"]);
        assert_exit(&mut command, 1, expected);
    }
}
