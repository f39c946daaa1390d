//! Capabilities, as sets that show their names.

use rustix::thread::{CapabilitySet, capabilities};
use std::fmt;
use std::io;
use std::ops::BitOr;

/// A set of capabilities (`capabilities(7)`). It shows as `CAP_PERFMON, CAP_BPF`, or `none`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities(pub(super) CapabilitySet);

impl Capabilities {
    /// The empty set.
    pub const NONE: Self = Self(CapabilitySet::empty());
    /// To load programs and create maps (5.8; `CAP_SYS_ADMIN` before).
    pub const BPF: Self = Self(CapabilitySet::BPF);
    /// To open perf events, and attach programs that read the kernel's memory (5.8;
    /// `CAP_SYS_ADMIN` before).
    pub const PERFMON: Self = Self(CapabilitySet::PERFMON);
    /// What stands for both of them, and much else.
    pub const SYS_ADMIN: Self = Self(CapabilitySet::SYS_ADMIN);
    /// To lock more memory than `RLIMIT_MEMLOCK`.
    pub const IPC_LOCK: Self = Self(CapabilitySet::IPC_LOCK);
    /// To read what file modes keep others from: tracefs is root's.
    pub const DAC_READ_SEARCH: Self = Self(CapabilitySet::DAC_READ_SEARCH);
    /// To read and write what file modes keep others from.
    pub const DAC_OVERRIDE: Self = Self(CapabilitySet::DAC_OVERRIDE);
    /// To look into other users' processes.
    pub const SYS_PTRACE: Self = Self(CapabilitySet::SYS_PTRACE);
    /// To open the files that other processes have mapped (5.9).
    pub const CHECKPOINT_RESTORE: Self = Self(CapabilitySet::CHECKPOINT_RESTORE);
    /// To signal other users' processes.
    pub const KILL: Self = Self(CapabilitySet::KILL);

    /// What the calling thread may use.
    ///
    /// # Errors
    ///
    /// If the kernel does not say.
    pub fn effective() -> io::Result<Self> {
        Ok(Self(capabilities(None)?.effective))
    }

    /// Whether all of `other` are in the set.
    pub fn contains(self, other: Self) -> bool {
        self.0.contains(other.0)
    }

    /// Those that are in both sets.
    #[must_use]
    pub fn of(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether nothing is in the set.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// What of [`BPF`](Self::BPF) and [`PERFMON`](Self::PERFMON) is neither in the set nor stood for.
    pub(super) fn missing_to_trace(self) -> Self {
        let needed = Self::BPF | Self::PERFMON;
        if self.contains(Self::SYS_ADMIN) { Self::NONE } else { Self(needed.0 - self.0) }
    }
}

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
        for (number, (name, _)) in self.0.iter_names().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}CAP_{name}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_show_their_names() {
        let both = Capabilities::BPF | Capabilities::PERFMON;
        assert_eq!(both.to_string(), "CAP_PERFMON, CAP_BPF");
        assert_eq!(Capabilities::NONE.to_string(), "none");
        assert!(both.contains(Capabilities::BPF) && !both.contains(Capabilities::KILL));
    }

    #[test]
    fn what_is_missing_is_told() {
        assert_eq!(Capabilities::BPF.missing_to_trace(), Capabilities::PERFMON);
        assert_eq!(Capabilities::SYS_ADMIN.missing_to_trace(), Capabilities::NONE);
        let both = Capabilities::BPF | Capabilities::PERFMON;
        assert_eq!(Capabilities::KILL.missing_to_trace(), both);
    }
}
