//! The constants of system calls, by their arguments.

use super::ValueNames;
use super::constants::{self as of, Set};

/// System calls, by the kernel's names and with `*` for any others; an argument; and its constants. The first row
/// that fits counts.
const ARGUMENTS: &[(&str, &str, &Set)] = &[
    ("open openat", "flags", &of::OPEN),
    ("mq_open", "oflag", &of::OPEN),
    ("fanotify_init", "event_f_flags", &of::OPEN),
    ("open_by_handle_at", "flags", &of::OPEN),
    ("pipe2 dup3", "flags", &of::PIPE),
    ("*", "dfd", &of::DIRECTORY),
    ("*", "olddfd", &of::DIRECTORY),
    ("*", "newdfd", &of::DIRECTORY),
    ("*", "from_dfd", &of::DIRECTORY),
    ("*", "to_dfd", &of::DIRECTORY),
    ("unlinkat", "flag", &of::UNLINK),
    ("newfstatat fchownat name_to_handle_at", "flag", &of::AT),
    ("faccessat2", "flags", &of::AT_ACCESS),
    ("statx linkat execveat utimensat fchmodat2 mount_setattr", "flags", &of::AT),
    ("fspick", "flags", &of::FILE_SYSTEM_PICK),
    ("execveat", "fd", &of::DIRECTORY),
    ("*", "at_flags", &of::AT),
    ("access faccessat faccessat2", "mode", &of::ACCESS),
    ("lseek", "whence", &of::SEEK),
    ("mmap mprotect pkey_mprotect remap_file_pages", "prot", &of::PROTECTION),
    ("mmap remap_file_pages", "flags", &of::MAP),
    ("mremap", "flags", &of::MREMAP),
    ("msync", "flags", &of::MSYNC),
    ("mlockall", "flags", &of::MLOCK),
    ("madvise process_madvise", "behavior", &of::ADVICE),
    ("fadvise64", "advice", &of::FILE_ADVICE),
    ("socket socketpair", "family", &of::FAMILY),
    ("socket socketpair", "type", &of::SOCKET),
    ("accept4", "flags", &of::ACCEPT),
    ("sendto sendmsg sendmmsg recvfrom recvmsg recvmmsg", "flags", &of::MESSAGE),
    ("setsockopt getsockopt", "level", &of::LEVEL),
    ("shutdown", "how", &of::SHUTDOWN),
    (
        "kill tkill tgkill rt_sigaction rt_sigqueueinfo rt_tgsigqueueinfo pidfd_send_signal",
        "sig",
        &of::SIGNAL,
    ),
    ("rt_sigprocmask", "how", &of::SIGNAL_MASK),
    ("clone", "clone_flags", &of::CLONE),
    ("unshare", "unshare_flags", &of::NAMESPACE),
    ("setns", "flags", &of::NAMESPACE),
    ("wait4 waitid", "options", &of::WAIT),
    ("waitid", "which", &of::WAIT_FOR),
    ("fcntl", "cmd", &of::FCNTL),
    ("ioctl", "cmd", &of::IOCTL),
    ("flock", "cmd", &of::FLOCK),
    ("fallocate", "mode", &of::FALLOCATE),
    ("renameat2", "flags", &of::RENAME),
    ("setxattr lsetxattr fsetxattr", "flags", &of::ATTRIBUTE),
    ("mount", "flags", &of::MOUNT),
    ("umount", "flags", &of::UNMOUNT),
    ("statx", "mask", &of::STATX),
    ("preadv2 pwritev2", "flags", &of::READ_WRITE),
    ("splice tee vmsplice", "flags", &of::SPLICE),
    ("sync_file_range", "flags", &of::SYNC_RANGE),
    ("futex", "op", &of::FUTEX),
    ("*", "which_clock", &of::CLOCK),
    ("*", "clockid", &of::CLOCK),
    ("clock_nanosleep timer_settime", "flags", &of::TIMER),
    ("timerfd_settime", "flags", &of::TIMER_FILE),
    ("timerfd_create", "flags", &of::TIMER_FILE_OPEN),
    ("getitimer setitimer", "which", &of::INTERVAL),
    ("epoll_ctl", "op", &of::EPOLL),
    ("epoll_create1", "flags", &of::EPOLL_OPEN),
    ("eventfd2", "flags", &of::EVENT_FILE),
    ("signalfd4", "flags", &of::SIGNAL_FILE),
    ("inotify_add_watch", "mask", &of::INOTIFY),
    ("inotify_init1", "flags", &of::INOTIFY_OPEN),
    ("memfd_create", "flags", &of::MEMORY_FILE),
    ("getrandom", "flags", &of::RANDOM),
    ("close_range", "flags", &of::CLOSE_RANGE),
    ("pidfd_open", "flags", &of::PIDFD),
    ("pidfd_send_signal", "flags", &of::PIDFD_SIGNAL),
    ("getrlimit setrlimit prlimit64", "resource", &of::RESOURCE),
    ("getrusage", "who", &of::USAGE),
    ("getpriority setpriority", "which", &of::PRIORITY),
    ("sched_setscheduler sched_get_priority_max sched_get_priority_min", "policy", &of::SCHEDULER),
    ("prctl", "option", &of::PROCESS),
    ("ptrace", "request", &of::TRACE),
    ("seccomp", "op", &of::SECCOMP),
    ("seccomp", "flags", &of::SECCOMP_FLAGS),
    ("msgget", "msgflg", &of::IPC),
    ("msgsnd msgrcv", "msgflg", &of::IPC_MESSAGE),
    ("msgctl", "cmd", &of::IPC_OF_MESSAGES),
    ("semctl", "cmd", &of::IPC_OF_SEMAPHORES),
    ("shmctl", "cmd", &of::IPC_OF_MEMORY),
    ("semget", "semflg", &of::IPC),
    ("shmget", "shmflg", &of::SHARED_MEMORY),
    ("shmat", "shmflg", &of::ATTACHING),
    ("msgget semget shmget", "key", &of::IPC_KEY),
    ("mbind set_mempolicy", "mode", &of::MEMORY_POLICY),
    ("fanotify_init", "flags", &of::FILE_NOTICES),
    ("fanotify_mark", "flags", &of::FILE_MARK),
    ("fanotify_mark", "mask", &of::FILE_EVENTS),
    ("mbind move_pages", "flags", &of::MEMORY_MOVE),
    ("get_mempolicy", "flags", &of::MEMORY_POLICY_OF),
    ("mlock2", "flags", &of::LOCK_MEMORY),
    ("bpf", "cmd", &of::BPF),
    ("keyctl", "option", &of::KEY),
    ("ioprio_set ioprio_get", "which", &of::IO_PRIORITY_OF),
    ("ioprio_set", "ioprio", &of::IO_PRIORITY),
    ("membarrier", "cmd", &of::BARRIER),
    ("membarrier", "flags", &of::BARRIER_FLAGS),
    ("kcmp", "type", &of::COMPARE),
    ("reboot", "cmd", &of::REBOOT),
    ("arch_prctl", "option", &of::ARCHITECTURE),
    ("io_uring_register", "opcode", &of::RING),
    ("io_uring_enter", "flags", &of::RING_ENTER),
    ("perf_event_open", "flags", &of::PERF),
    ("userfaultfd", "flags", &of::PAGE_FAULTS),
    ("open_tree open_tree_attr", "flags", &of::TREE),
    ("move_mount", "flags", &of::MOVE_MOUNT),
    ("fsopen", "flags", &of::FILE_SYSTEM_OPEN),
    ("fsmount", "flags", &of::FILE_SYSTEM_MOUNT),
    ("fsmount", "attr_flags", &of::MOUNT_ATTRIBUTES),
    ("fsconfig", "cmd", &of::FILE_SYSTEM),
    ("futex_wait futex_wake", "flags", &of::FUTEX_SIZE),
    ("landlock_create_ruleset", "flags", &of::LANDLOCK),
    ("landlock_add_rule", "rule_type", &of::LANDLOCK_RULE),
    ("landlock_restrict_self", "flags", &of::LANDLOCK_SELF),
];

