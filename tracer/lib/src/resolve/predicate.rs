//! Compiles predicates to checks. Each comparison becomes one check with a target for either outcome.
//!
//! For a call, the parts of a conjunction that need only fields known at the entry are decided at the entry.
//!
//! `!=` and `!~` are `==` and `~` with the targets swapped. A check of a value that cannot be read takes the target for
//! "false", so such a value is unequal to everything, and neither less nor greater nor the same.

use super::builtin::builtin;
use super::domain::{Compared, Domain};
use super::names::{ValueNames, errno};
use super::shape::Shape;
use super::slots::{Slots, is_integer, is_stack};
use super::{FieldSource, Reading, ResolveError, buffers, reach, suggestion};
use crate::spec::{
    At, Comparison, FieldBase, FieldPath, FieldSpec, FieldType, Operand, Operator, Predicate,
};
use probe_tracer_common::fetch::{
    CHECKS, Check, FetchField, FetchTable, Literal, Pattern, TEXT_LEN, TEXTS, base, flag, kind,
    moment, operator, verdict,
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

/// The predicate with the probe's fields in place of the names that they are shown by: of `size=arg0:u64`, `size > 8` becomes
/// `arg0:u64 > 8`. The hook's own fields and built-in ones come first.
pub(super) fn with_shown(
    source: &dyn FieldSource,
    fields: &[FieldSpec],
    predicate: &Predicate,
) -> Result<Predicate, ResolveError> {
    let again = |part: &Predicate| with_shown(source, fields, part);
    Ok(match predicate {
        Predicate::Compare(comparison) => {
            let at = comparison.path.at;
            Predicate::Compare(match shown(source, fields, comparison) {
                None => comparison.clone(),
                Some(FieldSpec { path, ty, length: None, .. }) => {
                    let path = FieldPath { at, ..path.clone() };
                    Comparison { path, ty: *ty, ..comparison.clone() }
                }
                Some(FieldSpec { path, length: Some(_), .. }) => {
                    let what = format!(
                        "a value whose length is another field cannot be compared; {path}:bytes[N] with a number can"
                    );
                    return Err(ResolveError::new(at, what));
                }
            })
        }
        Predicate::Not(inner) => Predicate::Not(Box::new(again(inner)?)),
        Predicate::All(parts) => Predicate::All(parts.iter().map(again).collect::<Result<_, _>>()?),
        Predicate::Any(parts) => Predicate::Any(parts.iter().map(again).collect::<Result<_, _>>()?),
    })
}

/// The field whose name is compared.
fn shown<'f>(
    source: &dyn FieldSource,
    fields: &'f [FieldSpec],
    Comparison { path, ty, .. }: &Comparison,
) -> Option<&'f FieldSpec> {
    let FieldBase::Name(name) = &path.base else { return None };
    let is_name = path.steps.is_empty() && ty.is_none();
    let is_known =
        || source.own(path, None, At(0)).is_some() || builtin(path, None, At(0)).is_some();
    let is_shown = |field: &&FieldSpec| field.name.as_ref() == Some(name);
    fields.iter().find(is_shown).filter(|_| is_name && !is_known())
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
    has(predicate, &|comparison| {
        let (field, shape) = compared(source, comparison)?;
        let other = Other::of(source, comparison, &field, &shape)?;
        Ok(buffers::is_late(source, &source.plain(&comparison.path), &field)
            || other.is_some_and(|other| buffers::is_late(source, &other.path, &other.field)))
    })
}

/// Whether a predicate has such a comparison. All are looked at, so that each can be an error.
fn has(
    predicate: &Predicate,
    is_such: &dyn Fn(&Comparison) -> Result<bool, ResolveError>,
) -> Result<bool, ResolveError> {
    match predicate {
        Predicate::Compare(comparison) => is_such(comparison),
        Predicate::Not(inner) => has(inner, is_such),
        Predicate::All(parts) | Predicate::Any(parts) => {
            parts.iter().try_fold(false, |found, part| Ok(found | has(part, is_such)?))
        }
    }
}

