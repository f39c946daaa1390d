//! The functions of this executable that tests probe, and a workload that calls them.

use crate::probe::commands;
use probe_testing::set_on_drop::SetOnDrop;
use rustix::process::{Pid, WaitOptions, waitpid};
use std::ffi::{CStr, c_char};
use std::hint::black_box;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn uprobe_fixture_triple(number: u64, text: *const c_char) -> u64 {
    black_box(text);
    black_box(number).wrapping_mul(3)
}

/// The address that the function has in the file, which is loaded at any address.
pub(crate) fn address_of_triple() -> u64 {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let file = std::env::current_exe().unwrap();
    let first = maps.lines().find(|line| line.ends_with(file.to_str().unwrap())).unwrap();
    let base = u64::from_str_radix(first.split_once('-').unwrap().0, 16).unwrap();
    uprobe_fixture_triple as *const () as u64 - base
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn uprobe_fixture_sum(number: u64) -> u64 {
    // Recursive, so that many calls are in progress at once.
    if number == 0 { 0 } else { black_box(uprobe_fixture_sum(black_box(number - 1))) + number }
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn ucalls_fixture_nap(milliseconds: u64) -> u64 {
    std::thread::sleep(Duration::from_millis(black_box(milliseconds)));
    milliseconds + 1
}

/// Also returns in a child, which returns first.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn ucalls_fixture_forks(number: u64) -> u64 {
    let Some(child) = Pid::from_raw(fork()) else { return IN_CHILD };
    let (_, status) = waitpid(Some(child), WaitOptions::empty()).unwrap().unwrap();
    assert_eq!(status.exit_status(), Some(0));
    number + 1
}

const IN_CHILD: u64 = u64::MAX;

// SAFETY: these match the C library. The child only returns once and exits.
unsafe extern "C" {
    safe fn fork() -> i32;
    safe fn _exit(status: i32) -> !;
}

// Functions that a compiler may not produce: one that ends with a jump to another function, and one
// that unwinds past its caller like `longjmp`.
#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".pushsection .text.ucalls_fixture, \"ax\", @progbits",
    ".macro ucalls_function name",
    ".globl \\name",
    ".type \\name, @function",
    "\\name:",
    ".endm",
    "ucalls_function ucalls_fixture_jumps",
    // A five-byte no-op, which new kernels replace with a call.
    ".byte 0x0f, 0x1f, 0x44, 0x00, 0x00",
    "inc rdi",
    "jmp {triple}",
    ".size ucalls_fixture_jumps, . - ucalls_fixture_jumps",
    "ucalls_function ucalls_fixture_leaves",
    "push rbp",
    "mov rbp, rsp",
    "call ucalls_fixture_left",
    "ud2",
    ".size ucalls_fixture_leaves, . - ucalls_fixture_leaves",
    "ucalls_function ucalls_fixture_left",
    "lea rax, [rdi + 5]",
    "mov rsp, rbp",
    "pop rbp",
    "ret",
    ".size ucalls_fixture_left, . - ucalls_fixture_left",
    ".purgem ucalls_function",
    ".popsection",
    triple = sym uprobe_fixture_triple,
);

// SAFETY: these follow the calling convention and access only their own stack.
#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    safe fn ucalls_fixture_jumps(number: u64) -> u64;
    safe fn ucalls_fixture_leaves(number: u64) -> u64;
}

pub(crate) const TRIPLE: &str = "uprobe_fixture_triple";
pub(crate) const SUM: &str = "uprobe_fixture_sum";
pub(crate) const NAP: &str = "ucalls_fixture_nap";

/// A command that calls these functions. The work consists of names and numbers, like `triple 100 sum 20`.
pub(crate) fn calling(work: &str) -> [String; 5] {
    commands::workload("uprobe_fixtures", work)
}

/// Does the requested work.
#[test]
#[ignore = "what the others trace: cargo xtask test"]
fn workload() {
    let work = commands::requested_work();
    let mut words = work.split_terminator(' ').peekable();
    while let Some(name) = words.next() {
        let mut numbers = Vec::new();
        while let Some(number) = words.peek().and_then(|word| word.parse().ok()) {
            numbers.push(number);
            words.next();
        }
        work_on(name, &numbers);
    }
}

fn work_on(name: &str, numbers: &[u64]) {
    match (name, numbers) {
        ("triple", &[calls]) => triple(0..calls),
        ("threads", &[threads, calls, depth]) => std::thread::scope(|scope| {
            for first in (0..threads).map(|thread| thread * calls) {
                scope.spawn(move || {
                    triple(first..first + calls);
                    assert_eq!(uprobe_fixture_sum(depth), depth * (depth + 1) / 2);
                });
            }
        }),
        ("wait", &[]) => {
            // Not captured by libtest.
            std::io::stderr().write_all(b"waiting\n").unwrap();
            std::io::stdin().read_line(&mut String::new()).unwrap();
        }
        ("on", &[]) => {
            let ended = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let _end = SetOnDrop(&ended);
                    std::io::stdin().read_line(&mut String::new()).unwrap();
                });
                while !ended.load(Ordering::Relaxed) {
                    triple(0..1000);
                }
            });
        }
        ("getenv", &[calls]) => {
            (0..calls).for_each(|_| assert!(std::env::var_os("UPROBE_FILES").is_none()));
        }
        ("sum", &[depth]) => assert_eq!(uprobe_fixture_sum(depth), depth * (depth + 1) / 2),
        ("naps", naps) => naps.iter().for_each(|&nap| assert_eq!(ucalls_fixture_nap(nap), nap + 1)),
        ("forks", &[calls]) => {
            for number in 0..calls {
                match ucalls_fixture_forks(number) {
                    IN_CHILD => _exit(0),
                    returned => assert_eq!(returned, number + 1),
                }
            }
        }
        ("dies", &[nap]) => std::thread::scope(|scope| {
            scope.spawn(|| ucalls_fixture_nap(1_000_000));
            std::thread::sleep(Duration::from_millis(nap));
            std::process::exit(0);
        }),
        #[cfg(target_arch = "x86_64")]
        ("jumps", &[calls]) => {
            (0..calls).for_each(|n| assert_eq!(ucalls_fixture_jumps(n), 3 * (n + 1)));
        }
        #[cfg(target_arch = "x86_64")]
        ("leaves", &[calls]) => {
            (0..calls).for_each(|n| assert_eq!(ucalls_fixture_leaves(n), n + 5));
        }
        _ => panic!("{name} {numbers:?}"),
    }
}

fn triple(numbers: std::ops::Range<u64>) {
    // A page that was never touched cannot be read by a program.
    for text in [text(0), text(1)] {
        assert!(std::hint::black_box(text).to_bytes().iter().all(|byte| *byte != 0));
    }
    for number in numbers {
        let text = text(number);
        // Reading it makes its page resident: a probe cannot read what is not in memory.
        black_box(black_box(text).count_bytes());
        assert_eq!(uprobe_fixture_triple(number, text.as_ptr()), number * 3);
    }
}

/// The text of a call. Every third one is "odd".
pub(crate) fn text(number: u64) -> &'static CStr {
    if number.is_multiple_of(3) { c"odd" } else { c"even handed" }
}
