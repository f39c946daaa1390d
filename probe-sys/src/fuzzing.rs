//! Fuzzing of CPU lists and of the kernel's messages about CPUs.

use crate::cpus;
use crate::hotplug::{self, Notice};
use std::cell::RefCell;
use std::fmt::Write;

/// The maximum length of a list: longer ones would slow down the fuzzer.
const MOST: u32 = 1 << 8;

thread_local! {
    static TEXT: RefCell<String> = const { RefCell::new(String::new()) };
}

/// The input is read as a list of CPUs, and as a message.
pub fn cpu_list(data: &[u8]) {
    message(data);
    if let Ok(list) = std::str::from_utf8(data)
        && length(list) <= MOST
    {
        TEXT.with_borrow_mut(|text| check(list, text));
    }
}

/// An estimate of how many CPUs a list has.
fn length(list: &str) -> u32 {
    let length = |part: &str| {
        let (first, last) = part.split_once('-')?;
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        Some(last.saturating_sub(first))
    };
    let lengths = list.trim().split(',').filter_map(length);
    lengths.filter(|&length| length <= 1 << 16).sum()
}

fn check(list: &str, text: &mut String) {
    let cpus = match cpus::parse(list) {
        Ok(cpus) => cpus,
        Err(error) => {
            text.clear();
            let _ = write!(text, "{error}");
            let named =
                text.strip_prefix('`').and_then(|text| text.split_once("` is not a CPU id"));
            let (part, _) = named.expect("the error names a part");
            assert!(list.contains(part));
            return;
        }
    };
    assert!(cpus.is_sorted_by(|one, other| one < other), "sorted, each once");
    assert!(cpus.last().is_none_or(|&last| last <= 1 << 16));
    write(&cpus, text);
    assert_eq!(cpus::parse(text).as_ref(), Ok(&cpus), "{text}");
}

/// Writes a list in the kernel's notation.
fn write(cpus: &[u32], text: &mut String) {
    text.clear();
    for range in cpus.chunk_by(|one, next| one + 1 == *next) {
        let (first, last) = (range[0], range[range.len() - 1]);
        let comma = if text.is_empty() { "" } else { "," };
        let _ = match first == last {
            true => write!(text, "{comma}{first}"),
            false => write!(text, "{comma}{first}-{last}"),
        };
    }
    text.push('\n');
}

fn message(data: &[u8]) {
    const DEVICE: &[u8] = b"@/devices/system/cpu/cpu";
    let first = data.split(|&byte| byte == 0).next().unwrap_or_default();
    let of = |action: &[u8]| first.strip_prefix(action)?.strip_prefix(DEVICE);
    let number = of(b"online").or_else(|| of(b"offline"));
    match hotplug::read(data) {
        Some(Notice::Online(cpu)) => assert_eq!(of(b"online").and_then(decimal), Some(cpu)),
        Some(Notice::Offline(cpu)) => assert_eq!(of(b"offline").and_then(decimal), Some(cpu)),
        Some(Notice::Missed) => panic!("a message does not say what was missed"),
        None => assert_eq!(number.and_then(decimal), None),
    }
}

/// Reads a number, which may have a sign.
fn decimal(digits: &[u8]) -> Option<u32> {
    let digits = digits.strip_prefix(b"+").unwrap_or(digits);
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u32, |number, digit| match digit {
        b'0'..=b'9' => number.checked_mul(10)?.checked_add(u32::from(digit - b'0')),
        _ => None,
    })
}

#[cfg(test)]
#[test]
fn corpus_of_cpu_list() {
    probe_testing::corpus::run("cpu_list", cpu_list);
}
