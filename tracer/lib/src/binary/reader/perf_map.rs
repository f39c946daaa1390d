//! The names of generated code, which programs list in `/tmp/perf-PID.map`: `START SIZE NAME`, with numbers in hex.

use super::message::{Function, shortened};
use super::texts::{Text, Texts};
use std::collections::BinaryHeap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};

/// The size of the part of a list that is read, in bytes.
const LARGEST: u64 = 256 << 20;

/// The longest line, in bytes. A longer one is taken for several.
const LINE: u64 = 64 << 10;

/// The number of functions that are kept.
const FUNCTIONS: usize = 1 << 22;

/// Generated functions.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PerfMap {
    /// In the order of the list.
    functions: Vec<Generated>,
    /// The ranges of functions, by address. Each one ends where the next one begins.
    ranges: Vec<AddressRange>,
    names: Texts,
}

/// Addresses with the same function.
#[derive(Debug, PartialEq, Eq)]
struct AddressRange {
    begin: u64,
    /// The number of the function, if there is one.
    function: Option<u32>,
}

#[derive(Debug, PartialEq, Eq)]
struct Generated {
    begin: u64,
    end: u64,
    name: Text,
}

impl PerfMap {
    /// Reads a list. Lines that are not understood are skipped: the program may be writing one now.
    pub(super) fn read(mut file: &File) -> io::Result<Self> {
        file.rewind()?;
        Self::from(BufReader::new(file.take(LARGEST)))
    }

    pub(super) fn from(mut list: impl BufRead) -> io::Result<Self> {
        let (mut this, mut line) = (Self::default(), Vec::new());
        while this.functions.len() < FUNCTIONS
            && list.by_ref().take(LINE).read_until(b'\n', &mut line)? > 0
        {
            this.add(&line);
            line.clear();
        }
        this.functions.shrink_to_fit();
        this.ranges = ranges(&this.functions);
        this.names.shrink();
        Ok(this)
    }

    /// Adds the function that a line describes.
    fn add(&mut self, line: &[u8]) -> Option<()> {
        let (begin, rest) = number(line.trim_ascii())?;
        let (size, name) = number(rest)?;
        let end = begin.checked_add(size)?;
        let name = self.names.add(name)?;
        self.functions.push(Generated { begin, end, name });
        Some(())
    }

    /// The function at an address.
    pub(super) fn functions(&self, address: u64) -> Vec<Function> {
        let behind = self.ranges.partition_point(|one| one.begin <= address);
        let number = self.ranges[..behind].last().and_then(|one| one.function);
        let found = number.and_then(|number| self.functions.get(number as usize));
        let function = |one: &Generated| Function {
            name: shortened(self.names.get(one.name).to_owned()),
            offset: Some(address - one.begin),
            source: None,
        };
        found.map(function).into_iter().collect()
    }

    /// An estimate of the memory that it takes, in bytes.
    pub(super) fn size(&self) -> usize {
        self.names.size() + size_of_val(&*self.functions) + size_of_val(&*self.ranges)
    }
}

/// The ranges of functions that may overlap: an address belongs to the last one that contains it, which was generated last. There are at
/// most twice as many ranges as functions.
fn ranges(functions: &[Generated]) -> Vec<AddressRange> {
    let function = |number: u32| &functions[number as usize];
    let mut bounds: Vec<u64> = functions.iter().flat_map(|one| [one.begin, one.end]).collect();
    bounds.sort_unstable();
    bounds.dedup();
    let mut by_begin: Vec<u32> = (0..functions.len() as u32).collect();
    by_begin.sort_unstable_by_key(|&number| function(number).begin);
    let mut next = by_begin.into_iter().peekable();
    // Functions that have begun, the last one of the list first. Those that have ended are removed when they are the first.
    let mut begun = BinaryHeap::new();
    let range = |begin| {
        while let Some(number) = next.next_if(|&number| function(number).begin <= begin) {
            begun.push(number);
        }
        while begun.peek().is_some_and(|&number| function(number).end <= begin) {
            begun.pop();
        }
        AddressRange { begin, function: begun.peek().copied() }
    };
    bounds.into_iter().map(range).collect()
}

/// The number before a space, and what is behind that.
fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let space = text.iter().position(u8::is_ascii_whitespace)?;
    let digits = std::str::from_utf8(&text[..space]).ok()?;
    Some((u64::from_str_radix(digits, 16).ok()?, &text[space + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_address_belongs_to_the_last_function_that_contains_it(
            functions in prop::collection::vec((0..40_u64, 0..20_u64), 0..20),
        ) {
            let line = |(n, (begin, size)): (usize, &(u64, u64))| format!("{begin:x} {size:x} f{n}\n");
            let list: String = functions.iter().enumerate().map(line).collect();
            let map = PerfMap::from(list.as_bytes()).unwrap();
            for address in 0..60 {
                let contains = |(begin, size): &(u64, u64)| (*begin..begin + size).contains(&address);
                let expected = functions.iter().rposition(contains);
                let expected = expected.map(|n| (format!("f{n}"), Some(address - functions[n].0)));
                let found = map.functions(address).pop().map(|found| (found.name, found.offset));
                prop_assert_eq!(found, expected);
            }
        }
    }

    #[test]
    fn an_address_has_the_name_that_was_listed_last() {
        let list = b"10 8 old\nzz\n20 4 a b\xff\n10 8 new\r\n\n30 ffffffffffffffff over\n40 1";
        let map = PerfMap::from(&list[..]).unwrap();
        let name = |address| {
            let found = map.functions(address).pop()?;
            Some((found.name, found.offset?))
        };
        assert_eq!(name(0x10), Some(("new".into(), 0)));
        assert_eq!(name(0x17), Some(("new".into(), 7)));
        assert_eq!(name(0x21), Some(("a b\u{fffd}".into(), 1)));
        for address in [0, 0x18, 0x24, 0x30, 0x40, u64::MAX] {
            assert_eq!(name(address), None);
        }
    }

    #[test]
    fn the_last_listed_of_overlapping_functions_wins() {
        let found = |list: &[u8], address| {
            let map = PerfMap::from(list).unwrap();
            let found = map.functions(address).pop()?;
            Some((found.name, found.offset?))
        };
        let expected = |name: &str, offset| Some((name.to_owned(), offset));
        let around = b"1000 100 old\nf00 300 new";
        assert_eq!(found(around, 0x1080), expected("new", 0x180));
        assert_eq!(found(around, 0x1150), expected("new", 0x250));
        assert_eq!(found(around, 0x1200), None);
        let inside = b"1000 300 old\n1100 10 new";
        assert_eq!(found(inside, 0x10ff), expected("old", 0xff));
        assert_eq!(found(inside, 0x1105), expected("new", 5));
        assert_eq!(found(inside, 0x1180), expected("old", 0x180));
        assert_eq!(found(inside, 0x1300), None);
    }

    #[test]
    fn a_list_takes_memory_in_proportion_to_its_length() {
        // Each function is in the middle of the one before it, and covers most of it.
        let line = |n: u64| format!("{n:x} {:x} f\n", 20_000 - 2 * n);
        let list: String = (0..10_000).map(line).collect();
        let map = PerfMap::from(list.as_bytes()).unwrap();
        assert!(map.functions.len() == 10_000 && map.ranges.len() <= 20_000);
    }

    #[test]
    fn a_long_line_is_not_kept_whole() {
        let mut list = b"10 8 ".to_vec();
        list.resize(3 * LINE as usize, b'x');
        let map = PerfMap::from(&*list).unwrap();
        assert!(map.size() < 2 * LINE as usize);
    }
}
