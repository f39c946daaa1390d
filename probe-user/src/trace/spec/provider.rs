//! The sorts of hooks, by their names.

use crate::trace::symbols::nearest;

/// A sort of hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Provider {
    /// The entry of a kernel function.
    Kprobe,
    /// The return of a kernel function.
    Kretprobe,
    /// The entry of a kernel function, by a trampoline.
    Fentry,
    /// The return of a kernel function, by a trampoline: it knows the arguments, too.
    Fexit,
    /// A tracepoint, named `category:name`.
    Tracepoint,
    /// A tracepoint without the kernel's formatting of its fields.
    RawTracepoint,
    /// The entry of a function of a program or library. Strings, and bytes, are read where its arguments
    /// point to: what the process has not touched yet may not be in memory, and is not read then.
    Uprobe,
    /// The return of a function of a program or library. The kernel knows where to return to from 64 calls
    /// of a thread (`MAX_URETPROBE_DEPTH`), and passes on no more of those that are in one another.
    Uretprobe,
    /// The entry of a system call, whatever its function is called on this machine.
    Ksyscall,
}

impl Provider {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Kprobe,
        Self::Kretprobe,
        Self::Fentry,
        Self::Fexit,
        Self::Tracepoint,
        Self::RawTracepoint,
        Self::Uprobe,
        Self::Uretprobe,
        Self::Ksyscall,
    ];

    /// The name that a spec starts with.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kprobe => "kprobe",
            Self::Kretprobe => "kretprobe",
            Self::Fentry => "fentry",
            Self::Fexit => "fexit",
            Self::Tracepoint => "tracepoint",
            Self::RawTracepoint => "rawtp",
            Self::Uprobe => "uprobe",
            Self::Uretprobe => "uretprobe",
            Self::Ksyscall => "ksyscall",
        }
    }

    /// Other names that it has.
    const fn short(self) -> &'static [&'static str] {
        match self {
            Self::Kprobe => &["k"],
            Self::Kretprobe => &["kr"],
            Self::Fentry => &["f", "kfunc"],
            Self::Fexit => &["fr", "kretfunc"],
            Self::Tracepoint => &["t"],
            Self::RawTracepoint => &["rt", "rawtracepoint"],
            Self::Uprobe => &["u"],
            Self::Uretprobe => &["ur"],
            Self::Ksyscall => &[],
        }
    }

    /// Whether it hooks a program or library, not the kernel.
    pub(in crate::trace) const fn is_user(self) -> bool {
        matches!(self, Self::Uprobe | Self::Uretprobe)
    }

    /// Whether its functions may be said to be of a module.
    pub(super) const fn has_module(self) -> bool {
        matches!(self, Self::Kprobe | Self::Kretprobe | Self::Fentry | Self::Fexit)
    }

    /// Whether it can hook other places of a function than its beginning.
    pub(super) const fn has_offset(self) -> bool {
        matches!(self, Self::Kprobe | Self::Uprobe)
    }

    /// The provider of this name; `None`, if it is not like the name of any. Or what is wrong with it.
    pub(super) fn find(name: &str) -> Result<Option<Self>, String> {
        let is_meant = |one: &Self| one.name() == name || one.short().contains(&name);
        if let Some(provider) = Self::ALL.into_iter().find(is_meant) {
            return Ok(Some(provider));
        }
        if name.is_empty() {
            return Err("a provider has to come before the colon, like kprobe".into());
        }
        match nearest(name, Self::ALL.map(|one| one.name().to_owned())).first() {
            Some(near) => Err(format!("there is no provider `{name}`: did you mean {near}?")),
            None => Ok(None),
        }
    }
}
