//! Functions of programs and libraries with known calls: this executable's own, and the C library's as
//! called by it.

use crate::absent;
use crate::probe::commands::own;
use crate::probe::{
    self, Run, assert_exit, assert_failure, compile, events, json_line, json_lines, ledger,
    printed, probe, stderr, stdout, succeed, trace,
};
use crate::uprobe_fixtures::{SUM, TRIPLE, address_of_triple, calling, text};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::process::{Command, Stdio};

/// The hits of each function during some work.
fn counts(args: &[&str], work: &str) -> BTreeMap<String, u64> {
    probe::counts(args, calling(work)).0.into_values().flatten().collect()
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn calls_of_a_library_by_a_running_process_have_their_strings() {
    const CALLS: usize = 300;
    let pid = std::process::id().to_string();
    let probe = "uprobe:libc:getenv(arg0:str, user=arg0:ustr, bytes=arg0:bytes[7])";
    let run = Run::start(["trace", probe, "-p", &pid, "-F", "jsonl", "-B", "4M"]);
    for number in 0..CALLS {
        assert!(std::env::var_os(format!("UPROBE_{number}")).is_none());
    }
    run.signal(rustix::process::Signal::INT);
    let output = run.finish();
    assert_eq!(ledger(&output).lost, 0);
    let mut events: Vec<_> = stdout(&output).lines().map(json_line).collect();
    events.retain(|event| {
        event["args"]["user"].as_str().is_some_and(|name| name.starts_with("UPROBE_"))
    });
    events.sort_by_key(|event| event["time"].as_u64());
    assert_eq!(events.len(), CALLS);
    for (number, event) in events.into_iter().enumerate() {
        let name = format!("UPROBE_{number}");
        // "UPROBE_"
        let args = json!({"arg0": name, "user": name, "bytes": "5550524f42455f"});
        assert_eq!((&event["type"], &event["args"]), (&"uprobe".into(), &args), "{event}");
        assert_eq!(
            (&event["probe"], &event["pid"]),
            (&json!("getenv"), &json!(std::process::id()))
        );
    }
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn arguments_and_results_are_those_of_each_call() {
    const CALLS: u64 = 500;
    let own = own();
    let specs = [
        format!("u:{own}:{TRIPLE}(n=arg0:u64, text=arg1:str)"),
        format!("ur:{own}:{TRIPLE}(retval:u64)"),
        format!("uprobe:{own}:{SUM}(arg0:s32)"),
        format!("uretprobe:{own}:{SUM}(retval:u32)"),
    ];
    let work = calling(&format!("triple {CALLS} sum 20"));
    let output = trace(specs.into_iter().chain(["-B".into(), "4M".into()]), work);
    assert_eq!(ledger(&output).attempted, 2 * CALLS + 2 * 21, "{}", stderr(&output));
    let events = json_lines(&output);
    let assert_events = |kind: &str, probe: &str, expected: Vec<Value>| {
        let is_it = |event: &&Value| event["type"] == kind && event["probe"] == probe;
        let events = events.iter().filter(is_it).collect::<Vec<_>>();
        assert_eq!(events.len(), expected.len(), "{kind}:{probe}");
        for (event, expected) in events.into_iter().zip(expected) {
            assert_eq!(event["args"], expected, "{event}");
        }
    };
    let entry = |n| json!({"n": n, "text": text(n).to_str().unwrap()});
    assert_events("uprobe", TRIPLE, (0..CALLS).map(entry).collect());
    assert_events("uretprobe", TRIPLE, (0..CALLS).map(|n| json!({"retval": n * 3})).collect());
    assert_events("uprobe", SUM, (0..=20).rev().map(|n| json!({"arg0": n})).collect());
    let sum = |n| json!({"retval": n * (n + 1) / 2});
    assert_events("uretprobe", SUM, (0..=20).map(sum).collect());
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn the_kernel_reports_64_returns_of_nested_calls() {
    let count = |provider: &str| counts(&[&format!("{provider}:{}:{SUM}", own())], "sum 99")[SUM];
    assert_eq!((count("uprobe"), count("uretprobe")), (100, 64));
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn events_without_fields_have_the_registers() {
    let own = own();
    let events = events([format!("u:{own}:{SUM}"), format!("ur:{own}:{SUM}")], calling("sum 20"));
    assert_eq!(events.len(), 42);
    let names = |event: &Value| -> Vec<String> {
        event["args"].as_object().unwrap().keys().cloned().collect()
    };
    assert_eq!(names(&events[0]), ["arg0", "arg1", "arg2", "arg3", "arg4", "arg5"]);
    assert_eq!(events[0]["args"]["arg0"], "0x14");
    assert_eq!(events[41]["args"]["retval"], "0xd2");
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn every_hit_is_counted_that_satisfies_the_condition() {
    for (provider, condition, expected) in [
        ("uprobe", "", 1000),
        ("uprobe", "/arg1:str == \"odd\"/", 334),
        ("uprobe", "/arg1:str == \"even\"/", 0),
        ("uprobe", "/arg0:u64 < 10 && arg1:str != \"odd\"/", 6),
        ("uretprobe", "/retval:s32 >= 2700/", 100),
    ] {
        let spec = format!("{provider}:{}:{TRIPLE}{condition}", own());
        let counts = counts(&["-a", &spec], "triple 1000");
        assert_eq!(counts.get(TRIPLE).copied().unwrap_or(0), expected, "{condition}");
    }
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn an_offset_in_a_function_is_hit_as_often_as_its_beginning() {
    let at = |offset: u32| format!("uprobe:{}:{TRIPLE}+{offset}", own());
    let is_instruction = |offset: &u32| {
        let output = probe(["info", &at(*offset)]).output().unwrap();
        let expected = "no instruction that begins at this offset, and a probe in the middle of one would break";
        let is_instruction = output.status.success();
        assert!(is_instruction || stderr(&output).contains(expected), "{}", stderr(&output));
        is_instruction
    };
    let offsets: Vec<u32> = (1..12).filter(is_instruction).collect();
    assert!(!offsets.is_empty() && offsets.len() < 11, "{offsets:?}");
    let site = format!("{TRIPLE}+{:#x}", offsets[0]);
    // Only at the entry are arguments in their registers.
    let output = trace([at(0), at(offsets[0])], calling("triple 100"));
    let events = json_lines(&output);
    let args = |name: &str| {
        let of = events.iter().filter(|event| event["probe"] == name);
        of.map(|event| event["args"].as_object().unwrap().len()).collect::<Vec<_>>()
    };
    assert_eq!((args(TRIPLE), args(&site)), (vec![6; 100], vec![0; 100]), "{offsets:?}");
    let spec = format!("{}(arg0)", at(offsets[0]));
    let expected =
        format!("inside {TRIPLE}, its arguments may be in other registers than at its entry");
    assert_exit(&mut probe(["trace", &spec]), 1, &expected);
    assert_failure(&mut probe(["count", &at(4000)]), " bytes of code in this function");
    // The same places by their addresses.
    let at = |offset: u64| format!("uprobe:{}:{:#x}(arg0)", own(), address_of_triple() + offset);
    let events = json_lines(&trace([at(0)], calling("triple 10")));
    assert_eq!(events.len(), 10, "{events:#?}");
    assert!(events.iter().any(|event| event["args"]["arg0"] == "0x7"), "{events:#?}");
    let expected = format!("inside {site}, its arguments may be in other registers");
    assert_exit(&mut probe(["trace", &at(offsets[0].into())]), 1, &expected);
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn a_pattern_stands_for_each_matching_function() {
    let own = own();
    let both = counts(&[&format!("uprobe:{own}:uprobe_fixture_*")], "triple 50 sum 20");
    assert_eq!(both, BTreeMap::from([(TRIPLE.to_owned(), 50), (SUM.to_owned(), 21)]));
    let pattern = format!("uretprobe:{own}:uprobe_fixture_*");
    let one = counts(&[&pattern, "-x", "*_sum"], "triple 50 sum 20");
    assert_eq!(one, BTreeMap::from([(TRIPLE.to_owned(), 50)]));
    assert_failure(
        &mut probe(["count", &format!("u:{own}:uprobe_no_such_*")]),
        " has no function that matches this pattern and can be probed",
    );
    // For these names the library has one implementation per CPU model (IFUNC).
    let mut run = probe(["count", "u:libc:strd*", "u:libc:strle[n]", "--", "true"]);
    assert_exit(&mut run, 1, "; chosen when a program is loaded (IFUNC): 1");
    let mut run = probe(["count", "u:libc:str[dl]*", "--", "true"]);
    assert_exit(&mut run, 0, "chosen when a program is loaded (IFUNC)");
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn an_ifunc_of_the_c_library_is_what_it_chooses_on_this_machine() {
    let spec = "u:libc:strlen(text=arg0:str)/comm == \"absent\"/";
    let output = trace([spec], absent::work("reads_own"));
    let events = json_lines(&output);
    for text in absent::own_strings() {
        let read = events.iter().filter(|event| event["args"]["text"] == text).count();
        assert_eq!(read, 1, "{text}");
    }
    let expected = "which the library chooses on this machine (IFUNC)";
    assert!(stderr(&output).contains(expected), "{}", stderr(&output));
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
    for (provider, probed, reason) in [
        (
            "uprobe",
            "/no/such/file:f",
            "/no/such/file cannot be read: No such file or directory (os error 2)",
        ),
        (
            "uprobe",
            "no_such_program:f",
            "no_such_program is not a program in PATH, and libno_such_program.so is not in the \
             directories of /etc/ld.so.conf; write a path with a /",
        ),
        ("uprobe", &format!("{folder}:f"), &format!("{folder} is not a file")),
        (
            "uprobe",
            &format!("{script}:f"),
            &format!("{script} has no code that can be probed: it is not an ELF file"),
        ),
        (
            "uretprobe",
            &format!("{own}:uprobe_fixture_tripl"),
            &format!(
                "{own} has no function of this name; did you mean `uprobe_fixture_triple` or \
                 `uprobe_fixture_sum`?"
            ),
        ),
        (
            "uprobe",
            &format!("{own}:getenv"),
            &format!(
                "{own} calls this function but does not define it; one of the libraries that \
                 `ldd` shows does"
            ),
        ),
    ] {
        let short = provider.replace("probe", "").replace("ret", "r");
        let printed = assert_exit(&mut probe(["trace", &format!("{short}:{probed}")]), 1, "");
        assert_eq!(printed, format!("probe: cannot probe {provider}:{probed}: {reason}\n"));
    }
    for (spec, expected) in [
        ("u:libc:getenvv", "libc.so.6 has no function of this name; did you mean `getenv`"),
        ("u:libc:malloc+0x100000", " bytes of code in this function"),
        ("ur:libc:__sigsetjmp", "has a function here that returns twice"),
        ("ur:libc:getcontext", "has a function here that returns twice"),
        ("ur:libc:dlsym", "finds its caller by the return address"),
    ] {
        assert_failure(&mut probe(["trace", spec, "-d", "1ms"]), expected);
    }
    // By its address, too.
    let (libc, offset) = probe_sys::process::linked_function(c"setjmp").unwrap();
    let spec = format!("ur:{}:{:#x}", libc.display(), offset);
    let expected = "has a function here that returns twice";
    assert_failure(&mut probe(["trace", &spec, "-d", "1ms"]), expected);
    let output = succeed(&mut probe(["trace", "ur:libc:get*context", "-d", "1ms"]));
    let expected = "would crash the program with a probe on its return";
    assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    for (spec, expected) in [
        (
            "u:libc:malloc(retval)",
            "only arg0 to arg5 can be read; --ret reports arguments, retval and",
        ),
        (
            "ur:libc:malloc(arg0)",
            "only retval can be read; --ret reports arguments, retval and latency",
        ),
        (
            "u:libc:malloc(arg0->size)",
            "the types of its arguments are not known: arg0 has no members",
        ),
    ] {
        assert_exit(&mut probe(["trace", spec]), 1, expected);
    }
}

/// The top of the stack is no return address at the beginning of `_start` and of `work.cold`. The program succeeds if nothing
/// has changed what is there.
#[cfg(target_arch = "x86_64")]
const JUMPED_TO: &str = r#"
int work(int n);
__asm__(
    ".globl work; .type work, @function\n"
    "work: push %rdi; jmp work.cold\n"
    "back: pop %rax; ret; .size work, . - work\n"
    ".type work.cold, @function\n"
    "work.cold: nop; jmp back; .size work.cold, . - work.cold\n");
int main(int argc, char **argv) { return argc == 3 && work(42) == 42 ? 0 : 1; }
"#;

#[cfg(target_arch = "x86_64")]
#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn returns_of_code_that_is_not_called_are_not_probed() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("jump");
    compile(JUMPED_TO, &[], &program);
    let program = program.to_str().unwrap();

    let command = [program, "one", "two"];
    succeed(Command::new(program).args(&command[1..]));
    for (provider, options) in [("ur", &[][..]), ("u", &["--ret"])] {
        let all = format!("{provider}:{program}:*");
        let mut run = probe(["trace", "-F", "jsonl", &all]);
        let output = succeed(run.args(options).arg("--").args(command));
        let expected = " would crash the program with a probe on its return";
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
        let lines = json_lines(&output);
        let of = |name: &str| lines.iter().filter(|line| line["probe"] == name).count();
        assert_eq!((of("main"), of("work"), of("work.cold")), (1, 1, 0), "{lines:#?}");
    }
    let (counts, _) = probe::counts([format!("u:{program}:work*")], command);
    assert_eq!(counts["uprobe"], BTreeMap::from([("work".to_owned(), 1)]));
    for (spec, expected) in [
        (format!("ur:{program}:_start"), "not called but jumped to"),
        (format!("ur:{program}:work.cold"), "not called but jumped to"),
    ] {
        assert_failure(&mut probe(["trace", &spec, "-d", "1ms"]), expected);
    }

    // The entry point of a library that cannot be executed is any function.
    let library = dir.path().join("library.so");
    compile(JUMPED_TO, &["-shared", "-fPIC", "-Wl,-e,work"], &library);
    let spec = format!("ur:{}:work", library.display());
    succeed(&mut probe(["trace", &spec, "-d", "1ms"]));
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn files_that_throw_are_named_once_if_returns_are_probed() {
    const WARNING: &str = "an exception or a panic that leaves a function whose return is probed";
    let own = own();
    let warnings = |provider: &str, file: &str, function: &str| {
        let spec = format!("{provider}:{file}:{function}");
        let output = succeed(&mut probe(["count", &spec, "--", "true"]));
        stderr(&output).matches(WARNING).count()
    };
    // This is a program in Rust.
    assert_eq!(warnings("ur", &own, "uprobe_fixture_*"), 1);
    assert_eq!(warnings("u", &own, "uprobe_fixture_*"), 0);
    assert_eq!(warnings("ur", "libc", "getpid"), 0);
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn what_can_be_probed_is_listed_and_described() {
    let own = own();
    let expected = [SUM, TRIPLE].map(|name| format!("uprobe:{own}:{name}\n")).concat();
    assert_eq!(printed(["list", &format!("uprobe:{own}:uprobe_fixture_*")]), expected);
    let parsed = |args: [&str; 3]| serde_json::from_str::<Value>(&printed(args)).unwrap();
    let listed = parsed(["list", "--json", "ur:libc:getenv"]);
    assert_eq!(listed["probes"], json!([{"type": "uretprobe", "probe": "libc:getenv"}]));
    assert_failure(&mut probe(["list", "u:libc:getenvv"]), "did you mean `getenv`");

    let info = parsed(["info", "--json", "uretprobe:libc:getenv"]);
    assert!(info["place"]["file"].as_str().unwrap().ends_with("/libc.so.6"), "{info}");
    let field = &info["fields"][0];
    assert_eq!((&field["name"], &field["shape"]), (&json!("retval"), &json!("hex")));
    let info = printed(["info", "u:libc:getenv"]);
    assert!(info.starts_with("getenv: at 0x"), "{info}");
    assert!(info.contains("libc.so.6, without a known signature"), "{info}");
    assert!(info.contains("arguments in floating point are not counted"), "{info}");
    assert_eq!(info.lines().count(), 8, "{info}");
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn a_program_continues_without_its_probes() {
    let spec = format!("u:{}:{TRIPLE}", own());
    let [shell, args @ ..] = calling("on");
    let mut traced = Command::new(shell).args(args).stdin(Stdio::piped()).spawn().unwrap();
    let pid = traced.id().to_string();
    for _ in 0..3 {
        let counted = printed(["count", &spec, "-p", &pid, "-d", "500ms"]);
        assert!(counted.contains(TRIPLE), "{counted}");
    }
    drop(traced.stdin.take());
    assert!(traced.wait().unwrap().success());
}
