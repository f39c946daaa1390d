//! The tests that need a kernel. One script runs their executables; the counts come from its output.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::process::tail;
use crate::report::libtest::{self, Counts, failures};
use crate::run::{Executable, executables};
use crate::say;
use crate::setup::apt;
use crate::vm::splat;
use crate::workspace::{FEATURES, cargo_quiet};

const MARK: &str = "xtask-suite:";
/// The line of this machine's kernel log after which the messages of the tests begin.
const LOG_BEGINS: &str = "xtask-suite: the kernel log of the tests begins";
/// Lines of output to show of an executable that crashed.
const CRASH_LINES: usize = 40;
/// How many of the groups that took the longest are named.
const SLOWEST: usize = 5;
/// How long a group may take before it is killed, in minutes. The slowest takes less than three under emulation.
const LIMIT: u32 = 15;
/// The statuses of `timeout` when it has ended a command, and when it had to kill it.
const TIMED_OUT: [&str; 2] = ["124", "137"];
/// Lines to show of a report in the kernel's log.
const SPLAT_LINES: usize = 40;

/// The executable of a crate's kernel tests.
const KERNEL: &str = "kernel";

/// The name of functions that are not tests but workloads: tests start them in a process of their own and trace them.
/// They are marked as tests because the executable's only entry point is libtest's.
const WORKLOAD: &str = "workload";

/// A group selects its tests by full name, and shows the output of passing tests too, which has the reasons of skips.
const OPTIONS: &str = "--ignored --exact --test-threads=1 --show-output";

/// Prefixes of the groups that need kprobes.
const NEED_KPROBES: [&str; 3] = ["kprobe", "calls", "patterns"];

/// Prefixes of the groups for which one kernel is enough: what is printed, how files and names are looked up, and how
/// records are counted, shared and handed over once they are in a ring. They run on this machine, or, if it cannot run them,
/// in one virtual machine.
const OF_ONE_KERNEL: &[&str] = &[
    "cli",
    "counter_trace",
    "discover",
    "failures",
    "filters_patterns",
    "flight",
    "latency",
    "ordered",
    "output",
    "owned",
    "per_cpu",
    "perf_script",
    "privileges",
    "probe_user",
    "recording",
    "restart",
    "sample_probe",
    "sharing",
    "stacks",
    "stress",
    "terminal",
    "together",
    "uprobe_calls",
    "uprobe_files",
];

/// The groups that run on every kernel: what programs may do, and how they are attached, has changed often.
/// The other groups run on this machine and on the oldest kernel; those that need kprobes, on the newest one, too.
const OF_EVERY_KERNEL: &[&str] = &[
    "adaptive",
    "calls",
    "hotplug",
    "kprobe",
    "kprobe_specialized",
    "ledger",
    "nesting",
    "pipe",
    "specialized",
    "syscall_calls",
    LAST,
];

/// The group after which a virtual machine can run nothing else, because it suspends the machine: 9p file systems, which the
/// machine has, do not answer any more when it resumes.
const LAST: &str = "suspend";

/// Prefixes of the groups that disturb whatever else runs on a machine.
const OF_VIRTUAL_MACHINES: [&str; 4] = ["hotplug", "switches", "wall_clock", LAST];

/// The machine that the tests run on.
#[derive(Clone, Copy)]
pub(crate) enum Machine {
    /// This machine, where tests must not disturb other work.
    Here {
        /// Whether its kernel has kprobes.
        kprobes: bool,
        /// Whether each system call fails with each errno, and not with one of them only.
        all_faults: bool,
    },
    /// A virtual machine that runs only the tests.
    Virtual(Share),
}

/// The groups that a virtual machine runs in addition to those that all of them run.
#[derive(Clone, Copy)]
pub(crate) struct Share {
    /// The groups for which one kernel is enough.
    pub(crate) of_one_kernel: bool,
    /// Of the groups that are neither of one kernel nor of every kernel, those that need kprobes.
    pub(crate) of_kprobes: bool,
    /// The rest of them.
    pub(crate) others: bool,
}

