//! What the processes that read untrusted files give up.

use crate::kernel::capabilities::{Capabilities, keep_in_thread};
use crate::kernel::confinement::{allow_only, deny_files, to_itself};
use crate::kernel::identity::leave_root;
use landlock::BitFlags;
use probe_sys::process::Identity;
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, Signal, set_dumpable_behavior,
    set_parent_process_death_signal, setrlimit, setsid,
};
use seccompiler::{BackendError, BpfProgram, apply_filter};
use std::fs;
use std::io;

/// The address space of a reader, in bytes: enough for the debug information that it reads at most, and what it makes of it.
const ADDRESS_SPACE: u64 = 4 << 30;

/// The processor time of a reader, in seconds. One that hangs is killed much earlier; this ends one that nobody kills.
const CPU_TIME: u64 = 3600;

/// What the keeper of readers gives up, and they with it: privileges, and the identity of the user.
pub(super) fn keeper() -> io::Result<()> {
    // Ctrl-C is for the tracer, which ends the readers. It fails in the first process of a group, where nothing is lost.
    let _ = setsid();
    // If memory is short, the kernel ends a reader first. A program with file capabilities may not change that.
    let _ = fs::write("/proc/self/oom_score_adj", "1000");
    // The process has one thread, so what is true of the thread is true of the process.
    leave_root(&Identity::nobody())?;
    keep_in_thread(Capabilities::NONE)?;
    // Other processes of the same user must not take it over.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    for (resource, limit) in
        [(Resource::Core, 0), (Resource::Fsize, 0), (Resource::Nofile, 64), (Resource::Memlock, 0)]
    {
        limit_to(resource, limit)?;
    }
    Ok(())
}

/// What a reader gives up besides: everything but the reading of descriptors that it is given, and memory.
pub(super) fn reader() -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    limit_to(Resource::As, ADDRESS_SPACE)?;
    limit_to(Resource::Cpu, CPU_TIME)?;
    // No file can be opened and no connection made, as far as the kernel has Landlock (5.13).
    let rules = deny_files(BitFlags::EMPTY).map_err(io::Error::other)?;
    rules.restrict_self().map_err(io::Error::other)?;
    let filter = filter().map_err(io::Error::other)?;
    apply_filter(&filter).map_err(io::Error::other)
}

fn limit_to(resource: Resource, limit: u64) -> io::Result<()> {
    Ok(setrlimit(resource, Rlimit { current: Some(limit), maximum: Some(limit) })?)
}

/// The system calls of a process that allocates memory, reads descriptors and answers. Others fail: a C library of the
/// future may try some that this one does not.
fn filter() -> Result<BpfProgram, BackendError> {
    const ALLOWED: [i64; 28] = [
        libc::SYS_brk,
        libc::SYS_clock_gettime,
        libc::SYS_close,
        libc::SYS_exit,
        libc::SYS_exit_group,
        libc::SYS_fstat,
        libc::SYS_futex,
        libc::SYS_getpid,
        libc::SYS_getrandom,
        libc::SYS_gettid,
        libc::SYS_lseek,
        libc::SYS_madvise,
        libc::SYS_mmap,
        libc::SYS_mprotect,
        libc::SYS_mremap,
        libc::SYS_munmap,
        libc::SYS_pread64,
        libc::SYS_read,
        libc::SYS_recvmsg,
        libc::SYS_restart_syscall,
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_sched_getaffinity,
        libc::SYS_sched_yield,
        libc::SYS_sendmsg,
        libc::SYS_sigaltstack,
        libc::SYS_write,
    ];
    // It may abort, but send no signal to a process of the same user: the tracer can be one.
    let signal = (libc::SYS_tgkill, vec![to_itself()?]);
    allow_only(ALLOWED.into_iter().map(|call| (call, Vec::new())).chain([signal]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use probe_sys::disturb::{can_signal, in_child};
    use rustix::process::{getpid, test_kill_process};
    use std::fs::File;
    use std::net::TcpListener;
    use std::process::{Command, id};

    #[test]
    fn a_reader_can_open_connect_start_and_kill_nothing() {
        let tries: [fn() -> bool; 6] = [
            || File::open("/dev/null").is_ok(),
            || fs::read_link("/proc/self/exe").is_ok(),
            || TcpListener::bind("127.0.0.1:0").is_ok(),
            || Command::new("true").status().is_ok(),
            || test_kill_process(getpid()).is_ok(),
            || !can_signal(id()),
        ];
        let bits = |tries: [fn() -> bool; 6]| {
            tries.iter().enumerate().map(|(n, succeeds)| u8::from(succeeds()) << n).sum::<u8>()
        };
        assert_eq!(bits(tries), 0b1_1111, "{}", id());
        let confined = in_child(|| {
            // The death of the thread that forks is the death of the parent.
            if reader().is_err() { u8::MAX } else { bits(tries) }
        });
        assert_eq!(confined.unwrap(), 0);
    }

    /// Landlock denies signals only from 6.12 on.
    #[test]
    fn the_filter_denies_signals_to_processes_of_the_same_user() {
        let parent = id();
        assert_eq!(in_child(|| can_signal(parent).into()).unwrap(), 1);
        let filtered = in_child(|| match filter().map(|filter| apply_filter(&filter)) {
            Ok(Ok(())) => can_signal(parent).into(),
            _ => u8::MAX,
        });
        assert_eq!(filtered.unwrap(), 0);
    }
}
