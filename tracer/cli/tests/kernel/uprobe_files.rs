//! Functions in the files that a process runs: where its root directory or its mounts are others, where the file was
//! replaced, and where it is a Go program. Another process reads these files.

use crate::probe::chain::Chain;
use crate::probe::commands::own;
use crate::probe::strace::Calls;
use crate::probe::{Run, assert_exit, compile, json_line, probe, stderr, stdout, succeed};
use crate::uprobe_fixtures::{TRIPLE, calling};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The workload of `uprobe_fixtures`, which waits before it begins.
struct Waiting(Child);

impl Waiting {
    /// Starts it by a script, in which `$0` to `$2` are the executable and its arguments.
    fn start(script: &str, executable: &str) -> Self {
        let [_, _, _, _, work] = calling("wait triple 7 getenv 5");
        let mut command = Command::new("sh");
        command.args(["-c", script, executable, "--ignored", "--exact"]);
        command.args(["uprobe_fixtures::workload"]).env("PROBE_TEST_WORK", work);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "waiting\n");
        Self(child)
    }

    /// The number of hits of each function while it works, and what `probe` reports.
    fn hits(mut self, specs: &[&str]) -> (BTreeMap<String, usize>, String) {
        let pid = self.0.id().to_string();
        let args = ["trace", "-F", "jsonl", "-p", &pid];
        let run =
            Run::of(probe(args.iter().chain(specs)).stderr(Stdio::piped())).wait_for_heading();
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
        let output = run.finish();
        let mut hits = BTreeMap::<_, usize>::new();
        for event in stdout(&output).lines().map(json_line).filter(|line| line["time"].is_u64()) {
            *hits.entry(event["probe"].as_str().unwrap().to_owned()).or_default() += 1;
        }
        (hits, stderr(&output))
    }
}

fn copy(to: &Path) -> String {
    std::fs::copy(own(), to).unwrap();
    to.to_str().unwrap().to_owned()
}

/// The process that reads programs does not trust them: `probe` itself reads four bytes.
#[test]
#[ignore = "needs root and strace: cargo xtask test"]
fn programs_are_read_in_another_process() {
    let chain = Chain::compile();
    let path = chain.program.to_str().unwrap();
    let (all, main) = (format!("uprobe:{path}:*"), format!("uprobe:{path}:main"));
    let inside = format!("uprobe:{path}:main+4");
    for args in [
        &["list", &all][..],
        &["info", &main],
        &["count", "-d", "1ms", &inside],
        &["trace", "-d", "1ms", &main],
    ] {
        let calls = Calls::of("read,pread64,readv,preadv,mmap", args);
        let of_file = |lines: &[String]| -> Vec<String> {
            lines.iter().filter(|line| line.contains(&format!("<{path}>"))).cloned().collect()
        };
        let (own, others) = (of_file(&calls.own), of_file(&calls.others));
        let is_magic = |line: &String| line.contains(", \"\\177ELF\", 4, 0) ");
        assert!(!own.is_empty() && own.iter().all(is_magic), "{args:?}: {own:#?}");
        assert!(!others.is_empty(), "{args:?}");
    }
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn the_files_of_a_process_are_probed_and_not_others_of_the_same_path() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let expected = BTreeMap::from([(TRIPLE.to_owned(), 7)]);

    // Another file is mounted there.
    let (seen, mounted) = (copy(&at("program")), copy(&at("mounted")));
    let spec = |file: &str| format!("uprobe:{file}:{TRIPLE}");
    let script = format!(
        "exec unshare -m sh -c 'mount --bind {mounted} {seen} && exec \"$0\" \"$@\"' \"$0\" \"$@\""
    );
    let (hits, errors) = Waiting::start(&script, &seen).hits(&[&spec(&seen)]);
    assert_eq!(hits, expected, "{errors}");

    // The process has another root directory, and a library that is not this process's.
    let root = at("root");
    let script = format!(
        "set -e; mkdir {0}; cp --parents \"$0\" $(ldd \"$0\" | grep -o '/[^ ]*') {0}; exec chroot {0} \"$0\" \"$@\"",
        root.display()
    );
    let waiting = Waiting::start(&script, &seen);
    let (hits, errors) = waiting.hits(&[&spec(&seen), "uprobe:libc:getenv"]);
    assert_eq!(hits[TRIPLE], 7, "{errors}");
    assert!(hits["getenv"] >= 5, "{hits:?}: {errors}");
    assert!(!errors.contains("does not run code"), "{errors}");
    let waiting = Waiting::start("exec chroot $(dirname $0)/root \"$0\" \"$@\"", &seen);
    let pid = waiting.0.id().to_string();
    let expected_error = format!(
        "process {pid} has a different root directory and has mapped no code from a file called resolv;"
    );
    assert_exit(&mut probe(["count", "u:resolv:ns_name_pton", "-p", &pid]), 1, &expected_error);
    drop(waiting.hits(&[&spec(&seen)]));

    // The file was replaced, then removed.
    let waiting = Waiting::start("exec \"$0\" \"$@\"", &seen);
    let removed = Waiting::start("exec \"$0\" \"$@\"", &seen);
    std::fs::rename(&mounted, &seen).unwrap();
    let (hits, errors) = waiting.hits(&[&spec(&seen)]);
    assert_eq!(hits, expected, "{errors}");
    std::fs::remove_file(&seen).unwrap();
    let (hits, errors) = removed.hits(&[&spec(&seen)]);
    assert_eq!(hits, expected, "{errors}");
}

