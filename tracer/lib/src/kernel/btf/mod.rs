//! BTF, the kernel's description of its own types.
//!
//! A BTF file consists of a header, a sequence of types, and strings. Types are identified by their number, counted
//! from 1 in file order; 0 is `void`. A module's BTF is split: its type numbers and string offsets continue where
//! those of the kernel end. The format is described in `include/uapi/linux/btf.h` and `Documentation/bpf/btf.rst` in
//! the kernel's sources.
//!
//! Parsing only records where each type begins. The content of a type is decoded when it is used, and is not trusted
//! to be valid.

#[cfg(test)]
mod agreement;
#[cfg(test)]
pub(crate) mod builder;
mod chain;
mod error;
mod function;
mod members;
#[cfg(test)]
mod tests;
mod types;

pub(crate) use aya_obj::btf::BtfKind as Kind;
pub(crate) use chain::POINTER;
pub(crate) use error::BtfError;
pub(crate) use function::NoPrototype;
pub(crate) use members::Found;
pub(crate) use types::{Member, Parameter, Prototype, Type};

use std::fs;
use std::iter;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

const FOLDER: &str = "/sys/kernel/btf";
const MAGIC: u16 = 0xeb9f;
const VERSION: u8 = 1;
/// Size of the header that every file has, in bytes. Newer files may have a longer one.
const HEADER: usize = 24;
/// Size of the words that every type begins with, in bytes: name, info, and size or type.
const TYPE: usize = 12;

/// The number of a type. 0 is `void`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TypeId(pub(crate) u32);

impl TypeId {
    pub(crate) const VOID: Self = Self(0);
}

/// The types of the kernel, or of a module on top of the kernel.
pub(crate) struct Btf {
    bytes: Vec<u8>,
    strings: Range<usize>,
    /// The offset of each type in `bytes`. Every type ends inside `bytes`.
    types: Vec<u32>,
    /// The number of the first of `types`.
    first_type: u32,
    /// The string offset of the first byte of `strings`.
    first_string: u32,
    base: Option<Arc<Btf>>,
    /// Its functions, sorted by name: an index, built when many are looked up.
    functions: OnceLock<Vec<TypeId>>,
    /// Whether it has the signs of enumerations, looked up once.
    signs: OnceLock<bool>,
}

impl Btf {
    /// The kernel's own types.
    pub(crate) fn kernel() -> Result<Self, BtfError> {
        Self::open("vmlinux", None)
    }

    /// The types of a module, on top of the kernel's.
    pub(crate) fn module(name: &str, base: Arc<Btf>) -> Result<Self, BtfError> {
        Self::open(name, Some(base))
    }

