//! What users of perf, strace and bpftrace type first, and what to type here.

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::path::Path;
use std::{env, fs};

/// The commands that an answer is for.
type Commands = &'static [&'static str];

/// Answers, each for certain commands.
type Answers = &'static [(Commands, &'static str)];

const ANY: Commands = &[];

/// The commands that trace probes.
const TRACING: Commands = &["trace", "record", "count", "latency", "stack"];

const EVENT: &[&str] = &["-e", "--event", "--trace"];
const PROCESS: &[&str] = &["-p", "--pid"];

const ALL_SYSTEM_CALLS: &str = "'tracepoint:syscalls:sys_enter_*'";

/// Options of other tools: their names, and the answers to them, each for certain commands.
const OPTIONS: &[(&[&str], Answers)] = &[
    (
        &["-g", "--call-graph", "-k", "--stack-trace", "--stack", "--stacks"],
        &[
            (
                &["sample"],
                "stacks are always sampled, along frame pointers; they end at functions that were compiled without them",
            ),
            (&["stack"], "-K counts kernel stacks, and -U counts user stacks"),
            (
                &["record"],
                "-K records the kernel stack of each event, and -U its user stack; `probe sample` samples \
                 stacks, as perf record does",
            ),
            (&["trace"], "-K shows the kernel stack of each event, and -U its user stack"),
            (ANY, "`probe stack PROBE` counts stacks, and `probe sample` samples them"),
        ],
    ),
    (
        &["-c", "--summary", "--summary-only", "-S"],
        &[
            (
                &["latency"],
                "results are always summarized, and a command to trace goes after --: `probe latency PROBE -- CMD`",
            ),
            (
                ANY,
                "`probe count PROBE` counts hits, and a command to trace goes after --: `probe count PROBE -- CMD`",
            ),
        ],
    ),
    (
        &["--longer"],
        &[
            (&["latency"], "a predicate selects calls, in nanoseconds: 'PROBE/latency > 1000000/'"),
            (ANY, "`probe trace --longer DURATION PROBE` reports calls that take longer"),
        ],
    ),
    (
        &["-f"],
        &[
            (&["record"], FORKS),
            (TRACING, FORKS_OR_FORMAT),
            (&["replay"], "-F chooses the format"),
            (ANY, FORKS),
        ],
    ),
    (
        &["-F", "--freq"],
        &[(
            &["record"],
            "`probe sample -F FREQUENCY` samples, as perf record does; a recording is formatted when it is printed: \
             `probe replay -F FORMAT FILE`",
        )],
    ),
    (&["-ff", "--follow-forks", "--inherit"], &[(TRACING, FORKS)]),
    (
        &["-i"],
        &[
            (&["replay"], "the recording is named without an option: `probe replay FILE`"),
            (&["trace", "record"], FORKS),
            (ANY, ONCE),
        ],
    ),
    (&["-I", "--interval", "--interval-print"], &[(ANY, ONCE)]),
    (
        &["-o", "--output"],
        &[
            (
                &["trace"],
                "events go to standard output: redirect it, or record them with `probe record -o FILE PROBE`",
            ),
            (ANY, "the result goes to standard output: redirect it"),
        ],
    ),
    (
        &["-T", "--syscall-times", "--latency"],
        &[
            (&["trace", "record"], "--ret reports each call with its result and its latency"),
            (ANY, "`probe trace --ret PROBE` reports each call with its time, result and latency"),
        ],
    ),
    (
        &["-r", "-tt", "-ttt", "--relative-timestamps", "--timestamp"],
        &[(
            ANY,
            "every event of `probe trace` has its time; --time local|mono|delta chooses the clock",
        )],
    ),
    (
        &["-s", "--string-limit"],
        &[(&["trace", "record"], "strings need no option; up to 4,096 bytes of them are printed")],
    ),
    (
        &["-y", "--decode-fds"],
        &[(
            ANY,
            "file descriptors are printed as numbers; /proc/PID/fd has the files of a running process",
        )],
    ),
    (
        &["-P", "--trace-path"],
        &[(
            ANY,
            "a predicate selects a file: 'tracepoint:syscalls:sys_enter_openat/filename == \"/etc/hosts\"/'",
        )],
    ),
    (
        &["-l", "--list"],
        &[(ANY, "`probe list PATTERN` lists probes, and `probe info PROBE` their fields")],
    ),
    (
        &["-Z", "-z", "--failed-only", "--successful-only", "--failure"],
        &[(
            ANY,
            "a predicate selects results: --ret 'tracepoint:syscalls:sys_enter_openat/retval < 0/'",
        )],
    ),
    (
        &["--by", "--by-process", "--group-by", "--per-process", "--per-thread"],
        &[(
            TRACING,
            "`probe count` counts the hits of each probe; `probe stack -F folded PROBE` counts them for each task and stack",
        )],
    ),
    (
        &["--flamegraph", "--flame-graph", "--svg"],
        &[
            (&["sample"], "-f svg prints a flame graph"),
            (
                ANY,
                "`probe sample -f svg` prints a flame graph of samples, and `probe stack -F svg` one of hits",
            ),
        ],
    ),
    (&["--hz", "--rate"], &[(ANY, "`probe sample -F 99` takes 99 samples a second on each CPU")]),
    (
        &["-q", "--quiet"],
        &[(
            ANY,
            "the summary goes to standard error, apart from the events: `2>/dev/null` drops it",
        )],
    ),
    (&["-C", "--cpu"], &[(ANY, "a predicate selects CPUs: 'PROBE/cpu == 0/'")]),
    (&["--filter"], &[(ANY, "a condition follows the probe as its predicate: 'PROBE/FIELD > 0/'")]),
    (
        &["--json"],
        &[
            (&["sample"], "-f chooses the format: table, folded or svg"),
            (ANY, "-F jsonl prints JSON, one object per line"),
        ],
    ),
    (&["--name", "--command"], &[(TRACING, "-n NAME selects the threads of this name")]),
    (
        &["-m", "--count", "--max", "--limit", "--events"],
        &[(&["trace", "record", "replay"], "-M N ends after N events")],
    ),
    (
        &["--force"],
        &[(
            TRACING,
            "--no-limit lifts the limits of patterns, and --unsafe-returns allows probes on returns that crash programs",
        )],
    ),
    (
        &["-U", "-K", "--kernel"],
        &[(
            &["sample"],
            "samples have kernel and user stacks; -e EVENT:u samples user space only, and -e EVENT:k the kernel only",
        )],
    ),
];

