//! Stacks of calls with a known call chain.

use crate::probe::chain::{Chain, count, functions, is_from_a_system_call, through};
use crate::probe::libraries::Libraries;
use crate::probe::{
    Run, assert_exit, compile, events, json_line, json_lines, ledger, printed, probe, stderr,
    stdout, succeed,
};
use probe_testing::version::kernel;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::process::{Command, Stdio};

const GETPGID: &str = "tracepoint:syscalls:sys_enter_getpgid/pid == -7/";

/// By time: those of several CPUs are printed in any order.
fn in_order(mut events: Vec<Value>) -> Vec<Value> {
    events.sort_by_key(|event| event["time"].as_u64());
    events
}

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

/// They receive the requests to look names up. One that ends is replaced.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn the_processes_that_read_symbols_are_not_traced() {
    const RECVMSG: &str = "tracepoint:syscalls:sys_enter_recvmsg";
    let child_of = |pid: u32| -> u32 {
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
        children.split_ascii_whitespace().next_back().unwrap().parse().unwrap()
    };
    let mut run = Run::start(["trace", "-a", "-U", "-F", "jsonl", GETPGID, RECVMSG]);
    let keeper = child_of(run.child.id());
    let mut others = Vec::new();
    // No file is offered again that a reader could not read, so none may get the inode of another one.
    let mut chains = (0..3).map(|_| Chain::compile()).collect::<Vec<_>>().into_iter();
    let mut hit_of_a_new_program = |run: &mut Run| {
        let chain = chains.next().unwrap();
        succeed(Command::new(&chain.program).args(&chain.command(1, 0)[1..]));
        loop {
            let line = run.read_line();
            assert_ne!(line, "");
            if line.contains("getpgid") {
                return line;
            }
            others.push(json_line(&line));
        }
    };
    assert!(hit_of_a_new_program(&mut run).contains("innermost"));
    let first = child_of(keeper);
    kill_process(Pid::from_raw(first.cast_signed()).unwrap(), Signal::KILL).unwrap();
    assert!(!hit_of_a_new_program(&mut run).contains("innermost"));
    assert!(hit_of_a_new_program(&mut run).contains("innermost"));
    let second = child_of(keeper);
    assert_ne!(first, second);
    run.signal(Signal::INT);
    let output = run.finish();
    others.extend(stdout(&output).lines().map(json_line));
    let of =
        |pid: u32| others.iter().filter(|event| event["pid"].as_u64() == Some(pid.into())).count();
    assert_eq!((of(keeper), of(first)), (0, 0), "{others:#?}");
    // The second one may wait for its first request before the programs know it, and then for others. Before 5.19, a thread
    // without privileges cannot tell the programs that there is another process.
    assert!(of(second) <= 1 || kernel() < (5, 19), "{others:#?}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_program_has_no_names_of_the_next_one_in_its_process() {
    let chain = Chain::compile();
    let dir = chain.program.parent().unwrap();
    std::fs::create_dir(dir.join("next")).unwrap();
    // Another program with the same addresses, and perhaps the same name. Names of the first one are looked up before or
    // after that is executed.
    for (name, seconds) in [("other", "0"), ("next/chain", "0"), ("next/chain", "1")] {
        let other = dir.join(name);
        std::fs::copy(&chain.program, &other).unwrap();
        let mut command = chain.command(3, 0).to_vec();
        command.extend([seconds.to_owned(), other.to_str().unwrap().to_owned()]);
        let events = in_order(events(["-U", GETPGID], command));
        let modules = events.iter().map(|event| event["args"]["ustack"][0]["module"].as_str());
        let programs = [&chain.program, &chain.program, &chain.program, &other];
        assert!(modules.eq(programs.map(|path| path.to_str())), "{events:#?}");
    }
}

/// At the entry of a function, there is no frame of it yet. The functions begin with different instructions.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn the_caller_of_a_probed_function_is_in_its_stack() {
    let chain = Chain::compile();
    let program = chain.program.display();
    for (function, callers) in [
        ("innermost", &[&["left", "main"][..], &["left", "main"], &["right", "main"]][..]),
        ("left", &[&["main"]]),
        ("frameless", &[&["main"]]),
    ] {
        for args in [&[][..], &["--ret"]] {
            let spec = format!("u:{program}:{function}(ustack)");
            let events = in_order(chain.trace(&[args, &[&spec]].concat(), 2, 1));
            assert_eq!(events.len(), callers.len(), "{events:#?}");
            for (event, &callers) in events.iter().zip(callers) {
                let stack = functions(event, "ustack");
                assert!(stack.starts_with(&[&[function], callers].concat()), "{args:?}: {event}");
                assert_eq!(stack.iter().filter(|name| **name == "main").count(), 1, "{event}");
            }
        }
    }
}

