//! Which arguments point into the memory of a process.
//!
//! Kernels built by Clang, or by a recent GCC, say so in their BTF, by a tag `user`. For all others,
//! these rules know the functions that people look at most. Where they are wrong, `:str` and `:ustr`
//! say which it is.

use crate::trace::btf::{Btf, Type, TypeId};

/// Functions all of whose pointers are a process's: bodies of system calls.
const PREFIXES: [&str; 3] = ["__do_sys_", "__do_compat_sys_", "ksys_"];

/// Functions, and their arguments that a process gave.
const ARGUMENTS: &[(&str, &[&str])] = &[
    ("do_sys_open", &["filename"]),
    ("do_sys_openat2", &["filename"]),
    ("getname", &["filename"]),
    ("getname_flags", &["filename"]),
    ("getname_uflags", &["filename"]),
    ("user_path_at", &["name"]),
    ("user_path_at_empty", &["name"]),
    ("user_path_create", &["pathname"]),
    ("do_faccessat", &["filename"]),
    ("do_fchmodat", &["filename"]),
    ("do_fchownat", &["filename"]),
    ("do_statx", &["filename", "buffer"]),
    ("do_readlinkat", &["pathname", "buf"]),
    ("do_utimes", &["filename"]),
    ("do_sys_truncate", &["pathname"]),
    ("vfs_fstatat", &["filename"]),
    ("vfs_statx", &["filename"]),
    ("do_mount", &["dir_name"]),
    ("vfs_read", &["buf"]),
    ("vfs_write", &["buf"]),
    ("vfs_readv", &["vec"]),
    ("vfs_writev", &["vec"]),
    ("do_readv", &["vec"]),
    ("do_writev", &["vec"]),
    ("do_sys_poll", &["ufds"]),
    ("do_futex", &["uaddr", "uaddr2"]),
    ("strncpy_from_user", &["src"]),
    ("strnlen_user", &["str"]),
    ("_copy_from_user", &["from"]),
    ("_copy_to_user", &["to"]),
    ("simple_read_from_buffer", &["to"]),
    ("simple_write_to_buffer", &["from"]),
    ("__sys_bind", &["umyaddr"]),
    ("__sys_connect", &["uservaddr"]),
    ("__sys_sendto", &["buff", "addr"]),
    ("__sys_recvfrom", &["ubuf", "addr", "addr_len"]),
    ("__sys_sendmsg", &["msg"]),
    ("__sys_recvmsg", &["msg"]),
];

/// Whether a function's argument, of type `ty`, points into the memory of the process.
pub(super) fn points_to_user(btf: &Btf, function: &str, argument: &str, ty: TypeId) -> bool {
    let Some(Type::Pointer { to }) = btf.resolve(ty).map(|resolved| resolved.ty) else {
        return false;
    };
    // What the kernel has copied already: newer kernels give this where older ones give the address.
    if let Some(Type::Composite(copied)) = btf.resolve(to).map(|target| target.ty)
        && copied.name == "filename"
    {
        return false;
    }
    let is_listed =
        |(name, arguments): &(&str, &[&str])| *name == function && arguments.contains(&argument);
    PREFIXES.iter().any(|prefix| function.starts_with(prefix)) || ARGUMENTS.iter().any(is_listed)
}
