//! The expressions in `print fmt`: a small part of C.

/// An expression. Everything that is not understood is [`Expression::Other`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expression<'t> {
    Number(u64),
    Text(String),
    /// `REC->name`.
    Field(&'t str),
    /// An enumerator that the kernel has not replaced by its number.
    Name(&'t str),
    /// A conversion to an integer type of this many bits, and whether that is signed.
    Cast(u32, bool, Box<Self>),
    Unary(&'static str, Box<Self>),
    Binary(&'static str, Box<[Self; 2]>),
    /// `a ? b : c`.
    Choice(Box<[Self; 3]>),
    /// A call of a macro.
    Call(&'t str, Vec<Self>),
    /// `{ a, b }`.
    List(Vec<Self>),
    Other,
}

/// A token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token<'t> {
    Word(&'t str),
    Number(u64),
    Text(String),
    Mark(&'static str),
}

/// A mark that starts with another mark comes before it.
const MARKS: [&str; 30] = [
    "->", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "(", ")", "{", "}", "[", "]", ",", "?",
    ":", ".", "<", ">", "&", "|", "^", "~", "!", "+", "-", "*", "/",
];

/// Operators with two operands, those that bind most tightly first.
const BINARY: [&[&str]; 10] = [
    &["*", "/"],
    &["+", "-"],
    &["<<", ">>"],
    &["<", ">", "<=", ">="],
    &["==", "!="],
    &["&"],
    &["^"],
    &["|"],
    &["&&"],
    &["||"],
];

/// How deeply expressions may nest.
const DEPTH: usize = 100;

/// Splits a text into tokens, up to the first thing that is none.
pub(super) fn tokens(text: &str) -> Vec<Token<'_>> {
    let (mut rest, mut tokens) = (text.trim_start(), Vec::new());
    while let Some((token, len)) = token(rest) {
        tokens.push(token);
        rest = rest[len..].trim_start();
    }
    tokens
}

fn token(text: &str) -> Option<(Token<'_>, usize)> {
    let is_of_word = |char: char| char.is_ascii_alphanumeric() || char == '_';
    let word = &text[..text.find(|char| !is_of_word(char)).unwrap_or(text.len())];
    match text.chars().next()? {
        '0'..='9' => Some((Token::Number(number(word)?), word.len())),
        '"' => string(text).map(|(string, len)| (Token::Text(string), len)),
        _ if !word.is_empty() => Some((Token::Word(word), word.len())),
        _ => {
            let mark = MARKS.iter().find(|mark| text.starts_with(**mark))?;
            Some((Token::Mark(mark), mark.len()))
        }
    }
}

/// `16`, `0x10UL`, `020`.
fn number(word: &str) -> Option<u64> {
    let digits = word.trim_end_matches(['u', 'U', 'l', 'L']);
    match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None if digits.len() > 1 && digits.starts_with('0') => u64::from_str_radix(digits, 8).ok(),
        None => digits.parse().ok(),
    }
}

/// A string at the start of a text, and its length there.
fn string(text: &str) -> Option<(String, usize)> {
    let (mut string, mut chars) = (String::new(), text.char_indices().skip(1));
    loop {
        match chars.next()? {
            (at, '"') => return Some((string, at + 1)),
            (_, '\\') => string.push(match chars.next()?.1 {
                'n' => '\n',
                't' => '\t',
                other => other,
            }),
            (_, char) => string.push(char),
        }
    }
}

/// Splits tokens at the commas that are not in brackets.
pub(super) fn arguments<'a, 't>(tokens: &'a [Token<'t>]) -> Vec<&'a [Token<'t>]> {
    let mut depth = 0_i32;
    let is_end = |token: &Token<'_>| {
        match token {
            Token::Mark("(" | "{" | "[") => depth += 1,
            Token::Mark(")" | "}" | "]") => depth -= 1,
            _ => {}
        }
        depth == 0 && *token == Token::Mark(",")
    };
    tokens.split(is_end).collect()
}

/// Parses an expression that consists of all these tokens.
pub(super) fn parse<'t>(tokens: &[Token<'t>]) -> Expression<'t> {
    let mut parser = Parser { tokens, depth: 0 };
    match parser.choice() {
        Some(expression) if parser.tokens.is_empty() => expression,
        _ => Expression::Other,
    }
}

struct Parser<'a, 't> {
    /// What follows.
    tokens: &'a [Token<'t>],
    depth: usize,
}

