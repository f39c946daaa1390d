//! Samples of what is known to happen.

mod sampled;
#[path = "suite/switches.rs"]
mod switches;

use probe_user::perf::record::{Body, Mapping, Record, SampleType, Switch};
use probe_user::perf::{Event, Flags, Next, Sampler, SamplerBuilder, Scope, Software};
use rustix::thread::gettid;
use sampled::sampled;
use std::collections::BTreeSet;
use std::process::Command;
use std::thread;
use std::time::Duration;
use switches::switches;

const PAGE: usize = 4096;
/// More than a test takes: nothing waits that long unless something is wrong.
const LONG: Option<Duration> = Some(Duration::from_secs(60));

fn this_thread() -> Scope {
    Scope::Thread(gettid().as_raw_nonzero().get() as u32)
}

fn event(name: &str) -> Event {
    name.parse().unwrap()
}

/// Everything that is there now.
fn drain(sampler: &mut Sampler, mut each: impl FnMut(&Record<'_>)) {
    while let Some(record) = sampler.next_record() {
        each(&record.unwrap());
    }
}

/// There is room for whatever a command does.
fn in_large_rings(builder: SamplerBuilder) -> SamplerBuilder {
    builder.bytes_per_ring(4 << 20)
}

/// Writes to every page of fresh memory: addresses of the first and the last byte.
fn touch(pages: usize) -> (u64, u64) {
    let mut memory: Vec<u8> = Vec::with_capacity(pages * PAGE);
    memory.spare_capacity_mut().iter_mut().step_by(PAGE).for_each(|byte| {
        byte.write(1);
    });
    let begin = memory.as_ptr().addr() as u64;
    (begin, begin + (pages * PAGE) as u64 - 1)
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn every_page_that_is_touched_first_is_a_sample() {
    const PAGES: usize = 300;
    let builder = Sampler::builder().event(Software::PageFaults).sample(SampleType::ADDR);
    let mut sampler = builder.scope(this_thread()).open().unwrap();
    sampler.enable().unwrap();
    let (first, last) = touch(PAGES);
    sampler.disable().unwrap();
    let mut touched = Vec::new();
    let own = gettid().as_raw_nonzero().get() as u32;
    let mut time = 0;
    drain(&mut sampler, |record| {
        let Body::Sample(sample) = record.body else { panic!("{record:?}") };
        assert_eq!(sample.thread.unwrap().tid, own);
        assert_eq!((sample.period, sample.id.is_some()), (Some(1), true));
        assert!(sample.time.unwrap() > time, "in the order of time");
        time = sample.time.unwrap();
        touched.extend(sample.addr.filter(|addr| (first..=last).contains(addr)));
    });
    // The memory begins inside a page, where the allocator has its own: 299 are whole.
    let pages: BTreeSet<u64> = touched.iter().map(|addr| addr / PAGE as u64).collect();
    assert_eq!(pages.len(), touched.len(), "each page once");
    assert!((PAGES - 1..=PAGES).contains(&pages.len()), "{} pages", pages.len());
    let counts = sampler.counts().unwrap();
    assert_eq!((counts.lost, counts.malformed), (0, 0));
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn what_has_no_room_is_counted() {
    const PAGES: usize = 300;
    let whole = Sampler::builder().event(Software::PageFaults).scope(this_thread());
    let small = whole.clone().bytes_per_ring(PAGE);
    let (mut whole, mut small) = (whole.open().unwrap(), small.open().unwrap());
    small.enable().unwrap();
    whole.enable().unwrap();
    touch(PAGES);
    whole.disable().unwrap();
    small.disable().unwrap();
    let (mut all, mut some) = (0, 0);
    drain(&mut whole, |_| all += 1);
    drain(&mut small, |_| some += 1);
    // To begin is a sample more, or some.
    let lost = small.counts().unwrap().lost;
    // The allocator may have had some of the memory before.
    assert!(all >= 200 && some < 100, "{all} and {some}");
    if rustix::system::uname().release().to_bytes().starts_with(b"5.") {
        // The kernel tells of a loss with the next record alone.
        return;
    }
    assert!(some + lost >= all && some + lost <= all + 8, "{some} and {lost} of {all}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_tracepoint_is_sampled_once_for_each_hit_of_a_command_and_its_children() {
    let script = "i=0; while [ $i -lt 20 ]; do /bin/true; i=$((i+1)); done";
    let builder =
        Sampler::builder().event(event("syscalls:sys_enter_exit_group")).sample(SampleType::RAW);
    let mut threads = BTreeSet::new();
    let samples = sampled(in_large_rings(builder), &["sh", "-c", script], |record| {
        let Body::Sample(sample) = record.body else { return };
        assert!(sample.raw.unwrap().len() >= 16);
        assert!(threads.insert(sample.thread.unwrap().tid), "each exits once");
    });
    assert_eq!((samples, threads.len()), (21, 21));
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_thread_is_sampled_and_no_other() {
    let builder = Sampler::builder().event(event("syscalls:sys_enter_getppid"));
    let call = |times| (0..times).for_each(|_| _ = rustix::process::getppid());
    let mut sampler = builder.clone().scope(this_thread()).open().unwrap();
    let mut whole = builder.clone().scope(Scope::System).open().unwrap();
    sampler.enable().unwrap();
    whole.enable().unwrap();
    call(25);
    thread::spawn(move || call(17)).join().unwrap();
    sampler.disable().unwrap();
    whole.disable().unwrap();
    let (mut own, mut all) = (0, 0);
    drain(&mut sampler, |_| own += 1);
    let pid = std::process::id();
    drain(&mut whole, |record| {
        let Body::Sample(sample) = record.body else { panic!("{record:?}") };
        all += u32::from(sample.thread.unwrap().pid == pid);
    });
    assert_eq!((own, all), (25, 42));
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_cpu_is_sampled_and_no_other() {
    let cpus = probe_user::cpus::online().unwrap();
    let (mine, other) = (cpus[0], cpus[cpus.len() - 1]);
    let builder = Sampler::builder().event(event("syscalls:sys_enter_getppid"));
    let open = |cpu| builder.clone().scope(Scope::Cpu(cpu)).open().unwrap();
    let (mut here, mut there) = (open(mine), open(other));
    for sampler in [&mut here, &mut there] {
        sampler.enable().unwrap();
    }
    let mut set = rustix::thread::CpuSet::new();
    set.set(mine as usize);
    let tid = thread::spawn(move || {
        rustix::thread::sched_setaffinity(None, &set).unwrap();
        (0..33).for_each(|_| _ = rustix::process::getppid());
        gettid().as_raw_nonzero().get() as u32
    });
    let tid = tid.join().unwrap();
    let count = |sampler: &mut Sampler, on| {
        let mut count = 0;
        drain(sampler, |record| {
            let Body::Sample(sample) = record.body else { panic!("{record:?}") };
            assert_eq!(sample.cpu, Some(on));
            count += u32::from(sample.thread.unwrap().tid == tid);
        });
        count
    };
    assert_eq!(count(&mut here, mine), 33);
    if other != mine {
        assert_eq!(count(&mut there, other), 0);
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn every_context_switch_is_a_sample() {
    let events = [Software::ContextSwitches, Software::PageFaults];
    let builder = events.into_iter().fold(Sampler::builder(), SamplerBuilder::event);
    let mut sampler = builder.scope(this_thread()).open().unwrap();
    let before = switches();
    sampler.enable().unwrap();
    let enabled = switches();
    (0..20).for_each(|_| thread::sleep(Duration::from_millis(1)));
    touch(64);
    let disabling = switches();
    sampler.disable().unwrap();
    let after = switches();
    let ids = sampler.ids().clone();
    let mut counts = [0u64; 2];
    drain(&mut sampler, |record| counts[ids[&record.id().unwrap()]] += 1);
    // A sleep whose time is over before the thread has left its CPU is no switch.
    let (switched, least) = (counts[0], disabling - enabled);
    assert!(least > 0, "twenty sleeps, and none of them was long enough");
    assert!((least..=after - before).contains(&switched), "{switched}");
    assert!(counts[1] >= 63, "{counts:?}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn waiting_ends_with_its_time_and_with_the_process() {
    let mut sleep = Command::new("sleep").arg("1000").spawn().unwrap();
    let builder = Sampler::builder().event(Software::Dummy).flags(Flags::TASK);
    let mut sampler = builder.scope(Scope::Process(sleep.id())).open().unwrap();
    sampler.enable().unwrap();
    for timeout in [Duration::ZERO, Duration::from_millis(30)] {
        assert!(matches!(sampler.next_blocking(Some(timeout)).unwrap(), Next::Timeout));
    }
    let pid = sleep.id();
    let killing = thread::spawn(move || {
        thread::sleep(Duration::from_millis(30));
        sleep.kill().unwrap();
        sleep
    });
    let mut exits = 0;
    loop {
        match sampler.next_blocking(LONG).unwrap() {
            Next::Record(Record { body: Body::Exit(task), .. }) => {
                assert_eq!(task.thread.pid, pid);
                exits += 1;
            }
            Next::End => break,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(exits, 1);
    assert!(matches!(sampler.next_blocking(None).unwrap(), Next::End));
    killing.join().unwrap().wait().unwrap();
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn tasks_and_mappings_have_records() {
    let flags = Flags::COMM | Flags::COMM_EXEC | Flags::TASK | Flags::MMAP | Flags::MMAP2;
    let builder = Sampler::builder().event(Software::Dummy).flags(flags | Flags::CONTEXT_SWITCH);
    let (mut names, mut files, mut forks, mut exits) = (Vec::new(), Vec::new(), vec![], vec![]);
    let (mut ins, mut outs) = (0, 0);
    sampled(in_large_rings(builder), &["sh", "-c", "/bin/true; :"], |record| {
        assert!(record.ids.time.is_some() && record.ids.cpu.is_some() && record.ids.id.is_some());
        match record.body {
            Body::Comm { comm, is_exec: true, thread } => {
                assert_eq!(record.ids.thread, Some(thread));
                names.push(String::from_utf8(comm.to_vec()).unwrap());
            }
            Body::Mmap2 { mapping: Mapping { filename, .. }, .. } => {
                files.push(String::from_utf8(filename.to_vec()).unwrap());
            }
            Body::Fork(task) => forks.push((task.parent, task.thread)),
            Body::Exit(task) => exits.push(task.thread),
            Body::Switch(Switch::In) => ins += 1,
            Body::Switch(Switch::Out { .. }) => outs += 1,
            other => panic!("{other:?}"),
        }
    });
    names.sort();
    assert_eq!(names, ["sh", "true"]);
    assert!(files.iter().any(|file| file.ends_with("/true")), "{files:?}");
    assert!(files.iter().any(|file| file.contains("libc.so")), "{files:?}");
    let [(shell, child)] = forks.as_slice() else { panic!("{forks:?}") };
    exits.sort_by_key(|thread| thread.tid);
    let mut both = [*shell, *child];
    both.sort_by_key(|thread| thread.tid);
    assert_eq!(exits, both);
    // The shell waits. What is switched from for the last time is no event's task any more.
    assert!(ins >= 1 && outs >= 1, "{ins} and {outs}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn page_faults_of_a_command_are_those_that_perf_counts() {
    let command = ["setarch", "-R", "/bin/true"];
    let counted = || {
        let mut perf = Command::new("perf");
        perf.args(["stat", "-x,", "-e", "page-faults", "--"]).args(command);
        let said = String::from_utf8(perf.output().ok()?.stderr).unwrap();
        Some(said.split(',').next().unwrap().parse::<u64>().unwrap())
    };
    let builder = Sampler::builder().event(Software::PageFaults);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..5 {
        let Some(counted) = counted() else { return eprintln!("skipped: there is no perf here") };
        theirs.push(counted);
        ours.push(sampled(in_large_rings(builder.clone()), &command, |_| {}));
    }
    // The pages of files are mapped several at a time, as they happen to be in memory: there are a few more, or
    // less, each time. And perf has its own way to start a command.
    const FEW: u64 = 4;
    let range = |counts: &[u64]| (*counts.iter().min().unwrap(), *counts.iter().max().unwrap());
    let ((least, most), (their_least, their_most)) = (range(&ours), range(&theirs));
    let is_near = least <= their_most + FEW && their_least <= most + FEW;
    assert!(is_near, "{ours:?}, and perf says {theirs:?}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn what_cannot_be_opened_says_why() {
    let open = |builder: SamplerBuilder| builder.open().unwrap_err().to_string();
    let builder = Sampler::builder;
    let gone = open(builder().scope(Scope::Thread(i32::MAX as u32)));
    assert!(gone.contains("cpu-clock of thread 2147483647") && gone.contains("ended"), "{gone}");
    let gone = open(builder().scope(Scope::Process(i32::MAX as u32)));
    assert!(gone.contains("no process 2147483647"), "{gone}");
    let fast = open(builder().frequency(u64::MAX >> 1));
    assert!(fast.contains("perf_event_max_sample_rate"), "{fast}");
    let size = open(builder().bytes_per_ring(5000));
    assert!(size.contains("5000") && size.contains("power of two"), "{size}");
    let cpu = open(builder().scope(Scope::Cpu(60000)));
    assert!(cpu.contains("CPU 60000") && cpu.contains("offline"), "{cpu}");
    let unknown = open(builder().event(event("sched:sched_swich")));
    assert!(unknown.contains("sched:sched_switch"), "{unknown}");
}
