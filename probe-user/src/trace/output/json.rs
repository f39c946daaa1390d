//! Values as JSON, written without a copy of them.

use super::names::{Named, Names};
use super::value::Hex;
use crate::escape::is_unsafe;
use crate::trace::event::Value;
use crate::trace::shape::Shape;
use crate::trace::symbolize::Frame;
use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;
use std::io::{self, Write};

/// The largest integer that every JSON parser reads as it is: 2^53 - 1.
pub(super) const LARGEST: u64 = (1 << 53) - 1;

/// Writes a value as its [`Shape`] says.
pub(super) fn value(out: &mut Vec<u8>, shape: &Shape, value: Value<'_>, names: &mut Names<'_>) {
    match value {
        Value::Fault => out.extend_from_slice(b"null"),
        Value::Stack(addresses) => {
            let lines = names.stack(shape, addresses);
            serialize(out, &lines.iter().flat_map(FrameLine::of).collect::<Vec<_>>());
        }
        Value::Integer(address) if *shape == Shape::Symbol => match names.symbol(address) {
            Some(symbol) => serialize(out, &symbol.to_string()),
            None => integer(out, shape, address),
        },
        Value::Bytes(bytes) if *shape == Shape::Bytes => {
            quoted(out, format_args!("{}", Hex(bytes)))
        }
        Value::Bytes(text) => string(out, text),
        Value::Integer(value) => integer(out, shape, value),
    }
}

/// A function of a stack.
#[derive(Serialize)]
struct FrameLine<'f> {
    address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    symbol: Option<&'f str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    #[serde(skip_serializing_if = "is_false")]
    inlined: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    module: Option<&'f str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'f str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

impl<'f> FrameLine<'f> {
    /// The functions of an address: it has a line even if nobody knows them.
    fn of(named: &'f Named) -> Vec<Self> {
        let line = |frame: Option<&'f Frame>| Self {
            address: format!("{:#x}", named.address),
            symbol: frame.map(|frame| &*frame.name),
            offset: frame.and_then(|frame| frame.offset),
            inlined: frame.is_some_and(Frame::is_inlined),
            module: frame.and_then(|frame| frame.module.as_deref()),
            file: frame.and_then(|frame| Some(&*frame.source.as_ref()?.0)),
            line: frame.and_then(|frame| frame.source.as_ref()?.1),
        };
        match &*named.frames {
            [] => vec![line(None)],
            frames => frames.iter().map(|frame| line(Some(frame))).collect(),
        }
    }
}

fn is_false(value: &bool) -> bool {
    !value
}

fn integer(out: &mut Vec<u8>, shape: &Shape, value: u64) {
    match shape {
        Shape::Bool if value <= 1 => {
            out.extend_from_slice(if value == 1 { b"true" } else { b"false" })
        }
        Shape::Hex | Shape::Pointer | Shape::Symbol => quoted(out, format_args!("{value:#x}")),
        Shape::Signed | Shape::Result | Shape::Char => signed(out, value.cast_signed()),
        Shape::Enum(enumeration) => match enumeration.name(value) {
            Some(name) => string(out, name.as_bytes()),
            None if enumeration.is_signed => signed(out, value.cast_signed()),
            None => unsigned(out, value),
        },
        _ => unsigned(out, value),
    }
}

/// Writes an integer; as a string, if not every parser would read it exactly.
pub(super) fn unsigned(out: &mut Vec<u8>, value: u64) {
    if value <= LARGEST { number(out, value) } else { quoted(out, format_args!("{value}")) }
}

/// The same, with a sign.
pub(super) fn signed(out: &mut Vec<u8>, value: i64) {
    if value.unsigned_abs() <= LARGEST {
        number(out, value);
    } else {
        quoted(out, format_args!("{value}"));
    }
}

/// Writes an integer as it is.
pub(super) fn number(out: &mut Vec<u8>, value: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Writes text that has no character to be escaped.
fn quoted(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    // A Vec takes everything.
    let _ = write!(out, "\"{text}\"");
}

/// Writes text of others. What is not UTF-8 is U+FFFD.
pub(super) fn string(out: &mut Vec<u8>, text: &[u8]) {
    let is_plain = |byte: &u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
    if text.iter().all(is_plain) {
        out.push(b'"');
        out.extend_from_slice(text);
        out.push(b'"');
    } else {
        serialize(out, &String::from_utf8_lossy(text));
    }
}

/// Writes anything, with whatever a terminal would not show as itself escaped.
pub(super) fn serialize(out: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    // A Vec takes everything, and nothing of ours has keys that are no strings.
    let _ = value.serialize(&mut Serializer::with_formatter(out, Harmless));
}

/// Escapes what JSON allows as it is and a terminal does not show as itself.
struct Harmless;

impl Formatter for Harmless {
    fn write_string_fragment<W: Write + ?Sized>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let mut rest = fragment;
        while let Some((at, char)) = rest.char_indices().find(|&(_, char)| is_unsafe(char)) {
            writer.write_all(&rest.as_bytes()[..at])?;
            for unit in char.encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{unit:04x}")?;
            }
            rest = &rest[at + char.len_utf8()..];
        }
        writer.write_all(rest.as_bytes())
    }
}
