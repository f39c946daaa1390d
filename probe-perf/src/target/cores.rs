//! Cores of several kinds, such as performance and efficiency cores. Each kind has a PMU of its own, and the kernel
//! observes an event on one of them only, unless it is opened on a CPU.

use super::{Site, present};
use crate::error::PerfError;
use crate::event::{Event, EventError, pmus_of_cores};

/// The sites at which an event is observed wherever these threads run. With `by_cpu`, a site without a CPU is replaced by one
/// for each CPU; otherwise it is an error for events of the cores.
pub(super) fn cover(sites: Vec<Site>, event: &Event, by_cpu: bool) -> Result<Vec<Site>, PerfError> {
    if !event.is_of_cores() {
        return Ok(sites);
    }
    cover_kinds(pmus_of_cores, sites, event, by_cpu)
}

/// As [`cover`] on a machine where the cores have these PMUs.
fn cover_kinds(
    pmus: impl FnOnce() -> Result<Vec<String>, EventError>,
    sites: Vec<Site>,
    event: &Event,
    by_cpu: bool,
) -> Result<Vec<Site>, PerfError> {
    // Events of CPUs need no look into sysfs.
    if sites.iter().all(|site| site.cpu.is_some()) {
        return Ok(sites);
    }
    let pmus = pmus()?;
    if pmus.len() < 2 {
        return Ok(sites);
    }
    if !by_cpu {
        return Err(PerfError::KindsOfCores { event: event.described(), pmus });
    }
    let cpus = present()?;
    let on_each = |site: Site| cpus.iter().map(move |&cpu| site.on(cpu));
    Ok(sites.into_iter().flat_map(on_each).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::target::Target;

    #[test]
    fn an_event_is_observed_on_all_kinds_of_cores_or_not_at_all() {
        let event = |text: &str| text.parse::<Event>().unwrap();
        let one = || Ok(vec!["armv8_pmuv3".to_owned()]);
        let two = || Ok(["cpu_atom", "cpu_core"].map(str::to_owned).to_vec());
        let thread = || vec![Site::of_thread(7)];
        let cpu = || vec![Site::on_cpu(0)];
        for name in ["cycles", "LLC-load-misses:u", "r3c"] {
            let event = event(name);
            assert_eq!(cover_kinds(one, thread(), &event, false).unwrap(), thread());
            assert_eq!(cover_kinds(two, cpu(), &event, false).unwrap(), cpu());
            let each = cover_kinds(two, thread(), &event, true).unwrap();
            assert!(each.iter().all(|site| site.thread == Some(7) && site.cpu.is_some()));
            assert_eq!(each.len(), present().unwrap().len());
            let refused = cover_kinds(two, thread(), &event, false).unwrap_err().to_string();
            assert!(
                refused.starts_with(&format!("{name} would be observed on one kind")),
                "{refused}"
            );
            assert!(refused.ends_with("as in cpu_atom/EVENT/ or cpu_core/EVENT/"), "{refused}");
        }
        let software = event("page-faults");
        assert_eq!(cover(thread(), &software, true).unwrap(), thread());
        let target = Target::Cpu(0);
        assert_eq!(target.sites_of(&[software], false).unwrap(), cpu());
    }
}
