//! The debug information of a program.

use super::message::{FUNCTIONS, Function, Wants, shortened};
use super::program::{ElfFile, Files, demangled};
use crate::binary::parts;
use addr2line::{Context, FrameIter, LookupContinuation, LookupResult};
use gimli::{Dwarf, DwarfPackage, EndianRcSlice, RunTimeEndian, SectionId};
use object::{CompressedData, Object, ObjectSection};
use std::cell::Cell;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::rc::Rc;
use std::sync::Arc;

/// The size of debug information that is read, in bytes. That of larger programs is not.
const LARGEST: u64 = 1 << 30;

/// The binary logarithm of the ratio to which a section is compressed at most: zlib reaches no more.
const RATIO: u32 = 10;

type Bytes = EndianRcSlice<RunTimeEndian>;

/// Inlined functions, and lines of the source.
pub(super) struct DebugInfo {
    context: Context<Bytes>,
    package: Option<DwarfPackage<Bytes>>,
    /// In bytes.
    pub(super) size: usize,
}

impl DebugInfo {
    /// Whether a file has debug information of its own.
    pub(super) fn is_in(elf: &ElfFile<'_>) -> bool {
        elf.section_by_name(SectionId::DebugInfo.name()).is_some()
    }

    /// Reads that of a file. `want` returns the file that it shares with other programs.
    pub(super) fn read(
        elf: &ElfFile<'_>,
        file: &File,
        package: Option<&File>,
        want: &mut dyn FnMut(Wants) -> Files,
    ) -> Option<Self> {
        let left = Cell::new(LARGEST);
        let mut dwarf = Dwarf::load(|id| section(id.name(), elf, file, &left)).ok()?;
        if let Ok(Some((name, id))) = elf.gnu_debugaltlink() {
            let shared = Some(name.to_vec());
            let wants = Wants { build_id: id.to_vec(), shared, ..Wants::default() };
            for shared in want(wants).candidates {
                let read = parts(&shared);
                let Ok(elf) = ElfFile::parse(&read) else { continue };
                if elf.build_id() == Ok(Some(id)) {
                    dwarf.load_sup(|id| section(id.name(), &elf, &shared, &left)).ok()?;
                    break;
                }
            }
        }
        let package = package.and_then(|file| {
            let read = parts(file);
            let elf = ElfFile::parse(&read).ok()?;
            let empty = bytes(Vec::new(), endian(&elf));
            let load = |id: SectionId| match id.dwo_name() {
                Some(name) => section(name, &elf, file, &left),
                None => Ok(empty.clone()),
            };
            DwarfPackage::load(load, empty.clone()).ok()
        });
        let context = Context::from_dwarf(dwarf).ok()?;
        Some(Self { context, package, size: (LARGEST - left.get()) as usize })
    }

    /// The functions at an address that have names, the innermost first. The name of the last one may be unknown.
    pub(super) fn functions(&self, address: u64) -> Vec<Function> {
        let mut found = self.context.find_frames(address);
        let frames = loop {
            match found {
                LookupResult::Output(frames) => break frames,
                LookupResult::Load { load, continuation } => {
                    let package = self.package.as_ref();
                    let unit =
                        package.and_then(|all| all.find_cu(load.dwo_id, &load.parent).ok()?);
                    found = continuation.resume(unit.map(Arc::new));
                }
            }
        };
        frames.map(all).unwrap_or_default()
    }
}

fn all(mut frames: FrameIter<'_, Bytes>) -> Vec<Function> {
    let mut functions = Vec::new();
    while functions.len() < FUNCTIONS
        && let Ok(Some(frame)) = frames.next()
    {
        let name = frame.function.as_ref().and_then(|name| name.raw_name().ok());
        let name = name.map(|name| shortened(demangled(&name))).unwrap_or_default();
        let source = frame.location.and_then(|it| Some((shortened(it.file?.to_owned()), it.line)));
        functions.push(Function { name, offset: None, source });
    }
    // The name of an inlined function may be in a shared file that is not installed.
    let outer = functions.pop();
    functions.retain(|inlined| !inlined.name.is_empty());
    functions.extend(outer);
    functions
}

/// A section of a file, empty if it has none of this name. `left` is the number of bytes that may still be read.
fn section(
    name: &str,
    elf: &ElfFile<'_>,
    file: &File,
    left: &Cell<u64>,
) -> Result<Bytes, gimli::Error> {
    let Some(section) = elf.section_by_name(name) else {
        return Ok(bytes(Vec::new(), endian(elf)));
    };
    let read = || {
        let range = section.compressed_file_range().ok()?;
        let size = range.compressed_size.max(range.uncompressed_size);
        left.set(left.get().checked_sub(size)?);
        // Compressed debug information is rarely smaller than a tenth. A section may claim to be larger than memory.
        let is_sensible = range.uncompressed_size >> RATIO <= range.compressed_size;
        let (mut data, mut file) = (Vec::new(), file);
        file.seek(SeekFrom::Start(range.offset)).ok()?;
        file.take(range.compressed_size).read_to_end(&mut data).ok()?;
        if !is_sensible || data.len() as u64 != range.compressed_size {
            return None;
        }
        let (format, uncompressed_size) = (range.format, range.uncompressed_size);
        let compressed = CompressedData { format, data: &data, uncompressed_size };
        Some(compressed.decompress().ok()?.into_owned())
    };
    Ok(bytes(read().ok_or(gimli::Error::Io)?, endian(elf)))
}

fn bytes(data: Vec<u8>, endian: RunTimeEndian) -> Bytes {
    Bytes::new(Rc::from(data), endian)
}

fn endian(elf: &ElfFile<'_>) -> RunTimeEndian {
    if elf.is_little_endian() { RunTimeEndian::Little } else { RunTimeEndian::Big }
}
