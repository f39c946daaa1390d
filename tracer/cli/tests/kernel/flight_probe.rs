//! The binary `probe` as a flight recorder: triggers, and reports about dumps.

use crate::probe::busy::Busy;
use crate::probe::{EXEC, Run, all_json_lines, json_line, ledger, printed, probe, stderr};
use rustix::process::Signal;
use serde_json::Value;
use std::process::Output;
use std::time::Duration;

const RECORDED: [&str; 4] = ["rawtp:sys_enter", "--flight-recorder", "256K", "-F"];

/// The number of events in each dump. Asserts that all reports agree.
fn dumps(output: &Output) -> Vec<u64> {
    let printed = stderr(output);
    assert!(output.status.success(), "{printed}");
    let lines = all_json_lines(output);
    let number = |line: &Value, name: &str| line[name].as_u64().unwrap();
    // The reported and the real number of events of each dump.
    let mut dumps = Vec::<(u64, u64)>::new();
    let (mut overwritten, mut time) = (0, 0);
    for line in &lines[1..lines.len() - 1] {
        match line["type"].as_str().unwrap() {
            "dump" => {
                assert_eq!(line["number"], dumps.len());
                let (events, before) = (number(line, "records"), number(line, "overwritten"));
                let noun = if events == 1 { "event" } else { "events" };
                let report = format!(
                    "probe: dump {}: {events} {noun}, {before} before them overwritten\n",
                    dumps.len() + 1,
                );
                assert!(printed.contains(&report), "{report}: {printed}");
                overwritten += before;
                dumps.push((events, 0));
                time = 0;
            }
            "rawtp" => {
                let now = number(line, "time");
                assert!(now >= time, "not in the order of time");
                time = now;
                dumps.last_mut().expect("a dump before its events").1 += 1;
            }
            // A dump blocks records while it runs, and reports them as lost.
            "lost" => {}
            other => panic!("{other}"),
        }
    }
    assert!(dumps.iter().all(|(reported, events)| reported == events), "{dumps:?}: {printed}");
    let dumps: Vec<_> = dumps.into_iter().map(|(_, events)| events).collect();
    let (ledger, last) = (ledger(output), lines.last().unwrap());
    let expected = (dumps.iter().sum(), overwritten, 0);
    assert_eq!((ledger.handled, ledger.overwritten, ledger.unread), expected);
    assert_eq!(last["overwritten"].as_u64().unwrap_or(0), overwritten);
    dumps
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_signal_and_the_end_each_cause_a_dump() {
    let load = Busy::start();
    let args = ["trace"].into_iter().chain(RECORDED);
    let mut run = Run::start(args.chain(["jsonl", "-p", &load.pid()]));
    // The load fills the rings.
    std::thread::sleep(Duration::from_secs(1));
    run.signal(Signal::USR2);
    let read = run.heading.clone() + &first_dump(&mut run);
    // Both dumps have events.
    std::thread::sleep(Duration::from_secs(1));
    run.signal(Signal::INT);
    let mut output = run.finish();
    output.stdout.splice(..0, read.into_bytes());
    let dumps = dumps(&output);
    assert_eq!(dumps.len(), 2, "{}", stderr(&output));
    assert!(dumps.iter().all(|events| *events > 0) && ledger(&output).overwritten > 0);
}

/// Reads the lines of a run up to the last event of its first dump.
fn first_dump(run: &mut Run) -> String {
    let (mut read, mut left) = (String::new(), None);
    while left != Some(0) {
        let line = run.read_line();
        assert_ne!(line, "", "no whole dump: {read}");
        let parsed = json_line(&line);
        match (parsed["type"].as_str().unwrap(), &mut left) {
            ("dump", _) => left = parsed["records"].as_u64(),
            ("rawtp", Some(left)) => *left -= 1,
            _ => {}
        }
        read += &line;
    }
    read
}

/// Waits in a script until the trace has reported its first dump in `$0`, for a minute at most.
const UNTIL_DUMPED: &str =
    "n=0; until grep -q 'dump 1:' \"$0\" || [ $((n+=1)) -gt 600 ]; do sleep 0.1; done";

/// The number of events in each dump of a command, with these triggers.
fn of_command(triggers: &[&str], script: &str) -> Vec<u64> {
    let mut run = probe(["trace"]);
    run.args(RECORDED).arg("jsonl");
    for trigger in triggers {
        run.args(["--trigger", trigger]);
    }
    let errors = tempfile::NamedTempFile::new().unwrap();
    run.args(["--", "sh", "-c", script]).arg(errors.path()).stderr(errors.reopen().unwrap());
    let output = run.output().unwrap();
    dumps(&Output { stderr: std::fs::read(errors.path()).unwrap(), ..output })
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_hit_of_a_trigger_causes_a_dump_if_its_condition_holds() {
    let script = "cat /dev/null; true";
    assert_eq!(of_command(&[], script).len(), 1);
    assert_eq!(of_command(&[&format!("{EXEC}/comm == \"none\"/")], script).len(), 1);
    // The end of the command would otherwise be reached before the dump.
    let script = format!("cat /dev/null; {UNTIL_DUMPED}");
    let dumps = of_command(&[&format!("{EXEC}/comm == \"cat\"/")], &script);
    assert!(dumps.len() == 2 && dumps.iter().all(|events| *events > 0), "{dumps:?}");
    // Execs of other processes are no triggers.
    let _other = Busy::repeat("cat /dev/null");
    let dumps = of_command(&[&format!("{EXEC}/comm == \"cat\"/")], "sleep 1; true");
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
    let handled = ledger(&output).handled;
    assert!(stderr(&output).contains("probe: dump 1: ") && handled > 0, "{}", stderr(&output));
    let replayed = printed(["replay", path, "-F", "jsonl"]);
    let lines: Vec<_> = replayed.lines().map(json_line).collect();
    // The first line describes the trace, and the last one is the ledger.
    let [_, dump, events @ .., _] = &*lines else { panic!("{replayed}") };
    assert_eq!((&dump["type"], dump["records"].as_u64()), (&"dump".into(), Some(handled)));
    assert_eq!(events.len() as u64, handled, "{replayed}");
}
