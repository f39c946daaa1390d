//! `cargo xtask test`: everything that is checked, in one run.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};

use crate::cache::Cache;
use crate::fuzz::{Build, Extent};
use crate::host::Host;
use crate::kernel::{Kernel, SERIES, Series};
use crate::libtest::{self, Counts};
use crate::machine::{self, End, Options};
use crate::report::{Report, Row};
use crate::run::{has_kprobes, may_trace};
use crate::suite::{self, Machine, Share, Suite};
use crate::workspace::{Workspace, cargo};
use crate::{bench, ebpf, fuzz, module, process, say};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Kernels to test in
    #[arg(long, value_delimiter = ',', default_values_t = SERIES)]
    kernels: Vec<Series>,
    /// Test on this machine only
    #[arg(long, conflicts_with = "kernels")]
    no_vm: bool,
    /// CPUs of a VM [default: 4 with the first and the last kernel, 3 with the others]
    #[arg(long)]
    cpus: Option<u32>,
    #[arg(long, default_value = "1G")]
    memory: String,
    /// VMs at a time; without KVM, a VM keeps one CPU of this machine busy
    #[arg(long, default_value_t = default_jobs())]
    jobs: usize,
    /// Minutes that the tests of one kernel may take
    #[arg(long, default_value_t = 60, value_name = "MINUTES")]
    timeout: u64,
    /// Run all tests in each VM: else, what is about user space runs in one, and what the tracer does with the
    /// kernel beside the pipe in the first and the last
    #[arg(long, conflicts_with = "no_vm")]
    everywhere: bool,
    /// Do not fuzz
    #[arg(long)]
    no_fuzz: bool,
    /// Seconds to fuzz each target
    #[arg(long, default_value_t = 10, value_name = "SECONDS")]
    fuzz_seconds: u64,
}

impl Args {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let workspace = Workspace::load()?;
        let mut report = Report::default();
        check_sources(&workspace, &mut report);
        report.step("unit and doc tests", unit_tests);
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
            let logs = workspace.target().join("xtask");
            fs::create_dir_all(&logs)
                .with_context(|| format!("cannot create {}", logs.display()))?;
            on_host(&suite, &logs, &mut report);
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
            let cache = Cache::open()?;
            let host = Host::set_up(&cache)?;
            ready = Some((cache, host));
            Ok(())
        });
        let Some((cache, host)) = ready else { return };
        // One after the other: they share the cache's lock and the network.
        let ready = |series: &Series| {
            let kernel = host.kernel(&cache, *series)?;
            let module = module::build(&cache, &kernel, logs)?;
            Ok::<_, anyhow::Error>(Ready { kernel, module })
        };
        let kernels = self.kernels.iter().map(ready).collect::<Vec<_>>();

        let interrupted = AtomicBool::new(false);
        // What takes longest begins first.
        let shares = self.kernels.iter().map(|&series| self.share(series));
        let mut order = shares.enumerate().collect::<Vec<_>>();
        order.sort_by_key(|(_, share)| (!share.extremes, !share.user_space));
        let next = AtomicUsize::new(0);
        let rows = Mutex::new(BTreeMap::new());
        let work = || {
            while let Some(&(at, share)) = order.get(next.fetch_add(1, Ordering::Relaxed))
                && !interrupted.load(Ordering::Relaxed)
            {
                let kernel = &kernels[at];
                let row = Row::of(&self.kernels[at].to_string(), || {
                    let ready = kernel.as_ref().map_err(|error| anyhow!("{error:#}"))?;
                    self.in_vm(&host, ready, share, suite, logs, &interrupted)
                });
                rows.lock().unwrap_or_else(PoisonError::into_inner).insert(at, row);
            }
        };
        thread::scope(|scope| {
            for _ in 0..self.jobs.max(1) {
                scope.spawn(work);
            }
        });
        let rows = rows.into_inner().unwrap_or_else(PoisonError::into_inner);
        rows.into_values().for_each(|row| report.add(row));
    }

    fn share(&self, series: Series) -> Share {
        let is = |one: Option<&Series>| self.everywhere || one == Some(&series);
        Share {
            // Neither of those that run most by themselves.
            user_space: is(self.kernels.get(self.kernels.len() / 2)),
            extremes: is(self.kernels.first()) || is(self.kernels.last()),
        }
    }

    fn in_vm(
        &self,
        host: &Host,
        Ready { kernel, module }: &Ready,
        share: Share,
        suite: &Suite,
        logs: &Path,
        interrupted: &AtomicBool,
    ) -> Result<Counts> {
        let series = kernel.series;
        let place = format!("kernel {}", kernel.release);
        let machine = Machine::Virtual(share);
        let script = logs.join(format!("{series}.sh"));
        let log = logs.join(format!("{series}.log"));
        fs::write(&script, suite.script(machine)?)?;
        let options = Options {
            // How many there are is one more difference between machines, and few are sooner done.
            cpus: self.cpus.unwrap_or(if share.extremes { 4 } else { 3 }),
            memory: self.memory.clone(),
            icount: false,
            limit: Some(Duration::from_secs(self.timeout * 60)),
            folder: suite::folder(),
            passes_signals: false,
        };
        let mut command = vec!["bash".into(), script.into_os_string()];
        if let Some(module) = module {
            command.splice(..0, ["env".into(), module::variable(module)]);
        }
        let end = host.run(kernel, &options, &command, || machine::log(&log))?;
        if let End::Signalled(signal) = end {
            interrupted.store(true, Ordering::Relaxed);
            bail!("ended by signal {signal}");
        }
        let mut counts = suite.judge(&place, machine, &read_log(&log)?);
        match end {
            End::Exit(_) | End::Signalled(_) => {}
            End::TimedOut => {
                say::line(format_args!("{place}: no end after {} minutes", self.timeout));
                counts.failed += 1;
            }
            End::Died { console } => {
                say::line(format_args!("{place}: the machine went off during the tests"));
                counts = counts.plus(suite::judge_kernel(&place, &console));
                counts.failed += 1;
            }
        }
        Ok(counts)
    }
}