    /// The loaded modules that have BTF.
    pub(crate) fn modules() -> Vec<String> {
        let entries = fs::read_dir(FOLDER).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| name != "vmlinux").collect()
    }

    fn open(name: &str, base: Option<Arc<Btf>>) -> Result<Self, BtfError> {
        let path = format!("{FOLDER}/{name}");
        match fs::read(&path) {
            Ok(bytes) => Self::parse(bytes, base),
            Err(source) => Err(BtfError::Read { path, source }),
        }
    }

    /// Parses a BTF file.
    pub(crate) fn parse(bytes: Vec<u8>, base: Option<Arc<Btf>>) -> Result<Self, BtfError> {
        let header = bytes.first_chunk::<HEADER>();
        let header = header.ok_or(BtfError::Overlong { part: "header", at: 0 })?;
        let magic = u16::from_ne_bytes([header[0], header[1]]);
        if magic != MAGIC {
            return Err(BtfError::Magic { magic });
        }
        if header[2] != VERSION {
            return Err(BtfError::Version { version: header[2] });
        }
        let words = header.as_chunks::<4>().0;
        let header_len = word(words, 1) as usize;
        if header_len < HEADER || header_len > bytes.len() {
            return Err(BtfError::Overlong { part: "header", at: 0 });
        }
        let part = |part, n| {
            let start = header_len.saturating_add(word(words, n) as usize);
            let end = start.saturating_add(word(words, n + 1) as usize);
            let fits = end <= bytes.len() && u32::try_from(end).is_ok();
            if fits { Ok(start..end) } else { Err(BtfError::Overlong { part, at: start }) }
        };
        let (types, strings) = (part("types", 2)?, part("strings", 4)?);
        if bytes[strings.clone()].last().is_some_and(|&last| last != 0) {
            return Err(BtfError::Strings);
        }
        let (first_type, first_string) = match &base {
            Some(base) => (base.end_type(), base.end_string()),
            None => (1, 0),
        };
        let types = find_types(&bytes, types)?;
        let fits = |first: u32, count: usize| {
            u32::try_from(count).is_ok_and(|count| first.checked_add(count).is_some())
        };
        if !fits(first_type, types.len()) || !fits(first_string, strings.len()) {
            return Err(BtfError::TooMuch);
        }
        let (functions, signs) = (OnceLock::new(), OnceLock::new());
        Ok(Self { bytes, strings, types, first_type, first_string, base, functions, signs })
    }

    /// The number after the last type's.
    pub(crate) fn end_type(&self) -> u32 {
        self.first_type + self.types.len() as u32
    }

    fn end_string(&self) -> u32 {
        self.first_string + self.strings.len() as u32
    }

    /// The file, and the files that it continues.
    fn parts(&self) -> impl Iterator<Item = &Self> {
        iter::successors(Some(self), |part| part.base.as_deref())
    }

    /// The type of this number, if there is one.
    pub(crate) fn at(&self, id: TypeId) -> Option<Type<'_>> {
        if id == TypeId::VOID {
            return Some(Type::Void);
        }
        let part = self.parts().find(|part| id.0 >= part.first_type)?;
        let at = *part.types.get((id.0 - part.first_type) as usize)?;
        Type::read(self, part.words(at))
    }

    /// Whether enumerations have their signs. Kernels before 6.0 leave them out, and every kernel has a signed one.
    fn knows_signs(&self) -> bool {
        *self.signs.get_or_init(|| {
            let is_signed = |words| types::kind_flag(word(words, 1));
            self.parts().any(|part| part.own(Kind::Enum).any(|(_, words)| is_signed(words)))
        })
    }

    /// The types of this kind and name: the module's, or the kernel's if the module has none.
    pub(crate) fn named(&self, kind: Kind, name: &str) -> Vec<TypeId> {
        let mut named = self.parts().map(|part| part.own_named(kind, name));
        named.find(|ids| !ids.is_empty()).unwrap_or_default()
    }

    /// Builds the index of functions. Worthwhile if more than one is looked up.
    pub(crate) fn index_functions(&self) {
        self.functions.get_or_init(|| {
            let functions = self.own(Kind::Func);
            let mut functions: Vec<_> =
                functions.map(|(id, words)| (self.name(word(words, 0)), id)).collect();
            functions.sort_unstable();
            functions.into_iter().map(|(_, id)| id).collect()
        });
    }

    fn own_named(&self, kind: Kind, name: &str) -> Vec<TypeId> {
        if kind == Kind::Func
            && let Some(functions) = self.functions.get()
        {
            let name_of = |id: &TypeId| {
                let at = self.types[(id.0 - self.first_type) as usize];
                self.name(word(self.words(at), 0))
            };
            let first = functions.partition_point(|id| name_of(id) < name);
            let same = functions[first..].iter().take_while(|id| name_of(id) == name);
            return same.copied().collect();
        }
        let has_name = |words: &[[u8; 4]]| {
            let rest = self.rest_of_string(word(words, 0))?.strip_prefix(name.as_bytes())?;
            rest.starts_with(&[0]).then_some(())
        };
        self.own(kind).filter(|(_, words)| has_name(words).is_some()).map(|(id, _)| id).collect()
    }

    /// All types of a kind, the module's first.
    pub(crate) fn all(&self, kind: Kind) -> impl Iterator<Item = (TypeId, Type<'_>)> {
        let types = self.parts().flat_map(move |part| part.own(kind));
        types.filter_map(|(id, words)| Some((id, Type::read(self, words)?)))
    }

    /// The types of a kind. For a module, those of the kernel are left out.
    pub(crate) fn own_all(&self, kind: Kind) -> impl Iterator<Item = (TypeId, Type<'_>)> {
        self.own(kind).filter_map(|(id, words)| Some((id, Type::read(self, words)?)))
    }

    fn own(&self, kind: Kind) -> impl Iterator<Item = (TypeId, &[[u8; 4]])> {
        let types = (self.first_type..).zip(&self.types);
        let words = types.map(|(id, &at)| (TypeId(id), self.words(at)));
        words.filter(move |(_, words)| types::kind_of(word(words, 1)) == Ok(kind))
    }

    /// A name. Empty if the offset is out of range or the name is not UTF-8.
    fn name(&self, offset: u32) -> &str {
        let rest = self.rest_of_string(offset).unwrap_or_default();
        let name = rest.split(|&byte| byte == 0).next().unwrap_or_default();
        str::from_utf8(name).unwrap_or_default()
    }

    /// The strings from an offset on.
    fn rest_of_string(&self, offset: u32) -> Option<&[u8]> {
        let part = self.parts().find(|part| offset >= part.first_string)?;
        part.bytes[part.strings.clone()].get((offset - part.first_string) as usize..)
    }

    /// The words of a type and of everything after it.
    fn words(&self, at: u32) -> &[[u8; 4]] {
        self.bytes.get(at as usize..).unwrap_or_default().as_chunks::<4>().0
    }
}

impl std::fmt::Debug for Btf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Btf").field("types", &(self.end_type() - 1)).finish_non_exhaustive()
    }
}

/// The offsets of all types.
fn find_types(bytes: &[u8], part: Range<usize>) -> Result<Vec<u32>, BtfError> {
    // A type of the kernel has 26 bytes on average.
    let mut types = Vec::with_capacity(part.len() / 24);
    let Range { start: mut at, end } = part;
    while at < end {
        let overlong = BtfError::Overlong { part: "type", at };
        let Some(words) = bytes[at..end].first_chunk::<TYPE>() else { return Err(overlong) };
        let info = word(words.as_chunks::<4>().0, 1);
        let kind = types::kind_of(info).map_err(|kind| BtfError::Kind { kind, at })?;
        let len = TYPE + types::rest(kind, info);
        if len > end - at {
            return Err(overlong);
        }
        types.push(at as u32);
        at += len;
    }
    Ok(types)
}

/// A word of a type; 0 if it does not exist.
fn word(words: &[[u8; 4]], n: usize) -> u32 {
    words.get(n).map_or(0, |word| u32::from_ne_bytes(*word))
}
