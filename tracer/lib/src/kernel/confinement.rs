//! Confining an armed tracer: a seccomp filter for the whole process, and Landlock for the calling thread.

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use linux_raw_sys::general::{F_SETOWN, F_SETOWN_EX, F_SETSIG};
use seccompiler::SeccompCmpOp::{Eq, MaskedEq, Ne};
use seccompiler::{
    BackendError, BpfProgram, BpfProgramRef, SeccompAction, SeccompCmpArgLen, SeccompCmpOp,
    SeccompCondition, SeccompFilter, SeccompRule, apply_filter, apply_filter_all_threads,
};
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;

/// What a confined process still has to do besides reading events and writing to open files.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Confinement<'d> {
    files_in: Option<BorrowedFd<'d>>,
    reads_all_files: bool,
    signals: bool,
}

impl<'d> Confinement<'d> {
    /// Lets the process create, name and delete files in this directory.
    #[must_use]
    pub fn files_in(mut self, directory: Option<BorrowedFd<'d>>) -> Self {
        self.files_in = directory;
        self
    }

    /// Lets the process read all files, not only those in `/proc` and `/sys`. Landlock is not used then: it would also hide
    /// what is in the directories of other processes in `/proc`.
    #[must_use]
    pub fn reads_all_files(mut self) -> Self {
        self.reads_all_files = true;
        self
    }

    /// Lets the process send signals to other processes by their descriptors.
    #[must_use]
    pub fn signals(mut self, signals: bool) -> Self {
        self.signals = signals;
        self
    }

    /// Confines the process, and says how far the kernel supports that. Set `no_new_privs` before.
    ///
    /// # Errors
    ///
    /// If the kernel refuses what it supports.
    pub fn begin(self) -> io::Result<Confined> {
        self.begin_with(apply_filter_all_threads)
    }

    /// Confines the calling thread alone.
    pub(crate) fn try_in_thread(self) -> io::Result<Confined> {
        self.begin_with(apply_filter)
    }

