//! `cargo xtask test`: runs every check.

mod suite;

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use clap::value_parser;

use self::suite::{Machine, Share, Suite};
use crate::check::structure;
use crate::fuzz::{Build, Extent};
use crate::report::libtest::Counts;
use crate::report::{Report, Row};
use crate::run::{TRACING_REQUIRES, has_kprobes, may_trace};
use crate::setup::{cache, files};
use crate::vm::host::Host;
use crate::vm::kernel::{Kernel, SERIES, Series};
use crate::vm::machine::{self, End, Options};
use crate::workspace::{self, Workspace};
use crate::{bench, check, ebpf, fuzz, process, say, template};

/// A folder that all runs on this machine share and that nothing else locks.
const MACHINE: &str = "/sys/kernel";

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Kernels to test on
    #[arg(long, value_delimiter = ',', default_values_t = SERIES)]
    kernels: Vec<Series>,
    /// Test on this machine only
    #[arg(long, conflicts_with = "kernels")]
    no_vm: bool,
    /// CPUs of each VM [default: 4 where the most tests run, else 3]
    #[arg(long)]
    cpus: Option<u32>,
    /// Memory of each VM
    #[arg(long, default_value = "1G")]
    memory: String,
    /// VMs to run at a time; without KVM, each keeps one CPU of this machine busy
    #[arg(long, default_value_t = default_jobs())]
    jobs: usize,
    /// Minutes that the tests on one kernel may take
    #[arg(long, default_value_t = 60, value_name = "MINUTES")]
    timeout: u64,
    /// Run all tests on each kernel, and on this machine make each system call fail with each errno; otherwise, tests for
    /// which one kernel is enough run on this machine only, tests of the pipe and of attaching on each kernel, all others
    /// on this machine and the first kernel, and each call fails with one errno
    #[arg(long, conflicts_with = "no_vm")]
    everywhere: bool,
    /// Do not fuzz
    #[arg(long)]
    no_fuzz: bool,
    /// Seconds to fuzz each target
    #[arg(long, default_value_t = 10, value_name = "SECONDS", value_parser = value_parser!(u64).range(1..))]
    fuzz_seconds: u64,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let workspace = Workspace::load()?;
        let logs = workspace.target().join("xtask");
        files::create_folder(&logs)?;
        // Another run could rebuild the executables that this one tests.
        let _lock = workspace.lock()?;
        let mut report = Report::default();
        check_sources(&workspace, &mut report);
        report.step("unit and doc tests", || check::unit_tests(None));
        report.step("template", || template::test(&workspace));
        if !self.no_fuzz {
            let extent = Extent::seconds(self.fuzz_seconds);
            report.step("fuzz", || fuzz::fuzz(&workspace, &[], extent, Build::Soon));
        }

        let mut suite = None;
        report.check("build the kernel tests", || {
            suite = Some(Suite::build()?);
            Ok(())
        });
        if let Some(suite) = suite {
            on_host(&suite, self.everywhere, &logs, &mut report);
            report.step("benchmark", bench::test);
            if !self.no_vm {
                self.in_vms(&suite, &logs, &mut report);
            }
        }
        Ok(report.finish())
    }

    fn in_vms(&self, suite: &Suite, logs: &Path, report: &mut Report) {
        let mut ready = None;
        report.check("set up VMs", || {
            let cache = cache()?;
            let host = Host::set_up(&cache)?;
            ready = Some((cache, host));
            Ok(())
        });
        let Some((cache, host)) = ready else { return };
        // One after the other, because they share the cache's lock and the network.
        let ready = |series: &Series| {
            let kernel = host.kernel(&cache, *series)?;
            let module = kernel.module(&cache, logs)?;
            Ok::<_, anyhow::Error>((kernel, module))
        };
        let kernels = self.kernels.iter().map(ready).collect::<Vec<_>>();

        let interrupted = AtomicBool::new(false);
        // Longest first.
        let shares = self.kernels.iter().map(|&series| self.share(series));
        let mut order = shares.enumerate().collect::<Vec<_>>();
        order.sort_by_key(|(_, share)| (!share.others, !share.of_kprobes, !share.of_one_kernel));
        let rows = process::in_parallel(&order, self.jobs.max(1), |&(at, share)| {
            let run = || {
                let ready = kernels[at].as_ref().map_err(|error| anyhow!("{error:#}"))?;
                self.in_vm(&host, ready, share, suite, logs, &interrupted)
            };
            let goes_on = !interrupted.load(Ordering::Relaxed);
            goes_on.then(|| (at, Row::of(&self.kernels[at].to_string(), run)))
        });
        let mut rows = rows.into_iter().flatten().collect::<Vec<_>>();
        rows.sort_by_key(|(at, _)| *at);
        rows.into_iter().for_each(|(_, row)| report.add(row));
    }

    fn share(&self, series: Series) -> Share {
        let is = |one: Option<&Series>| one == Some(&series);
        // What does not run on this machine runs in one machine more.
        let elsewhere = !may_trace();
        // Kernels in the middle run the fewest tests.
        let middle = self.kernels.get(self.kernels.len() / 2);
        let (oldest, newest) = (is(self.kernels.first()), is(self.kernels.last()));
        Share {
            of_one_kernel: self.everywhere || elsewhere && is(middle),
            of_kprobes: self.everywhere || oldest || newest,
            others: self.everywhere || oldest || elsewhere && newest,
        }
    }

    fn in_vm(
        &self,
        host: &Host,
        (kernel, module): &(Kernel, Option<OsString>),
        share: Share,
        suite: &Suite,
        logs: &Path,
        interrupted: &AtomicBool,
    ) -> Result<Counts> {
        let series = kernel.series;
        let name = format!("kernel {}", kernel.release);
        let machine = Machine::Virtual(share);
        let script = logs.join(format!("{series}.sh"));
        let log = logs.join(format!("{series}.log"));
        fs::write(&script, suite.script(machine)?)?;
        let options = Options {
            // The number of CPUs is another difference between the machines. Fewer CPUs finish sooner.
            cpus: self.cpus.unwrap_or(if share.others { 4 } else { 3 }),
            memory: self.memory.clone(),
            icount: false,
            limit: Some(Duration::from_secs(self.timeout * 60)),
            folder: workspace::root(),
            unchanging: suite.folders(),
            passes_signals: false,
        };
        let mut command = vec!["bash".into(), script.into_os_string()];
        if let Some(module) = module {
            command.splice(..0, ["env".into(), module.clone()]);
        }
        let end = host.run(kernel, &options, &command, || machine::log(&log))?;
        if let End::Signalled(signal) = end {
            interrupted.store(true, Ordering::Relaxed);
            bail!("ended by signal {signal}");
        }
        let log = read_log(&log)?;
        let mut counts = suite.judge(&name, machine, &log);
        match end {
            End::Exit(_) | End::Signalled(_) => {}
            // As the last group ends.
            End::Died { console } if suite.has_ended(machine, &log) => {
                counts = counts.plus(suite::judge_kernel(&name, &console));
            }
            End::TimedOut => {
                say::line(format_args!("{name}: timed out after {} minutes", self.timeout));
                counts.failed += 1;
            }
            End::Died { console } => {
                say::line(format_args!("{name}: the machine shut down during the tests"));
                counts = counts.plus(suite::judge_kernel(&name, &console));
                counts.failed += 1;
            }
        }
        Ok(counts)
    }
}

