//! Names with terminal control characters.

use crate::probe::{
    EXEC, Run, assert_exit, assert_failure, binary, compile, json_lines, probe, stderr, stdout,
    succeed,
};
use probe_testing::set_on_drop::SetOnDrop;
use probe_testing::skip::skip;
use rustix::process::Signal;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};

/// Clears the screen, reverses the text direction, and is not UTF-8. A task name has at most 15
/// bytes.
const NAME: &[u8] = b"x\x1b[2J\xc2\x9b\xe2\x80\xae\x7f\x0a\xff";
const ESCAPED: &str = "x\\u{1b}[2J\\u{9b}\\u{202e}\\u{7f}\\n\\xff";

#[track_caller]
fn assert_harmless(text: &str) {
    let is_harmful = |char: char| char != '\n' && (char.is_control() || char == '\u{202e}');
    assert!(!text.contains(is_harmful), "{text:?}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn names_of_programs_are_escaped() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join(OsStr::from_bytes(NAME));
    std::fs::copy("/bin/true", &program).unwrap();
    let trace = |args: &[&str]| {
        let output = succeed(probe(args).arg("--").arg(&program));
        assert_harmless(&stdout(&output));
        assert_harmless(&stderr(&output));
        output
    };
    let table = stdout(&trace(&["trace", EXEC]));
    let line = table.lines().nth(1).unwrap();
    assert_eq!(line.matches(ESCAPED).count(), 2, "its name and its path: {line}");
    assert_eq!(table.lines().count(), 2);

    let lines = json_lines(&trace(&["trace", EXEC, "-F", "jsonl"]));
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["comm"], *String::from_utf8_lossy(NAME));
    assert_eq!(lines[0]["args"]["filename"], *program.to_string_lossy());
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn names_of_threads_are_escaped() {
    let is_over = AtomicBool::new(false);
    let named = || {
        let name = std::ffi::CString::new(NAME).unwrap();
        rustix::thread::set_name(&name).unwrap();
        while !is_over.load(Ordering::Relaxed) {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(named);
        let _over = SetOnDrop(&is_over);
        let pid = std::process::id().to_string();
        let mut run = Run::start(["trace", "rawtp:sys_enter", "-p", &pid]);
        let mut line = String::new();
        while !line.contains(ESCAPED) {
            line = run.read_line();
            assert_ne!(line, "");
            assert_harmless(&line);
        }
        run.signal(Signal::INT);
        assert_harmless(&stdout(&run.finish()));
    });
}

/// A pattern matches whatever names a file has.
#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn names_of_functions_are_escaped() {
    const FUNCTION: &str = "evil_function";
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("evil");
    let text = format!(
        "__attribute__((noinline)) int {FUNCTION}(int n) {{ return n; }} int main(void) {{ return {FUNCTION}(0); }}"
    );
    compile(&text, &["-O0"], &program);
    let name = b"evil\x1b[2J\xe2\x80\xae\nx";
    let mut bytes = std::fs::read(&program).unwrap();
    let places: Vec<_> =
        (0..bytes.len()).filter(|&at| bytes[at..].starts_with(FUNCTION.as_bytes())).collect();
    places.iter().for_each(|&at| bytes[at..at + FUNCTION.len()].copy_from_slice(name));
    std::fs::write(&program, bytes).unwrap();
    let spec = format!("uprobe:{}:evil*", program.display());
    for (args, lines) in [
        (&["trace"][..], 2),
        (&["count"], 2),
        (&["count", "-F", "jsonl"], 1),
        (&["latency", "-F", "jsonl"], 1),
        (&["stack", "-U", "-F", "folded"], 1),
    ] {
        let output = succeed(probe(args).args([&spec, "--"]).arg(&program));
        assert_harmless(&stdout(&output));
        assert_harmless(&stderr(&output));
        let printed = stdout(&output);
        assert_eq!(printed.lines().count(), lines, "{args:?}: {printed}");
        assert!(printed.contains("evil"), "{args:?}: {printed}");
    }
    for json in [&[][..], &["--json"]] {
        assert_harmless(&stdout(&succeed(probe(["list", &spec]).args(json))));
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn commands_in_errors_are_escaped() {
    let mut command = probe(["trace", EXEC, "--"]);
    command.arg(OsStr::from_bytes(b"/no/\x1b[2J\xff"));
    assert_failure(&mut command, "cannot run `/no/\\u{1b}[2J\\xff`: No such file");
}

#[test]
fn invalid_arguments_in_errors_are_escaped() {
    for (args, expected) in [
        (["trace", "a\u{1b}[2J"], "character\n  a\\u{1b}[2J\n   ^"),
        (["trace", "--\u{9b}1m"], "unexpected argument '--\\u{9b}1m'"),
        (["tr\u{202e}", "a"], "unrecognized subcommand 'tr\\u{202e}'"),
    ] {
        assert_harmless(&assert_exit(&mut probe(args), 2, expected));
    }
}

/// What `probe`, run by a shell with this before it, shows on a terminal.
fn on_terminal(before: &str, args: &str) -> String {
    let command = format!("{before}{} {args}", binary().display());
    let mut script = std::process::Command::new("script");
    stdout(&script.args(["-qec", &command, "/dev/null"]).output().unwrap())
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_bar_shows_the_progress_of_attaching_many_probes() {
    let count = "count 'tracepoint:syscalls:sys_*_g*' -d 10ms";
    let shown = on_terminal("", count);
    if shown.contains("more than this kernel can tell apart") {
        return skip("this kernel attaches too few probes for a bar");
    }
    let (before, after) = shown.split_once("COUNT TYPE").unwrap_or_else(|| panic!("{shown:?}"));
    assert!(before.contains("attaching ") && before.contains(" probes"), "{shown:?}");
    // The bar disappears before the output starts.
    assert!(before.contains("\u{1b}[2K") && !after.contains("attaching"), "{shown:?}");
    let piped = on_terminal("", &format!("{count} 2>&1 | cat"));
    assert!(piped.contains("COUNT TYPE") && !piped.contains("attaching"), "{piped:?}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_silent_trace_says_how_it_ends_at_a_terminal() {
    const HOW: &str = "probe: running until Ctrl-C";
    let on_terminal = |command: &str| on_terminal("timeout -s INT 2 ", command);
    for command in ["count rawtp:sys_enter", "stack rawtp:sys_enter", "sample"] {
        let shown = on_terminal(command);
        assert!(shown.contains(HOW) && shown.find(HOW) < shown.rfind("probe: "), "{shown}");
        let short = on_terminal(&format!("{command} -d 1ms"));
        assert!(short.contains("probe: ") && !short.contains(HOW), "{short}");
    }
    for (command, heading) in [
        (format!("trace {EXEC}"), "TIME CPU"),
        ("count rawtp:sys_enter 2>&1 | cat".into(), "COUNT"),
    ] {
        let shown = on_terminal(&command);
        assert!(shown.contains(heading) && !shown.contains(HOW), "{shown}");
    }
}
