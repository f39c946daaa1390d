//! Finding probes: `probe list`, `probe info` and shell completion.

use crate::probe::commands::writes;
use crate::probe::{
    EXEC, assert_exit, assert_failure, binary, copy_for_everybody, counts, events, has_kprobes,
    printed, probe, stderr, stdout, succeed,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::Command;

fn parsed(args: &[&str]) -> Value {
    serde_json::from_str(&printed(args)).unwrap()
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn listed_probes_can_be_traced() {
    let tracepoints = printed(["list", "tracepoint:sched:sched_process_e*"]);
    let expected = ["exec", "exit"].map(|one| format!("tracepoint:sched:sched_process_{one}"));
    assert_eq!(tracepoints.lines().collect::<Vec<_>>(), expected);
    let raw = printed(["list", "rawtp:sys_e*"]);
    assert_eq!(raw, "rawtp:sys_enter\nrawtp:sys_exit\n");
    let all = printed(["list", "sched_process_e*"]);
    let mut probes: Vec<_> = all.lines().filter(|line| line.contains("exec")).collect();
    assert!(probes.contains(&EXEC), "{all}");
    assert!(probes.contains(&"rawtp:sched_process_exec"), "{all}");
    probes.retain(|probe| !probe.starts_with("sched"));
    assert_eq!(events(&probes, ["true"]).len(), probes.len());
    let listed = parsed(&["list", "--json", "rawtp:sys_enter"]);
    assert_eq!(listed["probes"][0], json!({"type": "rawtp", "probe": "sys_enter"}));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn what_cannot_be_probed_is_named() {
    let assert_failure = |name, expected| assert_failure(&mut probe(["list", name]), expected);
    for (kind, expected) in [
        ("tracepoint", "`probe list 'tracepoint:*'` lists them\n  tracepoint\n  ^"),
        ("sw", "perf events have a command of their own: `probe sample -e page-faults"),
    ] {
        assert_exit(&mut probe(["list", kind]), 1, expected);
    }
    assert_failure(
        "tracepoint:sched:sched_process_exce",
        "the kernel has no tracepoint of this name; did you mean `sched:sched_process_exec`",
    );
    assert_failure(
        "rawtp:sys_entr",
        "the kernel has no tracepoint of this name; did you mean `sys_enter`",
    );
    if !has_kprobes() {
        assert_failure("vfs_read", "this kernel has no kprobes");
        let output = probe(["list", "sched_process_e*"]).output().unwrap();
        let note = "probe: functions are not listed: this kernel has no kprobes\n";
        assert_eq!(stderr(&output), note);
    }
    let nothing = probe(["list", "tracepoint:no_such:*"]).output().unwrap();
    assert_eq!((nothing.status.code(), stdout(&nothing)), (Some(1), String::new()));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_function_has_a_signature_fields_and_members() {
    let info = printed(["info", "vfs_read"]);
    let (first, fields) = info.split_once('\n').unwrap();
    let signature = "vfs_read(file: struct file *, buf: char * [user], count: size_t, pos: loff_t *) -> ssize_t";
    assert_eq!(first, signature);
    let fields: Vec<Vec<_>> =
        fields.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(fields[0], ["file", "pointer", "struct", "file", "*"]);
    // It is not filled yet.
    assert_eq!(fields[1][..2], ["buf", "pointer"]);
    assert_eq!(fields[2], ["count", "unsigned", "size_t"]);
    assert_eq!(fields.len(), 4);
    let returns = printed(["info", "kretprobe:vfs_read"]);
    assert!(returns.lines().nth(1).unwrap().contains("retval  result"), "{returns}");

    let wide = printed(["info", "do_mmap"]);
    let left_out = "is argument 7 of do_mmap: only the first 6 are in registers";
    let mut lines = wide.lines().filter(|line| line.starts_with("  not shown: "));
    assert!(lines.any(|line| line.contains(left_out)), "{wide}");

    let members = parsed(&["info", "vfs_read", "--members", "--json"]);
    let of_file = members["fields"][0]["members"].as_array().unwrap();
    let path = json!({"path": "file->f_path", "type": "struct path"});
    assert!(of_file.contains(&path), "{of_file:#?}");
    // A listed path is valid in a spec, and can be explored further.
    let next = parsed(&["info", "vfs_read(file->f_path)", "-m", "--json"]);
    let dentry = json!({"path": "file.f_path.dentry", "type": "struct dentry *"});
    assert!(next["fields"][0]["members"].as_array().unwrap().contains(&dentry), "{next:#}");
    assert_eq!(next["fields"][0]["shape"], Value::Null);
    let expected = "struct file has no member f_pth; did you mean `f_path`";
    assert_exit(&mut probe(["info", "vfs_read(file->f_pth)"]), 1, expected);
    assert_failure(&mut probe(["info", "vfs_raed"]), "the kernel has no function of this name");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_tracepoint_has_the_fields_of_its_format() {
    let info = printed(["info", EXEC]);
    let first = info.lines().next().unwrap();
    let signature = "sched:sched_process_exec(filename: char[], pid: pid_t, old_pid: pid_t)";
    assert_eq!(first, signature);
    let mut fields = info.lines().map(str::split_whitespace);
    assert!(fields.any(|field| field.eq(["filename", "text", "char[]"])), "{info}");
    let raw = printed(["info", "rawtp:sched_process_exit"]);
    assert!(raw.lines().next().unwrap().contains("struct task_struct *"), "{raw}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn information_requires_no_privilege() {
    for (args, expected) in [
        (["info", "vfs_read"], "vfs_read(file: "),
        (["list", "rawtp:sys_enter"], "rawtp:sys_enter\n"),
    ] {
        let output = Command::new(copy_for_everybody()).args(args).uid(65534).output().unwrap();
        assert!(stdout(&output).starts_with(expected), "{}", stderr(&output));
    }
}

/// Bash's completions after `probe trace`, for a word split at its colons.
fn offered(word: &str) -> Vec<String> {
    offered_after("trace", word)
}

/// Bash's completions after these words.
fn offered_after(words: &str, word: &str) -> Vec<String> {
    let directory = binary().parent().unwrap().display().to_string();
    let script = r#"
        PATH=$1:$PATH
        source <(probe completions bash)
        COMP_LINE="probe $2 $3" COMP_POINT=${#COMP_LINE}
        COMP_WORDS=(probe $2)
        rest=$3
        while [[ $rest == *:* ]]; do
            COMP_WORDS+=("${rest%%:*}" :)
            rest=${rest#*:}
        done
        COMP_WORDS+=("$rest")
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMP_TYPE=9
        function=$(complete -p probe | sed 's/.*-F \([^ ]*\).*/\1/')
        $function probe "$rest" "${2##* }" 2>/dev/null
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    let arguments = ["-c", script, "bash", &directory, words, word];
    let output = succeed(Command::new("bash").args(arguments));
    stdout(&output).lines().map(str::to_owned).collect()
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn names_of_events_are_completed() {
    let of_sample = |word| offered_after("sample -e", word);
    assert_eq!(of_sample("page-f"), ["page-faults"]);
    assert_eq!(of_sample("LLC-load"), ["LLC-load-misses", "LLC-loads"]);
    assert_eq!(of_sample("cycles,minor"), ["cycles,minor-faults"]);
    assert_eq!(of_sample("sched:sched_process_ex"), ["sched_process_exec", "sched_process_exit"]);
    assert!(of_sample("soft").contains(&"software/".to_owned()));
    assert_eq!(offered_after("trace --ret --counter", "cpu-m"), ["cpu-migrations"]);
    assert_eq!(offered_after("trace --ret --counter", "cs,cpu-m"), ["cs,cpu-migrations"]);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn names_of_probes_are_completed() {
    // Completions contain only the part after the last colon, which bash replaces.
    let both = ["sched_process_exec", "sched_process_exit"];
    assert_eq!(offered("tracepoint:sched:sched_process_ex"), both);
    assert_eq!(offered("rawtp:sys_en"), ["sys_enter"]);
    assert_eq!(offered("tracepoint:syscal"), ["syscalls:"]);
    // Short provider names work too.
    assert_eq!(offered("t:sched:sched_process_ex"), both);
    assert_eq!(offered("u:libc:secure_gete"), ["secure_getenv"]);
    assert_eq!(offered("tracep")[0], "tracepoint:");
    assert_eq!(offered("ksysc"), ["ksyscall:"]);
    if has_kprobes() {
        assert!(offered("vfs_rea").contains(&"vfs_read".to_owned()));
        assert!(offered("kr:vfs_rea").contains(&"vfs_read".to_owned()));
        assert_eq!(offered("ksyscall:getpgi"), ["getpgid"]);
    }
    assert_eq!(offered("tracepoint:no_such:"), [""]);
    for shell in ["zsh", "fish"] {
        assert!(printed(["completions", shell]).contains("COMPLETE="), "{shell}");
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_pattern_of_raw_tracepoints_stands_for_each_match() {
    // System call 1 is write(2).
    let spec = "rawtp:sys_ente?/arg1:s64 == 1 && comm == \"dd\"/";
    let (counts, printed) = counts([spec], writes(500));
    let expected = BTreeMap::from([("sys_enter".to_owned(), 500)]);
    assert_eq!(counts, BTreeMap::from([("rawtp".to_owned(), expected)]), "{printed}");
}
