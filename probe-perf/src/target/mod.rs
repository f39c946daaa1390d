//! The threads or CPUs on which an event is observed.

mod cores;
mod site;

pub(crate) use site::{OpenSites, Site, open_each};

use crate::error::PerfError;
use crate::event::Event;
use probe_sys::cpus;
use std::collections::BTreeSet;
use std::fs;
use std::io;

/// The threads or CPUs on which an event is observed.
///
/// Some machines have cores of several kinds, such as performance and efficiency cores. There, the kernel counts `cycles` and
/// other events of the cores for a thread on one kind only, so that this is refused
/// ([`KindsOfCores`](PerfError::KindsOfCores)); name an event of one kind instead, such as `cpu_core/cpu-cycles/`. A
/// [`Sampler`](super::Sampler) opens such an event on each CPU for each thread.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Target {
    /// This process: all threads that it has when the event is opened.
    ThisProcess,
    /// A thread, by its id.
    Thread(u32),
    /// A process, by its id: all threads that it has when the event is opened.
    Process(u32),
    /// Several processes, by their ids: all threads that they have when the event is opened.
    Processes(Vec<u32>),
    /// A process, and the threads and processes that it creates afterwards.
    ProcessAndChildren(u32),
    /// Several processes, and the threads and processes that they create afterwards.
    ProcessesAndChildren(Vec<u32>),
    /// A CPU, whatever it runs.
    Cpu(u32),
    /// Several CPUs, whatever they run. An event that is observed for a whole package on one of its CPUs (`cpumask` of its
    /// PMU) must be asked for there: other named CPUs are left out, unless only one is named.
    Cpus(Vec<u32>),
    /// All CPUs that are online when the event is opened. A [`Sampler`](super::Sampler) adds those that go online later.
    System,
}

/// The largest id of a thread.
const MOST: u32 = i32::MAX.cast_unsigned();

impl Target {
    /// The [sites](Self::sites) where all of these events can be observed.
    pub(crate) fn sites_of(&self, events: &[Event], by_cpu: bool) -> Result<Vec<Site>, PerfError> {
        let sites = self.sites(by_cpu)?;
        events.iter().try_fold(sites, |sites, event| {
            self.observed(cores::cover(sites, event, by_cpu)?, event)
        })
    }

    /// The sites of each of these events separately, one per CPU for inherited events.
    pub(crate) fn sites_of_each(&self, events: &[Event]) -> Result<Vec<Vec<Site>>, PerfError> {
        let sites = self.sites(true)?;
        let sites_of = |event| self.observed(cores::cover(sites.clone(), event, true)?, event);
        events.iter().map(sites_of).collect()
    }

    /// Removes the sites where an event cannot be observed. One CPU that is named is kept: the kernel may observe an event of
    /// all CPUs of a package on another one of them.
    fn observed(&self, mut sites: Vec<Site>, event: &Event) -> Result<Vec<Site>, PerfError> {
        let Some(cpus) = event.cpus().filter(|_| self.only_cpu().is_none()) else {
            return Ok(sites);
        };
        sites.retain(|site| site.cpu.is_none_or(|cpu| cpus.contains(&cpu)));
        if sites.is_empty() {
            return Err(PerfError::NoCpu { event: event.described(), cpus: cpus.to_vec() });
        }
        Ok(sites)
    }

    /// The CPU, if exactly one is named.
    fn only_cpu(&self) -> Option<u32> {
        match self {
            &Self::Cpu(cpu) => Some(cpu),
            Self::Cpus(cpus) => {
                let first = *cpus.first()?;
                cpus.iter().all(|&cpu| cpu == first).then_some(first)
            }
            _ => None,
        }
    }

    /// Whether the target is CPUs, not threads.
    pub(crate) fn is_of_cpus(&self) -> bool {
        matches!(self, Self::Cpu(_) | Self::Cpus(_) | Self::System)
    }

    /// Whether this event must also be observed on a CPU that went online later.
    pub(crate) fn includes(&self, cpu: u32, event: &Event) -> bool {
        match self {
            _ if self.only_cpu() == Some(cpu) => true,
            Self::Cpus(own) => own.contains(&cpu) && event.is_observed_on(cpu),
            Self::System => event.is_observed_on(cpu),
            _ => false,
        }
    }

