//! The tokens of fields and predicates.

use super::error::SpecError;

/// A token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token<'s> {
    /// A name, or a negative constant: `-ENOENT`.
    Word(&'s str),
    /// A name after a `$`.
    Variable(&'s str),
    /// A number or a character.
    Integer(i128),
    /// A string.
    Text(Vec<u8>),
    /// Punctuation: one of [`MARKS`].
    Mark(&'static str),
    /// The end of the spec.
    End,
}

/// A mark that starts with another mark comes before it.
const MARKS: [&str; 23] = [
    "->", "==", "!=", "!~", "<=", ">=", "&&", "||", "(", ")", "[", "]", ",", "=", ":", ".", "<",
    ">", "&", "|", "!", "~", "/",
];

/// Splits a spec into tokens.
pub(super) struct Lexer<'s> {
    spec: &'s str,
    at: usize,
}

impl<'s> Lexer<'s> {
    /// Starts at a byte offset.
    pub(super) fn new(spec: &'s str, at: usize) -> Self {
        Self { spec, at }
    }

    /// The position behind the last token.
    pub(super) fn position(&self) -> usize {
        self.at
    }

    /// The next token and its position.
    pub(super) fn next(&mut self) -> Result<(Token<'s>, usize), SpecError> {
        self.at = self.spec.len() - self.rest().trim_ascii_start().len();
        let (at, rest) = (self.at, self.rest());
        let Some(first) = rest.chars().next() else { return Ok((Token::End, at)) };
        let token = match first {
            'a'..='z' | 'A'..='Z' | '_' => Token::Word(self.word()),
            '$' => {
                self.at += 1;
                Token::Variable(self.word())
            }
            '0'..='9' => Token::Integer(self.number()?.into()),
            '-' if rest[1..].starts_with(|char: char| char.is_ascii_digit()) => {
                self.at += 1;
                let value = -i128::from(self.number()?);
                if value < i64::MIN.into() {
                    return self.error(at, "this number is too small for 64 bits");
                }
                Token::Integer(value)
            }
            '-' if rest[1..].starts_with(|char: char| char.is_ascii_uppercase()) => {
                let word = &rest[..1 + word_length(&rest[1..])];
                self.at += word.len();
                Token::Word(word)
            }
            '"' => Token::Text(self.text()?),
            '\'' => Token::Integer(self.char()?.into()),
            _ => match MARKS.iter().find(|mark| rest.starts_with(**mark)) {
                Some(mark) => {
                    self.at += mark.len();
                    Token::Mark(mark)
                }
                None => return self.error(at, "unexpected character"),
            },
        };
        Ok((token, at))
    }

    fn error<T>(&self, at: usize, what: impl Into<String>) -> Result<T, SpecError> {
        Err(SpecError::new(self.spec, at, what))
    }

    fn rest(&self) -> &'s str {
        &self.spec[self.at..]
    }

    fn word(&mut self) -> &'s str {
        let rest = self.rest();
        let word = &rest[..word_length(rest)];
        self.at += word.len();
        word
    }

    fn number(&mut self) -> Result<u64, SpecError> {
        let (value, length) = number(self.rest()).or_else(|what| self.error(self.at, what))?;
        self.at += length;
        Ok(value)
    }

    fn text(&mut self) -> Result<Vec<u8>, SpecError> {
        let start = self.at;
        self.at += 1;
        let mut text = Vec::new();
        loop {
            let at = self.at;
            match self.piece()? {
                None => return self.error(start, "this string is not closed"),
                Some(Piece::Plain('"')) => return Ok(text),
                Some(Piece::Plain('\0')) => {
                    return self.error(at, "in a string, a zero byte is written \\0");
                }
                Some(Piece::Plain(char)) => {
                    text.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
                }
                Some(Piece::Escape(byte)) => text.push(byte),
            }
        }
    }

    fn char(&mut self) -> Result<u8, SpecError> {
        let start = self.at;
        self.at += 1;
        let byte = match self.piece()? {
            Some(Piece::Escape(byte)) => Some(byte),
            Some(Piece::Plain(char)) if char.is_ascii() && char != '\'' => Some(char as u8),
            _ => None,
        };
        match byte {
            Some(byte) if matches!(self.piece()?, Some(Piece::Plain('\''))) => Ok(byte),
            _ => self.error(
                start,
                "a character is one byte, like 'a' or '\\n'; a string is in double quotes",
            ),
        }
    }

    /// The next character of a string.
    fn piece(&mut self) -> Result<Option<Piece>, SpecError> {
        let (at, mut chars) = (self.at, self.rest().chars());
        let Some(first) = chars.next() else { return Ok(None) };
        self.at += first.len_utf8();
        if first != '\\' {
            return Ok(Some(Piece::Plain(first)));
        }
        let Some(second) = chars.next() else { return Ok(None) };
        self.at += second.len_utf8();
        let byte = match second {
            '0' if self.rest().starts_with(|char: char| char.is_ascii_digit()) => {
                return self.error(
                    at,
                    "\\0 is a zero byte; any other is written \\x and two hexadecimal digits",
                );
            }
            '0' => 0,
            'a' => 0x07,
            'b' => 0x08,
            'e' => 0x1b,
            'f' => 0x0c,
            'n' => b'\n',
            'r' => b'\r',
            't' => b'\t',
            'v' => 0x0b,
            '\\' | '"' | '\'' => second as u8,
            'x' => {
                let digits = self.rest().get(..2).unwrap_or_default();
                let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
                match u8::from_str_radix(digits, 16) {
                    Ok(byte) if is_hex => {
                        self.at += 2;
                        byte
                    }
                    _ => return self.error(at, "\\x is followed by two hexadecimal digits"),
                }
            }
            _ => {
                return self.error(
                    at,
                    "unknown escape; use one of \\a \\b \\e \\f \\n \\r \\t \\v \\0 \\\\ \\\" \\' \\xNN",
                );
            }
        };
        Ok(Some(Piece::Escape(byte)))
    }
}