/// The field that is compared.
fn compared(source: &dyn FieldSource, comparison: &Comparison) -> Reading {
    let path = source.plain(&comparison.path);
    buffers::compared(source, &path, comparison.ty, path.at, is_with_data(source, comparison))
}

/// Whether a field is compared with a string or bytes, and not with a number.
fn is_with_data(source: &dyn FieldSource, comparison: &Comparison) -> bool {
    let is_data = |path: &FieldPath, ty| {
        let field = source.field(&source.plain(path), ty, path.at);
        field.is_ok_and(|(field, _)| !is_integer(&field))
    };
    match &comparison.value {
        Operand::Text(_) => true,
        Operand::Integer(_) => false,
        Operand::Field(path, ty) => is_data(path, *ty),
        Operand::Name(name) => is_data(&FieldBase::Name(name.clone()).into(), None),
    }
}

/// The field that another one is compared with.
struct Other {
    path: FieldPath,
    field: FetchField,
    shape: Shape,
    ty: Option<FieldType>,
}

impl Other {
    /// `None` if the field is compared with a constant. The constants of a field come before other fields, and those
    /// before constants of the kernel.
    fn of(
        source: &dyn FieldSource,
        comparison: &Comparison,
        field: &FetchField,
        shape: &Shape,
    ) -> Result<Option<Self>, ResolveError> {
        let at = comparison.value_at;
        let (path, ty) = match &comparison.value {
            Operand::Integer(_) | Operand::Text(_) => return Ok(None),
            Operand::Field(path, ty) => (path.clone(), *ty),
            Operand::Name(name) => {
                if Own::of(source, comparison, field, shape).value_of(name).is_some() {
                    return Ok(None);
                }
                let base = FieldBase::Name(name.clone());
                (FieldPath { base, at, steps: Vec::new() }, None)
            }
        };
        let path = source.plain(&path);
        let with_data = !is_integer(field);
        match (buffers::compared(source, &path, ty, path.at, with_data), &comparison.value) {
            (Ok((field, shape)), _) => Ok(Some(Self { path, field, shape, ty })),
            (Err(_), Operand::Name(_)) => Ok(None),
            (Err(error), _) => Err(error),
        }
    }
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
struct Own<'s> {
    shape: &'s Shape,
    names: Option<Arc<ValueNames>>,
    is_signed: bool,
    /// Whether it is as wide as a pointer.
    is_wide: bool,
}

impl<'s> Own<'s> {
    fn of(
        source: &dyn FieldSource,
        comparison: &Comparison,
        field: &FetchField,
        shape: &'s Shape,
    ) -> Self {
        let is_signed = field.flags & flag::SIGNED != 0;
        let is_wide = reach::width(field) == u64::BITS;
        Self { shape, names: source.names(&source.plain(&comparison.path)), is_signed, is_wide }
    }

    fn value_of(&self, name: &str) -> Option<i128> {
        let signed = |is_signed, value: u64| match is_signed {
            true => i128::from(value.cast_signed()),
            false => value.into(),
        };
        match self.shape {
            Shape::Bool if name == "true" => return Some(1),
            Shape::Bool if name == "false" => return Some(0),
            _ if name == "NULL" && self.is_wide => return Some(0),
            Shape::Enum(names) => {
                if let Some(&(value, _)) = names.names.iter().find(|(_, known)| known == name) {
                    return Some(signed(names.is_signed, value));
                }
            }
            _ => {}
        }
        Some(signed(self.is_signed, self.names.as_ref()?.value_of(name)?))
    }

    /// The error for a string that is none of these constants.
    fn no_text(&self, path: &FieldPath) -> String {
        let what = "this is a string, but the field is an integer";
        match self.is_wide && self.names.is_none() {
            true => format!(
                "{what}; if it is the address of a string, write {path}:ustr for one of the process, {path}:str for one of \
                 the kernel"
            ),
            false => what.to_owned(),
        }
    }

