//! Of whom.

use super::error::PerfError;
use super::event::Event;
use super::place::Place;
use crate::cpus;
use std::collections::BTreeSet;
use std::fs;
use std::io;

/// Of whom an event is observed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Scope {
    /// This process: all threads that it has when the event is opened.
    ThisProcess,
    /// A thread, by its id.
    Thread(u32),
    /// A process, by its id: all threads that it has when the event is opened.
    Process(u32),
    /// A process, and the threads and processes that it makes from then on.
    ProcessAndChildren(u32),
    /// Whatever a CPU runs.
    Cpu(u32),
    /// Whatever these CPUs run.
    Cpus(Vec<u32>),
    /// Whatever all CPUs run: those that are online when the event is opened, and, for a
    /// [`Sampler`](super::Sampler), those that come later.
    System,
}

impl Scope {
    /// Where these events are opened, together: those of its [places](Self::places) where all of them can be
    /// observed. CPUs that are named are taken as they are.
    pub(super) fn places_of(
        &self,
        events: &[Event],
        by_cpu: bool,
    ) -> Result<Vec<Place>, PerfError> {
        let mut places = self.places(by_cpu)?;
        events.iter().try_for_each(|event| self.keep_observed(&mut places, event))?;
        Ok(places)
    }

    /// The same of each of these events for itself.
    pub(super) fn places_of_each(
        &self,
        events: &[Event],
        by_cpu: bool,
    ) -> Result<Vec<Vec<Place>>, PerfError> {
        let places = self.places(by_cpu)?;
        let of = |event| {
            let mut own = places.clone();
            self.keep_observed(&mut own, event)?;
            Ok(own)
        };
        events.iter().map(of).collect()
    }

    /// Leaves out where an event cannot be observed.
    fn keep_observed(&self, places: &mut Vec<Place>, event: &Event) -> Result<(), PerfError> {
        let Some(cpus) = event.cpus().filter(|_| !matches!(self, Self::Cpu(_) | Self::Cpus(_)))
        else {
            return Ok(());
        };
        places.retain(|place| place.cpu.is_none_or(|cpu| cpus.contains(&cpu)));
        if places.is_empty() {
            return Err(PerfError::NoCpu { event: event.described(), cpus: cpus.to_vec() });
        }
        Ok(())
    }

    /// Whether it is of CPUs, and not of threads.
    pub(super) fn is_of_cpus(&self) -> bool {
        matches!(self, Self::Cpu(_) | Self::Cpus(_) | Self::System)
    }

    /// Whether this event is observed on a CPU, too, that has come later.
    pub(super) fn takes_in(&self, cpu: u32, event: &Event) -> bool {
        match self {
            Self::Cpu(own) => *own == cpu,
            Self::Cpus(own) => own.contains(&cpu),
            Self::System => event.is_observed_on(cpu),
            _ => false,
        }
    }

    /// Where events of it are opened, each of them once. `by_cpu`: those that are inherited have an event for
    /// each CPU, as the kernel wants it of those that have a ring. They have it from the beginning also for CPUs that
    /// are offline: what is made until these come inherits no event that is opened then.
    pub(crate) fn places(&self, by_cpu: bool) -> Result<Vec<Place>, PerfError> {
        Ok(match self {
            Self::ThisProcess => Self::Process(std::process::id()).places(by_cpu)?,
            &Self::Thread(thread) => vec![Place::of_thread(thread)],
            &Self::Process(process) => {
                threads(process)?.into_iter().map(Place::of_thread).collect()
            }
            &Self::ProcessAndChildren(process) => {
                let cpus = by_cpu.then(present).transpose()?;
                let places = |thread| {
                    let whole = Place { inherits: true, ..Place::of_thread(thread) };
                    let on = move |(cpu, is_offline)| Place { cpu: Some(cpu), is_offline, ..whole };
                    match &cpus {
                        Some(cpus) => cpus.iter().copied().map(on).collect(),
                        None => vec![whole],
                    }
                };
                threads(process)?.into_iter().flat_map(places).collect()
            }
            &Self::Cpu(cpu) => Self::Cpus(vec![cpu]).places(by_cpu)?,
            Self::Cpus(cpus) => {
                let (cpus, online) = (cpus.iter().copied().collect::<BTreeSet<_>>(), online()?);
                if let Some(&cpu) = cpus.iter().find(|cpu| !online.contains(cpu)) {
                    return Err(PerfError::CpuOffline { cpu, online });
                }
                cpus.into_iter().map(Place::on_cpu).collect()
            }
            Self::System => online()?.into_iter().map(Place::on_cpu).collect(),
        })
    }
}

fn online() -> Result<Vec<u32>, PerfError> {
    cpus::online().map_err(|source| PerfError::Cpus { source })
}

/// The CPUs that there are, and whether each of them is offline.
fn present() -> Result<Vec<(u32, bool)>, PerfError> {
    let online = online()?;
    let present = cpus::present().map_err(|source| PerfError::Cpus { source })?;
    Ok(present.into_iter().map(|cpu| (cpu, !online.contains(&cpu))).collect())
}