impl<'t> Parser<'_, 't> {
    fn eat(&mut self, mark: &str) -> Option<()> {
        match self.tokens {
            [Token::Mark(next), rest @ ..] if *next == mark => {
                self.tokens = rest;
                Some(())
            }
            _ => None,
        }
    }

    fn choice(&mut self) -> Option<Expression<'t>> {
        self.depth += 1;
        if self.depth > DEPTH {
            return None;
        }
        let mut expression = self.binary(BINARY.len())?;
        if self.eat("?").is_some() {
            let then = self.choice()?;
            self.eat(":")?;
            expression = Expression::Choice(Box::new([expression, then, self.choice()?]));
        }
        self.depth -= 1;
        Some(expression)
    }

    /// Parses operators of the first `levels` levels.
    fn binary(&mut self, levels: usize) -> Option<Expression<'t>> {
        let Some((operators, _)) = BINARY[..levels].split_last() else { return self.unary() };
        let mut left = self.binary(levels - 1)?;
        while let [Token::Mark(mark), rest @ ..] = self.tokens
            && operators.contains(mark)
        {
            self.tokens = rest;
            let right = self.binary(levels - 1)?;
            left = Expression::Binary(mark, Box::new([left, right]));
        }
        Some(left)
    }

    fn unary(&mut self) -> Option<Expression<'t>> {
        self.depth += 1;
        if self.depth > DEPTH {
            return None;
        }
        let expression = match self.tokens {
            [Token::Mark(mark @ ("!" | "~" | "-" | "&" | "*")), rest @ ..] => {
                self.tokens = rest;
                Expression::Unary(mark, Box::new(self.unary()?))
            }
            [Token::Mark("("), rest @ ..] => match cast(rest) {
                Some((bits, is_signed, len)) => {
                    self.tokens = &rest[len..];
                    Expression::Cast(bits, is_signed, Box::new(self.unary()?))
                }
                None => {
                    self.tokens = rest;
                    let inner = self.choice()?;
                    self.eat(")")?;
                    inner
                }
            },
            _ => self.operand()?,
        };
        self.depth -= 1;
        Some(expression)
    }

    fn operand(&mut self) -> Option<Expression<'t>> {
        let (first, rest) = self.tokens.split_first()?;
        self.tokens = rest;
        Some(match first {
            Token::Number(number) => Expression::Number(*number),
            Token::Text(text) => {
                let mut whole = text.clone();
                while let [Token::Text(more), rest @ ..] = self.tokens {
                    whole.push_str(more);
                    self.tokens = rest;
                }
                Expression::Text(whole)
            }
            Token::Word("REC") => {
                self.eat("->")?;
                let [Token::Word(name), rest @ ..] = self.tokens else { return None };
                self.tokens = rest;
                if matches!(self.tokens, [Token::Mark("[" | "." | "->"), ..]) {
                    return None;
                }
                Expression::Field(name)
            }
            Token::Word(name) if self.eat("(").is_some() => Expression::Call(name, self.list(")")?),
            Token::Word(name) => Expression::Name(name),
            Token::Mark("{") => Expression::List(self.list("}")?),
            Token::Mark(_) => return None,
        })
    }

    fn list(&mut self, end: &str) -> Option<Vec<Expression<'t>>> {
        let mut list = Vec::new();
        while self.eat(end).is_none() {
            list.push(self.choice()?);
            if self.eat(",").is_none() {
                self.eat(end)?;
                break;
            }
        }
        Some(list)
    }
}

