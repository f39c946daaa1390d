//! The binary `probe` under stress: stopped, killed, with an output that takes nothing, and twice at
//! the same time.

mod probe;

use probe::{Books, Run, books, stderr};
use rustix::process::Signal;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

const EXEC: &str = "tracepoint:sched:sched_process_exec";

/// Many small system calls, until it is dropped.
struct Load(Child);

impl Load {
    fn start() -> Self {
        let mut dd = Command::new("dd");
        dd.args(["if=/dev/zero", "of=/dev/null", "bs=1"]);
        Self(dd.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// Every event of the ledger is a line, and every loss is told in lines, too.
fn assert_accounted_for(output: &Output) -> Books {
    let books = books(&stderr(output));
    assert_eq!(books.unread, 0, "{}", stderr(output));
    let out = String::from_utf8_lossy(&output.stdout);
    let (mut events, mut lost) = (0, 0);
    // A line at a time: there are many.
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
    assert_eq!((events, lost), (books.handled, books.lost), "{}", stderr(output));
    books
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn who_was_stopped_tells_what_was_lost_meanwhile() {
    let load = Load::start();
    let mut run =
        Run::start(&["trace", "rawtp:sys_enter", "-F", "jsonl", "-B", "64K", "-p", &load.pid()]);
    run.wait_for_heading();
    run.signal(Signal::STOP);
    std::thread::sleep(Duration::from_millis(2500));
    run.signal(Signal::CONT);
    // The output is read by nobody before the end of this.
    run.signal(Signal::INT);
    let output = run.finish();
    assert!(output.status.success(), "{}", stderr(&output));
    let books = assert_accounted_for(&output);
    assert!(books.lost > 0 && books.handled > 0, "{books:?}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn who_was_killed_leaves_nothing_attached() {
    let load = Load::start();
    let mut run = Run::start(&["trace", EXEC, "rawtp:sys_enter", "-F", "jsonl", "-p", &load.pid()]);
    run.wait_for_heading();
    let objects = run.objects();
    assert!(!objects.is_empty());
    run.signal(Signal::KILL);
    let output = run.finish();
    assert_eq!(output.status.code(), None);
    objects.assert_gone();
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn an_output_that_nobody_reads_holds_up_and_loses_nothing_untold() {
    let load = Load::start();
    let mut run =
        Run::start(&["trace", "rawtp:sys_enter", "-F", "jsonl", "-B", "64K", "-p", &load.pid()]);
    run.wait_for_heading();
    std::thread::sleep(Duration::from_secs(3));
    run.signal(Signal::TERM);
    let output = run.finish();
    assert!(output.status.success(), "{}", stderr(&output));
    let books = assert_accounted_for(&output);
    assert!(books.lost > 0 && books.handled > 0, "{books:?}");
}

/// Ends by itself, says why, and has books all the same.
fn assert_ends_with(output: &Output, why: &str) {
    let said = stderr(output);
    assert_eq!(output.status.code(), Some(1), "{:?}: {said}", output.status);
    assert!(said.contains(&format!("probe: cannot write events: {why}")), "{said}");
    let Books { attempted, unread, .. } = books(&said);
    assert!(attempted > 0 && unread <= attempted, "{said}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_file_system_that_fills_up_is_an_error_and_has_books() {
    let load = Load::start();
    // In a mount namespace of its own, so that nobody else sees it.
    let script = "mount -t tmpfs -o size=64k none /mnt && exec \"$0\" \"$@\" >/mnt/events";
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", script])
        .arg(probe::binary())
        .args(["trace", "rawtp:sys_enter", "-F", "jsonl", "-p", &load.pid()])
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert_ends_with(&output, "No space left on device");
    assert!(books(&stderr(&output)).handled > 0);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_file_that_may_not_grow_is_an_error_and_has_books() {
    let load = Load::start();
    let file = tempfile::tempfile().unwrap();
    let output = Command::new("prlimit")
        .arg("--fsize=8192")
        .arg(probe::binary())
        .args(["trace", "rawtp:sys_enter", "-F", "jsonl", "-p", &load.pid()])
        .stdout(file)
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert_ends_with(&output, "File too large");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn standard_error_may_be_closed() {
    let load = Load::start();
    let mut run = Run::start(&["trace", "rawtp:sys_enter", "-M", "3", "-p", &load.pid()]);
    drop(run.child.stderr.take());
    let mut printed = String::new();
    run.stdout.read_to_string(&mut printed).unwrap();
    // It may lose some, too, before it is there.
    let events = printed.lines().skip(1).filter(|line| !line.contains(" LOST "));
    assert_eq!(events.count(), 3, "{printed}");
    assert_eq!(run.child.wait().unwrap().code(), Some(0));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn two_at_the_same_time_see_all() {
    const COMMANDS: usize = 50;
    let dir = tempfile::tempdir().unwrap();
    let command = dir.path().join("counted");
    std::fs::copy("/bin/true", &command).unwrap();
    std::fs::set_permissions(&command, std::fs::Permissions::from_mode(0o755)).unwrap();
    let trace = ["trace", EXEC];
    let mut runs = [Run::start(&trace), Run::start(&trace)];
    runs.iter_mut().for_each(Run::wait_for_heading);
    for _ in 0..COMMANDS {
        assert!(Command::new(&command).status().unwrap().success());
    }
    runs.iter().for_each(|run| run.signal(Signal::INT));
    for run in runs {
        let output = run.finish();
        let said = stderr(&output);
        assert_eq!(books(&said).lost, 0, "{said}");
        let name = format!("filename=\"{}\"", command.display());
        let out = String::from_utf8_lossy(&output.stdout);
        assert_eq!(out.lines().filter(|line| line.contains(&name)).count(), COMMANDS);
    }
}
