//! The fields that every probe has, whatever its hook.

use std::fmt;

/// A field that every probe has. Its name alone means a field of the hook's own, if there is one of that name; after a
/// `$`, it always means this field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Builtin {
    /// `pid`: the current process's id.
    Pid,
    /// `tid`: the current thread's id.
    Tid,
    /// `uid`: the current task's real user id.
    Uid,
    /// `cpu`: the current CPU.
    Cpu,
    /// `comm`: the current thread's name.
    Comm,
    /// `kstack`: the kernel's stack at the hook.
    KernelStack,
    /// `ustack`: the process's stack at the hook.
    UserStack,
}

impl Builtin {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Pid,
        Self::Tid,
        Self::Uid,
        Self::Cpu,
        Self::Comm,
        Self::KernelStack,
        Self::UserStack,
    ];

    /// The field's name, without a `$`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pid => "pid",
            Self::Tid => "tid",
            Self::Uid => "uid",
            Self::Cpu => "cpu",
            Self::Comm => "comm",
            Self::KernelStack => "kstack",
            Self::UserStack => "ustack",
        }
    }

    /// The field of this name, which has no `$`.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

impl fmt::Display for Builtin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
