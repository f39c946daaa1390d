//! What a forked child has of its parent's perf events: the descriptors, and nothing that is mapped.

#[path = "suite/child.rs"]
mod child;

use child::in_child;
use probe_user::perf::{Clock, Counter, Event, ReadBy, Sampler, Scope, Software};
use rustix::thread::gettid;
use std::hint::black_box;
use std::time::Duration;

fn this_thread() -> Scope {
    Scope::Thread(gettid().as_raw_nonzero().get().cast_unsigned())
}

fn touch(pages: usize) {
    let memory = vec![1u8; pages * rustix::param::page_size()];
    black_box(&memory);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_child_is_told_that_it_has_no_samples_and_takes_none() {
    let builder = Sampler::builder().event(Software::PageFaults).scope(this_thread());
    let mut sampler = Some(builder.open().unwrap());
    sampler.as_mut().unwrap().enable().unwrap();
    touch(100);
    sampler.as_mut().unwrap().disable().unwrap();
    let is_told = in_child(|| {
        let mut sampler = sampler.take().unwrap();
        let waited = sampler.next_blocking(Some(Duration::ZERO)).map(drop);
        let is_told = waited.is_err_and(|error| error.to_string().contains("forked"));
        let has_none = sampler.next_record().is_none();
        let counts = sampler.counts().map(|counts| counts.records);
        drop(sampler);
        is_told && has_none && counts.is_ok_and(|records| records == 0)
    });
    assert!(is_told);
    let mut sampler = sampler.unwrap();
    while sampler.next_record().is_some() {}
    let counts = sampler.counts().unwrap();
    assert!(counts.samples >= 100 && counts.lost == 0 && counts.malformed == 0, "{counts:?}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_child_reads_its_parents_counter_by_the_kernel() {
    let event: Event = "page-faults".parse().unwrap();
    let counter = Counter::open(&event, &this_thread()).unwrap();
    counter.enable().unwrap();
    touch(100);
    counter.disable().unwrap();
    let counted = counter.read().unwrap();
    assert!(counted.value > 0, "{counted:?}");
    let page = counter.control_page().expect("it is of one thread");
    assert!(page.snapshot().is_some());
    let reads = in_child(|| {
        let by_the_kernel =
            matches!(counter.read_here(), Ok((reading, ReadBy::SystemCall)) if reading == counted);
        let (_, clock) = counter.time();
        let page_is_there = page.snapshot().is_some() || page.since_written().is_some();
        by_the_kernel && matches!(clock, Clock::Monotonic) && !page_is_there
    });
    assert!(reads);
    assert!(page.snapshot().is_some());
}
