//! A program into which the table of its probe is compiled reports the same as the interpreter of tables: the same bytes for the
//! same hits, whatever the fields, the predicate, the filters and the options are.

use crate::probe::has_kprobes;
use crate::random::Random;
use probe_sys::clock::monotonic;
use probe_tracer::{Target, Tracer, TracerBuilder};
use probe_tracer_common::trace::{COMM_LEN, ProbeHit};
use probe_user::common::RawRecord;
use probe_user::{Consumer, Options};
use rustix::process::setpriority_process;
use rustix::thread::{MembarrierCommand, gettid, membarrier, set_name};
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::mem::offset_of;
use std::ops::{ControlFlow, Range};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// A hook with fields and predicates to choose from.
pub(crate) struct Hook {
    pub(crate) name: &'static str,
    pub(crate) fields: &'static [&'static str],
    pub(crate) predicates: &'static [&'static str],
}

/// Hooks whose calls are traced.
const CALLS: &[Hook] = &[
    Hook {
        name: "tracepoint:syscalls:sys_enter_write",
        fields: &["fd", "count", "buf", "buf:ustr", "retval", "retval:x64"],
        predicates: &[
            "/retval == 5/",
            "/count == 5 && buf == \"hello\" && retval > 0/",
            "/fd > 2 || retval < 0/",
            "/buf ~ \"h*o\"/",
        ],
    },
    Hook {
        name: "tracepoint:syscalls:sys_enter_openat",
        fields: &["dfd", "filename", "flags", "mode", "retval"],
        predicates: &["/retval < 0/", "/filename ~ \"/etc/*\" && retval >= 0/"],
    },
    Hook {
        name: "tracepoint:raw_syscalls:sys_enter",
        fields: &["id", "args", "args[2]", "retval"],
        predicates: &["/id == write && retval == 5/", "/id == openat || retval == -2/"],
    },
];

/// Fields that every hook has.
const EVERYWHERE: [&str; 7] = ["pid", "tid", "uid", "cpu", "comm", "ustack", KERNEL_STACK];

const KERNEL_STACK: &str = "kstack";

/// Providers whose kernel stacks begin in the program itself.
const ON_THE_STACK: [&str; 3] = ["rawtp", "fentry", "fexit"];

const ALWAYS: &str = "";

const HOOKS: &[Hook] = &[
    Hook {
        name: "tracepoint:syscalls:sys_enter_write",
        fields: &["fd", "buf", "count", "buf:x64", "fd:x64", "buf:ustr"],
        predicates: &[
            "/fd > 2/",
            "/fd < 0/",
            "/fd != 1 && count > 3/",
            "/fd:s64 == count:s64 || count & 4/",
            "/count == 5 && buf == \"hello\"/",
            "/buf ~ \"h*o\"/",
            "/buf ~ \"*ell*\" || count > 64/",
            "/buf ~ \"*h*l*l*\" || buf ~ \"*x*y*\"/",
            "/!(fd == 1) && comm == \"specialized\"/",
            "/pid == tid && uid == 0/",
        ],
    },
    Hook {
        name: "tracepoint:syscalls:sys_enter_openat",
        fields: &["dfd", "filename", "flags", "mode"],
        predicates: &[
            "/dfd < 0/",
            "/filename == \"/etc/hostname\"/",
            "/filename ~ \"/etc/*\" && flags & 0x80000/",
            "/mode == 0 && filename != \"/etc/hostname\"/",
        ],
    },
    Hook {
        name: "tracepoint:syscalls:sys_exit_openat",
        fields: &["ret", "ret:x64"],
        predicates: &["/ret < 0/", "/ret >= 0/", "/ret == -2/"],
    },
    Hook {
        name: "tracepoint:sched:sched_process_exec",
        fields: &["filename", "old_pid"],
        predicates: &["/filename ~ \"*true\"/", "/old_pid > 1/"],
    },
    Hook {
        name: "tracepoint:sched:sched_switch",
        fields: &["prev_comm", "prev_pid", "prev_prio", "prev_state", "next_comm", "next_pid"],
        predicates: &[
            "/prev_prio == 120/",
            "/prev_comm == \"specialized\"/",
            "/next_pid > prev_pid/",
        ],
    },
    Hook {
        name: "tracepoint:task:task_rename",
        fields: &["oldcomm", "newcomm", "oom_score_adj"],
        predicates: &["/newcomm == \"specialized\"/", "/oom_score_adj < 0/"],
    },
    Hook {
        name: "rawtp:sys_enter",
        fields: &["id", "regs->di", "regs->si", "regs->dx", "regs"],
        predicates: &["/id == 1/", "/id == 1 && regs->di > 2/", "/regs->dx:s64 < 0 || id == 257/"],
    },
    Hook {
        name: "rawtp:task_rename",
        fields: &["task->pid", "task->comm", "comm", "task->cred->uid.val", "task->parent->comm"],
        predicates: &["/task->pid > 0/", "/task->comm == \"specialized\"/"],
    },
];

