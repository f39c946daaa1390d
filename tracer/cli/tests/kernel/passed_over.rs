//! Hits that the kernel does not pass on, because another program is running on the CPU.

use crate::probe::commands::shell;
use crate::probe::compat::{Call, Program, Width, Word};
use crate::probe::{Run, all_json_lines, probe, stderr, succeed};
use probe_testing::skip::skip;
use probe_testing::version;
use probe_tracer::Tracer;
use probe_user::EvHandlers;
use rustix::process::Signal;
use serde_json::json;
use std::process::{Child, Command};

const NOT_COUNTED: &str = "hits while another eBPF program ran on the CPU are missing, and this kernel does not count them";

/// Wakes the tracer: an event on a quiet CPU does so by an interrupt, which finds the program still running.
/// From some kernel between 6.18 and 7.3 on, programs of `syscalls` tracepoints do not keep others from running.
const WAKES: &str = "tracepoint:raw_syscalls:sys_enter/id == write && comm == \"dd\"/";

const PASSED_OVER: &str = "tracepoint:irq_vectors:irq_work_entry";

/// Writes eight times, and is quiet in between.
fn writes() -> [String; 3] {
    let write = "dd if=/dev/zero of=/dev/null bs=1 count=1 status=none; sleep 0.05";
    shell(&format!("for n in 1 2 3 4 5 6 7 8; do {write}; done"))
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn hits_during_other_programs_are_counted() {
    let specs = [WAKES, PASSED_OVER, "rawtp:irq_work_entry"];
    let args = ["trace", "-F", "jsonl"].into_iter().chain(specs);
    let output = succeed(probe(args).arg("--").args(writes()));
    let lines = all_json_lines(&output);
    let (ledger, errors) = (&lines[lines.len() - 1], stderr(&output));
    if version::kernel() < (6, 7) {
        assert!(ledger["skipped"].is_null() && errors.contains(NOT_COUNTED), "{ledger}: {errors}");
        return;
    }
    let skipped: Vec<_> =
        ledger["missed"].as_array().unwrap().iter().map(|missed| &missed["by_kernel"]).collect();
    assert_eq!((skipped[0], skipped[2]), (&json!(0), &json!(0)), "{ledger}");
    assert!(skipped[1].as_u64() >= Some(8) && ledger["verdict"] == "except_skipped", "{ledger}");
    // Raw tracepoints have no such limit.
    let raw = lines.iter().filter(|line| line["type"] == "rawtp").count();
    assert!(raw >= 8, "{ledger}");
    assert!(
        errors.contains(" not passed on by the kernel") && !errors.contains(NOT_COUNTED),
        "{errors}"
    );

    // Nothing else is skipped.
    let output =
        succeed(&mut probe(["trace", "-F", "jsonl", "rawtp:sched_process_exec", "--", "true"]));
    let lines = all_json_lines(&output);
    assert_eq!(lines[lines.len() - 1]["skipped"], 0, "{}", stderr(&output));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn hits_that_are_not_passed_on_before_a_trace_begins_do_not_count() {
    if version::kernel() < (6, 7) {
        return skip("this kernel does not count the hits that it does not pass on");
    }
    let builder = || Tracer::builder().probe(PASSED_OVER.parse().unwrap());
    let mut held = builder().held().attach().unwrap();
    let begun = builder().attach().unwrap();
    let run = Run::start(["trace", WAKES]);
    let [program, arguments @ ..] = writes();
    succeed(Command::new(program).args(arguments));
    run.signal(Signal::INT);
    assert!(run.finish().status.success());
    held.begin().unwrap();
    let [held, begun] = [held, begun].map(|tracer| tracer.close(&mut EvHandlers::new()).unwrap());
    assert!(begun.missed[0].by_kernel >= Some(8), "{begun}");
    assert_eq!(held.missed[0].by_kernel, Some(0), "{held}");
}

/// A 32-bit program that waits for ever. `None` if the kernel does not run it, and then the test is skipped.
fn run_32_bits() -> Option<(Child, Program)> {
    const PAUSE: Call = (29, [Word::Number(0); 4]);
    if !Program::new(Width::Bits32, "", &[], false).runs() {
        return None;
    }
    let program = Program::new(Width::Bits32, "", &[PAUSE], true);
    Some((Command::new(program.path()).spawn().unwrap(), program))
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn numbers_of_32_bit_system_calls_have_no_names() {
    let Some((mut child, program)) = run_32_bits() else { return };
    child.kill().unwrap();
    child.wait().unwrap();
    // The number of its call, 29, is that of another call in 64-bit programs.
    let specs = ["rawtp:sys_enter(id)", "tracepoint:raw_syscalls:sys_enter(id)/id >= 0/"];
    let program = program.path().into_os_string().into_string().unwrap();
    let args = ["trace", "-F", "jsonl", "-d", "3s"].into_iter().chain(specs);
    let lines = all_json_lines(&succeed(&mut probe(args.chain(["--", &program]))));
    let shown = |id: u64| {
        let of_id = lines.iter().filter(move |line| line["args"]["id"] == id);
        of_id.map(|line| line["names"]["id"].as_str()).collect::<Vec<_>>()
    };
    assert_eq!(shown(59), [Some("execve"); 2], "{lines:?}");
    assert_eq!(shown(29), [None; 2], "{lines:?}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn system_calls_of_32_bit_programs_are_reported_as_unseen() {
    let Some((mut child, program)) = run_32_bits() else { return };
    let pid = child.id().to_string();
    let mut args = vec!["count", "tracepoint:syscalls:sys_enter_pause", "-d", "1ms"];
    let everywhere = stderr(&succeed(&mut probe(&args)));
    args.extend(["-p", &pid]);
    let one = stderr(&succeed(&mut probe(&args)));
    child.kill().unwrap();
    child.wait().unwrap();
    let command = program.path().into_os_string().into_string().unwrap();
    let args = ["trace", "tracepoint:syscalls:sys_enter_pause", "-d", "100ms", "--", &command];
    let of_command = stderr(&succeed(&mut probe(args)));
    let expected = "whose system calls pass by this tracepoint; ";
    assert!(
        of_command.contains(&format!("{command} is a 32-bit program, {expected}")),
        "{of_command}"
    );
    assert!(everywhere.contains(expected), "{everywhere}");
    assert!(one.contains(&format!("process {pid} is a 32-bit program, {expected}")), "{one}");
}