const FORKS: &str =
    "descendants of a command are always traced, and those of a process with -p PID --children";

const FORKS_OR_FORMAT: &str = "descendants of a command are always traced, and those of a process with -p PID --children; -F chooses the format";

const TIMED: &str = "name a function or a system call, as in `probe latency vfs_read`, `probe latency \
                     tracepoint:syscalls:sys_enter_read` or `probe latency uprobe:libc:getaddrinfo`";

const SCRIPTS: &str = "there are no scripts: probes, their fields and conditions are the arguments, as in `probe trace \
                       'PROBE(FIELD)/FIELD > 0/'`";

const ONCE: &str = "results are printed once, at the end: after -d 1s, or Ctrl-C";

/// Commands of other tools, and the answers to them.
const COMMANDS: &[(&[&str], &str)] = &[
    (
        &["stat"],
        "`probe count PROBE` counts hits, `probe trace --ret --counter EVENT FUNCTION` counts perf events in calls",
    ),
    (&["top", "profile"], "`probe sample -a -d 10s` samples what the CPUs do"),
    (
        &["report", "script", "annotate"],
        "`probe replay FILE` prints what `probe record` has recorded",
    ),
    (
        &["probe", "buildid-list", "evlist", "tplist"],
        "`probe list PATTERN` lists probes, and `probe trace PROBE` attaches them",
    ),
    (&["strace", "ltrace", "bpftrace", "ftrace"], "`probe trace PROBE -- CMD` traces a command"),
    (&["opensnoop"], "`probe trace --ret tracepoint:syscalls:sys_enter_openat`"),
    (&["statsnoop"], "`probe trace --ret 'tracepoint:syscalls:sys_enter_*stat*'`"),
    (&["execsnoop"], "`probe trace tracepoint:sched:sched_process_exec`"),
    (&["exitsnoop"], "`probe trace tracepoint:sched:sched_process_exit`"),
    (&["killsnoop", "sigsnoop"], "`probe trace tracepoint:signal:signal_generate`"),
    (&["mountsnoop"], "`probe trace --ret 'tracepoint:syscalls:sys_enter_*mount*'`"),
    (
        &["tcpconnect", "tcpaccept", "tcplife", "tcpstates", "tcptracer"],
        "`probe trace tracepoint:sock:inet_sock_set_state`",
    ),
    (&["tcpretrans"], "`probe trace tracepoint:tcp:tcp_retransmit_skb`"),
    (&["tcpdrop"], "`probe trace -K tracepoint:skb:kfree_skb`"),
    (&["biosnoop", "biotop"], "`probe trace 'tracepoint:block:block_rq_*'`"),
    (
        &["biolatency"],
        "`probe trace 'tracepoint:block:block_rq_*'` prints each request; `probe latency` times calls of functions",
    ),
    (&["oomkill"], "`probe trace tracepoint:oom:mark_victim`"),
    (&["capable"], "`probe trace 'cap_capable(cap)'` prints each check of a capability"),
    (&["bindsnoop"], "`probe trace tracepoint:syscalls:sys_enter_bind`"),
    (&["solisten"], "`probe trace tracepoint:syscalls:sys_enter_listen`"),
    (&["setuids"], "`probe trace 'tracepoint:syscalls:sys_enter_set*uid'`"),
    (
        &["filelife"],
        "`probe trace 'tracepoint:syscalls:sys_enter_unlink*'` prints the files; how long they lived is not measured",
    ),
    (
        &["memleak"],
        "`probe stack -U uprobe:libc:malloc` counts allocations by stack; which of them are freed is not known",
    ),
    (
        &["cachestat", "cachetop"],
        "`probe count 'tracepoint:filemap:*'` counts the pages that enter and leave the page cache",
    ),
    (&["llcstat"], "`probe sample -a -e cache-misses` samples where the cache is missed"),
    (&["klockstat"], "`probe latency mutex_lock` times the calls"),
    (
        &["wakeuptime", "offwaketime"],
        "`probe stack -K tracepoint:sched:sched_waking` counts what wakes threads; how long they slept is not measured",
    ),
    (&["bashreadline"], "`probe trace 'uretprobe:/bin/bash:readline(retval:ustr)'`"),
    (&["gethostlatency"], "`probe trace --ret 'uprobe:libc:getaddrinfo(arg0:ustr, latency)'`"),
    (&["threadsnoop"], "`probe trace uprobe:libc:pthread_create`"),
    (&["sslsniff"], "`probe trace 'uprobe:libssl:SSL_write(arg1:bytes[arg2])'`"),
    (&["syncsnoop"], "`probe trace 'tracepoint:syscalls:sys_enter_*sync*'`"),
    (&["pidpersec"], "`probe count tracepoint:sched:sched_process_fork -d 1s`"),
    (
        &["softirqs", "hardirqs"],
        "`probe count 'tracepoint:irq:*'` counts them; their durations are not measured",
    ),
    (&["vfsstat", "vfscount"], "`probe count 'vfs_*'`"),
    (
        &["fileslower", "ext4slower", "xfsslower", "btrfsslower", "nfsslower", "filetop"],
        "`probe trace --longer 10ms vfs_read vfs_write` prints the slow calls",
    ),
    (
        &["tcptop"],
        "`probe trace 'tracepoint:sock:sock_*_length'` prints each transfer; their lengths are not summed",
    ),
    (&["syscount"], "`probe count 'tracepoint:syscalls:sys_enter_*'`"),
    (&["funccount"], "`probe count 'vfs_*'` counts the calls of functions"),
    (
        &["funclatency", "hist", "histogram"],
        "`probe latency FUNCTION` prints histograms of its calls",
    ),
    (&["funcslower"], "`probe trace --longer 1ms FUNCTION`"),
    (&["stackcount"], "`probe stack PROBE`"),
    (&["argdist"], "`probe trace 'PROBE(FIELD)'` prints the values; they are not counted"),
    (
        &["offcputime", "runqlat", "runqlen", "runqslower", "cpudist", "sched"],
        "`probe stack -K tracepoint:sched:sched_switch` counts where threads stop; how long they wait is not measured",
    ),
];