/// The type in a cast, after its first bracket: its bits, whether it is signed, and the number of its tokens.
fn cast(tokens: &[Token<'_>]) -> Option<(u32, bool, usize)> {
    let end = tokens.iter().position(|token| *token == Token::Mark(")"))?;
    let mut words = Vec::new();
    let mut is_pointer = false;
    for token in &tokens[..end] {
        match token {
            Token::Word(word) => words.push(*word),
            Token::Mark("*") => is_pointer = true,
            _ => return None,
        }
    }
    let is_type = |word: &&str| {
        const WORDS: [&str; 17] = [
            "unsigned", "signed", "int", "long", "short", "char", "void", "const", "struct",
            "enum", "bool", "uint", "u8", "u16", "u32", "u64", "s64",
        ];
        WORDS.contains(word) || word.ends_with("_t") || word.starts_with("__u")
    };
    if !words.first().is_some_and(is_type) {
        return None;
    }
    let has = |names: &[&str]| words.iter().any(|word| names.contains(word));
    let is_signed = !has(&["unsigned"]);
    let (bits, is_signed) = match () {
        () if is_pointer || has(&["long"]) => (64, false),
        () if has(&["u8", "__u8", "bool"]) => (8, false),
        () if has(&["char"]) => (8, is_signed),
        () if has(&["u16", "__u16"]) => (16, false),
        () if has(&["short"]) => (16, is_signed),
        () if has(&["u32", "__u32", "uint"]) => (32, false),
        () if has(&["int", "unsigned", "signed"]) => (32, is_signed),
        () => (64, false),
    };
    Some((bits, is_signed, end + 1))
}

impl Expression<'_> {
    /// The value of a constant. `name` has the values of enumerators.
    pub(super) fn constant(&self, name: &mut dyn FnMut(&str) -> Option<u64>) -> Option<u64> {
        Some(match self {
            Self::Number(number) => *number,
            Self::Name(own) => name(own)?,
            Self::Cast(bits, is_signed, inner) => {
                let value = inner.constant(name)? << (64 - bits);
                match is_signed {
                    true => (value.cast_signed() >> (64 - bits)).cast_unsigned(),
                    false => value >> (64 - bits),
                }
            }
            Self::Unary(operator, inner) => {
                let value = inner.constant(name)?;
                match *operator {
                    "~" => !value,
                    "-" => value.wrapping_neg(),
                    "!" => u64::from(value == 0),
                    _ => return None,
                }
            }
            Self::Binary(operator, operands) => {
                let (left, right) = (operands[0].constant(name)?, operands[1].constant(name)?);
                let shift = u32::try_from(right).ok();
                match *operator {
                    "*" => left.wrapping_mul(right),
                    "/" => left.checked_div(right)?,
                    "+" => left.wrapping_add(right),
                    "-" => left.wrapping_sub(right),
                    "<<" => left.checked_shl(shift?)?,
                    ">>" => left.checked_shr(shift?)?,
                    "&" => left & right,
                    "|" => left | right,
                    "^" => left ^ right,
                    _ => return None,
                }
            }
            Self::Choice(parts) => {
                let [condition, then, otherwise] = &**parts;
                let which = if condition.constant(name)? != 0 { then } else { otherwise };
                which.constant(name)?
            }
            _ => return None,
        })
    }

    /// Adds the fields that the expression reads. Fails if it has parts that are not understood.
    pub(super) fn fields<'e>(&'e self, fields: &mut Vec<&'e str>) -> Option<()> {
        match self {
            Self::Field(name) if fields.contains(name) => {}
            Self::Field(name) => fields.push(name),
            Self::Cast(_, _, inner) | Self::Unary(_, inner) => inner.fields(fields)?,
            Self::Binary(_, operands) => operands.iter().try_for_each(|one| one.fields(fields))?,
            Self::Choice(parts) => parts.iter().try_for_each(|one| one.fields(fields))?,
            Self::Call(_, parts) | Self::List(parts) => {
                parts.iter().try_for_each(|one| one.fields(fields))?;
            }
            Self::Number(_) | Self::Text(_) | Self::Name(_) => {}
            Self::Other => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Option<u64> {
        parse(&tokens(text)).constant(&mut |name| (name == "SEVEN").then_some(7))
    }

    #[test]
    fn constants_have_their_values() {
        for (text, expected) in [
            ("1 + 2 * 3", Some(7)),
            ("(1U << 20) - 1", Some(0xf_ffff)),
            ("((((0x0000 | 0x1 | 0x40) + 1) << 1) - 1)", Some(0x83)),
            ("( gfp_t)(((((1UL))) << (10))|((((1UL))) << (11)))", Some(0xc00)),
            ("7 & ~(( gfp_t)2)", Some(5)),
            ("-1", Some(u64::MAX)),
            ("(unsigned int)-1", Some(0xffff_ffff)),
            ("(int)0xffffffff", Some(u64::MAX)),
            ("1 ? 010 : 2", Some(8)),
            ("SEVEN | 8", Some(15)),
            ("EIGHT | 8", None),
            ("REC->x", None),
            ("1 << 64", None),
            ("1 / 0", None),
            ("1 +", None),
            ("", None),
            (&"(".repeat(200), None),
            (&"-".repeat(200), None),
        ] {
            assert_eq!(value(text), expected, "{text}");
        }
    }

    #[test]
    fn calls_and_lists_are_understood() {
        use Expression::{Call, Field, List, Number, Text};
        let call = parse(&tokens(r#"f(REC->a, "|" "\"", { 1, "x" }, {2, "y"})"#));
        let entry = |n, text: &str| List(vec![Number(n), Text(text.to_owned())]);
        let expected = vec![Field("a"), Text("|\"".to_owned()), entry(1, "x"), entry(2, "y")];
        assert_eq!(call, Call("f", expected));
        let mut fields = Vec::new();
        assert_eq!(call.fields(&mut fields), Some(()));
        assert_eq!(fields, ["a"]);
        for text in ["REC->a[0]", "REC->a.b", "f(", "{1", "REC", "a b"] {
            assert_eq!(parse(&tokens(text)), Expression::Other, "{text}");
        }
    }
}
