//! Values as JSON, written without copying them.

use super::names::{Named, Names};
use super::value::{Hex, bits, elements, extended, is_text};
use crate::resolve::event::{TraceEvent, Value};
use crate::resolve::probe::Probe;
use crate::resolve::shape::{Field, Shape};
use crate::symbolize::Frame;
use probe_sys::escape::is_unsafe;
use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;
use std::borrow::Cow;
use std::io::{self, Write};

/// The largest integer that every JSON parser reads exactly: 2^53 - 1.
pub(super) const LARGEST: u64 = (1 << 53) - 1;

/// Writes a value in the format of its [`Shape`]. Returns whether a part of it was replaced.
pub(super) fn value(
    out: &mut Vec<u8>,
    shape: &Shape,
    value: Value<'_>,
    names: &mut Names<'_>,
) -> bool {
    match value {
        Value::Bytes(bytes) => return data(out, shape, bytes, false),
        Value::Truncated(bytes) => return data(out, shape, bytes, true),
        Value::Fault | Value::Null => out.extend_from_slice(b"null"),
        Value::Stack(addresses) => {
            let lines = names.stack(shape, addresses);
            serialize(out, &lines.iter().flat_map(FrameLine::of).collect::<Vec<_>>());
        }
        Value::Integer(address) if *shape == Shape::Symbol => match names.symbol(address) {
            Some(symbol) => serialize(out, &symbol.to_string()),
            None => integer(out, shape, address),
        },
        Value::Integer(value) => integer(out, shape, value),
    }
    false
}

/// Writes members for what the values of an event mean beside how they are written: `names` of numbers and bytes, and
/// the `numbers` of values that are written as names.
pub(super) fn meanings(
    out: &mut Vec<u8>,
    event: &TraceEvent<'_>,
    probe: &Probe,
    names: &mut Names<'_>,
) {
    let mut start: &[u8] = br#","names":{"#;
    for (field, value) in event.values(probe) {
        if let Some(name) = names.value(field, value) {
            member(out, &mut start, &field.name);
            string(out, name.as_bytes());
        }
    }
    end(out, start);
    let mut start: &[u8] = br#","numbers":{"#;
    for (field, value) in event.values(probe) {
        let Value::Integer(value) = value else { continue };
        let number = match &field.shape {
            Shape::Symbol if names.symbol(value).is_some() => &Shape::Hex,
            Shape::Enum(enumeration) if enumeration.name(value).is_some() => {
                if enumeration.is_signed { &Shape::Signed } else { &Shape::Unsigned }
            }
            _ => continue,
        };
        member(out, &mut start, &field.name);
        integer(out, number, value);
    }
    end(out, start);
}

/// Writes a member with the names of the fields for which `is_listed` is true, if there are any.
pub(super) fn list_fields(
    out: &mut Vec<u8>,
    key: &str,
    event: &TraceEvent<'_>,
    probe: &Probe,
    is_listed: fn(&Field, Value<'_>) -> bool,
) {
    let listed = event.values(probe).filter(|&(field, value)| is_listed(field, value));
    let listed: Vec<_> = listed.map(|(field, _)| &*field.name).collect();
    if !listed.is_empty() {
        put!(out, ",\"{key}\":");
        serialize(out, &listed);
    }
}

/// Whether a value is a buffer that is not text, and is shown as bytes.
pub(super) fn is_binary(field: &Field, value: Value<'_>) -> bool {
    field.shape == Shape::Buffer
        && match value {
            Value::Bytes(bytes) => !is_text(bytes, false),
            Value::Truncated(bytes) => !is_text(bytes, true),
            _ => false,
        }
}

/// The bytes of a text that is not UTF-8, which a JSON string cannot have.
fn other_bytes<'v>(field: &Field, value: Value<'v>) -> Option<&'v [u8]> {
    let (Value::Bytes(bytes) | Value::Truncated(bytes)) = value else { return None };
    let is_text = match field.shape {
        Shape::Text => true,
        // What is cut may end within a character.
        Shape::Buffer => !is_binary(field, value),
        _ => false,
    };
    (is_text && std::str::from_utf8(bytes).is_err()).then_some(bytes)
}

/// Writes a member with the bytes of these texts, if there are any.
pub(super) fn bytes(out: &mut Vec<u8>, event: &TraceEvent<'_>, probe: &Probe) {
    let mut start: &[u8] = br#","bytes":{"#;
    for (field, value) in event.values(probe) {
        if let Some(bytes) = other_bytes(field, value) {
            member(out, &mut start, &field.name);
            put!(out, "\"{}\"", Hex(bytes));
        }
    }
    end(out, start);
}

/// Whether a value is only the beginning of what it is for.
pub(super) fn is_truncated(_: &Field, value: Value<'_>) -> bool {
    matches!(value, Value::Truncated(_))
}

/// Writes the key of a member. `start` precedes it.
fn member(out: &mut Vec<u8>, start: &mut &[u8], key: &str) {
    out.extend_from_slice(std::mem::replace(start, b","));
    string(out, key.as_bytes());
    out.push(b':');
}