    /// The sites of the target, without duplicates. With `by_cpu`, inherited events have a site per CPU, as the kernel
    /// requires for events with a ring. That includes CPUs that are offline: an event that is opened later is not
    /// inherited by the threads that already exist then.
    pub(crate) fn sites(&self, by_cpu: bool) -> Result<Vec<Site>, PerfError> {
        Ok(match self {
            Self::Cpus(none) | Self::Processes(none) | Self::ProcessesAndChildren(none)
                if none.is_empty() =>
            {
                return Err(PerfError::EmptyTarget);
            }
            Self::ThisProcess => Self::Process(std::process::id()).sites(by_cpu)?,
            // For the kernel, 0 is the calling thread, and a negative number is all threads.
            &Self::Thread(thread) if thread == 0 || thread > MOST => {
                return Err(PerfError::NoThread(thread));
            }
            &Self::Thread(thread) => vec![Site::of_thread(thread)],
            &Self::Process(process) => Self::Processes(vec![process]).sites(by_cpu)?,
            Self::Processes(processes) => {
                threads_of(processes)?.into_iter().map(Site::of_thread).collect()
            }
            &Self::ProcessAndChildren(process) => {
                Self::ProcessesAndChildren(vec![process]).sites(by_cpu)?
            }
            Self::ProcessesAndChildren(processes) => {
                let cpus = by_cpu.then(present).transpose()?;
                let sites = |thread| {
                    let whole = Site { inherits: true, ..Site::of_thread(thread) };
                    match &cpus {
                        Some(cpus) => cpus.iter().map(|&cpu| whole.on(cpu)).collect(),
                        None => vec![whole],
                    }
                };
                threads_of(processes)?.into_iter().flat_map(sites).collect()
            }
            &Self::Cpu(cpu) => Self::Cpus(vec![cpu]).sites(by_cpu)?,
            Self::Cpus(cpus) => {
                let (cpus, online) = (cpus.iter().copied().collect::<BTreeSet<_>>(), online()?);
                if let Some(&cpu) = cpus.iter().find(|cpu| !online.contains(cpu)) {
                    return Err(PerfError::CpuOffline { cpu, online });
                }
                cpus.into_iter().map(Site::on_cpu).collect()
            }
            Self::System => online()?.into_iter().map(Site::on_cpu).collect(),
        })
    }
}

fn online() -> Result<Vec<u32>, PerfError> {
    cpus::online().map_err(PerfError::Cpus)
}

/// The CPUs of the machine, and whether each is offline.
fn present() -> Result<Vec<(u32, bool)>, PerfError> {
    let online = online()?;
    let present = cpus::present().map_err(PerfError::Cpus)?;
    Ok(present.into_iter().map(|cpu| (cpu, !online.contains(&cpu))).collect())
}

/// The threads of several processes.
fn threads_of(processes: &[u32]) -> Result<BTreeSet<u32>, PerfError> {
    processes.iter().try_fold(BTreeSet::new(), |mut all, &process| {
        all.extend(threads(process)?);
        Ok(all)
    })
}

