//! Rarely used record types and sample fields, for known events.
//!
//! Some records need hardware: branches, AUX data and samples lost in hardware. `perf_dump.rs`
//! compares their decoding with perf's, and `aux_area.rs` tests AUX records.

use crate::common::{LONG, PAGE, Touched, drain, enabled, event, sampled, this_thread, thread_id};
use crate::suite;
use probe_perf::record::{Body, ReadFormat, Record, Sample, SampleType, Switch, Throttled};
use probe_perf::{Flags, Sampler, SamplerBuilder, Software, Target};
use probe_testing::cgroup::Cgroup;
use probe_testing::skip::skip;
use probe_testing::switches::waits;
use probe_testing::version::kernel;
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

fn dummy(flags: Flags) -> SamplerBuilder {
    Sampler::builder().event(Software::Dummy).flags(flags)
}

/// Collects what `read` returns for the records written during `action`.
fn during<T>(
    builder: &SamplerBuilder,
    action: impl FnOnce(),
    mut read: impl FnMut(&Record<'_>) -> Option<T>,
) -> Vec<T> {
    let mut sampler = enabled(builder.clone());
    action();
    sampler.disable().unwrap();
    let mut collected = Vec::new();
    drain(&mut sampler, |record| collected.extend(read(record)));
    let counts = sampler.counts().unwrap();
    assert_eq!((counts.lost, counts.malformed), (0, 0));
    collected
}

const MAX_RATE: &str = "/proc/sys/kernel/perf_event_max_sample_rate";

/// The maximum sample rate of the kernel before a test changed it, restored on drop.
struct MaxRate(String);

impl Drop for MaxRate {
    fn drop(&mut self) {
        std::fs::write(MAX_RATE, &self.0).unwrap();
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_program_that_is_loaded_and_unloaded_has_records() {
    const LOADED: u16 = 1;
    const UNLOADED: u16 = 2;
    #[derive(Debug, PartialEq)]
    enum Seen {
        /// An event of a program, its id and tag.
        Program(u16, u32, [u8; 8]),
        /// Whether a symbol is removed, and its name, type, address and length.
        Symbol(bool, String, (u16, u64, u32)),
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
    let builder = dummy(Flags::KSYMBOL | Flags::BPF_EVENT).target(Target::System);
    let seen = during(&builder, load_and_unload, |record| match record.body {
        Body::BpfEvent { kind, flags, id, tag } => {
            assert_eq!(flags, 0);
            Some(Seen::Program(kind, id, tag))
        }
        Body::Ksymbol { addr, len, kind, is_removed, name } => {
            let name = String::from_utf8(name.to_vec()).unwrap();
            Some(Seen::Symbol(is_removed, name, (kind, addr, len)))
        }
        ref other => panic!("{other:?}"),
    });
    let (id, tag, name, addrs) = known.unwrap();
    // Other processes may load the same program, so take the symbol just before ours. The ids are
    // not checked: if several events receive a symbol record, all but one have zeros there (seen on
    // 6.18).
    let symbol = |event, is_removed| {
        let mut programs = (0..seen.len()).filter(|&at| seen[at] == Seen::Program(event, id, tag));
        let (Some(end), None) = (programs.next(), programs.next()) else {
            panic!("expected exactly one event {event} of program {id}: {seen:?}")
        };
        let symbol = seen[..end].iter().rev().find_map(|one| match one {
            Seen::Symbol(removed, own, symbol) if (removed, own) == (&is_removed, &name) => {
                Some(*symbol)
            }
            _ => None,
        });
        symbol.unwrap_or_else(|| panic!("{name}: {seen:?}"))
    };
    let (kind, at, len) = symbol(LOADED, false);
    assert_eq!(kind, 1);
    assert_eq!(symbol(UNLOADED, true), (kind, at, len));
    assert!(len > 0);
    assert!(addrs.contains(&at), "{at:x} and {addrs:x?}");
}

/// The kernel's id of a cgroup.
fn inode(cgroup: &Path) -> u64 {
    cgroup.metadata().unwrap().ino()
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_new_cgroup_has_a_record() {
    Cgroup::let_perf_events_know();
    for target in [this_thread(), Target::System] {
        let mut cgroup = None;
        let create = || cgroup = Some(Cgroup::new("probe-test-records"));
        let made = during(&dummy(Flags::CGROUP).target(target), create, |record| {
            let Body::Cgroup { id, path } = record.body else { return None };
            Some((id, String::from_utf8(path.to_vec()).unwrap()))
        });
        let cgroup = cgroup.unwrap();
        let name = cgroup.name();
        let expected = [
            (inode(&cgroup.path()), format!("/{name}")),
            (inode(&cgroup.inner()), format!("/{name}/inner")),
        ];
        let own: Vec<_> =
            made.into_iter().filter(|(_, path)| path[1..].starts_with(name)).collect();
        assert_eq!(own, expected);
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn new_namespaces_have_a_record() {
    for target in [this_thread(), Target::System] {
        let mut inode = None;
        let unshare = || {
            // SAFETY: this thread still shares its descriptors with the others.
            unsafe { unshare_unsafe(UnshareFlags::NEWUTS) }.unwrap();
            inode = Some(Path::new("/proc/thread-self/ns/uts").metadata().unwrap().ino());
        };
        let builder = dummy(Flags::NAMESPACES).target(target);
        let namespaces = during(&builder, unshare, |record| match record.body {
            Body::Namespaces { thread, links } if thread.tid == thread_id() => {
                Some(links.iter().map(|(_, inode)| inode).collect::<Vec<_>>())
            }
            _ => None,
        });
        let [namespaces] = &namespaces[..] else { panic!("{namespaces:?}") };
        assert!(namespaces.contains(&inode.unwrap()), "{namespaces:?}");
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn samples_have_the_cgroup() {
    Cgroup::let_perf_events_know();
    let cgroup = Cgroup::new("probe-test-samples");
    let procs = cgroup.inner().join("cgroup.procs");
    let script = format!("echo $$ > {} && exec /bin/true", procs.display());
    let fields = SampleType::CGROUP | SampleType::TIME;
    let faults = Sampler::builder().event(Software::PageFaults).sample(fields);
    let (mut samples, mut moved) = (Vec::new(), None);
    sampled(faults.flags(Flags::COMM | Flags::COMM_EXEC), &["sh", "-c", &script], |record| {
        match record.body {
            Body::Sample(sample) => samples.push((sample.time, sample.cgroup.unwrap())),
            // The shell is moved after it starts; the next program starts in the cgroup.
            Body::Comm { is_exec: true, comm: b"true", .. } => moved = record.ids.time,
            _ => {}
        }
    });
    assert!(moved.is_some());
    // Each CPU has its own ring, so samples of the shell may be read after those of the next
    // program.
    samples.retain(|&(time, _)| time > moved);
    assert!(samples.len() >= 10, "{samples:?}");
    let all: BTreeSet<_> = samples.into_iter().map(|(_, cgroup)| cgroup).collect();
    assert_eq!(all, BTreeSet::from([inode(&cgroup.inner())]));
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn code_that_the_kernel_changes_has_records() {
    // The kernel is built as a PVM guest.
    let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap();
    if symbols.lines().any(|line| line.ends_with(" pvm_error_entry")) {
        return skip("a guest of PVM does not report code that it changes");
    }
    // Enabling a tracepoint patches code. Nothing else uses this one.
    let renames = Sampler::builder().event(event("task:task_rename")).target(this_thread());
    let pokes = |record: &Record<'_>| match record.body {
        Body::TextPoke { addr, old, new } => {
            assert_eq!(old.len(), new.len());
            assert_ne!(old, new);
            // Kernel addresses have the highest bit set.
            assert!(addr >> 63 == 1 && !old.is_empty() && old.len() <= 16, "{record:?}");
            Some((addr, old.to_vec(), new.to_vec()))
        }
        ref other => panic!("{other:?}"),
    };
    let builder = dummy(Flags::TEXT_POKE).target(this_thread());
    let mut watching = None;
    let on = during(&builder, || watching = Some(renames.open().unwrap()), pokes);
    let off = during(&builder, || drop(watching.take()), pokes);
    assert!(!on.is_empty(), "nothing was changed");
    // A no-op is replaced with a jump to the tracepoint's handler.
    let is_jump = |code: &[u8]| matches!(code, [0xe9 | 0xeb, ..]);
    let is_switched = |(addr, old, new): &(u64, Vec<u8>, Vec<u8>)| {
        let undone = (*addr, new.clone(), old.clone());
        !is_jump(old) && is_jump(new) && off.contains(&undone)
    };
    assert!(on.iter().any(is_switched), "{on:x?}, then {off:x?}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn an_event_that_is_too_fast_is_throttled_and_goes_on() {
    let clock = Sampler::builder().event(Software::CpuClock).period(50_000).target(this_thread());
    let mut sampler = clock.open().unwrap();
    let ids = sampler.ids().clone();
    let _before = MaxRate(std::fs::read_to_string(MAX_RATE).unwrap());
    std::fs::write(MAX_RATE, "1000").unwrap();
    sampler.enable().unwrap();
    let begin = Instant::now();
    let (mut throttled, mut unthrottled) = (Vec::new(), Vec::new());
    while unthrottled.len() < 3 {
        assert!(begin.elapsed() < LONG, "{throttled:?}, {unthrottled:?}");
        drain(&mut sampler, |record| match record.body {
            Body::Throttle(this) => throttled.push((this, record.ids)),
            Body::Unthrottle(this) => unthrottled.push((this, record.ids)),
            _ => {}
        });
    }
    sampler.disable().unwrap();
    assert!(sampler.counts().unwrap().throttled >= throttled.len() as u64);
    for (Throttled { time, id, stream_id, .. }, at_end) in throttled.iter().chain(&unthrottled) {
        assert!(ids.contains_key(id) && id == stream_id);
        assert_eq!(at_end.id, Some(*id));
        // The two times are taken right after each other.
        assert!(
            (*time..time + 1_000_000_000).contains(&at_end.time.unwrap()),
            "{time}: {at_end:?}"
        );
    }
    // Each throttling is followed by its unthrottling.
    for ((before, _), (after, _)) in throttled.iter().zip(&unthrottled) {
        assert!(before.time < after.time);
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn lost_samples_are_counted_and_the_next_record_reports_them() {
    let faults = Sampler::builder().event(Software::PageFaults).target(this_thread());
    lose_samples(&faults);
    lose_samples(&faults.counters(ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::GROUP));
}

fn lose_samples(faults: &SamplerBuilder) {
    let small = faults.clone().bytes_per_ring(PAGE as usize);
    let (mut whole, mut small) = (faults.clone().open().unwrap(), small.open().unwrap());
    let touch = |small: &mut Sampler, whole: &mut Sampler, pages| {
        small.enable().unwrap();
        whole.enable().unwrap();
        Touched::new(pages);
        whole.disable().unwrap();
        small.disable().unwrap();
    };
    touch(&mut small, &mut whole, 300);
    let (mut all, mut samples) = (0, 0);
    drain(&mut whole, |_| all += 1);
    drain(&mut small, |record| {
        assert!(matches!(record.body, Body::Sample(_)), "{record:?}");
        samples += 1;
    });
    assert!(all >= 300 && (10..100).contains(&samples), "{samples} of {all}");
    // Older kernels report a loss only with the next record.
    if kernel() >= (6, 0) {
        let lost = small.counts().unwrap().lost;
        // Enabling may add a few samples of its own.
        assert!((all..=all + 8).contains(&(samples + lost)), "{samples} and {lost} of {all}");
    }
    // The ring has room again.
    touch(&mut small, &mut whole, 8);
    let ids = small.ids().clone();
    let mut reported = Vec::new();
    drain(&mut small, |record| match record.body {
        Body::Lost { id, lost } => reported.push((id, lost)),
        Body::Sample(_) => {}
        other => panic!("{other:?}"),
    });
    let [(id, lost)] = reported[..] else { panic!("{reported:?}") };
    assert!(ids.contains_key(&id));
    assert!(samples + lost >= all, "{samples} and {lost} of {all}");
    assert_eq!(small.counts().unwrap().lost, lost);
}

/// Samples the first writes to fresh memory, with their addresses.
fn first_writes(builder: SamplerBuilder, pages: usize, mut each: impl FnMut(&Sample<'_>)) {
    // The kernel reports these when the page is there.
    let minor = builder.event(Software::MinorFaults).sample(SampleType::ADDR).target(this_thread());
    let mut sampler = enabled(minor);
    let touched = Touched::new(pages);
    sampler.disable().unwrap();
    let mut count = 0;
    drain(&mut sampler, |record| match record.body {
        Body::Sample(sample) if touched.has(sample.addr.unwrap()) => {
            each(&sample);
            count += 1;
        }
        _ => {}
    });
    assert!(count >= pages - 1, "{count} of {pages}");
}

/// The physical address of a byte of this process, from the kernel's page map.
fn physical(addr: u64) -> u64 {
    const PRESENT: u64 = 1 << 63;
    const FRAME: u64 = (1 << 55) - 1;
    let mut entry = [0; 8];
    File::open("/proc/self/pagemap").unwrap().read_exact_at(&mut entry, addr / PAGE * 8).unwrap();
    let entry = u64::from_ne_bytes(entry);
    assert_ne!(entry & PRESENT, 0);
    (entry & FRAME) * PAGE + addr % PAGE
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn samples_have_physical_addresses_and_no_weight() {
    let fields =
        SampleType::PHYS_ADDR | SampleType::WEIGHT | SampleType::DATA_SRC | SampleType::TRANSACTION;
    let ip = 8;
    let builder = Sampler::builder().sample(fields).interrupted_registers(1 << ip | 1);
    first_writes(builder, 64, |sample| {
        let addr = sample.addr.unwrap();
        assert_eq!(sample.phys_addr, Some(physical(addr)), "{addr:#x}");
        assert_eq!((sample.weight, sample.transaction), (Some(0), Some(0)));
        // Each part is set to "not available". Newer kernels have more parts.
        assert_eq!(sample.data_src.unwrap() as u32, 0x0508_0021);
        let regs = sample.regs_intr.unwrap();
        assert_eq!((regs.get(ip), regs.values.len()), (sample.ip, 2));
    });
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn samples_have_the_sizes_of_pages() {
    if kernel() < (5, 11) {
        return skip("samples have the size of a page since Linux 5.11");
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
fn samples_have_weights_in_parts() {
    if kernel() < (5, 12) {
        return skip("samples have a weight in parts since Linux 5.12");
    }
    let builder = Sampler::builder().sample(SampleType::WEIGHT_STRUCT | SampleType::PHYS_ADDR);
    first_writes(builder, 16, |sample| {
        assert_eq!(sample.weights(), Some((0, 0, 0)));
        assert_eq!(sample.phys_addr, Some(physical(sample.addr.unwrap())));
    });
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn samples_have_the_counter_in_every_format() {
    let format = ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING | ReadFormat::ID;
    for format in [format, format | ReadFormat::GROUP, ReadFormat::empty(), ReadFormat::GROUP] {
        let (mut count, mut enabled) = (None, 0);
        let builder = Sampler::builder().counters(format).sample(SampleType::PHYS_ADDR);
        first_writes(builder, 64, |sample| {
            let values = sample.values.unwrap();
            let counters: Vec<_> = values.counters().collect();
            let [counter] = counters[..] else { panic!("{values:?}") };
            // Every page fault is sampled.
            assert!(
                count.is_none_or(|before| counter.value > before),
                "{values:?} after {count:?}"
            );
            count = Some(counter.value);
            let of = |flag| format.contains(flag);
            assert_eq!(counter.id, of(ReadFormat::ID).then(|| sample.id.unwrap()));
            // Some kernels before 6.0 report it, too, such as Debian's 5.10.
            let may_lack = kernel() < (6, 0);
            assert!(counter.lost == Some(0) || may_lack && counter.lost.is_none(), "{values:?}");
            assert_eq!(values.time_enabled.is_some(), of(ReadFormat::TOTAL_TIME_ENABLED));
            assert_eq!(values.time_running, values.time_enabled);
            let time = values.time_enabled.unwrap_or(0);
            assert!(time >= enabled && time < LONG.as_nanos() as u64, "{values:?}");
            enabled = time;
            assert_eq!(sample.phys_addr, Some(physical(sample.addr.unwrap())));
        });
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn the_count_of_a_thread_is_reported_when_it_ends() {
    let (mut counts, mut faults) = (BTreeMap::<u32, u64>::new(), BTreeMap::<u32, u64>::new());
    let format = ReadFormat::TOTAL_TIME_ENABLED | ReadFormat::TOTAL_TIME_RUNNING | ReadFormat::ID;
    let builder = Sampler::builder().event(Software::PageFaults);
    // With the same in each sample, where the kernel takes that of events that are inherited.
    let has_formats = kernel() >= (6, 12);
    let builder = if has_formats { builder.counters(format) } else { builder };
    let builder = builder.flags(Flags::INHERIT_STAT | Flags::TASK);
    sampled(builder, &["sh", "-c", "/bin/true; /bin/true; :"], |record| match record.body {
        Body::Sample(sample) => *faults.entry(sample.thread.unwrap().tid).or_default() += 1,
        Body::Read { thread, values } => {
            let counter = values.counters().next().unwrap();
            assert_eq!(counter.id.is_some(), has_formats);
            assert_eq!(values.time_enabled.is_some(), has_formats);
            assert!(values.time_running <= values.time_enabled);
            *counts.entry(thread.tid).or_default() += counter.value;
        }
        _ => {}
    });
    // Kernels 5.10 and 6.18 write these records; 6.1 and 6.12 do not.
    if counts.is_empty() && ((5, 11)..(6, 18)).contains(&kernel()) {
        return skip("this kernel does not report what a thread has counted");
    }
    // The shell's own faults are counted by the event itself, not by an inherited one.
    assert_eq!(counts.len(), 2, "{counts:?}");
    for (thread, count) in &counts {
        assert_eq!(faults.get(thread), Some(count), "{counts:?}, {faults:?}");
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn switches_of_a_cpu_name_both_threads() {
    let cpu = suite::online()[0];
    let builder = dummy(Flags::CONTEXT_SWITCH).target(Target::Cpu(cpu)).bytes_per_ring(4 << 20);
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
    // A sleep that expires before the thread leaves its CPU causes no switch.
    assert!(waited > 0, "twenty sleeps, and none of them was long enough");
    // Each switch has two records: one for the task switched out, one for the task switched in. Those of other threads are not
    // always complete: once, the records of a thread of the kernel were missing between two of the idle task.
    let mut both = 0;
    for pair in switches.windows(2) {
        if let [(Switch::Out { .. }, from, next), (Switch::In, to, before)] = pair
            && *from == thread_id()
        {
            assert_eq!((from, next), (before, to));
            both += 1;
        }
    }
    assert!(both >= waited, "{both} of {waited}, in {}", switches.len());
    let slept = (Switch::Out { is_preempted: false }, thread_id());
    let slept = switches.iter().filter(|&&(switch, from, _)| (switch, from) == slept).count();
    assert!(slept >= waited as usize, "{slept} of {waited}");
}
