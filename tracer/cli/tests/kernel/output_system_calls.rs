//! System calls chosen at random have the arguments that strace prints.
//!
//! strace reads the arguments from the registers of the thread that it stops (`-e raw=all`), and so in another way than any
//! tracepoint does.

use crate::probe::commands::{requested_work, workload as command};
use crate::probe::{all_json_lines, json_lines, trace};
use crate::random::Random;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_long;
use std::fs;

/// How many of the calls to choose, and how often to make each.
const CHOSEN: usize = 30;
const REPEATED: usize = 5;

/// What the names of the tracepoints begin with.
const ENTRY: &str = "syscalls:sys_enter_";

/// The argument that is a string, which stands for none.
const NONE: usize = usize::MAX;

/// Defines system calls that do no harm with any arguments but a string that is a path to nothing, and the index of the
/// string.
macro_rules! calls {
    ($($name:ident $number:ident $text:expr;)*) => {
        const CALLS: &[(&str, c_long, usize)] = &[$((stringify!($name), libc::$number, $text)),*];
    };
}

calls! {
    accept4 SYS_accept4 NONE;
    clock_gettime SYS_clock_gettime NONE;
    connect SYS_connect NONE;
    dup3 SYS_dup3 NONE;
    epoll_create1 SYS_epoll_create1 NONE;
    epoll_ctl SYS_epoll_ctl NONE;
    eventfd2 SYS_eventfd2 NONE;
    faccessat SYS_faccessat 1;
    fadvise64 SYS_fadvise64 NONE;
    fallocate SYS_fallocate NONE;
    fchmodat SYS_fchmodat 1;
    fcntl SYS_fcntl NONE;
    flock SYS_flock NONE;
    getitimer SYS_getitimer NONE;
    getpriority SYS_getpriority NONE;
    getrandom SYS_getrandom NONE;
    getrusage SYS_getrusage NONE;
    getsockopt SYS_getsockopt NONE;
    getxattr SYS_getxattr 0;
    inotify_init1 SYS_inotify_init1 NONE;
    linkat SYS_linkat 1;
    lseek SYS_lseek NONE;
    memfd_create SYS_memfd_create 0;
    mincore SYS_mincore NONE;
    mkdirat SYS_mkdirat 1;
    newfstatat SYS_newfstatat 1;
    openat SYS_openat 1;
    pidfd_open SYS_pidfd_open NONE;
    pipe2 SYS_pipe2 NONE;
    pread64 SYS_pread64 NONE;
    preadv2 SYS_preadv2 NONE;
    pwrite64 SYS_pwrite64 NONE;
    readlinkat SYS_readlinkat 1;
    recvfrom SYS_recvfrom NONE;
    renameat2 SYS_renameat2 1;
    sched_get_priority_max SYS_sched_get_priority_max NONE;
    sendto SYS_sendto NONE;
    setsockopt SYS_setsockopt NONE;
    setxattr SYS_setxattr 0;
    shutdown SYS_shutdown NONE;
    signalfd4 SYS_signalfd4 NONE;
    socket SYS_socket NONE;
    socketpair SYS_socketpair NONE;
    splice SYS_splice NONE;
    statx SYS_statx 1;
    symlinkat SYS_symlinkat 2;
    sync_file_range SYS_sync_file_range NONE;
    timerfd_create SYS_timerfd_create NONE;
    timerfd_settime SYS_timerfd_settime NONE;
    unlinkat SYS_unlinkat 1;
    utimensat SYS_utimensat 1;
}

/// Values at the limits of their types. None of them is a descriptor.
const LIMITS: [i64; 9] = [
    -1,
    -2,
    -100,
    4096,
    i32::MAX as i64,
    i32::MIN as i64,
    u32::MAX as i64,
    0x123_4567_89ab,
    i64::MAX,
];

/// The calls of a seed.
fn chosen(random: &mut Random) -> Vec<(&'static str, c_long, usize)> {
    let mut all = CALLS.to_vec();
    (0..CHOSEN).map(|_| all.swap_remove(random.below(all.len()))).collect()
}

#[test]
#[ignore = "work for the tests below"]
fn workload() {
    let Ok(seed) = requested_work().parse() else { return };
    let mut random = Random::of(seed);
    for (_, number, text) in chosen(&mut random) {
        for _ in 0..REPEATED {
            let path = format!("/probe-test-none/{}\0", random.below(1000));
            let mut args = [0_i64; 6];
            for (at, arg) in args.iter_mut().enumerate() {
                *arg = match random.below(3) {
                    _ if at == text => path.as_ptr() as i64,
                    0 => 4096 + random.below(1 << 40) as i64,
                    // Descriptors come first.
                    1 if at != 0 => random.below(4096) as i64,
                    _ => LIMITS[random.below(LIMITS.len())],
                };
            }
            let [a, b, c, d, e, f] = args;
            // SAFETY: none of these calls does harm with such arguments: all of its descriptors and all pointers but the
            // path's are bad.
            unsafe { libc::syscall(number, a, b, c, d, e, f) };
        }
    }
}

