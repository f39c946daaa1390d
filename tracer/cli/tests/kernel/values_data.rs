//! Strings, buffers and lists: whole, or marked where they are not.

use crate::probe::commands::{self, requested_work};
use crate::probe::{events, json_lines, stderr, trace};
use serde_json::{Value, json};
use std::ffi::CString;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// The lengths of the strings that the workload passes.
const LENGTHS: [usize; 6] = [1, 1023, 1024, 4095, 4096, 5000];

/// No system call has this number.
const NO_CALL: i64 = 9999;

/// A string of this length.
fn text(length: usize) -> String {
    (0..length).map(|n| char::from(b'a' + (n % 26) as u8)).collect()
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn workload() {
    match requested_work().as_str() {
        "calls" => calls(),
        "buffers" => {
            // SAFETY: it is a string.
            unsafe { libc::prctl(libc::PR_SET_NAME, c"values".as_ptr()) };
            buffers();
        }
        "pointers" => pointers(),
        "longest" => longest(),
        _ => {}
    }
}

fn calls() {
    for length in LENGTHS {
        let path = CString::new(text(length)).unwrap();
        // SAFETY: the path is valid.
        unsafe { libc::openat(-7, path.as_ptr(), 0) };
    }
    let [one, other] = [3900, 2000].map(|length| CString::new(text(length)).unwrap());
    // SAFETY: the paths are valid, and no directory has this number.
    unsafe { libc::syscall(libc::SYS_renameat2, -7, one.as_ptr(), -7, other.as_ptr(), 0) };
    // SAFETY: there is no such call.
    unsafe { libc::syscall(NO_CALL, 1, -2_i64, 3, 0x1_0000_0004_i64, 5, 6) };
}

fn buffers() {
    let (one, other) = UnixStream::pair().unwrap();
    let (fd, other) = (one.as_raw_fd(), other.as_raw_fd());
    for (bytes, length) in [(&b"hello world"[..], 5), (b"two\nlines\n", 10), (b"\0\x01\xff", 3)] {
        // On memory that is resident.
        let bytes = bytes.to_vec();
        // SAFETY: the bytes are valid.
        let written = unsafe { libc::write(fd, bytes.as_ptr().cast(), length) };
        assert_eq!(written, length as isize);
    }
    let long = text(4200);
    // SAFETY: the bytes are valid.
    assert_eq!(unsafe { libc::send(fd, long.as_ptr().cast(), 4200, 0) }, 4200);
    let mut read = *b"................";
    // SAFETY: the buffer has that many bytes.
    assert_eq!(unsafe { libc::read(other, read.as_mut_ptr().cast(), 7) }, 7);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::read(-7, read.as_mut_ptr().cast(), 16) }, -1);
}

/// Passes pointers that are null, of no memory, and of a string whose length is said to be the greatest of all.
fn pointers() {
    let bytes = b"text".to_vec();
    for (at, length) in
        [(0, 0), (0, 3), (1, 3), (usize::MAX, 3), (bytes.as_ptr().addr(), usize::MAX)]
    {
        let at = std::ptr::with_exposed_provenance::<libc::c_char>(at);
        bytes.as_ptr().expose_provenance();
        // SAFETY: the kernel checks the addresses, and the descriptor is of no file.
        unsafe { libc::syscall(libc::SYS_write, -7, at, length) };
        // SAFETY: as above.
        unsafe { libc::syscall(libc::SYS_openat, -7, at, 0) };
    }
}

/// The lengths of buffers around that of the longest value.
const AROUND_THE_LONGEST: [usize; 5] = [4094, 4095, 4096, 4097, 4098];

/// Writes buffers that have no zero, and are longer than they are said to be.
fn longest() {
    let bytes = text(8000);
    for length in AROUND_THE_LONGEST {
        // SAFETY: there are that many bytes, and the descriptor is of no file.
        unsafe { libc::write(-7, bytes.as_ptr().cast(), length) };
    }
}

