//! `probe sample`, beside calls whose way is known.

mod probe;

use probe::busy::Busy;
use probe::chain::Chain;
use probe::{assert_failure, probe, stderr, stdout};
use std::process::{Child, Command, Output};

const GETPGID: &str = "syscalls:sys_enter_getpgid";

/// Samples each call of a chain of 30 and 12.
fn sampled(args: &[&str]) -> Output {
    let chain = Chain::compile();
    let mut run = probe(["sample", "-e", GETPGID, "-c", "1"]);
    let output = run.args(args).arg("--").arg(&chain.program).args(["30", "12"]).output().unwrap();
    let said = stderr(&output);
    assert!(output.status.success(), "{said}");
    assert_eq!(said, "probe: 42 samples, 0 lost, throttled 0 times\n");
    output
}

/// The counts of ways, in the lines of `-f folded`, that have this in them.
fn count(folded: &str, part: &str) -> u64 {
    let counts = folded.lines().filter(|line| line.contains(part)).map(|line| {
        let (_, count) = line.rsplit_once(' ').unwrap();
        count.parse::<u64>().unwrap()
    });
    counts.sum()
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn every_sample_has_the_way_that_led_to_it() {
    let folded = stdout(&sampled(&["-f", "folded"]));
    let through = |function| count(&folded, &format!(";main;{function};innermost "));
    assert_eq!((through("left"), through("right")), (30, 12), "{folded}");
    assert_eq!(count(&folded, ""), 42);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn processes_that_nobody_saw_have_names_for_their_functions() {
    let chain = Chain::compile();
    // One after the other, each of which has ended soon.
    let script =
        format!("for i in 1 2 3 4 5 6 7 8 9 10; do {} 2 1 0; done", chain.program.display());
    let mut run = probe(["sample", "-e", GETPGID, "-c", "1", "-f", "folded"]);
    let output = run.args(["--", "sh", "-c", &script]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    let folded = stdout(&output);
    let through = |function| count(&folded, &format!(";main;{function};innermost "));
    assert_eq!((through("left"), through("right")), (20, 10), "{folded}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_table_has_the_most_frequent_way_first() {
    let table = stdout(&sampled(&[]));
    let first = table.lines().next().unwrap();
    assert!(first.trim_start().starts_with("30 "), "{table}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_flame_graph_replaces_what_was_in_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("way.svg");
    std::fs::write(&path, "x".repeat(1 << 20)).unwrap();
    let output = sampled(&["-f", "svg", "-o", path.to_str().unwrap()]);
    assert!(output.stdout.is_empty());
    let svg = std::fs::read_to_string(&path).unwrap();
    assert!(svg.trim_end().ends_with("</svg>") && svg.contains("innermost"), "{svg}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn whose_samples_there_are_is_as_for_perf() {
    let cpus = format!("0-{}", std::thread::available_parallelism().unwrap().get() - 1);
    let busy = Busy::beside_us();
    let pid = busy.pid();
    let all = [&["-p", &*pid][..], &["-p", &pid, "--per-thread"], &["-t", &pid]];
    for who in all {
        let mut run = probe(["sample", "-F", "499", "-f", "folded", "-d", "500ms"]);
        let output = run.args(who).output().unwrap();
        assert!(output.status.success(), "{who:?}: {}", stderr(&output));
        let folded = stdout(&output);
        assert!(folded.lines().next().is_some(), "{who:?}: {}", stderr(&output));
        assert!(folded.lines().all(|line| line.starts_with("dd;")), "{who:?}: {folded}");
    }
    for who in [&["-a"][..], &["-C", &cpus]] {
        let mut run = probe(["sample", "-F", "499", "-f", "folded", "-d", "500ms"]);
        let folded = stdout(&run.args(who).output().unwrap());
        assert!(folded.lines().any(|line| line.starts_with("dd;")), "{who:?}: {folded}");
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_process_that_ends_ends_it() {
    let sleeping = Command::new("sleep").arg("5").spawn().unwrap();
    let mut sleeping = Ended(sleeping);
    let output = probe(["sample", "-p", &sleeping.0.id().to_string()]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    sleeping.0.wait().unwrap();
}

/// A child that is waited for, whatever happens.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.wait();
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn the_status_is_the_commands() {
    let output = probe(["sample", "--", "sh", "-c", "exit 3"]).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn bad_input_gets_one_line_that_helps() {
    let unknown =
        ["there is no event `syscalls:sys_enter_getpgi`", "there is syscalls:sys_enter_getpgid"];
    for told in unknown {
        assert_failure(&mut probe(["sample", "-e", "syscalls:sys_enter_getpgi"]), told);
    }
    assert_failure(&mut probe(["sample", "-p", "4194305"]), "there is no process 4194305");
    let most = "that the sysctl kernel.perf_event_max_sample_rate allows";
    assert_failure(&mut probe(["sample", "-F", "100000000"]), most);
    // It goes before any period.
    let own = "software/config=0,freq=100000000/";
    assert_failure(&mut probe(["sample", "-c", "1000", "-e", own]), most);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn an_event_has_the_name_and_the_period_of_its_terms() {
    // Where debugfs is mounted, `probe` is content with the tracefs in there.
    let folders = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
    let id = folders.map(|folder| format!("{folder}/events/syscalls/sys_enter_getpgid/id"));
    let id = id.iter().find_map(|id| std::fs::read_to_string(id).ok()).unwrap();
    let chain = Chain::compile();
    let event = format!("tracepoint/config={},name=calls-of-it,period=1/", id.trim());
    let mut run = probe(["sample", "-e", &event, "-c", "1000", "-f", "svg", "--"]);
    let output = run.arg(&chain.program).args(["30", "12"]).output().unwrap();
    assert_eq!(stderr(&output), "probe: 42 samples, 0 lost, throttled 0 times\n");
    let svg = stdout(&output);
    assert!(svg.contains("calls-of-it: 42 hits"), "{svg}");
}
