//! 32-bit system calls: those of 32-bit programs, and of 64-bit programs that use `int $0x80`.

use crate::probe::compat::Word::{Number, Text};
use crate::probe::compat::{Call, Program, Width};
use crate::probe::{counts, events, printed, probe, stderr, stdout, succeed};
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;

/// `openat(AT_FDCWD, "/etc/hostname", O_RDONLY, 0)`
const OPENAT: Call = (295, [Number(-100), Text, Number(0), Number(0)]);
/// `close(-1)`
const CLOSE: Call = (6, [Number(-1), Number(0), Number(0), Number(0)]);
/// `lseek(-1, -7, SEEK_END)`, whose second argument is a long
const LSEEK: Call = (19, [Number(-1), Number(-7), Number(2), Number(0)]);
/// `write(1, "/etc", 4)`, to a closed file
const WRITE: Call = (4, [Number(77), Text, Number(4), Number(0)]);
/// `clock_gettime(CLOCK_MONOTONIC, NULL)`
const CLOCK: Call = (265, [Number(1), Number(0), Number(0), Number(0)]);
const GETPPID: Call = (64, [Number(0); 4]);
/// `socketcall(SYS_SOCKET, NULL)`
const SOCKETCALL: Call = (102, [Number(1), Number(0), Number(0), Number(0)]);
const CALLS: [Call; 7] = [OPENAT, CLOSE, LSEEK, WRITE, CLOCK, GETPPID, SOCKETCALL];

const PATH: &str = "/etc/hostname";

/// Calls a test with a program of each width, and its path.
fn for_each_program(test: impl Fn(Width, &str)) {
    for width in [Width::Bits32, Width::Bits64] {
        let program = Program::new(width, PATH, &CALLS, false);
        if program.runs() {
            test(width, program.path().to_str().unwrap());
        }
    }
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn calls_of_32_bits_are_seen_with_their_arguments() {
    for_each_program(|width, program| {
        let specs = ["openat", "close", "lseek", "write", "clock_gettime", "socketcall"];
        let specs = specs.map(|name| format!("ksyscall:{name}/comm == \"program\"/"));
        let args = specs.iter().map(String::as_str).chain(["--ret"]);
        let mut seen = events(args, [program]);
        for event in &mut seen {
            event["args"].as_object_mut().unwrap().remove("latency");
        }
        let seen: Vec<_> = seen.iter().map(|one| (&one["probe"], &one["args"])).collect();
        let ours = [
            ("openat", json!({"dfd": -100, "filename": PATH, "flags": 0, "mode": 0, "retval": 3})),
            ("close", json!({"fd": -1, "retval": -9})),
            ("lseek", json!({"fd": -1, "offset": -7, "whence": 2, "retval": -9})),
            ("write", json!({"fd": 77, "buf": "/etc", "count": 4, "retval": -9})),
            ("clock_gettime32", json!({"which_clock": 1, "tp": "0x0", "retval": -14})),
            // Its arguments are not known. `di` and `bp` are 0 when a program begins.
            (
                "socketcall",
                json!({"arg0": 1, "arg1": 0, "arg2": 0, "arg3": 0, "arg4": 0, "arg5": 0, "retval": -14}),
            ),
        ];
        let ours = ours.map(|(name, args)| (json!(format!("ia32:{name}")), args));
        let ours: Vec<_> = ours.iter().map(|(name, args)| (name, args)).collect();
        assert_eq!(seen, ours, "{width:?}");
    });
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn conditions_and_patterns_include_calls_of_32_bits() {
    for_each_program(|width, program| {
        let wanted = format!("ksyscall:openat(flags)/filename == \"{PATH}\" && dfd < 0/");
        let [seen] = &events([&*wanted], [program])[..] else { panic!("{width:?}") };
        assert_eq!((&seen["probe"], &seen["args"]), (&json!("ia32:openat"), &json!({"flags": 0})));
        assert!(events(["ksyscall:openat/filename == \"/etc/host\"/"], [program]).is_empty());

        let pattern = "ksyscall:[cs]*o[cs][ek]*/comm == \"program\"/";
        let (counted, printed) = counts([pattern, "ksyscall:getppid"], [program]);
        let names = ["getppid", "ia32:clock_gettime32", "ia32:close", "ia32:socketcall"];
        // A call without arguments has one function for both, which is hit once.
        let ours: BTreeMap<_, _> = names.map(|name| (name.to_owned(), 1)).into();
        assert_eq!(counted["ksyscall"], ours, "{width:?}: {printed}");

        let excluded = [pattern, "-x", "ia32:*"];
        let none = succeed(probe(["count"]).args(excluded).args(["--", program]));
        assert!(!stdout(&none).contains("ia32"), "{}", stdout(&none));
    });
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn calls_of_64_bits_are_not_those_of_32() {
    let script = ["dd", "if=/dev/zero", "of=/dev/null", "bs=3", "count=20"];
    let spec = "ksyscall:write/count == 3/";
    let (counted, printed) = counts([spec, "ksyscall:ia32:write"], script);
    let ours = BTreeMap::from([("write".to_owned(), 20)]);
    assert_eq!(counted["ksyscall"], ours, "{printed}");
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn calls_of_32_bits_are_listed_described_and_recorded() {
    let program = Program::new(Width::Bits32, PATH, &CALLS, false);
    if !program.runs() {
        return;
    }
    assert_eq!(
        printed(["list", "ksyscall:ia32:openat*"]),
        "ksyscall:ia32:openat\nksyscall:ia32:openat2\n"
    );
    assert_eq!(printed(["list", "ksyscall:socketcall"]), "ksyscall:ia32:socketcall\n");
    assert!(printed(["info", "ksyscall:ia32:openat"]).contains("filename  text"));
    let file = program.path().with_file_name("recording");
    let args = ["record", "-o", file.to_str().unwrap(), "ksyscall:close", "--"];
    succeed(probe(args).arg(program.path()));
    let replayed = printed(["replay", file.to_str().unwrap()]);
    assert!(replayed.contains("ia32:close               fd=-1"), "{replayed}");
    drop(fs::remove_file(file));

    // What 32-bit calls do not have is said, and the others are traced.
    let spec = "ksyscall:pread64(pos)/fd == 9/";
    let errors = stderr(&succeed(&mut probe(["trace", spec, "--", "true"])));
    assert!(
        errors.contains("ksyscall:ia32:ia32_pread64(pos)/fd == 9/ is not traced: "),
        "{errors}"
    );
}
