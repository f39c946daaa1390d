//! Attacks: files that are crafted to harm whoever reads them, and what may happen to the processes that do.

use super::client::{Lookup, Reader};
use super::message::{Kind, TEXT, Wants};
use super::{Function, NAME, keeper};
use crate::binary::FileProblem;
use crate::binary::contents::Contents;
use probe_sys::process::linked_function;
use probe_testing::crafted::{elf, inlined, nested};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

#[test]
fn the_test_program_is_a_keeper_if_asked() {
    if std::env::var_os(NAME).is_some() {
        std::process::exit(i32::from(keeper::run().is_err()));
    }
}

/// The name of the outermost function at each address. `beside` is what is found for whatever the file wants.
fn names(
    reader: &mut Reader,
    kind: Kind,
    file: &File,
    addresses: &[u64],
    beside: &[&File],
) -> Vec<String> {
    let copies = || beside.iter().map(|file| file.try_clone().unwrap()).collect();
    let open = &|_: &Wants| (copies(), !beside.is_empty());
    let lookup = Lookup { kind, file, path: Path::new("the file"), root: None, open };
    let mut found = reader.functions(&lookup, addresses);
    assert!(found.len() <= addresses.len());
    found.resize(addresses.len(), Vec::new());
    let name = |functions: Vec<Function>| functions.last().map(|one| one.name.clone());
    found.into_iter().map(|one| name(one).unwrap_or_default()).collect()
}

fn program(reader: &mut Reader, file: &File) -> String {
    names(reader, Kind::Program, file, &[0], &[file]).pop().unwrap()
}

fn generated(reader: &mut Reader, file: &File) -> String {
    names(reader, Kind::PerfMap, file, &[0x10], &[]).pop().unwrap()
}

