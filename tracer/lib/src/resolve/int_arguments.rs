//! The arguments of system calls that are signed in the C library, mostly an `int`, and that the kernel declares as unsigned or
//! longer. Their negative values would look like large numbers: `close(-1)` would close 4294967295.

use crate::tracefs::{Format, FormatField};

/// Names of file descriptors, in all system calls.
const DESCRIPTORS: [&str; 4] = ["fd", "fildes", "oldfd", "newfd"];

/// The system call whose descriptors are unsigned in the C library, too: `close_range(3, ~0U, 0)`.
const UNSIGNED: &str = "close_range";

/// Other arguments that are `int`, by system call.
const OTHERS: &[(&str, &[&str])] = &[
    ("fcntl", &["cmd"]),
    ("flock", &["cmd"]),
    ("getrlimit", &["resource"]),
    ("lseek", &["whence"]),
    ("mbind", &["mode"]),
    ("mmap", &["prot", "flags"]),
    ("mprotect", &["prot"]),
    ("mremap", &["flags"]),
    ("move_pages", &["flags"]),
    ("pkey_mprotect", &["prot"]),
    ("preadv", &["vlen"]),
    ("preadv2", &["vlen"]),
    ("prlimit64", &["resource"]),
    ("ptrace", &["request", "pid"]),
    ("pwritev", &["vlen"]),
    ("pwritev2", &["vlen"]),
    ("quotactl", &["cmd", "id"]),
    ("quotactl_fd", &["cmd", "id"]),
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

/// Those that are `long`, in kernels before 6.10.
const LONG: &[(&str, &[&str])] = &[("ftruncate", &["length"])];

/// Gives these arguments of a system call their types in the C library.
pub(super) fn declare(syscall: &str, format: &mut Format) {
    for field in format.fields.iter_mut().filter(|field| is_integer(field)) {
        let ty = match is_int(syscall, &field.name) {
            true => "int",
            false if is_listed(LONG, syscall, &field.name) => "long",
            false => continue,
        };
        field.ty = ty.to_owned();
    }
}

fn is_int(syscall: &str, argument: &str) -> bool {
    let is_descriptor = DESCRIPTORS.contains(&argument) && syscall != UNSIGNED;
    is_descriptor || is_listed(OTHERS, syscall, argument)
}

fn is_listed(all: &[(&str, &[&str])], syscall: &str, argument: &str) -> bool {
    all.iter().any(|(name, arguments)| *name == syscall && arguments.contains(&argument))
}

/// Whether the kernel's type is an integer, of which the C library's `int` is the low half.
fn is_integer(field: &FormatField) -> bool {
    matches!(field.plain_type(), "unsigned" | "unsigned int" | "unsigned long" | "long" | "qid_t")
}
