//! The fields and the predicate of a spec: `[(FIELD,...)][/PREDICATE/]`.

use super::error::SpecError;
use super::field::{At, FieldBase, FieldPath, FieldSpec, FieldType, PathStep};
use super::lexer::{Lexer, Token};
use super::predicate::{Comparison, Literal, Operator, Predicate};
use probe_common::fetch;
use std::mem;

/// How deep parentheses and `!` may be in each other.
const DEPTH: usize = 32;

/// Fields, if any were given, and the predicate, if there is one.
pub(super) type Body = (Option<Vec<FieldSpec>>, Option<Predicate>);

/// Reads what comes in a spec from `at` on.
pub(super) fn body(spec: &str, at: usize) -> Result<Body, SpecError> {
    let mut parser = Parser::new(spec, at)?;
    let fields = if parser.eat("(")? { Some(parser.fields()?) } else { None };
    let predicate = if parser.eat("/")? { Some(parser.predicate()?) } else { None };
    match (&parser.token, &predicate) {
        (Token::End, _) => Ok((fields, predicate)),
        (_, Some(_)) => parser.error("nothing comes behind a predicate"),
        _ => parser.error("only a predicate may come here: /.../"),
    }
}

struct Parser<'s> {
    spec: &'s str,
    lexer: Lexer<'s>,
    /// What comes next.
    token: Token<'s>,
    /// Where it begins.
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
        Err(SpecError::new(self.spec, self.at, what))
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
        let mut names: Vec<String> = Vec::new();
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
            if names.contains(&name) {
                let what = format!("two fields are called `{name}`: give one another name, NAME=");
                return Err(SpecError::new(self.spec, at, what));
            }
            names.push(name);
            fields.push(field);
            if self.eat(")")? {
                return Ok(fields);
            }
            self.expect(",", "a comma or a closing parenthesis has to come here")?;
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
        let (ty, ty_at) = self.ty()?;
        Ok(FieldSpec { name, path, ty, ty_at })
    }

    /// What a path starts with.
    fn base(&mut self) -> Result<FieldBase, SpecError> {
        let base = match self.token {
            Token::Word(word) => base_of(word),
            Token::Variable(word) => variable(word),
            _ => Err("a field has to come here: a name, arg0 or retval".into()),
        };
        let base = base.or_else(|what| self.error(what))?;
        self.take()?;
        Ok(base)
    }

    fn path(&mut self) -> Result<FieldPath, SpecError> {
        let at = self.at;
        let base = self.base()?;
        self.steps(base, at)
    }

    fn steps(&mut self, base: FieldBase, at: usize) -> Result<FieldPath, SpecError> {
        let mut steps = Vec::new();
        loop {
            if self.eat(".")? || self.eat("->")? {
                let Some(member) = self.word() else {
                    return self.error("the name of a member has to come here");
                };
                steps.push((PathStep::Member(member.to_owned()), At(self.at)));
                self.take()?;
            } else if self.eat("[")? {
                let at = At(self.at);
                let index = match self.token {
                    Token::Integer(index) => u32::try_from(index).ok(),
                    _ => None,
                };
                let Some(index) = index else {
                    return self.error("the number of an element has to come here, from 0 on");
                };
                self.take()?;
                steps.push((PathStep::Index(index), at));
                self.expect("]", "a closing bracket has to come here")?;
            } else {
                return Ok(FieldPath { base, at: At(at), steps });
            }
        }
    }

    /// The type behind a path, and where it stands.
    fn ty(&mut self) -> Result<(Option<FieldType>, At), SpecError> {
        if !self.eat(":")? {
            return Ok((None, At(self.at)));
        }
        const TYPES: &str = "u8 to u64, s8 to s64, x8 to x64, str, ustr, sym, bytes[N]";
        let at = At(self.at);
        let Some(word) = self.word() else {
            return self.error(format!("a type has to come here: {TYPES}"));
        };
        let ty = match word {
            "bytes" => {
                self.take()?;
                FieldType::Bytes(self.length()?)
            }
            _ => match simple_type(word) {
                Some(ty) => {
                    self.take()?;
                    ty
                }
                None => return self.error(format!("there is no type `{word}`: {TYPES}")),
            },
        };
        Ok((Some(ty), at))
    }

    /// The `[N]` of `bytes[N]`.
    fn length(&mut self) -> Result<u16, SpecError> {
        let what = format!("how many bytes? bytes[1] to bytes[{}]", fetch::LONGEST);
        self.expect("[", &what)?;
        let length = match self.token {
            Token::Integer(length) => u16::try_from(length).ok(),
            _ => None,
        };
        let length = length.filter(|&length| (1..=fetch::LONGEST).contains(&length.into()));
        let Some(length) = length else { return self.error(what) };
        self.take()?;
        self.expect("]", "a closing bracket has to come here")?;
        Ok(length)
    }

    /// A predicate, and the `/` that ends it.
    fn predicate(&mut self) -> Result<Predicate, SpecError> {
        let predicate = self.any()?;
        self.expect("/", "&&, || or the / at a predicate's end has to come here")?;
        Ok(predicate)
    }

    fn any(&mut self) -> Result<Predicate, SpecError> {
        let first = self.all()?;
        if !self.is("||") {
            return Ok(first);
        }
        let mut terms = vec![first];
        while self.eat("||")? {
            terms.push(self.all()?);
        }
        Ok(Predicate::Any(terms))
    }

    fn all(&mut self) -> Result<Predicate, SpecError> {
        let first = self.term()?;
        if !self.is("&&") {
            return Ok(first);
        }
        let mut terms = vec![first];
        while self.eat("&&")? {
            terms.push(self.term()?);
        }
        Ok(Predicate::All(terms))
    }

    fn term(&mut self) -> Result<Predicate, SpecError> {
        let (is_not, is_group) = (self.is("!"), self.is("("));
        if !is_not && !is_group {
            return Ok(Predicate::Compare(self.comparison()?));
        }
        if self.depth == DEPTH {
            return self.error(format!("this is in more than {DEPTH} others"));
        }
        self.depth += 1;
        self.take()?;
        let term = if is_not { self.negated()? } else { self.group()? };
        self.depth -= 1;
        Ok(term)
    }

    /// What comes behind a `!`.
    fn negated(&mut self) -> Result<Predicate, SpecError> {
        if self.is("!") || self.is("(") {
            return Ok(Predicate::Not(Box::new(self.term()?)));
        }
        let path = self.path()?;
        let (ty, _) = self.ty()?;
        if self.operator().is_some() {
            // In C, `!a == b` is something else than it seems to be.
            return self.error("! comes before a field alone, or before parentheses: !(a == b)");
        }
        Ok(Predicate::Not(Box::new(Predicate::Compare(is_not_zero(path, ty)))))
    }

    /// What comes behind a `(`.
    fn group(&mut self) -> Result<Predicate, SpecError> {
        let group = self.any()?;
        self.expect(")", "&&, || or a closing parenthesis has to come here")?;
        Ok(group)
    }

    fn comparison(&mut self) -> Result<Comparison, SpecError> {
        let at = self.at;
        let comparison = match self.literal()? {
            Some(value) => self.turned(value, At(at))?,
            None => self.straight()?,
        };
        if self.operator().is_some() {
            return self.error("comparisons are joined by && and ||");
        }
        Ok(comparison)
    }

    /// A field, and what it is compared with, if with anything.
    fn straight(&mut self) -> Result<Comparison, SpecError> {
        if !matches!(self.token, Token::Word(_) | Token::Variable(_)) {
            return self.error("a condition has to come here, like count > 4096");
        }
        let path = self.path()?;
        let (ty, _) = self.ty()?;
        let Some(operator) = self.operator() else {
            if self.is("=") {
                return self.error("to compare is written ==");
            }
            return Ok(is_not_zero(path, ty));
        };
        let operator_at = self.at;
        self.take()?;
        let value_at = At(self.at);
        let value = match self.literal()? {
            Some(value) => value,
            None => Literal::Name(self.enumerator()?),
        };
        self.check_operator(operator, operator_at, &value)?;
        Ok(Comparison { path, ty, operator, value, value_at })
    }

    /// What comes behind a value on the left.
    fn turned(&mut self, value: Literal, value_at: At) -> Result<Comparison, SpecError> {
        const FIELD: &str = "one side of a comparison has to be a field";
        let Some(operator) = self.operator() else {
            return Err(SpecError::new(self.spec, value_at.0, FIELD));
        };
        self.check_operator(operator, self.at, &value)?;
        self.take()?;
        if matches!(self.token, Token::Integer(_) | Token::Text(_)) {
            return self.error(FIELD);
        }
        let path = self.path()?;
        let (ty, _) = self.ty()?;
        Ok(Comparison { path, ty, operator: turn(operator), value, value_at })
    }

    fn check_operator(
        &self,
        operator: Operator,
        at: usize,
        value: &Literal,
    ) -> Result<(), SpecError> {
        match (operator, value) {
            (Operator::Equal | Operator::NotEqual, _) => Ok(()),
            (_, Literal::Text(_)) => {
                Err(SpecError::new(self.spec, at, "strings are compared by == and != alone"))
            }
            _ => Ok(()),
        }
    }

    fn literal(&mut self) -> Result<Option<Literal>, SpecError> {
        let literal = match &mut self.token {
            Token::Integer(value) => Literal::Integer(*value),
            Token::Text(text) => Literal::Text(mem::take(text)),
            _ => return Ok(None),
        };
        self.take()?;
        Ok(Some(literal))
    }

    /// A name that is no field.
    fn enumerator(&mut self) -> Result<String, SpecError> {
        const TWO: &str = "a field is compared with a number, a string or the name of an enumerator, \
                           not with another field";
        let at = self.at;
        let name = match self.token {
            Token::Word(word) => match base_of(word) {
                Ok(FieldBase::Name(name)) => name,
                _ => return self.error(TWO),
            },
            Token::Variable(_) => return self.error(TWO),
            _ => return self.error("a number, a string or a name has to come here"),
        };
        self.take()?;
        if [".", "->", "[", ":"].iter().any(|mark| self.is(mark)) {
            return Err(SpecError::new(self.spec, at, TWO));
        }
        Ok(name)
    }

    /// The operator that comes next.
    fn operator(&self) -> Option<Operator> {
        let Token::Mark(mark) = self.token else { return None };
        Some(match mark {
            "==" => Operator::Equal,
            "!=" => Operator::NotEqual,
            "<" => Operator::Less,
            "<=" => Operator::LessOrEqual,
            ">" => Operator::Greater,
            ">=" => Operator::GreaterOrEqual,
            "&" => Operator::HasBits,
            _ => return None,
        })
    }
}

