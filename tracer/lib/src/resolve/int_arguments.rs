//! The arguments of system calls that are `int` in the C library, and that the kernel declares as unsigned. Their
//! negative values would look like large numbers: `close(-1)` would close 4294967295.

use crate::tracefs::{Format, FormatField};

/// Names of file descriptors, in all system calls.
const DESCRIPTORS: [&str; 4] = ["fd", "fildes", "oldfd", "newfd"];

/// The system call whose descriptors are unsigned in the C library, too: `close_range(3, ~0U, 0)`.
const UNSIGNED: &str = "close_range";

/// Other arguments, by system call.
const OTHERS: &[(&str, &[&str])] = &[
    ("fcntl", &["cmd"]),
    ("flock", &["cmd"]),
    ("getrlimit", &["resource"]),
    ("lseek", &["whence"]),
    ("mmap", &["prot", "flags"]),
    ("mprotect", &["prot"]),
    ("mremap", &["flags"]),
    ("move_pages", &["flags"]),
    ("pkey_mprotect", &["prot"]),
    ("preadv", &["vlen"]),
    ("preadv2", &["vlen"]),
    ("prlimit64", &["resource"]),
    ("pwritev", &["vlen"]),
    ("pwritev2", &["vlen"]),
    ("quotactl", &["cmd"]),
    ("quotactl_fd", &["cmd"]),
    ("readv", &["vlen"]),
    ("reboot", &["cmd"]),
    ("recvfrom", &["flags"]),
    ("recvmmsg", &["flags"]),
    ("recvmsg", &["flags"]),
    ("remap_file_pages", &["prot", "flags"]),
    ("sendmmsg", &["flags"]),
    ("sendmsg", &["flags"]),
    ("sendto", &["flags"]),
    ("setrlimit", &["resource"]),
    ("statx", &["flags"]),
    ("unshare", &["unshare_flags"]),
    ("writev", &["vlen"]),
];

/// Gives these arguments of a system call the type `int`.
pub(super) fn declare(syscall: &str, format: &mut Format) {
    for field in &mut format.fields {
        if is_integer(field) && is_int(syscall, &field.name) {
            field.ty = "int".to_owned();
        }
    }
}

fn is_int(syscall: &str, argument: &str) -> bool {
    let is_descriptor = DESCRIPTORS.contains(&argument) && syscall != UNSIGNED;
    let is_listed =
        |(name, arguments): &(&str, &[&str])| *name == syscall && arguments.contains(&argument);
    is_descriptor || OTHERS.iter().any(is_listed)
}

/// Whether the kernel's type is an integer, of which the C library's `int` is the low half.
fn is_integer(field: &FormatField) -> bool {
    matches!(field.plain_type(), "unsigned" | "unsigned int" | "unsigned long")
}