/// The threads of a process.
fn threads(process: u32) -> Result<Vec<u32>, PerfError> {
    let failed = |cause: io::Error| match cause.kind() {
        io::ErrorKind::NotFound => PerfError::NoProcess(process),
        _ => PerfError::Threads { process, cause },
    };
    let entries = fs::read_dir(format!("/proc/{process}/task")).map_err(failed)?;
    // This directory exists for each thread, too.
    let status = fs::read_to_string(format!("/proc/{process}/status")).map_err(failed)?;
    let leader = status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
    if let Some(leader) = leader.filter(|&leader| leader != process) {
        return Err(PerfError::NotAProcess { thread: process, process: leader });
    }
    let number = |entry: io::Result<fs::DirEntry>| match entry {
        Ok(entry) => entry.file_name().to_str()?.parse().ok().map(Ok),
        Err(error) => Some(Err(error)),
    };
    entries.filter_map(number).collect::<io::Result<_>>().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PmuEvent, Software, Source};
    use std::path::Path;

    /// An event of a PMU that counts only on these CPUs.
    fn of_some_cpus(devices: &Path, pmu: &str, mask: &str) -> Event {
        let folder = devices.join(pmu);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("type"), "9").unwrap();
        fs::write(folder.join("cpumask"), mask).unwrap();
        let [event] = &PmuEvent::matching(devices, pmu, "").unwrap()[..] else {
            panic!("{pmu} is there several times")
        };
        Source::Pmu(event.clone()).into()
    }

    #[test]
    fn a_target_without_a_process_or_a_cpu_is_refused() {
        for target in [
            Target::Cpus(Vec::new()),
            Target::Processes(Vec::new()),
            Target::ProcessesAndChildren(Vec::new()),
        ] {
            assert!(matches!(target.sites(true), Err(PerfError::EmptyTarget)), "{target:?}");
        }
    }

    #[test]
    fn a_process_is_all_of_its_threads() {
        let (send, wait) = std::sync::mpsc::channel::<()>();
        let waiting = std::thread::spawn(move || wait.recv());
        let pid = std::process::id();
        let same = Target::Processes(vec![pid, pid]);
        assert_eq!(same.sites(true).unwrap(), Target::Process(pid).sites(true).unwrap());
        for target in [Target::ThisProcess, Target::Process(pid)] {
            let sites = target.sites(true).unwrap();
            assert!(sites.len() >= 2, "{sites:?}");
            assert!(sites.iter().any(|site| site.thread == Some(pid)), "{sites:?}");
            assert!(sites.iter().all(|site| site.cpu().is_negative() && !site.inherits));
        }
        let cpus = cpus::present().unwrap().len();
        let own = Target::ProcessAndChildren(pid);
        let (by_cpu, whole) = (own.sites(true).unwrap(), own.sites(false).unwrap());
        assert!(by_cpu.len() >= 2 * cpus && by_cpu.len().is_multiple_of(cpus));
        assert!(by_cpu.iter().chain(&whole).all(|site| site.inherits));
        let thread = *threads(pid).unwrap().iter().find(|&&thread| thread != pid).unwrap();
        for target in [Target::Process(thread), Target::ProcessAndChildren(thread)] {
            let error = target.sites(true).unwrap_err();
            assert!(
                matches!(error, PerfError::NotAProcess { process, .. } if process == pid),
                "{error}"
            );
        }
        drop(send);
        let _ = waiting.join();
    }

    #[test]
    fn a_cpu_has_one_site_however_often_it_is_named() {
        let sites = Target::Cpus(vec![1, 0, 1]).sites(false).unwrap();
        let shown: Vec<_> = sites.iter().map(Site::to_string).collect();
        assert_eq!(shown, ["on CPU 0", "on CPU 1"]);
        assert!(sites.iter().all(|site| site.pid() == -1));
        assert_eq!(Target::System.sites(false).unwrap().len(), cpus::online().unwrap().len());
    }

    #[test]
    fn events_of_some_cpus_are_opened_there_unless_another_is_named() {
        let devices = tempfile::tempdir().unwrap();
        let event = |pmu, mask| [of_some_cpus(devices.path(), pmu, mask)];
        let (first, offline) = (event("first", "0,4000"), event("offline", "4000"));
        let cpus = |target: &Target| -> Vec<_> {
            target.sites_of(&first, true).unwrap().iter().map(|site| site.cpu).collect()
        };
        assert_eq!(cpus(&Target::System), [Some(0)]);
        let own = Target::ProcessAndChildren(std::process::id());
        assert!(cpus(&own).iter().all(|cpu| *cpu == Some(0)));
        assert_eq!(cpus(&Target::Cpus(vec![0, 1])), [Some(0)]);
        assert_eq!(cpus(&Target::Cpus(vec![1, 1])), [Some(1)]);
        assert_eq!(cpus(&Target::Cpu(1)), [Some(1)]);
        assert!(Target::Cpus(vec![0, 1]).sites_of(&offline, true).is_err());
        assert!(cpus(&Target::ThisProcess).iter().all(Option::is_none));
        let error = Target::System.sites_of(&offline, true).unwrap_err().to_string();
        assert!(error.contains("offline// can be observed only on the CPUs [4000]"), "{error}");
        // Events that are opened separately need no CPU in common.
        let [second] = event("second", "1");
        let [first] = first;
        let both = [first, second];
        let apart = Target::System.sites_of_each(&both).unwrap();
        let cpus = |sites: &Vec<Site>| sites.iter().map(|site| site.cpu).collect::<Vec<_>>();
        assert_eq!(apart.iter().map(cpus).collect::<Vec<_>>(), [[Some(0)], [Some(1)]]);
        assert!(Target::System.sites_of(&both, true).is_err());
    }

    #[test]
    fn cpus_that_go_online_are_included_as_the_target_and_the_event_say() {
        let everywhere = Event::from(Software::CpuClock);
        for (target, own, other) in [
            (Target::System, true, true),
            (Target::Cpu(5), true, false),
            (Target::Cpus(vec![3, 5]), true, false),
            (Target::ThisProcess, false, false),
            (Target::ProcessAndChildren(1), false, false),
        ] {
            assert_eq!(target.includes(5, &everywhere), own, "{target:?}");
            assert_eq!(target.includes(4000, &everywhere), other, "{target:?}");
            assert_eq!(target.is_of_cpus(), own, "{target:?}");
        }
    }

    #[test]
    fn a_thread_that_cannot_exist_is_an_error() {
        for thread in [0, MOST + 1, u32::MAX] {
            let error = Target::Thread(thread).sites(false).unwrap_err();
            assert_eq!(error.to_string(), format!("there is no thread {thread}"));
        }
        assert!(Target::Thread(MOST).sites(false).is_ok());
    }

    #[test]
    fn a_process_that_does_not_exist_is_an_error() {
        let error = Target::Process(u32::MAX >> 1).sites(false).unwrap_err();
        assert!(matches!(error, PerfError::NoProcess(_)), "{error}");
    }
}