/// Arguments with names of another kind, in the same form.
const OTHERS: &[(&str, &str, ValueNames)] = &[
    ("mknod mknodat", "dev", ValueNames::UserDevice),
    ("open openat creat mkdir mkdirat mknod mknodat mq_open", "mode", ValueNames::FileMode),
    ("chmod fchmod fchmodat fchmodat2", "mode", ValueNames::FileMode),
    ("umask", "mask", ValueNames::FileMode),
    ("mmap munmap mremap", "addr", ValueNames::Address),
    ("mremap", "new_addr", ValueNames::Address),
    (
        "mprotect pkey_mprotect madvise mlock mlock2 munlock mincore msync",
        "start",
        ValueNames::Address,
    ),
    ("mbind remap_file_pages set_mempolicy_home_node", "start", ValueNames::Address),
    ("brk", "brk", ValueNames::Address),
];

/// The names of the values of an argument.
pub(in crate::resolve) fn names(call: &str, argument: &str) -> Option<ValueNames> {
    let fits = |calls: &str, name: &str| {
        name == argument && calls.split(' ').any(|one| one == call || one == "*")
    };
    let constants = ARGUMENTS.iter().find(|(calls, name, _)| fits(calls, name));
    constants.map(|(.., set)| set.names()).or_else(|| {
        OTHERS.iter().find(|(calls, name, _)| fits(calls, name)).map(|(.., names)| names.clone())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resolve::shape::Shape;
    use std::borrow::Cow;

    #[test]
    fn arguments_have_the_constants_of_their_system_call() {
        let shown = |call, argument, value| {
            let names = names(call, argument)?;
            names.of_integer(value, &Shape::Unsigned).map(Cow::into_owned)
        };
        for (call, argument, value, expected) in [
            ("openat", "flags", 0, Some("O_RDONLY")),
            ("openat", "dfd", -100_i64 as u64, Some("AT_FDCWD")),
            ("execveat", "flags", 0x1000, Some("AT_EMPTY_PATH")),
            ("faccessat2", "flags", 0x200, Some("AT_EACCESS")),
            ("name_to_handle_at", "flag", 0x200, None),
            ("mount", "flags", 0xc0ed_0001, Some("MS_MGC_VAL|MS_RDONLY")),
            ("mount", "flags", 0x4_0001, Some("MS_RDONLY|MS_PRIVATE")),
            ("kill", "sig", 15, Some("SIGTERM")),
            ("rseq", "sig", 15, None),
            ("mknodat", "dev", 0x103, Some("1:3")),
            ("openat", "mode", 0o644, Some("0644")),
            ("faccessat", "mode", 4, Some("R_OK")),
            ("mbind", "mode", 2, Some("MPOL_BIND")),
            ("bpf", "cmd", 5, Some("BPF_PROG_LOAD")),
            ("keyctl", "option", 11, Some("KEYCTL_READ")),
            ("ioprio_get", "which", 1, Some("IOPRIO_WHO_PROCESS")),
            ("ioprio_set", "ioprio", 3 << 13, Some("IOPRIO_CLASS_IDLE")),
            ("ioprio_set", "ioprio", 2 << 13 | 4, Some("IOPRIO_CLASS_BE|0x4")),
            ("ioprio_set", "ioprio", 5 << 13, None),
            ("msgrcv", "msgflg", 0x1800, Some("IPC_NOWAIT|MSG_NOERROR")),
            ("reboot", "cmd", 0xffff_ffff_cdef_0123, Some("LINUX_REBOOT_CMD_HALT")),
            ("arch_prctl", "option", 0x1002, Some("ARCH_SET_FS")),
            (
                "fsmount",
                "attr_flags",
                3,
                Some("MOUNT_ATTR_RELATIME|MOUNT_ATTR_RDONLY|MOUNT_ATTR_NOSUID"),
            ),
            ("munmap", "addr", 4096, Some("0x1000")),
            ("read", "count", 4096, None),
        ] {
            assert_eq!(shown(call, argument, value).as_deref(), expected, "{call} {argument}");
        }
    }
}