    fn begin_with(
        self,
        apply: fn(BpfProgramRef<'_>) -> Result<(), seccompiler::Error>,
    ) -> io::Result<Confined> {
        let has_landlock =
            !self.reads_all_files && self.restrict_files().map_err(io::Error::other)?;
        let filter = self.filter().map_err(io::Error::other)?;
        let has_seccomp = match apply(&filter) {
            Ok(()) => true,
            Err(seccompiler::Error::Seccomp(error)) if is_unsupported(&error) => false,
            Err(error) => return Err(io::Error::other(error)),
        };
        Ok(Confined { has_seccomp, has_landlock })
    }

    /// Restricts the files, connections and processes of the calling thread, as far as the kernel has Landlock (5.13).
    /// Returns whether it has any.
    fn restrict_files(self) -> Result<bool, RulesetError> {
        // Signals to a command leave the scope.
        let except = if self.signals { Scope::Signal.into() } else { BitFlags::EMPTY };
        let mut rules = deny_files(except)?;
        for folder in ["/proc", "/sys"] {
            if let Ok(folder) = PathFd::new(folder) {
                rules = rules
                    .add_rule(PathBeneath::new(folder, AccessFs::ReadFile | AccessFs::ReadDir))?;
            }
        }
        if let Some(directory) = self.files_in {
            let to_write = AccessFs::MakeReg | AccessFs::WriteFile | AccessFs::RemoveFile;
            rules = rules.add_rule(PathBeneath::new(directory, to_write))?;
        }
        let status = rules.restrict_self()?;
        Ok(status.ruleset != RulesetStatus::NotEnforced)
    }

    /// The system calls of all threads of a tracer whose probes are attached. Others fail, those that a later kernel adds included.
    fn filter(self) -> Result<BpfProgram, BackendError> {
        let mut rules: Vec<(i64, Vec<SeccompRule>)> =
            ALLOWED.iter().chain(OLD).map(|&call| (call, Vec::new())).collect();
        let commands = BPF_COMMANDS.map(|command| rule(&[(0, Eq, command)]));
        rules.push((libc::SYS_bpf, commands.into_iter().collect::<Result<_, _>>()?));
        rules.push((libc::SYS_ioctl, vec![all_but(1, &REFUSED_IOCTLS)?]));
        let flags = rule(&[(1, Eq, F_SETFL), (2, MaskedEq(O_ASYNC), 0)])?;
        rules.push((libc::SYS_fcntl, vec![all_but(1, &REFUSED_FCNTLS)?, flags]));
        for call in [libc::SYS_kill, libc::SYS_tgkill] {
            rules.push((call, vec![to_itself()?]));
        }
        // A limit of processor time kills a process. 0 is the caller.
        for call in [libc::SYS_prlimit64, libc::SYS_sched_setaffinity] {
            rules.push((call, vec![rule(&[(0, Eq, 0)])?]));
        }
        let pairs = CONNECTED.map(|kind| rule(&[(0, Eq, UNIX), (1, MaskedEq(SOCKET_TYPE), kind)]));
        rules.push((libc::SYS_socketpair, pairs.into_iter().collect::<Result<_, _>>()?));
        if self.signals {
            rules.push((libc::SYS_pidfd_send_signal, Vec::new()));
        }
        let opening: &[_] = &[
            (libc::SYS_openat, 2),
            #[cfg(target_arch = "x86_64")]
            (libc::SYS_open, 1),
        ];
        for &(call, flags) in opening {
            let to_read = rule(&[(flags, MaskedEq(TO_WRITE), 0)])?;
            rules.push((call, if self.files_in.is_some() { Vec::new() } else { vec![to_read] }));
        }
        if self.files_in.is_some() {
            let naming = [libc::SYS_linkat, libc::SYS_renameat, libc::SYS_unlinkat];
            rules.extend(naming.map(|call| (call, Vec::new())));
        }
        allow_only(rules)
    }
}

/// Landlock rules that deny the opening of all files, connections, and what is in the scopes, but for `except`, as far as the
/// kernel has them. They can be relaxed before they are enforced.
pub(crate) fn deny_files(except: BitFlags<Scope>) -> Result<RulesetCreated, RulesetError> {
    const NEWEST: ABI = ABI::V6;
    let rules = Ruleset::default().set_compatibility(CompatLevel::BestEffort);
    let rules = rules.handle_access(AccessFs::from_all(NEWEST))?;
    let rules = rules.handle_access(AccessNet::from_all(NEWEST))?;
    rules.scope(Scope::from_all(NEWEST) & !except)?.create()
}

/// Denies the calling thread all that [`deny_files`] denies. Set `no_new_privs` before.
pub(crate) fn deny_files_in_thread() -> io::Result<()> {
    let rules = deny_files(BitFlags::EMPTY).map_err(io::Error::other)?;
    rules.restrict_self().map(drop).map_err(io::Error::other)
}

/// A filter that allows these system calls, each if it meets one of its rules or has none. Others fail with `EPERM`.
pub(crate) fn allow_only(
    rules: impl IntoIterator<Item = (i64, Vec<SeccompRule>)>,
) -> Result<BpfProgram, BackendError> {
    let denied = SeccompAction::Errno(libc::EPERM as u32);
    let arch = std::env::consts::ARCH.try_into()?;
    let of_probes = URETPROBE.iter().map(|&call| (call, Vec::new()));
    let rules = rules.into_iter().chain(of_probes).collect();
    SeccompFilter::new(rules, denied, SeccompAction::Allow, arch)?.try_into()
}

/// How a function of this process returns if somebody probes its returns: by `uretprobe(2)`, on x86-64 from 6.11 on. Before
/// 6.14, a filter that denies it keeps the function from returning. Any other use of it ends the process.
const URETPROBE: &[i64] = if cfg!(target_arch = "x86_64") { &[335] } else { &[] };

/// Allows a signal to the calling process itself.
pub(crate) fn to_itself() -> Result<SeccompRule, BackendError> {
    rule(&[(0, Eq, std::process::id().into())])
}

/// How far a process is confined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Confined {
    /// Whether system calls are filtered.
    pub has_seccomp: bool,
    /// Whether the kernel restricts which files can be opened.
    pub has_landlock: bool,
}

