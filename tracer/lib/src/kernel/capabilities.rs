//! Sets of capabilities that display as their names.

use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs,
};
use std::fmt;
use std::io;
use std::ops::BitOr;

/// A set of capabilities (`capabilities(7)`). Displays as `CAP_PERFMON, CAP_BPF`, or `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities(pub(crate) CapabilitySet);

impl Capabilities {
    /// The empty set.
    pub const NONE: Self = Self(CapabilitySet::empty());
    /// Permits loading programs and creating maps (5.8+; `CAP_SYS_ADMIN` before).
    pub const BPF: Self = Self(CapabilitySet::BPF);
    /// Permits opening perf events and attaching programs that read kernel memory (5.8+; `CAP_SYS_ADMIN` before).
    pub const PERFMON: Self = Self(CapabilitySet::PERFMON);
    /// Implies both of them, and much else.
    pub const SYS_ADMIN: Self = Self(CapabilitySet::SYS_ADMIN);
    /// Permits locking more memory than `RLIMIT_MEMLOCK`.
    pub const IPC_LOCK: Self = Self(CapabilitySet::IPC_LOCK);
    /// Permits reading the addresses of the kernel's functions.
    pub const SYSLOG: Self = Self(CapabilitySet::SYSLOG);
    /// Permits reading files regardless of their modes. Tracefs belongs to root.
    pub const DAC_READ_SEARCH: Self = Self(CapabilitySet::DAC_READ_SEARCH);
    /// Permits reading and writing files regardless of their modes.
    pub const DAC_OVERRIDE: Self = Self(CapabilitySet::DAC_OVERRIDE);
    /// Permits inspecting other users' processes.
    pub const SYS_PTRACE: Self = Self(CapabilitySet::SYS_PTRACE);
    /// Permits opening the files that other processes have mapped (5.9+).
    pub const CHECKPOINT_RESTORE: Self = Self(CapabilitySet::CHECKPOINT_RESTORE);
    /// Permits signalling other users' processes.
    pub const KILL: Self = Self(CapabilitySet::KILL);
    /// Permits becoming another user.
    pub const SETUID: Self = Self(CapabilitySet::SETUID);
    /// Permits becoming a member of other groups.
    pub const SETGID: Self = Self(CapabilitySet::SETGID);

    /// The effective capabilities of the calling thread.
    ///
    /// # Errors
    ///
    /// If the kernel does not report them.
    pub fn effective() -> io::Result<Self> {
        Ok(Self(capabilities(None)?.effective))
    }

    /// Whether all of `other` are in the set.
    pub fn contains(self, other: Self) -> bool {
        self.0.contains(other.0)
    }

    /// The intersection of both sets.
    #[must_use]
    pub fn of(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The set without those of `other`.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 - other.0)
    }

    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// Which of [`BPF`](Self::BPF) and [`PERFMON`](Self::PERFMON) the set neither contains nor implies.
    pub(crate) fn missing_to_trace(self) -> Self {
        let needed = Self::BPF | Self::PERFMON;
        if self.contains(Self::SYS_ADMIN) { Self::NONE } else { Self(needed.0 - self.0) }
    }

    /// Whether the set suffices for tracing, except for functions of programs on kernels that require
    /// [`SYS_ADMIN`](Self::SYS_ADMIN) for them.
    pub(crate) fn may_lack_uprobes(self) -> bool {
        self.contains(Self::PERFMON) && !self.contains(Self::SYS_ADMIN)
    }
}

/// Why [`Capabilities::may_lack_uprobes`] matters.
pub(crate) const FOR_UPROBES: &str =
    "CAP_SYS_ADMIN, which kernels require for functions of programs since July 2025";

impl BitOr for Capabilities {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Display for Capabilities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        let names: Vec<_> = self.0.iter_names().map(|(name, _)| format!("CAP_{name}")).collect();
        f.write_str(&names.join(", "))
    }
}

/// Drops all capabilities of the calling thread except these, for threads that need few or none.
pub(crate) fn keep_in_thread(kept: Capabilities) -> io::Result<()> {
    keep_for_good(capabilities(None)?.effective & kept.0)
}

/// Drops all capabilities of the calling thread except the first of `candidates` with which it `works`, or the last one.
/// Returns what is left.
pub(crate) fn keep_least<const N: usize>(
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
    keep_for_good(kept)?;
    Ok(Capabilities(kept))
}

/// Drops everything else for good. Clearing the inheritable set clears the ambient set, too.
pub(crate) fn keep_for_good(kept: CapabilitySet) -> io::Result<()> {
    let inheritable = CapabilitySet::empty();
    set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable })?;
    Ok(set_no_new_privs(true)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_display_as_names() {
        let both = Capabilities::BPF | Capabilities::PERFMON;
        assert_eq!(both.to_string(), "CAP_PERFMON, CAP_BPF");
        assert_eq!(Capabilities::NONE.to_string(), "none");
        assert!(both.contains(Capabilities::BPF) && !both.contains(Capabilities::KILL));
    }

    #[test]
    fn missing_capabilities_are_named() {
        assert_eq!(Capabilities::BPF.missing_to_trace(), Capabilities::PERFMON);
        assert_eq!(Capabilities::SYS_ADMIN.missing_to_trace(), Capabilities::NONE);
        let both = Capabilities::BPF | Capabilities::PERFMON;
        assert_eq!(Capabilities::KILL.missing_to_trace(), both);
    }
}
