//! Functions by trampolines.

mod probe;

use probe::{assert_failure, events, json_line, probe, stderr, stdout, version};
use std::collections::BTreeMap;

/// How often each function was hit that `patterns` stand for, by the sort of hook, while a script ran; and
/// what was said.
fn counts(patterns: &[&str], script: &str) -> (BTreeMap<String, BTreeMap<String, u64>>, String) {
    let mut run = probe(["count", "-F", "jsonl"]);
    let output = run.args(patterns).args(["--", "sh", "-c", script]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let mut counts = BTreeMap::<String, BTreeMap<String, u64>>::new();
    for line in stdout(&output).lines().map(json_line) {
        let text = |name: &str| line[name].as_str().unwrap().to_owned();
        let of_sort = counts.entry(text("provider")).or_default();
        of_sort.insert(text("probe"), line["count"].as_u64().unwrap());
    }
    (counts, stderr(&output))
}

fn has_types_of_modules() -> bool {
    version::kernel() >= (5, 11)
}

/// Whether the kernel keeps such programs from running inside themselves.
fn has_guards() -> bool {
    version::kernel() >= (5, 12)
}

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
    let told_of_patterns = match has_guards() {
        true => "nothing that the kernel has is matched by this pattern",
        false => {
            "before 5.12, the kernel does not keep a trampoline's program from running inside itself"
        }
    };
    for (spec, told) in [
        ("fentry:there_is_none", "trampolines are for functions that the types of the kernel"),
        ("fentry:no_module:vfs_read", "no module no_module is loaded"),
        ("fentry:vmlinux:v9fs_create", "; kprobe:v9fs_create may do"),
        ("fentry:no_such_*", told_of_patterns),
        ("fentry:vfs_read(retval)", "has not returned yet"),
    ] {
        let output = probe(["trace", spec]).output().unwrap();
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(1), "{spec}: {said}");
        assert!(said.contains(told), "{spec}: {said}");
    }
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn a_pattern_is_each_function_that_matches() {
    let insist: &[&str] = if has_guards() { &[] } else { &["--force"] };
    // Not on an overlay, which makes each twice.
    let script = "cd /run; seq -f d$$.%g 10 | xargs mkdir; seq -f d$$.%g 10 | xargs rmdir";
    let (all, said) =
        counts(&[&["k:vfs_*dir", "f:vfs_*dir", "fr:vfs_*dir"], insist].concat(), script);
    assert_eq!(all["fentry"]["vfs_mkdir"], 10, "{all:?}: {said}");
    assert_eq!((&all["fentry"], &all["fexit"]), (&all["kprobe"], &all["kprobe"]), "{said}");
    let (some, said) = counts(&[&["f:vfs_*dir", "-x", "*rm*"], insist].concat(), script);
    assert_eq!(some["fentry"], BTreeMap::from([("vfs_mkdir".to_owned(), 10)]), "{said}");

    let listed = stdout(&probe(["list", "f:vfs_*dir"]).output().unwrap());
    assert!(listed.lines().any(|line| line == "fentry:vfs_mkdir"), "{listed}");
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn functions_of_modules_are_found_with_and_without_their_module() {
    if !has_types_of_modules() {
        let told = "which the kernel does not tell: it does since 5.11, with CONFIG_DEBUG_INFO_BTF_MODULES";
        assert_failure(&mut probe(["count", "fentry:9p:v9fs_vfs_getattr_dotl"]), told);
        return;
    }
    // The file system that the machine runs on.
    let script = "for n in 1 2 3 4 5; do stat Cargo.toml > /dev/null; done";
    let patterns = ["k:9p:v9fs_vfs_getatt*", "f:9p:v9fs_vfs_getatt*", "fr:v9fs_vfs_getatt*"];
    let (all, said) = counts(&patterns, script);
    assert!(all["kprobe"].values().sum::<u64>() >= 5, "{all:?}: {said}");
    assert_eq!((&all["fentry"], &all["fexit"]), (&all["kprobe"], &all["kprobe"]), "{said}");

    let name = all["kprobe"].keys().next().unwrap();
    for spec in [format!("fentry:9p:{name}"), format!("fentry:{name}")] {
        let info = stdout(&probe(["info", &spec]).output().unwrap());
        assert!(info.starts_with(&format!("{name}(")) && info.contains("struct kstat *"), "{info}");
    }
    let listed = stdout(&probe(["list", "f:9p:v9fs_vfs_getatt*"]).output().unwrap());
    assert!(listed.lines().any(|line| line == format!("fentry:{name}")), "{listed}");
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn what_the_kernel_refuses_is_left_out_of_a_pattern() {
    let alone = probe(["count", "fexit:do_exit", "--", "true"]).output().unwrap();
    let is_refused = !alone.status.success();
    if is_refused {
        let told = "cannot probe fexit:do_exit: the kernel makes no trampoline for it: ";
        assert!(stderr(&alone).contains(told), "{}", stderr(&alone));
    }
    let insist = if has_guards() { None } else { Some("--force") };
    let mut run = probe(["count", "fexit:do_e[xp]*"]);
    let output = run.args(insist).args(["--", "true"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let is_told = stderr(&output).contains(" refused by the kernel");
    // Some kernels refuse others.
    assert!(is_told || !is_refused, "{}", stderr(&output));
}