/// What a machine is started with.
struct Ready {
    kernel: Kernel,
    /// For tests to load, if it can be built.
    module: Option<PathBuf>,
}

fn default_jobs() -> usize {
    thread::available_parallelism().map_or(1, |cpus| cpus.get().min(SERIES.len()))
}

/// What can be said without running anything.
fn check_sources(workspace: &Workspace, report: &mut Report) {
    report.check("fmt", || process::loud(cargo().args(["fmt", "--all", "--check"])));
    report.check("clippy", || {
        process::loud(hushed(&mut cargo(), &["clippy", "--all-targets"]).args(DENY))?;
        let library = ["clippy", "--package", "probe-user", "--lib", "--no-default-features"];
        process::loud(hushed(&mut cargo(), &library).args(DENY))?;
        process::loud(hushed(&mut cargo(), &bench::clippy()).args(DENY))?;
        let fuzz = ["clippy", "--package", "probe-fuzz"];
        process::loud(hushed(&mut cargo(), &fuzz).args(DENY))
    });
    report.check("clippy, eBPF", || ebpf::clippy(workspace));
    report.check("doc", || {
        let mut doc = cargo();
        doc.env("RUSTDOCFLAGS", "-Dwarnings");
        process::loud(hushed(&mut doc, &["doc", "--no-deps"]))
    });
    report.check("build-ebpf --check", || ebpf::check(workspace));
}

const DENY: [&str; 3] = ["--", "-D", "warnings"];

/// A cargo command whose progress only a terminal sees.
fn hushed<'a>(command: &'a mut Command, arguments: &[&str]) -> &'a mut Command {
    command.args(arguments);
    if !say::on_terminal() {
        command.arg("--quiet");
    }
    command
}

/// Tests that need no kernel: `#[ignore]` keeps the others out.
fn unit_tests() -> Result<Counts> {
    let mut command = cargo();
    hushed(&mut command, &["test", "--no-fail-fast"]);
    libtest::run(&mut command)
}

/// Kernel tests on this machine: all that its kernel can do.
fn on_host(suite: &Suite, logs: &Path, report: &mut Report) {
    let machine = Machine::Here { kprobes: has_kprobes() };
    if suite.is_empty(machine) {
        return;
    }
    if !may_trace() {
        say::line("no kernel tests on this machine: they take root, or CAP_BPF and CAP_PERFMON");
        return;
    }
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let place = format!("host {}", release.trim());
    report.step(&place, || {
        let script = logs.join("host.sh");
        let log = logs.join("host.log");
        fs::write(&script, suite.script(machine)?)?;
        let file = fs::File::create(&log)?;
        let mut bash = suite::bash(&script);
        bash.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let status = bash.status().context("cannot start bash")?;
        // The log of a machine that runs for days has other things in it too.
        let printed = read_log(&log)?;
        let printed = printed.split("xtask-suite: kernel log\n").next().unwrap_or_default();
        let counts = suite.judge(&place, machine, printed);
        if counts == Counts::default() && !status.success() {
            bail!("bash ended with {status}");
        }
        Ok(counts)
    });
}

fn read_log(path: &PathBuf) -> Result<String> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
