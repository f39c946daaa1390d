//! Helpers that the modules share: events, targets, and work whose number of events is known.

use crate::suite;
use probe_perf::record::Record;
use probe_perf::{Event, Flags, Next, Sampler, SamplerBuilder, Target};
use probe_sys::process::HeldChild;
use rustix::process::getppid;
use rustix::thread::gettid;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

pub const PAGE: u64 = 4096;
/// Longer than any test takes; a wait times out only on failure.
pub const LONG: Duration = Duration::from_secs(60);
/// A system call that nothing else in these tests makes.
pub const GETPPID: &str = "syscalls:sys_enter_getppid";

pub fn event(text: &str) -> Event {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

pub fn thread_id() -> u32 {
    gettid().as_raw_nonzero().get().cast_unsigned()
}

pub fn this_thread() -> Target {
    Target::Thread(thread_id())
}

/// Makes the system call of [`GETPPID`] `times` times.
pub fn call(times: usize) {
    (0..times).for_each(|_| _ = black_box(getppid()));
}

/// Makes `times` calls on `cpu` from a new thread. Returns the thread's id.
pub fn call_on(cpu: u32, times: usize) -> u32 {
    let calling = std::thread::spawn(move || {
        suite::stay_on(cpu);
        call(times);
        thread_id()
    });
    calling.join().unwrap()
}

/// Fresh memory with some pages written to, which takes one page fault each.
pub struct Touched(Vec<u8>);

impl Touched {
    /// More than the allocator caches, so the memory is always fresh.
    const LEN: usize = 64 << 20;

    pub fn new(pages: usize) -> Self {
        // Ordinary pages, so that each page faults by itself.
        rustix::thread::disable_transparent_huge_pages(true).unwrap();
        let mut memory = Vec::with_capacity(Self::LEN);
        let spare: &mut [_] = memory.spare_capacity_mut();
        spare.iter_mut().step_by(rustix::param::page_size()).take(pages).for_each(|byte| {
            byte.write(1);
        });
        Self(black_box(memory))
    }

    pub fn has(&self, addr: u64) -> bool {
        let begin = self.0.as_ptr().addr() as u64;
        (begin..begin + Self::LEN as u64).contains(&addr)
    }
}

pub fn enabled(builder: SamplerBuilder) -> Sampler {
    let mut sampler = builder.open().unwrap();
    sampler.enable().unwrap();
    sampler
}

/// Passes all records available now to `each`.
pub fn drain(sampler: &mut Sampler, mut each: impl FnMut(&Record<'_>)) {
    while let Some(record) = sampler.next_record() {
        each(&record.unwrap());
    }
}

/// Starts a command that waits to be released.
pub fn held(command: &[&str]) -> HeldChild {
    let mut child = Command::new(command[0]);
    child.args(&command[1..]).stdout(Stdio::null()).stderr(Stdio::null());
    HeldChild::spawn(child).unwrap()
}

/// Runs a command to its end, and passes each record of it and its children to `each`. Returns the
/// number of samples.
pub fn sampled(builder: SamplerBuilder, command: &[&str], each: impl FnMut(&Record<'_>)) -> u64 {
    let held = held(command);
    let builder = of_command(builder, &held).flags(Flags::ENABLE_ON_EXEC);
    sampled_to_the_end(builder.open().unwrap(), held, each)
}

/// Samples a held command and its children.
pub fn of_command(builder: SamplerBuilder, held: &HeldChild) -> SamplerBuilder {
    // The rings are large enough for anything that a command does.
    builder.target(Target::ProcessAndChildren(held.pid())).bytes_per_ring(4 << 20)
}

/// Releases a command that the sampler observes. The rest is as in [`sampled`].
pub fn sampled_to_the_end(
    mut sampler: Sampler,
    held: HeldChild,
    mut each: impl FnMut(&Record<'_>),
) -> u64 {
    let mut child = held.release().unwrap();
    loop {
        match sampler.next_blocking(Some(LONG)).unwrap() {
            Next::Record(record) => each(&record),
            Next::End => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(child.wait().unwrap().success());
    let counts = sampler.counts().unwrap();
    assert_eq!((counts.lost, counts.malformed), (0, 0));
    counts.samples
}

/// `perf stat` of a held command and its children: perf counts the same run as the test does, so that
/// the counts are equal whatever happens on the machine.
pub struct PerfStat {
    perf: Child,
    name: String,
}

impl PerfStat {
    /// Returns once perf counts. `None` without perf, or if it cannot count the event.
    pub fn begin(name: &str, held: &HeldChild) -> Option<Self> {
        let mut perf = Command::new("perf");
        perf.args(["stat", "-x,", "-e", name, "-p", &held.pid().to_string()]);
        // It starts disabled, and takes commands from standard input.
        perf.args(["-D", "-1", "--control", "fd:0,1"]);
        perf.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut perf = perf.spawn().ok()?;
        let mut answer = String::new();
        if perf.stdin.as_mut()?.write_all(b"enable\n").is_ok() {
            BufReader::new(perf.stdout.as_mut()?).read_line(&mut answer).ok()?;
        }
        if answer != "ack\n" {
            perf.wait().unwrap();
            return None;
        }
        Some(Self { perf, name: name.to_owned() })
    }

    /// The count, once the command has ended.
    pub fn count(self) -> u64 {
        let output = self.perf.wait_with_output().unwrap();
        let printed = String::from_utf8_lossy(&output.stderr);
        // The fields of a line are the count, its unit, the event and others. Newer kernels have perf complain of formats, too.
        let count_in = |line: &str| {
            let fields: Vec<_> = line.split(',').collect();
            (*fields.get(2)? == self.name).then(|| fields[0].parse().ok())?
        };
        let count = printed.lines().find_map(count_in);
        count.unwrap_or_else(|| panic!("perf stat: {printed}"))
    }
}
