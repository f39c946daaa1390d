//! Fields of a probe, as a person writes them: `[NAME=]PATH[:TYPE]`.

/// Where something stands in a spec, in bytes from its start. Says nothing of what it is: any two are
/// equal.
#[derive(Clone, Copy, Debug, Default)]
pub struct At(pub usize);

impl PartialEq for At {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for At {}

impl std::hash::Hash for At {
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
}

/// A value that is read when the probe is hit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct FieldSpec {
    /// What it is called in events; its path, by default.
    pub name: Option<String>,
    /// What is read.
    pub path: FieldPath,
    /// How it is taken; by its type in the kernel, by default.
    pub ty: Option<FieldType>,
    /// Where the type stands.
    pub ty_at: At,
}

impl FieldSpec {
    /// What is called so at every hook, by its type.
    pub(crate) fn named(name: &str) -> Self {
        let base = FieldBase::Name(name.to_owned());
        let path = FieldPath { base, at: At(0), steps: Vec::new() };
        Self { name: None, path, ty: None, ty_at: At(0) }
    }

    /// What it is called in events.
    pub(crate) fn shown_name(&self) -> String {
        self.name.clone().unwrap_or_else(|| self.path.to_string())
    }
}

/// A way from an argument to a value: `how->flags`, `arg1`, `file->f_path.dentry->d_name.name`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct FieldPath {
    /// Where it starts.
    pub base: FieldBase,
    /// Where that stands.
    pub at: At,
    /// The members on the way, and where they stand. `.` and `->` are the same.
    pub steps: Vec<(PathStep, At)>,
}

/// Where a path starts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FieldBase {
    /// `arg0`, from 0 on; `$arg1`, from 1 on, is the same.
    Argument(u8),
    /// `retval`: what the function returned.
    Return,
    /// An argument, or a tracepoint's field, by its name; else one of `pid`, `tid`, `uid`, `cpu` and
    /// `comm`.
    Name(String),
}

/// A step of a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PathStep {
    /// A member of a structure or union, or of one of its anonymous members.
    Member(String),
    /// An element: `[3]`.
    Index(u32),
}

/// How a value is taken, other than by its type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FieldType {
    /// `u8`, `u16`, `u32`, `u64`: an unsigned integer of so many bits.
    Unsigned(u8),
    /// `s8`, `s16`, `s32`, `s64`: a signed one.
    Signed(u8),
    /// `x8`, `x16`, `x32`, `x64`: an unsigned one, shown in hexadecimal.
    Hex(u8),
    /// `str`: a string in the kernel's memory.
    Str,
    /// `ustr`: a string in the process's memory.
    Ustr,
    /// `sym`: an address of the kernel, shown as its symbol.
    Symbol,
    /// `bytes[N]`: so many bytes of the kernel's memory.
    Bytes(u16),
}
