//! The arguments of a function or a raw tracepoint, and their locations.

use super::access::Access;
use super::shape::Shape;
use super::user_memory::points_to_user;
use super::{Reading, ResolveError};
use crate::kernel::btf::{self, Btf, Prototype, Type, TypeId};
use crate::spec::{At, FieldBase, FieldPath, FieldType};
use probe_perf::nearest::{nearest, suggestion};
use probe_tracer_common::fetch::{ARGUMENTS, FetchField, TRAMPOLINE_WORDS};

/// Size of a register in bytes.
const REGISTER: u32 = 8;

/// The most arguments that a raw tracepoint can have (`MAX_BPF_FUNC_ARGS`).
const RAW_ARGS: usize = 12;

/// An argument.
#[derive(Clone, Debug)]
pub(super) struct Argument {
    /// `argN` if the argument has no name.
    pub(super) name: String,
    pub(super) ty: TypeId,
    /// The number by which programs read the argument, or why they cannot.
    pub(super) location: Result<u8, String>,
    pub(super) points_to_user: bool,
}

/// Whether a function that returns this type writes the result to memory that its caller provides: structures that do not fit
/// into two registers.
pub(super) fn is_returned_in_memory(btf: &Btf, returns: TypeId) -> bool {
    let is_composite = btf.resolve(returns).is_some_and(|it| matches!(it.ty, Type::Composite(_)));
    is_composite && btf.size_of(returns).is_none_or(|size| size > 2 * REGISTER)
}

/// The arguments of a function, which are passed in registers.
pub(super) fn of_function(btf: &Btf, function: &str, prototype: Prototype<'_>) -> Vec<Argument> {
    // On x86-64, the address of a result in memory is passed before the arguments; on arm64, in a register of its own.
    let is_shifted = cfg!(target_arch = "x86_64") && is_returned_in_memory(btf, prototype.returns);
    let first = usize::from(is_shifted);
    let mut shifted_by: Option<String> = None;
    let mut arguments = Vec::new();
    for (n, parameter) in prototype.parameters().enumerate() {
        if matches!(btf.at(parameter.ty), Some(Type::Void)) {
            break; // "..."
        }
        let name = name_of(parameter.name, n);
        let fits = matches!(btf.size_of(parameter.ty), Some(1..=REGISTER));
        let location = match &shifted_by {
            _ if first + n >= ARGUMENTS => Err(format!(
                "is argument {} of {function}: only the first {} are in registers",
                n + 1,
                ARGUMENTS - first
            )),
            Some(wide) => Err(format!(
                "follows {wide}, which is passed by value without a register of its own, so its location is unknown"
            )),
            None if fits => Ok((first + n) as u8),
            None => Err(format!(
                "is passed by value, and has no register of its own: it is `{}`",
                btf.type_name(parameter.ty)
            )),
        };
        if !fits {
            shifted_by.get_or_insert_with(|| name.clone());
        }
        let points_to_user = points_to_user(btf, function, parameter.name, parameter.ty);
        arguments.push(Argument { name, ty: parameter.ty, location, points_to_user });
    }
    arguments
}

/// The arguments of a function that a trampoline is for, which are words in its program's context: as many for each
/// argument as it needs (`btf_ctx_access` in the kernel). The kernel refuses the trampoline if it cannot provide them.
pub(super) fn of_trampoline(btf: &Btf, function: &str, prototype: Prototype<'_>) -> Vec<Argument> {
    let mut words = 0;
    let mut arguments = of_function(btf, function, prototype);
    for argument in &mut arguments {
        let size = btf.size_of(argument.ty).unwrap_or(0);
        let first = words;
        words += size.div_ceil(REGISTER);
        argument.location = match u8::try_from(first) {
            Ok(first)
                if (1..=REGISTER).contains(&size) && usize::from(first) < TRAMPOLINE_WORDS - 1 =>
            {
                Ok(first)
            }
            _ if (1..=REGISTER).contains(&size) => {
                Err(format!("is behind the arguments of {function} that trampolines pass on"))
            }
            _ => Err(format!(
                "is passed by value, and is not one word: it is `{}`",
                btf.type_name(argument.ty)
            )),
        };
    }
    arguments
}