impl fmt::Display for Confined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.has_seccomp, self.has_landlock) {
            (true, true) => "seccomp and Landlock",
            (true, false) => "seccomp",
            (false, true) => "Landlock",
            (false, false) => "nothing",
        })
    }
}

/// Whether the kernel lacks seccomp filters.
fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL))
}

/// Allows a system call whose argument is none of these values.
fn all_but(argument: u8, refused: &[u64]) -> Result<SeccompRule, BackendError> {
    let conditions: Vec<_> = refused.iter().map(|&value| (argument, Ne, value)).collect();
    rule(&conditions)
}

/// Allows a system call whose arguments meet all of these conditions. They are compared as the kernel takes them: the lower 32 bits.
fn rule(conditions: &[(u8, SeccompCmpOp, u64)]) -> Result<SeccompRule, BackendError> {
    let conditions = conditions.iter().map(|(argument, op, value)| {
        SeccompCondition::new(*argument, SeccompCmpArgLen::Dword, op.clone(), *value)
    });
    SeccompRule::new(conditions.collect::<Result<_, _>>()?)
}

/// The flags of a file that is opened to be written to, or created.
const TO_WRITE: u64 = (libc::O_ACCMODE | libc::O_CREAT | libc::O_TRUNC) as u64;

/// The commands of `ioctl(2)` that put characters into the input of a terminal, which may be that of a shell of root, or choose
/// the process that gets the signals of a file: by itself, `FIOASYNC` chooses the foreground job of a terminal.
const REFUSED_IOCTLS: [u64; 5] = [
    libc::TIOCSTI,
    libc::TIOCLINUX,
    0x8901, // FIOSETOWN
    0x8902, // SIOCSPGRP
    libc::FIOASYNC,
];

/// The commands of `fcntl(2)` that choose the process that gets the signals of a file, and which signals; and the one that sets
/// flags, which is allowed without [`O_ASYNC`].
const REFUSED_FCNTLS: [u64; 4] = [F_SETOWN as u64, F_SETOWN_EX as u64, F_SETSIG as u64, F_SETFL];
const F_SETFL: u64 = libc::F_SETFL as u64;
const O_ASYNC: u64 = libc::O_ASYNC as u64;

/// The address family of the pairs of sockets that a process may create.
const UNIX: u64 = libc::AF_UNIX as u64;

/// Their types. A datagram socket could send to any other one, although it is connected.
const CONNECTED: [u64; 2] = [libc::SOCK_STREAM as u64, libc::SOCK_SEQPACKET as u64];

/// The type of a socket, without its flags.
const SOCKET_TYPE: u64 = 0xf;

/// The commands of `bpf(2)` that read and write maps and run programs, of descriptors that are open.
const BPF_COMMANDS: [u64; 6] = [
    1,  // BPF_MAP_LOOKUP_ELEM
    2,  // BPF_MAP_UPDATE_ELEM
    3,  // BPF_MAP_DELETE_ELEM
    4,  // BPF_MAP_GET_NEXT_KEY
    10, // BPF_PROG_TEST_RUN
    15, // BPF_OBJ_GET_INFO_BY_FD
];

