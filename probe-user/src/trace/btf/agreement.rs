//! The reader beside `bpftool`, on the kernel's own types.

use super::{Btf, Kind, Type, TypeId};
use serde_json::Value;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::process::Command;

const CHOSEN: usize = 200;

/// Types as bpftool tells them, by their numbers.
struct Told(Vec<Value>);

impl Told {
    fn at(&self, id: u32) -> &Value {
        &self.0[id as usize - 1]
    }

    /// All members of a structure by name, those of anonymous ones included: offset, size of a bit
    /// field, type.
    fn members(&self, id: u32, offset: u64, into: &mut HashMap<String, (u64, u64, u32)>) {
        for member in self.at(id)["members"].as_array().unwrap() {
            let number = |key: &str| member[key].as_u64().unwrap_or(0);
            let (ty, offset) = (number("type_id") as u32, offset + number("bits_offset"));
            match name(member) {
                "" => self.members(self.plain(ty), offset, into),
                name => {
                    into.insert(name.to_owned(), (offset, number("bitfield_size"), ty));
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

fn name(told: &Value) -> &str {
    Some(told["name"].as_str().unwrap()).filter(|name| *name != "(anon)").unwrap_or_default()
}

fn kind(told: &Value) -> &str {
    told["kind"].as_str().unwrap()
}

/// A generator of numbers, good enough to choose by.
struct Choice(u64);

impl Choice {
    fn below(&mut self, count: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % count
    }
}

#[test]
#[ignore = "needs bpftool, and a kernel with BTF"]
fn functions_and_members_are_those_that_bpftool_tells() {
    let seed = std::env::var("PROBE_SEED").ok().map(|seed| seed.parse().unwrap());
    let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(()));
    println!("PROBE_SEED={seed}");
    let mut choice = Choice(seed);
    let command = ["-j", "btf", "dump", "file", "/sys/kernel/btf/vmlinux", "format", "raw"];
    let output = Command::new("bpftool").args(command).output();
    let output = output.expect("bpftool is missing: install it, as by `apt install bpftool`");
    assert!(output.status.success(), "bpftool failed: {output:?}");
    let mut told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let Value::Array(told) = told["types"].take() else { panic!("bpftool tells no types") };
    let told = Told(told);
    let btf = Btf::kernel().unwrap();
    assert_eq!(told.0.len(), btf.end_type() as usize - 1);

    let of = |kinds: &[&str]| -> Vec<u32> {
        let ids = (1..).zip(&told.0).filter(|(_, told)| kinds.contains(&kind(told)));
        ids.map(|(id, _)| id).collect()
    };
    for (id, told) in (1..).zip(&told.0) {
        assert_eq!(told_of(&btf, TypeId(id)), described(told), "{id}");
    }
    let functions = of(&["FUNC"]);
    for _ in 0..CHOSEN {
        let id = functions[choice.below(functions.len())];
        function(&btf, &told, id);
    }
    let composites = of(&["STRUCT", "UNION"]);
    let mut members = 0;
    while members < CHOSEN {
        let id = composites[choice.below(composites.len())];
        let mut expected = HashMap::new();
        told.members(id, 0, &mut expected);
        for (name, expected) in &expected {
            let found = btf.member(TypeId(id), name).expect(name);
            let found = (found.bit_offset, found.bit_size.into(), found.ty.0);
            assert_eq!(found, *expected, "{name} of {id}");
        }
        let mut names = btf.member_names(TypeId(id));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), expected.len(), "members of {id}");
        assert_eq!(btf.size_of(TypeId(id)).map(u64::from), told.at(id)["size"].as_u64());
        members += expected.len();
    }
    let enumerations = of(&["ENUM", "ENUM64"]);
    for _ in 0..CHOSEN {
        let id = enumerations[choice.below(enumerations.len())];
        let Some(Type::Enum(values)) = btf.at(TypeId(id)) else { panic!("{id}") };
        let expected = told.at(id)["values"].as_array().unwrap().iter().map(|value| {
            let number = &value["val"];
            let signed = || number.as_i64().unwrap().cast_unsigned();
            (name(value), number.as_u64().unwrap_or_else(signed))
        });
        // The JSON of bpftool has 32 bits, whatever the sign.
        let mask = if values.is_wide { u64::MAX } else { 0xffff_ffff };
        let found = values.values().map(|(name, value)| (name, value & mask));
        assert!(found.eq(expected.map(|(name, value)| (name, value & mask))), "{id}");
    }
}

/// Kind, name, and type or size of a type.
fn told_of(btf: &Btf, id: TypeId) -> (&'static str, &str, u64) {
    let of = |id: TypeId| u64::from(id.0);
    match btf.at(id).expect("bpftool has it") {
        Type::Void => ("VOID", "", 0),
        Type::Int(int) => ("INT", int.name, int.size.into()),
        Type::Pointer { to } => ("PTR", "", of(to)),
        Type::Array { of: element, count } => ("ARRAY", "", of(element) << 32 | u64::from(count)),
        Type::Composite(composite) => {
            let kind = if composite.is_union { "UNION" } else { "STRUCT" };
            (kind, composite.name, composite.size.into())
        }
        Type::Enum(values) => {
            (if values.is_wide { "ENUM64" } else { "ENUM" }, values.name, values.size.into())
        }
        Type::Forward { name, is_union } => ("FWD", name, is_union.into()),
        Type::Typedef { name, of: id } => ("TYPEDEF", name, of(id)),
        Type::Volatile { of: id } => ("VOLATILE", "", of(id)),
        Type::Const { of: id } => ("CONST", "", of(id)),
        Type::Restrict { of: id } => ("RESTRICT", "", of(id)),
        Type::Function { name, prototype } => ("FUNC", name, of(prototype)),
        Type::Prototype(prototype) => ("FUNC_PROTO", "", of(prototype.returns)),
        Type::Variable { name, of: id } => ("VAR", name, of(id)),
        Type::Section { name, size } => ("DATASEC", name, size.into()),
        Type::Float { name, size } => ("FLOAT", name, size.into()),
        Type::DeclTag { name, of: id, component } => {
            ("DECL_TAG", name, of(id) << 32 | u64::from(component.cast_unsigned()))
        }
        Type::Tag { name, of: id } => ("TYPE_TAG", name, of(id)),
    }
}

/// The same, as bpftool tells it.
fn described(told: &Value) -> (&str, &str, u64) {
    let number = |key: &str| told[key].as_u64();
    let value = match kind(told) {
        "ARRAY" => Some(number("type_id").unwrap() << 32 | number("nr_elems").unwrap()),
        "FWD" => Some((told["fwd_kind"] == "union").into()),
        "FUNC_PROTO" => number("ret_type_id"),
        "DECL_TAG" => {
            let component = told["component_idx"].as_i64().unwrap() as u32;
            Some(number("type_id").unwrap() << 32 | u64::from(component))
        }
        _ => number("type_id").or_else(|| number("size")),
    };
    (kind(told), name(told), value.unwrap())
}

fn function(btf: &Btf, told: &Told, id: u32) {
    let expected = told.at(id);
    let name_told = name(expected);
    assert!(btf.named(Kind::Function, name_told).contains(&TypeId(id)), "{name_told}");
    let prototype_told = expected["type_id"].as_u64().unwrap() as u32;
    let Some(Type::Function { name: found, prototype }) = btf.at(TypeId(id)) else {
        panic!("{name_told}")
    };
    assert_eq!((found, prototype.0), (name_told, prototype_told));
    let Some(Type::Prototype(prototype)) = btf.at(prototype) else { panic!("{name_told}") };
    let expected = told.at(prototype_told);
    assert_eq!(Some(u64::from(prototype.returns.0)), expected["ret_type_id"].as_u64());
    let found = prototype.parameters().map(|one| (one.name, u64::from(one.ty.0)));
    let parameters = expected["params"].as_array().unwrap();
    let expected = parameters.iter().map(|one| (name(one), one["type_id"].as_u64().unwrap()));
    assert!(found.eq(expected), "{name_told}");
}
