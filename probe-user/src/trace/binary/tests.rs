//! What is found in this test's own executable, beside where it really is.

use super::*;

/// A function that is found by its name.
#[inline(never)]
fn binary_known_place(number: u64) -> u64 {
    std::hint::black_box(number.wrapping_mul(3))
}

/// Where this process has mapped a byte of its executable from, as the kernel tells: the offset in the file.
fn mapped_from(address: u64) -> u64 {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let offset = maps.lines().find_map(|line| {
        let words: Vec<_> = line.split_ascii_whitespace().collect();
        let (start, end) = words[0].split_once('-')?;
        let hex = |text| u64::from_str_radix(text, 16).unwrap();
        let is_in = (hex(start)..hex(end)).contains(&address);
        is_in.then(|| address - hex(start) + hex(words[2]))
    });
    offset.unwrap()
}

fn own() -> Binary {
    Binary::open("/proc/self/exe").unwrap()
}

/// The name of that function, as the compiler writes it.
fn known(own: &Binary) -> String {
    own.functions.names().find(|name| name.contains("binary_known_place")).unwrap().to_owned()
}

#[test]
fn a_place_is_where_the_kernel_maps_it_from() {
    assert_eq!(binary_known_place(2), 6);
    let address = binary_known_place as *const () as u64;
    let own = own();
    assert_eq!(own.place(&known(&own), 0).unwrap(), mapped_from(address));
    // Of some library, of which nothing is known here.
    let libc = Binary::open("libc").unwrap();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let is_mapped = |line: &str| line.contains("r-x") && line.contains("libc.so.6");
    let line = maps.lines().find(|line| is_mapped(line)).unwrap();
    let words: Vec<_> = line.split_ascii_whitespace().collect();
    let (start, end) = words[0].split_once('-').unwrap();
    let hex = |text| u64::from_str_radix(text, 16).unwrap();
    let code = hex(words[2])..hex(words[2]) + hex(end) - hex(start);
    assert!(code.contains(&libc.place("malloc", 0).unwrap()), "{line}");
}

#[test]
fn offsets_are_of_instructions_of_the_function() {
    let own = own();
    let name = known(&own);
    let start = own.place(&name, 0).unwrap();
    let size = own.functions.find(&name).unwrap().size;
    let places: Vec<_> = (0..size).map(|at| own.place(&name, at)).collect();
    for (at, place) in (0..).zip(&places) {
        match place {
            Ok(place) => assert_eq!(*place, start + at),
            Err(BinaryError::NoInstruction { .. }) => {}
            Err(error) => panic!("{at}: {error}"),
        }
    }
    // More than one instruction, and more than one of them with more than one byte.
    assert!((2..size as usize).contains(&places.iter().filter(|place| place.is_ok()).count()));
    let told = own.place(&name, size).unwrap_err().to_string();
    let expected = format!("the function of /proc/self/exe ends before that, it has {size} bytes");
    assert_eq!(told, expected);
}

#[test]
fn addresses_outside_of_code_have_no_place() {
    let own = own();
    let segment = own.code[0];
    assert_eq!(own.file_offset(segment.address), Some(segment.offset));
    let last = segment.address + segment.size - 1;
    assert_eq!(own.file_offset(last), Some(segment.offset + segment.size - 1));
    assert_eq!(own.file_offset(segment.address - 1), None);
    assert_eq!(own.file_offset(u64::MAX), None);
    assert!(own.entry().is_ok());
}

#[test]
fn what_is_wrong_is_told() {
    let own = own();
    let told = |name: &str| own.place(name, 0).unwrap_err().to_string();
    let name = known(&own);
    let misspelt = told(&name.replace("known_place", "known_plce"));
    let expected = format!("/proc/self/exe has no function of this name; there is {name}");
    assert!(misspelt.starts_with(&expected), "{misspelt}");
    assert!(told("getenv").starts_with("/proc/self/exe calls this function, but does not have it"));
    let libc = Binary::open("libc").unwrap();
    let told = libc.place("strlen", 0).unwrap_err().to_string();
    assert!(
        told.contains("libc.so.6 has several functions for this name, one of which is chosen"),
        "{told}"
    );
    assert!(libc.path().ends_with("libc.so.6"));
}

#[test]
fn what_is_not_run_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let told = |bytes: &[u8]| {
        let path = dir.path().join("file");
        fs::write(&path, bytes).unwrap();
        let error = Binary::open(path.to_str().unwrap()).unwrap_err().to_string();
        error.replace(path.to_str().unwrap(), "FILE")
    };
    assert_eq!(told(b"#!/bin/sh\n"), "FILE is not what processes run code of: it is no ELF file");
    assert_eq!(told(b""), "FILE is not what processes run code of: it is no ELF file");
    let own = fs::read("/proc/self/exe").unwrap();
    assert!(told(&own[..40]).contains("it is no 64-bit ELF file: "));
    // Whatever is cut off or changed, it is told or it works.
    let libc = Binary::open("libc").unwrap().data;
    let changed = |at: usize, byte: u8| {
        let mut bytes = libc.clone();
        bytes[at] = byte;
        Binary::parse("FILE".into(), bytes).map(drop)
    };
    for at in 4..64 {
        for byte in [0, 1, 0x7f, 0xff] {
            let _ = changed(at, byte);
        }
    }
    let machine = changed(18, 0xff).unwrap_err().to_string();
    assert_eq!(
        machine,
        "FILE is not what processes run code of: it is for another machine than this one"
    );
    let sort = changed(16, 1).unwrap_err().to_string();
    assert_eq!(
        sort,
        "FILE is not what processes run code of: it is no program, and no shared library"
    );
    let dir = Binary::open(dir.path().to_str().unwrap()).unwrap_err().to_string();
    assert!(dir.ends_with(" is no file"), "{dir}");
}

#[test]
fn a_pattern_stands_for_each_function_once() {
    let own = own();
    let found = own.matching(|name| name.contains("binary_known_"));
    assert_eq!(found.names, [known(&own)]);
    let libc = Binary::open("libc").unwrap();
    let found = libc.matching(|name| name.ends_with("write"));
    // And not __write, which is the same.
    assert!(
        found.names.contains(&"write".to_owned()) && !found.names.contains(&"__write".to_owned())
    );
    assert!(libc.matching(|name| name == "__write").names == ["__write"]);
    let strings = libc.matching(|name| name.starts_with("strl") || name.starts_with("strd"));
    assert!(strings.indirect > 0 && strings.names.contains(&"strdup".to_owned()), "{strings:?}");
}
