//! Everything that `probe record` stores, `probe replay` prints, even without the traced program.

use crate::probe::chain::{Chain, count, is_from_a_system_call, through};
use crate::probe::commands::{ALTERNATING, alternating_writes, writes};
use crate::probe::{
    all_json_lines, assert_failure, binary, json_lines, ledger, probe, stderr, stdout, succeed,
    trace,
};
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

const WRITE: &str = "tracepoint:syscalls:sys_enter_write(fd, count)/fd == 1 && count == 1/";
const GETPGID: &str = "tracepoint:syscalls:sys_enter_getpgid/pid == -7/";

/// A recording in its own directory.
struct Recorded {
    _dir: TempDir,
    path: PathBuf,
    /// The output of `probe record`.
    output: Output,
}

impl Recorded {
    /// Records a command.
    fn make(args: &[&str], command: &[String]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace");
        let mut run = probe(["record", "-o"]);
        let output = succeed(run.arg(&path).args(args).arg("--").args(command));
        assert_eq!(stdout(&output), "");
        Self { _dir: dir, path, output }
    }

    fn replay(&self, args: &[&str]) -> Output {
        succeed(&mut replay(&self.path, args))
    }
}

fn replay(path: &Path, args: &[&str]) -> Command {
    let mut command = probe(["replay"]);
    command.arg(path).args(args);
    command
}

