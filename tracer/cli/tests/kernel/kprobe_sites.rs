//! Offsets in kernel functions, functions that share a name, and functions of which the compiler has made several.

use crate::probe::commands::writes;
use crate::probe::{assert_exit, assert_failure, events, probe, stderr};
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
fn names_that_do_not_tell_everything_are_reported() {
    let functions = functions();
    let count = functions["s_next"].len();
    assert!(count > 1);
    let expected = format!("the name is ambiguous: {count} functions of the kernel have it");
    assert_failure(&mut probe(["count", "fentry:s_next"]), &expected);
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
