//! The binary `probe` under stress: stopped, killed, with a blocked output, and twice at the same
//! time.

use crate::probe::busy::Busy;
use crate::probe::{EXEC, Ledger, Run, binary, ledger, stderr, succeed};
use rustix::process::Signal;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};
use std::time::Duration;

const TRACE: [&str; 5] = ["trace", "rawtp:sys_enter", "-F", "jsonl", "-p"];

/// Traces the load with small rings.
fn trace(load: &Busy) -> Run {
    Run::start(TRACE.into_iter().chain([&*load.pid(), "-B", "64K"]))
}

/// Asserts that the printed lines match the ledger's events and losses.
fn assert_accounted_for(output: &Output) {
    assert!(output.status.success(), "{}", stderr(output));
    let ledger = ledger(output);
    assert_eq!(ledger.unread, 0, "{}", stderr(output));
    let out = String::from_utf8_lossy(&output.stdout);
    let (mut events, mut lost) = (0, 0);
    // Parses line by line, because there are many.
    for line in out.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        match line["type"].as_str().unwrap() {
            "lost" => lost += line["records"].as_u64().unwrap(),
            "rawtp" => events += 1,
            "ledger" => {
                assert_eq!((&line["events"], &line["lost"]), (&events.into(), &lost.into()))
            }
            other => panic!("no line of type {other} was expected"),
        }
    }
    assert_eq!((events, lost), (ledger.handled, ledger.lost), "{}", stderr(output));
    assert!(lost > 0 && events > 0, "{ledger:?}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_stopped_tracer_reports_what_was_lost_meanwhile() {
    let load = Busy::start();
    let run = trace(&load);
    run.signal(Signal::STOP);
    std::thread::sleep(Duration::from_millis(2500));
    run.signal(Signal::CONT);
    // Nothing reads the output until finish().
    run.signal(Signal::INT);
    assert_accounted_for(&run.finish());
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_killed_tracer_leaves_nothing_attached() {
    let load = Busy::start();
    let run = Run::start(TRACE.into_iter().chain([&*load.pid(), EXEC]));
    let objects = run.objects();
    assert!(!objects.is_empty());
    run.signal(Signal::KILL);
    assert_eq!(run.finish().status.code(), None);
    objects.assert_gone();
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn losses_due_to_a_blocked_output_are_reported() {
    let load = Busy::start();
    let run = trace(&load);
    std::thread::sleep(Duration::from_secs(3));
    run.signal(Signal::TERM);
    assert_accounted_for(&run.finish());
}

/// Traces a load with a command that runs `probe`. Asserts that `probe` fails by itself with this
/// reason, and still prints its ledger.
fn assert_cannot_write(command: &mut Command, reason: &str) -> Ledger {
    let load = Busy::start();
    let output = command.arg(binary()).args(TRACE).arg(load.pid()).output().unwrap();
    let printed = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{:?}: {printed}", output.status);
    assert!(printed.contains(&format!("probe: cannot write events: {reason}")), "{printed}");
    let ledger = ledger(&output);
    assert!(ledger.attempted > 0 && ledger.unread <= ledger.attempted, "{printed}");
    ledger
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_full_file_system_is_an_error_with_a_ledger() {
    // A private mount namespace hides the mount from others.
    let script = "mount -t tmpfs -o size=64k none /mnt && exec \"$0\" \"$@\" >/mnt/events";
    let mut unshare = Command::new("unshare");
    unshare.args(["-m", "sh", "-c", script]);
    assert!(assert_cannot_write(&mut unshare, "No space left on device").handled > 0);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_file_at_its_size_limit_is_an_error_with_a_ledger() {
    let mut limited = Command::new("prlimit");
    limited.arg("--fsize=8192").stdout(tempfile::tempfile().unwrap());
    assert_cannot_write(&mut limited, "File too large");
}

/// Also where everything is printed at the end.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_file_size_limit_is_an_error_for_every_command() {
    for args in ["count rawtp:sys_enter", "stack -K rawtp:sys_enter", "sample -a -F 999"] {
        let mut limited = Command::new("prlimit");
        limited.arg("--fsize=1").arg(binary()).args(args.split(' ')).args(["--", "sleep", "0.2"]);
        let output = limited.stdout(tempfile::tempfile().unwrap()).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{args}: {}", stderr(&output));
        assert!(stderr(&output).contains("File too large"), "{args}: {}", stderr(&output));
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn standard_error_may_be_closed() {
    let load = Busy::start();
    let mut run = Run::spawn(["trace", "rawtp:sys_enter", "-M", "3", "-p", &load.pid()]);
    drop(run.child.stderr.take());
    let mut printed = String::new();
    run.stdout.read_to_string(&mut printed).unwrap();
    // Events may also be lost before the third one.
    let events = printed.lines().skip(1).filter(|line| !line.contains(" LOST "));
    assert_eq!(events.count(), 3, "{printed}");
    assert_eq!(run.child.wait().unwrap().code(), Some(0));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn two_tracers_at_the_same_time_report_every_event() {
    const COMMANDS: usize = 50;
    let dir = tempfile::tempdir().unwrap();
    let command = dir.path().join("counted");
    std::fs::copy("/bin/true", &command).unwrap();
    std::fs::set_permissions(&command, std::fs::Permissions::from_mode(0o755)).unwrap();
    let trace = ["trace", EXEC];
    let runs = [Run::spawn(trace), Run::spawn(trace)].map(Run::wait_for_heading);
    for _ in 0..COMMANDS {
        succeed(&mut Command::new(&command));
    }
    runs.iter().for_each(|run| run.signal(Signal::INT));
    for run in runs {
        let output = run.finish();
        assert_eq!(ledger(&output).lost, 0, "{}", stderr(&output));
        let name = format!("filename=\"{}\"", command.display());
        let out = String::from_utf8_lossy(&output.stdout);
        assert_eq!(out.lines().filter(|line| line.contains(&name)).count(), COMMANDS);
    }
}
