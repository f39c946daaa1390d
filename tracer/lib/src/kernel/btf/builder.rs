//! A builder of BTF for tests.

use super::{Btf, Kind, TypeId};
use std::sync::Arc;

/// BTF under construction. Types are numbered in order.
pub(crate) struct Builder {
    types: Vec<u32>,
    strings: Vec<u8>,
    next: u32,
    first_string: u32,
    base: Option<Arc<Btf>>,
}

/// A member: name, type, offset in bits, size in bits.
pub(crate) type Part<'a> = (&'a str, TypeId, u32, u32);

impl Builder {
    pub(crate) fn new() -> Self {
        Self { types: Vec::new(), strings: vec![0], next: 1, first_string: 0, base: None }
    }

    pub(crate) fn on(base: Arc<Btf>) -> Self {
        let (next, first_string) = (base.end_type(), base.end_string());
        Self { types: Vec::new(), strings: vec![0], next, first_string, base: Some(base) }
    }

    /// The id of the next type.
    pub(crate) fn next(&self) -> TypeId {
        TypeId(self.next)
    }

    fn string(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        let at = self.first_string + self.strings.len() as u32;
        self.strings.extend(text.bytes().chain([0]));
        at
    }

    /// A type with `count` members or similar; `rest` is what follows its first three words.
    fn counted(
        &mut self,
        (kind, name, flag): (Kind, &str, bool),
        count: usize,
        third: u32,
        rest: &[u32],
    ) -> TypeId {
        let (name, kind) = (self.string(name), kind as u32);
        self.types.extend([name, u32::from(flag) << 31 | kind << 24 | count as u32, third]);
        self.types.extend(rest);
        self.next += 1;
        TypeId(self.next - 1)
    }

    /// A type whose third word is a size or another type.
    fn plain(&mut self, kind: Kind, name: &str, third: u32) -> TypeId {
        self.counted((kind, name, false), 0, third, &[])
    }

    /// An integer with an encoding: 1 signed, 4 bool.
    pub(crate) fn int(&mut self, name: &str, size: u32, encoding: u32) -> TypeId {
        self.counted((Kind::Int, name, false), 0, size, &[(encoding << 24) | (size * 8)])
    }

    /// An integer that describes an old-style bit field.
    pub(crate) fn bits(&mut self, name: &str, size: u32, bits: u32) -> TypeId {
        self.counted((Kind::Int, name, false), 0, size, &[bits])
    }

    pub(crate) fn pointer(&mut self, to: TypeId) -> TypeId {
        self.plain(Kind::Ptr, "", to.0)
    }

    pub(crate) fn array(&mut self, of: TypeId, count: u32) -> TypeId {
        self.counted((Kind::Array, "", false), 0, 0, &[of.0, 1, count])
    }

    fn composite(&mut self, kind: Kind, name: &str, size: u32, members: &[Part<'_>]) -> TypeId {
        let flag = members.iter().any(|member| member.3 != 0);
        let mut rest = Vec::new();
        for &(name, ty, offset, bits) in members {
            rest.extend([self.string(name), ty.0, bits << 24 | offset]);
        }
        self.counted((kind, name, flag), members.len(), size, &rest)
    }

    pub(crate) fn structure(&mut self, name: &str, size: u32, members: &[Part<'_>]) -> TypeId {
        self.composite(Kind::Struct, name, size, members)
    }

    pub(crate) fn union(&mut self, name: &str, size: u32, members: &[Part<'_>]) -> TypeId {
        self.composite(Kind::Union, name, size, members)
    }

    pub(crate) fn enumeration(
        &mut self,
        name: &str,
        (size, is_signed): (u32, bool),
        values: &[(&str, i64)],
    ) -> TypeId {
        let is_wide = size == 8;
        let mut rest = Vec::new();
        for &(name, value) in values {
            rest.extend([self.string(name), value as u32]);
            rest.extend(is_wide.then_some((value >> 32) as u32));
        }
        let kind = if is_wide { Kind::Enum64 } else { Kind::Enum };
        self.counted((kind, name, is_signed), values.len(), size, &rest)
    }

    pub(crate) fn forward(&mut self, name: &str) -> TypeId {
        self.plain(Kind::Fwd, name, 0)
    }

    pub(crate) fn typedef(&mut self, name: &str, of: TypeId) -> TypeId {
        self.plain(Kind::Typedef, name, of.0)
    }

    pub(crate) fn constant(&mut self, of: TypeId) -> TypeId {
        self.plain(Kind::Const, "", of.0)
    }

    pub(crate) fn tag(&mut self, name: &str, of: TypeId) -> TypeId {
        self.plain(Kind::TypeTag, name, of.0)
    }

    pub(crate) fn prototype(&mut self, returns: TypeId, takes: &[(&str, TypeId)]) -> TypeId {
        let rest: Vec<_> = takes.iter().flat_map(|(name, ty)| [self.string(name), ty.0]).collect();
        self.counted((Kind::FuncProto, "", false), takes.len(), returns.0, &rest)
    }

    /// A function and its prototype.
    pub(crate) fn function(
        &mut self,
        name: &str,
        returns: TypeId,
        takes: &[(&str, TypeId)],
    ) -> TypeId {
        let prototype = self.prototype(returns, takes);
        self.plain(Kind::Func, name, prototype.0)
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let (types, strings) = (self.types.len() as u32 * 4, self.strings.len() as u32);
        let mut bytes = Vec::from(0xeb9f_u16.to_ne_bytes());
        bytes.extend([1, 0]);
        let header = [24, 0, types, types, strings];
        bytes.extend(header.iter().chain(&self.types).flat_map(|word| word.to_ne_bytes()));
        bytes.extend(&self.strings);
        bytes
    }

    pub(crate) fn build(&self) -> Arc<Btf> {
        Arc::new(Btf::parse(self.bytes(), self.base.clone()).expect("it was built"))
    }
}
