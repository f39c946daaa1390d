//! The wall clock is set while `probe` traces. For virtual machines only.

use crate::probe::{EXEC, json_line, printed, probe, stdout, succeed};
use serde_json::Value;

/// Executes a program, sets the clock, executes it, sets the clock back, and executes it.
const SCRIPT: &str =
    "/bin/true; date --set '1 hour' >&2; /bin/true; date --set '-1 hour' >&2; /bin/true";

/// Prints local times.
const LOCAL: [&str; 4] = ["-F", "jsonl", "--time", "local"];

/// By how many hours the wall clock was ahead of that of the beginning, at each execution of the program.
fn hours_ahead(lines: &str) -> Vec<i128> {
    const HOUR: i128 = 3_600_000_000_000;
    let lines: Vec<_> = lines.lines().map(json_line).collect();
    let begun: i128 = lines[0]["realtime_offset"].as_str().unwrap().parse().unwrap();
    let ahead = |event: &Value| {
        let local: jiff::Timestamp = event["local"].as_str().unwrap().parse().unwrap();
        let passed = local.as_nanosecond() - begun - i128::from(event["time"].as_i64().unwrap());
        (passed + HOUR / 2).div_euclid(HOUR)
    };
    lines.iter().filter(|line| line["args"]["filename"] == "/bin/true").map(ahead).collect()
}

#[test]
#[ignore = "needs a virtual machine: cargo xtask test"]
fn events_have_the_wall_clock_of_their_time_however_late_they_are_read() {
    // A flight recorder reads all of them at the end.
    for more in [&[][..], &["--flight-recorder", "64K"]] {
        let mut trace = probe(["trace", EXEC].iter().chain(&LOCAL).chain(more));
        let lines = stdout(&succeed(trace.args(["--", "sh", "-c", SCRIPT])));
        assert_eq!(hours_ahead(&lines), [0, 1, 0], "{lines}");
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("recording");
        let path = path.to_str().unwrap();
        let mut record = probe(["record", "-o", path, EXEC].iter().chain(more));
        succeed(record.args(["--", "sh", "-c", SCRIPT]));
        let lines = printed(["replay", path].iter().chain(&LOCAL));
        assert_eq!(hours_ahead(&lines), [0, 1, 0], "{lines}");
    }
}