/// The arguments of a raw tracepoint, each of which is one word.
pub(super) fn of_raw_tracepoint(prototype: Prototype<'_>) -> Vec<Argument> {
    // The first argument is the kernel's own.
    let parameters = prototype.parameters().skip(1).take(RAW_ARGS).enumerate();
    let argument = |(n, parameter): (usize, btf::Parameter<'_>)| Argument {
        name: name_of(parameter.name, n),
        ty: parameter.ty,
        location: Ok(n as u8),
        points_to_user: false,
    };
    parameters.map(argument).collect()
}

fn name_of(name: &str, n: usize) -> String {
    if name.is_empty() { format!("arg{n}") } else { name.to_owned() }
}

/// Renames arguments whose name is taken to `argN`.
pub(super) fn rename(arguments: &mut [Argument], taken: &[&str]) {
    for (n, argument) in arguments.iter_mut().enumerate() {
        if taken.contains(&argument.name.as_str()) {
            argument.name = name_of("", n);
        }
    }
}

/// Finds an argument by its name, or otherwise by its position. It is an error if the argument at that position has the
/// name of another position, because names like `arg2` are often counted from 1.
pub(super) fn find<'a>(
    arguments: &'a [Argument],
    base: &FieldBase,
) -> Option<Result<&'a Argument, String>> {
    let name = match base {
        FieldBase::Position(n) => return arguments.get(usize::from(*n)).map(Ok),
        FieldBase::Builtin(_) => return None,
        base => base.to_string(),
    };
    if let Some(named) = arguments.iter().find(|argument| argument.name == name) {
        return Some(Ok(named));
    }
    let FieldBase::Argument(n) = base else { return None };
    let there = arguments.get(usize::from(*n))?;
    let is_numbered = there.name.strip_prefix("arg").is_some_and(|end| end.parse::<u8>().is_ok());
    Some(match is_numbered {
        true => Err(format!(
            "{name} is ambiguous: no argument has this name, and the one at this position, counted from 0, is called \
             {0}: write {0} or $arg{1}",
            there.name,
            u16::from(*n) + 1
        )),
        false => Ok(there),
    })
}

/// The error for a path whose base is not an argument, with suggestions.
pub(super) fn unknown(arguments: &[Argument], path: &FieldPath, of: &str) -> ResolveError {
    let names = arguments.iter().map(|argument| argument.name.as_str());
    let list = names.clone().collect::<Vec<_>>().join(", ");
    let has = match list.as_str() {
        "" => "has no arguments".to_owned(),
        list => format!("has {list}"),
    };
    let wanted = path.base.to_string();
    let near = nearest(&wanted, names.chain(super::builtin::NAMES).map(str::to_owned));
    let near = suggestion(&near);
    ResolveError::new(path.at, format!("unknown field {wanted}: {of} {has}{near}"))
}

impl Argument {
    /// Follows a path that starts at this argument.
    pub(super) fn follow(
        &self,
        btf: &Btf,
        path: &FieldPath,
        ty: Option<FieldType>,
        ty_at: At,
    ) -> Reading {
        let access = self.access(btf, path.at).map_err(|why| ResolveError::new(path.at, why))?;
        access.follow(path, ty, ty_at, false)
    }

    /// The field read from this argument by default.
    pub(super) fn default(&self, btf: &Btf) -> Option<(String, FetchField, Shape)> {
        let take = |ty| self.access(btf, At(0)).ok()?.take(ty, At(0), false).ok();
        // A small structure in a register is shown as the register's value.
        let whole = || u8::try_from(btf.size_of(self.ty)?.checked_mul(8)?).ok();
        let taken = take(None).or_else(|| take(Some(FieldType::Hex(whole()?))));
        taken.map(|(field, shape)| (self.name.clone(), field, shape))
    }

    /// Why the argument is not read by default, if it is not.
    pub(super) fn not_shown(&self, btf: &Btf) -> Option<String> {
        match (&self.location, self.default(btf)) {
            (_, Some(_)) => None,
            (Err(why), None) => Some(why.clone()),
            (Ok(_), None) => {
                let error = self.access(btf, At(0)).ok()?.take(None, At(0), false).err()?;
                Some(error.what)
            }
        }
    }

    /// The type at the end of a path that starts at this argument.
    pub(super) fn leads_to(&self, btf: &Btf, path: &FieldPath) -> Option<TypeId> {
        self.access(btf, path.at).ok()?.end(path)
    }

    fn access<'b>(&self, btf: &'b Btf, at: At) -> Result<Access<'b>, String> {
        let register = self.location.clone().map_err(|why| format!("{} {why}", self.name))?;
        Ok(Access::new(btf, register, (self.ty, self.points_to_user), &self.name, at))
    }
}
