//! The fields and the predicate of a spec: `[(FIELD,...)][/PREDICATE/]`.

use super::builtin::Builtin;
use super::error::SpecError;
use super::field::{At, FieldBase, FieldPath, FieldSpec, FieldType, Length, PathStep};
use super::foreign;
use super::lexer::{Lexer, Token};
use super::predicate::{Comparison, Operand, Operator, Predicate};
use probe_tracer_common::fetch;
use std::mem;

/// How deeply parentheses and `!` may nest.
const DEPTH: usize = 32;

/// The fields and the predicate, each if given.
pub(super) type Body = (Option<Vec<FieldSpec>>, Option<Predicate>);

/// Parses a spec from byte offset `at` to its end.
pub(super) fn body(spec: &str, at: usize) -> Result<Body, SpecError> {
    let mut parser = Parser::new(spec, at)?;
    let fields = if parser.eat("(")? { Some(parser.fields()?) } else { None };
    let predicate = if parser.eat("/")? { Some(parser.predicate()?) } else { None };
    match (&parser.token, &predicate) {
        (Token::End, _) => Ok((fields, predicate)),
        (_, Some(_)) => parser.error("nothing may follow a predicate"),
        _ => parser.error("only a predicate may follow: /.../"),
    }
}

/// The types of fields, for messages.
const TYPES: &str = "u8 to u64, s8 to s64, x8 to x64, str, ustr, sym, bytes[N]";

struct Parser<'s> {
    spec: &'s str,
    lexer: Lexer<'s>,
    /// The next token.
    token: Token<'s>,
    /// The position of `token`.
    at: usize,
    depth: usize,
}

impl<'s> Parser<'s> {
    fn new(spec: &'s str, at: usize) -> Result<Self, SpecError> {
        let mut lexer = Lexer::new(spec, at);
        let (token, at) = lexer.next()?;
        Ok(Self { spec, lexer, token, at, depth: 0 })
    }

    fn error<T>(&self, what: impl Into<String>) -> Result<T, SpecError> {
        self.error_at(self.at, what)
    }

    fn error_at<T>(&self, at: usize, what: impl Into<String>) -> Result<T, SpecError> {
        Err(SpecError::new(self.spec, at, what))
    }

