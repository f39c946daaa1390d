//! Strings of kernel functions and of calls, on pages that are not in memory when a probe is hit.

use crate::absent::{STRINGS, assert_strings, path, work};
use crate::probe::events;

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
