//! Names of code that the kernel adds and removes while it is traced.

use probe_tracer::{Symbols, Tracer};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

/// The names of the kernel's eBPF programs, by address. Older kernels list the program and its first function, whose names
/// have different tags.
fn programs() -> BTreeMap<u64, Vec<String>> {
    let symbols = fs::read_to_string("/proc/kallsyms").unwrap();
    let mut programs = BTreeMap::<_, Vec<_>>::new();
    for line in symbols.lines() {
        let Some((symbol, _)) = line.split_once("\t[bpf]") else { continue };
        let Some((address, name)) = symbol.split_once(" t ") else { continue };
        let address = u64::from_str_radix(address, 16).unwrap();
        programs.entry(address).or_default().push(format!("{name}+0x2"));
    }
    programs
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// A trace, the address of its program, and how an address in its first instructions may be shown.
fn trace() -> (Tracer, u64, Vec<String>) {
    let before = programs();
    let tracer = Tracer::builder().probe("rawtp:sys_enter".parse().unwrap()).attach().unwrap();
    let mut new = programs().into_iter().filter(|(address, _)| !before.contains_key(address));
    let (address, name) = new.next().expect("the program has a symbol");
    (tracer, address, name)
}

/// Ends a trace, and waits until the kernel has removed its program.
fn end(tracer: Tracer, address: u64) {
    drop(tracer);
    let begun = Instant::now();
    while programs().contains_key(&address) {
        assert!(begun.elapsed() < Duration::from_secs(60), "the program is never removed");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn an_ebpf_program_has_its_name_while_it_is_loaded() {
    let (earlier, of_earlier, names_of_earlier) = trace();
    let mut symbols = Symbols::start().unwrap();
    let mut name = |time, address| {
        let frames = symbols.of_kernel(time, address + 2);
        frames.first().map(ToString::to_string)
    };
    let before = now();
    let (later, of_later, names_of_later) = trace();
    let meanwhile = now();
    let of_later_meanwhile = name(meanwhile, of_later);
    assert!(of_later_meanwhile.as_ref().is_some_and(|name| names_of_later.contains(name)));
    end(earlier, of_earlier);
    end(later, of_later);
    let after = now();
    assert_eq!(
        [before, meanwhile, after].map(|time| name(time, of_later)),
        [None, of_later_meanwhile, None]
    );
    let of_earlier_before = name(before, of_earlier);
    assert!(of_earlier_before.is_some_and(|name| names_of_earlier.contains(&name)));
    assert_eq!(name(after, of_earlier), None);
}