    fn take(&mut self) -> Result<Token<'s>, SpecError> {
        let (next, at) = self.lexer.next()?;
        self.at = at;
        Ok(mem::replace(&mut self.token, next))
    }

    fn word(&self) -> Option<&'s str> {
        match self.token {
            Token::Word(word) => Some(word),
            _ => None,
        }
    }

    /// The next token, if it is an integer that fits.
    fn integer<T: TryFrom<i128>>(&self) -> Option<T> {
        match self.token {
            Token::Integer(value) => T::try_from(value).ok(),
            _ => None,
        }
    }

    fn is(&self, mark: &str) -> bool {
        matches!(self.token, Token::Mark(next) if next == mark)
    }

    fn eat(&mut self, mark: &str) -> Result<bool, SpecError> {
        let is_there = self.is(mark);
        if is_there {
            self.take()?;
        }
        Ok(is_there)
    }

    fn expect(&mut self, mark: &str, what: &str) -> Result<(), SpecError> {
        if self.eat(mark)? { Ok(()) } else { self.error(what) }
    }

    fn fields(&mut self) -> Result<Vec<FieldSpec>, SpecError> {
        let mut fields: Vec<FieldSpec> = Vec::new();
        if self.eat(")")? {
            return Ok(fields);
        }
        loop {
            if fields.len() == fetch::FIELDS {
                return self.error(format!("a probe has up to {} fields", fetch::FIELDS));
            }
            let at = self.at;
            let field = self.field()?;
            let name = field.shown_name();
            if fields.iter().any(|other| other.shown_name() == name) {
                let what = format!("two fields are called `{name}`; rename one with NAME=PATH");
                return self.error_at(at, what);
            }
            fields.push(field);
            if self.eat(")")? {
                return Ok(fields);
            }
            self.expect(",", "expected a comma or a closing parenthesis")?;
        }
    }

    fn field(&mut self) -> Result<FieldSpec, SpecError> {
        let (mut at, word) = (self.at, self.word());
        let mut base = self.base()?;
        let mut name = None;
        if let Some(word) = word
            && self.eat("=")?
        {
            name = Some(word.to_owned());
            at = self.at;
            base = self.base()?;
        }
        let path = self.steps(base, at)?;
        let (ty, ty_at, length) = self.ty()?;
        Ok(FieldSpec { name, path, ty, ty_at, length })
    }

    /// Parses the base of a path.
    fn base(&mut self) -> Result<FieldBase, SpecError> {
        let base = match self.token {
            Token::Word(word) if !word.starts_with('-') => base_of(word),
            Token::Variable(word) => variable(word),
            _ => Err("expected a field: a name, arg0 or retval".into()),
        };
        let base = base.or_else(|what| self.error(what))?;
        let at = self.at;
        self.take()?;
        match &base {
            FieldBase::Name(name) if self.is("(") => self.error_at(at, foreign::function(name)),
            _ => Ok(base),
        }
    }

    /// Parses a path and its type, if given.
    fn typed_path(&mut self) -> Result<(FieldPath, Option<FieldType>), SpecError> {
        let at = self.at;
        let base = self.base()?;
        let path = self.steps(base, at)?;
        match self.ty()? {
            (ty, _, None) => Ok((path, ty)),
            (_, at, Some(_)) => self.error_at(
                at.0,
                "a predicate cannot name the length of a value, only fields can; bytes[N] with a number can be compared",
            ),
        }
    }

    fn steps(&mut self, base: FieldBase, at: usize) -> Result<FieldPath, SpecError> {
        let mut steps = Vec::new();
        loop {
            if self.eat(".")? || self.eat("->")? {
                let Some(member) = self.word() else {
                    return self.error("expected the name of a member");
                };
                steps.push((PathStep::Member(member.to_owned()), At(self.at)));
                self.take()?;
            } else if self.eat("[")? {
                let at = At(self.at);
                let Some(index) = self.integer() else {
                    return self.error("expected the number of an element, from 0 on");
                };
                self.take()?;
                steps.push((PathStep::Index(index), at));
                self.expect("]", "expected a closing bracket")?;
            } else {
                return Ok(FieldPath { base, at: At(at), steps });
            }
        }
    }

    /// Parses the type after a path, and the length of its value. Returns the type's position, too.
    fn ty(&mut self) -> Result<(Option<FieldType>, At, Option<Length>), SpecError> {
        if !self.eat(":")? {
            return Ok((None, At(self.at), None));
        }
        let at = At(self.at);
        let Some(word) = self.word() else {
            return self.error(format!("expected a type: {TYPES}"));
        };
        let simple = simple_type(word);
        if simple.is_none() && word != "bytes" {
            return self.error(format!("unknown type `{word}`: {TYPES}"));
        }
        self.take()?;
        let (ty, length) = match simple {
            None => self.bytes()?,
            Some(ty @ (FieldType::Str | FieldType::Ustr)) if self.eat("[")? => {
                (ty, Some(self.length()?))
            }
            Some(ty) => (ty, None),
        };
        Ok((Some(ty), at, length))
    }

    /// Parses the `[N]` or `[FIELD]` of `bytes[N]`.
    fn bytes(&mut self) -> Result<(FieldType, Option<Length>), SpecError> {
        const MOST: u16 = fetch::LONGEST as u16;
        let what = format!("expected a length: bytes[1] to bytes[{MOST}], or bytes[FIELD]");
        self.expect("[", &what)?;
        if matches!(self.token, Token::Word(_) | Token::Variable(_)) {
            return Ok((FieldType::Bytes(MOST), Some(self.length()?)));
        }
        let is_possible = |length: &u16| (1..=MOST).contains(length);
        let Some(length) = self.integer().filter(is_possible) else { return self.error(what) };
        self.take()?;
        self.expect("]", "expected a closing bracket")?;
        Ok((FieldType::Bytes(length), None))
    }

    /// Parses `PATH[:TYPE]]`, a field that is the length of another one.
    fn length(&mut self) -> Result<Length, SpecError> {
        let at = self.at;
        if !matches!(self.token, Token::Word(_) | Token::Variable(_)) {
            return self.error("expected the field that has the length, as in buf:ustr[count]");
        }
        let base = self.base()?;
        let path = self.steps(base, at)?;
        let mut ty = None;
        if self.eat(":")? {
            ty = self.word().and_then(simple_type);
            if !matches!(ty, Some(FieldType::Unsigned(_) | FieldType::Signed(_))) {
                return self.error("the type of a length is u8 to u64 or s8 to s64");
            }
            self.take()?;
        }
        self.expect("]", "expected a closing bracket")?;
        Ok(Length { path, ty })
    }

    /// Parses a predicate and the `/` that ends it.
    fn predicate(&mut self) -> Result<Predicate, SpecError> {
        let predicate = self.any()?;
        self.expect("/", "expected &&, || or the / that ends the predicate")?;
        Ok(predicate)
    }

    fn any(&mut self) -> Result<Predicate, SpecError> {
        self.joined("||", Self::all, Predicate::Any)
    }

    fn all(&mut self) -> Result<Predicate, SpecError> {
        self.joined("&&", Self::term, Predicate::All)
    }

    /// Parses one term, or several that are joined by `mark`.
    fn joined(
        &mut self,
        mark: &str,
        term: fn(&mut Self) -> Result<Predicate, SpecError>,
        join: fn(Vec<Predicate>) -> Predicate,
    ) -> Result<Predicate, SpecError> {
        let first = term(self)?;
        if !self.is(mark) {
            return Ok(first);
        }
        let mut terms = vec![first];
        while self.eat(mark)? {
            terms.push(term(self)?);
        }
        Ok(join(terms))
    }

    fn term(&mut self) -> Result<Predicate, SpecError> {
        let (is_not, is_group) = (self.is("!"), self.is("("));
        if !is_not && !is_group {
            return Ok(Predicate::Compare(self.comparison()?));
        }
        if self.depth == DEPTH {
            return self.error(format!("this is nested more than {DEPTH} deep"));
        }
        self.depth += 1;
        self.take()?;
        let term = if is_not { self.negated()? } else { self.group()? };
        self.depth -= 1;
        Ok(term)
    }

    /// Parses the operand of `!`.
    fn negated(&mut self) -> Result<Predicate, SpecError> {
        if self.is("!") || self.is("(") {
            return Ok(Predicate::Not(Box::new(self.term()?)));
        }
        let (path, ty) = self.typed_path()?;
        if self.operator().is_some() {
            // In C, `!a == b` means `(!a) == b`, which is rarely what was intended.
            return self.error("! takes a field without a comparison, or parentheses: !(a == b)");
        }
        Ok(Predicate::Not(Box::new(Predicate::Compare(is_not_zero(path, ty)))))
    }

    /// Parses the rest of a parenthesized predicate.
    fn group(&mut self) -> Result<Predicate, SpecError> {
        let group = self.any()?;
        self.expect(")", "expected &&, || or a closing parenthesis")?;
        match (self.operator(), &group) {
            (None, _) => Ok(group),
            (_, Predicate::Compare(one)) if one.operator == Operator::HasBits => self.error(MASKED),
            _ => self.error("join conditions with && or ||"),
        }
    }

    fn comparison(&mut self) -> Result<Comparison, SpecError> {
        let at = self.at;
        let value = match self.token {
            // No field has such a name.
            Token::Word(word) if word.starts_with('-') => Some(self.named()?),
            _ => self.literal()?,
        };
        let comparison = match value {
            Some(value) => self.swapped(value, At(at))?,
            None => self.unswapped()?,
        };
        if self.operator().is_some() {
            return self.error(match comparison.operator {
                Operator::HasBits => MASKED,
                _ => "join comparisons with && or ||",
            });
        }
        Ok(comparison)
    }

    /// Parses a comparison, or a field without one.
    fn unswapped(&mut self) -> Result<Comparison, SpecError> {
        if !matches!(self.token, Token::Word(_) | Token::Variable(_)) {
            return self.error("expected a condition, like count > 4096");
        }
        let (path, ty) = self.typed_path()?;
        let Some(operator) = self.operator() else {
            if self.is("=") {
                return self.error("a comparison is written ==, and one with a pattern ~");
            }
            return Ok(is_not_zero(path, ty));
        };
        let operator_at = self.at;
        self.take()?;
        let value_at = At(self.at);
        let value = match self.literal()? {
            Some(value) => value,
            None => self.named()?,
        };
        self.check_operator(operator, operator_at, &value)?;
        Ok(Comparison { path, ty, operator, value, value_at })
    }

    /// Parses the rest of a comparison whose left side is a value.
    fn swapped(&mut self, value: Operand, value_at: At) -> Result<Comparison, SpecError> {
        const FIELD: &str = "one side of a comparison has to be a field";
        let Some(operator) = self.operator() else {
            return self.error_at(value_at.0, FIELD);
        };
        self.check_operator(operator, self.at, &value)?;
        if matches!(operator, Operator::Like | Operator::NotLike) {
            return self.error("the pattern comes last, as in comm ~ \"ssh*\"");
        }
        self.take()?;
        if matches!(self.token, Token::Integer(_) | Token::Text(_)) {
            return self.error(FIELD);
        }
        let (path, ty) = self.typed_path()?;
        Ok(Comparison { path, ty, operator: swap(operator), value, value_at })
    }

    fn check_operator(
        &self,
        operator: Operator,
        at: usize,
        value: &Operand,
    ) -> Result<(), SpecError> {
        let is_text = matches!(value, Operand::Text(_));
        match operator {
            Operator::Like | Operator::NotLike if !is_text => {
                self.error_at(at, "~ compares a field with a pattern, as in comm ~ \"ssh*\"")
            }
            Operator::Equal | Operator::NotEqual | Operator::Like | Operator::NotLike => Ok(()),
            _ if is_text => self.error_at(at, "strings can be compared with ==, !=, ~ and !~ only"),
            _ => Ok(()),
        }
    }

    fn literal(&mut self) -> Result<Option<Operand>, SpecError> {
        let literal = match &mut self.token {
            Token::Integer(value) => Operand::Integer(*value),
            Token::Text(text) => Operand::Text(mem::take(text)),
            _ => return Ok(None),
        };
        self.take()?;
        Ok(Some(literal))
    }

    /// Parses the name of a constant or of a field, or another path. Constants may be in parentheses, as in `(A|B)`.
    fn named(&mut self) -> Result<Operand, SpecError> {
        if self.eat("(")? {
            let Token::Word(_) = self.token else {
                return self.error("expected the name of a constant");
            };
            let inner = self.named()?;
            self.expect(")", "expected | or a closing parenthesis")?;
            return Ok(inner);
        }
        let mut name = match self.token {
            Token::Word(word) if word.starts_with('-') => {
                self.take()?;
                word.to_owned()
            }
            Token::Word(_) | Token::Variable(_) => match self.typed_path()? {
                (FieldPath { base: FieldBase::Name(name), steps, .. }, None)
                    if steps.is_empty() =>
                {
                    name
                }
                (path, ty) => return Ok(Operand::Field(path, ty)),
            },
            _ => {
                return self.error(
                    "expected a number, a name or a string in double quotes; put the whole probe into single quotes",
                );
            }
        };
        while self.eat("|")? {
            name.push('|');
            match self.token {
                Token::Word(word) => name.push_str(word),
                // As in what is shown if a part has no name: `S_IFREG|0644`.
                Token::Integer(value @ 0..) => name.push_str(&value.to_string()),
                _ => return self.error("expected the name of a constant"),
            }
            self.take()?;
        }
        Ok(Operand::Name(name))
    }

    /// The operator that the next token is.
    fn operator(&self) -> Option<Operator> {
        let Token::Mark(mark) = self.token else { return None };
        use Operator::*;
        let ordered = [Less, LessOrEqual, Greater, GreaterOrEqual];
        let mut all = [Equal, NotEqual, HasBits, Like, NotLike].into_iter().chain(ordered);
        all.find(|operator| operator.to_string() == mark)
    }
}

