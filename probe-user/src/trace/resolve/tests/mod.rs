//! What plans mean, by a program that follows them.

mod calls;
mod fields;
mod kernel;
mod plans;
mod predicates;

use super::interpreter::{Got, Machine};
use super::*;
use crate::trace::btf::builder::Builder;
use crate::trace::btf::{Btf, TypeId};
use crate::trace::spec::{Comparison, Literal, Operator};
use crate::trace::spec::{FieldBase, PathStep};
use std::sync::Arc;

/// A path as a person writes it; its places are those in `text`.
pub(super) fn path(text: &str) -> FieldPath {
    let is_end = |c: char| matches!(c, '.' | '-' | '[');
    let end = text.find(is_end).unwrap_or(text.len());
    let base = match &text[..end] {
        "retval" => FieldBase::Return,
        name => match name.strip_prefix("arg").and_then(|n| n.parse().ok()) {
            Some(n) => FieldBase::Argument(n),
            None => FieldBase::Name(name.to_owned()),
        },
    };
    let mut steps = Vec::new();
    let mut at = end;
    while at < text.len() {
        let rest = &text[at..];
        if let Some(index) = rest.strip_prefix('[') {
            let (index, _) = index.split_once(']').unwrap();
            steps.push((PathStep::Index(index.parse().unwrap()), At(at + 1)));
            at += index.len() + 2;
        } else {
            let dots = if rest.starts_with("->") { 2 } else { 1 };
            let name = rest[dots..].split(is_end).next().unwrap();
            steps.push((PathStep::Member(name.to_owned()), At(at + dots)));
            at += dots + name.len();
        }
    }
    FieldPath { base, at: At(0), steps }
}

pub(super) fn field(text: &str, ty: Option<FieldType>) -> FieldSpec {
    FieldSpec { name: None, path: path(text), ty, ty_at: At(100) }
}

pub(super) fn compare(text: &str, operator: Operator, value: Literal) -> Predicate {
    let path = path(text);
    Predicate::Compare(Comparison { path, ty: None, operator, value, value_at: At(200) })
}

/// What is read of one field.
pub(super) fn get(
    scope: &dyn Scope,
    machine: &Machine,
    text: &str,
    ty: Option<FieldType>,
) -> Result<(Option<Got>, Shape), String> {
    let plan = plan(scope, Some(&[field(text, ty)]), &[], None).map_err(|error| error.what)?;
    let (mut values, accepted) = machine.hit(&plan.table);
    assert!(accepted);
    Ok((values.remove(0), plan.fields[0].field.shape.clone()))
}

/// The value of a field that is an integer.
pub(super) fn integer(scope: &dyn Scope, machine: &Machine, text: &str) -> (i64, Shape) {
    match get(scope, machine, text, None) {
        Ok((Some(Got::Integer(value)), shape)) => (value.cast_signed(), shape),
        other => panic!("{text}: {other:?}"),
    }
}

pub(super) fn text(scope: &dyn Scope, machine: &Machine, text: &str) -> Option<String> {
    match get(scope, machine, text, None) {
        Ok((Some(Got::Bytes(bytes)), Shape::Text)) => Some(String::from_utf8(bytes).unwrap()),
        Ok((None, Shape::Text)) => None,
        other => panic!("{text}: {other:?}"),
    }
}

pub(super) fn error(scope: &dyn Scope, text: &str) -> String {
    let error = plan(scope, Some(&[field(text, None)]), &[], None).unwrap_err();
    format!("{}: {}", error.at, error.what)
}

