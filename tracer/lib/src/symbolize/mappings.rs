//! What a process has mapped as code now.

use crate::binary::address_range;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The size of the longest list that is read, in bytes.
const LARGEST: u64 = 64 << 20;

/// A mapping of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    pub(super) range: Range<u64>,
    pub(super) of: Mapped,
}

impl Mapping {
    /// Roughly how many bytes it takes.
    pub(super) fn size(&self) -> usize {
        let path = match &self.of {
            Mapped::File { path, .. } => path.as_os_str().len(),
            Mapped::Vdso | Mapped::Memory => 0,
        };
        size_of::<Self>() + path
    }
}

/// What is mapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mapped {
    /// A file, from this offset in bytes.
    File { path: PathBuf, inode: u64, offset: u64 },
    /// The library that the kernel maps into processes like this one. Those of 32 bits have another one.
    Vdso,
    /// Memory.
    Memory,
}

/// Reads the mappings of a process, by address. `name` is its id, or `self`.
pub(super) fn read(name: &str) -> io::Result<Vec<Mapping>> {
    let mut maps = Vec::new();
    File::open(format!("/proc/{name}/maps"))?.take(LARGEST).read_to_end(&mut maps)?;
    Ok(maps.split(|&byte| byte == b'\n').filter_map(mapping).collect())
}

/// The mapping at an address.
pub(super) fn at(mappings: &[Mapping], address: u64) -> Option<&Mapping> {
    let behind = mappings.partition_point(|one| one.range.start <= address);
    mappings[..behind].last().filter(|one| one.range.contains(&address))
}

/// The highest address of processes of 32 bits. In others, nothing is mapped below it unless they ask for that.
const HIGHEST_OF_32_BITS: u64 = u32::MAX as u64;

/// The mapping that a line describes, if it is code: `RANGE PERMISSIONS OFFSET DEVICE INODE PATH`.
fn mapping(line: &[u8]) -> Option<Mapping> {
    let mut words = line.splitn(6, |&byte| byte == b' ');
    let mut word = || std::str::from_utf8(words.next()?).ok();
    let (range, permissions, offset, _device) = (word()?, word()?, word()?, word()?);
    let inode = word()?.parse().ok()?;
    if !permissions.contains('x') {
        return None;
    }
    let offset = u64::from_str_radix(offset, 16).ok()?;
    let path = words.next().unwrap_or_default().trim_ascii_start();
    let range = address_range(range)?;
    let of = match path {
        b"[vdso]" if range.end > HIGHEST_OF_32_BITS => Mapped::Vdso,
        [b'/', ..] => {
            let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
            Mapped::File { path: OsStr::from_bytes(path).into(), inode, offset }
        }
        _ => Mapped::Memory,
    };
    Some(Mapping { range, of })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_is_listed_with_what_it_belongs_to() {
        let maps = b"1000-2000 r--p 00000000 fe:00 12  /x\n2000-3000 r-xp 00001000 fe:00 12     /a b (deleted)\n\
            4000-5000 rwxp 00000000 00:00 0 \n6000-7000 r-xp 00000000 00:00 0   [vdso]\nz\n\n\
            7fff00006000-7fff00007000 r-xp 00000000 00:00 0   [vdso]";
        let found: Vec<_> = maps.split(|&byte| byte == b'\n').filter_map(mapping).collect();
        let file = Mapped::File { path: "/a b".into(), inode: 12, offset: 0x1000 };
        let vdso = (0x7fff_0000_6000, Mapped::Vdso);
        let expected = [(0x2000, file), (0x4000, Mapped::Memory), (0x6000, Mapped::Memory), vdso];
        let expected = expected.map(|(begin, of)| Mapping { range: begin..begin + 0x1000, of });
        assert_eq!(found, expected);
        assert_eq!(at(&found, 0x2fff), Some(&expected[0]));
        assert_eq!([0, 0x3000, 0x7000].map(|address| at(&found, address)), [None; 3]);
    }
}