/// What a path alone means.
fn is_not_zero(path: FieldPath, ty: Option<FieldType>) -> Comparison {
    let value_at = path.at;
    Comparison { path, ty, operator: Operator::NotEqual, value: Literal::Integer(0), value_at }
}

/// The operator, once the sides have changed places.
fn turn(operator: Operator) -> Operator {
    match operator {
        Operator::Less => Operator::Greater,
        Operator::LessOrEqual => Operator::GreaterOrEqual,
        Operator::Greater => Operator::Less,
        Operator::GreaterOrEqual => Operator::LessOrEqual,
        Operator::Equal | Operator::NotEqual | Operator::HasBits => operator,
    }
}

/// What a path that starts with this word starts with.
fn base_of(word: &str) -> Result<FieldBase, String> {
    match numbered(word) {
        _ if word == "retval" => Ok(FieldBase::Return),
        None => Ok(FieldBase::Name(word.to_owned())),
        Some(number) if number < fetch::base::RETVAL => Ok(FieldBase::Argument(number)),
        Some(_) => Err(format!("there are arg0 to arg{}", fetch::base::RETVAL - 1)),
    }
}

/// The argument that `$word` is.
fn variable(word: &str) -> Result<FieldBase, String> {
    match numbered(word) {
        Some(0) => Err("$arg1 is the first argument; without the $, arg0 is".into()),
        Some(number) if number <= fetch::base::RETVAL => Ok(FieldBase::Argument(number - 1)),
        Some(_) => Err(format!("there are $arg1 to $arg{}", fetch::base::RETVAL)),
        None => Err("a $ comes before the number of an argument alone, like $arg1".into()),
    }
}

/// The number in `arg12`; what is too much for any argument is 255.
fn numbered(word: &str) -> Option<u8> {
    let digits = word.strip_prefix("arg")?;
    let is_number = digits.bytes().all(|digit| digit.is_ascii_digit())
        && (digits == "0" || !digits.starts_with('0'));
    if digits.is_empty() || !is_number {
        return None;
    }
    Some(digits.parse().unwrap_or(u8::MAX))
}

fn simple_type(word: &str) -> Option<FieldType> {
    match word {
        "str" => return Some(FieldType::Str),
        "ustr" => return Some(FieldType::Ustr),
        "sym" => return Some(FieldType::Symbol),
        _ => {}
    }
    let (sort, bits) = word.split_at_checked(1)?;
    let bits = match bits {
        "8" => 8,
        "16" => 16,
        "32" => 32,
        "64" => 64,
        _ => return None,
    };
    match sort {
        "u" => Some(FieldType::Unsigned(bits)),
        "s" => Some(FieldType::Signed(bits)),
        "x" => Some(FieldType::Hex(bits)),
        _ => None,
    }
}
