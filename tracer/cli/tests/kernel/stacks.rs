//! Stacks of calls with a known call chain.

use crate::probe::chain::{Chain, count, is_from_a_system_call, through};
use crate::probe::{assert_exit, events, ledger, probe, stderr, stdout, succeed};

const GETPGID: &str = "tracepoint:syscalls:sys_enter_getpgid/pid == -7/";

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn every_event_has_its_stack() {
    let events = Chain::compile().trace(&["-K", "-U", GETPGID], 30, 12);
    assert_eq!(events.len(), 42);
    assert_eq!((through(&events, "left"), through(&events, "right")), (30, 12), "{}", events[0]);
    for event in &events {
        assert!(is_from_a_system_call(event), "{event}");
        let innermost = &event["args"]["ustack"][0];
        assert!(innermost["module"].as_str().unwrap().ends_with("/chain"), "{event}");
        assert!(innermost["offset"].as_u64().unwrap() < 64, "{event}");
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_program_has_no_names_of_the_next_one_in_its_process() {
    let chain = Chain::compile();
    // Another program with the same addresses.
    let other = chain.program.with_file_name("other");
    std::fs::copy(&chain.program, &other).unwrap();
    let mut command = chain.command(3, 0).to_vec();
    command.extend(["0".to_owned(), other.to_str().unwrap().to_owned()]);
    let events = events(["-U", GETPGID], command);
    let modules = |comm: &str| {
        let of = events.iter().filter(|event| event["comm"] == comm);
        let modules = of.map(|event| event["args"]["ustack"][0]["module"].as_str());
        modules.collect::<Vec<_>>()
    };
    let of_first = modules("chain");
    assert_eq!(of_first.len(), 3, "{events:#?}");
    let is_right = |module: &Option<&str>| module.is_none_or(|module| module.ends_with("/chain"));
    assert!(of_first.iter().all(is_right), "{of_first:?}");
    let of_second = modules("other");
    assert!(of_second.len() == 1 && of_second[0].unwrap().ends_with("/other"), "{of_second:?}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn stacks_are_fields_like_others() {
    let spec = "rawtp:sys_enter(ustack, number=arg1:s64)/arg1:s64 == 121/";
    let events = Chain::compile().trace(&[spec], 3, 4);
    assert_eq!(events.len(), 7);
    assert_eq!((through(&events, "left"), through(&events, "right")), (3, 4), "{}", events[0]);
    for event in &events {
        assert_eq!(event["args"]["number"], 121);
        assert_eq!(event["args"].as_object().unwrap().len(), 2);
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn addresses_are_shown_by_their_names() {
    let chain = Chain::compile();
    let mut run = probe(["trace", "-K", "-U", "rawtp:sys_enter()/arg1:s64 == 121/", "--"]);
    let table = stdout(&succeed(run.args(chain.command(1, 0))));
    let at = |text: &str| table.find(text).unwrap_or_else(|| panic!("no {text}: {table}"));
    let positions = [
        "sys_enter",
        "\n          kstack  ",
        "  do_syscall_64+0x",
        "\n          ustack  innermost+0x",
        "\n                  left+0x",
        "\n                  main+0x",
    ];
    assert!(positions.map(at).is_sorted(), "{table}");
    // The tracer's own program is not a part of the kernel's stack.
    assert!(!table.contains("bpf_prog_") && !table.contains("bpf_trace_run"), "{table}");
}

/// The output of `probe stack` for a chain of 30 and 12 calls.
fn counted(format: &str) -> String {
    let chain = Chain::compile();
    let mut run = probe(["stack", "-K", "-U", "-F", format, "rawtp:sys_enter/arg1:s64 == 121/"]);
    let output = succeed(run.arg("--").args(chain.command(30, 12)));
    assert!(stderr(&output).starts_with("probe: 42 hits\n"), "{}", stderr(&output));
    assert_eq!(ledger(&output).lost, 0);
    let printed = stdout(&output);
    assert!(!printed.contains("bpf_prog_"), "{printed}");
    printed
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn every_hit_is_counted_with_its_stack() {
    let folded = counted("folded");
    for (function, hits) in [("left", 30), ("right", 12)] {
        assert_eq!(count(&folded, &format!(";main;{function};innermost;")), hits, "{folded}");
    }
    assert_eq!(folded.lines().count(), 2, "{folded}");
    for line in folded.lines() {
        // The stack continues from the process into the kernel.
        assert!(line.starts_with("chain;") && line.contains("do_syscall_64"), "{folded}");
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_flame_graph_has_every_function() {
    let picture = counted("svg");
    for title in ["main: 42 hits, 100.0 %", "left: 30 hits, 71.4 %", "right: 12 hits, 28.6 %"] {
        let title = format!("<title>{title}</title>");
        assert_eq!(picture.matches(&title).count(), 1, "{title}: {picture}");
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn invalid_uses_of_stacks_are_refused() {
    for (command, spec, expected) in [
        ("stack", "rawtp:sys_enter(arg1)", "stacks are counted, so fields are not read"),
        ("trace", "rawtp:sys_enter(kstack.next)", "kstack has no members"),
        ("trace", "rawtp:sys_enter(ustack:str)", "ustack is a stack"),
        ("trace", "rawtp:sys_enter/kstack == \"a\"/", "stacks cannot be compared"),
    ] {
        let printed = assert_exit(&mut probe([command, spec]), 1, expected);
        assert!(printed.contains('^'), "{printed}");
    }
}
