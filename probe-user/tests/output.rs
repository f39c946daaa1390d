//! What the binary `probe` writes: JSON lines by their schema, times, and the order of events.

mod probe;

use probe::{all_json_lines, json_lines, probe, stderr, stdout};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Output;

const WRITE: &str = "tracepoint:syscalls:sys_enter_write(fd, count)/fd == 1 && count == 1/";

fn trace(args: &[&str], command: &[&str]) -> Output {
    let output = probe(["trace"]).args(args).arg("--").args(command).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    output
}

/// Writes of one byte each, so many.
fn writes(count: &str) -> [String; 5] {
    ["dd", "if=/dev/zero", "of=/dev/null", "bs=1", &format!("count={count}")].map(str::to_owned)
}

/// Two processes, one on CPU 0 and one on CPU 1, that pass a byte to each other through pipes in `dir`, so
/// many times: they write by turns.
fn by_turns(dir: &Path, times: u32) -> [String; 3] {
    let dir = dir.display();
    let script = format!(
        "mkfifo {dir}/a {dir}/b; exec 3<>{dir}/a 4<>{dir}/b; \
         taskset -c 0 dd bs=1 count={times} <&3 >&4 & \
         taskset -c 1 dd bs=1 count={times} <&4 >&3 & \
         printf x >&3; wait"
    );
    ["sh".into(), "-c".into(), script]
}

/// What they write.
const TURNS: &str = "tracepoint:syscalls:sys_enter_write/fd == 1 && comm == \"dd\"/";

