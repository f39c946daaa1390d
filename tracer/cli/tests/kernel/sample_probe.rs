//! `probe sample`, for calls with a known call chain.

use crate::probe::busy::Busy;
use crate::probe::chain::{Chain, add_debug_info, count};
use crate::probe::commands::shell;
use crate::probe::unprivileged::where_proc_hides;
use crate::probe::{Run, assert_exit, assert_failure, printed, probe, stderr, stdout, succeed};
use probe_testing::crafted::nested;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

const GETPGID: &str = "syscalls:sys_enter_getpgid";

/// Samples each call of a chain of 30 and 12 calls.
fn sampled(args: &[&str]) -> Output {
    let chain = Chain::compile();
    let mut run = probe(["sample", "-e", GETPGID, "-c", "1"]);
    let output = succeed(run.args(args).arg("--").args(chain.command(30, 12)));
    assert_eq!(stderr(&output), "probe: 42 samples, 0 lost\n");
    output
}

/// The counts of the stacks through the functions left and right.
fn left_and_right(folded: &str) -> [u64; 2] {
    ["left", "right"].map(|name| count(folded, &format!(";main;{name};innermost ")))
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn every_sample_has_its_stack() {
    let folded = stdout(&sampled(&["-f", "folded"]));
    assert_eq!(left_and_right(&folded), [30, 12], "{folded}");
    assert_eq!(count(&folded, ""), 42);
}

/// Opening the pipe would wait for ever, and giving up takes 30 seconds.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_pipe_in_the_place_of_debug_information_is_not_opened() {
    let chain = Chain::compile();
    let mut package = chain.program.clone().into_os_string();
    package.push(".dwp");
    mknodat(CWD, &package, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let begun = Instant::now();
    let mut run = probe(["sample", "-e", GETPGID, "-c", "1", "-f", "folded", "--"]);
    let folded = stdout(&succeed(run.args(chain.command(30, 12))));
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
    assert_eq!(left_and_right(&folded), [30, 12], "{folded}");
}

/// Whoever reads its debug information runs out of stack.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_crafted_program_ends_no_trace() {
    let chain = Chain::compile();
    let (abbreviations, unit) = nested(200_000);
    let crafted = chain.program.with_extension("crafted");
    fs::copy(&chain.program, &crafted).unwrap();
    add_debug_info(&crafted, [&abbreviations, &unit]);
    let script = format!("{} 3 0; {} 30 12", crafted.display(), chain.program.display());
    let mut run = probe(["sample", "-e", GETPGID, "-c", "1", "-f", "folded", "--"]);
    let output = succeed(run.args(shell(&script)));
    assert_eq!(left_and_right(&stdout(&output)), [30, 12], "{}", stdout(&output));
    let errors = stderr(&output);
    let why = "crafted have no names, because reading it ended the process that reads symbols with signal";
    assert!(errors.contains(why), "{errors}");
    assert!(errors.contains("user addresses have no names, because files"), "{errors}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn functions_of_short_lived_processes_have_names() {
    let chain = Chain::compile();
    // One process after the other.
    let script =
        format!("for i in 1 2 3 4 5 6 7 8 9 10; do {} 2 1 0; done", chain.program.display());
    let mut run = probe(["sample", "-e", GETPGID, "-c", "1", "-f", "folded", "--"]);
    let folded = stdout(&succeed(run.args(shell(&script))));
    assert_eq!(left_and_right(&folded), [20, 10], "{folded}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn each_of_several_events_has_its_own_stacks() {
    let chain = Chain::compile();
    let events = "syscalls:sys_enter_getpgid,syscalls:sys_exit_getpgid";
    let mut run = probe(["sample", "-e", events, "-c", "1", "-f", "folded", "--"]);
    let folded = stdout(&succeed(run.args(chain.command(3, 0))));
    for event in events.split(',') {
        assert_eq!(count(&folded, &format!("{event};chain;")), 3, "{folded}");
    }
    assert_eq!(count(&folded, ""), 6);
    assert!(!folded.contains(";0x0"), "{folded}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_table_has_the_most_frequent_stack_first() {
    let table = stdout(&sampled(&[]));
    let first = table.lines().next().unwrap();
    assert!(first.trim_start().starts_with("30 "), "{table}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_flame_graph_replaces_its_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("stacks.svg");
    fs::write(&path, "x".repeat(1 << 20)).unwrap();
    let output = sampled(&["-o", path.to_str().unwrap()]);
    assert!(output.stdout.is_empty());
    let svg = fs::read_to_string(&path).unwrap();
    assert!(svg.trim_end().ends_with("</svg>") && svg.contains("innermost"), "{svg}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn targets_are_selected_as_for_perf() {
    let cpus = format!("0-{}", std::thread::available_parallelism().unwrap().get() - 1);
    let busy = Busy::beside_us();
    let pid = busy.pid();
    let sample = |target: &[&str]| {
        let args = ["sample", "-F", "499", "-f", "folded", "-d", "500ms"];
        let folded = printed(args.iter().chain(target));
        let (of_dd, of_others): (Vec<&str>, Vec<_>) =
            folded.lines().partition(|line| line.starts_with("dd;"));
        assert!(!of_dd.is_empty(), "{target:?}: {folded}");
        of_others.join("\n")
    };
    let mut sleeping = Command::new("sleep").arg("1000").spawn().unwrap();
    let both = format!("{},{pid}", sleeping.id());
    for target in [
        &["-p", &*pid][..],
        &["-p", &pid, "--per-thread"],
        &["-t", &pid],
        &["-p", &both],
        &["-p", &both, "--per-thread"],
    ] {
        assert_eq!(sample(target), "", "{target:?}");
    }
    sleeping.kill().unwrap();
    sleeping.wait().unwrap();
    sample(&["-a"]);
    sample(&["-C", &cpus]);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn threads_have_names_where_proc_hides_them() {
    let busy = Busy::beside_us();
    let args = ["sample", "-F", "499", "-f", "folded", "-d", "500ms", "-p", &*busy.pid()];
    let folded = stdout(&succeed(&mut where_proc_hides(args)));
    assert!(
        folded.starts_with("dd;") && folded.lines().all(|line| line.starts_with("dd;")),
        "{folded}"
    );
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn the_trace_of_a_process_ends_with_it() {
    let mut sleeping = Command::new("sleep").arg("300").spawn().unwrap();
    let run = Run::spawn(["sample", "-p", &sleeping.id().to_string()]);
    run.wait_for_thread("signals");
    sleeping.kill().unwrap();
    sleeping.wait().unwrap();
    let output = run.finish();
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn the_trace_of_several_processes_ends_with_the_last_one() {
    let sleeping = [(); 2].map(|()| Command::new("sleep").arg("300").spawn().unwrap());
    let pids = format!("{},{}", sleeping[0].id(), sleeping[1].id());
    let run = Run::spawn(["sample", "-p", &pids]);
    for mut process in sleeping {
        run.wait_for_thread("signals");
        process.kill().unwrap();
        process.wait().unwrap();
        std::thread::sleep(Duration::from_millis(300));
    }
    let output = run.finish();
    assert!(output.status.success(), "{}", stderr(&output));
}

/// The kernel lets nobody observe a program that its user may not read.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn sampling_ends_in_time_although_the_command_is_not_observed_any_more() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("sleep");
    fs::copy("/bin/sleep", &program).unwrap();
    for (path, mode) in [(dir.path(), 0o755), (&*program, 0o711)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let begun = Instant::now();
    let mut run = probe(["sample", "--user", "nobody", "-d", "1s", "--"]);
    succeed(run.arg(&program).arg("60"));
    assert!((1..30).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn the_exit_status_is_that_of_the_command() {
    assert_exit(&mut probe(["sample", "--", "sh", "-c", "exit 3"]), 3, "");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn invalid_input_is_explained_in_one_line() {
    let unknown = "syscalls:sys_enter_getpgi";
    let most = "which the sysctl kernel.perf_event_max_sample_rate sets";
    // The frequency in the event's terms overrides `-c`.
    let own = "software/config=0,freq=100000000/";
    for (args, expected) in [
        (&["-e", unknown][..], "there is no event `syscalls:sys_enter_getpgi`"),
        (&["-e", unknown], "did you mean `syscalls:sys_enter_getpgid`"),
        (&["-p", "4194305"], "there is no process 4194305"),
        (&["-F", "100000000"], most),
        (&["-c", "1000", "-e", own], most),
    ] {
        assert_failure(probe(["sample"]).args(args), expected);
    }
    let expected = "there is no event `list`; events have perf's names: cpu-clock";
    assert_exit(&mut probe(["sample", "-e", "list"]), 2, expected);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn an_event_has_the_name_and_the_period_of_its_terms() {
    // With debugfs mounted, `probe` uses the tracefs inside it.
    let folders = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
    let id = folders.map(|folder| format!("{folder}/events/syscalls/sys_enter_getpgid/id"));
    let id = id.iter().find_map(|id| fs::read_to_string(id).ok()).unwrap();
    let chain = Chain::compile();
    let event = format!("tracepoint/config={},name=calls-of-it,period=1/", id.trim());
    let mut run = probe(["sample", "-e", &event, "-c", "1000", "-f", "svg", "--"]);
    let output = run.args(chain.command(30, 12)).output().unwrap();
    assert_eq!(stderr(&output), "probe: 42 samples, 0 lost\n");
    let svg = stdout(&output);
    assert!(svg.contains("calls-of-it: 42 hits"), "{svg}");
}