/// Types, and functions of them.
///
/// ```c
/// struct file { int fd; unsigned a:3; int b:5; char name[8]; union { struct { u16 low, high; }; u32 both; };
///               const char *path; struct file *next; void *data; int (*open)(void); enum mode mode;
///               _Bool is_open; struct pair pairs[3]; unsigned char id[4]; int tail[]; };
/// ```
pub(super) fn btf() -> Arc<Btf> {
    let mut b = Builder::new();
    let int = b.int("int", 4, 1);
    let unsigned = b.int("unsigned int", 4, 0);
    let short = b.int("unsigned short", 2, 0);
    let char = b.int("char", 1, 1);
    let byte = b.int("unsigned char", 1, 0);
    let boolean = b.int("_Bool", 1, 4);
    let long = b.int("long", 8, 1);
    let wide = b.int("__int128", 16, 1);
    let constant = b.constant(char);
    let kernel_text = b.pointer(constant);
    let tagged = b.tag("user", constant);
    let user_text = b.pointer(tagged);
    let void = b.pointer(TypeId::VOID);
    let callback = b.prototype(int, &[]);
    let callback = b.pointer(callback);
    let name = b.array(char, 8);
    let id = b.array(byte, 4);
    let tail = b.array(int, 0);
    let pair = b.structure("pair", 8, &[("one", int, 0, 0), ("two", int, 32, 0)]);
    let pairs = b.array(pair, 3);
    let mode = b.enumeration("mode", (4, true), &[("NONE", -1), ("READ", 1), ("WRITE", 2)]);
    let halves = b.structure("", 4, &[("low", short, 0, 0), ("high", short, 16, 0)]);
    let both = b.union("", 4, &[("", halves, 0, 0), ("both", unsigned, 0, 0)]);
    let file = b.next();
    let file_pointer = b.pointer(TypeId(file.0 + 1));
    b.structure(
        "file",
        96,
        &[
            ("fd", int, 0, 0),
            ("a", unsigned, 32, 3),
            ("b", int, 35, 5),
            ("name", name, 64, 0),
            ("", both, 128, 0),
            ("path", kernel_text, 192, 0),
            ("next", file_pointer, 256, 0),
            ("data", void, 320, 0),
            ("open", callback, 384, 0),
            ("mode", mode, 448, 0),
            ("is_open", boolean, 480, 0),
            ("pairs", pairs, 512, 0),
            ("id", id, 704, 0),
            ("tail", tail, 736, 0),
        ],
    );
    let tagged = b.tag("user", TypeId(file.0 + 1));
    let user_file = b.pointer(tagged);
    let later = b.forward("later");
    let later = b.pointer(later);
    let small = b.structure("small", 4, &[("low", short, 0, 0), ("high", short, 16, 0)]);
    let ssize = b.typedef("ssize_t", long);
    let number = b.function(
        "look",
        ssize,
        &[
            ("file", file_pointer),
            ("count", int),
            ("text", kernel_text),
            ("path", user_text),
            ("theirs", user_file),
            ("letter", char),
            ("seventh", int),
        ],
    );
    b.function("by_value", TypeId::VOID, &[("uid", small), ("wide", wide), ("after", int)]);
    b.function("others", file_pointer, &[("p", later), ("v", void), ("arg0", int)]);
    b.function("vfs_read", ssize, &[("file", file_pointer), ("buf", kernel_text)]);
    b.function("ksys_any", int, &[("buf", void)]);
    let raw = b.prototype(
        TypeId::VOID,
        &[("", void), ("", boolean), ("", file_pointer), ("", kernel_text)],
    );
    let raw = b.pointer(raw);
    b.typedef("btf_trace_looked", raw);
    b.typedef("btf_trace_unnamed", raw);
    b.function(
        "__traceiter_looked",
        int,
        &[("__data", void), ("again", boolean), ("file", file_pointer), ("text", kernel_text)],
    );
    assert!(number.0 > 0);
    b.build()
}

/// A file at 0x1000, whose next is at 0x2000; a file of the process at 0x1000, too.
pub(super) fn machine() -> Machine {
    let mut file = vec![0; 104];
    let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &(-7_i32).to_ne_bytes());
    put(4, &[0b1110_1101]); // a = 5, b = -3
    put(8, b"a-name\0x");
    put(16, &0x1234_5678_u32.to_ne_bytes());
    put(24, &0x3000_u64.to_ne_bytes());
    put(32, &0x2000_u64.to_ne_bytes());
    put(40, &0x4000_u64.to_ne_bytes());
    put(48, &0x5000_u64.to_ne_bytes());
    put(56, &(-1_i32).to_ne_bytes());
    put(60, &[1]);
    put(64 + 8 + 4, &77_i32.to_ne_bytes());
    put(88, &[1, 2, 3, 4]);
    put(92 + 8, &99_i32.to_ne_bytes());
    let mut machine = Machine::default();
    machine.kernel(0x1000, &file);
    file[0] = 42;
    machine.kernel(0x2000, &file);
    file[0] = 43;
    machine.user(0x1000, &file);
    file[0] = 44;
    machine.user(0x2000, &file);
    machine.kernel(0x3000, b"kernel's\0");
    machine.user(0x3000, b"user's\0");
    machine.registers[..6].copy_from_slice(&[
        0x1000,
        0xdead_beef_ffff_fffe,
        0x3000,
        0x3000,
        0x1000,
        0xffff_ff41,
    ]);
    machine.registers[16] = (-2_i64).cast_unsigned();
    for (n, register) in (0..).zip(&mut machine.registers[19..23]) {
        *register = 100 + n;
    }
    machine.comm = b"dd".to_vec();
    machine
}
