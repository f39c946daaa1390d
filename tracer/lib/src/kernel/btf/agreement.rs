//! Compares the parser with `bpftool` on the kernel's own types.

use super::{Btf, Kind, Type, TypeId};
use serde_json::Value;
use std::collections::HashMap;
use std::process::Command;

/// Types as bpftool prints them, by id.
struct Printed(Vec<Value>);

impl Printed {
    fn at(&self, id: u32) -> &Value {
        &self.0[id as usize - 1]
    }

    /// All members of a structure by name, including those of anonymous members: offset, size of a bit field, type.
    fn members(&self, id: u32, offset: u64, into: &mut HashMap<String, (u64, u32, u32)>) {
        for member in self.at(id)["members"].as_array().unwrap() {
            let number = |key: &str| member[key].as_u64().unwrap_or(0);
            let (ty, offset) = (number("type_id") as u32, offset + number("bits_offset"));
            match name(member) {
                "" => self.members(self.plain(ty), offset, into),
                name => {
                    into.insert(name.to_owned(), (offset, number("bitfield_size") as u32, ty));
                }
            }
        }
    }

    fn plain(&self, mut id: u32) -> u32 {
        while matches!(kind(self.at(id)), "CONST" | "VOLATILE" | "TYPEDEF" | "TYPE_TAG") {
            id = self.at(id)["type_id"].as_u64().unwrap() as u32;
        }
        id
    }
}

fn name(printed: &Value) -> &str {
    Some(printed["name"].as_str().unwrap()).filter(|name| *name != "(anon)").unwrap_or_default()
}

fn kind(printed: &Value) -> &str {
    printed["kind"].as_str().unwrap()
}

#[test]
#[ignore = "needs bpftool, and a kernel with BTF"]
fn all_types_agree_with_bpftool() {
    let command = ["-j", "btf", "dump", "file", "/sys/kernel/btf/vmlinux", "format", "raw"];
    let output = Command::new("bpftool").args(command).output();
    let output = output.expect("bpftool is missing: install it, as by `apt install bpftool`");
    assert!(output.status.success(), "bpftool failed: {output:?}");
    let mut printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let Value::Array(types) = printed["types"].take() else { panic!("bpftool prints no types") };
    let printed = Printed(types);
    let btf = Btf::kernel().unwrap();
    btf.index_functions();
    let mut types = 0;
    for kind in (1..=Kind::Enum64 as u32).map(|number| Kind::try_from(number).unwrap()) {
        for (id, ty) in btf.own_all(kind) {
            agrees(&btf, &printed, id, kind, ty);
            types += 1;
        }
    }
    assert_eq!(types, printed.0.len());
}

fn agrees(btf: &Btf, all: &Printed, id: TypeId, of: Kind, ty: Type<'_>) {
    let printed = all.at(id.0);
    let number = |key: &str| printed[key].as_u64().unwrap();
    // aya puts the names of kinds in brackets.
    assert_eq!(format!("[{}]", kind(printed)), of.to_string(), "{id:?}");
    let same_name = |found| assert_eq!(found, name(printed), "{id:?}");
    match ty {
        Type::Void | Type::Other => {}
        Type::Pointer { to: of } | Type::Modifier { of } => {
            assert_eq!(u64::from(of.0), number("type_id"));
        }
        Type::Array { of, count } => {
            let expected = (number("type_id"), number("nr_elems"));
            assert_eq!((of.0.into(), count.into()), expected, "{id:?}");
        }
        Type::Typedef { name, of } | Type::Tag { name, of } => {
            same_name(name);
            assert_eq!(u64::from(of.0), number("type_id"), "{id:?}");
        }
        Type::Forward { name, is_union } => {
            same_name(name);
            assert_eq!(is_union, printed["fwd_kind"] == "union", "{id:?}");
        }
        Type::Int(super::types::Int { name, size, .. }) | Type::Float { name, size } => {
            same_name(name);
            assert_eq!(u64::from(size), number("size"), "{id:?}");
        }
        Type::Function { name, prototype } => {
            same_name(name);
            assert_eq!(u64::from(prototype.0), number("type_id"), "{id:?}");
            assert!(btf.named(Kind::Func, name).contains(&id), "{name}");
        }
        Type::Prototype(prototype) => {
            assert_eq!(u64::from(prototype.returns.0), number("ret_type_id"), "{id:?}");
            let found = prototype.parameters().map(|one| (one.name, u64::from(one.ty.0)));
            let parameters = printed["params"].as_array().unwrap();
            let expected =
                parameters.iter().map(|one| (name(one), one["type_id"].as_u64().unwrap()));
            assert!(found.eq(expected), "{id:?}");
        }
        Type::Composite(composite) => {
            same_name(composite.name);
            assert_eq!(composite.is_union, of == Kind::Union);
            assert_eq!(btf.size_of(id).map(u64::from), Some(number("size")), "{id:?}");
            let mut expected = HashMap::new();
            all.members(id.0, 0, &mut expected);
            let mut names = btf.member_names(id);
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), expected.len(), "members of {id:?}");
            for (name, expected) in &expected {
                let found = btf.member(id, name).expect(name);
                let found = (found.bit_offset, found.bit_size, found.ty.0);
                assert_eq!(found, *expected, "{name} of {id:?}");
            }
        }
        Type::Enum(values) => {
            same_name(values.name);
            assert_eq!(u64::from(values.size), number("size"), "{id:?}");
            let expected = printed["values"].as_array().unwrap().iter().map(|value| {
                let number = &value["val"];
                let signed = || number.as_i64().unwrap().cast_unsigned();
                (name(value), number.as_u64().unwrap_or_else(signed))
            });
            // bpftool's JSON has the low 32 bits, whatever the sign.
            let mask = if values.is_wide { u64::MAX } else { 0xffff_ffff };
            let found = values.values().map(|(name, value)| (name, value & mask));
            assert!(found.eq(expected.map(|(name, value)| (name, value & mask))), "{id:?}");
        }
    }
}
