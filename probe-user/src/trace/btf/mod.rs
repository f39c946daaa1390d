//! BTF: the types of the kernel, as it describes them itself.
//!
//! A file of BTF is a header, types one after another, and strings. Types are known by their number,
//! from 1 on in the order of the file; 0 is `void`. That of a module is split: its numbers, and the
//! offsets of its strings, go on where those of the kernel end. The format is in
//! `include/uapi/linux/btf.h` and `Documentation/bpf/btf.rst` of the kernel's sources.
//!
//! Reading it notes where each type begins, and nothing else. What a type says is read when it is
//! looked at, and may be anything at all.

#[cfg(test)]
mod agreement;
#[cfg(test)]
pub(crate) mod builder;
mod chain;
mod enumerator;
mod error;
mod function;
mod index;
mod members;
#[cfg(test)]
mod tests;
mod types;

pub(crate) use chain::POINTER;
pub(crate) use error::BtfError;
pub(crate) use function::NoPrototype;
pub(crate) use members::Found;
pub(crate) use types::{Kind, Member, Parameter, Prototype, Type};

use index::Index;
use std::fs;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

const FOLDER: &str = "/sys/kernel/btf";
const MAGIC: u16 = 0xeb9f;
const VERSION: u8 = 1;
/// The header that all files have; newer ones may have a longer one.
const HEADER: usize = 24;
/// What every type begins with: name, info, and size or type.
const TYPE: usize = 12;

/// The number of a type. 0 is `void`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TypeId(pub(crate) u32);

impl TypeId {
    pub(crate) const VOID: Self = Self(0);
}

/// The types of the kernel, or of a module and the kernel.
pub(crate) struct Btf {
    bytes: Vec<u8>,
    strings: Range<usize>,
    /// Where each type begins, in `bytes`. All of them end inside.
    types: Vec<u32>,
    /// The number of the first of `types`.
    first_type: u32,
    /// The offset that `strings` begins with.
    first_string: u32,
    base: Option<Arc<Btf>>,
    /// Its functions, once many are looked for.
    index: OnceLock<Index>,
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

    /// The modules that are loaded and tell their types.
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

    /// Finds all types in a file of BTF.
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
        let index = OnceLock::new();
        Ok(Self { bytes, strings, types, first_type, first_string, base, index })
    }

    /// The number that comes after the last type's.
    pub(crate) fn end_type(&self) -> u32 {
        self.first_type + self.types.len() as u32
    }

    fn end_string(&self) -> u32 {
        self.first_string + self.strings.len() as u32
    }

    /// What a type is, if there is one of this number.
    pub(crate) fn at(&self, id: TypeId) -> Option<Type<'_>> {
        if id == TypeId::VOID {
            return Some(Type::Void);
        }
        let mut part = self;
        while id.0 < part.first_type {
            part = part.base.as_deref()?;
        }
        let at = *part.types.get((id.0 - part.first_type) as usize)?;
        Type::read(self, part.words(at))
    }

    /// The types of a kind that have a name: those of the module, or if it has none, the kernel's.
    pub(crate) fn named(&self, kind: Kind, name: &str) -> Vec<TypeId> {
        let mut part = self;
        loop {
            let ids: Vec<_> = part.own_named(kind, name.as_bytes()).collect();
            match part.base.as_deref() {
                Some(base) if ids.is_empty() => part = base,
                _ => return ids,
            }
        }
    }

    /// Notes where its functions are: worth while from the second on that is looked for.
    pub(crate) fn index_functions(&self) {
        self.index.get_or_init(|| Index::new(self));
    }

    fn own_named<'b>(
        &'b self,
        kind: Kind,
        name: &'b [u8],
    ) -> Box<dyn Iterator<Item = TypeId> + 'b> {
        let is_it = move |words: &[[u8; 4]]| {
            let rest = self.rest_of_string(word(words, 0)).and_then(|rest| rest.strip_prefix(name));
            rest.is_some_and(|rest| rest.first() == Some(&0))
        };
        match self.index.get().filter(|_| kind == Kind::Function) {
            Some(index) => Box::new(index.candidates(name).filter(move |id| {
                let at = self.types.get((id.0 - self.first_type) as usize);
                at.is_some_and(|&at| is_it(self.words(at)))
            })),
            None => {
                Box::new(self.own(kind).filter_map(move |(id, words)| is_it(words).then_some(id)))
            }
        }
    }

    /// All types of a kind, the module's first.
    pub(crate) fn all(&self, kind: Kind) -> impl Iterator<Item = (TypeId, Type<'_>)> {
        let parts = std::iter::successors(Some(self), |part| part.base.as_deref());
        let types = parts.flat_map(move |part| part.own(kind));
        types.filter_map(|(id, words)| Some((id, Type::read(self, words)?)))
    }

    /// The types of a kind, without those of the kernel if this is a module's.
    pub(crate) fn own_all(&self, kind: Kind) -> impl Iterator<Item = (TypeId, Type<'_>)> {
        self.own(kind).filter_map(|(id, words)| Some((id, Type::read(self, words)?)))
    }

    fn own(&self, kind: Kind) -> impl Iterator<Item = (TypeId, &[[u8; 4]])> {
        let types = (self.first_type..).zip(&self.types);
        let words = types.map(|(id, &at)| (TypeId(id), self.words(at)));
        words.filter(move |(_, words)| Kind::of(word(words, 1)) == Some(kind))
    }

    /// A name. What is no name, or no UTF-8, is empty.
    fn name(&self, offset: u32) -> &str {
        let rest = self.rest_of_string(offset).unwrap_or_default();
        let name = rest.split(|&byte| byte == 0).next().unwrap_or_default();
        str::from_utf8(name).unwrap_or_default()
    }

    /// The strings, from an offset on.
    fn rest_of_string(&self, offset: u32) -> Option<&[u8]> {
        let mut part = self;
        while offset < part.first_string {
            part = part.base.as_deref()?;
        }
        part.bytes[part.strings.clone()].get((offset - part.first_string) as usize..)
    }

    /// A type, and all that follows it.
    fn words(&self, at: u32) -> &[[u8; 4]] {
        self.bytes.get(at as usize..).unwrap_or_default().as_chunks::<4>().0
    }
}

impl std::fmt::Debug for Btf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Btf").field("types", &(self.end_type() - 1)).finish_non_exhaustive()
    }
}

/// Where types begin.
fn find_types(bytes: &[u8], part: Range<usize>) -> Result<Vec<u32>, BtfError> {
    // On average, a type of the kernel has 26 bytes.
    let mut types = Vec::with_capacity(part.len() / 24);
    let Range { start: mut at, end } = part;
    while at < end {
        let overlong = BtfError::Overlong { part: "type", at };
        let Some(words) = bytes[at..end].first_chunk::<TYPE>() else { return Err(overlong) };
        let info = word(words.as_chunks::<4>().0, 1);
        let Some(kind) = Kind::of(info) else {
            return Err(BtfError::Kind { kind: types::kind_number(info), at });
        };
        let len = TYPE + kind.rest(info);
        if len > end - at {
            return Err(overlong);
        }
        types.push(at as u32);
        at += len;
    }
    Ok(types)
}

/// A word of a type: 0 where there is none.
fn word(words: &[[u8; 4]], n: usize) -> u32 {
    words.get(n).map_or(0, |word| u32::from_ne_bytes(*word))
}
