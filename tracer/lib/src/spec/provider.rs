//! The kinds of hooks and their names.

use super::foreign;
use probe_perf::nearest::nearest;

/// A kind of hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Provider {
    /// The entry of a kernel function.
    Kprobe,
    /// The return of a kernel function.
    Kretprobe,
    /// The entry of a kernel function, through a trampoline.
    Fentry,
    /// The return of a kernel function, through a trampoline. The arguments are available, too.
    Fexit,
    /// A tracepoint, named `category:name`.
    Tracepoint,
    /// A tracepoint without the kernel's formatting of its fields.
    RawTracepoint,
    /// The entry of a function in a program or library. Strings and bytes are read from the process's memory. Bytes on a
    /// page that is not in memory cannot be read; a string there is read when the process or the kernel needs the page.
    Uprobe,
    /// The return of a function in a program or library. The kernel tracks at most 64 nested calls per thread
    /// (`MAX_URETPROBE_DEPTH`) and does not report the returns of deeper ones.
    Uretprobe,
    /// The entry of a system call, whatever its function is called on this architecture.
    Ksyscall,
}

impl Provider {
    /// All providers.
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

    /// Whether its hooks are functions of programs and libraries, not of the kernel.
    pub(crate) fn is_in_program(self) -> bool {
        matches!(self, Self::Uprobe | Self::Uretprobe)
    }

    /// The provider of a spec that does not name one.
    pub(crate) const DEFAULT: Self = Self::Kprobe;

    /// The name that a spec starts with, its aliases, and the form of what follows.
    const fn syntax(self) -> (&'static str, &'static [&'static str], Form) {
        match self {
            Self::Kprobe => ("kprobe", &["k"], Form::InModule),
            Self::Kretprobe => ("kretprobe", &["kr"], Form::InModule),
            Self::Fentry => ("fentry", &["f", "kfunc"], Form::InModule),
            Self::Fexit => ("fexit", &["fr", "kretfunc"], Form::InModule),
            Self::Tracepoint => ("tracepoint", &["t", "tp"], Form::InCategory),
            Self::RawTracepoint => {
                let others = &["rt", "raw_tp", "rawtracepoint", "raw_tracepoint", "tp_btf"];
                ("rawtp", others, Form::Name)
            }
            Self::Uprobe => ("uprobe", &["u"], Form::InFile),
            Self::Uretprobe => ("uretprobe", &["ur"], Form::InFile),
            Self::Ksyscall => ("ksyscall", &[], Form::OfCall),
        }
    }

    /// The name that a spec starts with.
    pub const fn name(self) -> &'static str {
        self.syntax().0
    }

    /// The form of what follows its name.
    pub(super) const fn form(self) -> Form {
        self.syntax().2
    }

    /// Whether the names of its hooks are written `CATEGORY:NAME`.
    pub(crate) const fn has_category(self) -> bool {
        matches!(self.form(), Form::InCategory)
    }

    /// Whether its hooks are functions of files.
    pub(super) const fn is_in_file(self) -> bool {
        matches!(self.form(), Form::InFile)
    }

    /// Whether its hooks can be named by their addresses.
    pub(super) const fn has_addresses(self) -> bool {
        self.is_in_file() || matches!(self, Self::Kprobe | Self::Kretprobe)
    }

    /// Whether it can probe a function at an offset.
    pub(super) const fn has_offset(self) -> bool {
        matches!(self, Self::Kprobe | Self::Uprobe)
    }

    /// The provider of this name. `None` if the name resembles no provider; an error message if it looks misspelt.
    pub(super) fn find(name: &str) -> Result<Option<Self>, String> {
        let is_meant = |one: &Self| one.name() == name || one.syntax().1.contains(&name);
        if let Some(provider) = Self::ALL.into_iter().find(is_meant) {
            return Ok(Some(provider));
        }
        if name.is_empty() {
            return Err("expected a provider before the colon, like kprobe".into());
        }
        if foreign::is_category(name) {
            return Ok(None);
        }
        if let Some(answer) = foreign::provider(name) {
            return Err(answer.to_owned());
        }
        match nearest(name, Self::ALL.map(|one| one.name().to_owned())).first() {
            Some(near) => Err(format!("unknown provider `{name}`; did you mean `{near}`?")),
            None => Ok(None),
        }
    }
}

/// Precedes the name of a 32-bit system call, without the colon.
pub(super) const COMPAT: &str = "ia32";

/// What follows the name of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// A name.
    Name,
    /// A name, optionally preceded by [`COMPAT`].
    OfCall,
    /// A name, optionally preceded by a kernel module.
    InModule,
    /// A category and a name.
    InCategory,
    /// A file and a name.
    InFile,
}
