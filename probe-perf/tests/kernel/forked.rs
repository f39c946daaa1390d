//! What a forked child inherits of its parent's perf events: the descriptors, but no mappings.

use crate::common::{Touched, enabled, event, this_thread};
use probe_perf::{Clock, Counter, ReadBy, Sampler, Software};
use probe_sys::disturb::in_child;
use std::time::Duration;

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_child_learns_that_it_has_no_samples_and_takes_none() {
    let builder = Sampler::builder().event(Software::PageFaults).target(this_thread());
    let mut sampler = Some(enabled(builder));
    Touched::new(100);
    sampler.as_mut().unwrap().disable().unwrap();
    let child = in_child(|| {
        let mut sampler = sampler.take().unwrap();
        let waited = sampler.next_blocking(Some(Duration::ZERO)).map(drop);
        let is_refused = |error: probe_perf::PerfError| error.to_string().contains("forked");
        let is_refused = [waited, sampler.disable(), sampler.enable()]
            .into_iter()
            .all(|done| done.is_err_and(is_refused));
        let has_none = sampler.next_record().is_none();
        let counts = sampler.counts().map(|counts| counts.records);
        drop(sampler);
        u8::from(is_refused && has_none && counts.is_ok_and(|records| records == 0))
    });
    assert_eq!(child.unwrap(), 1);
    let mut sampler = sampler.unwrap();
    while sampler.next_record().is_some() {}
    let counts = sampler.counts().unwrap();
    assert!(counts.samples >= 100 && counts.lost == 0 && counts.malformed == 0, "{counts:?}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_child_reads_its_parents_counter_by_the_kernel() {
    let counter = Counter::open(&event("page-faults"), &this_thread()).unwrap();
    counter.enable().unwrap();
    Touched::new(100);
    counter.disable().unwrap();
    let counted = counter.read().unwrap();
    assert!(counted.value > 0, "{counted:?}");
    let page = counter.control_page().expect("it is of one thread");
    assert!(page.snapshot().is_some());
    let child = in_child(|| {
        let by_the_kernel =
            matches!(counter.read_here(), Ok((reading, ReadBy::SystemCall)) if reading == counted);
        let (_, clock) = counter.time();
        let page_is_there = page.snapshot().is_some() || page.since_written().is_some();
        u8::from(by_the_kernel && matches!(clock, Clock::Monotonic) && !page_is_there)
    });
    assert_eq!(child.unwrap(), 1);
    assert!(page.snapshot().is_some());
}
