//! Compiles predicates to checks. Each comparison becomes one check with a target for either outcome.
//!
//! For a call, the parts of a conjunction that need only fields known at the entry are decided at the entry.
//!
//! `!=`, `<=` and `>=` are `==`, `>` and `<` with the targets swapped. A check of a value that cannot be read takes the
//! target for "false", so such a value is unequal to everything, and neither less nor greater.

use super::domain::{Compared, Domain};
use super::names::{ValueNames, errno};
use super::shape::Shape;
use super::slots::{Slots, is_integer, is_stack};
use super::{FieldSource, ResolveError, buffers, suggestion};
use crate::spec::{At, Comparison, Literal, Operator, Predicate};
use probe_tracer_common::fetch::{
    CHECKS, Check, FetchField, FetchTable, TEXT_LEN, TEXTS, flag, kind, moment, operator, verdict,
};
use std::sync::Arc;

/// Writes the checks and texts of a predicate into a table. The checks refer to fields by their number in `slots`.
pub(super) fn compile(
    source: &dyn FieldSource,
    predicate: &Predicate,
    slots: &mut Slots,
    table: &mut FetchTable,
) -> Result<(), ResolveError> {
    let (early, late) = split(source, predicate)?;
    let mut compiler = Compiler { source, slots, steps: Vec::new(), texts: Vec::new(), room: 0 };
    for (part, moment) in [(early, moment::EARLY), (late, moment::LATE)] {
        if let Some(part) = part {
            compiler.write(&part, table, moment)?;
        }
        if moment == moment::EARLY {
            table.early_checks = table.check_count;
        }
    }
    for (written, text) in table.texts.iter_mut().zip(&compiler.texts) {
        written[..text.len()].copy_from_slice(text);
    }
    Ok(())
}

/// Splits a predicate into the part that can be decided early and the rest.
fn split(
    source: &dyn FieldSource,
    predicate: &Predicate,
) -> Result<(Option<Predicate>, Option<Predicate>), ResolveError> {
    let (mut early, mut late) = (Vec::new(), Vec::new());
    let mut parts = vec![predicate];
    while let Some(part) = parts.pop() {
        match part {
            Predicate::All(inner) => parts.extend(inner.iter().rev()),
            part if is_late(source, part)? => late.push(part.clone()),
            part => early.push(part.clone()),
        }
    }
    let join = |parts: Vec<_>| (!parts.is_empty()).then_some(Predicate::All(parts));
    Ok((join(early), join(late)))
}

fn is_late(source: &dyn FieldSource, predicate: &Predicate) -> Result<bool, ResolveError> {
    Ok(match predicate {
        Predicate::Compare(comparison) => {
            let at = comparison.path.at;
            source.is_late(&source.field(&comparison.path, comparison.ty, at)?.0)
        }
        Predicate::Not(inner) => is_late(source, inner)?,
        Predicate::All(parts) | Predicate::Any(parts) => {
            parts.iter().try_fold(false, |late, part| Ok(late | is_late(source, part)?))?
        }
    })
}

/// The target of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Accept,
    Reject,
    /// A check, counted from the end.
    Check(usize),
}

struct Step {
    check: Check,
    on_true: Target,
    on_false: Target,
}

struct Compiler<'s> {
    source: &'s dyn FieldSource,
    slots: &'s mut Slots,
    /// The checks of one moment, in reverse order, so that the targets of each are known when it is added.
    steps: Vec<Step>,
    texts: Vec<Vec<u8>>,
    /// The most steps that may be added.
    room: usize,
}

/// The constants of a field.
struct Own {
    names: Option<Arc<ValueNames>>,
    is_signed: bool,
}

impl Own {
    fn value_of(&self, name: &str) -> Option<i128> {
        let value = self.names.as_ref()?.value_of(name)?;
        Some(if self.is_signed { value.cast_signed().into() } else { value.into() })
    }
}