/// One character of a string.
enum Piece {
    Plain(char),
    Escape(u8),
}

fn word_length(text: &str) -> usize {
    let is_of_word = |char: char| char.is_ascii_alphanumeric() || char == '_';
    text.find(|char| !is_of_word(char)).unwrap_or(text.len())
}

/// Parses the number at the start of a text: 16, 0x10, 0o20 or 020, 0b10000. Returns its value and its length in bytes.
pub(super) fn number(text: &str) -> Result<(u64, usize), &'static str> {
    let word = &text[..word_length(text)];
    let prefixed = |prefixes: [&str; 2]| prefixes.iter().find_map(|one| word.strip_prefix(one));
    let (digits, radix, what) = if let Some(digits) = prefixed(["0x", "0X"]) {
        (digits, 16, "invalid hexadecimal number")
    } else if let Some(digits) = prefixed(["0b", "0B"]) {
        (digits, 2, "invalid binary number: its digits are 0 and 1")
    } else if let Some(digits) = prefixed(["0o", "0O"]) {
        (digits, 8, "invalid octal number: its digits are 0 to 7")
    } else if word.len() > 1 && word.starts_with('0') {
        (&word[1..], 8, "a number that starts with 0 is octal: its digits are 0 to 7")
    } else {
        (word, 10, "invalid number")
    };
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        const UNITS: [&str; 8] = ["ns", "us", "ms", "s", "k", "K", "M", "G"];
        let has_unit = UNITS.contains(&word.trim_start_matches(|char: char| char.is_ascii_digit()));
        return Err(match has_unit {
            true => {
                "a number has no unit here: durations are in nanoseconds, so 1ms is 1000000, and sizes in bytes"
            }
            false => what,
        });
    }
    let value = u64::from_str_radix(digits, radix);
    Ok((value.map_err(|_| "this number is too large for 64 bits")?, word.len()))
}

/// Parses a text that is a number.
pub(crate) fn whole_number(text: &str) -> Option<u64> {
    let (value, length) = number(text).ok()?;
    (length == text.len()).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Result<Vec<Token<'_>>, SpecError> {
        let mut lexer = Lexer::new(text, 0);
        let mut tokens = Vec::new();
        loop {
            match lexer.next()?.0 {
                Token::End => return Ok(tokens),
                token => tokens.push(token),
            }
        }
    }

    #[test]
    fn numbers_are_written_as_in_c() {
        for (text, value) in [
            ("0", 0),
            ("16", 16),
            ("0x1F", 31),
            ("0X1f", 31),
            ("0o17", 15),
            ("017", 15),
            ("00", 0),
            ("0b101", 5),
            ("-1", -1),
            ("-0x10", -16),
            ("18446744073709551615", u64::MAX.into()),
            ("-9223372036854775808", i64::MIN.into()),
            ("'a'", 97),
            ("'\\''", 39),
            ("'\\x7f'", 127),
            ("'\\0'", 0),
            ("'\"'", 34),
        ] {
            assert_eq!(tokens(text), Ok(vec![Token::Integer(value)]), "{text}");
        }
        for text in ["0x", "0b2", "08", "0o8", "1a", "1_000", "18446744073709551616", "''", "'ab'"]
        {
            assert!(tokens(text).is_err(), "{text}");
        }
        for text in ["-9223372036854775809", "'ä'", "'", "'a", "'\\", "- 1"] {
            assert!(tokens(text).is_err(), "{text}");
        }
    }

    #[test]
    fn strings_are_bytes() {
        for (text, bytes) in [
            (r#""""#, &b""[..]),
            (r#""dd""#, b"dd"),
            (r#""\0d\0""#, b"\0d\0"),
            (r#""a\"b\\\n\x1b\xFF/""#, b"a\"b\\\n\x1b\xff/"),
            ("\"größe\n\"", "größe\n".as_bytes()),
        ] {
            assert_eq!(tokens(text), Ok(vec![Token::Text(bytes.to_vec())]), "{text}");
        }
        for text in [
            "\"",
            "\"a",
            "\"\\",
            "\"\\q\"",
            "\"\\x\"",
            "\"\\x1\"",
            "\"\\x+1\"",
            "\"a\0\"",
            "\"\\012\"",
        ] {
            assert!(tokens(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_longest_mark_is_taken() {
        use Token::{Integer, Mark, Variable, Word};
        let text = "a->b<-1 >=&&&$c1!!=";
        let expected = [
            Word("a"),
            Mark("->"),
            Word("b"),
            Mark("<"),
            Integer(-1),
            Mark(">="),
            Mark("&&"),
            Mark("&"),
            Variable("c1"),
            Mark("!"),
            Mark("!="),
        ];
        assert_eq!(tokens(text).unwrap(), expected);
    }
}
