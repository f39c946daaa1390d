//! Probes on functions, compiled and interpreted.

use crate::specialized::{Hook, assert_all_same};
use probe_tracer::Tracer;

const FUNCTIONS: &[Hook] = &[
    Hook {
        name: "kprobe:vfs_write",
        fields: &[
            "file->f_path.dentry->d_name.name:str",
            "count",
            "buf:ustr",
            "file->f_flags",
            "file",
        ],
        predicates: &[
            "/count == 5/",
            "/file->f_flags & 1/",
            "/file->f_inode->i_ino > 1 && count < 9/",
        ],
    },
    Hook {
        name: "kretprobe:vfs_write",
        fields: &["retval", "retval:x64"],
        predicates: &["/retval == 5/", "/retval < 0/"],
    },
    Hook {
        name: "fentry:vfs_write",
        fields: &["file->f_path.dentry->d_name.name:str", "count", "buf:ustr", "file"],
        predicates: &["/count == 5/", "/file->f_flags & 1 && count > 2/"],
    },
    Hook {
        name: "fexit:vfs_write",
        fields: &["file->f_flags", "count", "retval"],
        predicates: &["/retval == 5/", "/count:s64 == retval:s64/"],
    },
    Hook {
        name: "uprobe:libc:getenv",
        fields: &["arg0", "arg0:ustr"],
        predicates: &["/arg0:ustr == \"SPECIALIZED\"/", "/arg0:u64 > 4096/"],
    },
];

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn specialized_programs_report_what_the_interpreter_does() {
    assert_all_same(FUNCTIONS, 2, Tracer::builder);
}