fn times(lines: &[Value]) -> Vec<u64> {
    lines.iter().filter_map(|line| line["time"].as_u64()).collect()
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_trace_begins_with_what_is_traced_and_ends_with_its_ledger() {
    let spec = "rawtp:sched_process_exit(pid=arg0->tgid, arg0->comm)";
    let output = trace(&[spec, "-F", "jsonl"], &["sh", "-c", "/bin/true; exit 0"]);
    let lines = all_json_lines(&output);
    // Members come in the order of the fields.
    assert!(stdout(&output).contains("\"args\":{\"pid\":"), "{}", stdout(&output));
    let (first, last) = (lines.first().unwrap(), lines.last().unwrap());
    assert_eq!((&first["version"], &first["clock"]), (&1.into(), &"monotonic".into()));
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    assert_eq!(first["kernel"], release);
    let probe = &first["probes"][0];
    assert_eq!(probe["spec"], "rawtp:sched_process_exit(pid=arg0.tgid, arg0.comm)");
    assert_eq!(probe["fields"][0], serde_json::json!({"name": "pid", "shape": "signed"}));
    assert_eq!(probe["fields"][1], serde_json::json!({"name": "arg0.comm", "shape": "text"}));
    let events = &lines[1..lines.len() - 1];
    assert!(events.iter().any(|event| event["comm"] == "true"), "{events:#?}");
    for event in events {
        // What the first line says of the events holds.
        assert_eq!((&event["type"], &event["probe"]), (&probe["type"], &probe["probe"]));
        let args = event["args"].as_object().unwrap();
        assert!(args.len() == 2 && args["pid"] == event["pid"] && args["arg0.comm"].is_string());
    }
    let books = probe::books(&stderr(&output));
    assert_eq!(last["events"], events.len());
    assert_eq!(
        (&last["handled"], &last["attempted"]),
        (&books.handled.into(), &books.attempted.into())
    );
    assert_eq!((&last["lost"], &last["complete"]), (&0.into(), &true.into()));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn every_write_is_a_line_in_order() {
    let dd = writes("20000");
    for order in ["--unordered", "--ordered"] {
        // Room for all of them: in a machine that is emulated, CPUs take turns.
        let args = [WRITE, "-F", "jsonl", "-B", "4M", order];
        let output = trace(&args, &dd.each_ref().map(String::as_str));
        let lines = all_json_lines(&output);
        let last = lines.last().unwrap();
        assert_eq!(
            (&last["lost"], &last["late"], &last["complete"]),
            (&0.into(), &0.into(), &true.into())
        );
        let mut by_cpu: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for line in &lines[1..lines.len() - 1] {
            // The ordered ones are of one CPU, as it were.
            let cpu = if order == "--ordered" { 0 } else { line["cpu"].as_u64().unwrap() };
            by_cpu.entry(cpu).or_default().push(line["time"].as_u64().unwrap());
            assert_eq!(line["args"], serde_json::json!({"fd": 1, "count": 1}));
        }
        assert_eq!(by_cpu.values().map(Vec::len).sum::<usize>(), 20000);
        assert!(by_cpu.values().all(|times| times.is_sorted()));
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn events_of_all_cpus_are_in_the_order_of_time() {
    let dir = tempfile::tempdir().unwrap();
    let turns = by_turns(dir.path(), 1000);
    let turns = turns.each_ref().map(String::as_str);
    let ordered = trace(&[TURNS, "-F", "jsonl", "--ordered"], &turns);
    let lines = all_json_lines(&ordered);
    assert!(times(&lines).is_sorted());
    let cpus: Vec<_> = lines.iter().filter_map(|line| line["cpu"].as_u64()).collect();
    assert_eq!(cpus, [0, 1].repeat(1000));
    let last = lines.last().unwrap();
    assert_eq!((&last["late"], &last["lost"]), (&0.into(), &0.into()));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_table_is_in_the_order_of_time() {
    let dir = tempfile::tempdir().unwrap();
    let turns = by_turns(dir.path(), 200);
    let table = stdout(&trace(&[TURNS], &turns.each_ref().map(String::as_str)));
    let time = |line: &str| line.split_whitespace().next().unwrap().parse::<f64>().unwrap();
    let times: Vec<_> = table.lines().skip(1).map(time).collect();
    assert_eq!(times.len(), 400);
    assert!(times.is_sorted());
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn what_a_limit_leaves_is_unread_even_if_it_was_held() {
    let dd = writes("5000");
    let dd = dd.each_ref().map(String::as_str);
    let output = trace(&[WRITE, "-F", "jsonl", "--ordered", "-M", "10"], &dd);
    let lines = all_json_lines(&output);
    assert_eq!(times(&lines).len(), 10);
    let (books, last) = (probe::books(&stderr(&output)), lines.last().unwrap());
    // The last ones are found to be too many when they are looked at.
    assert!((10..=12).contains(&books.handled), "{books:?}");
    assert_eq!(books.unread, books.attempted - books.handled);
    assert_eq!((&last["events"], &last["unread"]), (&10.into(), &books.unread.into()));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn local_time_is_that_of_the_clock_on_the_wall() {
    let now = || std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as i128;
    let exec = "tracepoint:sched:sched_process_exec";
    let local = |format: &str| {
        let args = ["trace", exec, "--time", "local", "-F", format, "--", "true"];
        let output = probe(args).env("TZ", "XXX-5:30").output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        output
    };
    let before = now();
    let output = local("jsonl");
    let lines = all_json_lines(&output);
    let offset: i128 = lines[0]["realtime_offset"].as_str().unwrap().parse().unwrap();
    let (time, local_time) =
        (lines[1]["time"].as_i64().unwrap(), lines[1]["local"].as_str().unwrap());
    let real = i128::from(time) + offset;
    assert!((before - 1_000_000_000..now()).contains(&real), "{real}");
    assert!(local_time.ends_with("+05:30"), "{local_time}");
    let timestamp: jiff::Timestamp = local_time.parse().unwrap();
    assert_eq!(timestamp.as_nanosecond(), real);
    let table = stdout(&local("table"));
    let column = table.lines().nth(1).unwrap().split_whitespace().next().unwrap();
    let digits = column.chars().map(|char| if char.is_ascii_digit() { '0' } else { char });
    assert_eq!(digits.collect::<String>(), "00:00:00.000000");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_delta_is_since_the_line_before() {
    let dd = writes("50");
    let dd = dd.each_ref().map(String::as_str);
    let lines = json_lines(&trace(&[WRITE, "-F", "jsonl", "--ordered", "--time", "delta"], &dd));
    assert_eq!(lines.len(), 50);
    assert_eq!(lines[0]["delta"], 0);
    for pair in lines.windows(2) {
        let [before, after] = [0, 1].map(|n| pair[n]["time"].as_i64().unwrap());
        assert_eq!(pair[1]["delta"], after - before);
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_timeline_opens_whole_or_cut_off() {
    let dir = tempfile::tempdir().unwrap();
    let turns = by_turns(dir.path(), 500);
    let output = trace(&[TURNS, "-F", "perfetto"], &turns.each_ref().map(String::as_str));
    let whole: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let of_phase = |phase: &str| whole.iter().filter(|event| event["ph"] == phase).count();
    assert_eq!(of_phase("i"), 1000);
    let names = whole.iter().filter(|event| event["name"] == "thread_name");
    assert_eq!(names.filter(|event| event["args"]["name"] == "dd").count(), 2);
    assert!(whole.last().unwrap()["args"]["ledger"].as_str().unwrap().ends_with("; complete"));
    // Whatever lines there are, they are events.
    let text = stdout(&output);
    let cut: Vec<_> = text.lines().take(500).collect();
    let closed = format!("{}]", cut.join("\n").trim_end_matches(','));
    assert_eq!(serde_json::from_str::<Vec<Value>>(&closed).unwrap().len(), 499);
}
