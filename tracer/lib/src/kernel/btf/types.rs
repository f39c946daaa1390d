//! Decoding types.

use super::{Btf, Kind, TypeId, word};

// A type begins with its name, an info word, and its size or another type. The info word has `kind_flag`, the kind
// (`BTF_KIND_*`), and the number of members or similar.

/// The kind in an info word, or the number of an unknown kind.
pub(super) fn kind_of(info: u32) -> Result<Kind, u32> {
    let number = info >> 24 & 0x1f;
    Kind::try_from(number).ok().filter(|kind| *kind != Kind::Unknown).ok_or(number)
}

/// The flag in an info word, whose meaning depends on the kind: an enumeration with it is signed.
pub(super) fn kind_flag(info: u32) -> bool {
    info >> 31 == 1
}

/// The number of bytes after the three words that every type has.
pub(super) fn rest(kind: Kind, info: u32) -> usize {
    let count = (info & 0xffff) as usize;
    match kind {
        Kind::Int | Kind::Var | Kind::DeclTag => 4,
        Kind::Array => 12,
        Kind::Struct | Kind::Union | Kind::DataSec | Kind::Enum64 => 12 * count,
        Kind::Enum | Kind::FuncProto => 8 * count,
        _ => 0,
    }
}

/// A type. A modifier is `const`, `volatile` or `restrict`. The others, which are variables, sections and tags of
/// declarations, are not decoded.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Type<'b> {
    Void,
    Int(Int<'b>),
    Pointer { to: TypeId },
    Array { of: TypeId, count: u32 },
    Composite(Composite<'b>),
    Enum(Enumerators<'b>),
    Forward { name: &'b str, is_union: bool },
    Typedef { name: &'b str, of: TypeId },
    Modifier { of: TypeId },
    Function { name: &'b str, prototype: TypeId },
    Prototype(Prototype<'b>),
    Float { name: &'b str, size: u32 },
    Tag { name: &'b str, of: TypeId },
    Other,
}

impl<'b> Type<'b> {
    /// Decodes the type at the start of `words`.
    pub(super) fn read(btf: &'b Btf, words: &'b [[u8; 4]]) -> Option<Self> {
        let (info, third) = (word(words, 1), word(words, 2));
        let (of, size) = (TypeId(third), third);
        let name = || btf.name(word(words, 0));
        let kind = kind_of(info).ok()?;
        let rest = words.get(3..3 + rest(kind, info) / 4)?;
        Some(match kind {
            Kind::Int => {
                let about = word(rest, 0);
                Self::Int(Int {
                    name: name(),
                    size,
                    is_signed: about >> 24 & 1 != 0,
                    is_bool: about >> 24 & 4 != 0,
                    bit_offset: about >> 16 & 0xff,
                    bits: about & 0xff,
                })
            }
            Kind::Ptr => Self::Pointer { to: of },
            Kind::Array => Self::Array { of: TypeId(word(rest, 0)), count: word(rest, 2) },
            Kind::Struct | Kind::Union => Self::Composite(Composite {
                name: name(),
                size,
                is_union: kind == Kind::Union,
                has_bit_sizes: kind_flag(info),
                members: rest,
                btf,
            }),
            Kind::Enum | Kind::Enum64 => Self::Enum(Enumerators {
                name: name(),
                size,
                is_signed: kind_flag(info) || !btf.knows_signs() && has_negative(rest),
                is_wide: kind == Kind::Enum64,
                values: rest,
                btf,
            }),
            Kind::Fwd => Self::Forward { name: name(), is_union: kind_flag(info) },
            Kind::Typedef => Self::Typedef { name: name(), of },
            Kind::Const | Kind::Volatile | Kind::Restrict => Self::Modifier { of },
            Kind::Func => Self::Function { name: name(), prototype: of },
            Kind::FuncProto => Self::Prototype(Prototype { returns: of, parameters: rest, btf }),
            Kind::Float => Self::Float { name: name(), size },
            Kind::TypeTag => Self::Tag { name: name(), of },
            Kind::Var | Kind::DataSec | Kind::DeclTag | Kind::Unknown => Self::Other,
        })
    }
}

/// Whether an enumeration has negative values, where BTF has no sign for it. Large values are bits rather than negative.
fn has_negative(values: &[[u8; 4]]) -> bool {
    const LEAST: i32 = -4096;
    let mut values = values.as_chunks::<2>().0.iter().map(|value| word(value, 1).cast_signed());
    values.any(|value| (LEAST..0).contains(&value))
}

/// An integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Int<'b> {
    pub(crate) name: &'b str,
    /// In bytes.
    pub(crate) size: u32,
    pub(crate) is_signed: bool,
    pub(crate) is_bool: bool,
    /// The position and the size of an old-style bit field, in bits.
    pub(crate) bit_offset: u32,
    pub(crate) bits: u32,
}

/// A structure or a union.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Composite<'b> {
    /// Empty if anonymous.
    pub(crate) name: &'b str,
    /// In bytes.
    pub(crate) size: u32,
    pub(crate) is_union: bool,
    /// Whether the members' offsets also contain the sizes of bit fields.
    has_bit_sizes: bool,
    members: &'b [[u8; 4]],
    btf: &'b Btf,
}

/// A member of a structure or a union.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member<'b> {
    /// Empty if anonymous.
    pub(crate) name: &'b str,
    pub(crate) ty: TypeId,
    /// In bits from the start of the structure.
    pub(crate) bit_offset: u32,
    /// In bits, for a bit field; 0 for all others. An old-style bit field is described by its [`Int`].
    pub(crate) bit_size: u32,
}

impl<'b> Composite<'b> {
    pub(crate) fn members(self) -> impl ExactSizeIterator<Item = Member<'b>> {
        self.members.as_chunks::<3>().0.iter().map(move |member| {
            let offset = word(member, 2);
            let (bit_size, bit_offset) =
                if self.has_bit_sizes { (offset >> 24, offset & 0xff_ffff) } else { (0, offset) };
            let (name, ty) = (self.btf.name(word(member, 0)), TypeId(word(member, 1)));
            Member { name, ty, bit_offset, bit_size }
        })
    }
}

/// An enumeration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Enumerators<'b> {
    /// Empty if anonymous.
    pub(crate) name: &'b str,
    /// In bytes.
    pub(crate) size: u32,
    pub(crate) is_signed: bool,
    /// Whether the values have 64 bits.
    pub(crate) is_wide: bool,
    values: &'b [[u8; 4]],
    btf: &'b Btf,
}

impl<'b> Enumerators<'b> {
    /// Names and values, sign-extended to 64 bits.
    pub(crate) fn values(self) -> impl Iterator<Item = (&'b str, u64)> {
        let Self { is_signed, is_wide, values, btf, .. } = self;
        values.chunks_exact(if is_wide { 3 } else { 2 }).map(move |value| {
            let (low, high) = (word(value, 1), word(value, 2));
            let bits = match (is_wide, is_signed) {
                (true, _) => u64::from(high) << 32 | u64::from(low),
                (false, true) => i64::from(low.cast_signed()).cast_unsigned(),
                (false, false) => u64::from(low),
            };
            (btf.name(word(value, 0)), bits)
        })
    }
}

/// The return type and the arguments of a function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Prototype<'b> {
    pub(crate) returns: TypeId,
    parameters: &'b [[u8; 4]],
    btf: &'b Btf,
}

/// An argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parameter<'b> {
    /// Empty if anonymous.
    pub(crate) name: &'b str,
    /// `void` stands for `...`.
    pub(crate) ty: TypeId,
}

impl<'b> Prototype<'b> {
    pub(crate) fn parameters(self) -> impl ExactSizeIterator<Item = Parameter<'b>> {
        self.parameters.as_chunks::<2>().0.iter().map(move |parameter| Parameter {
            name: self.btf.name(word(parameter, 0)),
            ty: TypeId(word(parameter, 1)),
        })
    }
}