fn file(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn libc() -> (File, u64) {
    let (path, offset) = linked_function(c"getpid").unwrap();
    (File::open(path).unwrap(), offset)
}

/// The reader works if it names a function of the C library.
fn assert_works(reader: &mut Reader) {
    let (libc, offset) = libc();
    assert!(names(reader, Kind::Program, &libc, &[offset], &[])[0].ends_with("getpid"));
}

/// The reader that runs now.
fn current(reader: &Reader) -> Pid {
    let last = *reader.state().ids().last().unwrap();
    Pid::from_raw(last.cast_signed()).unwrap()
}

#[test]
fn functions_and_generated_code_have_names() {
    let mut reader = Reader::start().unwrap();
    assert_works(&mut reader);
    assert_works(&mut reader);
    let map = file(b"10 8 generated\n");
    assert_eq!(names(&mut reader, Kind::PerfMap, &map, &[0x17, 0x18], &[]), ["generated", ""]);
    // As many as fit into several packets, and long names that fit into none.
    let many: Vec<u64> = (0x10..0x10 + 300).collect();
    assert_eq!(names(&mut reader, Kind::PerfMap, &map, &many, &[])[7], "generated");
    let long = file(format!("10 8 {}\n", "\u{1}".repeat(60_000)).as_bytes());
    let shown = generated(&mut reader, &long);
    assert!(shown.ends_with('…') && shown.len() <= TEXT, "{}", shown.len());
    assert_eq!(generated(&mut reader, &file(b"10 8 \xff\xfe\n")), "\u{fffd}\u{fffd}");
    // A malformed note or debug link affects no symbol.
    for sections in [&[(".note.x", false, &b"x"[..])][..], &[(".gnu_debuglink", false, b"x")], &[]]
    {
        assert_eq!(program(&mut reader, &file(&elf(sections))), "f");
    }
    // One that has no name is left out.
    let (abbreviations, unit) = inlined(&["outer", "", "inner"]);
    let debug = [(".debug_abbrev", false, &*abbreviations), (".debug_info", false, &unit)];
    let (path, open) = (Path::new("x"), &|_: &Wants| (Vec::new(), false));
    let lookup = Lookup { kind: Kind::Program, file: &file(&elf(&debug)), path, root: None, open };
    let found = reader.functions(&lookup, &[0]).pop().unwrap();
    let found: Vec<_> = found.iter().map(|one| (&*one.name, one.offset)).collect();
    assert_eq!(found, [("inner", None), ("outer", None), ("f", Some(0))]);
    assert_eq!(reader.state().unnamed(), 0);
}

/// What is read of a program in which functions are to be probed.
fn contents(reader: &mut Reader, file: &File, beside: &[&File]) -> Result<Contents, FileProblem> {
    let copies = || beside.iter().map(|file| file.try_clone().unwrap()).collect();
    let open = &|_: &Wants| (copies(), false);
    reader.contents(&Lookup {
        kind: Kind::Program,
        file,
        path: Path::new("the file"),
        root: None,
        open,
    })
}

#[test]
fn a_reader_tells_what_is_known_of_a_program() {
    let mut reader = Reader::start().unwrap();
    let (libc, _) = libc();
    let own = File::open("/proc/self/exe").unwrap();
    for file in [&libc, &own] {
        let found = contents(&mut reader, file, &[]).unwrap();
        let expected = Contents::read(file, &mut |_| Vec::new()).unwrap();
        assert_eq!(found.layout, expected.layout);
        let symbols = |contents: Contents| contents.functions.into_symbols().collect::<Vec<_>>();
        let found = symbols(found);
        assert!(found.len() > 1000);
        assert!(found == symbols(expected));
    }
    let script = file(b"#!/bin/sh\n");
    let error = contents(&mut reader, &script, &[]).unwrap_err().to_string();
    assert!(error.starts_with("has no code that can be probed: it is not a 64-bit ELF file"));
    let code = file(&[0x55, 0x48, 0x89, 0xe5]);
    let mut ends = |size| reader.is_boundary(&code, 0, size).map_err(|error| error.to_string());
    assert_eq!([1, 2, 4].map(&mut ends), [Ok(true), Ok(false), Ok(true)]);
    assert!(ends(5).unwrap_err().starts_with("cannot be read: "));
    assert!(ends(1 << 40).unwrap_err().contains("more than 64 MiB before this offset"));
    assert_works(&mut reader);
}

#[test]
fn a_reader_finds_symbols_by_names_in_the_source() {
    let mut reader = Reader::start().unwrap();
    let file = file(b"");
    let (long, control) = (format!("_Z{}", "x".repeat(1 << 20)), "\u{1}".repeat(5000));
    let mut symbols = vec!["_ZN2ns8functionEi", &long];
    symbols.extend([&*control; 100]);
    symbols.extend(["_ZN3dog4bark17h0123456789abcdefE", "_ZN2ns8functionEd"]);
    let mut found = |name: &str| reader.symbols_of(name, &symbols, &file).unwrap();
    assert_eq!(found("ns::function"), [0, 103]);
    assert_eq!(found("dog::bark"), [102]);
    for name in ["function", &long, &control] {
        assert_eq!(found(name), [0; 0]);
    }
    assert_works(&mut reader);
}

#[test]
fn a_program_that_ends_its_reader_is_refused_and_not_read_again() {
    let mut reader = Reader::start().unwrap().hurried();
    let (good, files) = (file(&elf(&[])), [(); 2].map(|()| file(&elf(&[]))));
    let signals = [
        (Signal::KILL, "ended the process that reads symbols"),
        (Signal::STOP, "took more than 5s"),
    ];
    for (file, (signal, why)) in files.iter().zip(signals) {
        kill_process(current(&reader), signal).unwrap();
        let error = contents(&mut reader, file, &[]).unwrap_err().to_string();
        assert!(error.starts_with(&format!("cannot be read: reading it {why}")), "{error}");
        let again = reader.is_boundary(file, 0, 1).unwrap_err().to_string();
        assert_eq!(again, "cannot be read: reading it failed before");
        assert!(contents(&mut reader, &good, &[]).is_ok());
    }
}

#[test]
fn too_many_symbols_do_not_count_as_a_failure_of_the_reader() {
    let mut reader = Reader::start().unwrap().with_little_room();
    let (libc, _) = libc();
    for _ in 0..2 {
        let error = contents(&mut reader, &libc, &[]).unwrap_err().to_string();
        assert!(error.starts_with("has more function symbols than fit in"), "{error}");
    }
    assert!(contents(&mut reader, &file(&elf(&[])), &[]).is_ok());
    assert_works(&mut reader);
}

#[test]
fn a_reader_has_no_privileges() {
    let mut reader = Reader::start().unwrap();
    assert_works(&mut reader);
    let status = fs::read_to_string(format!("/proc/{}/status", current(&reader))).unwrap();
    let is = |line: &str| assert!(status.contains(line), "{line}: {status}");
    is("NoNewPrivs:\t1\n");
    is("Seccomp:\t2\n");
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        is(&format!("{set}:\t0000000000000000\n"));
    }
    if geteuid().is_root() {
        is("Uid:\t65534\t65534\t65534\t65534\n");
        is("Gid:\t65534\t65534\t65534\t65534\n");
        is("Groups:\t \n");
    }
}

