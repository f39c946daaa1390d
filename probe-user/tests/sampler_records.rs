//! Records of the kernel that are neither of tasks nor of mappings, and fields of samples that others seldom ask for:
//! of what is known to happen.
//!
//! No kernel writes all of them without hardware: there are no branches, no AUX data, and no samples that were lost in
//! hardware. What of those perf says, `perf_dump.rs` has; AUX records, `aux_area.rs`.

mod cgroup;
mod sampled;
mod suite;

use cgroup::Cgroup;
use probe_user::perf::record::{Body, ReadFormat, Record, Sample, SampleType, Switch, Throttled};
use probe_user::perf::{Flags, Sampler, SamplerBuilder, Scope, Software};
use rustix::thread::gettid;
use sampled::sampled;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};
use suite::switches::waits;
use suite::version::kernel;

const PAGE: u64 = 4096;
/// More than a test takes: nothing waits that long unless something is wrong.
const LONG: Duration = Duration::from_secs(60);

/// Whether the kernel is one of those that have something. Says so if it is not.
fn has(what: &str, since: (u32, u32)) -> bool {
    let is_new_enough = kernel() >= since;
    if !is_new_enough {
        eprintln!("skipped: {what} is there since {}.{}", since.0, since.1);
    }
    is_new_enough
}

fn this_thread() -> Scope {
    Scope::Thread(gettid().as_raw_nonzero().get() as u32)
}

fn dummy(flags: Flags) -> SamplerBuilder {
    Sampler::builder().event(Software::Dummy).flags(flags)
}