    /// A proposal for a name that is not among them, or nothing.
    fn near(&self, name: &str) -> String {
        match (&self.names, self.shape) {
            (Some(names), _) => suggestion(name, names.all()),
            (None, Shape::Enum(names)) => {
                suggestion(name, names.names.iter().map(|(_, known)| known.as_str()))
            }
            (None, _) => String::new(),
        }
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
        match self.add(predicate, Target::Accept, Target::Reject, false)? {
            Target::Check(n) => self.steps.truncate(n + 1),
            Target::Accept => self.steps.clear(),
            Target::Reject => return Err(ResolveError::new(At(0), "the predicate is never true")),
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
        let of_texts = [operator::TEXT, operator::LIKE, operator::SAME];
        let compares_text = self.steps.iter().any(|step| of_texts.contains(&step.check.operator));
        table.checks_text |= u8::from(compares_text) << moment;
        Ok(())
    }

    /// Adds the checks of a predicate, which may be negated. Returns the target at which it begins.
    fn add(
        &mut self,
        predicate: &Predicate,
        on_true: Target,
        on_false: Target,
        is_negated: bool,
    ) -> Result<Target, ResolveError> {
        match predicate {
            Predicate::Compare(comparison) => {
                self.compare(comparison, on_true, on_false, is_negated)
            }
            Predicate::Not(inner) => self.add(inner, on_false, on_true, !is_negated),
            Predicate::All(parts) => {
                let mut parts = self.easiest_first(parts)?.into_iter().rev();
                parts.try_fold(on_true, |next, part| self.add(part, next, on_false, is_negated))
            }
            Predicate::Any(parts) => {
                let mut parts = self.easiest_first(parts)?.into_iter().rev();
                parts.try_fold(on_false, |next, part| self.add(part, on_true, next, is_negated))
            }
        }
    }

    /// The parts of a predicate with those first that the sieve can decide, so that no string is read for a hit about which they
    /// decide. The order does not change the result.
    fn easiest_first<'p>(
        &self,
        parts: &'p [Predicate],
    ) -> Result<Vec<&'p Predicate>, ResolveError> {
        let (mut easy, mut others) = (Vec::new(), Vec::new());
        for part in parts {
            match self.reads_data(part)? {
                false => easy.push(part),
                true => others.push(part),
            }
        }
        easy.append(&mut others);
        Ok(easy)
    }

    /// Whether a predicate compares strings or bytes, other than the thread's name with a constant.
    fn reads_data(&self, predicate: &Predicate) -> Result<bool, ResolveError> {
        has(predicate, &|comparison| {
            let (field, _) = compared(self.source, comparison)?;
            let is_equality = matches!(comparison.operator, Operator::Equal | Operator::NotEqual);
            let is_name = field.base == base::COMM && field.kind == kind::STRING;
            let is_constant = matches!(comparison.value, Operand::Text(_));
            Ok(!(is_integer(&field) || is_name && is_equality && is_constant))
        })
    }

    fn compare(
        &mut self,
        comparison: &Comparison,
        on_true: Target,
        on_false: Target,
        is_negated: bool,
    ) -> Result<Target, ResolveError> {
        let (mut field, shape) = compared(self.source, comparison)?;
        let path = self.source.plain(&comparison.path);
        let comparison = &Comparison { path, ..comparison.clone() };
        let (at, ty) = (comparison.path.at, comparison.ty);
        buffers::bound_compared(self.source, &comparison.path, ty, &mut field, self.slots)?;
        let refused = |what| ResolveError::new(comparison.value_at, what);
        let mut other = 0;
        let compared = match Other::of(self.source, comparison, &field, &shape)? {
            Some(mut with) => {
                let Other { path, ty, field: with_field, .. } = &mut with;
                buffers::bound_compared(self.source, path, *ty, with_field, self.slots)?;
                let operator = pair(comparison, (&field, &shape), &with).map_err(refused)?;
                other = self.slots.add(with.field, comparison.value_at)? as u8 + 1;
                Compared { field, operator, value: 0 }
            }
            None if is_integer(&field) => {
                self.integer(comparison, field, &shape).map_err(refused)?
            }
            None => {
                let (operator, value) = self.text(comparison, &field, &shape).map_err(refused)?;
                Compared { field, operator, value }
            }
        };
        let Compared { field, operator, value } = compared;
        let (on_true, on_false, is_negated) = match comparison.operator {
            Operator::NotEqual | Operator::NotLike => (on_false, on_true, !is_negated),
            _ => (on_true, on_false, is_negated),
        };
        let is_negated = is_negated.into();
        let field = self.slots.add(field, at)? as u8;
        let check = Check { field, operator, value, other, is_negated, ..Check::default() };
        let begin = self.push(Step { check, on_true, on_false }, at)?;
        // In events in which the field's values have no names, it is equal to none.
        let is_named = matches!(comparison.value, Operand::Name(_) | Operand::Text(_));
        let nameless = self.source.nameless(&comparison.path).filter(|_| is_named && other == 0);
        let Some(nameless) = nameless else { return Ok(begin) };
        let field = self.slots.add(nameless, at)? as u8;
        let check = Check { field, operator: operator::EQUAL, is_negated, ..Check::default() };
        self.push(Step { check, on_true: begin, on_false }, at)
    }

    /// Adds a step. Returns the target that it is.
    fn push(&mut self, step: Step, at: At) -> Result<Target, ResolveError> {
        if self.steps.len() == self.room {
            let what = format!(
                "a predicate has at most {CHECKS} comparisons, where one with the name of a system call counts as two"
            );
            return Err(ResolveError::new(at, what));
        }
        self.steps.push(step);
        Ok(Target::Check(self.steps.len() - 1))
    }

    fn integer(
        &self,
        comparison: &Comparison,
        field: FetchField,
        shape: &Shape,
    ) -> Result<Compared, String> {
        if matches!(comparison.operator, Operator::Like | Operator::NotLike) {
            return Err("~ compares strings, but the field is an integer".into());
        }
        if comparison.operator == Operator::NotZero {
            return Ok(Compared { field, operator: operator::ABOVE, value: 0 });
        }
        let own = Own::of(self.source, comparison, &field, shape);
        let value = match &comparison.value {
            Operand::Integer(value) => *value,
            Operand::Text(text) => {
                let value = own.value_of(&String::from_utf8_lossy(text));
                value.ok_or_else(|| own.no_text(&comparison.path))?
            }
            Operand::Name(name) if name.contains('|') => self.joined(comparison, name, &own)?,
            Operand::Name(name) => self.named(name, &own)?,
            Operand::Field(path, _) => return Err(format!("{path} is not a field")),
        };
        let domain = Domain::of(&field, shape, comparison.ty);
        let is_number = matches!(comparison.value, Operand::Integer(_));
        let value = match comparison.operator {
            Operator::Equal | Operator::NotEqual if !is_number => domain.with_bits(value),
            _ => value,
        };
        domain.compare(field, comparison, value)
    }

    /// The value that has the bits of several constants, as in `A|B`. What has one value at a time, such as a signal, is
    /// rarely compared with the bits of two, but may have one of them.
    fn joined(&self, comparison: &Comparison, names: &str, own: &Own<'_>) -> Result<i128, String> {
        let Comparison { path, operator, .. } = comparison;
        let is_any = *operator == Operator::HasBits;
        let refused = |one: &str, other: &str| {
            let (which, and) = match operator {
                Operator::NotEqual => ("exclude both", "&&"),
                _ => ("match either", "||"),
            };
            format!(
                "| joins bits, but no value is both {one} and {other}; to {which}, write \
                 {path} {operator} {one} {and} {path} {operator} {other}"
            )
        };
        let exclusive = own.names.as_ref().and_then(|known| known.exclusive(names));
        if let Some([one, other]) = exclusive.filter(|_| !is_any) {
            return Err(refused(one, other));
        }
        if let Some(value) = own.value_of(names) {
            return Ok(value);
        }
        let (mut joined, mut before) = (0, None);
        for name in names.split('|') {
            let value = match name.parse::<u64>() {
                Ok(value) => value.into(),
                Err(_) => self.named(name, own)?,
            };
            // Errors are no bits.
            if let Some(before) = before.filter(|_| !is_any && (joined < 0 || value < 0)) {
                return Err(refused(before, name));
            }
            (joined, before) = (joined | value, Some(name));
        }
        Ok(joined)
    }

    /// The value of a constant: from the field's own, or otherwise from any.
    fn named(&self, name: &str, own: &Own<'_>) -> Result<i128, String> {
        if let Some(value) = own.value_of(name) {
            return Ok(value);
        }
        if let Some(errno) = name.strip_prefix('-').and_then(errno::number) {
            return Ok(-i128::from(errno));
        }
        if name == "MAP_FAILED" {
            return Err(
                "the kernel returns an error in place of MAP_FAILED: compare with < 0".into()
            );
        }
        let errno = errno::number(name).map(i128::from);
        if matches!(own.shape, Shape::Result | Shape::PointerOrError) && errno.is_some() {
            return Err(format!("an error is a negative result; compare with -{name}"));
        }
        let any = self.source.enumerator(name).or(errno);
        any.ok_or_else(|| format!("unknown constant or field {name}{}", own.near(name)))
    }

    /// The operator of a check of a string or of bytes, before targets are swapped, and its value.
    fn text(
        &mut self,
        comparison: &Comparison,
        field: &FetchField,
        shape: &Shape,
    ) -> Result<(u8, u64), String> {
        let what = match shape {
            _ if is_string(field) => "a string",
            shape if is_bytes(shape) => "bytes",
            _ if is_stack(field) => return Err("stacks cannot be compared".into()),
            _ => return Err("lists cannot be compared".into()),
        };
        let Operand::Text(text) = &comparison.value else {
            let mut what =
                format!("the field is {what}: compare it with a string, as in == \"dd\"");
            let is_null = matches!(&comparison.value, Operand::Name(name) if name == "NULL");
            let is_pointer = field.kind == kind::STRING && field.flags & flag::ARRAY == 0;
            if is_null && is_pointer && field.base != base::COMM {
                what += &format!("; its address is {}:x64", comparison.path);
            }
            return Err(what);
        };
        let pattern = match comparison.operator {
            Operator::Equal | Operator::NotEqual => None,
            Operator::Like | Operator::NotLike => Some(pattern(text)?),
            _ => return Err("strings can be compared with ==, !=, ~ and !~ only".into()),
        };
        let (text, len) = match &pattern {
            Some((pattern, text)) => (text, pattern.least()),
            None => (text, text.len()),
        };
        let most = longest(field).min(TEXT_LEN);
        if len > most {
            return Err(format!(
                "the string is too long: it has {len} bytes, and at most {most} can be compared here"
            ));
        }
        let exact = pattern.is_none();
        if exact && has_fixed_length(field) && len != usize::from(field.size) {
            let size = field.size;
            return Err(format!(
                "this is never true: the field always has {size} bytes, and the string has {len}; ~ \"A*\" holds if A is the \
                 beginning"
            ));
        }
        let is_abstract = field.flags & flag::ABSTRACT != 0 && len > 1;
        if exact && is_string(field) && text[usize::from(is_abstract)..].contains(&0) {
            return Err("a string ends at its first zero byte, unless it is the name of an abstract socket; bytes[N] reads \
                        what is behind it".into());
        }
        let known = self.texts.iter().position(|known| known == text);
        let number = known.unwrap_or(self.texts.len());
        if number == TEXTS {
            return Err(format!(
                "a predicate has at most {TEXTS} strings, and the name of -n is one"
            ));
        }
        if known.is_none() {
            self.texts.push(text.clone());
        }
        Ok(match pattern {
            None => {
                let literal = Literal { text: number as u8, len: len as u8 };
                (operator::TEXT, literal.value())
            }
            Some((pattern, _)) => {
                (operator::LIKE, Pattern { text: number as u8, ..pattern }.value())
            }
        })
    }
}

