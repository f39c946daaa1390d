//! Which arguments point to user memory.
//!
//! Kernels built by Clang or a recent GCC have this information in their BTF, as a tag `user`. For other kernels, the
//! rules here cover the functions that are traced most often. Where they are wrong, use `:str` or `:ustr`.

use crate::kernel::btf::{Btf, Type, TypeId};

/// Prefixes of functions all of whose pointers are to user memory: the bodies of system calls.
const PREFIXES: [&str; 3] = ["__do_sys_", "__do_compat_sys_", "ksys_"];

/// Functions and their arguments that point to user memory.
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

/// Whether a function's argument of type `ty` points to user memory.
pub(super) fn points_to_user(btf: &Btf, function: &str, argument: &str, ty: TypeId) -> bool {
    let Some(Type::Pointer { to }) = btf.resolve(ty).map(|resolved| resolved.ty) else {
        return false;
    };
    // A string that the kernel has already copied. Newer kernels pass this where older ones pass the user address.
    if let Some(Type::Composite(copied)) = btf.resolve(to).map(|target| target.ty)
        && copied.name == "filename"
    {
        return false;
    }
    let is_listed =
        |(name, arguments): &(&str, &[&str])| *name == function && arguments.contains(&argument);
    PREFIXES.iter().any(|prefix| function.starts_with(prefix)) || ARGUMENTS.iter().any(is_listed)
}