/// The threads that a process has.
fn threads(process: u32) -> Result<Vec<u32>, PerfError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => PerfError::NoProcess { process },
        _ => PerfError::Threads { process, source },
    };
    let entries = fs::read_dir(format!("/proc/{process}/task")).map_err(failed)?;
    let number = |entry: io::Result<fs::DirEntry>| match entry {
        Ok(entry) => entry.file_name().to_str()?.parse().ok().map(Ok),
        Err(error) => Some(Err(error)),
    };
    entries.filter_map(number).collect::<io::Result<_>>().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::{PmuEvent, Software, Source};
    use std::path::Path;

    /// An event of a PMU that counts on these CPUs alone.
    fn of_some_cpus(devices: &Path, pmu: &str, mask: &str) -> Event {
        let folder = devices.join(pmu);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("type"), "9").unwrap();
        fs::write(folder.join("cpumask"), mask).unwrap();
        let [event] = &PmuEvent::matching_in(devices, pmu, "").unwrap()[..] else {
            panic!("{pmu} is there several times")
        };
        Source::Pmu(event.clone()).into()
    }

    #[test]
    fn a_process_is_all_of_its_threads() {
        let (send, wait) = std::sync::mpsc::channel::<()>();
        let waiting = std::thread::spawn(move || wait.recv());
        let pid = std::process::id();
        for scope in [Scope::ThisProcess, Scope::Process(pid)] {
            let places = scope.places(true).unwrap();
            assert!(places.len() >= 2, "{places:?}");
            assert!(places.iter().any(|place| place.thread == Some(pid)), "{places:?}");
            assert!(places.iter().all(|place| place.cpu().is_negative() && !place.inherits));
        }
        let cpus = cpus::present().unwrap().len();
        let own = Scope::ProcessAndChildren(pid);
        let (by_cpu, whole) = (own.places(true).unwrap(), own.places(false).unwrap());
        assert!(by_cpu.len() >= 2 * cpus && by_cpu.len().is_multiple_of(cpus));
        assert!(by_cpu.iter().chain(&whole).all(|place| place.inherits));
        drop(send);
        let _ = waiting.join();
    }

    #[test]
    fn a_cpu_comes_once() {
        let places = Scope::Cpus(vec![1, 0, 1]).places(false).unwrap();
        let shown: Vec<_> = places.iter().map(Place::to_string).collect();
        assert_eq!(shown, ["on CPU 0", "on CPU 1"]);
        assert!(places.iter().all(|place| place.pid() == -1));
        assert_eq!(Scope::System.places(false).unwrap().len(), cpus::online().unwrap().len());
    }

    #[test]
    fn events_of_some_cpus_are_opened_there_unless_others_are_named() {
        let devices = tempfile::tempdir().unwrap();
        let event = |pmu, mask| [of_some_cpus(devices.path(), pmu, mask)];
        let (first, gone) = (event("first", "0,4000"), event("gone", "4000"));
        let cpus = |scope: &Scope| -> Vec<_> {
            scope.places_of(&first, true).unwrap().iter().map(|place| place.cpu).collect()
        };
        assert_eq!(cpus(&Scope::System), [Some(0)]);
        let own = Scope::ProcessAndChildren(std::process::id());
        assert!(cpus(&own).iter().all(|cpu| *cpu == Some(0)));
        assert_eq!(cpus(&Scope::Cpus(vec![1])), [Some(1)]);
        assert!(cpus(&Scope::ThisProcess).iter().all(Option::is_none));
        let error = Scope::System.places_of(&gone, true).unwrap_err().to_string();
        assert!(error.contains("gone// is observed on the CPUs [4000] alone"), "{error}");
        // Events that are opened by themselves need no CPU in common.
        let [second] = event("second", "1");
        let [first] = first;
        let both = [first, second];
        let apart = Scope::System.places_of_each(&both, true).unwrap();
        let cpus = |places: &Vec<Place>| places.iter().map(|place| place.cpu).collect::<Vec<_>>();
        assert_eq!(apart.iter().map(cpus).collect::<Vec<_>>(), [[Some(0)], [Some(1)]]);
        assert!(Scope::System.places_of(&both, true).is_err());
    }

    #[test]
    fn cpus_that_come_later_are_those_of_the_scope_and_the_events() {
        let everywhere = Event::from(Software::CpuClock);
        for (scope, own, other) in [
            (Scope::System, true, true),
            (Scope::Cpu(5), true, false),
            (Scope::Cpus(vec![3, 5]), true, false),
            (Scope::ThisProcess, false, false),
            (Scope::ProcessAndChildren(1), false, false),
        ] {
            assert_eq!(scope.takes_in(5, &everywhere), own, "{scope:?}");
            assert_eq!(scope.takes_in(4000, &everywhere), other, "{scope:?}");
            assert_eq!(scope.is_of_cpus(), own, "{scope:?}");
        }
    }

    #[test]
    fn nobody_has_no_threads() {
        let error = Scope::Process(u32::MAX >> 1).places(false).unwrap_err();
        assert!(matches!(error, PerfError::NoProcess { .. }), "{error}");
    }
}
