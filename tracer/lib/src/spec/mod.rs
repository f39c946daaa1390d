//! Probe specs.
//!
//! `head` parses the hook; `parser` parses the fields and the predicate from the tokens of `lexer`.

mod builtin;
mod error;
mod field;
pub(crate) mod foreign;
mod head;
mod instead;
mod lexer;
mod parser;
mod predicate;
mod provider;
mod show;
#[cfg(test)]
mod tests;

pub use builtin::Builtin;
pub use error::SpecError;
pub use field::{At, FieldBase, FieldPath, FieldSpec, FieldType, Length, PathStep};
pub use instead::Instead;
pub use predicate::{Comparison, Operand, Operator, Predicate};
pub use provider::Provider;

pub(crate) use lexer::whole_number;

use head::NameKind;
use std::borrow::Cow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;
use std::sync::Arc;

/// One probe: `[PROVIDER:][MODULE:]NAME[+OFFSET][(FIELD,...)][/PREDICATE/]`.
///
/// ```
/// use probe_tracer::{ProbeSpec, Provider};
///
/// let spec: ProbeSpec = "do_sys_openat2(dfd, filename:ustr) /how->flags & 0x40/".parse()?;
/// assert_eq!(spec.provider(), Provider::Kprobe);
/// assert_eq!(spec.name(), "do_sys_openat2");
/// assert_eq!(spec.fields().map_or(0, <[_]>::len), 2);
/// assert_eq!(
///     spec.to_string(),
///     "kprobe:do_sys_openat2(dfd, filename:ustr)/how.flags & 64/"
/// );
/// # Ok::<(), probe_tracer::SpecError>(())
/// ```
///
/// | part | how it is written |
/// | --- | --- |
/// | provider | `kprobe` (the default), `kretprobe`, `fentry`, `fexit`, `tracepoint`, `rawtp`, `uprobe`, `uretprobe`, `ksyscall`, or bpftrace's short names: `k`, `kr`, `f`, `fr`, `t`, `rt`, `u`, `ur`, `kfunc`, `kretfunc` |
/// | module | the kernel module of the function; for a uprobe, the file, which is required |
/// | file | a path with a `/` in it; the name of a program, looked up in `PATH` as by a shell; or the name of a library, with or without `lib`, `.so` and its version, looked up in the directories of `/etc/ld.so.conf` as by the dynamic linker. For a process with another root file system, prefix the path with `/proc/PID/root/` |
/// | name | a function; for a tracepoint, `CATEGORY:NAME`; for a 32-bit system call only, `ia32:NAME`. `*`, `?`, `[ab]` and `[!ab]` make it a pattern, which selects every match |
/// | quotes | a file or a name in quotes may contain any character, as in `uprobe:"./a b":"ns::function"`, and is not a pattern. A name that no symbol has is looked up among the demangled names of C++ and Rust, with or without parameters |
/// | address | the address of an instruction in place of a name: for a uprobe, as `objdump -d` shows it, `uprobe:./x:0x1139`; for a kprobe, as in `/proc/kallsyms`, `kprobe:0xffffffff81234560` |
/// | offset | the offset of an instruction in the function, in bytes: `+16`, `+0x10` |
/// | field | `[NAME=]PATH[:TYPE]` |
/// | path | the name of an argument or of a tracepoint's field; otherwise `arg0`, `arg1`, …, `retval`, or `pid`, `tid`, `uid`, `cpu`, `comm`, `kstack`, `ustack`; followed by any number of `.MEMBER` (or `->MEMBER`) and `[3]`. `$arg1` is the first argument and `$pid` the current process's id, whatever arguments and fields are called |
/// | type | `u8` to `u64`, `s8` to `s64`, `x8` to `x64`, `str`, `ustr`, `sym`, `bytes[N]`; `bytes[FIELD]`, `str[FIELD]` and `ustr[FIELD]` where another field is the length in bytes |
/// | predicate | `PATH[:TYPE]`, which is true unless it is 0, or a comparison of it by `==`, `!=`, `<`, `<=`, `>`, `>=` or `&` (bits in common) with a number, a character, a string or the name of an enumerator; combined with `&&`, `\|\|`, `!` and parentheses |
#[derive(Clone, Debug)]
pub struct ProbeSpec {
    parts: Arc<Parts>,
    /// The text that the spec was parsed from. It is not part of the spec's meaning.
    text: Arc<str>,
    /// Whether the text names the provider.
    names_provider: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Parts {
    provider: Provider,
    module: Option<String>,
    name: String,
    kind: NameKind,
    offset: u64,
    fields: Option<Vec<FieldSpec>>,
    predicate: Option<Predicate>,
}

impl PartialEq for ProbeSpec {
    fn eq(&self, other: &Self) -> bool {
        self.parts == other.parts
    }
}

impl Eq for ProbeSpec {}

impl Hash for ProbeSpec {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.parts.hash(state);
    }
}

impl ProbeSpec {
    /// The provider, which is the kind of hook.
    pub fn provider(&self) -> Provider {
        self.parts.provider
    }

    /// The kernel module of the function, if given; for a uprobe, the file.
    pub fn module(&self) -> Option<&str> {
        self.parts.module.as_deref()
    }

    /// The function or tracepoint to probe; a tracepoint is `category:name`.
    pub fn name(&self) -> &str {
        &self.parts.name
    }

