//! The symbols that Fedora and its relatives leave in stripped files: an ELF file in the section `.gnu_debugdata`, compressed
//! with xz. GDB's documentation calls it "MiniDebugInfo". It has the functions that the dynamic symbols lack.

use lzma_rust2::XzReader;
use object::{Object, ObjectSection};
use std::io::Read;

/// The size of an embedded file, and of its compressed form, in bytes. Larger ones are not read.
const LARGEST: u64 = 128 << 20;

/// The memory that decompressing may take, in KiB: `xz -9` takes half of it.
const MEMORY: u32 = 128 << 10;

/// The file embedded in a program, if there is one that can be decompressed.
pub(super) fn embedded<'d>(elf: &impl Object<'d>) -> Option<Vec<u8>> {
    let section = elf.section_by_name(".gnu_debugdata").filter(|one| one.size() <= LARGEST)?;
    let decompressed = XzReader::new_mem_limit(section.data().ok()?, false, MEMORY);
    let mut file = Vec::new();
    decompressed.take(LARGEST + 1).read_to_end(&mut file).ok()?;
    (file.len() as u64 <= LARGEST).then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use probe_testing::crafted::{elf, stripped, xz};

    fn embedded_in(section: &[u8]) -> Option<Vec<u8>> {
        let program = stripped(&[(".gnu_debugdata", false, section)]);
        embedded(&object::File::parse(&*program).unwrap())
    }

    #[test]
    fn a_file_is_decompressed_as_a_whole_or_not_at_all() {
        let (file, packed) = (elf(&[]), xz(&elf(&[])));
        assert_eq!(embedded_in(&packed), Some(file));
        for len in 0..packed.len() {
            assert_eq!(embedded_in(&packed[..len]), None, "{len}");
        }
        let mut damaged = packed.clone();
        damaged[packed.len() / 2] ^= 1;
        assert_eq!(embedded_in(&damaged), None);
        assert_eq!(embedded(&object::File::parse(&*elf(&[])).unwrap()), None);
    }

    #[test]
    fn a_file_that_is_too_large_is_not_read() {
        let bytes = |len: u64| xz(&vec![0; len as usize]);
        assert!(embedded_in(&bytes(LARGEST)).is_some());
        assert!(embedded_in(&bytes(LARGEST + 1)).is_none());
    }
}