/// About `flags & 3 == 1`.
pub(super) const MASKED: &str = "& tests for a common bit, and its result cannot be compared; for (a & 3) == 1, write \
                      a & 1 && !(a & 2)";

/// The comparison that a path without one stands for.
fn is_not_zero(path: FieldPath, ty: Option<FieldType>) -> Comparison {
    let value_at = path.at;
    Comparison { path, ty, operator: Operator::NotZero, value: Operand::Integer(0), value_at }
}

/// The operator that means the same with the operands swapped.
fn swap(operator: Operator) -> Operator {
    match operator {
        Operator::Less => Operator::Greater,
        Operator::LessOrEqual => Operator::GreaterOrEqual,
        Operator::Greater => Operator::Less,
        Operator::GreaterOrEqual => Operator::LessOrEqual,
        Operator::Equal
        | Operator::NotEqual
        | Operator::HasBits
        | Operator::Like
        | Operator::NotLike
        | Operator::NotZero => operator,
    }
}

/// The base of a path that starts with this word.
fn base_of(word: &str) -> Result<FieldBase, String> {
    match numbered(word) {
        _ if word == "retval" => Ok(FieldBase::Return),
        None => Ok(FieldBase::Name(word.to_owned())),
        Some(number) if number < fetch::base::RETVAL => Ok(FieldBase::Argument(number)),
        Some(_) => Err(format!("the arguments are arg0 to arg{}", fetch::base::RETVAL - 1)),
    }
}