impl Machine {
    /// Whether the named group runs on this machine.
    fn takes(self, group: &str) -> bool {
        let is_of = |names: &[&str]| names.iter().any(|begin| group.starts_with(begin));
        match self {
            Self::Virtual(_) if OF_EVERY_KERNEL.contains(&group) => true,
            Self::Virtual(share) if is_of(OF_ONE_KERNEL) => share.of_one_kernel,
            Self::Virtual(share) if is_of(&NEED_KPROBES) => share.of_kprobes,
            Self::Virtual(share) => share.others,
            Self::Here { kprobes, .. } => {
                !is_of(&OF_VIRTUAL_MACHINES) && (kprobes || !is_of(&NEED_KPROBES))
            }
        }
    }
}

/// Tests that run in one process: a module of a `kernel` executable, or the unit tests of a crate.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Group {
    name: String,
    /// The folder of the package, where the tests run.
    folder: PathBuf,
    executable: PathBuf,
    /// Full names.
    tests: Vec<String>,
}

impl Group {
    /// The groups of an executable. Their tests are those that need a kernel, which a plain `cargo test` ignores.
    fn all(built: &Executable) -> Result<Vec<Self>> {
        Ok(Self::of_list(built, &libtest::list_ignored(&built.path)?))
    }

    fn of_list(built: &Executable, printed: &str) -> Vec<Self> {
        let mut groups: Vec<Self> = Vec::new();
        let tests = printed.lines().filter_map(|line| line.strip_suffix(": test"));
        for test in tests.filter(|test| test.rsplit("::").next() != Some(WORKLOAD)) {
            let name = match test.split_once("::") {
                Some((module, _)) if built.target == KERNEL => module,
                _ => &built.target,
            };
            match groups.iter_mut().find(|group| group.name == name) {
                Some(group) => group.tests.push(test.to_owned()),
                None => groups.push(Self {
                    name: name.to_owned(),
                    folder: built.package.clone(),
                    executable: built.path.clone(),
                    tests: vec![test.to_owned()],
                }),
            }
        }
        groups
    }

    /// The commands that run the group, and print its exit status and how many seconds it took.
    fn script(&self) -> Result<String> {
        let (folder, executable) = (quoted(&self.folder)?, quoted(&self.executable)?);
        // A hanging group must not hold up the others. In the foreground, Ctrl-C ends it, too.
        let limited = format!("timeout --foreground --kill-after=10s {LIMIT}m {executable}");
        Ok(format!("cd {folder}\n{}", self.commands(&limited)?))
    }

    /// The same, for a group that runs in memory, after which the machine shuts down. A process that has used a file of 9p
    /// could not even exit, so this replaces the shell, too. A backtrace would look for such files.
    fn last_script(&self) -> Result<String> {
        const LOAD: &str = "./ld-linux-* --library-path .";
        let name = self.executable.file_name().context("an executable has no name")?;
        let name = quoted(Path::new(name))?;
        let mut script = String::from("cd $(mktemp --directory --tmpdir=/dev/shm)\n");
        // It prints the names of both, and the paths of their libraries.
        let ldd = format!("ldd /bin/bash {}", quoted(&self.executable)?);
        let files = format!("{ldd} | grep --only-matching '/[^ :]*' | sort --unique");
        writeln!(script, "cp --dereference $({files}) .")?;
        let commands = self.commands(&format!("RUST_BACKTRACE=0 {LOAD} ./{name}"))?;
        writeln!(script, "cat >script <<'END'\n{commands}echo o >/proc/sysrq-trigger\nEND")?;
        writeln!(script, "exec {LOAD} ./bash script")?;
        Ok(script)
    }

