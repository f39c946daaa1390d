//! What other tracers write, and what to write here instead.

use super::Provider;
use super::head::is_of_name;

/// Categories of tracepoints whose names resemble a provider's.
const CATEGORIES: [&str; 5] = ["syscalls", "raw_syscalls", "kprobes", "uprobes", "synthetic"];

/// Whether what looks like a provider is a category of tracepoints, as perf writes them: `syscalls:sys_enter_openat`.
pub(super) fn is_category(name: &str) -> bool {
    CATEGORIES.contains(&name)
}

/// What exists here instead of another tracer's provider.
pub(super) fn provider(name: &str) -> Option<&'static str> {
    Some(match name {
        "usdt" | "U" => {
            "there are no probes on USDT markers; probe a function of the file instead: \
             uprobe:FILE:FUNCTION (`probe list 'uprobe:FILE:*'` lists them)"
        }
        "profile" | "p" => {
            "a probe is an event, not a timer; `probe sample -a -F 99` samples stacks at a fixed rate"
        }
        "interval" | "i" => {
            "a probe is an event, not a timer; `probe count` prints its counts at the end, after -d 10s or Ctrl-C"
        }
        "software" | "s" | "hardware" | "h" => {
            "perf events have a command of their own: `probe sample -e page-faults -c 100`; in calls, \
             --counter reports them; `probe sample --help` names some"
        }
        "watchpoint" | "w" | "asyncwatchpoint" | "aw" => "there are no probes on memory accesses",
        "iter" | "it" => "there are no iterators; `probe list` lists what can be probed",
        "begin" | "end" | "BEGIN" | "END" | "self" | "bench" | "test" => {
            "there are no scripts, so nothing runs at the beginning or at the end; name a probe"
        }
        "kretsyscall" => {
            "a system call's result is in the event of its call: `probe trace --ret ksyscall:NAME`"
        }
        "lsm" => "there are no probes on LSM hooks; probe the function: security_NAME",
        _ => return None,
    })
}

/// What to list instead of a plain name that is a kind of events, as `perf list` and `bpftrace -l` take it.
pub(crate) fn kind(name: &str) -> Option<String> {
    if let Ok(Some(provider)) = Provider::find(name) {
        let all = if provider.is_in_file() { "FILE:*" } else { "*" };
        let all = format!("{}:{all}", provider.name());
        return Some(format!("this is a kind of probe; `probe list '{all}'` lists them"));
    }
    let is_of_perf = ["hw", "sw", "cache", "hwcache", "pmu", "event", "metric"].contains(&name);
    provider(if is_of_perf { "software" } else { name }).map(str::to_owned)
}

/// What to write instead of a spec that only another tracer understands, and the position of the mistake.
pub(super) fn spec(text: &str) -> Option<(usize, &'static str)> {
    const COMMAND: &str = "this looks like a program: a command to trace goes after --, as in `probe trace PROBE -- \
                           CMD`, and a function of a program is written uprobe:FILE:FUNCTION";
    const FUNCTION: &str = "a function of a file is written uprobe:FILE:FUNCTION";
    const IN_FILE: &str = "a function of a file is written uprobe:FILE:FUNCTION, and its return uretprobe:FILE:FUNCTION";
    const IN_KERNEL: &str =
        "a function of the kernel is written kprobe:FUNCTION, and its return kretprobe:FUNCTION";
    const PRINTED: &str = "there are no format strings: write the values to print as fields, as in 'PROBE(arg0, arg1:ustr)'";
    const SECTION: &str = "a colon follows the kind of probe, as in kprobe:vfs_read and tracepoint:sched:sched_switch";
    const SCRIPT: &str = "there are no scripts: write the values to print as fields, and the condition as a \
                          predicate: 'PROBE(FIELD, FIELD:ustr)/FIELD > 0/'";
    const BRACES: &str = "a pattern has no alternatives in braces; give each probe as a separate argument, as the shell does if the \
                          braces are not in quotes";
    if text.starts_with(['/', '.', '~']) {
        return Some((0, if text.contains(':') { FUNCTION } else { COMMAND }));
    }
    if matches!(text, "BEGIN" | "END" | "begin" | "end") {
        return Some((0, provider(text)?));
    }
    // bcc's functions. bpftrace's `p` is a timer, which has a unit.
    if let Some(("p" | "r", rest)) = text.split_once(':')
        && let Some((file, _)) = rest.split_once(':')
        && !["hz", "s", "ms", "us"].contains(&file)
    {
        return Some((0, if file.is_empty() { IN_KERNEL } else { IN_FILE }));
    }
    // libbpf's sections. A function may have the name of a provider, but then a slash ends its predicate.
    if let Some((section, rest)) = text.split_once('/')
        && !rest.ends_with('/')
        && (section.len() > 2 || section == "tp")
        && let Ok(Some(_)) = Provider::find(section)
    {
        return Some((section.len(), SECTION));
    }
    // A string that is compared comes after one of a predicate's operators, or begins a comparison.
    if let Some(at) = text.find(" \"")
        && text[at + 2..].contains('%')
        && !text[..at].trim_end().ends_with(['=', '~', '/', '&', '|', '(', '!'])
    {
        return Some((at + 1, PRINTED));
    }
    let at = first_brace(text)?;
    Some((at, if has_alternatives(text, at) { BRACES } else { SCRIPT }))
}

