//! Giving privileges up, once a trace is armed.
//!
//! To attach probes takes capabilities, to read what comes out of them hardly any. What is given up
//! here, nobody gets by taking over the process.
//!
//! Capabilities belong to a thread: these functions change the calling one, and those that it starts
//! later. So call them when probes are attached, before you start threads. They also set
//! `no_new_privs`: whatever the thread executes later gains no privilege by it, set-user-ID programs
//! included. A [`TracedCommand`](super::TracedCommand) that was held before keeps the privileges that
//! its user has.
//!
//! What is still needed depends on the kernel and its settings, and is found by trying.

use super::capabilities::Capabilities;
use super::features::is_refusal;
use super::tracer::Tracer;
use crate::perf::Sampler;
use rustix::process::{Resource, getrlimit};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs,
};
use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Keeps, of what the thread has, the capabilities by which the tracer can take a CPU in that comes
/// later, and those in `also`. Returns what is left.
///
/// These are `CAP_BPF` and `CAP_PERFMON`; `CAP_IPC_LOCK` where `RLIMIT_MEMLOCK` limits the memory of
/// rings; and `CAP_SYS_ADMIN` only where the kernel refuses a perf event without it: before 5.8, and
/// with `kernel.perf_event_paranoid` at 3, which is a patch of Debian's.
///
/// # Errors
///
/// If the kernel does not let the thread give them up.
pub fn keep_for_hotplug(tracer: &Tracer, also: Capabilities) -> io::Result<Capabilities> {
    let wanted = also | to_map_rings() | Capabilities::BPF | Capabilities::PERFMON;
    keep([wanted, wanted | Capabilities::SYS_ADMIN], || {
        tracer.may_finish() && tracer.may_open_events()
    })
}

/// Keeps, of what the thread has, the capabilities by which the sampler can take a CPU in that comes later, and those
/// in `also`. Returns what is left.
///
/// Of a sampler of threads, nothing else is left. Of one of CPUs, these are `CAP_PERFMON`, unless the sysctl
/// `kernel.perf_event_paranoid` allows everybody what is sampled; and `CAP_IPC_LOCK` and `CAP_SYS_ADMIN` as for
/// [`keep_for_hotplug`].
///
/// # Errors
///
/// If the kernel does not let the thread give them up.
pub fn keep_for_samples(sampler: &Sampler, also: Capabilities) -> io::Result<Capabilities> {
    if !sampler.follows_cpus() {
        return keep_only(also);
    }
    let memory = also | to_map_rings();
    let wanted = memory | Capabilities::PERFMON;
    keep(
        [memory, wanted, wanted | Capabilities::SYS_ADMIN],
        || !matches!(sampler.try_to_cover(), Err(error) if is_refusal(&error)),
    )
}

/// Keeps, of what the thread has, these capabilities alone. Returns what is left.
///
/// # Errors
///
/// If the kernel does not let the thread give them up.
pub fn keep_only(these: Capabilities) -> io::Result<Capabilities> {
    keep([these], || true)
}

/// Keeps, of what the thread has, the capability to create files in a directory, if it takes one, and those in
/// `also`. Returns what is left.
///
/// # Errors
///
/// If the kernel does not let the thread give them up.
pub fn keep_for_files(dir: &Path, also: Capabilities) -> io::Result<Capabilities> {
    keep([also, also | Capabilities::DAC_OVERRIDE], || {
        // It is gone when it is closed. Where there can be none, its refusal comes first.
        let file = OpenOptions::new().write(true).custom_flags(libc::O_TMPFILE).open(dir);
        !matches!(file, Err(error) if is_refusal(&error))
    })
}

/// Keeps no capability, so that CPUs which come later are not traced. Returns what is left all the
/// same.
///
/// That is nothing from kernel 5.19 on. Before, and with `kernel.unprivileged_bpf_disabled`, `CAP_BPF`
/// is left: without it, even what the tracer's own maps hold cannot be read, nor what lies in open
/// blocks be sent.
///
/// # Errors
///
/// If the kernel does not let the thread give them up.
pub fn drop_all(tracer: &Tracer) -> io::Result<Capabilities> {
    let candidates =
        [Capabilities::NONE, Capabilities::BPF, Capabilities::BPF | Capabilities::SYS_ADMIN];
    keep(candidates, || tracer.may_finish())
}

/// Gives up all that the calling thread has: for threads that make no privileged call.
pub(super) fn drop_in_thread() -> io::Result<()> {
    keep_in_thread(Capabilities::NONE)
}

/// Keeps, of what the calling thread has, only these: for threads with a job of their own.
pub(super) fn keep_in_thread(kept: Capabilities) -> io::Result<()> {
    fix(capabilities(None)?.effective & kept.0)
}

/// What the rings take of CPUs that come later.
fn to_map_rings() -> Capabilities {
    match getrlimit(Resource::Memlock).current {
        Some(_) => Capabilities::IPC_LOCK,
        None => Capabilities::NONE,
    }
}

/// Keeps the first of `candidates` with which it `works`, or the last one.
fn keep<const N: usize>(
    candidates: [Capabilities; N],
    works: impl Fn() -> bool,
) -> io::Result<Capabilities> {
    let before = capabilities(None)?;
    let mut kept = CapabilitySet::empty();
    for candidate in candidates {
        kept = before.effective & candidate.0;
        // What stays permitted, the next attempt can use again.
        set_capabilities(None, CapabilitySets { effective: kept, ..before })?;
        if works() {
            break;
        }
    }
    fix(kept)?;
    Ok(Capabilities(kept))
}

/// Gives everything else up for good. With the inheritable ones, the ambient ones go, too.
fn fix(kept: CapabilitySet) -> io::Result<()> {
    let inheritable = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable })?;
    Ok(set_no_new_privs(true)?)
}
