//! What the binary `probe` reads of kernel functions, beside what is known to have happened.

mod probe;

use probe::set_on_drop::SetOnDrop;
use probe::{Run, events, json_lines, stderr};
use serde_json::{Value, json};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};

/// A file of so many bytes, that `dd` reads in pieces.
fn file(bytes: usize) -> tempfile::NamedTempFile {
    let mut file = tempfile::Builder::new().prefix("read-me-").tempfile_in(".").unwrap();
    file.write_all(&vec![b'x'; bytes]).unwrap();
    file
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn the_file_that_is_opened_is_named() {
    let given = "do_sys_openat2(dfd, name=filename:ustr, how->flags, mode=how->mode:x16)";
    for (probe, name) in [("do_sys_openat2", "filename"), (given, "name")] {
        let events = events(&[probe], &["cat", "/etc/hostname"]);
        let opened: Vec<_> =
            events.iter().filter(|event| event["args"][name] == "/etc/hostname").collect();
        assert_eq!(opened.len(), 1, "{events:#?}");
        let args = &opened[0]["args"];
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
fn a_predicate_lets_through_what_it_says_and_nothing_else() {
    let file = file(20 * 5000);
    let name = file.path().file_name().unwrap().to_str().unwrap();
    let input = format!("if={}", file.path().display());
    let big = ["dd", &input, "of=/dev/null", "bs=5000"];
    let probe = "vfs_read(file->f_path.dentry->d_name.name:str, count)";
    let all = events(&[probe], &big);
    let is_ours = |event: &&Value| event["args"]["file.f_path.dentry.d_name.name"] == name;
    // The last one finds the end.
    assert_eq!(all.iter().filter(is_ours).count(), 21, "{all:#?}");
    assert!(all.iter().filter(is_ours).all(|event| event["args"]["count"] == 5000));

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
        let some = events(&[&format!("{probe}/{predicate}/")], &big);
        assert_eq!(some.iter().filter(is_ours).count(), count, "{predicate}: {some:#?}");
    }
    let named = format!("{probe}/file->f_path.dentry->d_name.name:str == \"{name}\"/");
    let named = events(&[&named], &big);
    assert_eq!((named.len(), named.iter().filter(is_ours).count()), (21, 21), "{named:#?}");
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn what_functions_return_is_told() {
    let file = file(20 * 5000);
    let input = format!("if={}", file.path().display());
    let dd = ["dd", &input, "of=/dev/null", "bs=5000"];
    let reads = events(&["kr:vfs_read", "kr:vfs_read/retval == 5000/"], &dd);
    let of = |probe: u64| reads.iter().filter(move |event| event["args"]["retval"] == probe);
    // Each of them is told by both probes.
    assert_eq!(of(5000).count(), 2 * 20, "{reads:#?}");
    assert!(of(0).count() >= 1, "{reads:#?}");
    assert!(reads.iter().all(|event| event["type"] == "kretprobe"));

    let missing = events(&["kr:do_sys_openat2/retval < 0/"], &["sh", "-c", "cat /nowhere; exit 0"]);
    let is_missing = |event: &&Value| event["args"]["retval"] == -2 && event["errno"] == "ENOENT";
    assert!(missing.iter().any(|event| is_missing(&event)), "{missing:#?}");
    assert!(missing.iter().all(|event| event["args"]["retval"].as_i64() < Some(0)));
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn what_cannot_be_read_is_told_and_the_event_stays() {
    let pid = std::process::id().to_string();
    let probe = "do_sys_openat2(dfd, filename:ustr)/dfd == -7/";
    let run = Run::start(&["trace", probe, "-F", "jsonl", "-M1", "-p", &pid]);
    let done = AtomicBool::new(false);
    let output = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                // SAFETY: the kernel checks the address, and finds nothing there.
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