/// Adds to the error of a command line what its user may mean.
pub(crate) fn answer(error: &mut clap::Error, args: &[String]) {
    if error.kind() == ErrorKind::UnknownArgument {
        // It advises to pass the option to a traced command.
        error.remove(ContextKind::Suggested);
    }
    let Some(answer) = answer_to(error, args) else { return };
    for kind in
        [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedCommand]
    {
        error.remove(kind);
    }
    let tip = ContextValue::StyledStrs(vec![StyledStr::from(answer)]);
    error.insert(ContextKind::Suggested, tip);
}

fn answer_to(error: &clap::Error, args: &[String]) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let command = args.get(1).map_or("", String::as_str);
    let lacks_probe = matches!(
        error.get(ContextKind::InvalidArg),
        Some(ContextValue::Strings(missing)) if missing.iter().any(|one| one.contains("<PROBE>"))
    );
    match error.kind() {
        ErrorKind::ArgumentConflict if error.get(ContextKind::PriorArg) == error.get(ContextKind::InvalidArg) => {
            let option = text(ContextKind::InvalidArg)?;
            (option.starts_with("--pid ") || option.starts_with("--cpu "))
                .then(|| "several are separated by commas, as in 1,2".to_owned())
        }
        ErrorKind::UnknownArgument => {
            let option = text(ContextKind::InvalidArg)?;
            let begins_with_option = command.starts_with('-');
            if begins_with_option && args.iter().any(|arg| arg.contains('{')) {
                return Some(SCRIPTS.to_owned());
            }
            if EVENT.contains(&option) || begins_with_option && position(args, EVENT).is_some() {
                return Some(event(args));
            }
            if PROCESS.contains(&option) && begins_with_option {
                let process = value_of(args, PROCESS).unwrap_or("PID");
                return Some(format!("`probe trace {ALL_SYSTEM_CALLS} -p {process}`"));
            }
            let unexpected = args.iter().position(|arg| arg == option && is_program(arg));
            if let Some(at) = unexpected.or_else(|| unmarked_command(args))
                && (TRACING.contains(&command) || command == "sample")
            {
                return Some(marked(args, at));
            }
            let (_, answers) = OPTIONS.iter().find(|(names, _)| names.contains(&option))?;
            let is_meant = |for_these: Commands| for_these.is_empty() || for_these.contains(&command);
            let found = answers.iter().find(|(for_these, _)| is_meant(for_these));
            found.map(|(_, answer)| (*answer).to_owned())
        }
        ErrorKind::InvalidSubcommand => {
            let name = text(ContextKind::InvalidSubcommand)?;
            let is_named = |names: &[&str]| {
                let name = name.strip_suffix("-bpfcc").or(name.strip_suffix(".bt")).unwrap_or(name);
                names.contains(&name)
            };
            if let Some((_, answer)) = COMMANDS.iter().find(|(names, _)| is_named(names)) {
                return Some((*answer).to_owned());
            }
            if name.contains([':', '(', '*']) {
                return Some(format!("a probe follows a command: `probe trace {}`", quoted(args.get(1..)?)));
            }
            if is_program(name) {
                let traced = quoted(args.get(1..).unwrap_or_default());
                return Some(format!(
                    "a command to trace goes after --: `probe trace {ALL_SYSTEM_CALLS} -- {traced}`"
                ));
            }
            // A function of the kernel. clap may have a command with a similar name.
            (name.contains('_') && error.get(ContextKind::SuggestedSubcommand).is_none())
                .then(|| format!("a probe follows a command: `probe trace {}`", quoted(&[name.to_owned()])))
        }
        ErrorKind::MissingRequiredArgument if command == "record" && !args.iter().any(|arg| arg == "-o") => {
            Some("`probe record -o FILE PROBE` records every hit of a probe; `probe sample` samples, as perf record does".to_owned())
        }
        ErrorKind::MissingRequiredArgument if !lacks_probe => None,
        ErrorKind::MissingRequiredArgument if command == "latency" => Some(TIMED.to_owned()),
        ErrorKind::MissingRequiredArgument if args.iter().any(|arg| arg == "--") => Some(
            "name what to trace in the command: 'tracepoint:syscalls:sys_enter_*' stands for all system calls".to_owned(),
        ),
        ErrorKind::MissingRequiredArgument if TRACING.contains(&command) => Some(
            match value_of(args, PROCESS) {
                Some(process) => format!(
                    "name what to trace in the process: `probe {command} {ALL_SYSTEM_CALLS} -p {process}` selects its \
                     system calls"
                ),
                None => format!(
                    "name a probe, as in `probe {command} tracepoint:sched:sched_process_exec`; `probe list PATTERN` \
                     lists what there is"
                ),
            },
        ),
        _ => None,
    }
}

