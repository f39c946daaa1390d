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

/// Options of other tools: their names, and the answers to them, each for certain commands.
const OPTIONS: &[(&[&str], Answers)] = &[
    (
        &["-e", "--event", "--trace"],
        &[(
            ANY,
            "name events as probes, without an option: `probe trace tracepoint:sched:sched_switch`, or \
             `probe trace ksyscall:openat` for a system call; `probe sample -e EVENT` samples perf events, and \
             there are no scripts",
        )],
    ),
    (
        &["-g", "--call-graph", "-k", "--stack-trace"],
        &[
            (&["sample"], "stacks are always sampled, so no option is needed"),
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
        &["-c", "--summary-only"],
        &[(
            ANY,
            "`probe count PROBE` counts hits, and a command to trace goes after --: `probe trace PROBE -- CMD`",
        )],
    ),
    (
        &["-f", "-ff", "--follow-forks", "-i", "--inherit"],
        &[(
            ANY,
            "descendants of a command are always traced, and those of a process with -p PID --children",
        )],
    ),
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
        &["-T", "--syscall-times"],
        &[(ANY, "--ret reports each call with its result and its latency")],
    ),
    (
        &["-s", "--string-limit"],
        &[(ANY, "strings need no option: they are printed up to their limit")],
    ),
    (&["-y", "--decode-fds"], &[(ANY, "file descriptors are printed as numbers")]),
    (
        &["-l", "--list"],
        &[(ANY, "`probe list PATTERN` lists probes, and `probe info PROBE` their fields")],
    ),
    (&["-C", "--cpu"], &[(ANY, "a predicate selects CPUs: 'PROBE/cpu == 0/'")]),
    (&["--filter"], &[(ANY, "a condition follows the probe as its predicate: 'PROBE/FIELD > 0/'")]),
    (
        &["-I", "--interval-print"],
        &[(ANY, "counts are printed once, at the end: after -d 1s, or Ctrl-C")],
    ),
];

/// Commands of other tools, and the answers to them.
const COMMANDS: &[(&[&str], &str)] = &[
    (
        &["stat"],
        "`probe count PROBE` counts hits, `probe trace --ret --counter EVENT FUNCTION` counts perf events in calls",
    ),
    (&["top"], "`probe sample -a -d 10s` samples what the CPUs do"),
    (
        &["report", "script", "annotate"],
        "`probe replay FILE` prints what `probe record` has recorded",
    ),
    (
        &["probe", "buildid-list", "evlist"],
        "`probe list PATTERN` lists probes, and `probe trace PROBE` attaches them",
    ),
    (&["strace", "ltrace", "bpftrace", "ftrace"], "`probe trace PROBE -- CMD` traces a command"),
];

/// Adds to the error of a command line what its user may mean.
pub(crate) fn answer(error: &mut clap::Error, args: &[String]) {
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
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let option = text(ContextKind::InvalidArg)?;
            if let Some(command) = unmarked_command(args) {
                return Some(format!("a command to trace goes after --: `-- {command}`"));
            }
            let (_, answers) = OPTIONS.iter().find(|(names, _)| names.contains(&option))?;
            let is_meant = |for_these: Commands| for_these.is_empty() || for_these.contains(&command);
            let found = answers.iter().find(|(for_these, _)| is_meant(for_these));
            found.map(|(_, answer)| (*answer).to_owned())
        }
        ErrorKind::InvalidSubcommand => {
            let name = text(ContextKind::InvalidSubcommand)?;
            if let Some((_, answer)) = COMMANDS.iter().find(|(names, _)| names.contains(&name)) {
                return Some((*answer).to_owned());
            }
            if name.contains([':', '(', '*', '/']) {
                return Some(format!("a probe follows a command: `probe trace '{name}'`"));
            }
            is_program(name).then(|| {
                format!("a command to trace goes after --: `probe trace 'tracepoint:syscalls:sys_enter_*' -- {name}`")
            })
        }
        ErrorKind::MissingRequiredArgument if command == "record" && !args.iter().any(|arg| arg == "-o") => {
            Some("`probe record -o FILE PROBE` records every hit of a probe; `probe sample` samples, as perf record does".to_owned())
        }
        ErrorKind::MissingRequiredArgument if args.iter().any(|arg| arg == "--") => Some(
            "name what to trace of the command: 'tracepoint:syscalls:sys_enter_*' stands for all system calls".to_owned(),
        ),
        _ => None,
    }
}

/// A program among the arguments behind the first probe, if no `--` marks a command.
fn unmarked_command(args: &[String]) -> Option<&str> {
    if args.iter().any(|arg| arg == "--") {
        return None;
    }
    let is_value = |at: usize| args[at - 1].starts_with('-');
    let mut words = (2..args.len()).filter(|&at| !args[at].starts_with('-') && !is_value(at));
    words.next()?;
    words.map(|at| args[at].as_str()).find(|word| is_program(word))
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
            ("probe trace -e openat", "ksyscall:openat"),
            ("probe sample -g", "stacks are always sampled"),
            ("probe trace -g f", "-K shows the kernel stack"),
            ("probe trace -c ls", "`probe count PROBE` counts hits"),
            ("probe stat ls", "`probe count PROBE` counts hits"),
            ("probe top", "`probe sample -a -d 10s`"),
            ("probe trace f sh -l", "a command to trace goes after --: `-- sh`"),
            ("probe trace -- ls", "stands for all system calls"),
            ("probe sh", "a command to trace goes after --"),
            ("probe rawtp:sys_enter", "`probe trace 'rawtp:sys_enter'`"),
            ("probe record make", "`probe sample` samples"),
        ] {
            let shown = shown(args);
            assert!(shown.contains(answer), "{args}: {shown}");
            assert!(!shown.contains("to pass '-"), "{args}: {shown}");
        }
    }

    #[test]
    fn other_mistakes_keep_their_suggestions() {
        assert!(shown("probe tracee f").contains("'trace'"));
        assert!(shown("probe trace f --ordere").contains("--ordered"));
    }
}