/// The records of two probes, with their times.
#[derive(Default)]
struct Hits([Vec<(u64, Vec<u8>)>; 2]);

impl Hits {
    /// Each record of one probe at these times has one of the other that is the same, and the other way round. Returns how many
    /// records each probe has. A hit while the trace begins or ends may reach one of the two programs only, and one at the
    /// first or the last of these times may be within them for one program and outside for the other.
    #[track_caller]
    fn assert_same(&self, times: &Range<u64>, what: &str) -> [usize; 2] {
        [(0, 1), (1, 0)].map(|(one, other)| {
            // A hit that waits for a page is sent later, so the order says nothing.
            let mut of_other: Vec<_> = self.0[other].iter().map(|(_, bytes)| bytes).collect();
            of_other.sort();
            let within = self.0[one].iter().filter(|(time, _)| times.contains(time));
            let mut within: Vec<_> = within.map(|(_, bytes)| bytes).collect();
            within.sort();
            let mut of_other = of_other.into_iter();
            for bytes in &within {
                let found = of_other.find(|of_other| of_other >= bytes);
                assert_eq!(
                    Some(bytes),
                    found.as_ref(),
                    "probe {one} has what {other} has not: {what}"
                );
            }
            within.len()
        })
    }
}

impl Consumer for Hits {
    fn record(&mut self, _: u32, record: RawRecord<'_>) -> ControlFlow<()> {
        const NUMBER: usize = offset_of!(ProbeHit, probe);
        const NAME: usize = offset_of!(ProbeHit, task.comm);
        let mut bytes = record.payload.to_vec();
        let number = u32::from_ne_bytes(*bytes[NUMBER..].first_chunk().unwrap());
        bytes[NUMBER..NUMBER + 4].fill(0);
        // Some kernels write nothing behind the end of a name.
        let name = &mut bytes[NAME..NAME + COMM_LEN];
        let len = name.iter().position(|&byte| byte == 0).unwrap();
        name[len..].fill(0);
        self.0[number as usize].push((record.time, bytes));
        ControlFlow::Continue(())
    }
}

/// Does a bit of everything that the hooks are at.
fn work() {
    let before = fs::read("/proc/thread-self/comm").unwrap();
    set_name(c"specialized").unwrap();
    let mut null = File::options().write(true).open("/dev/null").unwrap();
    for text in ["hello", "hallo", "hell", "a\0b", "", &"x".repeat(100), &"y".repeat(5000)] {
        null.write_all(text.as_bytes()).unwrap();
    }
    let mut text = String::new();
    File::open("/etc/hostname").unwrap().read_to_string(&mut text).unwrap();
    assert!(File::open("/nowhere/to be found").is_err());
    assert!(Command::new("/bin/true").status().unwrap().success());
    assert!(["SPECIALIZED", "SPECIALISED"].map(std::env::var_os).iter().all(Option::is_none));
    let before = CString::new(before.trim_ascii_end()).unwrap();
    set_name(&before).unwrap();
}