/// A program is often built in place of its previous version, and may have ended when its functions are looked up.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_program_has_its_own_names_after_a_change_of_its_file() {
    let chain = Chain::compile();
    let (old, new) = (chain.program.with_extension("old"), chain.program.with_extension("new"));
    fs::copy(&chain.program, &old).unwrap();
    let renamed = ["--redefine-sym", "innermost=changed"];
    succeed(Command::new("objcopy").args(renamed).args([&old, &new]));
    let inode = || std::os::unix::fs::MetadataExt::ino(&chain.program.metadata().unwrap());
    let mut run = Run::start(["trace", "-a", "-U", "-F", "jsonl", GETPGID]);
    let before = inode();
    for (version, name) in [(&old, "innermost"), (&new, "changed")].repeat(5) {
        fs::copy(version, &chain.program).unwrap();
        succeed(Command::new(&chain.program).args(&chain.command(1, 0)[1..]));
        let event = json_line(&run.read_line());
        assert_eq!(functions(&event, "ustack")[0], name, "{event}");
    }
    assert_eq!(inode(), before);
    run.signal(Signal::INT);
    run.finish();
}

#[cfg(target_arch = "x86_64")]
const GENERATED: &str = r#"
#include <string.h>
#include <sys/mman.h>
int main(void) {
    /* mov $121, %eax; mov $-7, %rdi; syscall; ret */
    char code[] = "\xb8\x79\0\0\0\x48\xc7\xc7\xf9\xff\xff\xff\x0f\x05\xc3";
    void *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int n = 0; n < 20; n++) {
        mprotect(page, 4096, PROT_READ | PROT_WRITE);
        memcpy(page, code, sizeof code);
        mprotect(page, 4096, PROT_READ | PROT_EXEC);
        ((void (*)(void)) page)();
    }
}
"#;

#[cfg(target_arch = "x86_64")]
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn addresses_of_code_that_was_generated_again_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("generated");
    compile(GENERATED, &[], &program);
    let output = succeed(probe(["trace", "-U", GETPGID, "--"]).arg(&program));
    let shown = stderr(&output);
    let counted = shown.lines().find_map(|line| {
        line.split_once(" user addresses have no names, because it is not known what was mapped")
    });
    let number = counted.unwrap_or_else(|| panic!("{shown}")).0.rsplit(' ').next().unwrap();
    assert!((1..=20).contains(&number.parse::<u32>().unwrap()), "{shown}");
}

const WITHOUT_MAIN_THREAD: &str = r#"
#include <pthread.h>
#include <unistd.h>
__attribute__((noinline)) void called(void) { getpgid(-7); usleep(10000); }
static void *other_thread(void *unused) { for (int n = 0; n < 6000; n++) called(); }
int main(void) {
    pthread_t thread;
    pthread_create(&thread, 0, other_thread, 0);
    pthread_exit(0);
}
"#;

/// The kernel then shows neither mappings nor a root directory for the id of the process.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_process_has_names_after_its_main_thread_has_ended() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("without-main");
    compile(WITHOUT_MAIN_THREAD, &["-O0", "-fno-omit-frame-pointer", "-pthread"], &program);
    let mut process =
        Command::new(&program).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let id = process.id().to_string();
    while fs::read(format!("/proc/{id}/maps")).is_ok_and(|maps| !maps.is_empty()) {
        std::thread::yield_now();
    }
    let trace = |args: &[&str]| {
        let mut run = probe(["trace", "-F", "jsonl", "-M", "3", "-p", &id]);
        let lines = json_lines(&succeed(run.args(args))).into_iter();
        lines.filter(|line| line["args"].is_object()).collect::<Vec<_>>()
    };
    let stacks = trace(&["-U", GETPGID]);
    let called = trace(&["uprobe:without-main:called"]);
    process.kill().unwrap();
    process.wait().unwrap();
    let is_named = |event| functions(event, "ustack").contains(&"other_thread");
    assert!(stacks.len() == 3 && stacks.iter().all(is_named), "{stacks:#?}");
    assert_eq!(called.len(), 3);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn functions_have_the_names_of_the_libraries_that_were_loaded() {
    let libraries = Libraries::compile();
    let command = libraries.command(20);
    let events = in_order(events(["-U", GETPGID], &command));
    let names: Vec<_> = events.iter().map(|event| functions(event, "ustack")[0]).collect();
    assert_eq!(names, Libraries::FUNCTIONS.repeat(20));
    let assert_counted = |folded: String| {
        for name in Libraries::FUNCTIONS {
            assert_eq!(count(&folded, &format!(";main;{name} ")), 20, "{folded}");
        }
    };
    let run = |args: &[&str]| stdout(&succeed(probe(args).arg("--").args(&command)));
    assert_counted(run(&["stack", "-U", "-F", "folded", GETPGID]));
    assert_counted(run(&["sample", "-e", "syscalls:sys_enter_getpgid", "-c", "1", "-f", "folded"]));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("trace");
    let path = path.to_str().unwrap();
    run(&["record", "-U", "-o", path, GETPGID]);
    assert_counted(printed(["replay", "-F", "folded", path]));
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
