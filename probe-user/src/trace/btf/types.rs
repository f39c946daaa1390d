//! What a type says.

use super::{Btf, TypeId, word};

/// A kind of types (`BTF_KIND_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Int = 1,
    Pointer,
    Array,
    Struct,
    Union,
    Enum,
    Forward,
    Typedef,
    Volatile,
    Const,
    Restrict,
    Function,
    Prototype,
    Variable,
    Section,
    Float,
    DeclTag,
    TypeTag,
    Enum64,
}

/// The bits of the info word: `kind_flag`, kind, and how many members or the like there are.
pub(super) fn kind_number(info: u32) -> u32 {
    info >> 24 & 0x1f
}

fn kind_flag(info: u32) -> bool {
    info >> 31 == 1
}

fn count(info: u32) -> usize {
    (info & 0xffff) as usize
}

impl Kind {
    const ALL: [Self; 19] = [
        Self::Int,
        Self::Pointer,
        Self::Array,
        Self::Struct,
        Self::Union,
        Self::Enum,
        Self::Forward,
        Self::Typedef,
        Self::Volatile,
        Self::Const,
        Self::Restrict,
        Self::Function,
        Self::Prototype,
        Self::Variable,
        Self::Section,
        Self::Float,
        Self::DeclTag,
        Self::TypeTag,
        Self::Enum64,
    ];

    /// The kind that an info word tells.
    pub(super) fn of(info: u32) -> Option<Self> {
        Self::ALL.get(kind_number(info).checked_sub(1)? as usize).copied()
    }

    /// How many bytes come after the three words that every type has.
    pub(super) fn rest(self, info: u32) -> usize {
        match self {
            Self::Int | Self::Variable | Self::DeclTag => 4,
            Self::Array => 12,
            Self::Struct | Self::Union | Self::Section | Self::Enum64 => 12 * count(info),
            Self::Enum | Self::Prototype => 8 * count(info),
            _ => 0,
        }
    }
}

/// A type.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "tests compare all of it with what another reader finds")
)]
pub(crate) enum Type<'b> {
    Void,
    Int(Int<'b>),
    Pointer { to: TypeId },
    Array { of: TypeId, count: u32 },
    Composite(Composite<'b>),
    Enum(Enumerators<'b>),
    Forward { name: &'b str, is_union: bool },
    Typedef { name: &'b str, of: TypeId },
    Volatile { of: TypeId },
    Const { of: TypeId },
    Restrict { of: TypeId },
    Function { name: &'b str, prototype: TypeId },
    Prototype(Prototype<'b>),
    Variable { name: &'b str, of: TypeId },
    Section { name: &'b str, size: u32 },
    Float { name: &'b str, size: u32 },
    DeclTag { name: &'b str, of: TypeId, component: i32 },
    Tag { name: &'b str, of: TypeId },
}

impl<'b> Type<'b> {
    /// Reads a type that `words` begin with.
    pub(super) fn read(btf: &'b Btf, words: &'b [[u8; 4]]) -> Option<Self> {
        let (info, third) = (word(words, 1), word(words, 2));
        let (of, size) = (TypeId(third), third);
        let name = || btf.name(word(words, 0));
        let kind = Kind::of(info)?;
        let rest = words.get(3..3 + kind.rest(info) / 4)?;
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
            Kind::Pointer => Self::Pointer { to: of },
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
                is_signed: kind_flag(info),
                is_wide: kind == Kind::Enum64,
                values: rest,
                btf,
            }),
            Kind::Forward => Self::Forward { name: name(), is_union: kind_flag(info) },
            Kind::Typedef => Self::Typedef { name: name(), of },
            Kind::Volatile => Self::Volatile { of },
            Kind::Const => Self::Const { of },
            Kind::Restrict => Self::Restrict { of },
            Kind::Function => Self::Function { name: name(), prototype: of },
            Kind::Prototype => Self::Prototype(Prototype { returns: of, parameters: rest, btf }),
            Kind::Variable => Self::Variable { name: name(), of },
            Kind::Section => Self::Section { name: name(), size },
            Kind::Float => Self::Float { name: name(), size },
            Kind::DeclTag => {
                Self::DeclTag { name: name(), of, component: word(rest, 0).cast_signed() }
            }
            Kind::TypeTag => Self::Tag { name: name(), of },
        })
    }
}

/// An integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Int<'b> {
    pub(crate) name: &'b str,
    /// In bytes.
    pub(crate) size: u32,
    pub(crate) is_signed: bool,
    pub(crate) is_bool: bool,
    /// Where the bits of an old bit field begin, and how many they are.
    pub(crate) bit_offset: u32,
    pub(crate) bits: u32,
}

/// A structure or a union.
#[derive(Clone, Copy)]
pub(crate) struct Composite<'b> {
    /// Empty if it has none.
    pub(crate) name: &'b str,
    /// In bytes.
    pub(crate) size: u32,
    pub(crate) is_union: bool,
    /// Whether members' offsets also have the sizes of bit fields.
    has_bit_sizes: bool,
    members: &'b [[u8; 4]],
    btf: &'b Btf,
}

/// A member of a structure or a union.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member<'b> {
    /// Empty if it has none.
    pub(crate) name: &'b str,
    pub(crate) ty: TypeId,
    /// From the start of the structure.
    pub(crate) bit_offset: u32,
    /// Of a bit field; 0 for all others. Old bit fields are told by their [`Int`].
    pub(crate) bit_size: u32,
}

impl<'b> Composite<'b> {
    pub(crate) fn members(self) -> impl ExactSizeIterator<Item = Member<'b>> {
        self.members.as_chunks::<3>().0.iter().map(move |member| {
            let place = word(member, 2);
            let (bit_size, bit_offset) =
                if self.has_bit_sizes { (place >> 24, place & 0xff_ffff) } else { (0, place) };
            let (name, ty) = (self.btf.name(word(member, 0)), TypeId(word(member, 1)));
            Member { name, ty, bit_offset, bit_size }
        })
    }
}

/// An enumeration.
#[derive(Clone, Copy)]
pub(crate) struct Enumerators<'b> {
    /// Empty if it has none.
    pub(crate) name: &'b str,
    /// In bytes.
    pub(crate) size: u32,
    pub(crate) is_signed: bool,
    /// Whether its values have 64 bits.
    pub(crate) is_wide: bool,
    values: &'b [[u8; 4]],
    btf: &'b Btf,
}

impl<'b> Enumerators<'b> {
    /// Names and values, signs spread to 64 bits.
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

/// What a function takes and returns.
#[derive(Clone, Copy)]
pub(crate) struct Prototype<'b> {
    pub(crate) returns: TypeId,
    parameters: &'b [[u8; 4]],
    btf: &'b Btf,
}

/// An argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parameter<'b> {
    /// Empty if it has none.
    pub(crate) name: &'b str,
    /// `void` for `...`.
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

impl std::fmt::Debug for Composite<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Composite").field("name", &self.name).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Enumerators<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Enumerators").field("name", &self.name).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Prototype<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.parameters()).finish()
    }
}
