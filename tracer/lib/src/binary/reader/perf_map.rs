//! The names of generated code, which programs list in `/tmp/perf-PID.map`: `START SIZE NAME`, with numbers in hex.

use super::message::{Function, shortened};
use super::texts::{Text, Texts};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};

/// The size of the part of a list that is read, in bytes.
const LARGEST: u64 = 256 << 20;

/// The longest line, in bytes. A longer one is taken for several.
const LINE: u64 = 64 << 10;

/// The number of functions that are kept.
const FUNCTIONS: usize = 1 << 22;

/// Generated functions, by address.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PerfMap {
    functions: Vec<Generated>,
    names: Texts,
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
        // The last of several is the one that was generated last.
        this.functions.sort_by_key(|one| one.begin);
        this.functions.shrink_to_fit();
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
        let behind = self.functions.partition_point(|one| one.begin <= address);
        let found = self.functions[..behind].last().filter(|one| address < one.end);
        let function = |one: &Generated| Function {
            name: shortened(self.names.get(one.name).to_owned()),
            offset: Some(address - one.begin),
            source: None,
        };
        found.map(function).into_iter().collect()
    }

    /// An estimate of the memory that it takes, in bytes.
    pub(super) fn size(&self) -> usize {
        self.names.size() + size_of_val(&*self.functions)
    }
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
    fn a_long_line_is_not_kept_whole() {
        let mut list = b"10 8 ".to_vec();
        list.resize(3 * LINE as usize, b'x');
        let map = PerfMap::from(&*list).unwrap();
        assert!(map.size() < 2 * LINE as usize);
    }
}
