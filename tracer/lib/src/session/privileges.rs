//! Dropping privileges, once a trace is armed.
//!
//! Attaching probes takes capabilities; reading their events takes hardly any. An attacker who takes over
//! the process later does not get the capabilities that it has dropped, and cannot write root's files if the process has
//! [left root's identity](leave_root), too.
//!
//! Capabilities and identities belong to a thread: these functions change the calling thread, and the threads that
//! it starts later. So call them after probes are attached and before you start threads. They also
//! set `no_new_privs`: no program that the thread executes later gains privileges, set-user-ID
//! programs included. A [`TracedCommand`](crate::TracedCommand) that was held before keeps the
//! privileges of its user.
//!
//! A [`Confinement`] then denies the process the system calls that no armed tracer makes, and the thread most files.
//!
//! The capabilities that are still needed depend on the kernel and its settings. These functions
//! find them by trying.

pub use crate::kernel::confinement::{Confined, Confinement};

use crate::error::TraceError;
use crate::kernel::capabilities::{Capabilities, keep_least};
use crate::kernel::features::is_refusal;
use crate::kernel::identity::{self, TO_READ_AS_ROOT, instead_of_root, leave_root_to_read};
use crate::session::count::HitCounter;
use crate::session::latency::Stopwatch;
use crate::session::tracer::Tracer;
use private::MayFinish;
use probe_perf::Sampler;
use rustix::fs::{Mode, OFlags, openat};
use rustix::process::{Resource, getrlimit};
use std::io;
use std::os::fd::AsFd;

/// Gives the thread another identity if it has root's: that of the user who has called `sudo` (`SUDO_UID` and `SUDO_GID`), or
/// else of nobody, without other groups. Returns whether it did. Capabilities stay; so call it before the functions that drop
/// them.
///
/// The kernel makes the process one that other users cannot inspect (`PR_SET_DUMPABLE`). Leave it like that: otherwise, the
/// user could take over the process. That user can still send signals to it.
///
/// Root of a user namespace may have no other user to become. Then the identity stays.
///
/// # Errors
///
/// If the kernel reports another error than that.
pub fn leave_root() -> io::Result<bool> {
    identity::leave_root(&instead_of_root())
}

/// Drops the thread's capabilities, except those with which it can read what root can read, and those in `also`. Also
/// [leaves root's identity](leave_root) if it has `CAP_DAC_READ_SEARCH` and `CAP_SYS_PTRACE`: without them, root in a container
/// can read what belongs to it only because it is root. Returns what is left.
///
/// # Errors
///
/// If the kernel does not let the thread drop them.
pub fn keep_to_read(also: Capabilities) -> io::Result<Capabilities> {
    leave_root_to_read()?;
    keep_only(TO_READ_AS_ROOT | also)
}

/// Drops the thread's capabilities, except those that the tracer needs for CPUs that come online
/// later, and those in `also`. Returns what is left.
///
/// The tracer needs `CAP_BPF` and `CAP_PERFMON`; `CAP_IPC_LOCK` where `RLIMIT_MEMLOCK` limits the
/// memory of rings; and `CAP_SYS_ADMIN` only where the kernel refuses a perf event without it:
/// before 5.8, and with `kernel.perf_event_paranoid` at 3, which is a patch of Debian's.
///
/// # Errors
///
/// If the kernel does not let the thread drop them.
pub fn keep_for_hotplug(tracer: &Tracer, also: Capabilities) -> io::Result<Capabilities> {
    let wanted = also | to_map_rings() | Capabilities::BPF | Capabilities::PERFMON;
    keep_least([wanted, wanted | Capabilities::SYS_ADMIN], || {
        tracer.may_finish() && tracer.may_open_events()
    })
}

