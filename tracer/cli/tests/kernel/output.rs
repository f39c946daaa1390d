//! The output of the binary `probe`: JSON lines against the schema, times, and the order of events.

use crate::probe::commands::{ALTERNATING, alternating_writes, shell, writes};
use crate::probe::{
    EXEC, all_json_lines, events, json_line, ledger, probe, stdout, succeed, trace,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::Output;

const WRITE: &str = "tracepoint:syscalls:sys_enter_write(fd, count)/fd == 1 && count == 1/";

/// Traces writes that alternate between two CPUs.
fn trace_alternating(times: u32, args: &[&str]) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let mut run = probe(["trace", ALTERNATING]);
    succeed(run.args(args).arg("--").args(alternating_writes(dir.path(), times)))
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn the_first_line_describes_the_trace_and_the_last_is_its_ledger() {
    let spec = "rawtp:sched_process_exit(pid=arg0->tgid, arg0->comm)";
    let output = trace([spec], shell("/bin/true; exit 0"));
    let lines = all_json_lines(&output);
    // The members keep the order of the fields.
    assert!(stdout(&output).contains("\"args\":{\"pid\":"), "{}", stdout(&output));
    let (first, last) = (lines.first().unwrap(), lines.last().unwrap());
    assert_eq!((&first["version"], &first["clock"]), (&1.into(), &"monotonic".into()));
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    assert_eq!(first["kernel"], release);
    let probe = &first["probes"][0];
    assert_eq!(probe["spec"], "rawtp:sched_process_exit(pid=arg0.tgid, arg0.comm)");
    assert_eq!(probe["fields"][0], json!({"name": "pid", "shape": "signed"}));
    assert_eq!(probe["fields"][1], json!({"name": "arg0.comm", "shape": "text"}));
    let events = &lines[1..lines.len() - 1];
    assert!(events.iter().any(|event| event["comm"] == "true"), "{events:#?}");
    for event in events {
        // The events match their description in the first line.
        assert_eq!((&event["type"], &event["probe"]), (&probe["type"], &probe["probe"]));
        let args = event["args"].as_object().unwrap();
        assert!(args.len() == 2 && args["pid"] == event["pid"] && args["arg0.comm"].is_string());
    }
    let ledger = ledger(&output);
    assert_eq!(last["events"], events.len());
    assert_eq!([&last["handled"], &last["attempted"]], [ledger.handled, ledger.attempted]);
    assert_eq!((&last["lost"], &last["verdict"]), (&0.into(), &"complete".into()));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn probes_of_one_tracepoint_are_told_apart() {
    let of = |size: u32| format!("tracepoint:syscalls:sys_enter_write/count == {size}/");
    let specs = [of(301), of(302), "tracepoint:sched:sched_process_exit".to_owned()];
    let write = "dd if=/dev/zero of=/dev/null status=none";
    let script = &format!("{write} bs=301 count=1; {write} bs=302 count=2");

    let lines = all_json_lines(&trace(&specs, shell(script)));
    let of_events =
        |line: &Value| (line["probe"] == "syscalls:sys_enter_write").then(|| line["spec"].clone());
    let named: Vec<_> = lines.iter().filter_map(of_events).collect();
    assert_eq!(named, [json!(specs[0]), json!(specs[1]), json!(specs[1])]);
    let exit = lines.iter().find(|line| line["probe"] == "sched:sched_process_exit").unwrap();
    assert!(exit["spec"].is_null(), "{exit}");

    let run =
        |args: &[&str]| stdout(&succeed(probe(args).args(&specs).arg("--").args(shell(script))));
    let table = run(&["trace"]);
    assert_eq!(table.matches(&format!(" {} fd=1 ", specs[1])).count(), 2, "{table}");
    let counts = run(&["count"]);
    for (count, label) in [(1, &*specs[0]), (2, &specs[1])] {
        let line = format!("{count:>12} tracepoint {label}\n");
        assert!(counts.contains(&line), "{counts}");
    }
    assert!(counts.contains(" tracepoint sched:sched_process_exit\n"), "{counts}");
    let counts = run(&["count", "-F", "jsonl"]);
    let specs_of = |count: &str| json_line(count)["spec"].clone();
    assert!(counts.lines().any(|count| specs_of(count) == specs[1]), "{counts}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn every_write_is_a_line_in_order() {
    for order in ["--unordered", "--ordered"] {
        // Room for all events: the CPUs of an emulated machine run in turn.
        let lines = all_json_lines(&trace([WRITE, "-B", "4M", order], writes(20000)));
        let last = lines.last().unwrap();
        assert_eq!((&last["late"], &last["verdict"]), (&0.into(), &"complete".into()));
        let mut by_cpu: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for line in &lines[1..lines.len() - 1] {
            // With --ordered, all events form one sequence.
            let cpu = if order == "--ordered" { 0 } else { line["cpu"].as_u64().unwrap() };
            by_cpu.entry(cpu).or_default().push(line["time"].as_u64().unwrap());
            assert_eq!(line["args"], json!({"fd": 1, "count": 1}));
        }
        assert_eq!(by_cpu.values().map(Vec::len).sum::<usize>(), 20000);
        assert!(by_cpu.values().all(|times| times.is_sorted()));
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn events_of_all_cpus_are_in_the_order_of_time() {
    let lines = all_json_lines(&trace_alternating(1000, &["-F", "jsonl", "--ordered"]));
    let times: Vec<_> = lines.iter().filter_map(|line| line["time"].as_u64()).collect();
    assert!(times.is_sorted());
    let cpus: Vec<_> = lines.iter().filter_map(|line| line["cpu"].as_u64()).collect();
    assert_eq!(cpus, [0, 1].repeat(1000));
    let last = lines.last().unwrap();
    assert_eq!((&last["late"], &last["lost"]), (&0.into(), &0.into()));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_table_is_in_the_order_of_time() {
    let table = stdout(&trace_alternating(200, &[]));
    let time = |line: &str| line.split_whitespace().next().unwrap().parse::<f64>().unwrap();
    let times: Vec<_> = table.lines().skip(1).map(time).collect();
    assert_eq!(times.len(), 400);
    assert!(times.is_sorted());
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn events_beyond_the_limit_are_unread_even_if_they_were_held() {
    let args = ["trace", WRITE, "-F", "jsonl", "--ordered", "-M", "10", "--"];
    let output = succeed(probe(args).args(writes(5000)));
    let (ledger, lines) = (ledger(&output), all_json_lines(&output));
    assert_eq!(lines.iter().filter(|line| line["time"].is_u64()).count(), 10);
    let last = lines.last().unwrap();
    assert_eq!(ledger.handled, 10, "{ledger:?}");
    assert_eq!(ledger.unread, ledger.attempted - ledger.handled);
    assert_eq!((&last["events"], &last["unread"]), (&10.into(), &ledger.unread.into()));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn local_time_equals_the_wall_clock() {
    let now = || std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as i128;
    let local = |format: &str| {
        let args = ["trace", EXEC, "--time", "local", "-F", format, "--", "true"];
        succeed(probe(args).env("TZ", "XXX-5:30"))
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
fn a_delta_is_the_time_since_the_previous_line() {
    let lines = events([WRITE, "--ordered", "--time", "delta"], writes(50));
    assert_eq!(lines.len(), 50);
    assert_eq!(lines[0]["delta"], 0);
    for pair in lines.windows(2) {
        let [before, after] = [0, 1].map(|n| pair[n]["time"].as_i64().unwrap());
        assert_eq!(pair[1]["delta"], after - before);
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_timeline_opens_whole_or_truncated() {
    let output = trace_alternating(500, &["-F", "perfetto"]);
    let whole: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let of_phase = |phase: &str| whole.iter().filter(|event| event["ph"] == phase).count();
    assert_eq!(of_phase("i"), 1000);
    let names = whole.iter().filter(|event| event["name"] == "thread_name");
    assert_eq!(names.filter(|event| event["args"]["name"] == "dd").count(), 2);
    assert!(whole.last().unwrap()["args"]["ledger"].as_str().unwrap().ends_with("; complete"));
    // Any prefix of the lines is a valid list of events.
    let text = stdout(&output);
    let cut: Vec<_> = text.lines().take(500).collect();
    let closed = format!("{}]", cut.join("\n").trim_end_matches(','));
    assert_eq!(serde_json::from_str::<Vec<Value>>(&closed).unwrap().len(), 499);
}
