//! Probes on kernel functions by trampoline (fentry and fexit).

use crate::probe::commands::{shell, writes};
use crate::probe::{assert_exit, assert_failure, counts, events, printed, probe, stderr, succeed};
use probe_testing::version;
use std::collections::BTreeMap;

fn has_types_of_modules() -> bool {
    version::kernel() >= (5, 11)
}

/// Whether the kernel prevents recursion of trampoline programs.
fn has_guards() -> bool {
    version::kernel() >= (5, 12)
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn a_function_that_returns_has_its_arguments() {
    let dd = ["dd", "if=/dev/zero", "of=/dev/null", "bs=3", "count=200"];
    let entered = events(["fentry:vfs_read/count == 3 && comm == \"dd\"/"], dd);
    let exit = "fexit:vfs_read(size=count, retval, file->f_mode)/count == 3 && retval == 3/";
    let returned = events([exit], dd);
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
    let missing = events(["fexit:do_sys_openat2"], shell("cat /there/is/none; true"));
    let mut results = missing.iter().map(|event| (&event["args"]["retval"], &event["comm"]));
    assert!(results.any(|(retval, comm)| retval == -2 && comm == "cat"), "{missing:?}");
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn entries_and_returns_are_separate_events() {
    let specs = ["f", "fr", "k"].map(|of| format!("{of}:vfs_write/count == 1 && comm == \"dd\"/"));
    let all = events(specs, writes(50));
    for provider in ["fentry", "fexit", "kprobe"] {
        assert_eq!(all.iter().filter(|event| event["type"] == provider).count(), 50, "{provider}");
    }
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn what_cannot_have_a_trampoline_is_refused() {
    let without_match = match has_guards() {
        true => "nothing in the kernel matches this pattern",
        false => "before 5.12, the kernel does not keep a trampoline's program from recursing",
    };
    for (spec, expected) in [
        (
            "fentry:there_is_none",
            "a trampoline needs a function that occurs exactly once in the types of the kernel",
        ),
        ("fentry:no_module:vfs_read", "no module no_module is loaded"),
        ("fentry:vmlinux:v9fs_create", "; try kprobe:v9fs_create"),
        ("fentry:no_such_*", without_match),
        ("fentry:vfs_read(retval)", "has not returned yet"),
    ] {
        assert_exit(&mut probe(["trace", spec]), 1, expected);
    }
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn a_pattern_stands_for_each_matching_function() {
    let no_limit: &[&str] = if has_guards() { &[] } else { &["--no-limit"] };
    // Not on an overlay, which creates each directory twice.
    let script = shell("cd /run; seq -f d$$.%g 10 | xargs mkdir; seq -f d$$.%g 10 | xargs rmdir");
    let patterns = ["k:vfs_*dir", "f:vfs_*dir", "fr:vfs_*dir"];
    let (all, errors) = counts(patterns.iter().chain(no_limit), &script);
    assert_eq!(all["fentry"]["vfs_mkdir"], 10, "{all:?}: {errors}");
    assert_eq!((&all["fentry"], &all["fexit"]), (&all["kprobe"], &all["kprobe"]), "{errors}");
    let (some, errors) = counts(["f:vfs_*dir", "-x", "*rm*"].iter().chain(no_limit), &script);
    assert_eq!(some["fentry"], BTreeMap::from([("vfs_mkdir".to_owned(), 10)]), "{errors}");

    let listed = printed(["list", "f:vfs_*dir"]);
    assert!(listed.lines().any(|line| line == "fentry:vfs_mkdir"), "{listed}");
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn functions_of_modules_are_found_with_and_without_their_module() {
    if !has_types_of_modules() {
        let expected = "which the kernel does not have: they require kernel 5.11 and \
                        CONFIG_DEBUG_INFO_BTF_MODULES";
        assert_failure(&mut probe(["count", "fentry:9p:v9fs_vfs_getattr_dotl"]), expected);
        return;
    }
    // The machine's root file system uses this module.
    let script = "for n in 1 2 3 4 5; do stat Cargo.toml > /dev/null; done";
    let patterns = ["k:9p:v9fs_vfs_getatt*", "f:9p:v9fs_vfs_getatt*", "fr:v9fs_vfs_getatt*"];
    let (all, errors) = counts(patterns, shell(script));
    assert!(all["kprobe"].values().sum::<u64>() >= 5, "{all:?}: {errors}");
    assert_eq!((&all["fentry"], &all["fexit"]), (&all["kprobe"], &all["kprobe"]), "{errors}");

    let name = all["kprobe"].keys().next().unwrap();
    for spec in [format!("fentry:9p:{name}"), format!("fentry:{name}")] {
        let info = printed(["info", &spec]);
        assert!(info.starts_with(&format!("{name}(")) && info.contains("struct kstat *"), "{info}");
    }
    // As a spec, which has the module.
    for spec in [format!("f:9p:{name}"), "f:9p:v9fs_vfs_getatt*".to_owned()] {
        let listed = printed(["list", &spec]);
        assert!(listed.lines().any(|line| line == format!("fentry:9p:{name}")), "{listed}");
    }
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn functions_that_the_kernel_refuses_are_left_out_of_a_pattern() {
    let single = probe(["count", "fexit:do_exit", "--", "true"]).output().unwrap();
    let is_refused = !single.status.success();
    if is_refused {
        let expected = "cannot probe fexit:do_exit: the kernel refuses a trampoline for it: ";
        assert!(stderr(&single).contains(expected), "{}", stderr(&single));
    }
    let no_limit = if has_guards() { None } else { Some("--no-limit") };
    let mut run = probe(["count", "fexit:do_e[xp]*"]);
    let output = succeed(run.args(no_limit).args(["--", "true"]));
    // Some kernels refuse other functions.
    let is_reported = stderr(&output).contains(" could not be probed");
    assert!(is_reported || !is_refused, "{}", stderr(&output));
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn arguments_beyond_the_sixth_are_read() {
    let info = printed(["info", "fentry:ip_make_skb(transhdrlen, flags)"]);
    assert!(info.contains("flags") && !info.contains("[unreadable]"), "{info}");
    let sends = "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); \
                 s.sendto(b'x' * 100, socket.MSG_CONFIRM, ('127.0.0.1', 9))";
    let spec = "fentry:ip_make_skb(length, transhdrlen, flags)";
    if version::kernel() < (6, 6) {
        let expected =
            "cannot probe fentry:ip_make_skb(length, transhdrlen, flags): the kernel refuses";
        assert_failure(&mut probe(["trace", spec, "-d", "1ms"]), expected);
        return;
    }
    // The length includes the header of UDP, which has 8 bytes.
    let args = serde_json::json!({"length": 108, "transhdrlen": 8, "flags": 0x800});
    let sent = events([spec], ["python3", "-c", sends]);
    assert!(sent.iter().any(|event| event["args"] == args), "{sent:?}");
}
