//! Taking a value at the end of a way: as what it is, or as one says.

use super::ResolveError;
use super::reach::{Reach, Refusal};
use crate::trace::btf::{Btf, TypeId};
use crate::trace::shape::{Enumeration, Shape};
use crate::trace::spec::{At, FieldType};
use probe_common::fetch::{FetchField, LONGEST};
use std::sync::Arc;

/// What a value is, as far as it matters to how it is read.
#[derive(Clone, Debug)]
pub(crate) enum Sort {
    /// An integer of so many bytes.
    Integer { size: u32, is_signed: bool, shape: Shape },
    /// An integer of so many bits, and where it begins. `size`: of its type, in bytes.
    BitField { bit: u32, bits: u32, size: u32, is_signed: bool, shape: Shape },
    /// An address, of text or of something else.
    Pointer { is_text: bool, is_user: bool, shape: Shape },
    /// Bytes in a row; 0 of them if nobody knows how many.
    Array { size: u32, element: Element },
    /// Something that has to be said more about, and what: the end of a sentence.
    Other(String),
}

/// What an array has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    Char,
    Byte,
    Other,
}

const POINTER: u32 = crate::trace::btf::POINTER;
const MOST: u16 = LONGEST as u16;

/// Takes a value. `name`: what messages call it; `at`: where that stands, and `ty_at` its type.
pub(crate) fn take(
    reach: Reach,
    sort: &Sort,
    ty: Option<FieldType>,
    name: &str,
    (at, ty_at): (At, At),
) -> Result<(FetchField, Shape), ResolveError> {
    match ty {
        None => by_sort(reach, sort).map_err(|why| error(at, name, &why)),
        Some(ty) => by_type(reach, sort, ty).map_err(|why| error(ty_at, name, &why)),
    }
}

fn error(at: At, name: &str, why: &str) -> ResolveError {
    ResolveError::new(at, format!("{name} {why}"))
}

fn by_sort(mut reach: Reach, sort: &Sort) -> Result<(FetchField, Shape), Refusal> {
    match sort {
        Sort::Integer { size, is_signed, shape } => {
            if !matches!(size, 1 | 2 | 4 | 8) {
                return Err(format!("has {size} bytes; :bytes[{size}] reads it"));
            }
            Ok((reach.integer(size * 8, *is_signed)?, shape.clone()))
        }
        Sort::BitField { bit, bits, size, is_signed, shape } => {
            Ok((reach.bit_field(*bit, *bits, *size, *is_signed)?, shape.clone()))
        }
        Sort::Pointer { is_text: true, is_user, .. } => {
            reach.dereference(*is_user)?;
            Ok((reach.string(MOST), Shape::Text))
        }
        Sort::Pointer { shape, .. } => Ok((reach.integer(POINTER * 8, false)?, shape.clone())),
        Sort::Array { element: Element::Other, .. } => {
            Err("is an array; [0] is its first element".to_owned())
        }
        Sort::Array { .. } if reach.is_register() => {
            Err("is in a register; :x64 reads all of that".to_owned())
        }
        Sort::Array { size, element: Element::Char } => {
            let size = u16::try_from(*size).unwrap_or(MOST).min(MOST);
            Ok((reach.string(if size == 0 { MOST } else { size }), Shape::Text))
        }
        Sort::Array { size, .. } => match u16::try_from(*size) {
            Ok(size @ 1..=MOST) => Ok((reach.bytes(size), Shape::Bytes)),
            _ => Err("has no size that could be read; :bytes[N] reads N bytes".to_owned()),
        },
        Sort::Other(why) => Err(why.clone()),
    }
}

fn by_type(reach: Reach, sort: &Sort, ty: FieldType) -> Result<(FetchField, Shape), Refusal> {
    match ty {
        FieldType::Unsigned(bits) => integer(reach, sort, bits, false, Shape::Unsigned),
        FieldType::Signed(bits) => integer(reach, sort, bits, true, Shape::Signed),
        FieldType::Hex(bits) => integer(reach, sort, bits, false, Shape::Hex),
        FieldType::Str => string(reach, sort, false),
        FieldType::Ustr => string(reach, sort, true),
        FieldType::Symbol if is_address(sort) => {
            Ok((reach.integer(POINTER * 8, false)?, Shape::Symbol))
        }
        FieldType::Symbol => Err("is no address".to_owned()),
        FieldType::Bytes(size) => bytes(reach, sort, size),
    }
}

fn integer(
    reach: Reach,
    sort: &Sort,
    bits: u8,
    is_signed: bool,
    shape: Shape,
) -> Result<(FetchField, Shape), Refusal> {
    let bits = u32::from(bits);
    if !matches!(bits, 8 | 16 | 32 | 64) {
        return Err(format!("cannot be read as an integer of {bits} bits: 8, 16, 32 or 64"));
    }
    let field = match sort {
        Sort::BitField { bits: narrow, .. } if *narrow > bits => {
            return Err(format!("has {narrow} bits"));
        }
        Sort::BitField { bit, bits, size, .. } => reach.bit_field(*bit, *bits, *size, is_signed)?,
        // What is behind it is none of it: it keeps its value.
        Sort::Integer { size, is_signed, .. } if *size < bits / 8 => {
            reach.integer(size * 8, *is_signed)?
        }
        _ => reach.integer(bits, is_signed)?,
    };
    Ok((field, shape))
}

fn string(mut reach: Reach, sort: &Sort, is_user: bool) -> Result<(FetchField, Shape), Refusal> {
    let size = match sort {
        Sort::Array { size, element: Element::Char | Element::Byte } if !reach.is_register() => {
            u16::try_from(*size).ok().filter(|size| (1..=MOST).contains(size)).unwrap_or(MOST)
        }
        _ if is_address(sort) => {
            reach.dereference(is_user)?;
            MOST
        }
        _ => return Err("is neither an address nor an array of characters".to_owned()),
    };
    Ok((reach.string_of(size, is_user), Shape::Text))
}

fn bytes(mut reach: Reach, sort: &Sort, size: u16) -> Result<(FetchField, Shape), Refusal> {
    if !(1..=MOST).contains(&size) {
        return Err(format!("can be read as 1 to {MOST} bytes"));
    }
    match sort {
        Sort::BitField { .. } => return Err("is a bit field".to_owned()),
        Sort::Pointer { is_user, .. } => reach.dereference(*is_user)?,
        _ if !reach.is_register() => {}
        _ if is_address(sort) => reach.dereference(false)?,
        _ => return Err("is in a register, and no address".to_owned()),
    }
    Ok((reach.bytes(size), Shape::Bytes))
}

/// Whether a value may be taken for an address: `unsigned long` is often used for one.
fn is_address(sort: &Sort) -> bool {
    matches!(sort, Sort::Pointer { .. } | Sort::Integer { size: POINTER, .. })
}

/// The names of an enumeration.
pub(super) fn enumeration(btf: &Btf, id: TypeId) -> Option<Enumeration> {
    let crate::trace::btf::Type::Enum(values) = btf.resolve(id)?.ty else { return None };
    let mut names: Vec<_> = values.values().map(|(name, value)| (value, name.to_owned())).collect();
    names.sort_by_key(|(value, _)| *value);
    names.dedup_by_key(|(value, _)| *value);
    Some(Enumeration { is_signed: values.is_signed, names })
}

/// An enumeration's shape.
pub(super) fn enum_shape(btf: &Btf, id: TypeId) -> Shape {
    enumeration(btf, id).map_or(Shape::Unsigned, |names| Shape::Enum(Arc::new(names)))
}
