//! What to probe, as a person writes it.
//!
//! `head` reads what is hooked, `parser` the fields and the predicate, out of what `lexer` finds.

mod error;
mod field;
mod head;
mod lexer;
mod parser;
mod predicate;
mod provider;
mod show;
#[cfg(test)]
mod tests;

pub use error::SpecError;
pub use field::{At, FieldBase, FieldPath, FieldSpec, FieldType, PathStep};
pub use predicate::{Comparison, Literal, Operator, Predicate};
pub use provider::Provider;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

/// One probe: `[PROVIDER:][MODULE:]NAME[+OFFSET][(FIELD,...)][/PREDICATE/]`.
///
/// ```
/// use probe_user::trace::{ProbeSpec, Provider};
///
/// let spec: ProbeSpec = "do_sys_openat2(dfd, filename:ustr) /how->flags & 0x40/".parse()?;
/// assert_eq!(spec.provider(), Provider::Kprobe);
/// assert_eq!(spec.name(), "do_sys_openat2");
/// assert_eq!(spec.fields().map_or(0, <[_]>::len), 2);
/// assert_eq!(
///     spec.to_string(),
///     "kprobe:do_sys_openat2(dfd, filename:ustr)/how.flags & 64/"
/// );
/// # Ok::<(), probe_user::trace::SpecError>(())
/// ```
///
/// | part | how it is written |
/// | --- | --- |
/// | provider | `kprobe` if it is not there, `kretprobe`, `fentry`, `fexit`, `tracepoint`, `rawtp`, `uprobe`, `uretprobe`, `ksyscall`, or as bpftrace has it: `k`, `kr`, `f`, `fr`, `t`, `rt`, `u`, `ur`, `kfunc`, `kretfunc` |
/// | module | the kernel's module that the function is in; for a uprobe, which has to have it, the file |
/// | file | a path with a `/` in it; or the name of a program, as a shell finds it in `PATH`; or that of a library, with or without `lib`, `.so` and its version, as the dynamic linker finds it in the directories of `/etc/ld.so.conf`. That of a process that sees another file system is behind `/proc/PID/root/` |
/// | name | a function; for a tracepoint, `CATEGORY:NAME`. With `*`, `?`, `[ab]` or `[!ab]`, all that match |
/// | offset | of an instruction, in bytes: `+16`, `+0x10` |
/// | field | `[NAME=]PATH[:TYPE]` |
/// | path | `arg0`, which is also `$arg1`, `retval`, or the name of an argument, of a tracepoint's field, or `pid`, `tid`, `uid`, `cpu`, `comm`; from there on, `.MEMBER`, which is also `->MEMBER`, and `[3]` |
/// | type | `u8` to `u64`, `s8` to `s64`, `x8` to `x64`, `str`, `ustr`, `sym`, `bytes[N]` |
/// | predicate | `PATH[:TYPE]`, which is true unless it is 0, or compared by `==`, `!=`, `<`, `<=`, `>`, `>=` or `&` (bits in common) with a number, a character, a string, or the name of an enumerator; joined by `&&`, `\|\|`, `!` and parentheses |
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProbeSpec {
    parts: Arc<Parts>,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct Parts {
    provider: Provider,
    module: Option<String>,
    name: String,
    offset: u64,
    fields: Option<Vec<FieldSpec>>,
    predicate: Option<Predicate>,
    text: Text,
}

/// How a spec was written. Says nothing of what it means: any two are equal.
#[derive(Debug)]
struct Text(String);

impl PartialEq for Text {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Text {}

impl Hash for Text {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl ProbeSpec {
    /// The sort of hook.
    pub fn provider(&self) -> Provider {
        self.parts.provider
    }

    /// The kernel's module that the function is in, if it was said; for a uprobe, the file.
    pub fn module(&self) -> Option<&str> {
        self.parts.module.as_deref()
    }

    /// What it hooks: for a tracepoint, `category:name`.
    pub fn name(&self) -> &str {
        &self.parts.name
    }

    /// Which place of the function it hooks, in bytes from its beginning.
    pub fn offset(&self) -> u64 {
        self.parts.offset
    }

    /// What is read, if it was said.
    pub fn fields(&self) -> Option<&[FieldSpec]> {
        self.parts.fields.as_deref()
    }

    /// Which hits are told, if not all.
    pub fn predicate(&self) -> Option<&Predicate> {
        self.parts.predicate.as_ref()
    }

    /// Whether the name is a pattern, which stands for all names that match it.
    pub fn is_glob(&self) -> bool {
        head::is_glob(&self.parts.name)
    }

    /// The same for one of the names that its pattern stands for.
    pub(crate) fn named(&self, name: &str) -> Self {
        self.named_as(self.provider(), name)
    }

    /// The same for what is hooked in its place.
    pub(crate) fn named_as(&self, provider: Provider, name: &str) -> Self {
        let Parts { module, offset, fields, predicate, text, .. } = &*self.parts;
        let parts = Parts {
            provider,
            module: module.clone(),
            name: name.to_owned(),
            offset: *offset,
            fields: fields.clone(),
            predicate: predicate.clone(),
            text: Text(text.0.clone()),
        };
        Self { parts: Arc::new(parts) }
    }

    /// A tracepoint's category and name.
    pub(crate) fn tracepoint(&self) -> Option<(&str, &str)> {
        match self.parts.provider {
            Provider::Tracepoint => self.parts.name.split_once(':'),
            _ => None,
        }
    }

    /// What is wrong with there being fields.
    pub(crate) fn error_at_fields(&self, what: impl Into<String>) -> SpecError {
        let text = &self.parts.text.0;
        self.error(text.find('(').unwrap_or(text.len()), what)
    }

    /// What turns out to be wrong later, with something that stands `at` so many bytes.
    pub(crate) fn error(&self, at: usize, what: impl Into<String>) -> SpecError {
        SpecError::new(&self.parts.text.0, at, what)
    }
}

impl fmt::Display for ProbeSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = &*self.parts;
        write!(f, "{}:", parts.provider.name())?;
        if let Some(module) = &parts.module {
            write!(f, "{module}:")?;
        }
        f.write_str(&parts.name)?;
        if parts.offset != 0 {
            write!(f, "+{:#x}", parts.offset)?;
        }
        if let Some(fields) = &parts.fields {
            f.write_str("(")?;
            for (number, field) in fields.iter().enumerate() {
                let comma = if number == 0 { "" } else { ", " };
                write!(f, "{comma}{field}")?;
            }
            f.write_str(")")?;
        }
        match &parts.predicate {
            Some(predicate) => write!(f, "/{predicate}/"),
            None => Ok(()),
        }
    }
}

impl FromStr for ProbeSpec {
    type Err = SpecError;

    fn from_str(spec: &str) -> Result<Self, SpecError> {
        let head = head::read(spec)?;
        let (fields, predicate) = parser::body(spec, head.end)?;
        let parts = Parts {
            provider: head.provider,
            module: head.module.map(str::to_owned),
            name: head.name.to_owned(),
            offset: head.offset,
            fields,
            predicate,
            text: Text(spec.to_owned()),
        };
        Ok(Self { parts: Arc::new(parts) })
    }
}
