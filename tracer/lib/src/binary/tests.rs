//! Locations found in this test's own executable, compared with the kernel's view of them.

use super::*;
use std::ops::Range;

/// A function to find by name.
#[inline(never)]
fn binary_known_function(number: u64) -> u64 {
    std::hint::black_box(number.wrapping_mul(3))
}

/// The mappings of this process: addresses, the file offset of the first, and the line.
fn mappings() -> Vec<(Range<u64>, u64, String)> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let hex = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let mapping = |line: &str| {
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        let (start, end) = words[0].split_once('-').unwrap();
        (hex(start)..hex(end), hex(words[2]), line.to_owned())
    };
    maps.lines().map(mapping).collect()
}

fn exe() -> Binary {
    Binary::open("/proc/self/exe", &[]).unwrap()
}

/// The mangled name of that function.
fn known(own: &Binary) -> String {
    own.functions.names().find(|name| name.contains("binary_known_function")).unwrap().to_owned()
}

#[test]
fn offsets_agree_with_the_kernels_mappings() {
    assert_eq!(binary_known_function(2), 6);
    let address = binary_known_function as *const () as u64;
    let own = exe();
    let mappings = mappings();
    let (addresses, offset, _) =
        mappings.iter().find(|(range, ..)| range.contains(&address)).unwrap();
    assert_eq!(own.offset_of(&known(&own), 0).unwrap(), address - addresses.start + offset);
    // A system library.
    let malloc = Binary::open("libc", &[]).unwrap().offset_of("malloc", 0).unwrap();
    let is_code = |line: &str| line.contains("r-x") && line.contains("libc.so.6");
    let (addresses, offset, line) = mappings.iter().find(|(.., line)| is_code(line)).unwrap();
    assert!((*offset..offset + (addresses.end - addresses.start)).contains(&malloc), "{line}");
}

#[test]
fn only_instructions_of_the_function_have_offsets() {
    let own = exe();
    let name = known(&own);
    let start = own.find(&name, 0).unwrap();
    let size = own.functions.find(&name).unwrap().size;
    let mut instructions = 0;
    for at in 0..size {
        match own.find(&name, at) {
            Ok(offset) => assert_eq!(offset, start + at),
            Err(FileProblem::NoInstruction) => continue,
            Err(error) => panic!("{at}: {error}"),
        }
        instructions += 1;
    }
    // There are at least two instructions, and some have more than one byte.
    assert!((2..size).contains(&instructions));
    let error = own.offset_of(&name, size).unwrap_err().to_string();
    let start = format!("/proc/self/exe has only {size} bytes of code in this function");
    assert!(error.starts_with(&start), "{error}");
}

#[test]
fn addresses_outside_of_code_have_no_offset() {
    let own = exe();
    let segment = own.code[0];
    let offset_of = |address| own.file_offset(address).ok();
    assert_eq!(offset_of(segment.address), Some(segment.offset));
    let last = segment.address + segment.size - 1;
    assert_eq!(offset_of(last), Some(segment.offset + segment.size - 1));
    assert_eq!([segment.address - 1, u64::MAX].map(offset_of), [None; 2]);
    assert!(own.entry().is_ok());
}

#[test]
fn functions_that_cannot_be_probed_are_explained() {
    let own = exe();
    let libc = Binary::open("libc", &[]).unwrap();
    assert!(libc.path().ends_with("libc.so.6"));
    // This process does not run code from the copy, so nothing is known of its choice.
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("libc.so.6");
    fs::copy(libc.path(), &copy).unwrap();
    let copy = Binary::open(copy.to_str().unwrap(), &[]).unwrap();
    assert!(libc.chosen("strlen").is_some() && libc.chosen("getenv").is_none());
    let name = known(&own);
    let near = format!("/proc/self/exe has no function of this name; did you mean `{name}`");
    for (binary, function, start) in [
        (&own, &*name.replace("known_function", "known_functon"), &*near),
        (&own, "getenv", "/proc/self/exe calls this function but does not define it"),
        (&copy, "strlen", "libc.so.6 has several functions for this name, one of which is chosen"),
    ] {
        let error = binary.offset_of(function, 0).unwrap_err().to_string();
        assert!(error.contains(start), "{error}");
    }
}

#[test]
fn files_that_are_not_programs_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let opened = |bytes: &[u8]| {
        let path = dir.path().join("file");
        fs::write(&path, bytes).unwrap();
        let error = Binary::open(path.to_str().unwrap(), &[]).unwrap_err().to_string();
        error.replace(path.to_str().unwrap(), "FILE")
    };
    for bytes in [&b"#!/bin/sh\n"[..], b""] {
        let expected = "FILE has no code that can be probed: it is not an ELF file";
        assert_eq!(opened(bytes), expected);
    }
    let exe = fs::read("/proc/self/exe").unwrap();
    assert!(opened(&exe[..40]).contains("it is not a 64-bit ELF file: "));
    // A truncated or corrupted file yields an error or a result, never a panic.
    let path = dir.path().join("libc");
    fs::copy(Binary::open("libc", &[]).unwrap().path(), &path).unwrap();
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let changed = |at: u64, byte: u8| {
        let mut before = [0];
        file.read_exact_at(&mut before, at).unwrap();
        file.write_all_at(&[byte], at).unwrap();
        let opened = Binary::open(path.to_str().unwrap(), &[]).map(drop);
        file.write_all_at(&before, at).unwrap();
        opened
    };
    for at in 4..64 {
        for byte in [0, 1, 0x7f, 0xff] {
            let _ = changed(at, byte);
        }
    }
    for (at, byte, why) in [
        (18, 0xff, "it is for another machine"),
        (16, 1, "it is neither a program nor a shared library"),
    ] {
        let error = changed(at, byte).unwrap_err().to_string();
        assert_eq!(error, format!("{} has no code that can be probed: {why}", path.display()));
    }
    let dir = Binary::open(dir.path().to_str().unwrap(), &[]).unwrap_err().to_string();
    assert!(dir.ends_with(" is not a file"), "{dir}");
    let missing = Binary::open("./no/such", &[]).unwrap_err().to_string();
    assert_eq!(missing, "./no/such cannot be read: No such file or directory (os error 2)");
}

#[test]
fn a_pattern_selects_each_function_once() {
    let own = exe();
    let found = own.matching(|name| name.contains("binary_known_"));
    assert_eq!(found.names, [known(&own)]);
    let libc = Binary::open("libc", &[]).unwrap();
    let found = libc.matching(|name| name.ends_with("write"));
    // Its alias __write is left out.
    assert!(
        found.names.contains(&"write".to_owned()) && !found.names.contains(&"__write".to_owned())
    );
    assert!(libc.matching(|name| name == "__write").names == ["__write"]);
    let strings = libc.matching(|name| name.starts_with("strl") || name.starts_with("strd"));
    assert!(strings.indirect > 0 && strings.names.contains(&"strdup".to_owned()), "{strings:?}");
}

#[test]
fn a_file_is_not_read_as_a_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("large");
    fs::copy("/proc/self/exe", &path).unwrap();
    // More than fits in memory, and all of it a hole.
    File::options().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
    let (large, own) = (Binary::open(path.to_str().unwrap(), &[]).unwrap(), exe());
    let name = known(&own);
    assert_eq!(large.offset_of(&name, 0).unwrap(), own.offset_of(&name, 0).unwrap());
}