    fn commands(&self, executable: &str) -> Result<String> {
        let Self { name, tests, .. } = self;
        let tests = tests.join(" ");
        let mut script = String::new();
        writeln!(script, "echo {MARK} begin {name}\nSECONDS=0")?;
        writeln!(script, "{executable} {OPTIONS} {tests} </dev/null")?;
        writeln!(script, r#"printf '\n%s\n' "{MARK} end {name} $? $SECONDS""#)?;
        Ok(script)
    }
}

/// A path as a word of the shell.
fn quoted(path: &Path) -> Result<String> {
    let path = path.to_str().context("a path is not UTF-8")?;
    Ok(shlex::try_quote(path)?.into_owned())
}

/// The kernel tests of all crates.
pub(crate) struct Suite {
    groups: Vec<Group>,
}

impl Suite {
    pub(crate) fn build() -> Result<Self> {
        // Tests compare our reading of the kernel's types with bpftool's, and of system calls with strace's, and build eBPF
        // programs in C.
        apt::install(&["bpftool", "clang", "libbpf-dev", "strace"])?;
        // The same command as for the unit tests, which are built already. Single packages would have other features.
        let built = executables(cargo_quiet("test").arg("--no-run").args(FEATURES))?;
        let groups = built.iter().filter(|built| built.is_test).map(Group::all);
        let mut groups = groups.collect::<Result<Vec<_>>>()?.concat();
        groups.sort_by(|one, other| one.name.cmp(&other.name));
        if let Some(pair) = groups.windows(2).find(|pair| pair[0].name == pair[1].name) {
            bail!("two groups of tests have the name `{}`; rename a module", pair[0].name);
        }
        let is_group = |name: &&str| groups.iter().any(|group| group.name.starts_with(*name));
        let mut listed = OF_ONE_KERNEL.iter().chain(OF_EVERY_KERNEL);
        if let Some(name) = listed.find(|name| !is_group(name)) {
            bail!("no group of tests has the name `{name}`; correct the lists in {}", file!());
        }
        Ok(Self { groups })
    }

    /// The folders with the tests, and the programs that they run.
    pub(crate) fn folders(&self) -> Vec<PathBuf> {
        // Cargo builds programs beside the folder of the tests.
        let of_programs = |group: &Group| group.executable.parent()?.parent().map(Path::to_owned);
        let mut folders: Vec<_> = self.groups.iter().filter_map(of_programs).collect();
        folders.sort();
        folders.dedup();
        folders
    }

    /// Whether no group runs on this machine.
    pub(crate) fn is_empty(&self, machine: Machine) -> bool {
        self.select(machine).next().is_none()
    }

    fn select(&self, machine: Machine) -> impl Iterator<Item = &Group> {
        self.groups.iter().filter(move |one| machine.takes(&one.name))
    }

    /// The counts of a machine that cannot run its tests.
    pub(crate) fn skipped(&self, machine: Machine) -> Counts {
        let tests = self.select(machine).map(|group| group.tests.len()).sum::<usize>();
        Counts::skipped(tests)
    }

    /// A script that runs every group, even after a failure, and prints the kernel's log before the last one.
    pub(crate) fn script(&self, machine: Machine) -> Result<String> {
        let mut script = String::from("exec 2>&1\n");
        let faults = match machine {
            Machine::Here { all_faults: true, .. } => "all",
            Machine::Here { all_faults: false, .. } => "one-errno",
            // An emulated machine is too slow for more.
            Machine::Virtual(_) => "few",
        };
        writeln!(script, "export PROBE_FAULTS={faults}")?;
        match machine {
            // Each takes one to two seconds there.
            Machine::Virtual(_) => script += "export PROBE_HANDOVERS=10\n",
            Machine::Here { .. } => writeln!(script, "echo '{LOG_BEGINS}' 2>/dev/null >/dev/kmsg")?,
        }
        let (last, others): (Vec<_>, Vec<_>) =
            self.select(machine).partition(|group| group.name == LAST);
        for group in others {
            script += &group.script()?;
        }
        writeln!(script, "echo {MARK} kernel log\ndmesg")?;
        for group in last {
            script += &group.last_script()?;
        }
        Ok(script)
    }

