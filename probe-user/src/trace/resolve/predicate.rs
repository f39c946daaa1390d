//! Predicates as checks: one for each comparison, each with where to go on.
//!
//! Of a call, what can be decided when it is entered is decided then: those parts of a conjunction that
//! look at nothing that is known later.
//!
//! `!=`, `<=` and `>=` are `==`, `>` and `<` with the ways out swapped; so what cannot be read is unequal
//! to everything, and neither less nor greater.

use super::slots::{Slots, is_integer, is_stack};
use super::{ResolveError, Scope, reach, suggestion};
use crate::trace::shape::Shape;
use crate::trace::spec::{At, Comparison, Literal, Operator, Predicate};
use probe_common::fetch::{
    CHECKS, Check, FetchField, FetchTable, TEXT_LEN, TEXTS, flag, kind, moment, operator, verdict,
};

/// Writes a predicate's checks and texts into a table. Checks have numbers of `slots`.
pub(super) fn compile(
    scope: &dyn Scope,
    predicate: &Predicate,
    slots: &mut Slots,
    table: &mut FetchTable,
) -> Result<(), ResolveError> {
    let (early, late) = split(scope, predicate)?;
    let mut texts = Vec::new();
    for (part, moment) in [(early, moment::EARLY), (late, moment::LATE)] {
        if let Some(part) = part {
            write_checks(scope, &part, slots, &mut texts, table, moment)?;
        }
        if moment == moment::EARLY {
            table.early_checks = table.check_count;
        }
    }
    for (place, text) in table.texts.iter_mut().zip(&texts) {
        place[..text.len()].copy_from_slice(text);
    }
    Ok(())
}

/// What of a predicate can be decided early, and what cannot.
fn split(
    scope: &dyn Scope,
    predicate: &Predicate,
) -> Result<(Option<Predicate>, Option<Predicate>), ResolveError> {
    let (mut early, mut late) = (Vec::new(), Vec::new());
    let mut parts = vec![predicate];
    while let Some(part) = parts.pop() {
        match part {
            Predicate::All(inner) => parts.extend(inner.iter().rev()),
            part if is_late(scope, part)? => late.push(part.clone()),
            part => early.push(part.clone()),
        }
    }
    let join = |parts: Vec<_>| (!parts.is_empty()).then_some(Predicate::All(parts));
    Ok((join(early), join(late)))
}

fn is_late(scope: &dyn Scope, predicate: &Predicate) -> Result<bool, ResolveError> {
    Ok(match predicate {
        Predicate::Compare(comparison) => {
            let at = comparison.path.at;
            scope.is_late(&scope.field(&comparison.path, comparison.ty, at)?.0)
        }
        Predicate::Not(inner) => is_late(scope, inner)?,
        Predicate::All(parts) | Predicate::Any(parts) => {
            parts.iter().try_fold(false, |late, part| Ok(late | is_late(scope, part)?))?
        }
    })
}

/// Adds the checks of what is decided at one moment.
fn write_checks(
    scope: &dyn Scope,
    predicate: &Predicate,
    slots: &mut Slots,
    texts: &mut Vec<Vec<u8>>,
    table: &mut FetchTable,
    moment: u32,
) -> Result<(), ResolveError> {
    let written = usize::from(table.check_count);
    let room = CHECKS - written;
    let mut compiler = Compiler { scope, slots, checks: Vec::new(), texts, room };
    let first = compiler.add(predicate, Target::Accept, Target::Reject)?;
    let mut checks = compiler.checks;
    // The last one that was added comes first, unless nobody gets there.
    match first {
        Target::Check(n) => checks.truncate(n + 1),
        Target::Accept => checks.clear(),
        Target::Reject => {
            return Err(ResolveError::new(At(0), "the condition is never true"));
        }
    }
    let count = checks.len();
    let place = |target| match target {
        Target::Accept => verdict::ACCEPT,
        Target::Reject => verdict::REJECT,
        Target::Check(n) => (written + count - 1 - n) as u8,
    };
    for (check, step) in table.checks[written..].iter_mut().zip(checks.iter().rev()) {
        let (on_true, on_false) = (place(step.on_true), place(step.on_false));
        *check = Check { on_true, on_false, ..step.check };
    }
    table.check_count = (written + count) as u8;
    let compares_text = checks.iter().any(|step| step.check.operator == operator::TEXT);
    table.checks_text |= u8::from(compares_text) << moment;
    Ok(())
}

/// Where to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Accept,
    Reject,
    /// A check, counted from the last.
    Check(usize),
}

struct Step {
    check: Check,
    on_true: Target,
    on_false: Target,
}

struct Compiler<'s> {
    scope: &'s dyn Scope,
    slots: &'s mut Slots,
    /// The last one first: so it is known where to go on from each.
    checks: Vec<Step>,
    texts: &'s mut Vec<Vec<u8>>,
    /// Most checks that are added.
    room: usize,
}

