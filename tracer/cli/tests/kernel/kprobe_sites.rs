//! Offsets in kernel functions, functions that share a name, and functions of which the compiler has made several.

use crate::probe::commands::writes;
use crate::probe::{assert_exit, assert_failure, events, printed, probe, stderr};
use std::collections::BTreeMap;

/// The addresses of the kernel's functions outside modules.
fn functions() -> BTreeMap<String, Vec<u64>> {
    let text = std::fs::read_to_string("/proc/kallsyms").unwrap();
    let mut functions = BTreeMap::<String, Vec<u64>>::new();
    for line in text.lines() {
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        if let [address, "t" | "T", name] = words[..] {
            let address = u64::from_str_radix(address, 16).unwrap();
            functions.entry(name.to_owned()).or_default().push(address);
        }
    }
    functions
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn functions_that_can_be_probed_are_listed() {
    let assert_failure = |name, expected| assert_failure(&mut probe(["list", name]), expected);
    assert_failure("vfs_raed", "is called vfs_raed; did you mean `vfs_read`");
    let listed = printed(["list", "vfs_rea*"]);
    assert!(listed.lines().any(|line| line == "vfs_read"), "{listed}");
    assert_eq!(printed(["list", "kretprobe:vfs_read"]), "kretprobe:vfs_read\n");
    for name in ["vfs_read", "vfs_rea[d]"] {
        assert_eq!(printed(["list", &format!("kprobe:vmlinux:{name}")]), "vmlinux:vfs_read\n");
    }
    assert_failure("kprobe:no_such:vfs_read", "no_such");
    assert_eq!(printed(["list", "ksyscall:openat*"]), "ksyscall:openat\nksyscall:openat2\n");
    assert_failure("ksyscall:opeat", "the kernel has no system call of this name");
    let blacklist = std::fs::read_to_string("/sys/kernel/debug/kprobes/blacklist");
    let blacklist = blacklist.unwrap_or_default();
    if let Some(name) = blacklist.lines().find_map(|line| line.split_whitespace().nth(1)) {
        assert_failure(&format!("kprobe:{name}"), "the kernel does not allow probes");
    }
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn an_offset_is_in_the_function_and_has_no_arguments() {
    let functions = functions();
    let address = |name: &str| functions[name][0];
    let (one, other) = (address("vfs_read"), address("vfs_write"));
    let (first, second, offset) = match one < other {
        true => ("vfs_read", "vfs_write", other - one),
        false => ("vfs_write", "vfs_read", one - other),
    };
    let expected = format!(" bytes of code; at this offset is {second}");
    assert_failure(&mut probe(["count", &format!("{first}+{offset:#x}")]), &expected);

    // Where an instruction begins, behind the bytes that ftrace patches.
    let is_instruction = |offset: &u64| {
        let spec = format!("vfs_write+{offset}");
        probe(["count", &spec, "--", "true"]).output().unwrap().status.success()
    };
    let offset = (6..24).find(is_instruction).unwrap();
    let site = format!("vfs_write+{offset:#x}");
    let hits = events(["vfs_write", &site], writes(50));
    let of = |name: &str| hits.iter().filter(|event| event["probe"] == name).count();
    assert!(of("vfs_write") >= 50);
    assert_eq!(of("vfs_write"), of(&site));
    let bare = hits.iter().filter(|event| event["probe"] == site.as_str());
    assert!(bare.clone().all(|event| event["args"].as_object().unwrap().is_empty()));
    let expected = "inside vfs_write, its arguments may be in other registers than at its entry";
    assert_exit(&mut probe(["trace", &format!("{site}(count)")]), 1, expected);
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn a_function_can_be_named_by_its_address() {
    let functions = functions();
    let address = functions["vfs_write"][0];
    // Its types are those of its name, which is its own.
    let (entry, returned) = (format!("{address:#x}"), format!("kretprobe:{address:#x}"));
    let fields = format!("{entry}(count)");
    let hits = events(["vfs_write(count)", &fields], writes(50));
    let of = |name: &str| {
        let hits = hits.iter().filter(|event| event["probe"] == name);
        hits.map(|event| event["args"]["count"].as_u64()).collect::<Vec<_>>()
    };
    assert!(of("vfs_write").len() >= 50);
    assert_eq!(of("vfs_write"), of(&entry));
    let results = events([&*format!("{returned}(retval)")], writes(50));
    assert!(results.iter().filter(|event| event["args"]["retval"] == 1).count() >= 50);
    let expected = "vfs_write+0x1 is not the beginning of a function, where its return would be";
    assert_failure(&mut probe(["count", &format!("kretprobe:{:#x}", address + 1)]), expected);
    assert_failure(&mut probe(["count", "kprobe:0x10"]), "the kernel cannot probe this offset");
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn one_of_the_functions_of_a_name_can_be_probed() {
    let all = &functions()["s_start"];
    assert!(all.len() > 1);
    // The kernel refuses those of its own tracing.
    let is_allowed = |spec: &String| {
        let output = probe(["count", spec, "--", "true"]).output().unwrap();
        output.status.success() || !stderr(&output).contains("does not allow probes")
    };
    let specs = all.iter().map(|address| format!("kprobe:{address:#x}"));
    let specs: Vec<_> = specs.filter(is_allowed).collect();
    assert!(specs.len() > 1);
    // That of the symbol table.
    let hits = events(&specs, ["cat", "/proc/kallsyms"]);
    let first = hits[0]["probe"].as_str().unwrap();
    assert!(all.iter().any(|address| first == format!("{address:#x}")), "{first}");
    assert!(hits.iter().all(|event| event["probe"] == first && event["args"]["arg0"] != 0));
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn names_that_do_not_tell_everything_are_reported() {
    let functions = functions();
    let count = functions["s_next"].len();
    assert!(count > 1);
    for (provider, by_address) in
        [("fentry", "kprobe"), ("fexit", "kretprobe"), ("kprobe", "kprobe")]
    {
        let expected = format!(
            "the name is ambiguous: {count} functions of the kernel have it. Probe one by its address, which is in \
             /proc/kallsyms: {by_address}:{:#x}",
            functions["s_next"][0]
        );
        assert_failure(&mut probe(["count", &format!("{provider}:s_next")]), &expected);
    }
    let split = functions.keys().find_map(|name| {
        let original = name.strip_suffix(".part.0")?;
        // Only those that can be probed.
        let is_plain = functions.get(original).is_some_and(|all| all.len() == 1);
        let spec = format!("kprobe:{original}");
        let output = is_plain.then(|| probe(["count", &spec, "--", "true"]).output().unwrap())?;
        output.status.success().then(|| (original.to_owned(), stderr(&output)))
    });
    let (name, printed) = split.expect("every kernel has such functions");
    let expected = format!(
        "kprobe:{name}: the compiler has made other functions out of {name}, whose calls are not seen unless you probe \
         them, too: {name}.part.0"
    );
    assert!(printed.contains(&expected), "{printed}");
}