    /// Whether every group has ended.
    pub(crate) fn has_ended(&self, machine: Machine, log: &str) -> bool {
        self.select(machine).all(|group| seconds(&group.name, log).is_some())
    }

    /// Counts the results in the script's output, and shows the failures.
    pub(crate) fn judge(&self, name: &str, machine: Machine, log: &str) -> Counts {
        let mut counts = Counts::default();
        let mut times = Vec::new();
        for group in self.select(machine) {
            let (one, why) = judge_one(&group.name, group.tests.len(), log);
            counts = counts.plus(one);
            times.extend(seconds(&group.name, log).map(|time| (time, group.name.as_str())));
            if let Some(why) = why {
                say::line(format_args!("{} failed on {name}:\n{why}", group.name));
            }
        }
        report_slowest(name, times);
        let mark = format!("{MARK} kernel log\n");
        let kernel = log.split_once(&mark).map_or("", |(_, kernel)| kernel);
        libtest::report_skipped(name, log);
        match machine {
            Machine::Virtual(_) => counts.plus(judge_kernel(name, kernel)),
            Machine::Here { .. } => {
                // Before the mark are messages from before the tests; in a container, there may be none. Reports may come
                // from anything else that runs here, so they are shown only.
                let meanwhile = kernel.rsplit_once(LOG_BEGINS).map_or("", |(_, log)| log);
                show_reports(name, meanwhile);
                counts
            }
        }
    }
}

/// Names the groups that took the longest.
fn report_slowest(name: &str, mut times: Vec<(u64, &str)>) {
    times.sort_by(|one, other| other.cmp(one));
    let slowest = times.iter().take(SLOWEST).map(|(time, group)| format!("{group} {time} s"));
    let slowest = slowest.collect::<Vec<_>>().join(", ");
    if !slowest.is_empty() {
        say::line(format_args!("slowest on {name}: {slowest}"));
    }
}

/// Counts one failure if the kernel's log has a report.
pub(crate) fn judge_kernel(name: &str, log: &str) -> Counts {
    if show_reports(name, log) { Counts::FAILED } else { Counts::default() }
}

/// Shows the first report in the kernel's log. Returns whether there is one.
fn show_reports(name: &str, log: &str) -> bool {
    let reports = splat::find(log).len();
    if reports > 0 {
        let first = splat::excerpt(log, SPLAT_LINES);
        say::line(format_args!("the kernel log of {name} has reports ({reports}):\n{first}"));
    }
    reports > 0
}

/// The counts of one group of `tests` tests, and the output to show if it failed.
fn judge_one(target: &str, tests: usize, log: &str) -> (Counts, Option<String>) {
    let failed = Counts::FAILED;
    let Some((printed, end)) = printed_by(target, log) else {
        return (failed, Some("the group did not run".to_owned()));
    };
    let status = end.and_then(|end| end.split(' ').next());
    match (Counts::of(printed), status) {
        (Some(counts), Some("0")) if counts.failed == 0 => {
            let ran = counts.passed + counts.skipped;
            if ran as usize == tests {
                return (counts, None);
            }
            // The executable is another one by now.
            let why = format!("{ran} of {tests} tests ran; was something built meanwhile?");
            (counts.plus(failed), Some(why))
        }
        (Some(counts), Some(_)) if counts.failed > 0 => {
            (counts, Some(failures(printed).trim_end().to_owned()))
        }
        (counts, status) => {
            let what = match status {
                Some(code) if TIMED_OUT.contains(&code) => {
                    format!("it was killed, as after {LIMIT} minutes")
                }
                Some(code) => format!("the executable ended with status {code}"),
                None => "the executable ended with no exit status".to_owned(),
            };
            let why = format!("{what}:\n{}", tail(printed, CRASH_LINES));
            (counts.unwrap_or_default().plus(failed), Some(why))
        }
    }
}

/// How long a group took, if it ended.
fn seconds(target: &str, log: &str) -> Option<u64> {
    let (_, end) = printed_by(target, log)?;
    end?.split(' ').nth(1)?.parse().ok()
}

/// A group's output, and if it ended, its exit status and how many seconds it took.
fn printed_by<'l>(target: &str, log: &'l str) -> Option<(&'l str, Option<&'l str>)> {
    let (_, printed) = log.split_once(&format!("{MARK} begin {target}\n"))?;
    let end = format!("\n{MARK} end {target} ");
    Some(match printed.split_once(&end) {
        Some((printed, rest)) => (printed, rest.lines().next()),
        None => (printed.split(MARK).next().unwrap_or_default(), None),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: &str = "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out\n";

    fn log(target: &str, printed: &str, status: &str) -> String {
        format!("{MARK} begin {target}\n{printed}\n{MARK} end {target} {status} 7\n")
    }

    #[test]
    fn good_executable_is_counted() {
        let log = log("one", OK, "0") + &log("two", OK, "0");
        let counts = Counts { passed: 3, failed: 0, skipped: 0 };
        assert_eq!(judge_one("two", 3, &log), (counts, None));
        let (counts, why) = judge_one("two", 4, &log);
        assert_eq!((counts.failed, why.unwrap().starts_with("3 of 4 tests ran")), (1, true));
        assert_eq!(seconds("two", &log), Some(7));
    }

    #[test]
    fn failing_tests_are_shown() {
        let printed = "test a ... FAILED\n\nfailures:\n\n---- a stdout ----\nwhy\n\n\
            test result: FAILED. 2 passed; 1 failed; 0 ignored\n";
        let (counts, why) = judge_one("one", 3, &log("one", printed, "101"));
        assert_eq!(counts, Counts { passed: 2, failed: 1, skipped: 0 });
        assert!(why.unwrap().starts_with("failures:"));
    }

    #[test]
    fn crash_hang_and_silence_are_failures() {
        let one = Counts::FAILED;
        let crashed = log("one", "running 1 test\ntest a ... ", "139");
        assert_eq!(judge_one("one", 3, &crashed).0, one);
        let hung = format!("{MARK} begin one\nrunning 1 test\ntest a ... ");
        assert_eq!((judge_one("one", 3, &hung).0, seconds("one", &hung)), (one, None));
        let killed = log("one", "running 1 test\ntest a ... ", "124");
        let (counts, why) = judge_one("one", 3, &killed);
        let why = why.unwrap();
        assert_eq!(
            (counts, why.starts_with("it was killed, as after 15 minutes")),
            (one, true),
            "{why}"
        );
        assert_eq!(judge_one("one", 3, "").0, one);
        // Tests that passed before the crash count, and so does the crash.
        let died_late = log("one", OK, "134");
        assert_eq!(judge_one("one", 3, &died_late).0, Counts { passed: 3, failed: 1, skipped: 0 });
    }

    #[test]
    fn kernel_reports_fail_a_run_with_passing_tests() {
        let suite = Suite { groups: Vec::new() };
        let share = Share { of_one_kernel: true, of_kprobes: true, others: true };
        let judge = |machine, lines: &str| {
            suite.judge("x", machine, &format!("{MARK} kernel log\n{lines}\n"))
        };
        let virtual_machine = Machine::Virtual(share);
        assert_eq!(judge(virtual_machine, "[ 1.0] all is well"), Counts::default());
        let hung = "[ 1.0] INFO: task probe:9 blocked for more than 120 seconds.";
        assert_eq!(judge(virtual_machine, hung), Counts::FAILED);
        // On this machine, other work may be why.
        let here = Machine::Here { kprobes: true, all_faults: false };
        assert_eq!(judge(here, &format!("[ 0.5] {LOG_BEGINS}\n{hung}")), Counts::default());
    }

    fn built(target: &str) -> Executable {
        Executable {
            package: "/w/pipe".into(),
            target: target.to_owned(),
            is_test: true,
            path: format!("/t/{target}-1").into(),
        }
    }

    #[test]
    fn a_module_of_a_kernel_executable_is_a_group() {
        let printed = "hotplug::a: test\nhotplug::b::c: test\npipe::a: test\nx: benchmark\n";
        let groups = Group::of_list(&built("kernel"), printed);
        let names = groups.iter().map(|group| (&*group.name, group.tests.len()));
        assert_eq!(names.collect::<Vec<_>>(), [("hotplug", 2), ("pipe", 1)]);
        assert_eq!(
            groups[0].script().unwrap(),
            "cd /w/pipe\necho xtask-suite: begin hotplug\nSECONDS=0\n\
             timeout --foreground --kill-after=10s 15m \
             /t/kernel-1 --ignored --exact --test-threads=1 --show-output hotplug::a hotplug::b::c </dev/null\n\
             printf '\\n%s\\n' \"xtask-suite: end hotplug $? $SECONDS\"\n"
        );
        let units = Group::of_list(&built("probe_user"), printed);
        assert_eq!((units.len(), &*units[0].name, units[0].tests.len()), (1, "probe_user", 3));
        assert!(Group::of_list(&built("kernel"), "").is_empty());
    }

    #[test]
    fn a_group_that_suspends_the_machine_is_its_last() {
        let groups = Group::of_list(&built("kernel"), "suspend::a: test\nuprobe::a: test\n");
        let suite = Suite { groups };
        let share = Share { of_one_kernel: true, of_kprobes: true, others: true };
        let script = suite.script(Machine::Virtual(share)).unwrap();
        let at = |part| script.find(part).unwrap();
        assert!(at("begin uprobe") < at("dmesg") && at("dmesg") < at("begin suspend"), "{script}");
        let here = Machine::Here { kprobes: true, all_faults: true };
        assert!(!suite.script(here).unwrap().contains("suspend"));
        let log = log("uprobe", OK, "0");
        assert!(suite.has_ended(here, &log) && !suite.has_ended(Machine::Virtual(share), &log));
    }

    #[test]
    fn a_workload_is_not_a_test() {
        let printed = "uprobe::workload: test\nuprobe::a_workload: test\nworkload::b: test\n";
        let groups = Group::of_list(&built("kernel"), printed);
        let tests = groups.into_iter().flat_map(|group| group.tests);
        assert_eq!(tests.collect::<Vec<_>>(), ["uprobe::a_workload", "workload::b"]);
        assert!(Group::of_list(&built("kernel"), "uprobe::workload: test\n").is_empty());
    }

    #[test]
    fn groups_run_where_they_can() {
        const NAMES: [&str; 6] =
            ["hotplug", "hotplug_probe", "kprobe", "kprobe_sites", "recording", "sampler"];
        let printed = NAMES.map(|name| format!("{name}::a: test\n")).concat();
        let suite = Suite { groups: Group::of_list(&built("kernel"), &printed) };
        let run = |machine| {
            let script = suite.script(machine).unwrap();
            NAMES.map(|one| script.contains(&format!(" {one}::a ")))
        };
        let vm = |of_one_kernel, of_kprobes, others| {
            run(Machine::Virtual(Share { of_one_kernel, of_kprobes, others }))
        };
        assert_eq!(vm(true, true, true), [true; 6]);
        assert_eq!(vm(false, false, false), [true, false, true, false, false, false]);
        assert_eq!(vm(true, false, false), [true, false, true, false, true, false]);
        assert_eq!(vm(false, true, false), [true, false, true, true, false, false]);
        assert_eq!(vm(false, false, true), [true, true, true, false, false, true]);
        let here = |kprobes| run(Machine::Here { kprobes, all_faults: false });
        assert_eq!(here(true), [false, false, true, true, true, true]);
        assert_eq!(here(false), [false, false, false, false, true, true]);
        let here = |kprobes| Machine::Here { kprobes, all_faults: false };
        assert!(!suite.is_empty(here(false)));
        assert_eq!(suite.skipped(here(false)), Counts { passed: 0, failed: 0, skipped: 2 });
        assert_eq!(suite.skipped(here(true)).skipped, 4);
    }
}