impl Compiler<'_> {
    /// Adds the checks of a predicate. Returns where it begins.
    fn add(
        &mut self,
        predicate: &Predicate,
        on_true: Target,
        on_false: Target,
    ) -> Result<Target, ResolveError> {
        match predicate {
            Predicate::Compare(comparison) => self.compare(comparison, on_true, on_false),
            Predicate::Not(inner) => self.add(inner, on_false, on_true),
            Predicate::All(parts) => {
                parts.iter().rev().try_fold(on_true, |next, part| self.add(part, next, on_false))
            }
            Predicate::Any(parts) => {
                parts.iter().rev().try_fold(on_false, |next, part| self.add(part, on_true, next))
            }
        }
    }

    fn compare(
        &mut self,
        comparison: &Comparison,
        on_true: Target,
        on_false: Target,
    ) -> Result<Target, ResolveError> {
        let at = comparison.path.at;
        if self.checks.len() == self.room {
            let what = format!("a condition has at most {CHECKS} comparisons");
            return Err(ResolveError::new(at, what));
        }
        let (field, shape) = self.scope.field(&comparison.path, comparison.ty, at)?;
        let (operator, value) = match is_integer(&field) {
            true => self.integer(comparison, &field, &shape)?,
            false => self.text(comparison, &field)?,
        };
        let is_swapped = matches!(
            comparison.operator,
            Operator::NotEqual | Operator::LessOrEqual | Operator::GreaterOrEqual
        );
        let (on_true, on_false) =
            if is_swapped { (on_false, on_true) } else { (on_true, on_false) };
        let field = self.slots.add(field, at)? as u8;
        let check = Check { field, operator, value, ..Check::default() };
        self.checks.push(Step { check, on_true, on_false });
        Ok(Target::Check(self.checks.len() - 1))
    }

    /// The operator of a check, or of its opposite, and its value.
    fn integer(
        &self,
        comparison: &Comparison,
        field: &FetchField,
        shape: &Shape,
    ) -> Result<(u8, u64), ResolveError> {
        let error = |what: String| Err(ResolveError::new(comparison.value_at, what));
        let value = match &comparison.value {
            Literal::Integer(value) => *value,
            Literal::Text(_) => return error("this is a string, and the field an integer".into()),
            Literal::Name(name) => self.named(name, shape, comparison.value_at)?,
        };
        let is_signed = field.flags & flag::SIGNED != 0;
        let bits = reach::width(field);
        let (mut least, mut most) = match is_signed {
            true => (-1_i128 << (bits - 1), (1 << (bits - 1)) - 1),
            false => (0, (1 << bits) - 1),
        };
        if comparison.operator == Operator::HasBits {
            (least, most) = (least, (1 << bits) - 1);
        }
        if value < least || value > most {
            let sort = if is_signed { "signed" } else { "unsigned" };
            return error(format!(
                "{value} is no value of this field: it is {sort}, with {bits} bits, from {least} to {most}"
            ));
        }
        let operator = match (comparison.operator, is_signed) {
            (Operator::Equal | Operator::NotEqual, _) => operator::EQUAL,
            (Operator::Less | Operator::GreaterOrEqual, true) => operator::LESS,
            (Operator::Less | Operator::GreaterOrEqual, false) => operator::BELOW,
            (Operator::Greater | Operator::LessOrEqual, true) => operator::GREATER,
            (Operator::Greater | Operator::LessOrEqual, false) => operator::ABOVE,
            (Operator::HasBits, _) => operator::HAS,
        };
        // Two's complement, as the value is in its word.
        Ok((operator, value as u64))
    }

    /// The value of a name: of the field's enumeration, or of any.
    fn named(&self, name: &str, shape: &Shape, at: At) -> Result<i128, ResolveError> {
        let mut near = String::new();
        match shape {
            Shape::Bool if name == "true" => return Ok(1),
            Shape::Bool if name == "false" => return Ok(0),
            Shape::Pointer | Shape::Symbol if name == "NULL" => return Ok(0),
            Shape::Enum(names) => {
                if let Some((value, _)) = names.names.iter().find(|(_, known)| known == name) {
                    let value = *value;
                    return Ok(match names.is_signed {
                        true => value.cast_signed().into(),
                        false => value.into(),
                    });
                }
                near = suggestion(name, names.names.iter().map(|(_, known)| known.as_str()));
            }
            _ => {}
        }
        self.scope
            .enumerator(name)
            .ok_or_else(|| ResolveError::new(at, format!("{name} is the name of no value{near}")))
    }

    fn text(
        &mut self,
        comparison: &Comparison,
        field: &FetchField,
    ) -> Result<(u8, u64), ResolveError> {
        let error = |what: String| Err(ResolveError::new(comparison.value_at, what));
        if field.kind == kind::BYTES {
            return error("bytes cannot be compared".into());
        }
        if is_stack(field) {
            return error("stacks cannot be compared".into());
        }
        let Literal::Text(text) = &comparison.value else {
            return error(
                "the field is a string: it is compared with another, as in == \"dd\"".into(),
            );
        };
        if !matches!(comparison.operator, Operator::Equal | Operator::NotEqual) {
            return error("strings are compared by == and != only".into());
        }
        let most = match field.kind {
            kind::STRING => TEXT_LEN.min(usize::from(field.size).saturating_sub(1)),
            _ => TEXT_LEN,
        };
        if text.len() > most {
            let what =
                format!("the string has {} bytes: at most {most} are compared here", text.len());
            return error(what);
        }
        if text.contains(&0) {
            return error("a string has no zeros inside".into());
        }
        let known = self.texts.iter().position(|known| known == text);
        let number = known.unwrap_or(self.texts.len());
        if number == TEXTS {
            return error(format!("a condition has at most {TEXTS} strings"));
        }
        if known.is_none() {
            self.texts.push(text.clone());
        }
        Ok((operator::TEXT, number as u64))
    }
}
