//! What `probe record` keeps, `probe replay` prints: all of it, when nothing of what was traced is there.

mod probe;

use probe::chain::{Chain, comes_by_a_system_call, through};
use probe::{all_json_lines, assert_failure, books, probe, stderr, stdout};
use serde_json::Value;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use tempfile::TempDir;

const WRITE: &str = "tracepoint:syscalls:sys_enter_write(fd, count)/fd == 1 && count == 1/";
const GETPGID: &str = "tracepoint:syscalls:sys_enter_getpgid/pid == -7/";

/// A recording in a directory of its own.
struct Recorded {
    _dir: TempDir,
    path: PathBuf,
    /// What `probe record` printed.
    output: Output,
}

impl Recorded {
    /// Of a command.
    fn make(args: &[&str], command: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("trace");
        let mut run = probe(["record", "-o"]);
        let output = run.arg(&path).args(args).arg("--").args(command).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(stdout(&output), "");
        Self { _dir: dir, path, output }
    }

    fn replay(&self, args: &[&str]) -> Output {
        let output = replay(&self.path, args);
        assert!(output.status.success(), "{}", stderr(&output));
        output
    }
}

fn replay(path: &Path, args: &[&str]) -> Output {
    probe(["replay"]).arg(path).args(args).output().unwrap()
}

/// Writes of one byte each, so many.
fn writes(count: &str) -> [String; 5] {
    ["dd", "if=/dev/zero", "of=/dev/null", "bs=1", &format!("count={count}")].map(str::to_owned)
}

