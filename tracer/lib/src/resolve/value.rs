//! Reading the value at the end of a path, by its own type or by the type in the spec.

use super::reach::{Reach, Refusal};
use super::shape::{Enumeration, Shape};
use super::{Reading, ResolveError};
use crate::kernel::btf::{Btf, POINTER, Type, TypeId};
use crate::spec::{At, FieldPath, FieldType};
use probe_tracer_common::fetch::{FetchField, LONGEST, flag};
use std::sync::Arc;

/// The kind of a value, which decides how it can be read.
#[derive(Clone, Debug)]
pub(crate) enum ValueKind {
    /// An integer of `size` bytes.
    Integer { size: u32, is_signed: bool, shape: Shape },
    /// A bit field of `bits` bits, at position `bit`. `size` is that of its type, in bytes.
    BitField { bit: u32, bits: u32, size: u32, is_signed: bool, shape: Shape },
    /// An address of text or of anything else.
    Pointer { is_text: bool, is_user: bool, shape: Shape },
    /// An array of `size` bytes; 0 if its size is unknown.
    Array { size: u32, element: Element },
    /// Anything else, of `size` bytes; 0 if that is unknown. The text says why it cannot be read, and continues a sentence that
    /// starts with its path.
    Other { size: u32, why: String },
}

/// The elements of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    Char,
    /// A character of `sun_path` in `struct sockaddr_un`: the names of abstract sockets begin with a zero byte.
    SocketName,
    Byte,
    /// An integer or an address of `size` bytes: 1, 2, 4 or 8.
    Integer {
        size: u8,
        shape: Shape,
    },
    Other,
}

impl Element {
    /// The shape of an array whose length is a multiple of the element's.
    pub(crate) fn list(self) -> Shape {
        match self {
            Self::Char | Self::SocketName => Shape::Text,
            Self::Integer { size, shape } => Shape::List { size, of: Box::new(shape) },
            Self::Byte | Self::Other => Shape::Bytes,
        }
    }
}

pub(super) const MOST: u16 = LONGEST as u16;

/// The size of a string whose end is unknown: its terminating zero is read, too.
pub(super) const MOST_TEXT: u16 = MOST + 1;

/// How to read a value, and its shape, or why it cannot be read.
type Taken = Result<(FetchField, Shape), Refusal>;

/// Reads a value. `name` is its path, for messages; `at` and `ty_at` are the positions of the path and of the type.
pub(crate) fn take(
    reach: Reach,
    kind: &ValueKind,
    ty: Option<FieldType>,
    name: &str,
    (at, ty_at): (At, At),
) -> Reading {
    let (taken, at) = match ty {
        None => (by_kind(reach, kind), at),
        Some(ty) => (by_type(reach, kind, ty), ty_at),
    };
    taken.map_err(|why| ResolveError::new(at, format!("{name} {why}")))
}

/// Reads the value in a register. It has no members.
pub(super) fn take_register(
    register: u8,
    kind: &ValueKind,
    name: &str,
    path: &FieldPath,
    (ty, ty_at): (Option<FieldType>, At),
) -> Reading {
    no_members(path, name)?;
    take(Reach::register(register), kind, ty, name, (path.at, ty_at))
}

/// Refuses a path to a member of a value without members.
pub(super) fn no_members(path: &FieldPath, name: &str) -> Result<(), ResolveError> {
    match path.steps.first() {
        Some((_, at)) => Err(ResolveError::new(*at, format!("{name} has no members"))),
        None => Ok(()),
    }
}

fn by_kind(mut reach: Reach, kind: &ValueKind) -> Taken {
    match kind {
        ValueKind::Integer { size, is_signed, shape } => {
            if !matches!(size, 1 | 2 | 4 | 8) {
                return Err(format!("has {size} bytes; :bytes[{size}] reads it"));
            }
            Ok((reach.integer(size * 8, *is_signed)?, shape.clone()))
        }
        ValueKind::BitField { bit, bits, size, is_signed, shape } => {
            Ok((reach.bit_field(*bit, *bits, *size, *is_signed)?, shape.clone()))
        }
        ValueKind::Pointer { is_text: true, is_user, .. } => {
            reach.dereference(*is_user)?;
            Ok((reach.string(MOST_TEXT), Shape::Text))
        }
        ValueKind::Pointer { shape, .. } => Ok((reach.integer(POINTER * 8, false)?, shape.clone())),
        ValueKind::Array { element: Element::Other, .. } => {
            Err("is an array; [0] is its first element".to_owned())
        }
        ValueKind::Array { .. } if reach.is_register() => {
            Err("is in a register; :x64 reads all of that".to_owned())
        }
        ValueKind::Array { size, element: Element::Char | Element::SocketName } => {
            Ok((array_of_text(reach, *size, kind, None), Shape::Text))
        }
        ValueKind::Array { size: 0, .. } => {
            Err("has no size that could be read; :bytes[N] reads N bytes".to_owned())
        }
        ValueKind::Array { size, element } => Ok((whole(reach, *size), element.clone().list())),
        ValueKind::Other { why, .. } => Err(why.clone()),
    }
}

/// Reads a value of this size in bytes, or as much of it as possible.
pub(super) fn whole(reach: Reach, size: u32) -> FetchField {
    match u16::try_from(size) {
        Ok(size @ ..=MOST) => reach.bytes(size),
        _ => {
            let mut field = reach.bytes(MOST);
            field.flags |= flag::PARTIAL;
            field
        }
    }
}

