//! Strings of kernel functions and of calls, on pages that are not in memory when a probe is hit.

use crate::absent::{STRINGS, assert_strings, path, work};
use crate::probe::{events, json_lines, stderr, trace};
use serde_json::json;

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn functions_have_the_strings_that_they_read() {
    let opens = work(&format!("opens {STRINGS}"));
    for spec in [
        "ksyscall:openat(filename)/comm == \"absent\"/",
        "do_sys_openat2(filename:ustr)/comm == \"absent\"/",
    ] {
        assert_strings(&events([spec], &opens), "filename");
    }
    let wanted = path(STRINGS / 2);
    let condition = format!("ksyscall:openat(flags)/filename == \"{wanted}\"/");
    assert_eq!(events([condition], &opens).len(), 1);
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn calls_have_the_strings_that_they_read() {
    let opens = work(&format!("opens {STRINGS}"));
    let all = ["ksyscall:openat(filename, retval)/comm == \"absent\"/", "--ret"];
    let events_of_all = events(all, &opens);
    assert_strings(&events_of_all, "filename");
    assert!(events_of_all.iter().all(|event| event["args"]["retval"] == -2));
    let wanted = path(STRINGS / 2);
    let condition = format!("ksyscall:openat(retval)/filename == \"{wanted}\"/");
    assert_eq!(events([condition.as_str(), "--ret"], &opens).len(), 1);
    let condition = format!("ksyscall:openat/filename != \"{wanted}\" && comm == \"absent\"/");
    assert_eq!(events([condition.as_str(), "--ret"], &opens).len(), STRINGS - 1);
}

/// By the time the call returns, another program has something else there. The thread has another id then, too.
#[cfg(target_arch = "x86_64")]
#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn a_string_is_not_read_from_the_program_that_a_call_executes() {
    let spec = "ksyscall:execve(filename, retval)/comm == \"absent\"/";
    let output = trace([spec, "--ret"], work("executes_from_its_stack"));
    let [event] = &json_lines(&output)[..] else { panic!("{}", stderr(&output)) };
    assert_eq!(event["faults"], json!(["filename"]), "{event}");
    assert_eq!(event["args"], json!({"filename": null, "retval": 0}), "{event}");
    assert_ne!(event["pid"], event["tid"]);
}