/// The answer to `-e EVENT`.
fn event(args: &[String]) -> String {
    let command = args.get(1).map(String::as_str).filter(|one| TRACING.contains(one));
    let command = command.unwrap_or("trace");
    let event = value_of(args, EVENT).unwrap_or("sched:sched_switch");
    let event = event.strip_prefix("trace=").unwrap_or(event);
    if event.contains('{') {
        return SCRIPTS.to_owned();
    }
    if command == "latency" && event.contains(':') {
        return TIMED.to_owned();
    }
    let (mut line, note) = probes_of(event);
    let at = position(args, EVENT);
    // The words behind the event.
    let rest = at.and_then(|at| args.get(at + 2..)).unwrap_or_default();
    let is_command =
        |at: &usize| rest[*at] == "--" || is_value_free(rest, *at) && is_program(&rest[*at]);
    let (options, traced) = rest.split_at((0..rest.len()).find(is_command).unwrap_or(rest.len()));
    if args.get(1).is_some_and(|first| first == command) {
        let before = at.and_then(|at| args.get(2..at)).unwrap_or_default();
        line.extend(before.iter().chain(options).cloned());
    } else if let Some(process) = value_of(args, PROCESS) {
        // The other options are those of strace or perf.
        line.extend(["-p", process].map(str::to_owned));
    }
    let traced = match traced.strip_prefix(&["--".to_owned()]).unwrap_or(traced) {
        [] => String::new(),
        traced => format!(" -- {}", quoted(traced)),
    };
    let command = match command {
        "record" if !line.iter().any(|word| word == "-o") => "record -o FILE",
        command => command,
    };
    let line = quoted(&line);
    format!("name events as probes, without an option: `probe {command} {line}{traced}`; {note}")
}

