//! System calls by their names.

mod probe;

use probe::{assert_failure, events, probe, stderr, stdout};

const PATH: &str = "/etc/hostname";

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn a_system_call_has_its_arguments() {
    let opened = events(&["ksyscall:openat"], &["cat", PATH]);
    let ours: Vec<_> = opened.iter().filter(|event| event["args"]["filename"] == PATH).collect();
    let [ours] = ours.as_slice() else { panic!("{opened:?}") };
    assert_eq!((&ours["type"], &ours["probe"]), (&"ksyscall".into(), &"openat".into()));
    assert_eq!((&ours["args"]["dfd"], &ours["args"]["mode"]), (&(-100).into(), &0.into()));

    let dd = ["dd", "if=/dev/zero", "of=/dev/null", "bs=3", "count=200"];
    let spec = "ksyscall:write(fd, size=count, data=buf:bytes[3])/count == 3 && comm == \"dd\"/";
    let written = events(&[spec], &dd);
    assert_eq!(written.len(), 200);
    for event in written {
        let expected = serde_json::json!({"fd": 1, "size": 3, "data": "000000"});
        assert_eq!(event["args"], expected);
    }
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn a_system_call_has_its_result() {
    let opened = events(&["--ret", "ksyscall:openat"], &["sh", "-c", "cat /there/is/none; true"]);
    let ours = opened.iter().find(|event| event["args"]["filename"] == "/there/is/none").unwrap();
    assert_eq!((&ours["type"], &ours["args"]["retval"]), (&"call".into(), &(-2).into()));
    assert_eq!(ours["errno"], "ENOENT");
    assert!(ours["args"]["latency"].as_u64().unwrap() > 0);
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn patterns_of_system_calls_are_counted() {
    let mut run = probe(["count", "-F", "jsonl", "ksyscall:*write*", "-x", "pwrite*", "--"]);
    let dd = ["dd", "status=none", "if=/dev/zero", "of=/dev/null", "bs=1", "count=300"];
    let output = run.args(dd).output().unwrap();
    let lines = stdout(&output);
    let expected =
        "{\"type\":\"count\",\"provider\":\"ksyscall\",\"probe\":\"write\",\"count\":300}\n";
    assert_eq!(lines, expected, "{}", stderr(&output));
    assert_failure(
        &mut probe(["trace", "ksyscall:opennat"]),
        "system call of this name; there is openat",
    );
}
