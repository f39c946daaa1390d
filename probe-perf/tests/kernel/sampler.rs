//! Samples of known events.

use crate::common::{
    GETPPID, LONG, PAGE, PerfStat, Touched, call, call_on, drain, enabled, event, held, of_command,
    sampled, sampled_to_the_end, this_thread, thread_id,
};
use probe_perf::record::{Body, Mapping, Record, SampleType, Switch};
use probe_perf::{Flags, Next, Sampler, SamplerBuilder, Software, Target};
use probe_sys::disturb::in_child;
use probe_testing::skip::skip;
use probe_testing::switches::switches;
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::thread::CapabilitySet;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

#[test]
#[ignore = "needs root: cargo xtask test"]
fn every_fresh_page_is_a_sample() {
    const PAGES: usize = 300;
    let builder = Sampler::builder().event(Software::PageFaults).sample(SampleType::ADDR);
    let mut sampler = enabled(builder.target(this_thread()));
    let memory = Touched::new(PAGES);
    sampler.disable().unwrap();
    let mut touched = Vec::new();
    let mut time = 0;
    drain(&mut sampler, |record| {
        let Body::Sample(sample) = record.body else { panic!("{record:?}") };
        assert_eq!(sample.thread.unwrap().tid, thread_id());
        assert_eq!((sample.period, sample.id.is_some()), (Some(1), true));
        assert!(sample.time.unwrap() > time, "in the order of time");
        time = sample.time.unwrap();
        touched.extend(sample.addr.filter(|&addr| memory.has(addr)));
    });
    // The memory starts inside a page that the allocator also uses.
    let pages: BTreeSet<u64> = touched.iter().map(|addr| addr / PAGE).collect();
    assert_eq!(pages.len(), touched.len(), "each page once");
    assert!((PAGES - 1..=PAGES).contains(&pages.len()), "{} pages", pages.len());
    let counts = sampler.counts().unwrap();
    assert_eq!((counts.lost, counts.malformed), (0, 0));
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_tracepoint_is_sampled_once_for_each_hit_of_a_command_and_its_children() {
    let script = "i=0; while [ $i -lt 20 ]; do /bin/true; i=$((i+1)); done";
    let builder =
        Sampler::builder().event(event("syscalls:sys_enter_exit_group")).sample(SampleType::RAW);
    let mut threads = BTreeSet::new();
    let samples = sampled(builder, &["sh", "-c", script], |record| {
        let Body::Sample(sample) = record.body else { return };
        assert!(sample.raw.unwrap().len() >= 16);
        assert!(threads.insert(sample.thread.unwrap().tid), "each exits once");
    });
    assert_eq!((samples, threads.len()), (21, 21));
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn what_arrives_while_records_are_read_waits() {
    let mut sampler = enabled(Sampler::builder().event(event(GETPPID)).target(this_thread()));
    call(10);
    let mut read = 0;
    sampler.for_each_so_far(|record| {
        record.unwrap();
        read += 1;
        assert!(read < 1000, "it does not end");
        call(1);
    });
    sampler.disable().unwrap();
    assert!(read >= 10, "{read}");
    let mut waited = 0;
    drain(&mut sampler, |_| waited += 1);
    assert_eq!(waited, 10, "each of {read} has caused another");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn one_in_a_period_is_a_sample() {
    for (event, events) in [(event(GETPPID), 100), (Software::PageFaults.into(), 1000)] {
        let builder = Sampler::builder().event(event.clone()).period(10);
        let mut sampler = enabled(builder.target(this_thread()));
        let memory = (event == Software::PageFaults.into()).then(|| Touched::new(events));
        if memory.is_none() {
            call(events);
        }
        sampler.disable().unwrap();
        let mut samples = 0;
        drain(&mut sampler, |record| {
            samples += usize::from(matches!(record.body, Body::Sample(_)));
        });
        // The memory itself is not all that is touched.
        let most = events / 10 + events / 100;
        assert!((events / 10..=most).contains(&samples), "{event}: {samples} samples");
    }
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn a_thread_is_sampled_and_no_other() {
    let builder = Sampler::builder().event(event(GETPPID));
    let mut sampler = enabled(builder.clone().target(this_thread()));
    let mut whole = enabled(builder.target(Target::System));
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
    let cpus = probe_sys::cpus::online().unwrap();
    let (mine, other) = (cpus[0], cpus[cpus.len() - 1]);
    let builder = Sampler::builder().event(event(GETPPID));
    let open = |cpu| enabled(builder.clone().target(Target::Cpu(cpu)));
    let (mut here, mut there) = (open(mine), open(other));
    let tid = call_on(mine, 33);
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
    let mut sampler = builder.target(this_thread()).open().unwrap();
    let before = switches();
    sampler.enable().unwrap();
    let enabled = switches();
    (0..20).for_each(|_| thread::sleep(Duration::from_millis(1)));
    Touched::new(64);
    let disabling = switches();
    sampler.disable().unwrap();
    let after = switches();
    let ids = sampler.ids().clone();
    let mut counts = [0u64; 2];
    drain(&mut sampler, |record| counts[ids[&record.id().unwrap()]] += 1);
    // A sleep that expires before the thread leaves its CPU causes no switch.
    let (switched, least) = (counts[0], disabling - enabled);
    assert!(least > 0, "twenty sleeps, and none of them was long enough");
    assert!((least..=after - before).contains(&switched), "{switched}");
    assert!(counts[1] >= 64, "{counts:?}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn waiting_ends_with_the_timeout_and_with_the_process() {
    let mut sleep = Command::new("sleep").arg("1000").spawn().unwrap();
    let builder = Sampler::builder().event(Software::Dummy).flags(Flags::TASK);
    let mut sampler = enabled(builder.target(Target::Process(sleep.id())));
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
        match sampler.next_blocking(Some(LONG)).unwrap() {
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
fn records_other_than_samples_wake() {
    let mut shell = Command::new("sh");
    shell.args(["-c", "read begin; /bin/true; read end"]).stdin(Stdio::piped());
    let mut shell = shell.spawn().unwrap();
    let builder = Sampler::builder().event(Software::Dummy).period(0).flags(Flags::TASK);
    let mut sampler = enabled(builder.target(Target::Process(shell.id())));
    let mut input = shell.stdin.take().unwrap();
    let begin = Instant::now();
    let forking = thread::spawn(move || {
        // By then, the sampler usually waits.
        thread::sleep(Duration::from_millis(30));
        input.write_all(b"\n").unwrap();
        input
    });
    let next = sampler.next_blocking(Some(LONG)).unwrap();
    let Next::Record(Record { body: Body::Fork(task), .. }) = next else { panic!("{next:?}") };
    assert_eq!(task.parent.pid, shell.id());
    // When the time is over, it looks into the rings in any case.
    assert!(begin.elapsed() < LONG / 2, "the record did not wake the sampler");
    drop(forking.join().unwrap());
    shell.wait().unwrap();
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn tasks_and_mappings_have_records() {
    let flags = Flags::COMM | Flags::COMM_EXEC | Flags::TASK | Flags::MMAP | Flags::MMAP2;
    let builder = Sampler::builder().event(Software::Dummy).flags(flags | Flags::CONTEXT_SWITCH);
    let (mut names, mut files, mut forks, mut exits) = (Vec::new(), Vec::new(), vec![], vec![]);
    let (mut ins, mut outs) = (0, 0);
    sampled(builder, &["sh", "-c", "/bin/true; :"], |record| {
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
    // The shell waits for its child. The event no longer belongs to the task at its last switch.
    assert!(ins >= 1 && outs >= 1, "{ins} and {outs}");
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn samples_of_page_faults_agree_with_perf_stat() {
    let held = held(&["sh", "-c", "/bin/true; :"]);
    let Some(perf) = PerfStat::begin("page-faults", &held) else {
        return skip("there is no perf here to compare with: install linux-perf");
    };
    let builder = Sampler::builder().event(Software::PageFaults);
    let sampler = enabled(of_command(builder, &held));
    let samples = sampled_to_the_end(sampler, held, |_| {});
    assert!(samples > 0);
    assert_eq!(samples, perf.count());
}

/// Lets a thread make 33 calls on CPU 0, drains, and does so once more. Returns the number of their samples, of which the first 33
/// are drained with the notice of the CPU.
fn samples_of_two_threads(sampler: &mut Sampler) -> usize {
    let mut threads = BTreeSet::from([call_on(0, 33)]);
    let mut count = 0;
    for _ in 0..2 {
        drain(sampler, |record| {
            let Body::Sample(sample) = record.body else { panic!("{record:?}") };
            count += usize::from(threads.contains(&sample.thread.unwrap().tid));
        });
        threads.insert(call_on(0, 33));
    }
    count
}

/// As after a suspension, during which most CPUs are offline: it may not open their events again.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn events_stay_open_if_they_cannot_be_opened_again() {
    let builder = Sampler::builder().event(event(GETPPID)).target(Target::System);
    let mut sampler = enabled(builder);
    // The kernel sends the notice of a CPU again, although it was online all the time.
    std::fs::write("/sys/devices/system/cpu/cpu0/uevent", "online").unwrap();
    let unprivileged = || {
        let mut sets = rustix::thread::capabilities(None).unwrap();
        sets.effective = CapabilitySet::empty();
        rustix::thread::set_capabilities(None, sets).unwrap();
        samples_of_two_threads(&mut sampler)
    };
    let count = thread::scope(|scope| scope.spawn(unprivileged).join().unwrap());
    assert_eq!(count, 66);
    let uncovered: Vec<_> = sampler.uncovered().collect();
    let [(0, error)] = uncovered[..] else { panic!("{uncovered:?}") };
    assert!(error.to_string().contains("CAP_PERFMON"), "{error}");
}

/// As above, but the process has a descriptor for the first of two events only.
#[test]
#[ignore = "needs root: cargo xtask test"]
fn events_stay_open_if_only_some_can_be_opened_again() {
    let builder = Sampler::builder().event(event(GETPPID)).event(Software::Dummy);
    let builder = builder.target(Target::System);
    let child = in_child(|| {
        let mut sampler = enabled(builder);
        std::fs::write("/sys/devices/system/cpu/cpu0/uevent", "online").unwrap();
        let free = File::open("/dev/null").unwrap().as_raw_fd() as u64;
        let limit = Rlimit { current: Some(free + 1), maximum: Some(free + 1) };
        setrlimit(Resource::Nofile, limit).unwrap();
        let count = samples_of_two_threads(&mut sampler);
        let uncovered: Vec<_> = sampler.uncovered().collect();
        let [(0, error)] = uncovered[..] else { return 0 };
        u8::from(count == 66 && error.to_string().contains("RLIMIT_NOFILE"))
    });
    assert_eq!(child.unwrap(), 1);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn errors_say_what_is_wrong() {
    let open = |builder: SamplerBuilder| builder.open().unwrap_err().to_string();
    let builder = Sampler::builder;
    let ended = open(builder().target(Target::Thread(i32::MAX as u32)));
    assert!(
        ended.contains("cpu-clock for thread 2147483647") && ended.contains("ended"),
        "{ended}"
    );
    let ended = open(builder().target(Target::Process(i32::MAX as u32)));
    assert!(ended.contains("no process 2147483647"), "{ended}");
    let fast = open(builder().frequency(u64::MAX >> 1));
    assert!(fast.contains("perf_event_max_sample_rate"), "{fast}");
    for bytes in [0, usize::MAX] {
        let size = open(builder().bytes_per_ring(bytes));
        assert!(size.contains(&format!("invalid ring size of {bytes} bytes")), "{size}");
    }
    builder().bytes_per_ring(5000).open().expect("the size is rounded up");
    let branches = open(builder().sample(SampleType::BRANCH_STACK));
    assert!(branches.contains("This machine cannot do that"), "{branches}");
    let cpu = open(builder().target(Target::Cpu(60000)));
    assert!(cpu.contains("CPU 60000") && cpu.contains("offline"), "{cpu}");
    let unknown = open(builder().event(event("sched:sched_swich")));
    assert!(unknown.contains("sched:sched_switch"), "{unknown}");
}
