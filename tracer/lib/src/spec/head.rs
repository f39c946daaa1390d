//! The head of a spec, which names the hook: `[PROVIDER:][MODULE:]NAME[+OFFSET]`.

use super::error::SpecError;
use super::lexer::{Lexer, Token};
use super::provider::{COMPAT, Form, Provider};
use std::borrow::Cow;

/// What the name of a hook is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum NameKind {
    /// The name itself.
    Plain,
    /// A pattern, which selects every name that matches.
    Pattern,
    /// The address of an instruction, in a file or in the kernel.
    Address(u64),
}
use super::{foreign, lexer};

/// The hook that a spec names.
pub(super) struct Head<'s> {
    pub(super) provider: Provider,
    /// Whether the spec names its provider.
    pub(super) names_provider: bool,
    pub(super) module: Option<Cow<'s, str>>,
    pub(super) name: Cow<'s, str>,
    pub(super) kind: NameKind,
    pub(super) offset: u64,
    /// Where the head ends, in bytes from the start of the spec.
    pub(super) end: usize,
}

/// The characters that make a name a pattern.
const WILD: [char; 3] = ['*', '?', '['];

const SYSTEM_CALL: &str =
    "a system call is written ksyscall:NAME, or ksyscall:ia32:NAME for 32-bit calls only";
const BLANK: &str = "kernel names contain no spaces; fields and a condition follow as in NAME(FIELD, FIELD)/FIELD > 0/";
const SEVERAL: &str = "give each probe as a separate argument: PROBE PROBE";
const TRACEPOINT: &str = "a tracepoint is written tracepoint:CATEGORY:NAME";

/// Parses the head of a spec.
pub(super) fn read(spec: &str) -> Result<Head<'_>, SpecError> {
    let mut reader = Reader { spec, at: 0, provider: Provider::DEFAULT };
    if let Some((at, answer)) = foreign::spec(spec) {
        reader.at = at;
        return reader.error(answer);
    }
    reader.provider()?;
    let names_provider = reader.at > 0;
    let (mut module, mut start) = (None, reader.at);
    let mut quoted = None;
    match reader.provider.form() {
        Form::InFile => {
            module = Some(reader.file()?);
            start = reader.at;
            quoted = reader.quoted()?;
            if quoted.is_none() {
                reader.name()?;
            }
        }
        Form::InCategory => {
            reader.pattern()?;
            let is_pattern = spec[start..reader.at].contains(WILD);
            if reader.at == start || !(reader.eat(':') || is_pattern) {
                return reader.error(TRACEPOINT);
            }
            let name = reader.at;
            reader.pattern()?;
            if reader.at == name && !is_pattern {
                return reader.error(TRACEPOINT);
            }
        }
        Form::OfCall => {
            reader.name()?;
            if reader.peek() == Some(':') {
                if spec[start..reader.at] != *COMPAT {
                    reader.at = start;
                    return reader.error(SYSTEM_CALL);
                }
                reader.eat(':');
                reader.name()?;
            }
        }
        form @ (Form::Name | Form::InModule) => {
            reader.name()?;
            if form == Form::InModule && reader.peek() == Some(':') {
                let before = &spec[start..reader.at];
                if let Some(at) = before.find(WILD) {
                    reader.at = start + at;
                    return reader.error("a module cannot be a pattern");
                }
                module = Some(before.into());
                reader.eat(':');
                start = reader.at;
                reader.name()?;
            }
        }
    }
    let (name, kind) = match quoted {
        Some(name) => (name, NameKind::Plain),
        None => {
            let name = &spec[start..reader.at];
            (name.into(), reader.kind_of(name, start, module.is_some())?)
        }
    };
    if reader.peek() == Some(':') {
        return reader.error(match reader.provider {
            Provider::RawTracepoint => "a raw tracepoint is written rawtp:NAME, without a category",
            _ if reader.is_in_file() => {
                "there is one colon too many; a name with colons is written in quotes: \"ns::function\""
            }
            _ => "there is one colon too many",
        });
    }
    let offset = reader.offset(kind)?;
    let (provider, end) = (reader.provider, reader.at);
    Ok(Head { provider, names_provider, module, name, kind, offset, end })
}

/// Whether a name has a meaning beyond itself if it is written without quotes.
pub(super) fn needs_quotes(name: &str) -> bool {
    let is_usual = |char| is_of_name(char) || matches!(char, '$' | '-');
    name.is_empty() || !name.chars().all(is_usual) || name.starts_with("0x")
}

/// Whether the path of a file cannot be written without quotes.
pub(super) fn path_needs_quotes(path: &str) -> bool {
    !path.chars().all(is_of_path)
}

const OF_PATH: &str = "/._-+~@,=%#";

fn is_of_path(char: char) -> bool {
    char.is_ascii_alphanumeric() || OF_PATH.contains(char)
}

struct Reader<'s> {
    spec: &'s str,
    at: usize,
    provider: Provider,
}

impl<'s> Reader<'s> {
    fn error<T>(&self, what: impl Into<String>) -> Result<T, SpecError> {
        Err(SpecError::new(self.spec, self.at, what))
    }

    fn rest(&self) -> &'s str {
        &self.spec[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn eat(&mut self, wanted: char) -> bool {
        let is_there = self.peek() == Some(wanted);
        if is_there {
            self.at += wanted.len_utf8();
        }
        is_there
    }

    /// Consumes all characters up to one that is not wanted.
    fn skip(&mut self, is_wanted: impl Fn(char) -> bool) -> &'s str {
        let rest = self.rest();
        let skipped = &rest[..rest.find(|char| !is_wanted(char)).unwrap_or(rest.len())];
        self.at += skipped.len();
        skipped
    }

