//! Functions of programs and libraries, whose calls are known: this test's own, and those that it makes of
//! the C library.

mod probe;

use probe::{Run, assert_failure, books, json_lines, probe, stderr, stdout};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::ffi::{CString, c_char};
use std::hint::black_box;
use std::process::{Command, Output};

/// What is probed: a program's own functions, by their names.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn uprobe_fixture_triple(number: u64, text: *const c_char) -> u64 {
    black_box(text);
    black_box(number).wrapping_mul(3)
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn uprobe_fixture_sum(number: u64) -> u64 {
    // Calls itself, so that its returns come in reverse.
    if number == 0 { 0 } else { black_box(uprobe_fixture_sum(black_box(number - 1))) + number }
}

const CALLS: &str = "UPROBE_FIXTURE_CALLS";
const DEPTH: &str = "UPROBE_FIXTURE_DEPTH";
const TRIPLE: &str = "uprobe_fixture_triple";
const SUM: &str = "uprobe_fixture_sum";

/// The text of a call: every third one is odd.
fn text(number: u64) -> &'static str {
    if number.is_multiple_of(3) { "odd" } else { "even handed" }
}

/// Calls each as often as the environment says; without it, not at all.
#[test]
#[ignore = "what the others trace: cargo xtask test"]
fn workload() {
    let given = |name, other| std::env::var(name).map_or(other, |given| given.parse().unwrap());
    let (calls, depth) = (given(CALLS, 0), given(DEPTH, 20));
    for number in 0..calls {
        let text = CString::new(text(number)).unwrap();
        assert_eq!(uprobe_fixture_triple(number, text.as_ptr()), number * 3);
    }
    if calls > 0 {
        assert_eq!(uprobe_fixture_sum(depth), depth * (depth + 1) / 2);
    }
}

fn own() -> String {
    std::env::current_exe().unwrap().to_str().unwrap().to_owned()
}

/// `probe` with this program's calls for a command.
fn with_workload(args: &[&str], calls: u64) -> Output {
    let output = probe(args)
        .args(["-F", "jsonl", "--", &own(), "--ignored", "--exact", "workload"])
        .env(CALLS, calls.to_string())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    output
}

