//! Following a path from an argument to a value by the kernel's types.

use super::reach::{Reach, Refusal};
use super::shape::Shape;
use super::value::{Element, ValueKind, enum_shape, take};
use super::{Reading, ResolveError, suggestion};
use crate::kernel::btf::{Btf, Found, POINTER, Type, TypeId};
use crate::spec::{At, FieldPath, FieldType, PathStep};

/// A value on a path, and how to reach it.
pub(super) struct Access<'b> {
    btf: &'b Btf,
    reach: Reach,
    ty: TypeId,
    /// For a bit field: its first bit, relative to `reach`, and its size in bits.
    bits: Option<(u32, u32)>,
    /// Whether the value points to user memory, as far as that is known without BTF tags.
    points_to_user: bool,
    /// The path so far, for error messages.
    text: String,
    at: At,
}

impl<'b> Access<'b> {
    /// A value in a register.
    pub(super) fn new(
        btf: &'b Btf,
        register: u8,
        (ty, points_to_user): (TypeId, bool),
        name: &str,
        at: At,
    ) -> Self {
        let reach = Reach::register(register);
        Self { btf, reach, ty, bits: None, points_to_user, text: name.to_owned(), at }
    }

    /// Follows all steps of a path and reads the value at its end.
    pub(super) fn follow(
        mut self,
        path: &FieldPath,
        ty: Option<FieldType>,
        ty_at: At,
        is_result: bool,
    ) -> Reading {
        for (step, at) in &path.steps {
            self.step(step, *at)?;
        }
        self.take(ty, ty_at, is_result && path.steps.is_empty())
    }

    /// Follows all steps of a path. Returns the type at its end.
    pub(super) fn end(mut self, path: &FieldPath) -> Option<TypeId> {
        path.steps.iter().try_for_each(|(step, at)| self.step(step, *at)).ok()?;
        Some(self.ty)
    }

    /// Reads the value that the steps so far lead to.
    pub(super) fn take(self, ty: Option<FieldType>, ty_at: At, is_result: bool) -> Reading {
        let mut kind = self.kind();
        match &mut kind {
            ValueKind::Integer { size: 4 | 8, is_signed: true, shape }
                if is_result && *shape == Shape::Signed =>
            {
                *shape = Shape::Result;
            }
            ValueKind::Pointer { is_text: false, shape, .. }
                if is_result && *shape == Shape::Pointer =>
            {
                *shape = Shape::PointerOrError;
            }
            _ => {}
        }
        take(self.reach, &kind, ty, &self.text, (self.at, ty_at))
    }

    fn step(&mut self, step: &PathStep, at: At) -> Result<(), ResolveError> {
        let went = match step {
            PathStep::Member(name) => self.member(name),
            PathStep::Index(index) => self.index(*index),
        };
        went.map_err(|why| ResolveError::new(at, why))?;
        match step {
            PathStep::Member(name) => self.text.push_str(&format!(".{name}")),
            PathStep::Index(index) => self.text.push_str(&format!("[{index}]")),
        }
        self.at = at;
        Ok(())
    }

    fn member(&mut self, name: &str) -> Result<(), Refusal> {
        self.no_bit_field()?;
        self.enter()?;
        let own = self.btf.type_name(self.ty);
        let composite = match self.resolved() {
            Some(Type::Composite(composite)) => composite,
            Some(Type::Forward { .. }) => {
                let what = format!("is a {own}, whose members the kernel's BTF does not have");
                return Err(self.says(what));
            }
            _ => return Err(self.says(format!("has no members: it is `{own}`"))),
        };
        let Some(Found { ty, bit_offset, bit_size }) = self.btf.member(self.ty, name) else {
            let near = suggestion(name, self.btf.member_names(self.ty));
            return Err(format!("{own} has no member {name}{near}"));
        };
        if bit_offset >= u64::from(composite.size) * 8 && bit_size > 0 {
            return Err(self.says("has a member outside of it".to_owned()));
        }
        let bit = self.reach.skip(bit_offset).map_err(|why| self.says(why))?;
        self.ty = ty;
        self.bits = (bit_size > 0).then_some((bit, bit_size));
        if bit != 0 && bit_size == 0 {
            return Err(format!("{name} begins in the middle of a byte"));
        }
        Ok(())
    }

    /// Dereferences the value, if it is a pointer, before a member access.
    fn enter(&mut self) -> Result<(), Refusal> {
        let Some(Type::Pointer { to }) = self.resolved() else { return Ok(()) };
        if matches!(self.btf.resolve(to).map(|target| target.ty), Some(Type::Void)) {
            return Err(self.says("is `void *`, so its target has no known members".to_owned()));
        }
        self.dereference(to)
    }

    /// Follows the value, a pointer to this type.
    fn dereference(&mut self, to: TypeId) -> Result<(), Refusal> {
        if self.btf.resolve(to).is_some_and(|target| target.is_per_cpu) {
            let what =
                "is not an address: each CPU has a value of its own there, and none can be read";
            return Err(self.says(what.to_owned()));
        }
        let is_user = self.is_user_pointer(to);
        self.reach.dereference(is_user).map_err(|why| self.says(why))?;
        self.points_to_user = false;
        self.ty = to;
        Ok(())
    }