/// Whether a word is neither an option nor behind one, whose value it may be.
fn is_value_free(words: &[String], at: usize) -> bool {
    let is_option = |at: usize| words[at].starts_with('-');
    !is_option(at) && (at == 0 || !is_option(at - 1))
}

/// The arguments for a list of perf's events or of strace's system calls, and a note.
fn probes_of(events: &str) -> (Vec<String>, &'static str) {
    const CLASSES: [&str; 10] =
        ["all", "file", "process", "network", "net", "signal", "ipc", "desc", "memory", "creds"];
    const OTHERS: &str = "`probe trace --ret` adds the results of calls, and `probe sample -e EVENT` samples perf events";
    let call = |name: &str| format!("tracepoint:syscalls:sys_enter_{name}");
    let names = |list: &str| list.split(',').map(str::to_owned).collect::<Vec<_>>();
    if let Some(excluded) = events.strip_prefix('!') {
        let excluded = names(excluded);
        let options = excluded.iter().flat_map(|name| ["-x".to_owned(), format!("*_{name}")]);
        return (
            std::iter::once(call("*")).chain(options).collect(),
            "-x leaves matches of a pattern out",
        );
    }
    let events = names(events);
    if events.iter().any(|one| one.starts_with('%') || CLASSES.contains(&one.as_str())) {
        return (
            vec![call("*")],
            "system calls have no classes: name them, by patterns such as 'tracepoint:syscalls:sys_enter_*stat*'",
        );
    }
    let probe = |event: String| if event.contains(':') { event } else { call(&event) };
    (events.into_iter().map(probe).collect(), OTHERS)
}