#[test]
fn crafted_files_end_at_most_the_process_that_reads_them() {
    let mut reader = Reader::start().unwrap();
    // Compressed sections that claim to have 2⁴⁸ bytes.
    let huge = [1u32, 0].map(u32::to_le_bytes).concat();
    let huge = [huge, [1u64 << 48, 1].map(u64::to_le_bytes).concat(), vec![0; 64]].concat();
    let (abbreviations, deep) = nested(200_000);
    let id = [4u32, 8, 3].map(u32::to_le_bytes).concat();
    let id = [&id, &b"GNU\0same-id!"[..]].concat();
    let link = [&b"the file\0\0\0\0"[..], &[0; 4]].concat();
    for sections in [
        &[(".debug_info", true, &*huge), (".debug_abbrev", true, &huge)][..],
        &[(".debug_info", true, &huge[..30])],
        &[(".debug_abbrev", false, &abbreviations), (".debug_info", false, &deep)],
        // A debug link that leads to the same file, and one without an end.
        &[(".gnu_debuglink", false, &link), (".note.gnu.build-id", false, &id)],
        &[(".gnu_debuglink", false, b"x")],
        &[(".debug_info", false, b""), (".gnu_debugaltlink", false, b"\0\0")],
    ] {
        let file = file(&elf(sections));
        let name = program(&mut reader, &file);
        assert!(["", "f"].contains(&&*name), "{name}");
        assert_works(&mut reader);
        let _ = contents(&mut reader, &file, &[&file]);
        assert_works(&mut reader);
    }
    // 2³² sections, which a sparse file has room for.
    let mut many = elf(&[]);
    let headers = u64::from_le_bytes(many[40..48].try_into().unwrap()) as usize;
    many[60..62].fill(0);
    many[headers + 32..headers + 40].copy_from_slice(&(1u64 << 32).to_le_bytes());
    let sparse = file(&many);
    sparse.set_len(1 << 40).unwrap();
    program(&mut reader, &sparse);
    let _ = contents(&mut reader, &sparse, &[&sparse]);
    // A list of a size that nobody needs.
    let map = file(b"10 8 first\n");
    map.set_len(1 << 30).unwrap();
    assert_eq!(generated(&mut reader, &map), "first");
    assert_works(&mut reader);
}

