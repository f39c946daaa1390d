//! Tracepoint fields that the binary `probe` reads, compared with known calls.

use crate::probe::commands::{shell, writes};
use crate::probe::{assert_exit, events, number, probe};
use serde_json::json;

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_tracepoint_has_its_fields() {
    for probe in [
        "tracepoint:syscalls:sys_enter_openat",
        "tracepoint:syscalls:sys_enter_openat(dfd, filename, flags)",
    ] {
        let mut events = events([probe], ["cat", "/etc/hostname"]);
        events.retain(|event| event["args"]["filename"] == "/etc/hostname");
        assert_eq!(events.len(), 1, "{events:#?}");
        assert_eq!(number(&events[0], "flags"), 0);
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_predicate_of_a_tracepoint_counts_exactly() {
    for (predicate, expected) in [
        ("count == 1", 500),
        ("count == 1 && fd == 1", 500),
        ("count == 1 && fd != 1", 0),
        ("count == 1 && comm == \"dd\"", 500),
        ("count == 1 && comm == \"d\"", 0),
    ] {
        let probe = format!("tracepoint:syscalls:sys_enter_write(fd, count)/{predicate}/");
        assert_eq!(events([probe], writes(500)).len(), expected, "{predicate}");
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn pointers_are_followed() {
    let fork = "rawtp:sched_process_fork(parent=arg0->tgid, child=arg1->tgid)";
    let exit = "rawtp:sched_process_exit(arg0->tgid, arg0->comm, arg0->real_parent->tgid)";
    let events = events([fork, exit], shell("/bin/true; exit 0"));
    let forked: Vec<_> =
        events.iter().filter(|event| event["probe"] == "sched_process_fork").collect();
    assert_eq!(forked.len(), 1, "{events:#?}");
    let (parent, child) = (&forked[0]["pid"], &forked[0]["args"]["child"]);
    assert_eq!(&forked[0]["args"]["parent"], parent);
    let exited: Vec<_> = events.iter().filter(|event| &event["pid"] == child).collect();
    assert_eq!(exited.len(), 1, "{events:#?}");
    let expected =
        json!({"arg0.tgid": child, "arg0.comm": "true", "arg0.real_parent.tgid": parent});
    assert_eq!(exited[0]["args"], expected);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn errors_point_at_the_faulty_field() {
    for (spec, expected) in [
        (
            "t:syscalls:sys_enter_write(fd, cont)",
            "probe: this tracepoint has no field cont; did you mean `count`?\n  \
             t:syscalls:sys_enter_write(fd, cont)\n                                 ^\n",
        ),
        ("rt:sched_process_fork(child=arg1->pdi)", "probe: struct task_struct has no member pdi; "),
        ("t:syscalls:sys_enter_write/fd == \"x\"/", "probe: "),
    ] {
        let printed = assert_exit(&mut probe(["trace", spec]), 1, expected);
        assert!(printed.starts_with("probe: "), "{printed}");
        let [_, quoted, pointer] = printed.lines().collect::<Vec<_>>()[..] else {
            panic!("{printed}")
        };
        assert_eq!((quoted, pointer.trim()), (&*format!("  {spec}"), "^"), "{printed}");
    }
}
