//! What the binary `probe` reads of tracepoints, beside what is known to have happened.

mod probe;

use probe::{events, probe, stderr};
use serde_json::json;

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_tracepoint_has_its_fields() {
    for probe in [
        "tracepoint:syscalls:sys_enter_openat",
        "tracepoint:syscalls:sys_enter_openat(dfd, filename, flags)",
    ] {
        let events = events(&[probe], &["cat", "/etc/hostname"]);
        let opened: Vec<_> =
            events.iter().filter(|event| event["args"]["filename"] == "/etc/hostname").collect();
        assert_eq!(opened.len(), 1, "{events:#?}");
        assert_eq!(opened[0]["args"]["flags"].as_u64(), Some(0), "{events:#?}");
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_predicate_of_a_tracepoint_counts_exactly() {
    let write = |predicate: &str| {
        let probe = format!("tracepoint:syscalls:sys_enter_write(fd, count)/{predicate}/");
        let dd = ["dd", "if=/dev/zero", "of=/dev/null", "bs=7", "count=500"];
        events(&[&probe], &dd).len()
    };
    assert_eq!(write("count == 7"), 500);
    assert_eq!(write("count == 7 && fd == 1"), 500);
    assert_eq!(write("count == 7 && fd != 1"), 0);
    assert_eq!(write("count == 7 && comm == \"dd\""), 500);
    assert_eq!(write("count == 7 && comm == \"d\""), 0);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn pointers_are_followed_to_where_they_lead() {
    let fork = "rawtp:sched_process_fork(parent=arg0->tgid, child=arg1->tgid)";
    let exit = "rawtp:sched_process_exit(arg0->tgid, arg0->comm, arg0->real_parent->tgid)";
    let events = events(&[fork, exit], &["sh", "-c", "/bin/true; exit 0"]);
    let forked: Vec<_> =
        events.iter().filter(|event| event["probe"] == "sched_process_fork").collect();
    assert_eq!(forked.len(), 1, "{events:#?}");
    let (shell, child) = (&forked[0]["pid"], &forked[0]["args"]["child"]);
    assert_eq!(&forked[0]["args"]["parent"], shell);
    let gone: Vec<_> = events.iter().filter(|event| &event["pid"] == child).collect();
    assert_eq!(gone.len(), 1, "{events:#?}");
    assert_eq!(
        gone[0]["args"],
        json!({"arg0.tgid": child, "arg0.comm": "true", "arg0.real_parent.tgid": shell})
    );
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_field_that_is_not_there_is_pointed_at() {
    for (spec, told) in [
        (
            "t:syscalls:sys_enter_write(fd, cont)",
            "probe: this tracepoint has no field cont; there is count\n  \
             t:syscalls:sys_enter_write(fd, cont)\n                                 ^\n",
        ),
        ("rt:sched_process_fork(child=arg1->pdi)", "probe: struct task_struct has no member pdi; "),
        ("t:syscalls:sys_enter_write/fd == \"x\"/", "probe: "),
    ] {
        let output = probe(["trace", spec]).output().unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.starts_with(told), "{said}");
        let mut lines = said.lines().skip(1);
        assert_eq!(lines.next(), Some(&*format!("  {spec}")), "{said}");
        assert!(lines.next().is_some_and(|line| line.trim() == "^"), "{said}");
        assert_eq!(lines.next(), None);
    }
}