impl Compiler<'_> {
    /// Writes the checks that are decided at one moment.
    fn write(
        &mut self,
        predicate: &Predicate,
        table: &mut FetchTable,
        moment: u32,
    ) -> Result<(), ResolveError> {
        let written = usize::from(table.check_count);
        self.steps.clear();
        self.room = CHECKS - written;
        // The check added last comes first, unless it is unreachable.
        match self.add(predicate, Target::Accept, Target::Reject)? {
            Target::Check(n) => self.steps.truncate(n + 1),
            Target::Accept => self.steps.clear(),
            Target::Reject => return Err(ResolveError::new(At(0), "the condition is never true")),
        }
        let count = self.steps.len();
        let encode = |target| match target {
            Target::Accept => verdict::ACCEPT,
            Target::Reject => verdict::REJECT,
            Target::Check(n) => (written + count - 1 - n) as u8,
        };
        for (check, step) in table.checks[written..].iter_mut().zip(self.steps.iter().rev()) {
            let (on_true, on_false) = (encode(step.on_true), encode(step.on_false));
            *check = Check { on_true, on_false, ..step.check };
        }
        table.check_count = (written + count) as u8;
        let compares_text = self.steps.iter().any(|step| step.check.operator == operator::TEXT);
        table.checks_text |= u8::from(compares_text) << moment;
        Ok(())
    }

    /// Adds the checks of a predicate. Returns the target at which it begins.
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
        if self.steps.len() == self.room {
            let what = format!("a condition has at most {CHECKS} comparisons");
            return Err(ResolveError::new(at, what));
        }
        let (mut field, shape) = self.source.field(&comparison.path, comparison.ty, at)?;
        buffers::bound_early(self.source, &comparison.path, &mut field, self.slots)?;
        let compared = match is_integer(&field) {
            true => self.integer(comparison, field, &shape),
            false => self.text(comparison, &field).map(|(operator, value)| Compared {
                field,
                operator,
                value,
            }),
        };
        let Compared { field, operator, value } =
            compared.map_err(|what| ResolveError::new(comparison.value_at, what))?;
        let (on_true, on_false) = match comparison.operator {
            Operator::NotEqual | Operator::LessOrEqual | Operator::GreaterOrEqual => {
                (on_false, on_true)
            }
            _ => (on_true, on_false),
        };
        let field = self.slots.add(field, at)? as u8;
        let check = Check { field, operator, value, ..Check::default() };
        self.steps.push(Step { check, on_true, on_false });
        Ok(Target::Check(self.steps.len() - 1))
    }

    fn integer(
        &self,
        comparison: &Comparison,
        field: FetchField,
        shape: &Shape,
    ) -> Result<Compared, String> {
        let is_signed = field.flags & flag::SIGNED != 0;
        let own = Own { names: self.source.names(&comparison.path), is_signed };
        let value = match &comparison.value {
            Literal::Integer(value) => *value,
            Literal::Text(text) => {
                let value = own.value_of(&String::from_utf8_lossy(text));
                value.ok_or("this is a string, but the field is an integer")?
            }
            Literal::Name(name) => self.named(name, shape, &own)?,
        };
        Domain::of(&field, shape, comparison.ty).compare(field, comparison, value)
    }

    /// The value of a constant: from the field's own, or otherwise from any.
    fn named(&self, name: &str, shape: &Shape, own: &Own) -> Result<i128, String> {
        let mut near = String::new();
        match shape {
            Shape::Bool if name == "true" => return Ok(1),
            Shape::Bool if name == "false" => return Ok(0),
            Shape::Pointer | Shape::PointerOrError | Shape::Symbol if name == "NULL" => {
                return Ok(0);
            }
            Shape::Enum(names) => {
                if let Some(&(value, _)) = names.names.iter().find(|(_, known)| known == name) {
                    return Ok(match names.is_signed {
                        true => value.cast_signed().into(),
                        false => value.into(),
                    });
                }
                near = suggestion(name, names.names.iter().map(|(_, known)| known.as_str()));
            }
            _ => {}
        }
        if let Some(value) = own.value_of(name) {
            return Ok(value);
        }
        if name.contains('|') {
            let mut names = name.split('|');
            return names.try_fold(0, |all, name| Ok(all | self.named(name, shape, own)?));
        }
        if let Some(errno) = name.strip_prefix('-').and_then(errno::number) {
            return Ok(-i128::from(errno));
        }
        let errno = errno::number(name).map(i128::from);
        if *shape == Shape::Result && errno.is_some() {
            return Err(format!("an error is a negative result; compare with -{name}"));
        }
        if let Some(names) = &own.names {
            near = suggestion(name, names.all());
        }
        let any = self.source.enumerator(name).or(errno);
        any.ok_or_else(|| format!("unknown constant {name}{near}"))
    }

    /// The operator of a check of a string, before targets are swapped, and its value.
    fn text(&mut self, comparison: &Comparison, field: &FetchField) -> Result<(u8, u64), String> {
        if field.kind == kind::BYTES {
            return Err("bytes cannot be compared".into());
        }
        if is_stack(field) {
            return Err("stacks cannot be compared".into());
        }
        let Literal::Text(text) = &comparison.value else {
            return Err("the field is a string: compare it with a string, as in == \"dd\"".into());
        };
        if !matches!(comparison.operator, Operator::Equal | Operator::NotEqual) {
            return Err("strings can be compared with == and != only".into());
        }
        let most = match field.kind {
            kind::STRING if field.flags & flag::ARRAY != 0 => TEXT_LEN.min(field.size.into()),
            kind::STRING => TEXT_LEN.min(usize::from(field.size).saturating_sub(1)),
            _ => TEXT_LEN,
        };
        if text.len() > most {
            let len = text.len();
            return Err(format!("the string has {len} bytes: at most {most} are compared here"));
        }
        let is_abstract = field.flags & flag::ABSTRACT != 0 && text.len() > 1;
        if text[usize::from(is_abstract)..].contains(&0) {
            return Err("only the name of an abstract socket has a zero byte, its first one".into());
        }
        let known = self.texts.iter().position(|known| known == text);
        let number = known.unwrap_or(self.texts.len());
        if number == TEXTS {
            return Err(format!("a condition has at most {TEXTS} strings"));
        }
        if known.is_none() {
            self.texts.push(text.clone());
        }
        Ok((operator::TEXT, number as u64))
    }
}