/// What `$word` stands for: an argument or a built-in field.
fn variable(word: &str) -> Result<FieldBase, String> {
    if let Some(builtin) = Builtin::named(word) {
        return Ok(FieldBase::Builtin(builtin));
    }
    match numbered(word) {
        Some(0) => Err("$arg1 is the first argument; without the $, arg0 is".into()),
        Some(number) if number <= fetch::base::RETVAL => Ok(FieldBase::Position(number - 1)),
        Some(_) => Err(format!("the arguments are $arg1 to $arg{}", fetch::base::RETVAL)),
        None if word == "retval" => Err("retval is written without a $".into()),
        None => {
            let names = Builtin::ALL.map(|builtin| format!("${builtin}")).join(", ");
            Err(format!(
                "after a $, there is an argument's position, like $arg1, or one of {names}"
            ))
        }
    }
}

/// The number in `arg12`; 255 if it does not fit.
fn numbered(word: &str) -> Option<u8> {
    let digits = word.strip_prefix("arg")?;
    let is_number = digits.bytes().all(|digit| digit.is_ascii_digit())
        && (digits == "0" || !digits.starts_with('0'));
    if digits.is_empty() || !is_number {
        return None;
    }
    Some(digits.parse().unwrap_or(u8::MAX))
}

/// The type of this name, except `bytes[N]`.
fn simple_type(word: &str) -> Option<FieldType> {
    use FieldType::{Hex, Signed, Str, Symbol, Unsigned, Ustr};
    let integers = [8, 16, 32, 64].map(|bits| [Unsigned(bits), Signed(bits), Hex(bits)]);
    let all = integers.into_iter().flatten().chain([Str, Ustr, Symbol]);
    all.into_iter().find(|ty| ty.to_string() == word)
}
