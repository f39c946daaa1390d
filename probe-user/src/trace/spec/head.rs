//! The beginning of a spec, which says what is hooked: `[PROVIDER:][MODULE:]NAME[+OFFSET]`.

use super::error::SpecError;
use super::lexer;
use super::provider::Provider;

/// What is hooked.
pub(super) struct Head<'s> {
    pub(super) provider: Provider,
    pub(super) module: Option<&'s str>,
    pub(super) name: &'s str,
    pub(super) offset: u64,
    /// Where it ends, in bytes.
    pub(super) end: usize,
}

const TRACEPOINT: &str = "a tracepoint is written tracepoint:CATEGORY:NAME";

/// Reads it.
pub(super) fn read(spec: &str) -> Result<Head<'_>, SpecError> {
    let mut reader = Reader { spec, at: 0, provider: Provider::Kprobe };
    reader.provider()?;
    let (mut module, mut start) = (None, reader.at);
    match reader.provider {
        Provider::Uprobe | Provider::Uretprobe => {
            module = Some(reader.file()?);
            start = reader.at;
            reader.name()?;
        }
        Provider::Tracepoint => {
            reader.pattern()?;
            if reader.at == start || !reader.eat(':') {
                return reader.error(TRACEPOINT);
            }
            let name = reader.at;
            reader.pattern()?;
            if reader.at == name {
                return reader.error(TRACEPOINT);
            }
        }
        _ => {
            reader.name()?;
            if reader.provider.has_module() && reader.peek() == Some(':') {
                module = Some(&spec[start..reader.at]);
                if let Some(at) = module.and_then(|module| module.find(['*', '?', '['])) {
                    reader.at = start + at;
                    return reader.error("a module is named in full");
                }
                reader.eat(':');
                start = reader.at;
                reader.name()?;
            }
        }
    }
    let name = &spec[start..reader.at];
    if reader.peek() == Some(':') {
        return reader.error("there is one colon too many");
    }
    let offset = reader.offset(name)?;
    Ok(Head { provider: reader.provider, module, name, offset, end: reader.at })
}

/// Whether a name stands for all that match it.
pub(super) fn is_glob(name: &str) -> bool {
    name.contains(['*', '?', '['])
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

    fn provider(&mut self) -> Result<(), SpecError> {
        // Behind any of the others, a colon comes before a type.
        let Some(end) = self.spec.find([':', '(', '/', '+']) else { return Ok(()) };
        if self.spec[end..].starts_with(':') {
            let found = Provider::find(&self.spec[..end]).or_else(|what| self.error(what))?;
            // If it is none, it is the module of a function.
            if let Some(provider) = found {
                self.provider = provider;
                self.at = end + 1;
            }
        }
        Ok(())
    }

    /// The file that a uprobe is in, and the colon behind it.
    fn file(&mut self) -> Result<&'s str, SpecError> {
        let start = self.at;
        loop {
            match self.peek() {
                Some(':') if self.at > start => {
                    let file = &self.spec[start..self.at];
                    self.at += 1;
                    return Ok(file);
                }
                Some(char) if char.is_ascii_alphanumeric() || "/._-+~@,=%#".contains(char) => {
                    self.at += 1;
                }
                None | Some(':' | '(') => {
                    let name = self.provider.name();
                    return self.error(format!("a {name} is written {name}:FILE:FUNCTION"));
                }
                Some(_) => {
                    return self
                        .error("a file has letters, digits and /._-+~@,=%# in its name here");
                }
            }
        }
    }

    /// A name, or a pattern of names.
    fn name(&mut self) -> Result<(), SpecError> {
        let start = self.at;
        self.pattern()?;
        if self.at == start {
            return self.error("a name has to come here");
        }
        Ok(())
    }

    /// Goes to the end of a name, which may be empty.
    fn pattern(&mut self) -> Result<(), SpecError> {
        loop {
            match self.peek() {
                None | Some(':' | '(' | '/' | '+') => return Ok(()),
                Some('[') => self.class()?,
                Some('*' | '?' | '-') => self.at += 1,
                Some('$') if self.provider.is_user() => self.at += 1,
                Some(char) if is_of_name(char) => self.at += 1,
                Some(char) if char.is_ascii_whitespace() && self.is_before_predicate() => {
                    return Ok(());
                }
                Some(_) if self.provider.is_user() => {
                    return self.error("no name has this character");
                }
                Some(_) => return self.error("no name of the kernel has this character"),
            }
        }
    }

    /// One of several characters: `[a-z_]`, or `[!a]` for all but these.
    fn class(&mut self) -> Result<(), SpecError> {
        let start = self.at;
        self.at += 1;
        self.eat('!');
        if self.peek() == Some(']') {
            return self.error("characters have to come here, like [ab] or [!0-9]");
        }
        loop {
            match self.peek() {
                Some(']') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(char) if is_of_name(char) || char == '-' => self.at += 1,
                None => {
                    self.at = start;
                    return self.error("this [ is not closed");
                }
                Some(_) => return self.error("this cannot be among the characters of [...]"),
            }
        }
    }

    fn is_before_predicate(&self) -> bool {
        self.rest().trim_ascii_start().starts_with('/')
    }

    fn offset(&mut self, name: &str) -> Result<u64, SpecError> {
        if self.peek() != Some('+') {
            return Ok(0);
        }
        if !self.provider.has_offset() {
            return self.error(format!(
                "a {} has no offset: only kprobe and uprobe have",
                self.provider.name()
            ));
        }
        if is_glob(name) {
            return self.error("what is meant by a pattern has no offset");
        }
        self.at += 1;
        if !self.rest().starts_with(|char: char| char.is_ascii_digit()) {
            return self.error("an offset has to come here, like 16 or 0x10");
        }
        let (offset, length) = lexer::number(self.rest()).or_else(|what| self.error(what))?;
        self.at += length;
        Ok(offset)
    }
}

fn is_of_name(char: char) -> bool {
    char.is_ascii_alphanumeric() || matches!(char, '_' | '.')
}
