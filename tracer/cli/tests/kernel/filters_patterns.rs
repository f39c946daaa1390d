//! Patterns of strings, and comparisons of two fields, in predicates of the binary `probe`, with known calls.

use crate::probe::commands::{self, requested_work};
use crate::probe::{all_json_lines, events, has_kprobes, json_lines, probe, stderr, trace};
use probe_testing::pattern::matches;
use std::ffi::CString;

// SAFETY: this matches the C library.
unsafe extern "C" {
    safe fn dup2(old: i32, new: i32) -> i32;
}

/// Descriptors that are not open, whatever the process has open.
const PAIRS: [(i32, i32); 5] = [(-5, -5), (-3, -7), (-7, -3), (-9, 1 << 30), (1 << 30, -9)];

/// Paths that do not exist. The text that patterns look for is at each offset around the length of a window in which the
/// program searches at a time, and at the end of long paths.
fn paths() -> Vec<String> {
    let mut paths =
        ["/none/a", "/none/ab.conf", "/none/needle", "/none/xneedley.conf", "/none/needl"]
            .map(str::to_owned)
            .to_vec();
    paths.extend((54..72).map(|n| format!("/none/{}needle", "b".repeat(n))));
    paths.extend([
        format!("/none/{}needle{}", "x".repeat(200), "y".repeat(100)),
        format!("/none/{}needle", "z".repeat(3_900)),
        format!("/none/{}needl", "z".repeat(3_900)),
    ]);
    paths
}

/// Two names each. Those of a pair differ in the first byte, in the last one, in length, or not at all.
fn names() -> Vec<(String, String)> {
    let long = |last| format!("/none/{}{last}", "r".repeat(3_000));
    vec![
        ("/none/a".into(), "/none/a".into()),
        ("/none/a".into(), "/none/b".into()),
        ("/none/a".into(), "/none/ab".into()),
        ("/nope".into(), "none/".into()),
        (long("a"), long("a")),
        (long("a"), long("b")),
    ]
}

#[test]
#[ignore = "a workload that tests trace"]
fn workload() {
    match requested_work().as_str() {
        "" => return,
        "long" => return long_names().iter().for_each(rename),
        "room" => return fill_the_room(),
        "buffers" => return write_buffers(),
        _ => {}
    }
    for path in paths() {
        assert!(std::fs::File::open(path).is_err());
    }
    for (old, new) in PAIRS {
        assert_eq!(dup2(old, new), -1);
    }
    names().iter().for_each(rename);
}

/// Buffers, with zero bytes at their beginning, in them, and at their end; and around the lengths that can be compared and shown.
fn buffers() -> [Vec<u8>; 10] {
    let long = |byte, len| vec![byte; len];
    [
        b"a".into(),
        b"a\0".into(),
        b"a\0b".into(),
        b"ab".into(),
        b"".into(),
        b"\0".into(),
        long(b'x', 63),
        long(b'x', 64),
        long(b'x', 65),
        long(b'y', 600),
    ]
}

fn write_buffers() {
    rustix::thread::set_name(c"buffers").unwrap();
    let null = std::fs::File::options().write(true).open("/dev/null").unwrap();
    for buffer in buffers() {
        let mut memory = [b'-'; 1024];
        memory[..buffer.len()].copy_from_slice(&buffer);
        assert_eq!(rustix::io::write(&null, &memory[..buffer.len()]), Ok(buffer.len()));
    }
}

fn rename((old, new): &(String, String)) {
    let [old, new] = [old, new].map(|name| CString::new(name.as_bytes()).unwrap());
    // SAFETY: both are strings with a terminating zero.
    assert_eq!(unsafe { libc::rename(old.as_ptr(), new.as_ptr()) }, -1);
}

/// Makes calls with strings after which there is no room for a further one.
fn fill_the_room() {
    rustix::thread::set_name(c"renamer").unwrap();
    let [one, two] = [3_000, 3_700].map(|len| format!("/none/{}", "q".repeat(len)));
    rename(&(one.clone(), two.clone()));
    let [one, two] = [one, two].map(|name| CString::new(name).unwrap());
    // SAFETY: all are strings with a terminating zero, and there are no data.
    let mounted =
        unsafe { libc::mount(one.as_ptr(), two.as_ptr(), c"tmpfs".as_ptr(), 0, std::ptr::null()) };
    assert_eq!(mounted, -1);
}

