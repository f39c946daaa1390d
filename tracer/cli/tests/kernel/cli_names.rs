//! Names that are written in quotes, demangled names, addresses, and files without symbols.

use crate::probe::chain::Chain;
use crate::probe::commands::{self, own, shell};
use crate::probe::{assert_exit, counts, events, probe, stderr, stdout, succeed};
use probe_testing::crafted::xz;
use probe_tracer::{Info, ProbeSpec, Provider, list};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::hint::black_box;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::process::Command;

const ODD: &str = "odd name: f(int*) [x]";

#[inline(never)]
#[unsafe(export_name = "odd name: f(int*) [x]")]
extern "C" fn odd(number: u64) -> u64 {
    black_box(number.wrapping_mul(7))
}

#[inline(never)]
fn demangled(number: u64) -> u64 {
    black_box(number.wrapping_mul(11))
}

/// Not a test, but the workload of the tests.
#[test]
#[ignore = "the workload of other tests"]
fn workload() {
    if commands::requested_work() == "names" {
        (0..3).for_each(|n| assert_eq!(odd(n), 7 * n));
        (0..5).for_each(|n| assert_eq!(demangled(n), 11 * n));
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn functions_are_found_by_quoted_and_demangled_names() {
    let file = own();
    let specs = [
        format!("uprobe:{file}:\"{ODD}\""),
        format!("uprobe:\"{file}\":\"kernel::cli_names::demangled\""),
    ];
    let (counts, printed) = counts(&specs, commands::workload("cli_names", "names"));
    let expected = [(ODD, 3), ("kernel::cli_names::demangled", 5)];
    let expected = expected.map(|(name, count)| (name.to_owned(), count));
    assert_eq!(counts["uprobe"], BTreeMap::from(expected), "{printed}");
    // What is listed is in the syntax of a trace.
    let listed = stdout(&succeed(&mut probe(["list", &format!("uprobe:{file}:odd*")])));
    assert_eq!(listed, format!("{}\n", specs[0]));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn files_with_odd_paths_without_symbols_and_by_address() {
    let chain = Chain::compile();
    let folder = chain.program.parent().unwrap();
    let at = |name: &str| folder.join(name).display().to_string();
    let (original, odd, stripped) = (at("chain"), at("a b:c"), at("stripped"));
    fs::copy(&original, &odd).unwrap();
    // `strip` keeps the build ID, and the link names the file with the symbols.
    let debug = at("symbols.debug");
    succeed(Command::new("objcopy").args(["--only-keep-debug", &original, &debug]));
    let link = format!("--add-gnu-debuglink={debug}");
    succeed(Command::new("objcopy").args(["--strip-all", &link, &original, &stripped]));
    let names = stdout(&succeed(Command::new("nm").arg(&original)));
    let address = |name: &str| {
        let line = names.lines().find(|line| line.ends_with(&format!(" {name}"))).unwrap();
        u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap()
    };
    let innermost = address("innermost");
    let specs = [
        format!("uprobe:\"{odd}\":innermost()"),
        format!("uprobe:{stripped}:innermost()"),
        format!("uprobe:{original}:{innermost:#x}()"),
    ];
    let script = format!("'{odd}' 2 0 0; {stripped} 3 0 0; {original} 4 0 0");
    let events = events(&specs, shell(&script));
    let hits = |comm: &str, probe: &str| {
        events.iter().filter(|event| event["comm"] == comm && event["probe"] == probe).count()
    };
    assert_eq!(events.len(), 9);
    assert_eq!((hits("a b:c", "innermost"), hits("stripped", "innermost")), (2, 3));
    assert_eq!(hits("chain", &format!("{innermost:#x}")), 4);
    // A link could lead to a file that the owner of the program may not read.
    let moved = at("moved.debug");
    fs::rename(&debug, &moved).unwrap();
    symlink(&moved, &debug).unwrap();
    let trace = ["trace", &format!("uprobe:{stripped}:innermost")];
    assert_exit(&mut probe(trace), 1, "has no function of this name");
    fs::rename(&moved, &debug).unwrap();
    // Symbols of another build have other addresses. The function begins with an instruction of 4 bytes.
    succeed(Command::new("objcopy").args(["--remove-section=.note.gnu.build-id", &debug]));
    for (spec, expected) in [
        (format!("uprobe:{stripped}:innermost"), "has no function of this name"),
        (format!("uprobe:{original}:{:#x}", innermost + 2), "no instruction that begins at"),
        (format!("uretprobe:{original}:{:#x}", innermost + 4), "no function that begins at"),
        (format!("uprobe:{original}:0x10"), "has no executable segment at this address"),
        (format!("uprobe:{original}:0xyz"), "expected an address, like 0x1139"),
        (format!("uprobe:{original}:a::b"), "a name with colons is written in quotes"),
    ] {
        let code = if spec.ends_with("yz") || spec.contains("::") { 2 } else { 1 };
        assert_exit(&mut probe(["trace", &spec]), code, expected);
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn symbols_without_a_build_id_have_the_checksum_of_the_link() {
    let chain = Chain::compile();
    let folder = chain.program.parent().unwrap();
    let at = |name: &str| folder.join(name).display().to_string();
    let (original, stripped, debug) = (at("original"), at("stripped"), at("symbols.debug"));
    let objcopy = |args: &[&str]| succeed(Command::new("objcopy").args(args));
    objcopy(&["--remove-section=.note.gnu.build-id", &at("chain"), &original]);
    objcopy(&["--only-keep-debug", &original, &debug]);
    objcopy(&["--strip-all", &format!("--add-gnu-debuglink={debug}"), &original, &stripped]);
    let spec = format!("uprobe:{stripped}:innermost()");
    let events = events(&[&spec], [stripped, "3".into(), "0".into(), "0".into()]);
    assert_eq!(events.len(), 3);
    let mut other = fs::read(&debug).unwrap();
    other.push(0);
    fs::write(&debug, other).unwrap();
    let mut trace = probe(["trace", &spec, "-d", "10ms"]);
    assert_exit(&mut trace, 1, "has no function of this name");
}

/// As in the packages of Fedora.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn functions_of_a_stripped_file_have_the_names_embedded_in_it() {
    let chain = Chain::compile();
    let folder = chain.program.parent().unwrap();
    let at = |name: &str| folder.join(name).display().to_string();
    let (original, stripped, debug, packed) = (at("chain"), at("stripped"), at("x"), at("x.xz"));
    let objcopy = |args: &[&str]| succeed(Command::new("objcopy").args(args));
    objcopy(&["--only-keep-debug", "--remove-section=.debug_*", &original, &debug]);
    fs::write(&packed, xz(&fs::read(&debug).unwrap())).unwrap();
    let section = format!("--add-section=.gnu_debugdata={packed}");
    objcopy(&[
        "--strip-all",
        "--remove-section=.note.gnu.build-id",
        &section,
        &original,
        &stripped,
    ]);
    let spec = format!("uprobe:{stripped}:innermost(ustack)");
    let events = events(&[&spec], [stripped, "2".into(), "0".into(), "0".into()]);
    assert_eq!(events.len(), 2);
    for event in &events {
        let stack = event["args"]["ustack"].as_array().unwrap();
        let names = stack.iter().map(|frame| frame["symbol"].as_str().unwrap_or_default());
        assert!(names.take(3).eq(["innermost", "left", "main"]), "{event}");
    }
}

/// Whatever is listed on this machine is a spec that stands for itself, and can be attached.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn everything_that_is_listed_can_be_traced() {
    let file = own();
    let patterns = ["*".to_owned(), "uprobe:libc:*".to_owned(), format!("uprobe:{file}:*")];
    let mut some = Vec::new();
    for pattern in &patterns {
        let listed = list(pattern).unwrap().probes;
        for one in &listed {
            let spec: ProbeSpec = one.to_string().parse().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!((spec.provider(), spec.is_glob()), (one.provider, false), "{one}");
            assert_eq!(spec.to_string().parse::<ProbeSpec>().unwrap(), spec, "{one}");
            if spec.provider() == Provider::Uprobe {
                let (file, name) = (spec.module().unwrap(), spec.name());
                assert!(!file.is_empty() && !name.is_empty(), "{one}");
            }
        }
        let (few, step) = (if pattern == "*" { 12 } else { 6 }, listed.len());
        some.extend((0..few).filter_map(|n| listed.get(n * step / few)).map(ToString::to_string));
    }
    for spec in &some {
        Info::of(&spec.parse().unwrap()).unwrap_or_else(|error| panic!("{error}"));
    }
    let output = probe(["count"]).args(&some).args(["-d", "1ms"]).output().unwrap();
    assert!(output.status.success(), "{some:#?}: {}", stderr(&output));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_thread_or_a_program_may_have_a_name_that_is_not_text() {
    let dir = tempfile::tempdir().unwrap();
    let name = OsStr::from_bytes(b"a\xff");
    fs::copy("/bin/true", dir.path().join(name)).unwrap();
    let path = std::env::var("PATH").unwrap();
    let mut count = probe(["count", "tracepoint:sched:sched_process_exit", "-n"]);
    count.env("PATH", format!("{}:{path}", dir.path().display())).args([
        name,
        OsStr::new("--"),
        name,
    ]);
    let counted = stdout(&succeed(&mut count));
    assert!(counted.contains("1 tracepoint sched:sched_process_exit"), "{counted}");
}
