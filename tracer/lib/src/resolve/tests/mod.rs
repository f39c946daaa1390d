//! Checks plans by interpreting them.

mod buffers;
mod calls;
mod fields;
mod kernel;
mod predicates;
mod trampolines;

use super::interpreter::{Got, Machine};
use super::*;
use crate::kernel::btf::builder::Builder;
use crate::kernel::btf::{Btf, TypeId};
use crate::spec::{Comparison, FieldBase, Operand, Operator, PathStep, ProbeSpec};
use std::sync::Arc;

/// Parses a field. Its positions are those in `text`.
pub(super) fn parse(text: &str) -> FieldSpec {
    const PREFIX: &str = "f(";
    let spec: ProbeSpec = format!("{PREFIX}{text})").parse().unwrap();
    let mut field = spec.fields().unwrap()[0].clone();
    let FieldSpec { path: FieldPath { at, steps, .. }, ty_at, .. } = &mut field;
    for at in [at, ty_at].into_iter().chain(steps.iter_mut().map(|(_, at)| at)) {
        at.0 = at.0.saturating_sub(PREFIX.len());
    }
    field
}

pub(super) fn path(text: &str) -> FieldPath {
    parse(text).path
}

/// Resolves one field.
pub(super) fn resolve(source: &dyn FieldSource, text: &str) -> Reading {
    let field = parse(text);
    source.field(&field.path, field.ty, field.ty_at)
}

pub(super) fn field(text: &str, ty: Option<FieldType>) -> FieldSpec {
    FieldSpec { name: None, path: path(text), ty, ty_at: At(100), length: None }
}

/// The fields of a function of [`btf`].
pub(super) fn function(name: &str, moment: Moment) -> FunctionFields {
    FunctionFields::new(btf(), name, moment).unwrap()
}

/// The fields at the entry of `look`.
pub(super) fn look() -> FunctionFields {
    function("look", Moment::Entry)
}

pub(super) fn names(fields: &[(String, FetchField, Shape)]) -> Vec<&str> {
    fields.iter().map(|(name, ..)| name.as_str()).collect()
}

pub(super) fn compare(text: &str, operator: Operator, value: Operand) -> Predicate {
    let path = path(text);
    Predicate::Compare(Comparison { path, ty: None, operator, value, value_at: At(200) })
}

pub(super) fn number(text: &str, operator: Operator, value: i128) -> Predicate {
    compare(text, operator, Operand::Integer(value))
}

/// Reads one field.
pub(super) fn get(
    source: &dyn FieldSource,
    machine: &Machine,
    text: &str,
    ty: Option<FieldType>,
) -> Result<(Option<Got>, Shape), String> {
    let plan = plan(source, Some(&[field(text, ty)]), &[], None).map_err(|error| error.what)?;
    let (mut values, accepted) = machine.hit(&plan.table);
    assert!(accepted);
    Ok((values.remove(0), plan.fields[0].field.shape.clone()))
}

/// Reads an integer field.
pub(super) fn integer(source: &dyn FieldSource, machine: &Machine, text: &str) -> (i64, Shape) {
    match get(source, machine, text, None) {
        Ok((Some(Got::Integer(value)), shape)) => (value.cast_signed(), shape),
        other => panic!("{text}: {other:?}"),
    }
}

pub(super) fn text(source: &dyn FieldSource, machine: &Machine, text: &str) -> Option<String> {
    match get(source, machine, text, None) {
        Ok((Some(Got::Bytes(bytes)), Shape::Text)) => Some(String::from_utf8(bytes).unwrap()),
        Ok((None, Shape::Text)) => None,
        other => panic!("{text}: {other:?}"),
    }
}

pub(super) fn error(source: &dyn FieldSource, text: &str) -> String {
    let error = plan(source, Some(&[field(text, None)]), &[], None).unwrap_err();
    format!("{}: {}", error.at, error.what)
}

/// The types and functions of the tests.
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
    b.function(
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
    b.function(
        "others",
        file_pointer,
        &[("p", later), ("v", void), ("arg0", int), ("retval", int)],
    );
    b.function("tasks", TypeId::VOID, &[("pid", int)]);
    let all = [("a", int), ("b", int), ("c", int), ("d", int), ("e", int), ("f", int)];
    let large = b.structure("large", 24, &[("one", long, 0, 0)]);
    b.function("returns_large", large, &all);
    let fits = b.structure("fits", 16, &[("one", long, 0, 0), ("two", long, 64, 0)]);
    b.function("returns_pair", fits, &all);
    b.function("vfs_read", ssize, &[("file", file_pointer), ("buf", kernel_text)]);
    b.function("do_faccessat", ssize, &[("file", file_pointer), ("filename", kernel_text)]);
    let address =
        b.structure("sockaddr_un", 10, &[("sun_family", short, 0, 0), ("sun_path", name, 16, 0)]);
    let address = b.pointer(address);
    b.function("bound", int, &[("address", address)]);
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
    b.build()
}

/// A file at 0x1000 whose `next` is at 0x2000, and a file in user memory, also at 0x1000.
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