/// What the records say of what is done meanwhile.
fn during<T>(
    builder: &SamplerBuilder,
    action: impl FnOnce(),
    mut say: impl FnMut(&Record<'_>) -> Option<T>,
) -> Vec<T> {
    let mut sampler = builder.open().unwrap();
    sampler.enable().unwrap();
    action();
    sampler.disable().unwrap();
    let mut said = Vec::new();
    while let Some(record) = sampler.next_record() {
        said.extend(say(&record.unwrap()));
    }
    let counts = sampler.counts().unwrap();
    assert_eq!((counts.lost, counts.malformed), (0, 0));
    said
}

/// Pages of fresh memory, each written to.
struct Touched(Vec<u8>);

impl Touched {
    /// More than the allocator keeps for later use: it is always fresh.
    const LEN: usize = 64 << 20;

    fn new(pages: usize) -> Self {
        // Pages of the usual size, so that each is touched by itself.
        rustix::thread::disable_transparent_huge_pages(true).unwrap();
        let mut memory = Vec::with_capacity(Self::LEN);
        let spare: &mut [_] = memory.spare_capacity_mut();
        spare.iter_mut().step_by(PAGE as usize).take(pages).for_each(|byte| {
            byte.write(1);
        });
        Self(memory)
    }

    fn has(&self, addr: u64) -> bool {
        let begin = self.0.as_ptr().addr() as u64;
        (begin..begin + Self::LEN as u64).contains(&addr)
    }
}

/// A file of the kernel that is as it was when this is gone.
struct Setting {
    path: &'static str,
    before: String,
}

impl Setting {
    fn set(path: &'static str, value: &str) -> Self {
        let setting = Self { path, before: std::fs::read_to_string(path).unwrap() };
        std::fs::write(path, value).unwrap();
        setting
    }
}

impl Drop for Setting {
    fn drop(&mut self) {
        std::fs::write(self.path, &self.before).unwrap();
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_program_that_is_loaded_and_unloaded_has_records() {
    const LOADED: u16 = 1;
    const UNLOADED: u16 = 2;
    #[derive(Debug, PartialEq)]
    enum Said {
        Program { kind: u16, id: u32, tag: [u8; 8] },
        Symbol { is_gone: bool, kind: u16, name: String, addr: u64, len: u32 },
    }
    let mut known = None;
    let load_and_unload = || {
        let mut object = suite::load();
        let program = suite::classifier(&mut object, "emit_nothing");
        let info = program.info().unwrap();
        let (id, tag) = (info.id(), info.tag().to_be_bytes());
        let name =
            format!("bpf_prog_{}_emit_nothing", tag.map(|byte| format!("{byte:02x}")).concat());
        let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap();
        // `ADDRESS t NAME [bpf]`
        let is_it = |line: &&str| line.split_ascii_whitespace().nth(2) == Some(name.as_str());
        let own = symbols.lines().filter(is_it).map(|line| line.split(' ').next().unwrap());
        let addrs: Vec<_> = own.map(|addr| u64::from_str_radix(addr, 16).unwrap()).collect();
        known = Some((id, tag, name, addrs));
    };
    // Unloading may be done by a thread of the kernel.
    let builder = dummy(Flags::KSYMBOL | Flags::BPF_EVENT).scope(Scope::System);
    let said = during(&builder, load_and_unload, |record| match record.body {
        Body::BpfEvent { kind, flags, id, tag } => {
            assert_eq!(flags, 0);
            Some(Said::Program { kind, id, tag })
        }
        Body::Ksymbol { addr, len, kind, is_gone, name } => {
            let name = String::from_utf8(name.to_vec()).unwrap();
            Some(Said::Symbol { is_gone, kind, name, addr, len })
        }
        ref other => panic!("{other:?}"),
    });
    let (id, tag, name, addrs) = known.unwrap();
    for kind in [LOADED, UNLOADED] {
        let own = said.iter().filter(|one| **one == Said::Program { kind, id, tag });
        assert_eq!(own.count(), 1, "{kind} of {id}: {said:?}");
    }
    // Others may load the same program: its own symbol stands before it. Who wrote it is not asked: where several events
    // are told of a symbol, the ids at a record's end are zeros in all but one (seen on 6.18).
    let symbol = |event, is_gone| {
        let end =
            said.iter().position(|one| *one == Said::Program { kind: event, id, tag }).unwrap();
        let symbol = said[..end].iter().rev().find_map(|one| match one {
            Said::Symbol { is_gone: own, kind, name: called, addr, len }
                if *called == name && *own == is_gone =>
            {
                Some((*kind, *addr, *len))
            }
            _ => None,
        });
        symbol.unwrap_or_else(|| panic!("{name}: {said:?}"))
    };
    let (kind, at, len) = symbol(LOADED, false);
    assert_eq!(kind, 1);
    assert_eq!(symbol(UNLOADED, true), (kind, at, len));
    assert!(len > 0);
    assert!(addrs.contains(&at), "{at:x} and {addrs:x?}");
}

/// By which the kernel knows a cgroup.
fn inode(cgroup: &Path) -> u64 {
    cgroup.metadata().unwrap().ino()
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_cgroup_that_is_made_has_a_record() {
    const NAME: &str = "probe-test-records";
    Cgroup::let_perf_events_know();
    for scope in [this_thread(), Scope::System] {
        let mut cgroup = None;
        let builder = dummy(Flags::CGROUP).scope(scope);
        let made = during(
            &builder,
            || cgroup = Some(Cgroup::new(NAME)),
            |record| {
                let Body::Cgroup { id, path } = record.body else { return None };
                Some((id, String::from_utf8(path.to_vec()).unwrap()))
            },
        );
        let cgroup = cgroup.unwrap();
        let expected = [
            (inode(&cgroup.path()), format!("/{NAME}")),
            (inode(&cgroup.inner()), format!("/{NAME}/inner")),
        ];
        let own: Vec<_> =
            made.into_iter().filter(|(_, path)| path[1..].starts_with(NAME)).collect();
        assert_eq!(own, expected);
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn samples_tell_the_cgroup() {
    Cgroup::let_perf_events_know();
    let cgroup = Cgroup::new("probe-test-samples");
    let procs = cgroup.inner().join("cgroup.procs");
    let script = format!("echo $$ > {} && exec /bin/true", procs.display());
    let told = SampleType::CGROUP | SampleType::TIME;
    let faults = Sampler::builder().event(Software::PageFaults).sample(told);
    let (mut samples, mut moved) = (Vec::new(), None);
    sampled(faults.flags(Flags::COMM | Flags::COMM_EXEC), &["sh", "-c", &script], |record| {
        match record.body {
            Body::Sample(sample) => samples.push((sample.time, sample.cgroup.unwrap())),
            // The shell has not been moved yet; the next program has.
            Body::Comm { is_exec: true, comm: b"true", .. } => moved = record.ids.time,
            _ => {}
        }
    });
    assert!(moved.is_some());
    // Each CPU has a ring: samples of the shell may be read after the next program's.
    samples.retain(|&(time, _)| time > moved);
    assert!(samples.len() >= 10, "{samples:?}");
    let all: BTreeSet<_> = samples.into_iter().map(|(_, cgroup)| cgroup).collect();
    assert_eq!(all, BTreeSet::from([inode(&cgroup.inner())]));
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn code_that_the_kernel_changes_has_records() {
    // A kernel that is built to be a guest of PVM.
    let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap();
    if symbols.lines().any(|line| line.ends_with(" pvm_error_entry")) {
        return eprintln!("skipped: a guest of PVM tells of no code that it changes");
    }
    // Tracepoints are switched on by changing code. Nobody else watches this one.
    let watch = || {
        let event: probe_user::perf::Event = "task:task_rename".parse().unwrap();
        Sampler::builder().event(event).scope(this_thread()).open().unwrap()
    };
    let pokes = |record: &Record<'_>| match record.body {
        Body::TextPoke { addr, old, new } => {
            assert_eq!(old.len(), new.len());
            assert_ne!(old, new);
            // In the kernel's half.
            assert!(addr >> 63 == 1 && !old.is_empty() && old.len() <= 16, "{record:?}");
            Some((addr, old.to_vec(), new.to_vec()))
        }
        ref other => panic!("{other:?}"),
    };
    let builder = dummy(Flags::TEXT_POKE).scope(this_thread());
    let mut watching = None;
    let on = during(&builder, || watching = Some(watch()), pokes);
    let off = during(&builder, || drop(watching.take()), pokes);
    assert!(!on.is_empty(), "nothing was changed");
    // Nothing is done, until there is a jump to where the tracepoint is hit.
    let is_jump = |code: &[u8]| matches!(code, [0xe9 | 0xeb, ..]);
    let is_switched = |(addr, old, new): &(u64, Vec<u8>, Vec<u8>)| {
        let undone = (*addr, new.clone(), old.clone());
        !is_jump(old) && is_jump(new) && off.contains(&undone)
    };
    assert!(on.iter().any(is_switched), "{on:x?}, then {off:x?}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn what_is_too_fast_is_throttled_and_goes_on() {
    const RATE: &str = "/proc/sys/kernel/perf_event_max_sample_rate";
    let clock = Sampler::builder().event(Software::CpuClock).period(50_000).scope(this_thread());
    let mut sampler = clock.open().unwrap();
    let ids = sampler.ids().clone();
    let _rate = Setting::set(RATE, "1000");
    sampler.enable().unwrap();
    let begin = Instant::now();
    let (mut throttled, mut unthrottled) = (Vec::new(), Vec::new());
    while unthrottled.len() < 3 {
        assert!(begin.elapsed() < LONG, "{throttled:?}, {unthrottled:?}");
        while let Some(record) = sampler.next_record() {
            let record = record.unwrap();
            match record.body {
                Body::Throttle(this) => throttled.push((this, record.ids)),
                Body::Unthrottle(this) => unthrottled.push((this, record.ids)),
                _ => {}
            }
        }
    }
    sampler.disable().unwrap();
    assert!(sampler.counts().unwrap().throttled >= throttled.len() as u64);
    for (Throttled { time, id, stream_id, .. }, at_end) in throttled.iter().chain(&unthrottled) {
        assert!(ids.contains_key(id) && id == stream_id);
        assert_eq!(at_end.id, Some(*id));
        // One is taken right after the other.
        assert!(
            (*time..time + 1_000_000_000).contains(&at_end.time.unwrap()),
            "{time}: {at_end:?}"
        );
    }
    // Each is silent before it goes on.
    for ((before, _), (after, _)) in throttled.iter().zip(&unthrottled) {
        assert!(before.time < after.time);
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn what_a_full_ring_has_lost_the_next_record_tells() {
    let small = Sampler::builder().event(Software::PageFaults).bytes_per_ring(PAGE as usize);
    let mut sampler = small.scope(this_thread()).open().unwrap();
    sampler.enable().unwrap();
    Touched::new(300);
    let mut samples = 0u64;
    while let Some(record) = sampler.next_record() {
        let body = record.unwrap().body;
        assert!(matches!(body, Body::Sample(_)), "{body:?}");
        samples += 1;
    }
    assert!((10..100).contains(&samples), "{samples}");
    // There is room again.
    Touched::new(8);
    sampler.disable().unwrap();
    let ids = sampler.ids().clone();
    let mut told = Vec::new();
    while let Some(record) = sampler.next_record() {
        match record.unwrap().body {
            Body::Lost { id, lost } => told.push((id, lost)),
            Body::Sample(_) => {}
            other => panic!("{other:?}"),
        }
    }
    let [(id, lost)] = told[..] else { panic!("{told:?}") };
    assert!(ids.contains_key(&id));
    assert!(lost + samples >= 290, "{lost} were lost, and {samples} not");
    assert_eq!(sampler.counts().unwrap().lost, lost);
}

/// Samples of memory that is written to for the first time, where it is.
fn first_writes(builder: SamplerBuilder, pages: usize, mut each: impl FnMut(&Sample<'_>)) {
    // Told when the page is there.
    let minor = builder.event(Software::MinorFaults).sample(SampleType::ADDR).scope(this_thread());
    let mut sampler = minor.open().unwrap();
    sampler.enable().unwrap();
    let touched = Touched::new(pages);
    sampler.disable().unwrap();
    let mut count = 0;
    while let Some(record) = sampler.next_record() {
        let Body::Sample(sample) = record.unwrap().body else { continue };
        if touched.has(sample.addr.unwrap()) {
            each(&sample);
            count += 1;
        }
    }
    assert!(count >= pages - 1, "{count} of {pages}");
}

/// Where a page of this process is, as the kernel says.
fn physical(addr: u64) -> u64 {
    const PRESENT: u64 = 1 << 63;
    const FRAME: u64 = (1 << 55) - 1;
    let mut pagemap = std::fs::File::open("/proc/self/pagemap").unwrap();
    pagemap.seek(SeekFrom::Start(addr / PAGE * 8)).unwrap();
    let mut entry = [0; 8];
    pagemap.read_exact(&mut entry).unwrap();
    let entry = u64::from_ne_bytes(entry);
    assert_ne!(entry & PRESENT, 0);
    (entry & FRAME) * PAGE + addr % PAGE
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn samples_tell_where_memory_is_and_that_software_has_no_weight() {
    let fields =
        SampleType::PHYS_ADDR | SampleType::WEIGHT | SampleType::DATA_SRC | SampleType::TRANSACTION;
    let ip = 8;
    let builder = Sampler::builder().sample(fields).interrupted_registers(1 << ip | 1);
    first_writes(builder, 64, |sample| {
        let addr = sample.addr.unwrap();
        assert_eq!(sample.phys_addr, Some(physical(addr)), "{addr:#x}");
        assert_eq!((sample.weight, sample.transaction), (Some(0), Some(0)));
        // Each part of it says that nothing is known; newer kernels have more of them.
        assert_eq!(sample.data_src.unwrap() as u32, 0x0508_0021);
        let regs = sample.regs_intr.unwrap();
        assert_eq!((regs.get(ip), regs.values.len()), (sample.ip, 2));
    });
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn samples_tell_the_sizes_of_pages() {
    if !has("the size of a page", (5, 11)) {
        return;
    }
    let fields = SampleType::DATA_PAGE_SIZE | SampleType::CODE_PAGE_SIZE;
    first_writes(Sampler::builder().sample(fields), 64, |sample| {
        assert_eq!(sample.data_page_size, Some(PAGE));
        let code = sample.code_page_size.unwrap();
        assert!(code >= PAGE && code.is_power_of_two(), "{code}");
    });
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn samples_tell_weights_in_parts() {
    if !has("a weight in parts", (5, 12)) {
        return;
    }
    let builder = Sampler::builder().sample(SampleType::WEIGHT_STRUCT | SampleType::PHYS_ADDR);
    first_writes(builder, 16, |sample| {
        assert_eq!(sample.weights(), Some((0, 0, 0)));
        assert_eq!(sample.phys_addr, Some(physical(sample.addr.unwrap())));
    });
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn samples_tell_the_counter_as_its_group_and_by_itself() {
    let mut format =
        ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING | ReadFormat::ID;
    if has("the count of lost records", (6, 0)) {
        format |= ReadFormat::LOST;
    }
    for format in [format, format | ReadFormat::GROUP, ReadFormat::empty(), ReadFormat::GROUP] {
        let (mut count, mut enabled) = (None, 0);
        first_writes(
            Sampler::builder().counters(format).sample(SampleType::PHYS_ADDR),
            64,
            |sample| {
                let values = sample.values.unwrap();
                let counters: Vec<_> = values.counters().collect();
                let [counter] = counters[..] else { panic!("{values:?}") };
                // Of each page fault, there is a sample.
                assert!(
                    count.is_none_or(|before| counter.value > before),
                    "{values:?} after {count:?}"
                );
                count = Some(counter.value);
                let of = |flag| format.contains(flag);
                assert_eq!(counter.id, of(ReadFormat::ID).then(|| sample.id.unwrap()));
                assert_eq!(counter.lost, of(ReadFormat::LOST).then_some(0));
                assert_eq!(values.time_enabled.is_some(), of(ReadFormat::TOTAL_TIME_ENABLED));
                assert_eq!(values.time_running, values.time_enabled);
                let time = values.time_enabled.unwrap_or(0);
                assert!(time >= enabled && time < LONG.as_nanos() as u64, "{values:?}");
                enabled = time;
                assert_eq!(sample.phys_addr, Some(physical(sample.addr.unwrap())));
            },
        );
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn what_a_thread_has_counted_is_told_when_it_ends() {
    let (mut told, mut faults) = (BTreeMap::<u32, u64>::new(), BTreeMap::<u32, u64>::new());
    let format = ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING | ReadFormat::ID;
    let builder = Sampler::builder().event(Software::PageFaults);
    // With the same in each sample.
    let has_formats = has("the counter in samples of those that are inherited", (6, 12));
    let builder = if has_formats { builder.counters(format) } else { builder };
    let builder = builder.flags(Flags::INHERIT_STAT | Flags::TASK);
    sampled(builder, &["sh", "-c", "/bin/true; /bin/true; :"], |record| match record.body {
        Body::Sample(sample) => *faults.entry(sample.thread.unwrap().tid).or_default() += 1,
        Body::Read { thread, values } => {
            let counter = values.counters().next().unwrap();
            assert_eq!(counter.id.is_some(), has_formats);
            assert_eq!(values.time_enabled.is_some(), has_formats);
            assert!(values.time_running <= values.time_enabled);
            *told.entry(thread.tid).or_default() += counter.value;
        }
        _ => {}
    });
    // 5.10 has them, and 6.18; 6.1 and 6.12 have not.
    if told.is_empty() && ((5, 11)..(6, 18)).contains(&kernel()) {
        return eprintln!("skipped: this kernel does not tell what a thread has counted");
    }
    // The shell's own are not inherited ones: it is the event itself that counts them.
    assert_eq!(told.len(), 2, "{told:?}");
    for (thread, count) in &told {
        assert_eq!(faults.get(thread), Some(count), "{told:?}, {faults:?}");
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_cpu_tells_which_threads_it_switches_between() {
    let cpu = suite::online()[0];
    let builder = dummy(Flags::CONTEXT_SWITCH).scope(Scope::Cpu(cpu)).bytes_per_ring(4 << 20);
    let own = gettid().as_raw_nonzero().get() as u32;
    let mut waited = 0;
    let sleep = || {
        suite::stay_on(cpu);
        let before = waits();
        (0..20).for_each(|_| std::thread::sleep(Duration::from_millis(1)));
        waited = waits() - before;
    };
    let switches = during(&builder, sleep, |record| match record.body {
        Body::SwitchCpuWide { switch, other } => {
            assert_eq!(record.ids.cpu, Some(cpu));
            Some((switch, record.ids.thread.unwrap().tid, other.tid))
        }
        ref other => panic!("{other:?}"),
    });
    // A sleep whose time is over before the thread has left its CPU is no switch.
    assert!(waited > 0, "twenty sleeps, and none of them was long enough");
    // Each switch is told twice: by whom it is away from, and by whom it is to.
    let mut both = 0;
    for pair in switches.windows(2) {
        if let [(Switch::Out { .. }, from, next), (Switch::In, to, before)] = pair {
            assert_eq!((from, next), (before, to));
            both += 1;
        }
    }
    assert!(both >= waited, "{both} of {waited}, in {}", switches.len());
    let slept = switches.iter().filter(|(switch, who, _)| {
        matches!(switch, Switch::Out { is_preempted: false }) && *who == own
    });
    let slept = slept.count();
    assert!(slept >= waited as usize, "{slept} of {waited}");
}