/// The events of a probe.
fn of<'e>(events: &'e [Value], probe: &str) -> Vec<&'e Value> {
    let found: Vec<_> = events.iter().filter(|event| event["probe"] == probe).collect();
    assert!(!found.is_empty(), "no {probe}: {events:#?}");
    found
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn strings_are_whole_or_marked() {
    let many: Vec<_> = (0..6)
        .flat_map(|n| ["x8", "x16", "x32", "x64"].map(|ty| format!("{ty}_{n}=args[{n}]:{ty}")))
        .chain(["args", "pid", "tid", "comm"].map(str::to_owned))
        .collect();
    let probes = [
        "t:syscalls:sys_enter_openat(filename)/dfd == -7/".to_owned(),
        "t:syscalls:sys_enter_renameat2(oldname, newname)".to_owned(),
        format!("t:raw_syscalls:sys_enter({})/id == {NO_CALL}/", many.join(", ")),
        "t:sched:sched_process_exec(filename, bytes=filename:bytes[4096], few=filename:bytes[4])"
            .to_owned(),
        // The string ends where its locator says, or before, where the other field says.
        "t:sched:sched_process_exec(whole=filename:str[pid], same=filename:bytes[pid], none=filename:str[uid])"
            .to_owned(),
        "rt:sched_process_exec(auxv=arg0->mm->saved_auxv)".to_owned(),
    ];
    let events = events(probes, commands::workload("values_data", "calls"));
    let opened = of(&events, "syscalls:sys_enter_openat");
    assert_eq!(opened.len(), LENGTHS.len());
    for (event, length) in opened.into_iter().zip(LENGTHS) {
        assert_eq!(event["args"]["filename"], text(length.min(4096)), "{length}");
        let truncated = if length > 4096 { json!(["filename"]) } else { Value::Null };
        assert_eq!(event["truncated"], truncated, "{length}");
    }
    // There is room for one string of maximum length, and for the beginning of another one.
    let [renamed] = of(&events, "syscalls:sys_enter_renameat2")[..] else { panic!() };
    assert_eq!(renamed["args"]["oldname"], text(3900));
    assert_eq!(renamed["args"]["newname"], text(1023));
    assert_eq!(renamed["truncated"], json!(["newname"]));

    let [called] = of(&events, "raw_syscalls:sys_enter")[..] else { panic!() };
    let args = &called["args"];
    assert_eq!(args.as_object().unwrap().len(), 28);
    assert_eq!(args["args"], json!([1, "18446744073709551614", 3, 0x1_0000_0004_u64, 5, 6]));
    assert_eq!([&args["x64_1"], &args["x64_3"]], ["0xfffffffffffffffe", "0x100000004"]);
    assert_eq!((&args["pid"], &args["comm"]), (&called["pid"], &called["comm"]));

    // AT_SYSINFO_EHDR, and the address of the vDSO.
    let auxv = &of(&events, "sched_process_exec")[0]["args"]["auxv"];
    assert_eq!(auxv[0], 33, "{auxv}");
    assert!(auxv.as_array().unwrap().len() >= 40, "{auxv}");
    let (bounded, execs): (Vec<_>, Vec<_>) = of(&events, "sched:sched_process_exec")
        .into_iter()
        .partition(|event| event["args"]["filename"].is_null());
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(bounded.len(), execs.len());
    for (bounded, exec) in bounded.into_iter().zip(&execs) {
        let (args, whole) = (&bounded["args"], &exec["args"]);
        assert_eq!((&args["whole"], &args["same"]), (&whole["filename"], &whole["bytes"]));
        assert_eq!((&args["none"], &bounded["truncated"]), (&json!(""), &Value::Null));
    }
    for exec in execs {
        let name = exec["args"]["filename"].as_str().unwrap();
        // With the terminating zero.
        assert_eq!(exec["args"]["bytes"], hex(name.as_bytes()) + "00");
        assert_eq!(exec["args"]["few"], hex(&name.as_bytes()[..4]));
        assert_eq!(exec["truncated"], json!(["few"]));
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn the_longest_values_are_whole_and_longer_ones_marked() {
    // A buffer whose bytes are a text is shown as one.
    for ty in ["ustr", "bytes"] {
        let probe = format!("t:syscalls:sys_enter_write(value=buf:{ty}[count])/fd == -7/");
        let events = events([probe], commands::workload("values_data", "longest"));
        assert_eq!(events.len(), AROUND_THE_LONGEST.len(), "{ty}");
        for (event, length) in events.iter().zip(AROUND_THE_LONGEST) {
            let value = event["args"]["value"].as_str().expect("it can be read");
            assert!(value == text(length.min(4096)), "{ty}, {length}: {} bytes", value.len());
            let truncated = if length > 4096 { json!(["value"]) } else { Value::Null };
            assert_eq!(event["truncated"], truncated, "{ty}, {length}");
        }
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn null_pointers_and_faults_are_told_apart() {
    let probes = [
        "t:syscalls:sys_enter_write(value=buf)/fd == -7/",
        "t:syscalls:sys_enter_openat(value=filename)/dfd == -7/",
    ];
    let events = events(probes, commands::workload("values_data", "pointers"));
    for probe in ["syscalls:sys_enter_write", "syscalls:sys_enter_openat"] {
        let events = of(&events, probe);
        let faults: Vec<_> = events.iter().map(|event| event["faults"].is_array()).collect();
        assert_eq!(faults, [false, false, true, true, false], "{events:#?}");
        let (last, others) = events.split_last().unwrap();
        assert!(others.iter().all(|event| event["args"]["value"].is_null()), "{events:#?}");
        let value = last["args"]["value"].as_str().unwrap();
        assert!(value.starts_with("text") || value.starts_with("74657874"), "{value}");
    }
    let write = of(&events, "syscalls:sys_enter_write");
    assert_eq!(write.last().unwrap()["truncated"], json!(["value"]));
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn null_pointers_and_faults_of_programs_are_told_apart() {
    let probe = format!("u:libc:syscall(value=arg2:str)/arg0 == {}/", libc::SYS_write);
    let events = events([probe], commands::workload("values_data", "pointers"));
    let faults: Vec<_> = events.iter().map(|event| event["faults"].is_array()).collect();
    assert_eq!(faults, [false, false, true, true, false], "{events:#?}");
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn buffers_end_where_their_lengths_say() {
    let probes = [
        "t:syscalls:sys_enter_write/comm == \"values\"/",
        "t:syscalls:sys_enter_write(text=buf:ustr, count, named=buf:bytes[count])/buf == \"hello\"/",
        "t:syscalls:sys_enter_sendto(buff, len, named=buff:ustr[len])",
        "u:libc:write(named=arg1:ustr[arg2:s32], arg2:u64)/comm == \"values\"/",
    ];
    let mut events = events(probes, commands::workload("values_data", "buffers"));
    let is_ours = |event: &Value| event["comm"] == "values";
    events.retain(is_ours);
    let writes = of(&events, "syscalls:sys_enter_write");
    let written = |name: &str| -> Vec<_> {
        let named = writes.iter().filter(|event| !event["args"][name].is_null());
        named.map(|event| (event["args"][name].as_str().unwrap(), &event["binary"])).collect()
    };
    let (text_only, binary) = (&Value::Null, &json!(["buf"]));
    let all = written("buf");
    for expected in [("hello", text_only), ("two\nlines\n", text_only), ("0001ff", binary)] {
        assert!(all.contains(&expected), "{all:?}");
    }
    for name in ["text", "named"] {
        assert_eq!(written(name), [("hello", text_only)], "{name}");
    }
    let [sent] = of(&events, "syscalls:sys_enter_sendto")[..] else { panic!("{events:#?}") };
    assert_eq!(sent["args"], json!({"buff": text(512), "len": 4200, "named": text(4096)}));
    assert_eq!(sent["truncated"], json!(["buff", "named"]));
    let named: Vec<_> = of(&events, "write").iter().map(|event| &event["args"]["named"]).collect();
    for expected in ["hello", "two\nlines\n", ""] {
        assert!(named.contains(&&json!(expected)), "{named:?}");
    }

    // What a call has read is known when it returns.
    let probe = "u:libc:read(arg1:bytes[retval], text=arg1:ustr[retval], fd=arg0:s32)";
    let output = trace(["--ret", probe], commands::workload("values_data", "buffers"));
    let read = |event: Value| (is_ours(&event)).then(|| event["args"].clone());
    let reads: Vec<_> = json_lines(&output).into_iter().filter_map(read).collect();
    let is_read = |args: &Value, text| args["arg1"] == text && args["text"] == text;
    assert!(reads.iter().any(|args| is_read(args, "hellotw")), "{reads:#?}{}", stderr(&output));
    let [failed] = reads.iter().filter(|args| args["fd"] == -7).collect::<Vec<_>>()[..] else {
        panic!("{reads:#?}")
    };
    assert!(is_read(failed, ""), "{failed}");
}
