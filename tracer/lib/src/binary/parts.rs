//! The parts of a file, each of which is read when it is needed.

use object::ReadCache;
use object::read::ReadCacheOps;
use rustix::fs::fstat;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::os::unix::fs::FileExt;

/// The size of a block, in bytes.
const BLOCK: u64 = 1 << 16;

/// The number of blocks that are kept.
const KEPT: usize = 1024;

/// The parts of an ELF file.
pub(crate) type Parts<'f> = ReadCache<Blocks<'f>>;

/// Nothing is read before it is asked for: most of a large program is code and debug information.
pub(crate) fn parts(file: &File) -> Parts<'_> {
    ReadCache::new(Blocks { file, position: 0, blocks: HashMap::new() })
}

/// A file that is read in blocks, because names are asked for one by one.
#[derive(Debug)]
pub(crate) struct Blocks<'f> {
    file: &'f File,
    position: u64,
    /// The blocks that were read, by number. The last one of the file may be shorter than the others.
    blocks: HashMap<u64, Box<[u8]>>,
}

impl Blocks<'_> {
    fn block(&mut self, number: u64) -> Result<&[u8], ()> {
        if self.blocks.len() >= KEPT && !self.blocks.contains_key(&number) {
            self.blocks.clear();
        }
        Ok(match self.blocks.entry(number) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let mut bytes = vec![0; BLOCK as usize];
                let len = read(self.file, &mut bytes, number * BLOCK)?;
                bytes.truncate(len);
                new.insert(bytes.into())
            }
        })
    }
}

impl ReadCacheOps for Blocks<'_> {
    fn len(&mut self) -> Result<u64, ()> {
        fstat(self.file).map(|file| file.st_size.cast_unsigned()).map_err(drop)
    }

    fn seek(&mut self, position: u64) -> Result<u64, ()> {
        self.position = position;
        Ok(position)
    }

    fn read(&mut self, into: &mut [u8]) -> Result<usize, ()> {
        let (number, at) = (self.position / BLOCK, (self.position % BLOCK) as usize);
        let block = self.block(number)?.get(at..).unwrap_or_default();
        let len = block.len().min(into.len());
        into[..len].copy_from_slice(&block[..len]);
        self.position += len as u64;
        Ok(len)
    }

    fn read_exact(&mut self, into: &mut [u8]) -> Result<(), ()> {
        self.file.read_exact_at(into, self.position).map_err(drop)?;
        self.position += into.len() as u64;
        Ok(())
    }
}

/// Reads from a position until `into` is full or the file ends.
fn read(file: &File, into: &mut [u8], position: u64) -> Result<usize, ()> {
    let mut len = 0;
    while len < into.len() {
        match file.read_at(&mut into[len..], position + len as u64).map_err(drop)? {
            0 => break,
            more => len += more,
        }
    }
    Ok(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::ReadRef;
    use std::io::Write;

    /// A file of names of three letters, the last of which has no end.
    fn file() -> File {
        let mut file = tempfile::tempfile().unwrap();
        let names: Vec<String> =
            (0..50_000).map(|number| format!("{:03x}\0", number % 4096)).collect();
        file.write_all(names.concat().as_bytes()).unwrap();
        file.write_all(b"end").unwrap();
        file
    }

    #[test]
    fn names_are_those_in_the_file() {
        let file = file();
        let parts = parts(&file);
        let len = (&parts).len().unwrap();
        assert_eq!(len, 200_003);
        // Backwards, and also across blocks: 65,536 is in the middle of no name, 65,535 is the end of one.
        for number in (0..50_000_u64).rev() {
            let from = number * 4;
            let expected = format!("{:03x}", number % 4096);
            assert_eq!((&parts).read_bytes_at_until(from..len, 0), Ok(expected.as_bytes()));
        }
        assert_eq!((&parts).read_bytes_at_until(1..len, 0), Ok(&b"00"[..]));
        let across = (&parts).read_bytes_at_until(65_534..len, b'4');
        assert_eq!(across, Ok(&b"f\x00000\x00001\x00002\x00003\x0000"[..]));
        assert_eq!((&parts).read_bytes_at_until(200_000..len, 0), Err(()));
        assert_eq!((&parts).read_bytes_at(65_534, 4), Ok(&b"f\x0000"[..]));
        assert_eq!((&parts).read_bytes_at(200_000, 4), Err(()));
    }

    #[test]
    fn a_file_that_has_become_shorter_has_an_end() {
        let file = file();
        let parts = parts(&file);
        let len = (&parts).len().unwrap();
        file.set_len(150_000).unwrap();
        assert_eq!((&parts).read_bytes_at_until(199_996..len, 0), Err(()));
        assert_eq!((&parts).read_bytes_at(199_996, 4), Err(()));
    }
}