    fn index(&mut self, index: u32) -> Result<(), Refusal> {
        self.no_bit_field()?;
        match self.resolved() {
            Some(Type::Array { count, .. }) if count > 0 && index >= count => {
                let last = count - 1;
                return Err(self.says(format!("has {count} elements, up to [{last}]")));
            }
            Some(Type::Array { of, .. }) => self.ty = of,
            Some(Type::Pointer { to }) => self.dereference(to)?,
            _ => {
                let ty = self.btf.type_name(self.ty);
                return Err(self.says(format!("is not an array: it is `{ty}`")));
            }
        }
        let Some(size) = self.btf.size_of(self.ty) else {
            let ty = self.btf.type_name(self.ty);
            return Err(self.says(format!("has elements of no known size: `{ty}`")));
        };
        let bits = (u64::from(size) * u64::from(index)).saturating_mul(8);
        self.reach.skip(bits).map(drop).map_err(|why| self.says(why))
    }

    fn no_bit_field(&self) -> Result<(), Refusal> {
        match self.bits {
            Some(_) => Err(self.says("has no members: it is a bit field".to_owned())),
            None => Ok(()),
        }
    }

    /// Whether a pointer to this type points to user memory.
    fn is_user_pointer(&self, to: TypeId) -> bool {
        let is_tagged = self.btf.resolve(to).is_some_and(|target| target.is_user);
        is_tagged || self.points_to_user || self.reach.is_user()
    }

    /// The value's type without typedefs and qualifiers.
    fn resolved(&self) -> Option<Type<'b>> {
        Some(self.btf.resolve(self.ty)?.ty)
    }

    /// An element of this type, of an array that is neither text nor bytes.
    fn element(&self, of: TypeId) -> Element {
        if matches!(self.btf.resolve(of).map(|element| element.ty), Some(Type::Array { .. })) {
            return Element::Other;
        }
        let element = Self { ty: of, bits: None, text: String::new(), ..*self };
        let (size, shape) = match element.kind() {
            ValueKind::Integer { size: size @ (1 | 2 | 4 | 8), shape, .. } => (size, shape),
            ValueKind::Pointer { shape, .. } => (POINTER, shape),
            _ => return Element::Other,
        };
        Element::Integer { size: size as u8, shape }
    }

    fn says(&self, why: String) -> Refusal {
        format!("{} {why}", self.text)
    }

    /// The kind of the value.
    fn kind(&self) -> ValueKind {
        let Some(resolved) = self.btf.resolve(self.ty) else {
            return ValueKind::Other { size: 0, why: "has an invalid type".to_owned() };
        };
        let kind = match resolved.ty {
            Type::Int(int) => {
                let is_signed = int.is_signed;
                let shape = if int.is_bool {
                    Shape::Bool
                } else if int.name == "char" {
                    Shape::Char
                } else if is_signed {
                    Shape::Signed
                } else {
                    Shape::Unsigned
                };
                ValueKind::Integer { size: int.size, is_signed, shape }
            }
            Type::Enum(values) => ValueKind::Integer {
                size: values.size,
                is_signed: values.is_signed,
                shape: enum_shape(self.btf, resolved.id),
            },
            Type::Pointer { to } => {
                let target = self.btf.resolve(to).map(|target| target.ty);
                ValueKind::Pointer {
                    is_text: matches!(target, Some(Type::Int(int)) if int.name == "char"),
                    is_user: self.is_user_pointer(to),
                    shape: match target {
                        Some(Type::Prototype(_)) => Shape::Symbol,
                        _ => Shape::Pointer,
                    },
                }
            }
            Type::Array { of, .. } => ValueKind::Array {
                size: self.btf.size_of(self.ty).unwrap_or(0),
                element: match self.btf.resolve(of).map(|element| element.ty) {
                    Some(Type::Int(int)) if int.name == "char" => {
                        let is_name = self.text.ends_with(".sun_path");
                        if is_name { Element::SocketName } else { Element::Char }
                    }
                    Some(Type::Int(int)) if int.size == 1 && !int.is_bool => Element::Byte,
                    _ => self.element(of),
                },
            },
            Type::Composite(_) => {
                let members = suggestion("", self.btf.member_names(resolved.id));
                let ty = self.btf.type_name(self.ty);
                let size = self.btf.size_of(self.ty).unwrap_or(0);
                let why = format!("is a {ty}: only its members can be read{members}");
                ValueKind::Other { size, why }
            }
            _ => {
                let why = format!("cannot be read: it is `{}`", self.btf.type_name(self.ty));
                ValueKind::Other { size: 0, why }
            }
        };
        match (self.bits, kind) {
            (Some((bit, bits)), ValueKind::Integer { size, is_signed, shape }) => {
                ValueKind::BitField { bit, bits, size, is_signed, shape }
            }
            (_, kind) => kind,
        }
    }
}