/// Ends an object whose next member would follow `start`, unless it has no members.
fn end(out: &mut Vec<u8>, start: &[u8]) {
    if start == b"," {
        out.push(b'}');
    }
}

/// Writes a string, bytes or a list, which may be incomplete. Returns whether a part of a string was replaced.
fn data(out: &mut Vec<u8>, shape: &Shape, bytes: &[u8], is_cut: bool) -> bool {
    match shape {
        Shape::Bytes => put!(out, "\"{}\"", Hex(bytes)),
        Shape::Buffer if !is_text(bytes, is_cut) => put!(out, "\"{}\"", Hex(bytes)),
        Shape::List { size, of } => {
            let elements = elements(bytes, *size).map(|element| extended(element, *size, of));
            list(out, elements, |out, element| integer(out, of, element));
        }
        Shape::Bits => list(out, bits(bytes), number),
        _ => return string(out, bytes),
    }
    false
}

fn list<T>(out: &mut Vec<u8>, elements: impl Iterator<Item = T>, write: impl Fn(&mut Vec<u8>, T)) {
    out.push(b'[');
    for (n, element) in elements.enumerate() {
        if n > 0 {
            out.push(b',');
        }
        write(out, element);
    }
    out.push(b']');
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
    /// The functions at an address; an address without known functions has one entry, too.
    fn of((address, frames): &'f Named) -> Vec<Self> {
        let line = |frame: Option<&'f Frame>| Self {
            address: format!("{address:#x}"),
            symbol: frame.map(|frame| &*frame.name),
            offset: frame.and_then(|frame| frame.offset),
            inlined: frame.is_some_and(Frame::is_inlined),
            module: frame.and_then(|frame| frame.module.as_deref()),
            file: frame.and_then(|frame| Some(&*frame.source.as_ref()?.0)),
            line: frame.and_then(|frame| frame.source.as_ref()?.1),
        };
        match &**frames {
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
        Shape::PointerOrError if shape.error(value).is_some() => signed(out, value.cast_signed()),
        Shape::Hex | Shape::Pointer | Shape::PointerOrError | Shape::Symbol => {
            put!(out, "\"{value:#x}\"")
        }
        Shape::Signed | Shape::Result | Shape::Char => signed(out, value.cast_signed()),
        Shape::Enum(enumeration) => match enumeration.name(value) {
            Some(name) => {
                string(out, name.as_bytes());
            }
            None if enumeration.is_signed => signed(out, value.cast_signed()),
            None => unsigned(out, value),
        },
        _ => unsigned(out, value),
    }
}

/// Writes an integer, as a string if some parsers would not read it exactly.
fn unsigned(out: &mut Vec<u8>, value: u64) {
    if value <= LARGEST { number(out, value) } else { put!(out, "\"{value}\"") }
}

/// Writes a signed integer, as a string if some parsers would not read it exactly.
fn signed(out: &mut Vec<u8>, value: i64) {
    if value.unsigned_abs() <= LARGEST { number(out, value) } else { put!(out, "\"{value}\"") }
}

/// An integer that serializes to a string if some parsers would not read it exactly.
pub(super) struct Exact(pub(super) u64);

impl Serialize for Exact {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            value @ 0..=LARGEST => serializer.serialize_u64(value),
            value => serializer.collect_str(&value),
        }
    }
}

/// Writes `key`, punctuation included, and an integer as a number.
pub(super) fn keyed(out: &mut Vec<u8>, key: &[u8], value: impl itoa::Integer) {
    out.extend_from_slice(key);
    number(out, value);
}

/// Writes the members of a task's ids.
pub(super) fn ids(out: &mut Vec<u8>, pid: u32, tid: u32) {
    keyed(out, br#","pid":"#, pid);
    keyed(out, br#","tid":"#, tid);
}

/// Writes an integer as a number.
pub(super) fn number(out: &mut Vec<u8>, value: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Whether a character stands for itself between quotes.
pub(super) fn is_itself(byte: &u8) -> bool {
    matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\')
}

/// Writes untrusted text. Invalid UTF-8 becomes U+FFFD. Returns whether there was any.
pub(super) fn string(out: &mut Vec<u8>, text: &[u8]) -> bool {
    if text.iter().all(is_itself) {
        out.push(b'"');
        out.extend_from_slice(text);
        out.push(b'"');
        return false;
    }
    let text = String::from_utf8_lossy(text);
    serialize(out, &*text);
    matches!(text, Cow::Owned(_))
}

/// Writes any value on a line of its own.
pub(super) fn line(out: &mut Vec<u8>, value: &impl Serialize) {
    serialize(out, value);
    out.push(b'\n');
}

/// Writes any value, escaping all characters that a terminal would not print as themselves.
pub(super) fn serialize(out: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    // Writing to a Vec cannot fail, and all our keys are strings.
    let _ = value.serialize(&mut Serializer::with_formatter(out, Harmless));
}

/// Escapes characters that JSON allows unescaped but a terminal would not print as themselves.
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