/// A line without the members that differ between runs.
fn timeless(line: &Value) -> Value {
    let mut line = line.clone();
    let members = line.as_object_mut().unwrap();
    for name in ["time", "cpu", "pid", "tid", "realtime_offset"] {
        members.remove(name);
    }
    line
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_recording_replays_to_the_lines_of_a_trace() {
    let args = ["-B", "4M", WRITE];
    let recorded = Recorded::make(&args, &writes(2000));
    let live = trace(args, writes(2000));
    let replayed = recorded.replay(&["-F", "jsonl"]);
    assert_eq!(replayed.stdout, recorded.replay(&["-F", "jsonl"]).stdout);
    let [later, live] = [&replayed, &live]
        .map(|output| all_json_lines(output).iter().map(timeless).collect::<Vec<_>>());
    assert_eq!(later.len(), 2002);
    assert_eq!(later, live);
    // Both report the same on standard error.
    assert!(stderr(&recorded.output).ends_with(&stderr(&replayed)), "{}", stderr(&replayed));
    assert_eq!(ledger(&replayed).handled, 2000);
    let limited = all_json_lines(&recorded.replay(&["-F", "jsonl", "-M", "7"]));
    assert_eq!(limited.len(), 9);
    assert_eq!(limited[8]["events"], 7);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn functions_have_their_names_without_the_program() {
    let chain = Chain::compile();
    let command = chain.command(30, 12);
    let program = command[0].as_str();
    let recorded = Recorded::make(&["-K", "-U", GETPGID], &command);
    drop(chain);
    assert!(!Path::new(program).exists());
    let events = json_lines(&recorded.replay(&["-F", "jsonl"]));
    assert_eq!(events.len(), 42);
    assert_eq!((through(&events, "left"), through(&events, "right")), (30, 12), "{}", events[0]);
    assert!(events.iter().all(|event| {
        is_from_a_system_call(event) && event["args"]["ustack"][0]["module"] == program
    }));
    let folded = stdout(&recorded.replay(&["-F", "folded"]));
    for (part, hits) in
        [(";main;left;innermost", 30), (";main;right;innermost", 12), ("chain;", 42)]
    {
        assert_eq!(count(&folded, part), hits, "{folded}");
    }
    let limited = stdout(&recorded.replay(&["-F", "folded", "-M", "5"]));
    assert_eq!(count(&limited, ""), 5);
    let picture = stdout(&recorded.replay(&["-F", "svg"]));
    assert!(picture.contains("<svg") && picture.contains("innermost"), "{picture}");
    let table = stdout(&recorded.replay(&[]));
    assert_eq!(table.lines().filter(|line| line.contains("getpgid ")).count(), 42, "{table}");
    assert!(table.contains("innermost+0x") && table.contains("left+0x"), "{table}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_replay_is_in_the_order_of_time() {
    let dir = tempfile::tempdir().unwrap();
    let recorded = Recorded::make(&[ALTERNATING], &alternating_writes(dir.path(), 500));
    let lines = all_json_lines(&recorded.replay(&["-F", "jsonl", "--ordered"]));
    let cpus: Vec<_> = lines.iter().filter_map(|line| line["cpu"].as_u64()).collect();
    assert_eq!(cpus, [0, 1].repeat(500));
    assert_eq!(lines.last().unwrap()["late"], 0);
    let column = |line: &str, n| line.split_whitespace().nth(n).unwrap().parse::<f64>().unwrap();
    let table = stdout(&recorded.replay(&[]));
    let times: Vec<_> = table.lines().skip(1).map(|line| column(line, 0)).collect();
    assert!(times.len() == 1000 && times.is_sorted());
    let timeline: Vec<Value> =
        serde_json::from_slice(&recorded.replay(&["-F", "perfetto"]).stdout).unwrap();
    assert_eq!(timeline.iter().filter(|event| event["ph"] == "i").count(), 1000);
    let local = all_json_lines(&recorded.replay(&["-F", "jsonl", "--time", "local"]));
    let offset: i128 = local[0]["realtime_offset"].as_str().unwrap().parse().unwrap();
    let timestamp: jiff::Timestamp = local[1]["local"].as_str().unwrap().parse().unwrap();
    let real = i128::from(local[1]["time"].as_i64().unwrap()) + offset;
    assert_eq!(timestamp.as_nanosecond(), real);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_replay_reads_the_file_of_its_time_zone() {
    let recorded = Recorded::make(&[WRITE], &writes(1));
    // A zone that is five and a half hours ahead, in the format of tzfile(5).
    let counts: [u32; 6] = [0, 0, 0, 0, 1, 4];
    let mut zone = b"TZif".to_vec();
    zone.extend([0; 16]);
    zone.extend(counts.iter().flat_map(|count| count.to_be_bytes()));
    zone.extend(19_800_i32.to_be_bytes());
    zone.extend(b"\0\0IST\0");
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), zone).unwrap();
    let mut replay = replay(&recorded.path, &["-F", "jsonl", "--time", "local"]);
    let lines = all_json_lines(&succeed(replay.env("TZ", file.path())));
    let local = lines[1]["local"].as_str().unwrap();
    assert!(local.ends_with("+05:30"), "{local}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_truncated_recording_is_replayed_up_to_its_end() {
    let recorded = Recorded::make(&[WRITE], &writes(300));
    let whole = stdout(&recorded.replay(&["-F", "jsonl"]));
    let bytes = fs::read(&recorded.path).unwrap();
    for at in [bytes.len() - 1, bytes.len() * 2 / 3, bytes.len() / 3] {
        let file = File::options().write(true).open(&recorded.path).unwrap();
        file.set_len(at as u64).unwrap();
        let output = replay(&recorded.path, &["-F", "jsonl"]).output().unwrap();
        let printed = stdout(&output);
        assert!(whole.starts_with(&printed) && printed.lines().count() > 50, "{printed}");
        assert_eq!(output.status.code(), Some(1));
        let events = printed.lines().count() - 1;
        let expected = format!(
            "probe: {}: truncated at byte {at}; later events and the ledger are missing \
             ({events} events printed)\n",
            recorded.path.display()
        );
        assert_eq!(stderr(&output), expected);
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_recording_is_written_and_read_like_any_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    let file = path.to_str().unwrap();
    fs::write(&path, vec![b'x'; 1 << 20]).unwrap();
    let command = ["rawtp:sched_process_exec", "-M", "2", "--", "sh", "-c", "/bin/true; /bin/true"];
    succeed(probe(["record", "-o", file]).args(command));
    assert!(fs::metadata(&path).unwrap().len() < 1 << 20, "it is replaced");
    let lines = |replay: &mut Command| all_json_lines(&succeed(replay)).len();
    assert_eq!(lines(&mut replay(&path, &["-F", "jsonl"])), 4);
    let expected = "has no stacks; record it with -K or -U";
    assert_failure(&mut replay(&path, &["-F", "svg"]), expected);

    let record = format!("{} record -o {file} rawtp:sched_process_exec", binary().display());
    let open_to_all = format!("umask 0; rm {file}; {record} -- true");
    succeed(Command::new("sh").args(["-c", &open_to_all]));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

    // Through a pipe on both sides.
    let recorded = succeed(probe(["record", "-o", "-"]).args(command));
    fs::write(&path, &recorded.stdout).unwrap();
    let mut piped = replay(Path::new("-"), &["-F", "jsonl"]);
    assert_eq!(lines(piped.stdin(File::open(&path).unwrap())), 4);
    // What still records is not waited for once there is enough.
    for (format, file) in [("jsonl", "-"), ("table", "/dev/stdin"), ("perfetto", "-")] {
        let mut enough = Command::new("timeout");
        enough.arg("60").arg(binary()).args(["replay", file, "-F", format, "-M", "1"]);
        enough.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut enough = enough.spawn().unwrap();
        let mut recorder = enough.stdin.take().unwrap();
        recorder.write_all(&recorded.stdout[..recorded.stdout.len() - 8]).unwrap();
        let enough = enough.wait_with_output().unwrap();
        assert!(enough.status.success(), "{format}: {}", stderr(&enough));
        assert!(stderr(&enough).contains("the rest of the recording was not read"), "{format}");
        drop(recorder);
    }

    let nowhere = "/nowhere/trace";
    for (args, expected) in [
        (&["replay", "/dev/null"][..], "not a recording"),
        (&["replay", nowhere], "cannot open /nowhere/trace: No such file"),
        (
            &["record", "-o", nowhere, "rawtp:sched_process_exec"],
            "cannot create /nowhere/trace: No such file",
        ),
        (
            &["record", "-o", "/dev/shm/trace", "rawtp:sched_process_exec"],
            "cannot create /dev/shm/trace: everybody can write to /dev/shm, and so replace the file",
        ),
    ] {
        assert_failure(&mut probe(args), expected);
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_full_disk_is_an_error() {
    let full = ["record", "-o", "/dev/full", "rawtp:sys_enter", "--", "cat", "/dev/null"];
    let output = probe(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let expected = "probe: cannot write events: No space left on device";
    assert!(stderr(&output).contains(expected), "{}", stderr(&output));
}