fn position(args: &[String], names: &[&str]) -> Option<usize> {
    args.iter().position(|arg| names.contains(&arg.as_str()))
}

fn value_of<'a>(args: &'a [String], names: &[&str]) -> Option<&'a str> {
    args.get(position(args, names)? + 1).map(String::as_str)
}

/// A command line as it should be, with the command from `at` on.
fn marked(args: &[String], at: usize) -> String {
    let (before, traced) = args.split_at(at);
    let before = quoted(before.get(1..).unwrap_or_default());
    format!("a command to trace goes after --: `probe {before} -- {}`", quoted(traced))
}

/// Words as a shell takes them.
fn quoted(words: &[String]) -> String {
    shlex::try_join(words.iter().map(String::as_str)).unwrap_or_else(|_| words.join(" "))
}

/// Where a program is among the arguments, if no `--` marks a command. The first probe is none.
fn unmarked_command(args: &[String]) -> Option<usize> {
    if args.iter().any(|arg| arg == "--") {
        return None;
    }
    let mut words = (2..args.len()).filter(|&at| is_value_free(args, at));
    if args.get(1).is_some_and(|command| command != "sample") {
        words.next()?;
    }
    words.find(|&at| is_program(&args[at]))
}

fn is_program(name: &str) -> bool {
    let is_file = |path: &Path| fs::metadata(path).is_ok_and(|found| found.is_file());
    match name.contains('/') {
        true => is_file(Path::new(name)),
        false => env::var_os("PATH")
            .is_some_and(|path| env::split_paths(&path).any(|dir| is_file(&dir.join(name)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Args;
    use clap::Parser;

    fn shown(args: &str) -> String {
        let args: Vec<_> = args.split(' ').map(str::to_owned).collect();
        let mut error = Args::try_parse_from(&args).unwrap_err();
        answer(&mut error, &args);
        error.to_string()
    }

    #[test]
    fn options_of_other_tools_are_answered() {
        for (args, answer) in [
            ("probe trace -e openat", "`probe trace tracepoint:syscalls:sys_enter_openat`"),
            (
                "probe -e trace=openat cat x",
                "`probe trace tracepoint:syscalls:sys_enter_openat -- cat x`",
            ),
            ("probe count -e sched:sched_switch", "`probe count sched:sched_switch`"),
            (
                "probe trace -e openat -p 17 -M 3",
                "`probe trace tracepoint:syscalls:sys_enter_openat -p 17 -M 3`",
            ),
            (
                "probe trace -n sh -e read,write -d 1s sh -c true",
                "`probe trace tracepoint:syscalls:sys_enter_read tracepoint:syscalls:sys_enter_write -n sh -d 1s -- sh -c true`",
            ),
            (
                "probe -f -e trace=openat -p 17",
                "`probe trace tracepoint:syscalls:sys_enter_openat -p 17`",
            ),
            (
                "probe record -o f -e openat",
                "`probe record tracepoint:syscalls:sys_enter_openat -o f`",
            ),
            ("probe latency -e openat", "`probe latency tracepoint:syscalls:sys_enter_openat`"),
            ("probe latency -e sched:sched_switch", "`probe latency vfs_read`"),
            ("probe latency", "`probe latency vfs_read`"),
            ("probe latency -- ls", "`probe latency vfs_read`"),
            ("probe -p 17", "`probe trace 'tracepoint:syscalls:sys_enter_*' -p 17`"),
            ("probe trace -p 17", "`probe trace 'tracepoint:syscalls:sys_enter_*' -p 17`"),
            ("probe count", "`probe count tracepoint:sched:sched_process_exec`"),
            ("probe sample -g", "stacks are always sampled"),
            ("probe record -F 99 -a", "`probe sample -F FREQUENCY`"),
            ("probe sample sleep 1", "`probe sample -- sleep 1`"),
            ("probe sample -a sleep 1", "`probe sample -a -- sleep 1`"),
            ("probe trace -g f", "-K shows the kernel stack"),
            ("probe trace -c ls", "`probe count PROBE` counts hits"),
            ("probe latency -c f", "`probe latency PROBE -- CMD`"),
            ("probe latency --longer 1ms f", "'PROBE/latency > 1000000/'"),
            ("probe count --longer 1ms f", "`probe trace --longer DURATION PROBE`"),
            ("probe trace f --json", "-F jsonl"),
            ("probe trace f --latency", "--ret reports each call"),
            ("probe latency f -T", "`probe trace --ret PROBE`"),
            ("probe count f -i 1", "results are printed once"),
            ("probe replay -i rec", "`probe replay FILE`"),
            ("probe stat ls", "`probe count PROBE` counts hits"),
            ("probe top", "`probe sample -a -d 10s`"),
            ("probe execsnoop", "`probe trace tracepoint:sched:sched_process_exec`"),
            ("probe funccount-bpfcc vfs_*", "`probe count 'vfs_*'`"),
            ("probe trace f sh -l", "a command to trace goes after --: `probe trace f -- sh -l`"),
            ("probe trace -- ls", "stands for all system calls"),
            (
                "probe trace -e openat,sched:sched_switch sh",
                "`probe trace tracepoint:syscalls:sys_enter_openat sched:sched_switch -- sh`",
            ),
            ("probe trace -e !futex,read sh", "-x '*_futex' -x '*_read' -- sh`"),
            ("probe trace -e trace=%file sh", "system calls have no classes"),
            (
                "probe -f -e trace=network sh",
                "`probe trace 'tracepoint:syscalls:sys_enter_*' -- sh`",
            ),
            ("probe -n syscall:::entry{", "there are no scripts"),
            ("probe -ff sh", "descendants of a command are always traced"),
            (
                "probe trace --failed-only sh",
                "--ret 'tracepoint:syscalls:sys_enter_openat/retval < 0/'",
            ),
            ("probe count --by comm rawtp:sys_enter", "`probe stack -F folded PROBE`"),
            ("probe sample --flamegraph", "-f svg"),
            ("probe sample --hz 99", "`probe sample -F 99`"),
            ("probe trace -q rawtp:sys_enter", "standard error"),
            ("probe vfs_read", "`probe trace vfs_read`"),
            ("probe gethostlatency", "uprobe:libc:getaddrinfo"),
            ("probe sh -l", "`probe trace 'tracepoint:syscalls:sys_enter_*' -- sh -l`"),
            ("probe /bin/sh -l", "`probe trace 'tracepoint:syscalls:sys_enter_*' -- /bin/sh -l`"),
            ("probe rawtp:sys_enter", "`probe trace rawtp:sys_enter`"),
            ("probe record make", "`probe sample` samples"),
            ("probe trace f -p 1 -p 2", "separated by commas"),
        ] {
            let shown = shown(args);
            assert!(shown.contains(answer), "{args}: {shown}");
            assert!(!shown.contains("to pass '-"), "{args}: {shown}");
        }
    }

    #[test]
    fn other_mistakes_keep_their_suggestions() {
        for missing in ["probe trace f --trigger g", "probe trace f --children"] {
            assert!(!shown(missing).contains("name a probe"), "{missing}");
        }
        assert!(shown("probe tracee f").contains("'trace'"));
        assert!(shown("probe trace f --ordere").contains("--ordered"));
        assert!(!shown("probe trace f --zzz").contains("to pass '-"));
        // These take no command.
        for args in ["probe list f sh", "probe completions bash sh", "probe replay f sh"] {
            assert!(!shown(args).contains(" -- "), "{args}");
        }
    }
}