    /// The offset of the probe from the start of the function, in bytes.
    pub fn offset(&self) -> u64 {
        self.parts.offset
    }

    /// The name, with the offset if there is one: `vfs_read+0x10`.
    pub fn site(&self) -> Cow<'_, str> {
        match self.offset() {
            0 => self.name().into(),
            offset => format!("{}+{offset:#x}", self.name()).into(),
        }
    }

    /// The fields to read, if given.
    pub fn fields(&self) -> Option<&[FieldSpec]> {
        self.parts.fields.as_deref()
    }

    /// The condition for reporting a hit, if given.
    pub fn predicate(&self) -> Option<&Predicate> {
        self.parts.predicate.as_ref()
    }

    /// Whether the name is a pattern, which selects every name that matches it.
    pub fn is_glob(&self) -> bool {
        self.parts.kind == NameKind::Pattern
    }

    /// The address of the instruction to probe, if the spec has one instead of a name.
    pub(crate) fn address(&self) -> Option<u64> {
        match self.parts.kind {
            NameKind::Address(address) => Some(address),
            NameKind::Plain | NameKind::Pattern => None,
        }
    }

    /// The same spec for one name that its pattern matches.
    pub(crate) fn named(&self, name: &str) -> Self {
        self.named_as(self.provider(), name)
    }

    /// The same spec with another provider and name.
    pub(crate) fn named_as(&self, provider: Provider, name: &str) -> Self {
        let (name, kind) = (name.to_owned(), NameKind::Plain);
        let parts = Parts { provider, name, kind, ..Parts::clone(&self.parts) };
        Self { parts: Arc::new(parts), text: Arc::clone(&self.text), names_provider: true }
    }

    /// The module and the function of a spec without a provider: `sched:sched_switch`. The module may be a category of
    /// tracepoints, because perf writes them so.
    pub(crate) fn module_or_category(&self) -> Option<(&str, &str)> {
        let module = self.module().filter(|_| !self.names_provider)?;
        Some((module, self.name()))
    }

    /// The same spec for the tracepoint that [`module_or_category`](Self::module_or_category) names.
    pub(crate) fn as_tracepoint(&self) -> Option<Self> {
        let (category, name) = self.module_or_category().filter(|_| self.offset() == 0)?;
        let name = format!("{category}:{name}");
        let parts = Parts {
            provider: Provider::Tracepoint,
            module: None,
            name,
            ..Parts::clone(&self.parts)
        };
        let text = Arc::clone(&self.text);
        Some(Self { parts: Arc::new(parts), text, names_provider: true })
    }

    /// The category and name of a tracepoint.
    pub(crate) fn tracepoint(&self) -> Option<(&str, &str)> {
        self.name().split_once(':').filter(|_| self.provider().has_category())
    }

    /// The name of a 32-bit system call, without the `ia32:` before it.
    pub(crate) fn compat_call(&self) -> Option<&str> {
        let name = self.name().strip_prefix(provider::COMPAT)?.strip_prefix(':')?;
        (self.provider() == Provider::Ksyscall).then_some(name)
    }

    /// The same spec for a 32-bit system call.
    pub(crate) fn for_compat_call(&self, name: &str) -> Self {
        self.named(&format!("{}:{name}", provider::COMPAT))
    }

    /// An error about the list of fields.
    pub(crate) fn error_at_fields(&self, what: impl Into<String>) -> SpecError {
        self.error(self.text.find('(').unwrap_or(self.text.len()), what)
    }

    /// An error found after parsing, about what is at this byte offset.
    pub(crate) fn error(&self, at: usize, what: impl Into<String>) -> SpecError {
        SpecError::new(&self.text, at, what)
    }
}

/// A function of a file as it is written in a spec: `FILE:NAME`, with quotes where they are needed.
pub(crate) fn function_of_file(file: &str, name: &str) -> String {
    format!("{}:{}", quoted(file, head::path_needs_quotes), quoted(name, head::needs_quotes))
}

fn quoted(text: &str, needs_quotes: fn(&str) -> bool) -> Cow<'_, str> {
    match needs_quotes(text) {
        true => Operand::Text(text.as_bytes().to_vec()).to_string().into(),
        false => text.into(),
    }
}

impl fmt::Display for ProbeSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = &*self.parts;
        write!(f, "{}:", parts.provider.name())?;
        if let Some(module) = &parts.module {
            write!(f, "{}:", quoted(module, head::path_needs_quotes))?;
        }
        match parts.kind {
            NameKind::Plain if parts.provider.is_in_file() => {
                f.write_str(&quoted(&parts.name, head::needs_quotes))?;
            }
            _ => f.write_str(&parts.name)?,
        }
        if parts.offset != 0 {
            write!(f, "+{:#x}", parts.offset)?;
        }
        if let Some(fields) = &parts.fields {
            let fields: Vec<_> = fields.iter().map(FieldSpec::to_string).collect();
            write!(f, "({})", fields.join(", "))?;
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
            module: head.module.map(Cow::into_owned),
            name: head.name.into_owned(),
            kind: head.kind,
            offset: head.offset,
            fields,
            predicate,
        };
        let names_provider = head.names_provider;
        Ok(Self { parts: Arc::new(parts), text: spec.into(), names_provider })
    }
}
