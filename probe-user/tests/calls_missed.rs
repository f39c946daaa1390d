//! Calls that there is no event of: more of them at a time than are kept, or than the kernel can tell of.

use probe_user::common::RawRecord;
use probe_user::trace::{Missed, Scope, TraceEvent, Tracer, TracerBuilder};
use probe_user::{Consumer, Loss, Malformed, Stop};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::ops::ControlFlow;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Counts events.
#[derive(Default)]
struct Count(u64);

impl Consumer for Count {
    fn record(&mut self, cpu: u32, record: RawRecord<'_>) -> ControlFlow<()> {
        self.0 += u64::from(TraceEvent::decode(cpu, record).is_some());
        ControlFlow::Continue(())
    }

    fn lost(&mut self, loss: Loss) -> ControlFlow<()> {
        panic!("{loss}")
    }

    fn malformed(&mut self, malformed: Malformed) -> ControlFlow<()> {
        panic!("{malformed}")
    }
}

/// A shell that waits to be told, has so many `sleep`s sleep at the same time, and waits for them.
fn sleepers(count: u32, seconds: &str) -> Child {
    let script = format!(
        "read go; i=0; while [ $i -lt {count} ]; do sleep {seconds} & i=$((i+1)); done; wait"
    );
    Command::new("sh").args(["-c", &script]).stdin(Stdio::piped()).spawn().unwrap()
}

/// The processes called `sleep` of a shell that sleep now.
fn asleep(shell: u32) -> Vec<Pid> {
    let is_asleep = |pid: &String| {
        let says = |file| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
        // Of a task that waits, the number of the system call that it does so in.
        let waits_in = says("syscall");
        let number = waits_in.split(' ').next().and_then(|number| number.parse().ok());
        let sleeps = matches!(number, Some(libc::SYS_nanosleep | libc::SYS_clock_nanosleep));
        // One that has to wait for its turn on a CPU may be anywhere in it. Others may sleep, too.
        let own = format!(" S {shell} ");
        let waits = says("stat").rsplit(')').next().is_some_and(|rest| rest.starts_with(&own));
        says("comm") == "sleep\n" && sleeps && waits
    };
    let entries = fs::read_dir("/proc").unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(is_asleep).map(|pid| Pid::from_raw(pid.parse().unwrap()).unwrap()).collect()
}

/// What becomes of the sleeps of a shell, until it exits, or so many are under way, which never end, then.
fn trace(set_up: TracerBuilder, mut shell: Child, until: Option<usize>) -> (u64, Missed) {
    let scope = Scope::Descendants(shell.id());
    let probe = "hrtimer_nanosleep".parse().unwrap();
    let mut tracer = set_up.scope(scope).probe(probe).calls().attach().unwrap();
    drop(shell.stdin.take());
    let (stop, mut count) = (Stop::new().unwrap(), Count::default());
    match until {
        Some(count) => {
            let start = Instant::now();
            while asleep(shell.id()).len() < count {
                assert!(start.elapsed() < Duration::from_secs(60), "they do not sleep");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        None => assert!(shell.wait().unwrap().success()),
    }
    stop.stop();
    tracer.run(&stop, &mut count).unwrap();
    let ledger = tracer.close(&mut count).unwrap();
    assert!(ledger.is_complete(), "{ledger}");
    if until.is_some() {
        asleep(shell.id()).into_iter().for_each(|pid| kill_process(pid, Signal::KILL).unwrap());
        shell.wait().unwrap();
    }
    (count.0, ledger.missed[0])
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn calls_that_find_no_room_are_counted() {
    // The kernel tells of so many returns at a time.
    let (told, missed) = trace(Tracer::builder().keep_calls(2), sleepers(4, "2"), None);
    assert_eq!(told + missed.no_room, 4, "{missed}");
    assert!(missed.no_room >= 2 && missed.no_return == 0, "{missed}");
    assert_eq!(missed.by_kernel.unwrap_or(0), 0, "{missed}");
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn returns_that_the_kernel_cannot_tell_of_are_counted() {
    let (told, missed) = trace(Tracer::builder(), sleepers(40, "4"), None);
    assert_eq!(told + missed.no_return, 40, "{missed}");
    assert_eq!(missed.no_room, 0, "{missed}");
    // As many as there are CPUs, in old kernels; in new ones ten, or twice the CPUs.
    assert!((4..40).contains(&told), "{told} told, {missed}");
    if let Some(hits) = missed.by_kernel {
        assert_eq!(hits, missed.no_return, "{missed}");
    }
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn calls_that_are_under_way_at_the_end_are_counted() {
    let (told, missed) = trace(Tracer::builder(), sleepers(3, "1000"), Some(3));
    assert_eq!((told, missed.no_return, missed.no_room), (0, 3, 0), "{missed}");
}
