//! Programs that are crafted by hand.

use lzma_rust2::{XzOptions, XzWriter};
use std::io::Write;

/// A section: its name, whether it is compressed, and its bytes.
pub type Section<'s> = (&'s str, bool, &'s [u8]);

/// A program that is loaded at address 0, with a symbol `f` there.
pub fn elf(sections: &[Section<'_>]) -> Vec<u8> {
    let mut symbols = vec![0; 24];
    symbols.extend([1, 0, 0, 0, 0x12, 0, 1, 0]);
    symbols.extend([0u64, 64].map(u64::to_le_bytes).concat());
    with_symbols(&symbols, sections)
}

/// The same without the symbol.
pub fn stripped(sections: &[Section<'_>]) -> Vec<u8> {
    with_symbols(&[], sections)
}

/// What `xz` makes of a file.
pub fn xz(file: &[u8]) -> Vec<u8> {
    let mut writer = XzWriter::new(Vec::new(), XzOptions::with_preset(0)).expect("a writer");
    writer.write_all(file).expect("memory takes everything");
    writer.finish().expect("as above")
}

fn with_symbols(symbols: &[u8], sections: &[Section<'_>]) -> Vec<u8> {
    const SIZE: u64 = 64 + 56;
    let (table, strings) = ((".symtab", false, symbols), (".strtab", false, &b"\0f\0"[..]));
    let mut all: Vec<Section<'_>> = vec![("", false, &[]), table, strings];
    all.extend(sections);
    let mut names = Vec::new();
    let mut offsets = Vec::new();
    for (name, ..) in all.iter().chain([&(".shstrtab", false, &[][..])]) {
        offsets.push(names.len() as u32);
        names.extend(name.bytes().chain([0]));
    }
    all.push((".shstrtab", false, &names));
    let (mut data, mut headers) = (Vec::<u8>::new(), Vec::<u8>::new());
    for (n, (&(name, is_compressed, bytes), at)) in all.iter().zip(offsets).enumerate() {
        let kind = match name {
            "" => 0,
            ".symtab" => 2,
            ".strtab" | ".shstrtab" => 3,
            note if note.starts_with(".note") => 7,
            _ => 1u32,
        };
        let offset = SIZE + data.len() as u64;
        data.extend(bytes);
        let flags = if is_compressed { 0x800 } else { 0 };
        headers.extend(at.to_le_bytes());
        headers.extend(kind.to_le_bytes());
        headers.extend([flags, 0, offset, bytes.len() as u64].map(u64::to_le_bytes).concat());
        // The symbols' names are in the next section; none of the symbols is local.
        let link = if n == 1 { 2u32 } else { 0 };
        headers.extend([link, 1].map(u32::to_le_bytes).concat());
        headers.extend([1u64, if n == 1 { 24 } else { 0 }].map(u64::to_le_bytes).concat());
    }
    let end = SIZE + data.len() as u64;
    let mut elf = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0\x01\0\0\0".to_vec();
    elf.extend([0u64, 64, end].map(u64::to_le_bytes).concat());
    elf.extend(0u32.to_le_bytes());
    let count = all.len() as u16;
    elf.extend([64u16, 56, 1, 64, count, count - 1].map(u16::to_le_bytes).concat());
    elf.extend([1u32, 5].map(u32::to_le_bytes).concat());
    elf.extend([0u64, 0, 0, end, end, 1].map(u64::to_le_bytes).concat());
    elf.extend(data);
    elf.extend(headers);
    elf
}

/// Debug information of functions that are inlined in each other, to this depth, at all addresses up to 2²⁸: the contents of
/// `.debug_abbrev` and `.debug_info`.
pub fn nested(depth: usize) -> (Vec<u8>, Vec<u8>) {
    inlined(&vec![""; depth])
}

/// The same for functions with these names, each of which is inlined in the one before it.
pub fn inlined(names: &[&str]) -> (Vec<u8>, Vec<u8>) {
    // A compilation unit, a function and an inlined function have children, `low_pc` (an address), `high_pc` (8 bytes) and a name.
    let mut abbreviations = Vec::new();
    for (code, tag) in [(1, 0x11), (2, 0x2e), (3, 0x1d)] {
        abbreviations.extend([code, tag, 1, 0x11, 1, 0x12, 7, 3, 8, 0, 0]);
    }
    abbreviations.push(0);
    let mut entries = vec![4, 0, 0, 0, 0, 0, 8];
    let inlined = names.iter().map(|name| (3, name));
    for (code, name) in [(1, &""), (2, &"")].into_iter().chain(inlined) {
        entries.push(code);
        entries.extend([0, 1u64 << 28].map(u64::to_le_bytes).concat());
        entries.extend(name.bytes().chain([0]));
    }
    entries.resize(entries.len() + names.len() + 2, 0);
    let mut unit = (entries.len() as u32).to_le_bytes().to_vec();
    unit.extend(entries);
    (abbreviations, unit)
}