/// A line without what is different every time.
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
    let dd = writes("2000");
    let dd = dd.each_ref().map(String::as_str);
    let args = ["-B", "4M", WRITE];
    let recorded = Recorded::make(&args, &dd);
    let mut live = probe(["trace", "-F", "jsonl"]);
    let live = live.args(args).arg("--").args(dd).output().unwrap();
    let replayed = recorded.replay(&["-F", "jsonl"]);
    assert_eq!(replayed.stdout, recorded.replay(&["-F", "jsonl"]).stdout);
    let [later, live] = [&replayed, &live]
        .map(|output| all_json_lines(output).iter().map(timeless).collect::<Vec<_>>());
    assert_eq!(later.len(), 2002);
    assert_eq!(later, live);
    // Both tell the same of it, too.
    assert!(stderr(&recorded.output).ends_with(&stderr(&replayed)), "{}", stderr(&replayed));
    assert_eq!(books(&stderr(&replayed)).handled, 2000);
    let limited = all_json_lines(&recorded.replay(&["-F", "jsonl", "-M", "7"]));
    assert_eq!(limited.len(), 9);
    assert_eq!(limited[8]["events"], 7);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn functions_have_their_names_when_the_program_is_gone() {
    let chain = Chain::compile();
    let program = chain.program.to_str().unwrap().to_owned();
    let recorded = Recorded::make(&["-K", "-U", GETPGID], &[&program, "30", "12"]);
    drop(chain);
    assert!(!Path::new(&program).exists());
    let events = probe::json_lines(&recorded.replay(&["-F", "jsonl"]));
    assert_eq!(events.len(), 42);
    assert_eq!((through(&events, "left"), through(&events, "right")), (30, 12), "{}", events[0]);
    assert!(events.iter().all(|event| {
        comes_by_a_system_call(event) && event["args"]["ustack"][0]["module"] == program.as_str()
    }));
    let folded = stdout(&recorded.replay(&["-F", "folded"]));
    let hits_through = |function: &str| -> u64 {
        let ways = folded.lines().filter(|line| line.contains(function));
        ways.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
    };
    assert_eq!(hits_through(";main;left;innermost"), 30, "{folded}");
    assert_eq!(hits_through(";main;right;innermost"), 12, "{folded}");
    assert_eq!(hits_through("chain;"), 42, "{folded}");
    let limited = stdout(&recorded.replay(&["-F", "folded", "-M", "5"]));
    let last = |line: &str| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap();
    assert_eq!(limited.lines().map(last).sum::<u64>(), 5);
    let picture = stdout(&recorded.replay(&["-F", "svg"]));
    assert!(picture.contains("<svg") && picture.contains("innermost"), "{picture}");
    let table = stdout(&recorded.replay(&[]));
    assert_eq!(table.lines().filter(|line| line.contains("getpgid ")).count(), 42, "{table}");
    assert!(table.contains("innermost+0x") && table.contains("left+0x"), "{table}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_replay_is_in_the_order_of_time() {
    let turns = "mkfifo a b; exec 3<>a 4<>b; taskset -c 0 dd bs=1 count=500 <&3 >&4 & \
                 taskset -c 1 dd bs=1 count=500 <&4 >&3 & printf x >&3; wait";
    let dir = tempfile::tempdir().unwrap();
    let script = format!("cd {}; {turns}", dir.path().display());
    let probe = "tracepoint:syscalls:sys_enter_write/fd == 1 && comm == \"dd\"/";
    let recorded = Recorded::make(&[probe], &["sh", "-c", &script]);
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
fn what_is_cut_off_is_replayed_up_to_there() {
    let dd = writes("300");
    let recorded = Recorded::make(&[WRITE], &dd.each_ref().map(String::as_str));
    let whole = stdout(&recorded.replay(&["-F", "jsonl"]));
    let bytes = fs::read(&recorded.path).unwrap();
    for at in [bytes.len() - 1, bytes.len() * 2 / 3, bytes.len() / 3] {
        let file = File::options().write(true).open(&recorded.path).unwrap();
        file.set_len(at as u64).unwrap();
        let output = replay(&recorded.path, &["-F", "jsonl"]);
        let (printed, said) = (stdout(&output), stderr(&output));
        assert!(whole.starts_with(&printed) && printed.lines().count() > 50, "{printed}");
        assert_eq!(output.status.code(), Some(1));
        let events = printed.lines().count() - 1;
        let expected = format!(
            "probe: {}: it is cut off at byte {at}: what was recorded later, and the ledger, are missing \
             ({events} events are printed)\n",
            recorded.path.display()
        );
        assert_eq!(said, expected);
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_file_is_made_and_read_as_files_are() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    let file = path.to_str().unwrap();
    fs::write(&path, vec![b'x'; 1 << 20]).unwrap();
    let command = ["rawtp:sched_process_exec", "-M", "2", "--", "sh", "-c", "/bin/true; /bin/true"];
    let recorded = probe(["record", "-o", file]).args(command).output().unwrap();
    assert!(recorded.status.success(), "{}", stderr(&recorded));
    assert!(fs::metadata(&path).unwrap().len() < 1 << 20, "it is replaced");
    assert_eq!(all_json_lines(&replay(&path, &["-F", "jsonl"])).len(), 4);
    assert_failure(
        &mut probe(["replay", file, "-F", "svg"]),
        "has no stacks: record them with -K, or -U",
    );

    let private = format!(
        "umask 077; rm {file}; {} record -o {file} rawtp:sched_process_exec -- true",
        probe::binary().display()
    );
    let status =
        std::process::Command::new("sh").args(["-c", &private]).stderr(Stdio::null()).status();
    assert!(status.unwrap().success());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);

    // Through a pipe, in and out.
    let recorded = probe(["record", "-o", "-"]).args(command).output().unwrap();
    assert!(recorded.status.success(), "{}", stderr(&recorded));
    fs::write(&path, &recorded.stdout).unwrap();
    let mut piped = probe(["replay", "-", "-F", "jsonl"]);
    let piped = piped.stdin(File::open(&path).unwrap()).output().unwrap();
    assert_eq!(all_json_lines(&piped).len(), 4);

    assert_failure(&mut probe(["replay", "/dev/null"]), "it is no recording");
    assert_failure(
        &mut probe(["replay", "/nowhere/trace"]),
        "cannot open /nowhere/trace: No such file",
    );
    let nowhere = ["record", "-o", "/nowhere/trace", "rawtp:sched_process_exec"];
    assert_failure(&mut probe(nowhere), "cannot create /nowhere/trace: No such file");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_full_disk_is_an_error() {
    let full = ["record", "-o", "/dev/full", "rawtp:sys_enter", "--", "cat", "/dev/null"];
    let output = probe(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = stderr(&output);
    assert!(said.contains("probe: cannot write events: No space left on device"), "{said}");
    books(&said);
}