    fn provider(&mut self) -> Result<(), SpecError> {
        // A colon after any of the others introduces a field's type.
        let Some(end) = self.spec.find([':', '(', '/', '+']) else { return Ok(()) };
        if self.spec[end..].starts_with(':') {
            let found = Provider::find(&self.spec[..end]).or_else(|what| self.error(what))?;
            // If it is not a provider, it is a function's module.
            if let Some(provider) = found {
                self.provider = provider;
                self.at = end + 1;
            }
        }
        Ok(())
    }

    fn is_in_file(&self) -> bool {
        self.provider.form() == Form::InFile
    }

    /// Consumes the file of a uprobe and the colon after it.
    fn file(&mut self) -> Result<Cow<'s, str>, SpecError> {
        let file = match self.quoted()? {
            Some(file) => file,
            None => self.skip(is_of_path).into(),
        };
        match self.peek() {
            Some(':') if !file.is_empty() => {
                self.at += 1;
                Ok(file)
            }
            None | Some(':' | '(') => {
                let name = self.provider.name();
                self.error(format!("a {name} is written {name}:FILE:FUNCTION"))
            }
            Some(_) => self.error(format!(
                "without quotes, a file name can contain only letters, digits and {OF_PATH}"
            )),
        }
    }

    /// Consumes a text in quotes, if there is one.
    fn quoted(&mut self) -> Result<Option<Cow<'s, str>>, SpecError> {
        if self.peek() != Some('"') {
            return Ok(None);
        }
        let mut lexer = Lexer::new(self.spec, self.at);
        let (Token::Text(text), _) = lexer.next()? else { return Ok(None) };
        match String::from_utf8(text) {
            Ok(text) if text.contains(char::is_control) => {
                self.error("names cannot contain control characters")
            }
            Ok(text) if !text.is_empty() => {
                self.at = lexer.position();
                Ok(Some(text.into()))
            }
            Ok(_) => self.error("expected a name"),
            Err(_) => self.error("names are UTF-8"),
        }
    }

    /// What a name without quotes is.
    fn kind_of(&self, name: &str, start: usize, has_module: bool) -> Result<NameKind, SpecError> {
        if name.contains(WILD) {
            return Ok(NameKind::Pattern);
        }
        if !name.starts_with("0x")
            || matches!(self.provider.form(), Form::Name | Form::OfCall | Form::InCategory)
        {
            return Ok(NameKind::Plain);
        }
        let error = |what: &str| Err(SpecError::new(self.spec, start, what));
        if !self.provider.has_addresses() {
            return error("only kprobe, kretprobe, uprobe and uretprobe take an address");
        }
        match lexer::number(name) {
            Ok((_, length)) if length != name.len() => error("expected an address, like 0x1139"),
            Ok(_) if !self.is_in_file() && has_module => {
                error("an address is in no module: leave it out")
            }
            Ok((address, _)) => Ok(NameKind::Address(address)),
            Err(_) => error("expected an address, like 0x1139"),
        }
    }

    /// Consumes a name or a pattern.
    fn name(&mut self) -> Result<(), SpecError> {
        let start = self.at;
        self.pattern()?;
        if self.at == start {
            return self.error("expected a name");
        }
        Ok(())
    }

    /// Skips to the end of a name or pattern, which may be empty.
    fn pattern(&mut self) -> Result<(), SpecError> {
        loop {
            match self.peek() {
                None | Some(':' | '(' | '/' | '+') => return Ok(()),
                Some('[') => self.class()?,
                Some('*' | '?' | '-') => self.at += 1,
                Some('$') if self.is_in_file() => self.at += 1,
                Some(char) if is_of_name(char) => self.at += 1,
                Some(char) if char.is_ascii_whitespace() && self.is_before_predicate() => {
                    return Ok(());
                }
                Some(_) if self.is_in_file() => {
                    return self.error(
                        "names cannot contain this character; a name in quotes can: uprobe:FILE:\"NAME\"",
                    );
                }
                Some(' ') => return self.error(BLANK),
                Some(',') => return self.error(SEVERAL),
                Some(_) => return self.error("kernel names cannot contain this character"),
            }
        }
    }

    /// Consumes a character class: `[a-z_]`, or negated, `[!a]`.
    fn class(&mut self) -> Result<(), SpecError> {
        let start = self.at;
        self.at += 1;
        self.eat('!');
        if self.peek() == Some(']') {
            return self.error("expected characters, like [ab] or [!0-9]");
        }
        self.skip(|char| is_of_name(char) || char == '-');
        match self.peek() {
            Some(']') => {
                self.at += 1;
                Ok(())
            }
            None => {
                self.at = start;
                self.error("this [ is not closed")
            }
            Some(_) => self.error("[...] cannot contain this character"),
        }
    }

    fn is_before_predicate(&self) -> bool {
        self.rest().trim_ascii_start().starts_with('/')
    }

    fn offset(&mut self, kind: NameKind) -> Result<u64, SpecError> {
        if self.peek() != Some('+') {
            return Ok(0);
        }
        if !self.provider.has_offset() {
            return self.error(format!(
                "a {} cannot have an offset: only kprobe and uprobe can",
                self.provider.name()
            ));
        }
        if kind == NameKind::Pattern {
            return self.error("a pattern cannot have an offset");
        }
        self.at += 1;
        if !self.rest().starts_with(|char: char| char.is_ascii_digit()) {
            return self.error("expected an offset, like 16 or 0x10");
        }
        let (offset, length) = lexer::number(self.rest()).or_else(|what| self.error(what))?;
        self.at += length;
        Ok(offset)
    }
}

/// Whether the names of functions and events may contain a character.
pub(super) fn is_of_name(char: char) -> bool {
    char.is_ascii_alphanumeric() || matches!(char, '_' | '.')
}
