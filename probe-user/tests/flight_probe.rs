//! The binary `probe` as a flight recorder: what asks for dumps, and what is told of them.

mod probe;

use probe::{Run, all_json_lines, books, probe, stderr};
use rustix::process::Signal;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const RECORDED: [&str; 4] = ["rawtp:sys_enter", "--flight-recorder", "256K", "-F"];

/// Of each dump, how many events it had. Everything that is told of them has to agree.
fn dumps(output: &Output) -> Vec<usize> {
    let said = stderr(output);
    assert!(output.status.success(), "{said}");
    let lines = all_json_lines(output);
    let (mut dumps, mut overwritten, mut time) = (Vec::new(), 0, 0);
    for line in &lines[1..lines.len() - 1] {
        match line["type"].as_str().unwrap() {
            "dump" => {
                assert_eq!(line["number"], dumps.len());
                let before = line["overwritten"].as_u64().unwrap();
                let told = format!(
                    "probe: dump {}: {} events, {before} before them overwritten\n",
                    dumps.len() + 1,
                    line["records"]
                );
                assert!(said.contains(&told.replace(": 1 events", ": 1 event")), "{told}: {said}");
                overwritten += before;
                dumps.push((line["records"].as_u64().unwrap(), 0));
                time = 0;
            }
            "rawtp" => {
                let now = line["time"].as_u64().unwrap();
                assert!(now >= time, "not in the order of time");
                time = now;
                dumps.last_mut().expect("a dump before its events").1 += 1;
            }
            // What a dump takes no records for.
            "lost" => {}
            other => panic!("{other}"),
        }
    }
    for (told, came) in &dumps {
        assert_eq!(*told, *came as u64, "{said}");
    }
    let books = books(&said);
    let ledger = lines.last().unwrap();
    let came: usize = dumps.iter().map(|(_, came)| came).sum();
    assert_eq!((books.handled, books.overwritten, books.unread), (came as u64, overwritten, 0));
    assert_eq!(ledger.get("overwritten").map_or(0, |value| value.as_u64().unwrap()), overwritten);
    dumps.into_iter().map(|(_, came)| came).collect()
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_signal_dumps_and_so_does_the_end() {
    let mut dd = Command::new("dd");
    let dd = dd.args(["if=/dev/zero", "of=/dev/null", "bs=1"]).stderr(Stdio::null());
    let mut load = dd.spawn().unwrap();
    let pid = load.id().to_string();
    let mut run = Run::start(&[&["trace"][..], &RECORDED, &["jsonl", "-p", &pid]].concat());
    let heading = run.heading();
    std::thread::sleep(Duration::from_secs(1));
    run.signal(Signal::USR2);
    std::thread::sleep(Duration::from_secs(2));
    run.signal(Signal::INT);
    let mut output = run.finish();
    output.stdout.splice(..0, heading.into_bytes());
    load.kill().unwrap();
    load.wait().unwrap();
    let dumps = dumps(&output);
    assert_eq!(dumps.len(), 2, "{}", stderr(&output));
    assert!(dumps.iter().all(|events| *events > 0) && books(&stderr(&output)).overwritten > 0);
}

/// What a command's dumps have, with these triggers.
fn of_command(triggers: &[&str], script: &str) -> Vec<usize> {
    let mut run = probe(["trace"]);
    run.args(RECORDED).arg("jsonl");
    for trigger in triggers {
        run.args(["--trigger", trigger]);
    }
    dumps(&run.args(["--", "sh", "-c", script]).output().unwrap())
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_hit_of_a_trigger_dumps_if_its_condition_holds() {
    const EXEC: &str = "tracepoint:sched:sched_process_exec";
    // Slow enough to be dumped before the next one comes, on any machine.
    let script = "sleep 1; cat /dev/null; sleep 1; true";
    assert_eq!(of_command(&[], script).len(), 1);
    assert_eq!(of_command(&[&format!("{EXEC}/comm == \"none\"/")], script).len(), 1);
    let dumps = of_command(&[&format!("{EXEC}/comm == \"cat\"/")], script);
    assert!(dumps.len() == 2 && dumps.iter().all(|events| *events > 0), "{dumps:?}");
    // Those of others are none.
    let mut other = Command::new("sh");
    let mut other = other.args(["-c", "while :; do cat /dev/null; done"]).spawn().unwrap();
    let dumps = of_command(&[&format!("{EXEC}/comm == \"cat\"/")], "sleep 1; true");
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!(dumps.len(), 1);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn dumps_can_be_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("recording");
    let path = file.to_str().unwrap();
    let args = ["record", "-o", path, "rawtp:sys_enter", "--flight-recorder", "64K", "--"];
    let output = probe(args).args(["cat", "/etc/passwd"]).output().unwrap();
    let said = stderr(&output);
    assert!(said.contains("probe: dump 1: ") && books(&said).handled > 0, "{said}");
    let output = probe(["replay", path, "-F", "jsonl"]).output().unwrap();
    let events = all_json_lines(&output).len() - 2;
    assert_eq!(events as u64, books(&said).handled, "{}", stderr(&output));
}

#[test]
fn a_trigger_needs_something_to_dump() {
    let output = probe(["trace", "vfs_read", "--trigger", "vfs_write"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--flight-recorder"), "{}", stderr(&output));
}