fn choose(random: &mut Random, hook: &Hook) -> String {
    let mut fields = Vec::new();
    for _ in 0..random.below(6) {
        let at = random.below(hook.fields.len() + EVERYWHERE.len());
        let field = hook.fields.iter().chain(&EVERYWHERE).nth(at).unwrap();
        let begins_in_program = *field == KERNEL_STACK
            && ON_THE_STACK.iter().any(|provider| hook.name.starts_with(provider));
        if !fields.contains(field) && !begins_in_program {
            fields.push(*field);
        }
    }
    let predicate = match random.below(3) {
        0 => ALWAYS,
        _ => hook.predicates[random.below(hook.predicates.len())],
    };
    spec(hook, &fields, predicate)
}

fn spec(hook: &Hook, fields: &[&str], predicate: &str) -> String {
    // Two fields may not have the same name.
    let named: Vec<_> =
        (0..).zip(fields).map(|(n, field): (u32, _)| format!("f{n}={field}")).collect();
    format!("{}({}){predicate}", hook.name, named.join(","))
}

fn options(random: &mut Random, builder: TracerBuilder) -> (TracerBuilder, &'static str) {
    match random.below(8) {
        0 => (builder.named("specialized"), "named"),
        1 => (builder.named("another name"), "another name"),
        2 => (builder.user(0), "user"),
        3 => (builder.thread(gettid().as_raw_nonzero().get() as u32), "thread"),
        4 => (builder.processes(&[std::process::id(), 1]), "processes"),
        5 => (builder.sample(3), "sample"),
        _ => (builder, "none"),
    }
}

/// Compares the hits of both programs. Returns how many there are.
#[track_caller]
fn assert_same(spec: &str, options: &str, builder: TracerBuilder) -> usize {
    let probe =
        spec.parse::<probe_tracer::ProbeSpec>().unwrap_or_else(|why| panic!("{spec}: {why}"));
    let tracer = builder
        .probe(probe.clone())
        .probe(probe)
        .target(Target::Descendants(std::process::id()))
        .specialize(1)
        .attach()
        .unwrap_or_else(|why| panic!("{spec}: {why}"));
    assert_eq!(tracer.specialized(), 1, "{spec}");
    let begun = monotonic();
    work();
    let ended = monotonic();
    // The last switch of a process that has ended may still be going on, between one program and the other.
    membarrier(MembarrierCommand::Global).unwrap();
    let mut hits = Hits::default();
    let ledger = tracer.close(&mut hits).unwrap();
    assert!(ledger.records.is_complete(), "{spec} ({options}): {ledger}");
    let what = format!("{spec} ({options})");
    let counts = hits.assert_same(&(begun..ended), &what);
    let [undecided, of_other] = [0, 1].map(|at: usize| ledger.missed[at].undecided);
    assert_eq!(undecided, of_other, "{spec} ({options})");
    counts[0]
}

pub(crate) fn assert_all_same(hooks: &[Hook], rounds: usize, builder: fn() -> TracerBuilder) {
    let seed = Random::seed();
    eprintln!("seed {seed}");
    let mut random = Random::of(seed);
    for hook in hooks {
        // All fields at once, and then some.
        let hits = assert_same(&spec(hook, hook.fields, ALWAYS), "none", builder());
        assert!(hits > 0, "{} was not hit", hook.name);
        for _ in 0..rounds {
            let spec = choose(&mut random, hook);
            let (builder, options) = options(&mut random, builder());
            assert_same(&spec, options, builder);
        }
    }
}

