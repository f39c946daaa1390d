//! Arbitrary types, and the fields of functions that have them.

use crate::kernel::btf::{Btf, Kind, NoPrototype, Type, TypeId};
use crate::resolve::{FieldSource, FunctionFields, Moment, plan};
use crate::{At, FieldBase, FieldPath, FieldSpec, FieldType, PathStep};
use probe_sys::input::Input;
use probe_tracer_common::fetch::{FIELDS, LONGEST, STEPS, kind};
use std::cell::RefCell;
use std::sync::Arc;

/// The number of types that are checked; later ones add nothing new.
const MOST: u32 = 64;
/// The strings of types, if the input does not contain its own.
const STRINGS: &[u8] = b"\0f\0a\0b\0char\0user\0int\0btf_trace_t\0";

thread_local! {
    /// The base of a module's types: `int`, `char`, `char *`, `struct { int a; char *b; }`, and `int f()`.
    static BASE: RefCell<Option<Arc<Btf>>> = const { RefCell::new(None) };
}

/// The input is a byte of flags, followed by types. Flag 1 puts a header and strings around them; flag 2 makes
/// them a module's.
pub fn btf(data: &[u8]) {
    let mut input = Input(data);
    let flags = input.u8();
    let bytes = if flags & 1 == 0 { input.0.to_vec() } else { file(input.0) };
    let base = (flags & 2 != 0).then(base);
    let Ok(btf) = Btf::parse(bytes, base) else { return };
    let btf = Arc::new(btf);
    for id in (0..btf.end_type().min(MOST)).map(TypeId) {
        check(&btf, id);
    }
    assert!(btf.at(TypeId(btf.end_type())).is_none(), "there is no type after the last one");
    assert!(btf.at(TypeId(u32::MAX)).is_none());
}

/// A BTF file with these types.
fn file(types: &[u8]) -> Vec<u8> {
    let (types_len, strings_len) = (types.len() as u32, STRINGS.len() as u32);
    let mut file = Vec::from(0xeb9f_u16.to_ne_bytes());
    file.extend([1, 0]);
    file.extend(
        [24, 0, types_len, types_len, strings_len].iter().flat_map(|w: &u32| w.to_ne_bytes()),
    );
    file.extend(types);
    file.extend(STRINGS);
    file
}

fn base() -> Arc<Btf> {
    BASE.with_borrow_mut(|base| {
        const INT: &[u32] = &[17, 1 << 24, 4, 1 << 24 | 32];
        const CHAR: &[u32] = &[7, 1 << 24, 1, 8];
        const TEXT: &[u32] = &[0, 2 << 24, 2];
        const PAIR: &[u32] = &[0, 4 << 24 | 2, 16, 3, 1, 0, 5, 3, 64];
        const PROTOTYPE: &[u32] = &[0, 13 << 24, 1];
        const FUNCTION: &[u32] = &[1, 12 << 24, 5];
        let types = [INT, CHAR, TEXT, PAIR, PROTOTYPE, FUNCTION].concat();
        let types: Vec<u8> = types.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let parse = || Arc::new(Btf::parse(file(&types), None).expect("the base is valid"));
        Arc::clone(base.get_or_insert_with(parse))
    })
}

fn check(btf: &Arc<Btf>, id: TypeId) {
    let ty = btf.at(id).expect("all types up to the last one exist");
    assert!(btf.type_name(id).len() < 1 << 16);
    let resolved = btf.resolve(id);
    if let Some(resolved) = resolved {
        let again = btf.resolve(resolved.id).map(|again| again.id);
        assert_eq!(again, Some(resolved.id), "resolving is idempotent");
        assert_eq!(btf.size_of(id), btf.size_of(resolved.id));
    }
    match ty {
        Type::Composite(composite) => {
            let names = btf.member_names(id);
            for name in &names {
                assert!(!name.is_empty() && btf.member(id, name).is_some(), "{name} is found");
            }
            for member in composite.members().filter(|member| !member.name.is_empty()) {
                assert!(names.contains(&member.name), "{} is listed", member.name);
            }
        }
        Type::Enum(values) => assert!(values.values().count() < 1 << 16),
        Type::Function { name, .. } if !name.is_empty() => {
            // A module's own function hides the kernel's.
            let named = btf.named(Kind::Func, name);
            assert!(named.contains(&id) || named.iter().all(|own| id < *own) && !named.is_empty());
            match btf.function(name) {
                Ok(id) => {
                    assert!(matches!(btf.at(id), Some(Type::Prototype(_))));
                    for moment in [Moment::Entry, Moment::Return] {
                        let source = FunctionFields::new(Arc::clone(btf), name, moment);
                        fields(&source.expect("the function has a prototype"));
                    }
                }
                Err(NoPrototype::Unknown | NoPrototype::Ambiguous) => {}
            }
        }
        Type::Typedef { name, .. } => {
            if let Some(name) = name.strip_prefix("btf_trace_")
                && let Ok(source) = FunctionFields::raw_tracepoint(Arc::clone(btf), name)
            {
                fields(&source);
            }
        }
        _ => {}
    }
}

/// Resolves all fields that can be written with the available names.
fn fields(source: &dyn FieldSource) {
    let member = |name: &str| PathStep::Member(name.to_owned());
    let paths: [&[PathStep]; 7] = [
        &[],
        &[member("a")],
        &[member("b"), member("a")],
        &[PathStep::Index(3)],
        &[PathStep::Index(u32::MAX), member("a"), PathStep::Index(1)],
        &[member("a"), member("a"), member("a"), member("a")],
        &[PathStep::Index(1), PathStep::Index(1), PathStep::Index(1), PathStep::Index(1)],
    ];
    let types = [
        None,
        Some(FieldType::Signed(16)),
        Some(FieldType::Hex(64)),
        Some(FieldType::Ustr),
        Some(FieldType::Symbol),
        Some(FieldType::Bytes(9)),
    ];
    let bases =
        [FieldBase::Argument(0), FieldBase::Argument(1), FieldBase::Position(2), FieldBase::Return];
    for base in bases {
        for steps in paths {
            let steps = steps.iter().map(|step| (step.clone(), At(1))).collect();
            let path = FieldPath { base: base.clone(), at: At(0), steps };
            for ty in types {
                let spec =
                    FieldSpec { name: None, path: path.clone(), ty, ty_at: At(2), length: None };
                check_plan(source, Some(&[spec]));
            }
        }
    }
    check_plan(source, None);
}

fn check_plan(source: &dyn FieldSource, fields: Option<&[FieldSpec]>) {
    let plan = match plan(source, fields, &[], None) {
        Ok(plan) => plan,
        Err(error) => return assert!(error.at <= 2 && !error.what.is_empty()),
    };
    let count = usize::from(plan.table.field_count);
    assert!(count <= FIELDS && plan.fields.iter().all(|field| usize::from(field.slot) < count));
    for field in &plan.table.fields[..count] {
        assert!(usize::from(field.steps) <= STEPS && usize::from(field.size) <= LONGEST + 1);
        assert!(field.left < 64 && field.right < 64);
        assert!(match field.kind {
            kind::VALUE => field.steps == 0,
            kind::INTEGER => matches!(field.size, 1 | 2 | 4 | 8),
            kind::STRING | kind::BYTES => field.size > 0,
            _ => false,
        });
    }
}