/// The arguments of each thread's calls, in a log of strace: `17 close(0x3) = 0`.
fn read_log(log: &str) -> BTreeMap<(u64, &str), Vec<Vec<u64>>> {
    let mut calls = BTreeMap::<_, Vec<_>>::new();
    for line in log.lines() {
        let Some((before, rest)) = line.split_once('(') else { continue };
        let Some((tid, name)) = before.split_once(' ') else { continue };
        let end = rest.find(')').unwrap_or(rest.len());
        let end = rest.find(" <unfinished").unwrap_or(end).min(end);
        let numbers = rest[..end].split(", ").map(parse).collect::<Option<Vec<_>>>();
        if let (Ok(tid), Some(numbers)) = (tid.parse(), numbers) {
            calls.entry((tid, name.trim())).or_default().push(numbers);
        }
    }
    calls
}

fn parse(number: &str) -> Option<u64> {
    match number.trim().strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => number.trim().parse().ok(),
    }
}

/// Whether a value is what the kernel takes from a register. `None` if it is no number.
fn is_of_register(name: &str, value: &Value, register: u64) -> Option<bool> {
    let number = match value {
        Value::Number(number) => {
            number.as_i64().map(i128::from).or(number.as_u64().map(i128::from))?
        }
        Value::String(text) if text.starts_with("0x") => parse(text)?.into(),
        _ => return None,
    };
    // Types of 64 and 32 bits, signed and unsigned.
    let mut taken = vec![
        register.into(),
        (register as i64).into(),
        (register as u32).into(),
        (register as i32).into(),
    ];
    if name == "mode" {
        // `umode_t`.
        taken.push((register as u16).into());
    }
    Some(taken.contains(&number))
}

/// The arguments of each system call, in order, as the line that describes a trace has them.
fn orders(trace: &Value) -> BTreeMap<&str, Vec<&str>> {
    let probes = trace["probes"].as_array().unwrap().iter();
    probes
        .map(|probe| {
            let name = probe["probe"].as_str().unwrap().trim_start_matches(ENTRY);
            let fields = probe["fields"].as_array().unwrap().iter();
            (name, fields.map(|field| field["name"].as_str().unwrap()).collect())
        })
        .collect()
}

#[test]
fn registers_are_compared() {
    let log =
        "7 lseek(0xffffffff, 0x5, 0) = -1 EBADF\n8 +++ exited +++\n7 dup3(0x1 <unfinished ...>\n";
    let calls = read_log(log);
    assert_eq!(calls[&(7, "lseek")], [[0xffff_ffff, 5, 0]]);
    assert_eq!(calls[&(7, "dup3")], [[1]]);
    assert_eq!(is_of_register("fd", &(-1).into(), 0xffff_ffff), Some(true));
    assert_eq!(is_of_register("fd", &0xffff.into(), 0xffff_ffff), Some(false));
    assert_eq!(is_of_register("mode", &0xffff.into(), 0xffff_ffff), Some(true));
    assert_eq!(is_of_register("buf", &"0x10".into(), 16), Some(true));
    assert_eq!(is_of_register("path", &"/etc".into(), 16), None);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn calls_chosen_at_random_have_the_arguments_that_strace_prints() {
    let seed = Random::seed();
    let chosen = chosen(&mut Random::of(seed));
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let names = chosen.iter().map(|(name, ..)| *name).collect::<Vec<_>>();
    let specs = names.iter().map(|name| format!("tracepoint:{ENTRY}{name}"));
    let (log_path, traced) = (log.to_str().unwrap(), format!("trace={}", names.join(",")));
    let strace = ["strace", "-f", "-o", log_path, "-e", "raw=all", "-e", &traced];
    let strace = strace.map(str::to_owned).into_iter();
    let run = strace.chain(command("output_system_calls", &seed.to_string()));
    let output = trace(specs.chain(["-B".into(), "4M".into()]), run);

    let log = fs::read_to_string(log).unwrap();
    let theirs = read_log(&log);
    let mut ours = BTreeMap::<(u64, String), Vec<Value>>::new();
    let lines = all_json_lines(&output);
    let orders = orders(&lines[0]);
    for event in json_lines(&output) {
        let name = event["probe"].as_str().unwrap().trim_start_matches(ENTRY);
        ours.entry((event["tid"].as_u64().unwrap(), name.to_owned())).or_default().push(event);
    }
    let (mut compared, mut seen) = (0, BTreeSet::new());
    for ((tid, name), theirs) in theirs {
        let ours = ours.remove(&(tid, name.to_owned())).unwrap_or_default();
        assert!(ours.len() >= theirs.len(), "seed {seed}: {name}: {ours:?} {theirs:?}");
        // What the process does before it is traced is not in strace's log.
        for (event, registers) in ours.iter().rev().zip(theirs.iter().rev()) {
            let args = &orders[name];
            assert_eq!(args.len(), registers.len(), "seed {seed}: {event} {registers:x?}");
            for (arg, &register) in args.iter().zip(registers) {
                let is_right = is_of_register(arg, &event["args"][arg], register);
                assert_ne!(is_right, Some(false), "seed {seed}: {arg} of {event}: {registers:x?}");
                compared += usize::from(is_right.is_some());
            }
        }
        seen.insert(name);
    }
    assert_eq!(seen.len(), CHOSEN, "seed {seed}: {seen:?}");
    assert!(compared > CHOSEN * REPEATED, "{compared} values compared");
}