#[test]
fn a_file_may_shrink_while_it_is_read() {
    let mut reader = Reader::start().unwrap();
    let (libc, offset) = libc();
    let bytes =
        fs::read(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&libc))).unwrap();
    let copy = file(&bytes);
    let getpid =
        |reader: &mut Reader| names(reader, Kind::Program, &copy, &[offset], &[]).pop().unwrap();
    assert!(getpid(&mut reader).ends_with("getpid"));
    for length in [bytes.len() / 2, 100, 0] {
        copy.set_len(length as u64).unwrap();
        assert_eq!(getpid(&mut reader), "");
    }
    assert_eq!(reader.state().unnamed(), 0);
}

#[test]
fn many_files_take_little_memory() {
    let mut reader = Reader::start().unwrap();
    // They stay, so that each has its own inode.
    let dir = tempfile::tempdir().unwrap();
    for n in 0..10_000 {
        let path = dir.path().join(n.to_string());
        fs::write(&path, format!("10 8 f{n} {}\n", "x".repeat(4000))).unwrap();
        let map = File::open(path).unwrap();
        assert!(generated(&mut reader, &map).starts_with(&format!("f{n} ")));
    }
    let status = fs::read_to_string(format!("/proc/{}/status", current(&reader))).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim_matches(|char: char| !char.is_ascii_digit()).parse().unwrap();
    // All of them would take 40 MB.
    assert!(peak < 30_000, "{peak} kB");
}

#[test]
fn a_reader_that_ends_or_stops_is_replaced_until_that_happens_too_often() {
    let mut reader = Reader::start().unwrap().hurried();
    let map = file(b"10 8 generated\n");
    assert_eq!(generated(&mut reader, &map), "generated");
    let blamed = [(); 3].map(|()| file(b"10 8 blamed\n"));
    for (n, signal) in [Signal::KILL, Signal::STOP, Signal::KILL].into_iter().enumerate() {
        kill_process(current(&reader), signal).unwrap();
        let blamed = &blamed[n];
        assert_eq!(generated(&mut reader, blamed), "");
        // It is not read again.
        assert_eq!(generated(&mut reader, blamed), "");
        assert_eq!(generated(&mut reader, &map), "generated");
        assert_eq!(reader.state().unnamed(), 2 * (n + 1));
    }
    // A file that has changed is another file, like one that has got the inode of a deleted file. This one was created five
    // seconds ago, before the reader was stopped.
    (&blamed[1]).write_all(b"20 8 other\n").unwrap();
    assert_eq!(generated(&mut reader, &blamed[1]), "blamed");
    // Another file each.
    let files: Vec<_> = (0..50).map(|_| file(b"10 8 blamed\n")).collect();
    for file in &files {
        let _ = kill_process(current(&reader), Signal::KILL);
        generated(&mut reader, file);
    }
    assert_eq!(reader.state().ids().len(), 33);
    assert_eq!(generated(&mut reader, &map), "");
}

#[test]
fn the_end_of_the_keeper_is_the_end_of_names_only() {
    let mut reader = Reader::start().unwrap().hurried();
    let keeper = Pid::from_raw(reader.state().ids()[0].cast_signed()).unwrap();
    let begun = Instant::now();
    for pid in [keeper, current(&reader)] {
        kill_process(pid, Signal::KILL).unwrap();
    }
    // A file that has never been read is not blamed.
    let files = [(); 2].map(|()| file(&elf(&[])));
    let starts = [
        "cannot be read: reading it ended the process that reads symbols. Nor can other programs",
        "cannot be read: the process that reads programs is not started again: ",
    ];
    for (file, start) in files.iter().zip(starts) {
        let error = contents(&mut reader, file, &[]).unwrap_err().to_string();
        assert!(error.starts_with(start), "{error}");
    }
    let map = file(b"10 8 generated\n");
    assert_eq!([0; 2].map(|_| generated(&mut reader, &map)), ["", ""]);
    assert_eq!(reader.state().unnamed(), 2);
    drop(reader);
    // Less than the start of a reader may take.
    assert!(begun.elapsed() < Duration::from_secs(9));
}
