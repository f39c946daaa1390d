//! Stacks, beside calls whose way is known.

mod probe;

use probe::chain::{Chain, comes_by_a_system_call, through};
use probe::{books, probe, stderr, stdout};

const GETPGID: &str = "tracepoint:syscalls:sys_enter_getpgid/pid == -7/";

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn every_event_has_the_way_that_led_to_it() {
    let events = Chain::compile().trace(&["-K", "-U", GETPGID], 30, 12);
    assert_eq!(events.len(), 42);
    assert_eq!((through(&events, "left"), through(&events, "right")), (30, 12), "{}", events[0]);
    for event in &events {
        assert!(comes_by_a_system_call(event), "{event}");
        let innermost = &event["args"]["ustack"][0];
        assert!(innermost["module"].as_str().unwrap().ends_with("/chain"), "{event}");
        assert!(innermost["offset"].as_u64().unwrap() < 64, "{event}");
    }
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
    let output = run.arg(&chain.program).args(["1", "0"]).output().unwrap();
    let table = stdout(&output);
    let at = |text: &str| table.find(text).unwrap_or_else(|| panic!("no {text}: {table}"));
    assert!(at("sys_enter") < at("\n          kstack  "), "{table}");
    assert!(at("  do_syscall_64+0x") < at("\n          ustack  innermost+0x"), "{table}");
    assert!(at("\n          ustack  innermost+0x") < at("\n                  left+0x"), "{table}");
    assert!(at("\n                  left+0x") < at("\n                  main+0x"), "{table}");
}

/// What `probe stack` makes of a chain of 30 and 12 calls.
fn ways(format: &str) -> String {
    let chain = Chain::compile();
    let mut run = probe(["stack", "-K", "-U", "-F", format, "rawtp:sys_enter/arg1:s64 == 121/"]);
    let output = run.arg("--").arg(&chain.program).args(["30", "12"]).output().unwrap();
    let said = stderr(&output);
    assert!(output.status.success() && said.starts_with("probe: 42 hits\n"), "{said}");
    assert_eq!(books(&said).lost, 0);
    stdout(&output)
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn every_hit_is_counted_with_its_way() {
    let folded = ways("folded");
    let count = |function: &str| -> u64 {
        let way = format!(";main;{function};innermost;");
        let ours = folded.lines().filter(|line| line.starts_with("chain;") && line.contains(&way));
        // From the process into the kernel.
        let ours = ours.filter(|line| line.contains("do_syscall_64"));
        ours.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
    };
    assert_eq!((count("left"), count("right")), (30, 12), "{folded}");
    assert_eq!(folded.lines().count(), 2, "{folded}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_flame_graph_has_every_function() {
    let picture = ways("svg");
    for title in ["main: 42 hits, 100.0 %", "left: 30 hits, 71.4 %", "right: 12 hits, 28.6 %"] {
        assert_eq!(
            picture.matches(&format!("<title>{title}</title>")).count(),
            1,
            "{title}: {picture}"
        );
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn what_has_no_stack_is_refused() {
    let told = "stacks are counted, and fields are not read";
    assert_failure_of(&["stack", "rawtp:sys_enter(arg1)"], told);
    assert_failure_of(&["trace", "rawtp:sys_enter(kstack.next)"], "kstack has no members");
    assert_failure_of(&["trace", "rawtp:sys_enter(ustack:str)"], "ustack is a stack");
    assert_failure_of(&["trace", "rawtp:sys_enter/kstack == \"a\"/"], "stacks cannot be compared");
}

/// Fails with an error that points into the spec.
fn assert_failure_of(args: &[&str], told: &str) {
    let output = probe(args).output().unwrap();
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(told) && said.contains('^'), "{said}");
}
