//! The fields of a probe in a spec: `[NAME=]PATH[:TYPE]`.

use super::builtin::Builtin;

/// A byte offset into a spec, for error messages. It is not part of a spec's meaning, so any two offsets compare
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

/// A value that the probe reads on each hit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct FieldSpec {
    /// The field's name in events. Defaults to its path.
    pub name: Option<String>,
    /// The path to the value.
    pub path: FieldPath,
    /// How the value is interpreted. Defaults to its type in the kernel.
    pub ty: Option<FieldType>,
    /// The position of the type.
    pub ty_at: At,
    /// The number of bytes of a string or buffer, if another field has it.
    pub length: Option<Length>,
}

/// The field that has the length of another one: `count` in `buf:bytes[count]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Length {
    /// The path to the length.
    pub path: FieldPath,
    /// How the length is interpreted.
    pub ty: Option<FieldType>,
}

impl FieldSpec {
    /// A field of this name, with its default type.
    pub(crate) fn named(name: &str) -> Self {
        FieldBase::Name(name.to_owned()).into()
    }

    /// A built-in field, whose name has no `$`.
    pub(crate) fn builtin(builtin: Builtin) -> Self {
        Self { name: Some(builtin.to_string()), ..FieldBase::Builtin(builtin).into() }
    }

    /// The field's name in events.
    pub(crate) fn shown_name(&self) -> String {
        let base = match &self.path.base {
            FieldBase::Position(n) => FieldBase::Argument(*n),
            base => base.clone(),
        };
        self.name.clone().unwrap_or_else(|| FieldPath { base, ..self.path.clone() }.to_string())
    }
}

/// A path from an argument to a value: `how->flags`, `arg1`, `file->f_path.dentry->d_name.name`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct FieldPath {
    /// Where the path starts.
    pub base: FieldBase,
    /// The position of the base.
    pub at: At,
    /// The members and indices, with their positions. `.` and `->` mean the same.
    pub steps: Vec<(PathStep, At)>,
}

impl From<FieldBase> for FieldPath {
    fn from(base: FieldBase) -> Self {
        Self { base, at: At(0), steps: Vec::new() }
    }
}

impl From<FieldBase> for FieldSpec {
    fn from(base: FieldBase) -> Self {
        Self { name: None, path: base.into(), ty: None, ty_at: At(0), length: None }
    }
}

impl FieldPath {
    /// The path without its first step, if it starts with `args`: bpftrace writes `args.filename`.
    pub(crate) fn after_args(&self) -> Option<Self> {
        let is_args = matches!(&self.base, FieldBase::Name(name) if name == "args");
        match self.steps.split_first() {
            Some(((PathStep::Member(name), at), steps)) if is_args => {
                let base = match name.as_str() {
                    "retval" => FieldBase::Return,
                    name => FieldBase::Name(name.to_owned()),
                };
                Some(Self { base, at: *at, steps: steps.to_vec() })
            }
            _ => None,
        }
    }
}

/// The start of a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FieldBase {
    /// `arg0`: the argument or field of this name; otherwise the argument at this position, counted from 0.
    Argument(u8),
    /// `$arg1`: the argument at this position, here counted from 0.
    Position(u8),
    /// `retval`: the function's return value, or an argument or field of this name.
    Return,
    /// The name of an argument or of a tracepoint's field; otherwise that of a [`Builtin`].
    Name(String),
    /// `$pid`: a field that every probe has.
    Builtin(Builtin),
}

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PathStep {
    /// A member of a structure or union, or of one of its anonymous members.
    Member(String),
    /// An element of an array: `[3]`.
    Index(u32),
}

/// An explicit type, which overrides the value's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FieldType {
    /// `u8`, `u16`, `u32`, `u64`: an unsigned integer of this many bits.
    Unsigned(u8),
    /// `s8`, `s16`, `s32`, `s64`: a signed integer of this many bits.
    Signed(u8),
    /// `x8`, `x16`, `x32`, `x64`: an unsigned integer of this many bits, shown in hexadecimal.
    Hex(u8),
    /// `str`: a string, in kernel memory unless its pointer is known to be one of the process.
    Str,
    /// `ustr`: a string in user memory.
    Ustr,
    /// `sym`: a kernel address, shown as its symbol.
    Symbol,
    /// `bytes[N]`: `N` bytes. With a [`Length`], the most bytes that are read.
    Bytes(u16),
}
