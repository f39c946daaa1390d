//! Other perf users of a hook, which count and sample while the tracer is attached, see every hit.

use crate::probe::commands::own;
use probe_perf::{Counter, Event, Sampler, Target};
use probe_tracer::{Info, Tracer, TracerBuilder};
use probe_user::Consumer;
use probe_user::common::RawRecord;
use rustix::thread::gettid;
use std::fs;
use std::hint::black_box;
use std::io::Write;
use std::ops::ControlFlow;

const HITS: u64 = 100;

/// A probe in a file of tracefs, as `perf probe` makes it. All processes share these files: the probe
/// has this process's number in its name, and only that line is removed.
pub(crate) struct TracefsProbe {
    file: String,
    name: String,
}

impl TracefsProbe {
    /// `file` is `kprobe_events` or `uprobe_events`. `location` is the definition that follows the
    /// name.
    pub(crate) fn new(file: &str, name: &str, location: &str) -> Self {
        let file = format!("/sys/kernel/tracing/{file}");
        let name = format!("probe_bystander/{name}_{}", std::process::id());
        let probe = Self { file, name };
        probe.write(&format!("p:{} {location}", probe.name));
        probe
    }

    /// Its group and its name, as tracefs has them.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn event(&self) -> String {
        self.name.replace('/', ":")
    }

    fn write(&self, line: &str) {
        let mut file = fs::OpenOptions::new().append(true).open(&self.file).unwrap();
        file.write_all(line.as_bytes()).unwrap_or_else(|error| panic!("{line}: {error}"));
    }
}

impl Drop for TracefsProbe {
    fn drop(&mut self) {
        self.write(&format!("-:{}", self.name));
    }
}

/// Asserts that a counter and a sampler of this thread see each hit of `event` that `work` causes.
#[track_caller]
fn assert_sees_every_hit(event: &str, beside: &str, mut work: impl FnMut()) {
    let target = Target::Thread(gettid().as_raw_nonzero().get() as u32);
    let event: Event = event.parse().unwrap();
    let counter = Counter::open(&event, &target).unwrap();
    let mut sampler = Sampler::builder().event(event.clone()).target(target).open().unwrap();
    counter.enable().unwrap();
    sampler.enable().unwrap();
    (0..HITS).for_each(|_| work());
    sampler.disable().unwrap();
    counter.disable().unwrap();
    let mut sampled = 0;
    while let Some(record) = sampler.next_record() {
        record.unwrap();
        sampled += 1;
    }
    let counted = counter.read().unwrap().value;
    assert_eq!((counted, sampled), (HITS, HITS), "{event:?} counted and sampled {beside}");
}

/// Asserts that the event's other users see every hit next to each kind of trace, including traces
/// that filter this thread out.
#[track_caller]
pub(crate) fn assert_undisturbed(event: &str, spec: &str, work: impl Fn()) {
    assert_sees_every_hit(event, "before the tracer", &work);
    let builder = || Tracer::builder().probe(spec.parse().unwrap());
    let of_init = |builder: TracerBuilder| builder.target(probe_tracer::Target::Process(1));
    let traces =
        [builder(), of_init(builder()), builder().named("nobody"), builder().user_stacks()];
    for (at, builder) in traces.into_iter().enumerate() {
        let _tracer = builder.attach().unwrap();
        assert_sees_every_hit(event, &format!("beside trace {at} of {spec}"), &work);
    }
    for (at, builder) in [builder(), of_init(builder())].into_iter().enumerate() {
        let _counter = builder.count_with(|_| ()).unwrap();
        assert_sees_every_hit(event, &format!("beside count {at} of {spec}"), &work);
    }
    assert_sees_every_hit(event, "after the tracer", &work);
}

/// Leaves every event to the ledger.
pub(crate) struct Nobody;

impl Consumer for Nobody {
    fn record(&mut self, _: u32, _: RawRecord<'_>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

/// Asserts that tracers of the same hook have every hit of this process, whatever else is attached there: events, counts,
/// and a trace of another process.
#[track_caller]
pub(crate) fn assert_tracers_agree(spec: &str, work: impl Fn()) {
    let own = probe_tracer::Target::Process(std::process::id());
    let of = |target| Tracer::builder().probe(spec.parse().unwrap()).target(target);
    let stranger = of(probe_tracer::Target::Process(1)).attach().unwrap();
    let tracers = [(); 2].map(|()| of(own).attach().unwrap());
    let counter = of(own).count_with(|_| ()).unwrap();
    (0..HITS).for_each(|_| work());
    let counts = counter.close().unwrap();
    assert_eq!(counts.probes[0].1.hits, HITS, "{spec}");
    let ledgers = tracers.map(|tracer| tracer.close(&mut Nobody).unwrap());
    for ledger in ledgers {
        let handled = ledger.records.entries.iter().map(|entry| entry.handled).sum::<u64>();
        assert_eq!((handled, ledger.records.is_complete()), (HITS, true), "{spec}: {ledger}");
    }
    let ledger = stranger.close(&mut Nobody).unwrap();
    assert!(ledger.records.entries.is_empty(), "{spec}: {ledger}");
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn bystander_fixture(number: u64) -> u64 {
    black_box(number)
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn another_user_of_a_tracepoint_sees_every_hit() {
    let event = "syscalls:sys_enter_getppid";
    let call = || _ = rustix::process::getppid();
    assert_undisturbed(event, &format!("tracepoint:{event}"), call);
    assert_undisturbed(event, &format!("tracepoint:{event}/comm == \"nobody\"/"), call);
    let _calls = Tracer::builder()
        .probe(format!("tracepoint:{event}").parse().unwrap())
        .calls()
        .attach()
        .unwrap();
    for event in [event, "syscalls:sys_exit_getppid"] {
        assert_sees_every_hit(event, "beside a trace of calls", call);
    }
    let event = "sched:sched_process_fork";
    let fork = || std::thread::spawn(|| ()).join().unwrap();
    assert_undisturbed(event, &format!("tracepoint:{event}"), fork);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn another_user_of_a_uprobe_sees_every_hit() {
    let spec = format!("uprobe:{}:bystander_fixture", own());
    let place = Info::of(&spec.parse().unwrap()).unwrap().place.unwrap();
    let location = format!("{}:{:#x}", place.file.display(), place.offset);
    let event = TracefsProbe::new("uprobe_events", "fixture", &location);
    assert_undisturbed(&event.event(), &spec, || {
        assert_eq!(bystander_fixture(1), 1);
    });
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn tracers_of_the_same_hook_see_every_hit() {
    let call = || _ = rustix::process::getppid();
    assert_tracers_agree("tracepoint:syscalls:sys_enter_getppid", call);
    let number = libc::SYS_getppid;
    assert_tracers_agree(&format!("rawtp:sys_enter/id == {number}/"), call);
    assert_tracers_agree(&format!("uprobe:{}:bystander_fixture", own()), || {
        assert_eq!(bystander_fixture(1), 1);
    });
}