/// What it had mapped is read before the trace begins.
#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn a_process_that_ran_before_the_trace_has_names_after_its_end() {
    let own = own();
    let mut waiting = Waiting::start("exec \"$0\" \"$@\"", &own);
    let (pid, spec) = (waiting.0.id().to_string(), format!("uprobe:{own}:{TRIPLE}(ustack)"));
    let run = Run::start(["trace", &spec, "-F", "jsonl", "-p", &pid]);
    // It reads nothing while the process runs.
    run.signal(Signal::STOP);
    drop(waiting.0.stdin.take());
    assert!(waiting.0.wait().unwrap().success());
    run.signal(Signal::CONT);
    let output = run.finish();
    let lines = stdout(&output);
    let events: Vec<_> = lines.lines().map(json_line).filter(|one| one["time"].is_u64()).collect();
    assert_eq!(events.len(), 7, "{}", stderr(&output));
    for event in events {
        let stack = event["args"]["ustack"].as_array().unwrap();
        assert!(stack.iter().any(|frame| frame["symbol"] == TRIPLE), "{event}");
    }
}

/// A program at a fixed address, far below those of others, like those of Go.
#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn the_file_of_a_program_at_a_low_address_is_found() {
    const SOURCE: &str = "#include <stdio.h>\nvoid work(void) { __asm__ volatile(\"\"); }\n\
        int main(void) { while (getchar() != EOF) work(); return 0; }\n";
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("low");
    compile(SOURCE, &["-O1", "-fno-inline", "-no-pie", "-fno-pie"], &program);
    let mut low = Command::new(&program);
    let mut low = low.stdin(Stdio::piped()).spawn().unwrap();
    std::fs::remove_file(&program).unwrap();
    let (pid, mut input) = (low.id().to_string(), low.stdin.take().unwrap());
    // By the path that it had, and by its name.
    for file in [program.to_str().unwrap(), "low"] {
        let spec = format!("uprobe:{file}:work");
        let run = Run::start(["trace", &spec, "-p", &pid, "-M", "3", "-F", "jsonl"]);
        input.write_all(b"123").unwrap();
        let output = run.finish();
        let printed = stdout(&output);
        assert_eq!(printed.matches("\"type\":\"uprobe\"").count(), 3, "{}", stderr(&output));
        assert!(!stderr(&output).contains("does not run code"), "{}", stderr(&output));
    }
    drop(input);
    low.wait().unwrap();
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn several_processes_have_one_file() {
    let dir = tempfile::tempdir().unwrap();
    let copies = ["one", "other"].map(|folder| {
        std::fs::create_dir(dir.path().join(folder)).unwrap();
        copy(&dir.path().join(folder).join("work"))
    });
    let [one, same, other] = [&copies[0], &copies[0], &copies[1]]
        .map(|program| Waiting::start("exec \"$0\" \"$@\"", program));
    let pids = |one: &Waiting, other: &Waiting| format!("{},{}", one.0.id(), other.0.id());
    let spec = format!("u:work:{TRIPLE}");
    let expected = "have different files called work; trace them apart";
    assert_exit(&mut probe(["count", &spec, "-p", &pids(&one, &other)]), 1, expected);
    // Both run the first file, which is not in any path of libraries.
    succeed(&mut probe(["count", &spec, "-p", &pids(&one, &same), "-d", "1ms"]));
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn a_file_that_the_process_does_not_run_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    let other = copy(&dir.path().join("other"));
    let waiting = Waiting::start("exec \"$0\" \"$@\"", &own());
    let (hits, errors) = waiting.hits(&[&format!("uprobe:{other}:{TRIPLE}")]);
    assert!(hits.is_empty(), "{hits:?}");
    let expected = format!("{other}: process ");
    assert!(
        errors.contains(&expected) && errors.contains(" does not run code of this file now"),
        "{errors}"
    );
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn returns_of_go_functions_are_probed_only_on_request() {
    let dir = tempfile::tempdir().unwrap();
    let program = copy(&dir.path().join("go"));
    // A program is of Go if it has this section.
    let mut bytes = std::fs::read(&program).unwrap();
    let (from, to) = (b"\0.note.gnu.build-id\0", b"\0.note.go.buildid\0\0\0");
    let at = bytes.windows(from.len()).position(|window| window == from).unwrap();
    bytes[at..at + to.len()].copy_from_slice(to);
    std::fs::write(&program, bytes).unwrap();

    let spec = |provider: &str| format!("{provider}:{program}:{TRIPLE}");
    let expected =
        format!("{program} is a Go program, and a probe on the return of a function crashes it");
    for args in [
        &["count", &spec("uretprobe")][..],
        &["trace", "--ret", &spec("uprobe")],
        &["latency", &spec("uprobe")],
        &["count", &format!("uretprobe:{program}:uprobe_fixture_*")],
    ] {
        assert_exit(probe(args).args(["-d", "1ms"]), 1, &expected);
    }
    let forced = ["count", "--unsafe-returns", &spec("uretprobe"), &spec("uprobe"), "--", &program];
    let work = ["--ignored", "--exact", "uprobe_fixtures::workload"];
    let output = succeed(probe(forced).args(work).env("PROBE_TEST_WORK", "triple 9"));
    assert!(stderr(&output).contains("18 hits of 2 of 2 probes"), "{}", stderr(&output));
}
