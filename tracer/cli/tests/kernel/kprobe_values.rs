//! Strings and buffers of kernel functions.

use crate::probe::commands::{self, requested_work};
use crate::probe::{json_lines, stderr, trace};
use serde_json::{Value, json};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// The longest name of a socket in the file system. No zero ends it.
const FULL: [u8; 108] = [b'f'; 108];

#[test]
#[ignore = "needs root: cargo xtask test"]
fn workload() {
    if requested_work() != "calls" {
        return;
    }
    // SAFETY: it is a string.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"values".as_ptr()) };
    // SAFETY: no pointers are passed.
    let sockets = [(); 4].map(|()| unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0) });
    // The first name clears the kernel's memory behind the next one, which has no zero at its end.
    for (socket, name) in sockets.into_iter().zip([&[0; 108], &b"\0abstract"[..], &[0; 20], &FULL])
    {
        connect(socket, name);
    }
    let (one, other) = UnixStream::pair().unwrap();
    // On memory that is resident.
    let text = b"hello world".to_vec();
    // SAFETY: there are more bytes.
    assert_eq!(unsafe { libc::write(one.as_raw_fd(), text.as_ptr().cast(), 5) }, 5);
    let mut read = *b"................";
    // SAFETY: the buffer has that many bytes.
    assert_eq!(unsafe { libc::read(other.as_raw_fd(), read.as_mut_ptr().cast(), 16) }, 5);
    let text = b"other".to_vec();
    // SAFETY: there are as many bytes.
    assert_eq!(unsafe { libc::write(one.as_raw_fd(), text.as_ptr().cast(), 5) }, 5);
    // What the buffer has before is not what is read.
    let mut read = *b"hello\0..........";
    // SAFETY: the buffer has that many bytes.
    assert_eq!(unsafe { libc::read(other.as_raw_fd(), read.as_mut_ptr().cast(), 16) }, 5);
}

/// Tries to connect to a socket of this name, which nobody has.
fn connect(socket: libc::c_int, name: &[u8]) {
    // SAFETY: a socket address may have any bytes.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as u16;
    for (to, byte) in address.sun_path.iter_mut().zip(name) {
        *to = *byte as libc::c_char;
    }
    let length = 2 + name.len() as libc::socklen_t;
    // SAFETY: the address has that length.
    let result = unsafe { libc::connect(socket, (&raw const address).cast(), length) };
    assert_eq!(result, -1);
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn names_and_buffers_are_whole() {
    let probes = [
        "unix_find_other(name=arg1->sun_path)",
        "unix_find_other(only=arg1->sun_path)/arg1->sun_path == \"\\x00abstract\"/",
        "vfs_write(buf, count)/comm == \"values\" && count == 5/",
        "vfs_read(file, buf)/comm == \"values\"/",
        "do_mmap/comm == \"values\"/",
    ];
    let output = trace(probes, commands::workload("kprobe_values", "calls"));
    let left_out = "argument 7 of do_mmap: only the first 6 are in registers";
    let printed = stderr(&output);
    let mut lines = printed.lines();
    let line = lines.find(|line| line.starts_with("probe: do_mmap: not shown: "));
    assert!(line.is_some_and(|line| line.contains(left_out)), "{printed}");
    let events = json_lines(&output);
    let values = |name: &str| -> Vec<&Value> {
        let named = events.iter().filter(|event| event["comm"] == "values");
        named.map(|event| &event["args"][name]).filter(|value| !value.is_null()).collect()
    };
    let full = str::from_utf8(&FULL).unwrap();
    let names = [&json!(""), &json!("\0abstract"), &json!(""), &json!(full)];
    assert_eq!(values("name"), names, "{events:#?}");
    assert_eq!(values("only"), [&json!("\0abstract")], "{events:#?}");
    let written = events.iter().find(|event| event["probe"] == "vfs_write");
    assert_eq!(written.map(|event| &event["args"]["buf"]), Some(&json!("hello")), "{events:#?}");
    // What a read will return is not there yet: only the address is.
    let reads: Vec<_> = events.iter().filter(|event| event["probe"] == "vfs_read").collect();
    let is_address =
        |event: &&Value| event["args"]["buf"].as_str().is_some_and(|buf| buf.starts_with("0x"));
    assert!(!reads.is_empty() && reads.iter().all(is_address), "{events:#?}");

    let reads = |predicate: &str| {
        let probes = ["vfs_read", "ksyscall:read"]
            .map(|function| format!("{function}/comm == \"values\"{predicate}/"));
        let args = ["--ret".to_owned()].into_iter().chain(probes);
        json_lines(&trace(args, commands::workload("kprobe_values", "calls")))
    };
    let (all, some) = (reads(""), reads(" && buf == \"hello\""));
    for probe in ["vfs_read", "read"] {
        let read = |calls: &[Value]| -> Vec<Value> {
            let is_it = |event: &&Value| event["probe"] == probe && event["args"]["retval"] == 5;
            calls.iter().filter(is_it).map(|event| event["args"]["buf"].clone()).collect()
        };
        assert_eq!(read(&all), ["hello", "other"], "{all:#?}");
        assert_eq!(read(&some), ["hello"], "{some:#?}");
    }
}