fn is_string(field: &FetchField) -> bool {
    matches!(field.kind, kind::STRING | kind::DATA_LOC | kind::REL_LOC)
}

fn is_bytes(shape: &Shape) -> bool {
    matches!(shape, Shape::Bytes | Shape::Buffer)
}

/// Whether a field always has as many bytes as its size says.
fn has_fixed_length(field: &FetchField) -> bool {
    field.kind == kind::BYTES && field.length == 0
}

/// The most bytes that a string can have.
fn longest(field: &FetchField) -> usize {
    let size = usize::from(field.size);
    match field.kind {
        kind::STRING if field.flags & flag::ARRAY != 0 => size,
        kind::BYTES => size,
        kind::STRING => size.saturating_sub(1),
        _ => usize::MAX,
    }
}

/// The pattern of `~`, and its text.
fn pattern(written: &[u8]) -> Result<(Pattern, Vec<u8>), String> {
    if written.contains(&0) {
        return Err("a pattern has no zero byte; ? stands for any byte".into());
    }
    let wild = |part: &[u8]| part.iter().map(|&byte| if byte == b'?' { 0 } else { byte }).collect();
    let mut parts = written.split(|&byte| byte == b'*').map(wild).collect::<Vec<Vec<u8>>>();
    let begin = parts.remove(0);
    let (is_whole, end) = match parts.pop() {
        Some(end) => (0, end),
        None => (1, Vec::new()),
    };
    parts.retain(|part| !part.is_empty());
    let between: usize = parts.iter().map(Vec::len).sum();
    if is_whole == 0 && begin.len() + end.len() + between == 0 {
        return Err("every string matches this pattern".into());
    }
    // Each part has its length in front of it.
    let len = begin.len() + end.len() + between + parts.len();
    if len > TEXT_LEN {
        return Err(format!(
            "the pattern is too long: it has {} bytes, and at most {TEXT_LEN} can be compared here",
            written.len()
        ));
    }
    let pattern = Pattern {
        text: 0,
        begin: begin.len() as u8,
        end: end.len() as u8,
        between: between as u8,
        is_whole,
    };
    let parts = parts.into_iter().flat_map(|part| [vec![part.len() as u8], part].concat());
    Ok((pattern, [begin, end, parts.collect()].concat()))
}

/// The operator of a check of two fields, before targets are swapped.
fn pair(
    comparison: &Comparison,
    (field, shape): (&FetchField, &Shape),
    other: &Other,
) -> Result<u8, String> {
    let (path, with) = (&comparison.path, &other.path);
    match (is_integer(field), is_integer(&other.field)) {
        (true, true) => {
            let one = Domain::of(field, shape, comparison.ty);
            let two = Domain::of(&other.field, &other.shape, other.ty);
            one.compare_with(two, comparison.operator, [path, with])
        }
        (false, false) => {
            if !matches!(comparison.operator, Operator::Equal | Operator::NotEqual) {
                return Err("strings can be compared with == and != only".into());
            }
            for (path, field, shape) in [(path, field, shape), (with, &other.field, &other.shape)] {
                if !is_string(field) && !is_bytes(shape) {
                    return Err(format!("lists and stacks cannot be compared, as {path} is one"));
                }
            }
            Ok(operator::SAME)
        }
        (true, false) => Err(not_an_integer(path, with)),
        (false, true) => Err(not_an_integer(with, path)),
    }
}

fn not_an_integer(integer: &FieldPath, with: &FieldPath) -> String {
    format!("the integer {integer} cannot be compared with {with}, which is not an integer")
}