/// Reads the string in an array of `size` bytes, which is 0 if unknown. `is_user` overrides where it is.
fn array_of_text(reach: Reach, size: u32, kind: &ValueKind, is_user: Option<bool>) -> FetchField {
    let known = u16::try_from(size).ok().filter(|size| (1..=MOST).contains(size));
    let size = known.unwrap_or(MOST_TEXT);
    let mut field = match is_user {
        Some(is_user) => reach.string_of(size, is_user),
        None => reach.string(size),
    };
    if known.is_some() {
        field.flags |= flag::ARRAY;
    }
    if matches!(kind, ValueKind::Array { element: Element::SocketName, .. }) {
        field.flags |= flag::ABSTRACT;
    }
    field
}

fn by_type(reach: Reach, kind: &ValueKind, ty: FieldType) -> Taken {
    match ty {
        FieldType::Unsigned(bits) => integer(reach, kind, bits, false, Shape::Unsigned),
        FieldType::Signed(bits) => integer(reach, kind, bits, true, Shape::Signed),
        FieldType::Hex(bits) => integer(reach, kind, bits, false, Shape::Hex),
        FieldType::Str => string(reach, kind, false),
        FieldType::Ustr => string(reach, kind, true),
        FieldType::Symbol if is_address(kind) => {
            Ok((reach.integer(POINTER * 8, false)?, Shape::Symbol))
        }
        FieldType::Symbol => Err("is not an address".to_owned()),
        FieldType::Bytes(size) => bytes(reach, kind, size),
    }
}

fn integer(reach: Reach, kind: &ValueKind, bits: u8, is_signed: bool, shape: Shape) -> Taken {
    let bits = u32::from(bits);
    if !matches!(bits, 8 | 16 | 32 | 64) {
        return Err(format!("cannot be read as an integer of {bits} bits: 8, 16, 32 or 64"));
    }
    let field = match kind {
        ValueKind::BitField { bits: narrow, .. } if *narrow > bits => {
            return Err(format!("has {narrow} bits"));
        }
        ValueKind::BitField { bits: narrow, is_signed: true, .. }
            if !is_signed && *narrow < bits && bits < 64 =>
        {
            return Err(format!(
                "is a signed number of {narrow} bits, so it cannot be extended to an unsigned one of {bits} bits: \
                 :s{bits} and :u64 can read it"
            ));
        }
        // A wider type keeps the value, so it extends only the sign of a signed bit field.
        ValueKind::BitField { bit, bits: narrow, size, is_signed: own, .. } => {
            let is_extended = if *narrow < bits { *own } else { is_signed };
            reach.bit_field(*bit, *narrow, *size, is_extended)?
        }
        ValueKind::Integer { size, is_signed: true, .. }
            if !is_signed && *size < bits / 8 && bits < 64 =>
        {
            return Err(format!(
                "is a signed number of {0} bits, so it cannot be extended to an unsigned one of {bits} bits: \
                 :s{bits}, :u{0} and :u64 can read it",
                size * 8
            ));
        }
        // What follows a smaller structure or array is not part of it.
        ValueKind::Other { size: size @ 1.., .. } if *size < bits / 8 => {
            return Err(format!("has {size} bytes, not {}", bits / 8));
        }
        ValueKind::Array { size: size @ 1.., .. } if *size < bits / 8 && !reach.is_register() => {
            return Err(format!("has {size} bytes, not {}", bits / 8));
        }
        // The bytes after a narrower value are not part of it, so the value is extended instead.
        ValueKind::Integer { size, is_signed, .. } if *size < bits / 8 => {
            reach.integer(size * 8, *is_signed)?
        }
        _ => reach.integer(bits, is_signed)?,
    };
    Ok((field, shape))
}

fn string(mut reach: Reach, kind: &ValueKind, is_user: bool) -> Taken {
    let field = match kind {
        ValueKind::Array { size, element: Element::Char | Element::SocketName | Element::Byte }
            if !reach.is_register() =>
        {
            // The same holds for an array in a structure of the process.
            array_of_text(reach, *size, kind, Some(is_user || reach.is_user()))
        }
        _ if is_address(kind) => {
            // `str` is a string in the process, too, if the pointer is known to point there.
            let is_user = is_user || matches!(kind, ValueKind::Pointer { is_user: true, .. });
            reach.dereference(is_user)?;
            reach.string_of(MOST_TEXT, is_user)
        }
        _ => return Err("is neither an address nor an array of characters".to_owned()),
    };
    Ok((field, Shape::Text))
}

fn bytes(mut reach: Reach, kind: &ValueKind, size: u16) -> Taken {
    if !(1..=MOST).contains(&size) {
        return Err(format!("can be read as 1 to {MOST} bytes"));
    }
    match kind {
        ValueKind::BitField { .. } => return Err("is a bit field".to_owned()),
        ValueKind::Pointer { is_user, .. } => reach.dereference(*is_user)?,
        _ if !reach.is_register() => {}
        _ if is_address(kind) => reach.dereference(false)?,
        _ => return Err("is in a register and is not an address".to_owned()),
    }
    Ok((reach.bytes(size), Shape::Bytes))
}

/// Whether a value may be an address. The kernel often uses `unsigned long` for addresses.
fn is_address(kind: &ValueKind) -> bool {
    match kind {
        ValueKind::Integer { size, shape, .. } => {
            *size == POINTER && !matches!(shape, Shape::Result | Shape::Duration)
        }
        kind => matches!(kind, ValueKind::Pointer { .. }),
    }
}

/// The shape of an enumeration.
pub(super) fn enum_shape(btf: &Btf, id: TypeId) -> Shape {
    let Some(Type::Enum(values)) = btf.resolve(id).map(|resolved| resolved.ty) else {
        return Shape::Unsigned;
    };
    let mut names: Vec<_> = values.values().map(|(name, value)| (value, name.to_owned())).collect();
    names.sort_by_key(|(value, _)| *value);
    names.dedup_by_key(|(value, _)| *value);
    Shape::Enum(Arc::new(Enumeration { is_signed: values.is_signed, names }))
}