fn default_jobs() -> usize {
    thread::available_parallelism().map_or(1, |cpus| cpus.get().min(SERIES.len()))
}

/// Runs the checks that only read or build the sources.
fn check_sources(workspace: &Workspace, report: &mut Report) {
    report.check("fmt", check::format);
    report.check("clippy", || {
        check::clippy()?;
        check::clippy_features()?;
        check::clippy_bench()?;
        check::clippy_fuzz()
    });
    report.check("clippy, eBPF", || ebpf::clippy(workspace));
    report.check("doc", check::document);
    report.check("structure", structure::check);
    report.check("build-ebpf --check", || ebpf::check(workspace));
}

/// Runs the kernel tests that this machine's kernel supports. Without the privilege, they count as skipped.
fn on_host(suite: &Suite, all_faults: bool, logs: &Path, report: &mut Report) {
    let machine = Machine::Here { kprobes: has_kprobes(), all_faults };
    if suite.is_empty(machine) {
        return;
    }
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let name = format!("host {}", release.trim());
    report.step(&name, || {
        if !may_trace() {
            say::line(format_args!("skipping kernel tests on this machine: {TRACING_REQUIRES}"));
            return Ok(suite.skipped(machine));
        }
        let lock = lock_machine()?;
        let script = logs.join("host.sh");
        let log = logs.join("host.log");
        fs::write(&script, suite.script(machine)?)?;
        let file = File::create(&log)?;
        let mut bash = Command::new("bash");
        bash.arg(&script).env_clear().envs(workspace::environment());
        // Tests go on if this process is killed. Until they end, bash has the lock.
        bash.stdin(lock).stdout(file.try_clone()?).stderr(file);
        let status = bash.status().context("cannot start bash")?;
        let counts = suite.judge(&name, machine, &read_log(&log)?);
        if counts == Counts::default() && !status.success() {
            bail!("bash failed ({status})");
        }
        Ok(counts)
    });
}

fn read_log(path: &Path) -> Result<String> {
    Ok(String::from_utf8_lossy(&files::read(path)?).into_owned())
}

/// The lock of this machine's kernel, whose settings, names and CPUs all tests share.
fn lock_machine() -> Result<File> {
    let path = Path::new(MACHINE);
    let folder = File::open(path).with_context(|| format!("cannot open {MACHINE}"))?;
    workspace::wait(path, folder, "tests on this machine's kernel")
}

#[cfg(test)]
mod tests {
    use std::fs::TryLockError;

    use super::*;

    #[test]
    fn a_folder_of_the_kernel_can_be_locked() {
        let folder = File::open(MACHINE).unwrap();
        // Another run of the tests may hold it.
        assert!(matches!(folder.try_lock(), Ok(()) | Err(TryLockError::WouldBlock)));
    }
}
