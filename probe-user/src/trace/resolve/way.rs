//! The way from an argument to a value, by the types of the kernel.

use super::reach::{Reach, Refusal};
use super::value::{Element, Sort, enum_shape, take};
use super::{ResolveError, suggestion};
use crate::trace::btf::{Btf, Found, Type, TypeId};
use crate::trace::shape::Shape;
use crate::trace::spec::{At, FieldPath, FieldType, PathStep};
use probe_common::fetch::FetchField;

/// A value, and how to get there.
pub(super) struct Way<'b> {
    btf: &'b Btf,
    reach: Reach,
    ty: TypeId,
    /// Of a bit field: its first bit, behind `reach`, and how many.
    bits: Option<(u32, u32)>,
    /// Whether what it points to is the process's memory, as far as it is known without tags.
    points_to_user: bool,
    /// As it was written, up to here.
    text: String,
    at: At,
}

impl<'b> Way<'b> {
    pub(super) fn new(btf: &'b Btf, reach: Reach, ty: TypeId, name: &str, at: At) -> Self {
        Self { btf, reach, ty, bits: None, points_to_user: false, text: name.to_owned(), at }
    }

    /// Has its pointer point into the process's memory.
    pub(super) fn pointing_to_user(mut self, points_to_user: bool) -> Self {
        self.points_to_user = points_to_user;
        self
    }

    /// Goes all of a path's steps, and takes the value there.
    pub(super) fn follow(
        mut self,
        path: &FieldPath,
        ty: Option<FieldType>,
        ty_at: At,
        is_result: bool,
    ) -> Result<(FetchField, Shape), ResolveError> {
        for (step, at) in &path.steps {
            self.step(step, *at)?;
        }
        self.take(ty, ty_at, is_result && path.steps.is_empty())
    }

    /// Goes all of a path's steps. The type of what is there.
    pub(super) fn end(mut self, path: &FieldPath) -> Option<TypeId> {
        path.steps.iter().try_for_each(|(step, at)| self.step(step, *at)).ok()?;
        Some(self.ty)
    }

    /// Takes the value that the way has led to.
    pub(super) fn take(
        self,
        ty: Option<FieldType>,
        ty_at: At,
        is_result: bool,
    ) -> Result<(FetchField, Shape), ResolveError> {
        let mut sort = self.sort();
        if let Sort::Integer { size: 4 | 8, is_signed: true, shape } = &mut sort
            && is_result
            && *shape == Shape::Signed
        {
            *shape = Shape::Result;
        }
        take(self.reach, &sort, ty, &self.text, (self.at, ty_at))
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
        let composite = match self.btf.resolve(self.ty).map(|resolved| resolved.ty) {
            Some(Type::Composite(composite)) => composite,
            Some(Type::Forward { .. }) => {
                return Err(self.says(format!(
                    "is a {}, whose members the kernel's BTF does not have",
                    self.btf.type_name(self.ty)
                )));
            }
            _ => {
                let ty = self.btf.type_name(self.ty);
                return Err(self.says(format!("has no members: it is `{ty}`")));
            }
        };
        let Some(Found { ty, bit_offset, bit_size }) = self.btf.member(self.ty, name) else {
            let near = suggestion(name, self.btf.member_names(self.ty));
            let ty = self.btf.type_name(self.ty);
            return Err(format!("{ty} has no member {name}{near}"));
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

    /// Goes through a pointer, if it is one, for a member.
    fn enter(&mut self) -> Result<(), Refusal> {
        let resolved = self.btf.resolve(self.ty);
        let Some(Type::Pointer { to }) = resolved.map(|resolved| resolved.ty) else {
            return Ok(());
        };
        let target = self.btf.resolve(to);
        if matches!(target.map(|target| target.ty), Some(Type::Void)) {
            return Err(
                self.says("is `void *`: of what it points to, no members are known".to_owned())
            );
        }
        let is_user = self.is_user_pointer(to);
        self.reach.dereference(is_user).map_err(|why| self.says(why))?;
        self.points_to_user = false;
        self.ty = to;
        Ok(())
    }

    fn index(&mut self, index: u32) -> Result<(), Refusal> {
        self.no_bit_field()?;
        let of = match self.btf.resolve(self.ty).map(|resolved| resolved.ty) {
            Some(Type::Array { of, count, .. }) => {
                if count > 0 && index >= count {
                    let last = count - 1;
                    return Err(self.says(format!("has {count} elements, up to [{last}]")));
                }
                of
            }
            Some(Type::Pointer { to }) => {
                let is_user = self.is_user_pointer(to);
                self.reach.dereference(is_user).map_err(|why| self.says(why))?;
                self.points_to_user = false;
                to
            }
            _ => {
                let ty = self.btf.type_name(self.ty);
                return Err(self.says(format!("is no array: it is `{ty}`")));
            }
        };
        let Some(size) = self.btf.size_of(of) else {
            let ty = self.btf.type_name(of);
            return Err(self.says(format!("has elements of no known size: `{ty}`")));
        };
        let bits = (u64::from(size) * u64::from(index)).saturating_mul(8);
        self.reach.skip(bits).map_err(|why| self.says(why))?;
        self.ty = of;
        Ok(())
    }

    fn no_bit_field(&self) -> Result<(), Refusal> {
        match self.bits {
            Some(_) => Err(self.says("has no members: it is a bit field".to_owned())),
            None => Ok(()),
        }
    }

    /// Whether a pointer, by what it points to, points into the process's memory.
    fn is_user_pointer(&self, to: TypeId) -> bool {
        let is_tagged = self.btf.resolve(to).is_some_and(|target| target.is_user);
        is_tagged || self.points_to_user || self.reach.is_user()
    }

    fn says(&self, why: String) -> Refusal {
        format!("{} {why}", self.text)
    }

    /// What the value is.
    fn sort(&self) -> Sort {
        let Some(resolved) = self.btf.resolve(self.ty) else {
            return Sort::Other("has a type that is damaged".to_owned());
        };
        let sort = match resolved.ty {
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
                Sort::Integer { size: int.size, is_signed, shape }
            }
            Type::Enum(values) => Sort::Integer {
                size: values.size,
                is_signed: values.is_signed,
                shape: enum_shape(self.btf, resolved.id),
            },
            Type::Pointer { to } => {
                let target = self.btf.resolve(to).map(|target| target.ty);
                Sort::Pointer {
                    is_text: matches!(target, Some(Type::Int(int)) if int.name == "char"),
                    is_user: self.is_user_pointer(to),
                    shape: match target {
                        Some(Type::Prototype(_)) => Shape::Symbol,
                        _ => Shape::Pointer,
                    },
                }
            }
            Type::Array { of, .. } => Sort::Array {
                size: self.btf.size_of(self.ty).unwrap_or(0),
                element: match self.btf.resolve(of).map(|element| element.ty) {
                    Some(Type::Int(int)) if int.name == "char" => Element::Char,
                    Some(Type::Int(int)) if int.size == 1 && !int.is_bool => Element::Byte,
                    _ => Element::Other,
                },
            },
            Type::Composite(_) => {
                let members = suggestion("", self.btf.member_names(resolved.id));
                let ty = self.btf.type_name(self.ty);
                Sort::Other(format!("is a {ty}, of which one member can be read{members}"))
            }
            _ => Sort::Other(format!("cannot be read: it is `{}`", self.btf.type_name(self.ty))),
        };
        match (self.bits, sort) {
            (Some((bit, bits)), Sort::Integer { size, is_signed, shape }) => {
                Sort::BitField { bit, bits, size, is_signed, shape }
            }
            (_, sort) => sort,
        }
    }
}
