//! Names that were chosen to do something to a terminal.

mod probe;

use probe::{Run, assert_failure, json_lines, probe, stderr, stdout};
use rustix::process::Signal;
use std::ffi::OsStr;
use std::io::BufRead;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};

const EXEC: &str = "tracepoint:sched:sched_process_exec";

/// Clears the screen, turns the text round, and is not UTF-8. A task's name has 15 bytes.
const NAME: &[u8] = b"x\x1b[2J\xc2\x9b\xe2\x80\xae\x7f\x0a\xff";

fn is_harmless(text: &str) -> bool {
    !text.chars().any(|char| char != '\n' && (char.is_control() || char == '\u{202e}'))
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn names_of_programs_do_not_reach_the_terminal_raw() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join(OsStr::from_bytes(NAME));
    std::fs::copy("/bin/true", &program).unwrap();
    let trace = |args: &[&str]| {
        let output = probe(args).arg("--").arg(&program).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        assert!(is_harmless(&stdout(&output)), "{:?}", stdout(&output));
        assert!(is_harmless(&stderr(&output)), "{:?}", stderr(&output));
        output
    };
    let table = stdout(&trace(&["trace", EXEC]));
    let shown = "x\\u{1b}[2J\\u{9b}\\u{202e}\\u{7f}\\n\\xff";
    let line = table.lines().nth(1).unwrap();
    assert_eq!(line.matches(shown).count(), 2, "its name and its path: {line}");
    assert_eq!(table.lines().count(), 2);

    let lines = json_lines(&trace(&["trace", EXEC, "-F", "jsonl"]));
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["comm"], *String::from_utf8_lossy(NAME));
    assert_eq!(lines[0]["args"]["filename"], *program.to_string_lossy());
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn names_that_threads_give_themselves_do_not_reach_it_either() {
    static DONE: AtomicBool = AtomicBool::new(false);
    let thread = std::thread::spawn(|| {
        let name = std::ffi::CString::new(NAME).unwrap();
        rustix::thread::set_name(&name).unwrap();
        while !DONE.load(Ordering::Relaxed) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    });
    let pid = std::process::id().to_string();
    let mut run = Run::start(&["trace", "rawtp:sys_enter", "-p", &pid]);
    run.wait_for_heading();
    let mut line = String::new();
    while !line.contains("x\\u{1b}[2J\\u{9b}\\u{202e}\\u{7f}\\n\\xff") {
        line.clear();
        assert_ne!(run.stdout.read_line(&mut line).unwrap(), 0);
        assert!(is_harmless(&line), "{line:?}");
    }
    DONE.store(true, Ordering::Relaxed);
    run.signal(Signal::INT);
    assert!(is_harmless(&stdout(&run.finish())));
    thread.join().unwrap();
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn errors_quote_commands_harmlessly() {
    let mut command = probe(["trace", EXEC, "--"]);
    command.arg(OsStr::from_bytes(b"/no/\x1b[2J\xff"));
    assert_failure(&mut command, "cannot run `/no/\\u{1b}[2J\\xff`: No such file");
}

#[test]
fn wrong_arguments_are_quoted_harmlessly() {
    for (args, told) in [
        (["trace", "a\u{1b}[2J"], "character\n  a\\u{1b}[2J\n   ^"),
        (["trace", "--\u{9b}1m"], "unexpected argument '--\\u{9b}1m'"),
        (["tr\u{202e}", "a"], "unrecognized subcommand 'tr\\u{202e}'"),
    ] {
        let output = probe(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let said = stderr(&output);
        assert!(said.contains(told) && is_harmless(&said), "{said:?}");
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn many_probes_have_a_bar_until_they_are_attached() {
    let count = "count 'tracepoint:syscalls:sys_*_g*' -d 10ms";
    let on_terminal = |shown: bool| {
        let probe = format!("{} {count}", probe::binary().display());
        let mut script = std::process::Command::new("script");
        script.args([
            "-qec",
            &if shown { probe } else { format!("{probe} 2>&1 | cat") },
            "/dev/null",
        ]);
        stdout(&script.output().unwrap())
    };
    let shown = on_terminal(true);
    if shown.contains("more than this kernel can tell apart") {
        return;
    }
    let (before, after) = shown.split_once("COUNT TYPE").unwrap_or_else(|| panic!("{shown:?}"));
    assert!(before.contains("attaching ") && before.contains(" probes"), "{shown:?}");
    // It is gone when there is something to tell.
    assert!(before.contains("\u{1b}[2K") && !after.contains("attaching"), "{shown:?}");
    assert!(!on_terminal(false).contains("attaching"));
}
