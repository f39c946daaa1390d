//! Functions by trampolines.

mod probe;

use probe::{events, probe, stderr};

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn a_function_that_returns_still_has_its_arguments() {
    let dd = ["dd", "if=/dev/zero", "of=/dev/null", "bs=3", "count=200"];
    let entered = events(&["fentry:vfs_read/count == 3 && comm == \"dd\"/"], &dd);
    let returned = events(
        &["fexit:vfs_read(size=count, retval, file->f_mode)/count == 3 && retval == 3/"],
        &dd,
    );
    assert_eq!((entered.len(), returned.len()), (200, 200));
    for event in entered {
        assert_eq!((&event["type"], &event["probe"]), (&"fentry".into(), &"vfs_read".into()));
        assert_eq!(event["args"]["count"], 3, "{event}");
        assert!(event["args"]["file"].is_string(), "{event}");
    }
    for event in returned {
        assert_eq!(event["type"], "fexit");
        assert_eq!((&event["args"]["size"], &event["args"]["retval"]), (&3.into(), &3.into()));
    }
    let missing = events(&["fexit:do_sys_openat2"], &["sh", "-c", "cat /there/is/none; true"]);
    let ours: Vec<_> = missing
        .iter()
        .filter(|event| event["args"]["retval"] == -2 && event["comm"] == "cat")
        .collect();
    assert!(!ours.is_empty(), "{missing:?}");
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn entries_and_returns_are_told_apart() {
    let dd = ["dd", "status=none", "if=/dev/zero", "of=/dev/null", "bs=1", "count=50"];
    let specs = [
        "f:vfs_write/count == 1 && comm == \"dd\"/",
        "fr:vfs_write/count == 1 && comm == \"dd\"/",
        "k:vfs_write/count == 1 && comm == \"dd\"/",
    ];
    let all = events(&specs, &dd);
    for sort in ["fentry", "fexit", "kprobe"] {
        assert_eq!(all.iter().filter(|event| event["type"] == sort).count(), 50, "{sort}");
    }
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn what_has_no_trampoline_is_refused() {
    for (spec, told) in [
        ("fentry:there_is_none", "trampolines are for functions that the kernel's own types"),
        ("fentry:fuse:fuse_open", "not for those of modules; kprobe:fuse_open may do"),
        ("fexit:vfs_*", "a pattern of functions by trampolines is understood, but"),
        ("fentry:vfs_read(retval)", "has not returned yet"),
    ] {
        let output = probe(["trace", spec]).output().unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{spec}: {said}");
        assert!(said.contains(told), "{spec}: {said}");
    }
}