/// Names that are longer than what is read of them.
fn long_names() -> [(String, String); 2] {
    let long = |begin, end| format!("/{begin}/{}{end}", "q".repeat(5_000));
    [(long("one", "end"), long("one", "end")), (long("one", "end"), long("other", "end"))]
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn patterns_match_exactly_the_strings_that_they_describe() {
    const PATTERNS: [&str; 22] = [
        "/none/*",
        "*.conf",
        "/none/*needle*",
        "*needle",
        "/none/a?.conf",
        "/none/?",
        "*needle*y",
        "*b*",
        "/none/x*y.conf",
        "/none/needle*",
        "*bneedle*",
        "nothing*",
        "*needle*needle",
        "/none/??????????*",
        "*one*need*y*conf",
        "*n*n*n*e*",
        "*n*n*n*n*",
        "/*b*b*b*b*b*le",
        "*x*needle*y*y*y*",
        "*needle*eedle*",
        "*e*?e*?e*?*",
        "/*/*e*dl?*?*",
    ];
    let field = |n: usize| format!("p{n}");
    let specs = PATTERNS.iter().enumerate().map(|(n, pattern)| {
        let field = field(n);
        format!("tracepoint:syscalls:sys_enter_openat({field}=filename)/filename ~ \"{pattern}\" && filename ~ \"/none*\"/")
    });
    let events = events(specs, commands::workload("filters_patterns", "open"));
    let paths = paths();
    for (n, pattern) in PATTERNS.iter().enumerate() {
        let expected = paths.iter().filter(|path| matches(pattern.as_bytes(), path.as_bytes()));
        let found = events.iter().filter_map(|event| event["args"][field(n)].as_str());
        assert_eq!(found.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "{pattern}");
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn fields_are_compared_with_fields() {
    let pairs = |predicate: &str| {
        let spec = format!("tracepoint:syscalls:sys_enter_dup2(oldfd, newfd)/{predicate}/");
        let events = events([spec], commands::workload("filters_patterns", "dup"));
        let number = |event: &serde_json::Value, name| event["args"][name].as_i64().unwrap() as i32;
        let pairs = events.iter().map(|event| (number(event, "oldfd"), number(event, "newfd")));
        pairs.filter(|pair| PAIRS.contains(pair)).collect::<Vec<_>>()
    };
    let expected = |holds: fn(i32, i32) -> bool| {
        PAIRS.into_iter().filter(|&(old, new)| holds(old, new)).collect::<Vec<_>>()
    };
    assert_eq!(pairs("oldfd == newfd"), expected(|old, new| old == new));
    assert_eq!(pairs("oldfd < newfd"), expected(|old, new| old < new));
    assert_eq!(pairs("oldfd:u32 >= newfd:u32"), expected(|old, new| old as u32 >= new as u32));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn strings_are_compared_with_strings() {
    let renamed = |predicate: &str| {
        let spec = format!("tracepoint:syscalls:sys_enter_rename(oldname, newname)/{predicate}/");
        let events = events([spec], commands::workload("filters_patterns", "rename"));
        let text =
            |event: &serde_json::Value, name| event["args"][name].as_str().unwrap().to_owned();
        let names = events.iter().map(|event| (text(event, "oldname"), text(event, "newname")));
        names.collect::<Vec<_>>()
    };
    let (same, others) = names().into_iter().partition::<Vec<_>, _>(|(old, new)| old == new);
    assert_eq!(renamed("oldname == newname"), same);
    assert_eq!(renamed("oldname != newname"), others);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn conditions_on_ends_that_are_not_read_are_undecided() {
    const CASES: [(&str, usize, u64); 13] = [
        ("oldname ~ \"/one*\"", 2, 0),
        ("oldname ~ \"/two*\"", 0, 0),
        ("oldname ~ \"*qq*\"", 2, 0),
        ("oldname ~ \"*end\"", 0, 2),
        ("oldname ~ \"/two*end\"", 0, 0),
        ("oldname ~ \"*qqend*\"", 0, 2),
        ("oldname ~ \"*/*n*q*q*q*\"", 2, 0),
        ("oldname ~ \"*/*q*end*q*\"", 0, 2),
        ("newname ~ \"/one*end\"", 0, 1),
        ("oldname == newname", 0, 1),
        ("oldname != newname", 1, 1),
        ("oldname ~ \"*end\" || newname ~ \"/one*\"", 1, 1),
        ("newname ~ \"/one*\" || oldname ~ \"*end\"", 1, 1),
    ];
    let assert_decided = |provider: &str, ret: Option<&str>| {
        let specs = CASES
            .iter()
            .enumerate()
            .map(|(n, (predicate, ..))| format!("{provider}rename(p{n}=oldname)/{predicate}/"));
        let args = specs.chain(ret.map(str::to_owned));
        let output = trace(args, commands::workload("filters_patterns", "long"));
        let (events, lines) = (json_lines(&output), all_json_lines(&output));
        let missed = &lines.last().unwrap()["missed"];
        for (n, (predicate, accepted, undecided)) in CASES.into_iter().enumerate() {
            let is_of = |event: &&serde_json::Value| !event["args"][format!("p{n}")].is_null();
            let counted = missed[n]["undecided"].as_u64().unwrap_or(0);
            let counts = (events.iter().filter(is_of).count(), counted);
            assert_eq!(counts, (accepted, undecided), "{predicate} {}", stderr(&output));
        }
    };
    assert_decided("tracepoint:syscalls:sys_enter_", None);
    if has_kprobes() {
        assert_decided("ksyscall:", Some("--ret"));
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_string_for_which_there_is_no_room_is_undecided_but_not_the_name_of_a_thread() {
    let counts = |spec: &str| {
        let args = ["-n", "renamer", spec].map(str::to_owned);
        let output = trace(args, commands::workload("filters_patterns", "room"));
        let lines = all_json_lines(&output);
        let missed = &lines.last().unwrap()["missed"][0];
        (json_lines(&output).len(), missed["undecided"].as_u64().unwrap_or(0))
    };
    let renames = "tracepoint:syscalls:sys_enter_rename";
    let either = format!("{renames}/oldname ~ \"/none/*\" || newname ~ \"/none/*\"/");
    assert_eq!(counts(&either), (1, 0));
    assert_eq!(counts(&format!("{renames}/oldname == \"/a\" || newname ~ \"/none/*\"/")), (1, 0));
    let mounts = "tracepoint:syscalls:sys_enter_mount";
    for last in ["type == \"tmpfs\"", "type != \"tmpfs\"", "type ~ \"t*\"", "type !~ \"t*\""] {
        let spec = format!("{mounts}/dev_name == \"/a\" || dir_name == \"/b\" || {last}/");
        assert_eq!(counts(&spec), (0, 1), "{last}");
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn an_ordinary_comparison_with_a_pattern_warns() {
    let warned = |predicate: &str| {
        let spec = format!("tracepoint:syscalls:sys_enter_openat/{predicate}/");
        let output = probe(["trace", &spec, "--", "true"]).output().unwrap();
        assert!(output.status.success());
        stderr(&output)
    };
    let stderr = warned("filename == \"/etc*\"");
    let expected = "the * is an ordinary character; for a pattern, write filename ~ \"/etc*\"";
    assert!(stderr.contains(expected), "{stderr}");
    assert!(!warned("filename ~ \"/etc*\"").contains("ordinary"));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn buffers_are_compared_to_their_ends() {
    let xs = "x".repeat(64);
    let (exact, begins) = (format!("buf == \"{xs}\""), format!("buf ~ \"{xs}*\""));
    type Holds = fn(&[u8]) -> bool;
    let predicates: [(&str, Holds); 11] = [
        ("buf == \"a\"", |it| it == b"a"),
        ("buf == \"a\\0\"", |it| it == b"a\0"),
        ("buf == \"a\\0b\"", |it| it == b"a\0b"),
        ("buf != \"a\"", |it| it != b"a"),
        ("buf == \"\"", |it| it.is_empty()),
        ("buf == \"\\0\"", |it| it == b"\0"),
        ("buf ~ \"*b\" && count < 100", |it| it.ends_with(b"b")),
        ("buf ~ \"a?b\"", |it| it == b"a\0b"),
        (&exact, |it| it == [b'x'; 64]),
        (&begins, |it| it.starts_with(&[b'x'; 64])),
        // Bytes of a given number are compared whatever the call's own length is.
        ("buf:bytes[2] == \"a-\"", |it| it == b"a"),
    ];
    let mut hooks = vec!["tracepoint:syscalls:sys_enter_write"];
    hooks.extend(has_kprobes().then_some("ksyscall:write"));
    for hook in hooks {
        let spec = |(n, (predicate, _)): (usize, &(&str, Holds))| {
            format!("{hook}(p{n}=count)/comm == \"buffers\" && {predicate}/")
        };
        let specs: Vec<_> = predicates.iter().enumerate().map(spec).collect();
        let events = events(specs, commands::workload("filters_patterns", "buffers"));
        for (n, (predicate, holds)) in predicates.iter().enumerate() {
            let lengths = events.iter().filter_map(|event| event["args"][format!("p{n}")].as_u64());
            let expected = buffers().into_iter().filter(|buffer| holds(buffer));
            let expected: Vec<_> = expected.map(|buffer| buffer.len() as u64).collect();
            assert_eq!(lengths.collect::<Vec<_>>(), expected, "{hook} {predicate}");
        }
    }
}
