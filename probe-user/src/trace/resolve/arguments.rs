//! The arguments of a function or a raw tracepoint, and where they are.

use super::ResolveError;
use super::reach::Reach;
use super::user_memory::points_to_user;
use super::way::Way;
use crate::trace::btf::{Btf, Prototype, Type, TypeId};
use crate::trace::shape::Shape;
use crate::trace::spec::{At, FieldBase, FieldPath, FieldType};
use probe_common::fetch::ARGUMENTS;
use probe_common::fetch::FetchField;

/// A register has so many bytes.
const REGISTER: u32 = 8;

/// Most arguments that a raw tracepoint has (`MAX_BPF_FUNC_ARGS`).
const RAW_ARGS: usize = 12;

/// An argument.
#[derive(Clone, Debug)]
pub(super) struct Argument {
    /// `argN`, if it has no name.
    pub(super) name: String,
    pub(super) ty: TypeId,
    /// The number that programs know it by; or why it cannot be read.
    pub(super) place: Result<u8, String>,
    pub(super) points_to_user: bool,
}

/// The arguments of a function, which are in registers.
pub(super) fn of_function(btf: &Btf, function: &str, prototype: Prototype<'_>) -> Vec<Argument> {
    let mut shifted_by: Option<String> = None;
    let mut arguments = Vec::new();
    for (n, parameter) in prototype.parameters().enumerate() {
        if matches!(btf.at(parameter.ty), Some(Type::Void)) {
            break; // "..."
        }
        let name = name_of(parameter.name, n);
        let fits = matches!(btf.size_of(parameter.ty), Some(1..=REGISTER));
        let place = match &shifted_by {
            _ if n >= ARGUMENTS => Err(format!(
                "is argument {} of {function}: only the first {ARGUMENTS} are in registers",
                n + 1
            )),
            Some(wide) => Err(format!(
                "comes behind {wide}, which is passed by value and has no register of its own: where it is is not known"
            )),
            None if fits => Ok(n as u8),
            None => Err(format!(
                "is passed by value, and has no register of its own: it is `{}`",
                btf.type_name(parameter.ty)
            )),
        };
        if !fits {
            shifted_by.get_or_insert_with(|| name.clone());
        }
        let points_to_user = points_to_user(btf, function, parameter.name, parameter.ty);
        arguments.push(Argument { name, ty: parameter.ty, place, points_to_user });
    }
    arguments
}

/// The arguments of a raw tracepoint, each of which has a word.
pub(super) fn of_raw_tracepoint(prototype: Prototype<'_>) -> Vec<Argument> {
    // The first one is for the kernel itself.
    let parameters = prototype.parameters().skip(1).take(RAW_ARGS).enumerate();
    let argument = |(n, parameter): (usize, crate::trace::btf::Parameter<'_>)| Argument {
        name: name_of(parameter.name, n),
        ty: parameter.ty,
        place: Ok(n as u8),
        points_to_user: false,
    };
    parameters.map(argument).collect()
}

fn name_of(name: &str, n: usize) -> String {
    if name.is_empty() { format!("arg{n}") } else { name.to_owned() }
}

/// Takes names from arguments: these go by their number, then.
pub(super) fn rename(arguments: &mut [Argument], taken: &[&str]) {
    for (n, argument) in arguments.iter_mut().enumerate() {
        if taken.contains(&argument.name.as_str()) {
            argument.name = name_of("", n);
        }
    }
}

/// Finds an argument by its name, or else its number.
pub(super) fn find<'a>(arguments: &'a [Argument], base: &FieldBase) -> Option<&'a Argument> {
    let number = match base {
        FieldBase::Argument(n) => usize::from(*n),
        FieldBase::Name(name) => {
            if let Some(argument) = arguments.iter().find(|argument| argument.name == *name) {
                return Some(argument);
            }
            name.strip_prefix("arg")?.parse().ok()?
        }
        FieldBase::Return => return None,
    };
    arguments.get(number)
}

/// What a place in a path that is no argument could have been.
pub(super) fn unknown(arguments: &[Argument], path: &FieldPath, of: &str) -> ResolveError {
    let names = arguments.iter().map(|argument| argument.name.as_str());
    let list = names.clone().collect::<Vec<_>>().join(", ");
    let has = match list.as_str() {
        "" => "has no arguments".to_owned(),
        list => format!("has {list}"),
    };
    let wanted = path.base.to_string();
    let near = crate::trace::symbols::nearest(
        &wanted,
        names.chain(super::builtin::NAMES).map(str::to_owned),
    );
    let near = match near.is_empty() {
        true => String::new(),
        false => format!("; did you mean {}?", near.join(", ")),
    };
    ResolveError::new(path.at, format!("there is no {wanted} here: {of} {has}{near}"))
}

impl Argument {
    /// Follows a path that begins here.
    pub(super) fn follow(
        &self,
        btf: &Btf,
        path: &FieldPath,
        ty: Option<FieldType>,
        ty_at: At,
    ) -> Result<(FetchField, Shape), ResolveError> {
        let way = self.way(btf, path.at).map_err(|why| ResolveError::new(path.at, why))?;
        way.follow(path, ty, ty_at, false)
    }

    /// What is read of it if nobody says what.
    pub(super) fn default(&self, btf: &Btf) -> Option<(String, FetchField, Shape)> {
        let take = |ty| self.way(btf, At(0)).ok()?.take(ty, At(0), false).ok();
        // A small structure in a register is shown as what the register has.
        let whole = || u8::try_from(btf.size_of(self.ty)?.checked_mul(8)?).ok();
        let taken = take(None).or_else(|| take(Some(FieldType::Hex(whole()?))));
        taken.map(|(field, shape)| (self.name.clone(), field, shape))
    }

    /// Where a path leads that begins here: its type.
    pub(super) fn leads_to(&self, btf: &Btf, path: &FieldPath) -> Option<TypeId> {
        self.way(btf, path.at).ok()?.end(path)
    }

    fn way<'b>(&self, btf: &'b Btf, at: At) -> Result<Way<'b>, String> {
        let number = self.place.clone().map_err(|why| format!("{} {why}", self.name))?;
        let way = Way::new(btf, Reach::register(number), self.ty, &self.name, at);
        Ok(way.pointing_to_user(self.points_to_user))
    }
}
