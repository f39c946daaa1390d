//! Fields that the binary `probe` reads of kernel functions, compared with known calls.

use crate::probe::commands::{Readable, shell};
use crate::probe::{Run, events, json_lines, stderr};
use probe_testing::set_on_drop::SetOnDrop;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn the_opened_file_is_named() {
    let given = "do_sys_openat2(dfd, name=filename:ustr, how->flags, mode=how->mode:x16)";
    for (probe, name) in [("do_sys_openat2", "filename"), (given, "name")] {
        let mut events = events([probe], ["cat", "/etc/hostname"]);
        events.retain(|event| event["args"][name] == "/etc/hostname");
        let [opened] = &events[..] else { panic!("{events:#?}") };
        let args = &opened["args"];
        assert_eq!(args["dfd"], -100);
        if name == "name" {
            // O_LARGEFILE
            assert_eq!(args["how.flags"], 0o100000);
            assert_eq!(args["mode"], "0x0");
        }
    }
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn a_returned_error_pointer_is_an_error() {
    // The function that opens files has another name in new kernels.
    let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap();
    let is_old = symbols.lines().any(|line| line.ends_with(" do_filp_open"));
    let open = if is_old { "do_filp_open" } else { "do_file_open" };
    let probes = [
        &format!("kretprobe:{open}(retval)/retval < 0/"),
        &format!("fexit:{open}(retval)/retval == -2/"),
        "kretprobe:do_sys_openat2(retval)/retval < 0/",
    ];
    let events = events(probes, shell("cat /nowhere; exit 0"));
    for (kind, name) in [("kretprobe", open), ("fexit", open), ("kretprobe", "do_sys_openat2")] {
        let of_probe = |event: &&Value| event["type"] == kind && event["probe"] == name;
        let returned: Vec<_> = events.iter().filter(of_probe).collect();
        assert!(!returned.is_empty(), "{kind} {name}: {events:#?}");
        let is_missing =
            |event: &&Value| event["args"]["retval"] == -2 && event["errno"] == "ENOENT";
        assert!(returned.iter().all(is_missing), "{returned:#?}");
    }
    let opened = self::events([format!("kretprobe:{open}/retval > 0/")], ["cat", "/etc/hostname"]);
    // With five levels of page tables, addresses of the kernel begin with 0xff.
    let is_address =
        |event: &Value| event["args"]["retval"].as_str().is_some_and(|at| at.starts_with("0xff"));
    assert!(!opened.is_empty() && opened.iter().all(is_address), "{opened:#?}");
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn a_predicate_passes_exactly_the_events_it_describes() {
    let file = Readable::new(20 * 5000);
    let probe = "vfs_read(file->f_path.dentry->d_name.name:str, count)";
    let reads = |probe: &str| {
        let all = events([probe], file.reads(5000));
        let is_ours =
            |event: &&Value| event["args"]["file.f_path.dentry.d_name.name"] == file.name();
        (all.iter().filter(is_ours).cloned().collect::<Vec<_>>(), all)
    };
    let (ours, all) = reads(probe);
    // The last read hits the end of the file.
    assert_eq!(ours.len(), 21, "{all:#?}");
    assert!(ours.iter().all(|event| event["args"]["count"] == 5000));

    for (predicate, count) in [
        ("count > 4999", 21),
        ("count > 5000", 0),
        ("count >= 5000", 21),
        ("!(count == 5000)", 0),
        ("count & 8", 21),
        ("count & 1", 0),
        ("count > 4096 && comm == \"dd\"", 21),
        ("comm == \"d\" || comm == \"ddd\"", 0),
        ("count < 10 || comm != \"cat\" && count > 4096", 21),
    ] {
        let (ours, all) = reads(&format!("{probe}/{predicate}/"));
        assert_eq!(ours.len(), count, "{predicate}: {all:#?}");
    }
    let is_named = format!("file->f_path.dentry->d_name.name:str == \"{}\"", file.name());
    let (ours, all) = reads(&format!("{probe}/{is_named}/"));
    assert_eq!((ours.len(), all.len()), (21, 21), "{all:#?}");
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn results_of_functions_are_reported() {
    let file = Readable::new(20 * 5000);
    let reads = events(["kr:vfs_read", "kr:vfs_read/retval == 5000/"], file.reads(5000));
    let of = |result: u64| reads.iter().filter(move |event| event["args"]["retval"] == result);
    // Both probes report each of them.
    assert_eq!(of(5000).count(), 2 * 20, "{reads:#?}");
    assert!(of(0).count() >= 1, "{reads:#?}");
    assert!(reads.iter().all(|event| event["type"] == "kretprobe"));

    let missing = events(["kr:do_sys_openat2/retval < 0/"], shell("cat /nowhere; exit 0"));
    let is_missing = |event: &Value| event["args"]["retval"] == -2 && event["errno"] == "ENOENT";
    assert!(missing.iter().any(is_missing), "{missing:#?}");
    assert!(missing.iter().all(|event| event["args"]["retval"].as_i64() < Some(0)));
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn an_unreadable_field_is_reported_and_its_event_is_kept() {
    let pid = std::process::id().to_string();
    let probe = "do_sys_openat2(dfd, filename:ustr)/dfd == -7/";
    let run = Run::spawn(["trace", probe, "-F", "jsonl", "-M1", "-p", &pid]);
    let done = AtomicBool::new(false);
    let output = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // SAFETY: the kernel checks the address, which is not mapped.
                let opened = unsafe { libc::openat(-7, std::ptr::without_provenance(4096), 0) };
                assert_eq!(opened, -1);
            }
        });
        let _done = SetOnDrop(&done);
        run.finish()
    });
    let events = json_lines(&output);
    assert_eq!(events[0]["args"], json!({"dfd": -7, "filename": null}), "{}", stderr(&output));
    assert_eq!(events[0]["faults"], json!(["filename"]));
}