/// Whether the brace at this position begins alternatives, as in `sys_enter_{read,write}`.
fn has_alternatives(text: &str, at: usize) -> bool {
    let is_of_pattern = |char| is_of_name(char) || matches!(char, '*' | '?');
    let begins_name = text[..at].ends_with(|char| char == ':' || is_of_pattern(char));
    let inside = text[at + 1..].split_once('}').map(|(inside, _)| inside);
    let are_names = |inside: &str| {
        inside.contains(',') && inside.split(',').all(|one| one.chars().all(is_of_pattern))
    };
    begins_name && inside.is_some_and(are_names)
}

/// The position of the first brace that is not in a string. `None` if a quote or an escaped character comes before: that is
/// not a script's.
fn first_brace(text: &str) -> Option<usize> {
    let mut bytes = text.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'{' => return Some(at),
            b'\'' | b'\\' => return None,
            b'"' => loop {
                match bytes.next()?.1 {
                    b'"' => break,
                    b'\\' => _ = bytes.next(),
                    _ => {}
                }
            },
            _ => {}
        }
    }
    None
}

/// What to write instead of a function of fields: `str(filename)`.
pub(super) fn function(name: &str) -> String {
    let instead = match name {
        "str" | "kstr" => {
            "a string is written PATH:ustr in the memory of a process, PATH:str in the kernel's"
        }
        "buf" => "bytes are written PATH:bytes[N]",
        "ksym" | "usym" | "kaddr" | "uaddr" => {
            "an address in the kernel is shown as its symbol by PATH:sym"
        }
        "count" | "sum" | "avg" | "min" | "max" | "hist" | "lhist" | "stats" => {
            "`probe count` counts hits, and `probe latency` prints a histogram of durations"
        }
        "strncmp" | "strcmp" | "strcontains" | "strstr" | "has_prefix" | "glob" => {
            "a string is compared as in FIELD == \"/etc\", and with a pattern as in FIELD ~ \"/etc*\""
        }
        "printf" | "print" => "the fields in parentheses are printed",
        _ => "a field is a path, like file->f_path.dentry->d_name.name:str",
    };
    format!("{name}(...) is not a field, and there are no functions; {instead}")
}