/// What `probe count` says of them, by function.
fn counts(args: &[&str], calls: u64) -> BTreeMap<String, u64> {
    let output = with_workload(&[&["count"], args].concat(), calls);
    let said = stdout(&output);
    // What the command itself says comes before.
    let lines = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let count =
        |line: Value| (line["probe"].as_str().unwrap().to_owned(), line["count"].as_u64().unwrap());
    lines.filter(|line| line["type"] == "count").map(count).collect()
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn calls_of_a_library_by_a_running_process_are_told_with_their_strings() {
    const CALLS: usize = 300;
    let pid = std::process::id().to_string();
    let probe = "uprobe:libc:getenv(arg0:str, user=arg0:ustr, bytes=arg0:bytes[7])";
    let mut run = Run::start(&["trace", probe, "-p", &pid, "-F", "jsonl", "-B", "4M"]);
    run.wait_for_heading();
    for number in 0..CALLS {
        assert!(std::env::var_os(format!("UPROBE_{number}")).is_none());
    }
    run.signal(rustix::process::Signal::INT);
    let output = run.finish();
    assert_eq!(books(&stderr(&output)).lost, 0);
    // The first line has been read.
    let said = stdout(&output);
    let events: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let is_ours = |event: &&Value| {
        event["args"]["user"].as_str().is_some_and(|name| name.starts_with("UPROBE_"))
    };
    let mut events: Vec<_> = events.iter().filter(is_ours).collect();
    events.sort_by_key(|event| event["time"].as_u64());
    assert_eq!(events.len(), CALLS);
    for (number, event) in events.into_iter().enumerate() {
        let name = format!("UPROBE_{number}");
        // "UPROBE_"
        let args = json!({"arg0": name, "user": name, "bytes": "5550524f42455f"});
        assert_eq!((&event["type"], &event["args"]), (&"uprobe".into(), &args), "{event}");
        assert_eq!(
            (&event["probe"], &event["pid"]),
            (&"getenv".into(), &std::process::id().into())
        );
    }
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn arguments_and_results_are_those_of_each_call() {
    const CALLS: u64 = 500;
    let own = own();
    let entered = format!("u:{own}:{TRIPLE}(n=arg0:u64, text=arg1:str)");
    let output = probe(["trace", &entered, &format!("ur:{own}:{TRIPLE}(retval:u64)")])
        .args([
            format!("uprobe:{own}:{SUM}(arg0:s32)"),
            format!("uretprobe:{own}:{SUM}(retval:u32)"),
        ])
        .args(["-F", "jsonl", "-B", "4M", "--"])
        // Nothing but lines of `probe` on the standard output.
        .args(["sh", "-c", "exec \"$0\" --ignored --exact workload >/dev/null", &own])
        .env(self::CALLS, CALLS.to_string())
        .output()
        .unwrap();
    assert_eq!(books(&stderr(&output)).attempted, 2 * CALLS + 2 * 21, "{}", stderr(&output));
    let events = json_lines(&output);
    let of = |kind: &str, probe: &str| -> Vec<&Value> {
        let is_it = |event: &&Value| event["type"] == kind && event["probe"] == probe;
        events.iter().filter(is_it).map(|event| &event["args"]).collect()
    };
    let entered: Vec<_> = (0..CALLS).map(|n| json!({"n": n, "text": text(n)})).collect();
    assert_eq!(of("uprobe", TRIPLE), entered.iter().collect::<Vec<_>>());
    let returned: Vec<_> = (0..CALLS).map(|n| json!({"retval": n * 3})).collect();
    assert_eq!(of("uretprobe", TRIPLE), returned.iter().collect::<Vec<_>>());
    let entered: Vec<_> = (0..=20).rev().map(|n| json!({"arg0": n})).collect();
    assert_eq!(of("uprobe", SUM), entered.iter().collect::<Vec<_>>());
    let returned: Vec<_> = (0..=20).map(|n| json!({"retval": n * (n + 1) / 2})).collect();
    assert_eq!(of("uretprobe", SUM), returned.iter().collect::<Vec<_>>());
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn of_calls_in_one_another_the_kernel_tells_64_returns() {
    let own = own();
    let count = |sort: &str| {
        let output =
            probe(["count", &format!("{sort}:{own}:{SUM}"), "-F", "jsonl", "--", "sh", "-c"])
                .args(["exec \"$0\" --ignored --exact workload >/dev/null", &own])
                .envs([(CALLS, "1"), (DEPTH, "99")])
                .output()
                .unwrap();
        let line: Value = serde_json::from_str(&stdout(&output)).unwrap();
        line["count"].as_u64().unwrap()
    };
    assert_eq!((count("uprobe"), count("uretprobe")), (100, 64));
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn without_fields_registers_are_told() {
    let own = own();
    let output = probe(["trace", &format!("u:{own}:{SUM}"), &format!("ur:{own}:{SUM}")])
        .args(["-F", "jsonl", "--", "sh", "-c"])
        .args(["exec \"$0\" --ignored --exact workload >/dev/null", &own])
        .env(CALLS, "1")
        .output()
        .unwrap();
    let events = json_lines(&output);
    assert_eq!(events.len(), 42, "{}", stderr(&output));
    let names = |event: &Value| -> Vec<String> {
        event["args"].as_object().unwrap().keys().cloned().collect()
    };
    assert_eq!(names(&events[0]), ["arg0", "arg1", "arg2", "arg3", "arg4", "arg5"]);
    assert_eq!(
        (&events[0]["args"]["arg0"], &events[41]["args"]["retval"]),
        (&"0x14".into(), &"0xd2".into())
    );
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn hits_are_counted_as_often_as_they_happened() {
    let own = own();
    let count = |condition: &str| {
        let counted = counts(&["-a", &format!("uprobe:{own}:{TRIPLE}{condition}")], 1000);
        counted.get(TRIPLE).copied().unwrap_or(0)
    };
    assert_eq!(count(""), 1000);
    assert_eq!(count("/arg1:str == \"odd\"/"), 334);
    assert_eq!(count("/arg1:str == \"even\"/"), 0);
    assert_eq!(count("/arg0 < 10 && arg1:str != \"odd\"/"), 6);
    let returned = format!("uretprobe:{own}:{TRIPLE}/retval >= 2700/");
    assert_eq!(counts(&[&returned], 1000)[TRIPLE], 100);
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn a_place_inside_a_function_is_hit_as_often_as_its_beginning() {
    let own = own();
    let place = |offset: u32| format!("uprobe:{own}:{TRIPLE}+{offset}");
    let is_place = |offset: &u32| {
        let output = probe(["info", &place(*offset)]).output().unwrap();
        let told = "no instruction begins there, and a probe in the middle of one would break";
        assert!(output.status.success() || stderr(&output).contains(told), "{}", stderr(&output));
        output.status.success()
    };
    let places: Vec<u32> = (1..12).filter(is_place).collect();
    assert!(!places.is_empty() && places.len() < 11, "{places:?}");
    for offset in &places[..1] {
        assert_eq!(counts(&[&place(*offset)], 100)[TRIPLE], 100, "{places:?}");
    }
    let told = "the function of ";
    assert_failure(&mut probe(["count", &place(4000)]), told);
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn a_pattern_is_each_function_that_matches() {
    let own = own();
    let both = counts(&[&format!("uprobe:{own}:uprobe_fixture_*")], 50);
    assert_eq!(both, BTreeMap::from([(TRIPLE.to_owned(), 50), (SUM.to_owned(), 21)]));
    let one = counts(&[&format!("uretprobe:{own}:uprobe_fixture_*"), "-x", "*_sum"], 50);
    assert_eq!(one, BTreeMap::from([(TRIPLE.to_owned(), 50)]));
    assert_failure(
        &mut probe(["count", &format!("u:{own}:uprobe_no_such_*")]),
        " that can be probed is matched by this pattern",
    );
    // Of some names, a library has one function for each machine.
    let output = probe(["count", "u:libc:strd*", "u:libc:strle*", "--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("; chosen when a program is loaded (IFUNC): 1"),
        "{}",
        stderr(&output)
    );
    let output = probe(["count", "u:libc:str[dl]*", "--", "true"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(
        stderr(&output).contains("chosen when a program is loaded (IFUNC)"),
        "{}",
        stderr(&output)
    );
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn what_cannot_be_probed_is_explained() {
    let own = own();
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("script");
    std::fs::write(&script, "#!/bin/sh\n").unwrap();
    let script = script.to_str().unwrap();
    let folder = dir.path().to_str().unwrap();
    let golden = [
        (
            "uprobe:/no/such/file:f".to_owned(),
            "cannot probe uprobe:/no/such/file:f: /no/such/file cannot be read: No such file or directory \
             (os error 2)"
                .to_owned(),
        ),
        (
            "u:no_such_program:f".to_owned(),
            "cannot probe uprobe:no_such_program:f: no_such_program is no program in PATH, and \
             libno_such_program.so no library in the directories of /etc/ld.so.conf; a path has a / in it"
                .to_owned(),
        ),
        (format!("u:{folder}:f"), format!("cannot probe uprobe:{folder}:f: {folder} is no file")),
        (
            format!("u:{script}:f"),
            format!("cannot probe uprobe:{script}:f: {script} is not what processes run code of: it is no ELF file"),
        ),
        (
            format!("ur:{own}:uprobe_fixture_tripl"),
            format!(
                "cannot probe uretprobe:{own}:uprobe_fixture_tripl: {own} has no function of this name; there \
                 is uprobe_fixture_triple, uprobe_fixture_sum"
            ),
        ),
        (
            format!("u:{own}:getenv"),
            format!(
                "cannot probe uprobe:{own}:getenv: {own} calls this function, but does not have it: it is in one \
                 of the libraries that ldd shows"
            ),
        ),
    ];
    for (spec, told) in golden {
        let output = probe(["trace", &spec]).output().unwrap();
        assert_eq!((output.status.code(), stderr(&output)), (Some(1), format!("probe: {told}\n")));
    }
    for (spec, told) in [
        ("u:libc:strlen", "has several functions for this name, one of which is chosen when"),
        ("u:libc:getenvv", "libc.so.6 has no function of this name; there is getenv"),
        ("u:libc:malloc+0x100000", "ends before that, it has "),
    ] {
        assert_failure(&mut probe(["trace", spec, "-d", "1ms"]), told);
    }
    for (spec, told) in [
        (
            "u:libc:malloc(retval)",
            "only arg0 to arg5 can be read; --ret tells arguments, retval and",
        ),
        (
            "ur:libc:malloc(arg0)",
            "only retval can be read; --ret tells arguments, retval and latency",
        ),
        (
            "u:libc:malloc(arg0->size)",
            "the types of its arguments are not known: arg0 has no members",
        ),
    ] {
        let output = probe(["trace", spec]).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains(told), "{}", stderr(&output));
    }
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn what_can_be_probed_is_listed_and_told() {
    let own = own();
    let listed = probe(["list", &format!("uprobe:{own}:uprobe_fixture_*")]).output().unwrap();
    let expected = [SUM, TRIPLE].map(|name| format!("uprobe:{own}:{name}\n")).concat();
    assert_eq!(stdout(&listed), expected, "{}", stderr(&listed));
    let listed = probe(["list", "--json", "ur:libc:getenv"]).output().unwrap();
    let listed: Value = serde_json::from_str(&stdout(&listed)).unwrap();
    assert_eq!(listed["probes"], json!([{"type": "uretprobe", "probe": "libc:getenv"}]));
    assert_failure(&mut probe(["list", "u:libc:getenvv"]), "there is getenv");

    let info = probe(["info", "--json", "uretprobe:libc:getenv"]).output().unwrap();
    let info: Value = serde_json::from_str(&stdout(&info)).unwrap();
    assert!(info["place"]["file"].as_str().unwrap().ends_with("/libc.so.6"), "{info}");
    assert_eq!(
        (&info["fields"][0]["name"], &info["fields"][0]["shape"]),
        (&"retval".into(), &"hex".into())
    );
    let info = probe(["info", "u:libc:getenv"]).output().unwrap();
    let said = stdout(&info);
    assert!(
        said.starts_with("getenv: at 0x") && said.contains("libc.so.6, which does not tell"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 7, "{said}");
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn a_program_runs_on_when_its_probes_are_gone() {
    let own = own();
    let spec = format!("u:{own}:{TRIPLE}");
    let mut traced = Command::new(&own)
        .args(["--ignored", "--exact", "workload"])
        .env(CALLS, "200000")
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    for _ in 0..3 {
        let pid = traced.id().to_string();
        let output = probe(["count", &spec, "-p", &pid, "-d", "50ms"]).output().unwrap();
        // Or it has ended already.
        assert!(output.status.success() || stderr(&output).contains("there is no process"));
    }
    assert!(traced.wait().unwrap().success());
}
