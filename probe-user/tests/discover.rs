//! How one finds what to probe: `probe list`, `probe info`, and completions.

mod probe;

use probe::{assert_failure, probe, stderr, stdout};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

fn has_kprobes() -> bool {
    Path::new("/sys/bus/event_source/devices/kprobe/type").exists()
}

fn said(args: &[&str]) -> String {
    let output = probe(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    stdout(&output)
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&said(args)).unwrap()
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn what_is_listed_can_be_traced() {
    let tracepoints = said(&["list", "tracepoint:sched:sched_process_e*"]);
    let expected = ["exec", "exit"].map(|one| format!("tracepoint:sched:sched_process_{one}"));
    assert_eq!(tracepoints.lines().collect::<Vec<_>>(), expected);
    let raw = said(&["list", "rawtp:sys_e*"]);
    assert_eq!(raw, "rawtp:sys_enter\nrawtp:sys_exit\n");
    let all = said(&["list", "sched_process_e*"]);
    let mut probes: Vec<_> = all.lines().filter(|line| line.contains("exec")).collect();
    assert!(probes.contains(&"tracepoint:sched:sched_process_exec"), "{all}");
    assert!(probes.contains(&"rawtp:sched_process_exec"), "{all}");
    probes.retain(|probe| !probe.starts_with("sched"));
    let output =
        probe(["trace", "-F", "jsonl"]).args(&probes).args(["--", "true"]).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(probe::json_lines(&output).len(), probes.len());
    let listed = json(&["list", "--json", "rawtp:sys_enter"]);
    assert_eq!(listed["probes"][0], serde_json::json!({"type": "rawtp", "probe": "sys_enter"}));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn what_cannot_be_probed_is_told_by_name() {
    assert_failure(
        &mut probe(["list", "tracepoint:sched:sched_process_exce"]),
        "the kernel has no tracepoint of this name; there is sched:sched_process_exec",
    );
    assert_failure(
        &mut probe(["list", "rawtp:sys_entr"]),
        "the kernel has no tracepoint of this name; there is sys_enter",
    );
    if has_kprobes() {
        assert_failure(&mut probe(["list", "vfs_raed"]), "the kernel has no function of this name");
        let listed = said(&["list", "vfs_rea*"]);
        assert!(listed.lines().any(|line| line == "vfs_read"), "{listed}");
        assert_eq!(said(&["list", "kretprobe:vfs_read"]), "kretprobe:vfs_read\n");
        assert_eq!(said(&["list", "ksyscall:openat*"]), "ksyscall:openat\nksyscall:openat2\n");
        let told = "the kernel has no system call of this name";
        assert_failure(&mut probe(["list", "ksyscall:opeat"]), told);
        let blacklist = std::fs::read_to_string("/sys/kernel/debug/kprobes/blacklist");
        let blacklist = blacklist.unwrap_or_default();
        if let Some(name) =
            blacklist.lines().filter_map(|line| line.split_whitespace().nth(1)).next()
        {
            assert_failure(
                &mut probe(["list", &format!("kprobe:{name}")]),
                "the kernel does not allow probes",
            );
        }
    } else {
        assert_failure(&mut probe(["list", "vfs_read"]), "this kernel has no kprobes");
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
    let info = said(&["info", "vfs_read"]);
    let mut lines = info.lines();
    assert_eq!(
        lines.next(),
        Some(
            "vfs_read(file: struct file *, buf: char * [user], count: size_t, pos: loff_t *) -> ssize_t"
        )
    );
    let fields: Vec<Vec<_>> = lines.map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(fields[0], ["file", "pointer", "struct", "file", "*"]);
    assert_eq!(fields[1][..2], ["buf", "text"]);
    assert_eq!(fields[2], ["count", "unsigned", "size_t"]);
    assert_eq!(fields.len(), 4);
    let returns = said(&["info", "kretprobe:vfs_read"]);
    assert!(returns.lines().nth(1).unwrap().contains("retval  result"), "{returns}");

    let members = json(&["info", "vfs_read", "--members", "--json"]);
    let of_file = members["fields"][0]["members"].as_array().unwrap();
    let path = serde_json::json!({"path": "file->f_path", "type": "struct path"});
    assert!(of_file.contains(&path), "{of_file:#?}");
    // What is listed can be written, and leads on.
    let next = json(&["info", "vfs_read(file->f_path)", "-m", "--json"]);
    let dentry = serde_json::json!({"path": "file.f_path.dentry", "type": "struct dentry *"});
    assert!(next["fields"][0]["members"].as_array().unwrap().contains(&dentry), "{next:#}");
    assert_eq!(next["fields"][0]["shape"], Value::Null);
    assert_failure_of_two_lines(
        "vfs_read(file->f_pth)",
        "struct file has no member f_pth; there is f_path",
    );
    assert_failure(&mut probe(["info", "vfs_raed"]), "the kernel has no function of this name");
}

fn assert_failure_of_two_lines(spec: &str, told: &str) {
    let output = probe(["info", spec]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains(told), "{}", stderr(&output));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_tracepoint_has_the_fields_of_its_format() {
    let info = said(&["info", "tracepoint:sched:sched_process_exec"]);
    let first = info.lines().next().unwrap();
    let signature = "sched:sched_process_exec(filename: char[], pid: pid_t, old_pid: pid_t)";
    assert_eq!(first, signature);
    assert!(
        info.lines().any(|line| line.split_whitespace().eq(["filename", "text", "char[]"])),
        "{info}"
    );
    let raw = said(&["info", "rawtp:sched_process_exit"]);
    assert!(raw.lines().next().unwrap().contains("struct task_struct *"), "{raw}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn information_takes_no_privilege() {
    use std::os::unix::process::CommandExt;
    let binary = probe::copy_for_everybody();
    let mut nobody = Command::new(binary);
    nobody.args(["info", "vfs_read"]).uid(65534);
    let output = nobody.output().unwrap();
    assert!(stdout(&output).starts_with("vfs_read(file: "), "{}", stderr(&output));
    let mut nobody = Command::new(binary);
    nobody.args(["list", "rawtp:sys_enter"]).uid(65534);
    let output = nobody.output().unwrap();
    assert_eq!(stdout(&output), "rawtp:sys_enter\n", "{}", stderr(&output));
}

/// What bash would offer behind `probe trace`, for a word that was broken at its colons.
fn offered(word: &str) -> Vec<String> {
    offered_behind("trace", word)
}

/// The same, behind these words.
fn offered_behind(words: &str, word: &str) -> Vec<String> {
    let directory = probe::binary().parent().unwrap().display().to_string();
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
    let output = Command::new("bash").args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output).lines().map(str::to_owned).collect()
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn names_of_events_are_completed() {
    let of_sample = |word| offered_behind("sample -e", word);
    assert_eq!(of_sample("page-f"), ["page-faults"]);
    assert_eq!(of_sample("LLC-load"), ["LLC-load-misses", "LLC-loads"]);
    assert_eq!(of_sample("cycles,minor"), ["cycles,minor-faults"]);
    assert_eq!(of_sample("sched:sched_process_ex"), ["sched_process_exec", "sched_process_exit"]);
    assert!(of_sample("soft").contains(&"software/".to_owned()));
    assert_eq!(offered_behind("trace --ret --counter", "cpu-m"), ["cpu-migrations"]);
    assert_eq!(offered_behind("trace --ret --counter", "cs,cpu-m"), ["cs,cpu-migrations"]);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn names_of_probes_are_completed() {
    // Behind the last colon, which is what bash replaces.
    assert_eq!(
        offered("tracepoint:sched:sched_process_ex"),
        ["sched_process_exec", "sched_process_exit"]
    );
    assert_eq!(offered("rawtp:sys_en"), ["sys_enter"]);
    assert_eq!(offered("tracepoint:syscal"), ["syscalls:"]);
    // However the provider is written.
    assert_eq!(offered("t:sched:sched_process_ex"), ["sched_process_exec", "sched_process_exit"]);
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
        assert!(said(&["completions", shell]).contains("COMPLETE="), "{shell}");
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_pattern_of_raw_tracepoints_is_each_that_matches() {
    let mut run =
        probe(["count", "-F", "jsonl", "rawtp:sys_ente?/arg1:s64 == 1 && comm == \"dd\"/", "--"]);
    let dd = ["dd", "status=none", "if=/dev/zero", "of=/dev/null", "bs=1", "count=500"];
    let output = run.args(dd).output().unwrap();
    // Each is a write(2).
    let expected =
        "{\"type\":\"count\",\"provider\":\"rawtp\",\"probe\":\"sys_enter\",\"count\":500}\n";
    assert_eq!(stdout(&output), expected, "{}", stderr(&output));
}