/// System calls whose arguments do not matter: those of reading, writing what is open, waiting, memory, threads and the
/// process itself. `perf_event_open` takes a capability, and covers CPUs that come online later. A process is forked at the end, to
/// wait until probes are detached.
const ALLOWED: &[i64] = &[
    libc::SYS_brk,
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_clone,
    libc::SYS_clone3,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_copy_file_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fallocate,
    libc::SYS_fdatasync,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_get_robust_list,
    libc::SYS_getcpu,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getgroups,
    libc::SYS_getpgid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getpriority,
    libc::SYS_getrandom,
    libc::SYS_getresgid,
    libc::SYS_getresuid,
    libc::SYS_getrlimit,
    libc::SYS_getrusage,
    libc::SYS_getsid,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_getuid,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_memfd_create,
    libc::SYS_mincore,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_msync,
    libc::SYS_munlock,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_newfstatat,
    libc::SYS_openat2,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_open,
    libc::SYS_pipe2,
    libc::SYS_ppoll,
    libc::SYS_prctl,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_pselect6,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_read,
    libc::SYS_readahead,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sched_get_priority_max,
    libc::SYS_sched_get_priority_min,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_yield,
    libc::SYS_sendfile,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_setsid,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
    libc::SYS_sigaltstack,
    libc::SYS_splice,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_sync_file_range,
    libc::SYS_sysinfo,
    libc::SYS_tee,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_gettime,
    libc::SYS_timerfd_settime,
    libc::SYS_times,
    libc::SYS_umask,
    libc::SYS_uname,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Calls that architectures after x86-64 do not have, of the same kinds.
#[cfg(target_arch = "x86_64")]
const OLD: &[i64] = &[
    libc::SYS_access,
    libc::SYS_alarm,
    libc::SYS_arch_prctl,
    libc::SYS_dup2,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_eventfd,
    libc::SYS_fork,
    libc::SYS_getdents,
    libc::SYS_getpgrp,
    libc::SYS_lstat,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_select,
    libc::SYS_stat,
    libc::SYS_time,
    libc::SYS_vfork,
];

#[cfg(not(target_arch = "x86_64"))]
const OLD: &[i64] = &[];

#[cfg(test)]
mod tests {
    use super::*;
    use probe_sys::disturb::{can_signal, in_child};
    use rustix::fs::{CWD, Mode, OFlags, openat};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use rustix::process::{Pid, Resource, getrlimit, prlimit};
    use rustix::thread::{sched_getaffinity, sched_setaffinity, set_no_new_privs};
    use std::fs::{self, File};
    use std::net::TcpListener;
    use std::os::fd::{AsFd, AsRawFd};
    use std::os::unix::net::{UnixDatagram, UnixStream};
    use std::path::{Path, PathBuf};
    use std::process::Command;
    use std::thread;

    /// The attempts that succeed in a confined process, a bit for each.
    fn succeeding(confinement: Confinement<'_>, attempts: &[&dyn Fn() -> bool]) -> u32 {
        /// As many as an exit status has room for, beside one for a failure.
        const BITS: usize = 7;
        let bits = |attempts: &[&dyn Fn() -> bool]| {
            attempts.iter().enumerate().map(|(n, succeeds)| u8::from(succeeds()) << n).sum::<u8>()
        };
        let of_some = |attempts: &[&dyn Fn() -> bool]| {
            let bits = in_child(|| {
                let confined = set_no_new_privs(true).map_err(io::Error::from);
                match confined.and_then(|()| confinement.begin()) {
                    Ok(Confined { has_seccomp: true, .. }) => bits(attempts),
                    _ => u8::MAX,
                }
            });
            let bits = u32::try_from(bits.unwrap()).expect("an attempt panicked");
            assert!(bits < 1 << BITS, "the process was not confined");
            bits
        };
        let chunks = attempts.chunks(BITS).enumerate();
        chunks.map(|(n, some)| of_some(some) << (n * BITS)).sum()
    }

    fn has_landlock() -> bool {
        let restrict = || Confinement::default().restrict_files().unwrap();
        thread::spawn(restrict).join().unwrap()
    }

    #[test]
    fn a_confined_process_starts_connects_and_writes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "").unwrap();
        let parent = std::process::id();
        let attempts: [&dyn Fn() -> bool; 7] = [
            &|| Command::new("true").status().is_ok(),
            &|| TcpListener::bind("127.0.0.1:0").is_ok(),
            &|| can_signal(parent),
            &|| File::options().append(true).open(&path).is_ok(),
            &|| File::create(dir.path().join("new")).is_ok(),
            &|| fs::rename(&path, dir.path().join("other")).is_ok(),
            &|| {
                [&path, &dir.path().join("other")]
                    .into_iter()
                    .any(|path| fs::remove_file(path).is_ok())
            },
        ];
        for confinement in [Confinement::default(), Confinement::default().reads_all_files()] {
            assert_eq!(succeeding(confinement, &attempts), 0, "{confinement:?}");
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        // Each is possible without.
        for (n, attempt) in attempts.iter().enumerate() {
            assert!(attempt(), "{n}");
        }
    }

    /// Whether a call for a descriptor succeeds. The kernel ignores the upper half of the command.
    #[allow(unsafe_code)]
    fn can_control(call: i64, of: &impl AsRawFd, command: u64, argument: u64) -> bool {
        let command = command | 1 << 32;
        // SAFETY: the kernel reads at most two integers behind an argument that is an address.
        unsafe { libc::syscall(call, of.as_raw_fd(), command, argument) == 0 }
    }

    #[test]
    fn a_confined_process_affects_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let _others = UnixDatagram::bind(&path).unwrap();
        let (own, _end) = UnixStream::pair().unwrap();
        let parent = std::process::id();
        let pid = Pid::from_raw(parent.cast_signed());
        let owner = [1, parent];
        let [process, by_type] = [&owner[1], &owner[0]].map(|at| std::ptr::from_ref(at) as u64);
        let fcntl =
            |command: u32, argument| can_control(libc::SYS_fcntl, &own, command.into(), argument);
        let ioctl = |command| can_control(libc::SYS_ioctl, &own, command, process);
        let limit = |pid| prlimit(pid, Resource::Core, getrlimit(Resource::Core)).is_ok();
        let cpus = sched_getaffinity(None).unwrap();
        let on = std::ptr::from_ref(&owner[0]) as u64;
        let attempts: [&dyn Fn() -> bool; 10] = [
            &|| fcntl(libc::F_SETFL as u32, O_ASYNC),
            &|| can_control(libc::SYS_ioctl, &own, libc::FIOASYNC, on),
            &|| UnixDatagram::pair().and_then(|(one, _)| one.send_to(b"x", &path)).is_ok(),
            &|| fcntl(F_SETOWN, parent.into()),
            &|| fcntl(F_SETOWN_EX, by_type),
            &|| fcntl(F_SETSIG, libc::SIGTERM as u64),
            &|| ioctl(0x8901),
            &|| ioctl(0x8902),
            &|| limit(pid),
            &|| sched_setaffinity(pid, &cpus).is_ok(),
        ];
        let none = Confinement::default();
        assert_eq!(succeeding(none, &attempts), 0);
        for (n, attempt) in attempts.iter().enumerate() {
            assert!(attempt(), "{n}");
        }
        let (unix, packets) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let allowed: [&dyn Fn() -> bool; 6] = [
            &|| own.set_nonblocking(true).is_ok() && fcntl(libc::F_SETFL as u32, 0),
            &|| UnixStream::pair().is_ok(),
            &|| socketpair(unix, packets, SocketFlags::CLOEXEC, None).is_ok(),
            &|| own.try_clone().is_ok(),
            &|| limit(None),
            &|| sched_setaffinity(None, &cpus).is_ok(),
        ];
        assert_eq!(succeeding(none, &allowed), 0b11_1111);
    }

    #[test]
    fn a_confined_process_opens_what_it_may() {
        let dir = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "").unwrap();
        let directory = File::open(dir.path()).unwrap();
        let create = |dir: &Path| {
            let (from, to): (PathBuf, PathBuf) = (dir.join("new"), dir.join("file"));
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
            openat(CWD, &from, flags, Mode::RUSR | Mode::WUSR).is_ok()
                && rustix::fs::renameat(CWD, &from, CWD, &to).is_ok()
        };
        let attempts: [&dyn Fn() -> bool; 5] = [
            &|| fs::read_to_string("/proc/self/comm").is_ok(),
            &|| {
                thread::spawn(|| fs::read("/sys/devices/system/cpu/online").is_ok()).join().unwrap()
            },
            &|| create(dir.path()),
            &|| create(other.path()),
            &|| File::open(&path).is_ok(),
        ];
        let none = Confinement::default();
        // Without Landlock, it is the filter that distinguishes reading from writing, and not places.
        let (reading, writing) = if has_landlock() { (0, 0) } else { (0b1_0000, 0b1000) };
        assert_eq!(succeeding(none, &attempts), 0b0_0011 | reading);
        let in_directory = none.files_in(Some(directory.as_fd()));
        assert_eq!(succeeding(in_directory, &attempts), 0b0_0111 | reading | writing);
        assert_eq!(succeeding(none.reads_all_files(), &attempts), 0b1_0011);
    }
}