/// What to write instead of another tracer's variable, as the end of a message. Empty if it is none.
pub(crate) fn variable(name: &str) -> &'static str {
    match name {
        "nsecs" | "elapsed" | "timestamp" => "; every event has its time without a field",
        "curtask" => "; pid, tid, comm and uid describe the task",
        "gid" | "username" | "cgroup" | "cgid" | "numaid" | "rand" | "jiffies" => {
            "; the built-in fields are pid, tid, uid, cpu, comm, kstack and ustack"
        }
        "func" | "probe" => "; every event has the name of its probe without a field",
        "stack" => "; stacks are kstack and ustack",
        "ret" | "retcode" => "; a function's result is retval",
        "errno" => {
            "; with --ret, a call that fails has a negative retval, as in /retval == -ENOENT/"
        }
        "counter" => "; with --ret, --counter EVENT counts an event during each call",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use crate::spec::ProbeSpec;

    #[test]
    fn what_other_tracers_write_is_answered() {
        for (spec, answer) in [
            ("usdt:./x:y", "uprobe:FILE:FUNCTION"),
            ("profile:hz:99", "probe sample -a -F 99"),
            ("interval:s:1", "probe count"),
            ("software:page-faults:1", "probe sample -e"),
            ("hardware:cache-misses:1000", "probe sample -e"),
            ("BEGIN", "there are no scripts"),
            ("END", "there are no scripts"),
            ("/bin/ls", "goes after --"),
            ("./a.out", "goes after --"),
            ("./a.out:main", "uprobe:FILE:FUNCTION"),
            ("kprobe:vfs_read { @[comm] = count(); }", "there are no scripts"),
            ("{", "there are no scripts"),
            ("f{printf(\"%d, %d\", pid, tid)}", "there are no scripts"),
            ("tracepoint:syscalls:sys_enter_{read,write}", "as a separate argument"),
            ("kprobe:{vfs_*,do_sys_openat2}/pid == 1/", "as a separate argument"),
            ("p::vfs_read", "kprobe:FUNCTION"),
            ("r::vfs_read \"%d\", retval", "kretprobe:FUNCTION"),
            ("p:c:open \"%s\", arg1", "uprobe:FILE:FUNCTION"),
            ("p:hz:99", "probe sample -a -F 99"),
            ("do_sys_openat2 \"%s\", arg2", "there are no format strings"),
            ("fentry/vfs_read", "as in kprobe:vfs_read"),
            ("tp/sched/sched_switch", "tracepoint:sched:sched_switch"),
            ("vfs_read,vfs_write", "a separate argument"),
            ("sched:sched_switch,sched:sched_waking", "a separate argument"),
            ("raw_tracepoint:sched:sched_switch", "rawtp:NAME, without a category"),
            ("f/strncmp(comm, \"a\", 1) == 0/", "FIELD ~ \"/etc*\""),
            ("vfs_read(str(buf))", "PATH:ustr"),
            ("vfs_open/str(path->dentry->d_name.name) == \"x\"/", "PATH:str"),
        ] {
            let error = spec.parse::<ProbeSpec>().unwrap_err().to_string();
            let (first, _) = error.split_once('\n').unwrap();
            assert!(first.contains(answer), "{spec}: {error}");
        }
    }

    #[test]
    fn kinds_of_events_are_not_names() {
        for (name, answer) in [
            ("tracepoint", Some("probe list 'tracepoint:*'")),
            ("u", Some("probe list 'uprobe:FILE:*'")),
            ("sw", Some("probe sample --help")),
            ("usdt", Some("uprobe:FILE:FUNCTION")),
            ("vfs_read", None),
        ] {
            let kind = super::kind(name);
            assert_eq!(kind.is_some(), answer.is_some(), "{name}");
            assert!(answer.is_none_or(|answer| kind.unwrap().contains(answer)), "{name}");
        }
    }

    #[test]
    fn names_of_perf_and_bpftrace_are_accepted() {
        for (spec, meant) in [
            ("raw_tracepoint:sys_enter", "rawtp:sys_enter"),
            ("rawtracepoint:sys_enter", "rawtp:sys_enter"),
            ("tp:sched:sched_switch", "tracepoint:sched:sched_switch"),
            ("tp_btf:sched_switch", "rawtp:sched_switch"),
            ("kfunc:vfs_read", "fentry:vfs_read"),
            ("f/comm == \"{\"/", "kprobe:f/comm == \"{\"/"),
            ("f/comm ~ \"%s\"/", "kprobe:f/comm ~ \"%s\"/"),
            ("f/arg0:u8 == '{'/", "kprobe:f/arg0:u8 == 123/"),
            ("f/ \"%\" == comm/", "kprobe:f/comm == \"%\"/"),
            ("f/pid > 1 && \"%\" == comm/", "kprobe:f/pid > 1 && comm == \"%\"/"),
        ] {
            assert_eq!(spec.parse::<ProbeSpec>().unwrap().to_string(), meant);
        }
        for (spec, names) in [
            ("syscalls:sys_enter_openat", Some(("syscalls", "sys_enter_openat"))),
            ("sched:sched_*(next_pid)/next_pid > 0/", Some(("sched", "sched_*"))),
            ("kprobe:sched:sched_switch", None),
            ("vfs_read", None),
        ] {
            let parsed: ProbeSpec = spec.parse().unwrap();
            assert_eq!(parsed.module_or_category(), names);
            let tracepoint = parsed.as_tracepoint().map(|spec| spec.to_string());
            assert_eq!(tracepoint, names.map(|_| format!("tracepoint:{spec}")));
        }
    }
}