/// Drops the thread's capabilities, except those that the sampler needs for CPUs that come online
/// later, and those in `also`. Returns what is left.
///
/// A sampler of threads needs none. A sampler of CPUs needs `CAP_PERFMON`, unless the sysctl
/// `kernel.perf_event_paranoid` lets every user sample; and `CAP_IPC_LOCK` and `CAP_SYS_ADMIN` as
/// for [`keep_for_hotplug`].
///
/// # Errors
///
/// If the kernel does not let the thread drop them.
pub fn keep_for_samples(sampler: &Sampler, also: Capabilities) -> io::Result<Capabilities> {
    if !sampler.follows_hotplug() {
        return keep_only(also);
    }
    let memory = also | to_map_rings();
    let wanted = memory | Capabilities::PERFMON;
    keep_least(
        [memory, wanted, wanted | Capabilities::SYS_ADMIN],
        || !matches!(sampler.try_reopen(), Err(error) if is_refusal(&error)),
    )
}

/// Drops the thread's capabilities, except `these`. Returns what is left.
///
/// # Errors
///
/// If the kernel does not let the thread drop them.
pub fn keep_only(these: Capabilities) -> io::Result<Capabilities> {
    keep_least([these], || true)
}

/// Drops the thread's capabilities, except those in `also`, and the one that creating files in
/// `dir` needs, if any. Returns what is left.
///
/// # Errors
///
/// If the kernel does not let the thread drop them.
pub fn keep_for_files(dir: impl AsFd, also: Capabilities) -> io::Result<Capabilities> {
    keep_least([also, also | Capabilities::DAC_OVERRIDE], || {
        // The file vanishes when it is closed. Where the file system has no such files, a missing
        // permission is still reported first.
        let file = openat(&dir, ".", OFlags::WRONLY | OFlags::TMPFILE, Mode::RUSR | Mode::WUSR);
        !matches!(file, Err(error) if is_refusal(&error.into()))
    })
}

/// Drops the thread's capabilities, except those that reading the result takes, and those in
/// `also`. Returns what is left. A [`Tracer`] does not trace CPUs that come online later then; a
/// [`HitCounter`] and a [`Stopwatch`] do, because they need nothing for that.
///
/// Reading takes none from kernel 5.19 on. Before, and with `kernel.unprivileged_bpf_disabled`, it
/// takes `CAP_BPF`: without it, a trace could neither read its own maps nor flush open blocks.
///
/// # Errors
///
/// If the kernel does not let the thread drop them.
pub fn keep_to_finish(armed: &impl Armed, also: Capabilities) -> io::Result<Capabilities> {
    let bpf = also | Capabilities::BPF;
    keep_least([also, bpf, bpf | Capabilities::SYS_ADMIN], || armed.may_finish())
}

/// Attached probes, whatever is done with their hits.
pub trait Armed: MayFinish {}

impl Armed for Tracer {}
impl Armed for HitCounter {}
impl Armed for Stopwatch {}

/// The private part of [`Armed`].
mod private {
    use super::{HitCounter, Stopwatch, TraceError, Tracer, is_refusal};

    pub trait MayFinish {
        /// Whether the calling thread may still make the system calls at the end.
        fn may_finish(&self) -> bool;
    }

    impl MayFinish for Tracer {
        fn may_finish(&self) -> bool {
            Self::may_finish(self)
        }
    }

    impl MayFinish for HitCounter {
        fn may_finish(&self) -> bool {
            may_read(self.read())
        }
    }

    impl MayFinish for Stopwatch {
        fn may_finish(&self) -> bool {
            may_read(self.read())
        }
    }

    fn may_read<T>(counts: Result<T, TraceError>) -> bool {
        !matches!(counts, Err(TraceError::Counts(error)) if is_refusal(&error))
    }
}

/// The capabilities that mapping the rings of new CPUs takes.
fn to_map_rings() -> Capabilities {
    match getrlimit(Resource::Memlock).current {
        Some(_) => Capabilities::IPC_LOCK,
        None => Capabilities::NONE,
    }
}