/// How often to choose at random for each hook.
fn rounds() -> usize {
    // Machines with kprobes are the slow virtual ones.
    if has_kprobes() { 1 } else { 12 }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn specialized_programs_report_what_the_interpreter_does() {
    assert_all_same(HOOKS, rounds(), Tracer::builder);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn specialized_programs_keep_the_calls_that_the_interpreter_does() {
    assert_all_same(CALLS, rounds(), || Tracer::builder().calls());
}

/// The first field of each hit.
#[derive(Default)]
struct Words(Vec<u64>);

impl Consumer for Words {
    fn record(&mut self, _: u32, record: RawRecord<'_>) -> ControlFlow<()> {
        let words = &record.payload[size_of::<ProbeHit>()..];
        self.0.push(u64::from_ne_bytes(*words.first_chunk().unwrap()));
        ControlFlow::Continue(())
    }
}

/// Some kernels write nothing behind the end of a name, where another hit's may be.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_short_name_is_found_behind_a_long_one() {
    const ROUNDS: usize = 50;
    let tracer = Tracer::builder()
        .probe("tracepoint:syscalls:sys_enter_getppid()/comm == \"dd\"/".parse().unwrap())
        .probe("tracepoint:syscalls:sys_exit_getppid()".parse().unwrap())
        .target(Target::Descendants(std::process::id()))
        .attach()
        .unwrap();
    let before = fs::read("/proc/thread-self/comm").unwrap();
    for _ in 0..ROUNDS {
        for name in [c"a longer name", c"dd"] {
            set_name(name).unwrap();
            let _ = rustix::process::getppid();
        }
    }
    set_name(&CString::new(before.trim_ascii_end()).unwrap()).unwrap();
    let mut hits = Hits::default();
    tracer.close(&mut hits).unwrap();
    assert_eq!(hits.0.map(|hits| hits.len()), [ROUNDS, 2 * ROUNDS]);
}

/// How often the thread is renamed, and the value changes, at least.
const RENAMINGS: u32 = 100_000;
const CHANGES: u32 = 1000;

/// Another thread changes a value all the time, so also between the look of the predicate and that of the field.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn the_predicate_holds_for_the_value_that_is_reported() {
    let (thread, has_ended) = (gettid(), AtomicBool::new(false));
    let value = "task->static_prio";
    // Of nice 0 and nice 5. Patterns are left to the interpreter.
    for (condition, expected) in [
        ("task->static_prio == 120", 120),
        ("task->static_prio > 120", 125),
        ("(task->static_prio == 120 || comm ~ \"nobody*\")", 120),
    ] {
        let tid = thread.as_raw_nonzero();
        let probe = format!("rawtp:task_rename({value})/tid == {tid} && {condition}/");
        let tracer = Tracer::builder()
            .probe(probe.parse().unwrap())
            .target(Target::Descendants(std::process::id()))
            .options(Options::new().bytes_per_cpu(16 << 20))
            .attach()
            .unwrap();
        assert_eq!(tracer.specialized(), 1);
        has_ended.store(false, Ordering::Relaxed);
        let changes = AtomicU32::new(0);
        std::thread::scope(|scope| {
            let changer = scope.spawn(|| {
                while !has_ended.load(Ordering::Relaxed) {
                    [5, 0]
                        .into_iter()
                        .for_each(|nice| setpriority_process(Some(thread), nice).unwrap());
                    changes.fetch_add(1, Ordering::Relaxed);
                }
            });
            let mut renamings = 0;
            let is_enough = || changes.load(Ordering::Relaxed) >= CHANGES || changer.is_finished();
            while renamings < RENAMINGS || !is_enough() {
                set_name(c"specialized").unwrap();
                renamings += 1;
            }
            has_ended.store(true, Ordering::Relaxed);
        });
        let mut words = Words::default();
        tracer.close(&mut words).unwrap();
        let right = words.0.iter().filter(|word| **word == expected).count();
        assert!(right > 0 && right == words.0.len(), "{probe}: {right} of {}", words.0.len());
    }
}
