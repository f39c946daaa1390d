use super::*;

fn look() -> FunctionScope {
    FunctionScope::entry(btf(), "look").unwrap()
}

#[test]
fn members_are_read_through_pointers_and_anonymous_members() {
    let (scope, machine) = (look(), machine());
    let number = |text| integer(&scope, &machine, text).0;
    assert_eq!(number("file->fd"), -7);
    assert_eq!(number("file.next->fd"), (-7 & !0xff) | 42);
    assert_eq!(number("arg0->next.next->mode"), -1);
    assert_eq!(number("file->both"), 0x1234_5678);
    let (low, high) = (number("file->low"), number("file->high"));
    assert_eq!((low.min(high), low.max(high)), (0x1234, 0x5678));
    assert_eq!(number("file->pairs[1].two"), 77);
    assert_eq!(number("file->tail[2]"), 99);
    assert_eq!(number("file[0].fd"), -7);
    assert_eq!(number("file->next[0].pairs[1].two"), 77);
}

#[test]
#[cfg(target_endian = "little")]
fn bit_fields_are_cut_out() {
    let (scope, machine) = (look(), machine());
    assert_eq!(integer(&scope, &machine, "file->a"), (5, Shape::Unsigned));
    assert_eq!(integer(&scope, &machine, "file->b"), (-3, Shape::Signed));
    let ty = Some(FieldType::Hex(8));
    let read = get(&scope, &machine, "file->b", ty).unwrap();
    assert_eq!(read, (Some(Got::Integer(0b11101)), Shape::Hex));
}

#[test]
fn a_bit_field_in_any_place_is_cut_out() {
    use crate::trace::resolve::reach::Reach;
    let bytes: Vec<u8> = (0..32_u8).map(|n| n.wrapping_mul(151) ^ 0x5a).collect();
    let mut machine = Machine::default();
    machine.kernel(0x1000, &bytes);
    machine.registers[0] = 0x1000;
    if cfg!(target_endian = "big") {
        return;
    }
    for bit in 0..100_u32 {
        for bits in 1..=32_u32 {
            for size in [1, 4, 8] {
                let mut reach = Reach::register(0);
                reach.dereference(false).unwrap();
                let rest = reach.skip(bit.into()).unwrap();
                let Ok(field) = reach.bit_field(rest, bits, size, false) else { continue };
                let expected = (0..bits)
                    .map(|n| u64::from(bytes[((bit + n) / 8) as usize] >> ((bit + n) % 8) & 1) << n)
                    .sum();
                assert_eq!(
                    machine.fetch(&field),
                    Some(Got::Integer(expected)),
                    "{bit} {bits} {size}"
                );
            }
        }
    }
}

#[test]
fn values_have_the_shapes_of_their_types() {
    let (scope, machine) = (look(), machine());
    let shape = |text| integer(&scope, &machine, text).1;
    assert_eq!(shape("file"), Shape::Pointer);
    assert_eq!(shape("file->data"), Shape::Pointer);
    assert_eq!(shape("file->open"), Shape::Symbol);
    assert_eq!(shape("file->is_open"), Shape::Bool);
    assert_eq!(shape("pid"), Shape::Unsigned);
    let Shape::Enum(mode) = shape("file->mode") else { panic!() };
    assert_eq!(
        (mode.name(u64::MAX), mode.name(2), mode.name(3)),
        (Some("NONE"), Some("WRITE"), None)
    );
    let read = get(&scope, &machine, "file->id", None).unwrap();
    assert_eq!(read, (Some(Got::Bytes(vec![1, 2, 3, 4])), Shape::Bytes));
}

#[test]
fn registers_are_as_wide_as_their_types() {
    let (scope, machine) = (look(), machine());
    assert_eq!(integer(&scope, &machine, "count"), (-2, Shape::Signed));
    assert_eq!(integer(&scope, &machine, "letter"), (0x41, Shape::Char));
    let read = |ty| get(&scope, &machine, "count", Some(ty)).unwrap().0.unwrap();
    assert_eq!(read(FieldType::Unsigned(16)), Got::Integer(0xfffe));
    // A wider type has the same value, not what else is in the register.
    assert_eq!(read(FieldType::Signed(64)), Got::Integer(-2i64 as u64));
    assert_eq!(read(FieldType::Hex(64)), Got::Integer(-2i64 as u64));
    let numbers = ["pid", "tid", "uid", "cpu"].map(|name| integer(&scope, &machine, name).0);
    assert_eq!(numbers, [100, 101, 102, 103]);
    assert_eq!(text(&scope, &machine, "comm").as_deref(), Some("dd"));
}

#[test]
fn strings_are_of_the_memory_that_they_are_in() {
    let (scope, machine) = (look(), machine());
    let text_at = |name| text(&scope, &machine, name);
    assert_eq!(text_at("text").as_deref(), Some("kernel's"));
    assert_eq!(text_at("path").as_deref(), Some("user's"));
    assert_eq!(text_at("file->name").as_deref(), Some("a-name"));
    assert_eq!(text_at("file->path").as_deref(), Some("kernel's"));
    // What is behind memory of the process is its own, too.
    assert_eq!(text_at("theirs->path").as_deref(), Some("user's"));
    assert_eq!(integer(&scope, &machine, "theirs->next->fd").0 & 0xff, 44);
    let with = |name, ty| get(&scope, &machine, name, Some(ty)).unwrap().0;
    let bytes = |text: &str| Some(Got::Bytes(text.into()));
    assert_eq!(with("text", FieldType::Ustr), bytes("user's"));
    assert_eq!(with("path", FieldType::Str), bytes("kernel's"));
    assert_eq!(with("file->path", FieldType::Ustr), bytes("user's"));
    assert_eq!(with("theirs->path", FieldType::Str), bytes("kernel's"));
    assert_eq!(with("text", FieldType::Bytes(6)), bytes("kernel"));
    assert_eq!(with("file->name", FieldType::Bytes(3)), bytes("a-n"));
    assert_eq!(with("file->data", FieldType::Str), None, "nothing is there");
}

#[test]
fn functions_that_are_known_have_users_strings() {
    let machine = machine();
    let mut with_buf = super::machine();
    with_buf.registers[1] = 0x3000;
    let read = FunctionScope::entry(btf(), "vfs_read").unwrap();
    assert_eq!(text(&read, &with_buf, "buf").as_deref(), Some("user's"));
    let any = FunctionScope::entry(btf(), "ksys_any").unwrap();
    let bytes = get(&any, &machine, "buf", Some(FieldType::Bytes(1))).unwrap().0;
    assert_eq!(bytes, Some(Got::Bytes(vec![43])));
}

#[test]
fn structures_in_registers_have_members_too() {
    let scope = FunctionScope::entry(btf(), "by_value").unwrap();
    let mut machine = machine();
    machine.registers[0] = 0xffff_ffff_1234_5678;
    if cfg!(target_endian = "little") {
        assert_eq!(integer(&scope, &machine, "uid.low").0, 0x5678);
        assert_eq!(integer(&scope, &machine, "uid.high").0, 0x1234);
    }
    assert_eq!(
        error(&scope, "uid"),
        "0: uid is a struct small, of which one member can be read; there is low, high"
    );
    assert_eq!(
        error(&scope, "wide"),
        "0: wide is passed by value, and has no register of its own: it is `__int128`"
    );
    assert_eq!(
        error(&scope, "after"),
        "0: after comes behind wide, which is passed by value and has no register of its own: \
         where it is is not known"
    );
    let [(name, field, shape)] = &scope.defaults()[..] else { panic!() };
    assert_eq!((name.as_str(), shape), ("uid", &Shape::Hex));
    assert_eq!(machine.fetch(field), Some(Got::Integer(0x1234_5678)));
}

#[test]
fn what_cannot_be_read_is_told_with_what_can() {
    let scope = look();
    for (text, told) in [
        (
            "fil",
            "0: there is no fil here: look has file, count, text, path, theirs, letter, seventh; did you mean file?",
        ),
        (
            "arg9",
            "0: there is no arg9 here: look has file, count, text, path, theirs, letter, seventh",
        ),
        (
            "retval",
            "0: look has not returned yet: there is no retval; --ret tells of calls when they return",
        ),
        ("latency", "0: how long look took is not known here: --ret with kprobe:look tells it"),
        ("seventh", "0: seventh is argument 7 of look: only the first 6 are in registers"),
        ("pid.x", "4: pid has no members"),
        ("file->pathh", "6: struct file has no member pathh; there is path"),
        ("file->data->x", "12: file.data is `void *`: of what it points to, no members are known"),
        ("file->fd.x", "9: file.fd has no members: it is `int`"),
        ("file->a.x", "8: file.a has no members: it is a bit field"),
        ("file->fd[1]", "9: file.fd is no array: it is `int`"),
        ("file->data[1]", "11: file.data has elements of no known size: `void`"),
        ("file->pairs[3]", "12: file.pairs has 3 elements, up to [2]"),
        ("file->pairs", "6: file.pairs is an array; [0] is its first element"),
        (
            "file->pairs[1]",
            "12: file.pairs[1] is a struct pair, of which one member can be read; there is one, two",
        ),
    ] {
        assert_eq!(error(&scope, text), told);
    }
    let far = ["file", "fd"].join(&"->next".repeat(6)).replace("nextfd", "next->fd");
    assert!(plan(&scope, Some(&[field(&far, None)]), &[], None).is_ok());
    let far = ["file", "fd"].join(&"->next".repeat(7)).replace("nextfd", "next->fd");
    assert!(error(&scope, &far).ends_with("is behind more than 6 pointers"));
    let others = FunctionScope::entry(btf(), "others").unwrap();
    assert_eq!(
        error(&others, "p->x"),
        "3: p is a struct later, whose members the kernel's BTF does not have"
    );
}

#[test]
fn types_that_do_not_fit_are_refused_where_they_stand() {
    let scope = look();
    for (text, ty, told) in [
        ("count", FieldType::Str, "count is neither an address nor an array of characters"),
        ("count", FieldType::Symbol, "count is no address"),
        ("count", FieldType::Bytes(4), "count is in a register, and no address"),
        ("text", FieldType::Bytes(0), "text can be read as 1 to 1024 bytes"),
        ("text", FieldType::Bytes(1025), "text can be read as 1 to 1024 bytes"),
        (
            "count",
            FieldType::Unsigned(7),
            "count cannot be read as an integer of 7 bits: 8, 16, 32 or 64",
        ),
        ("file->a", FieldType::Bytes(1), "file.a is a bit field"),
    ] {
        let error = plan(&scope, Some(&[field(text, Some(ty))]), &[], None).unwrap_err();
        assert_eq!((error.at, error.what.as_str()), (100, told));
    }
}

#[test]
fn what_a_function_returns_is_a_result() {
    let machine = machine();
    let look = FunctionScope::returning(btf(), "look").unwrap();
    assert_eq!(integer(&look, &machine, "retval"), (-2, Shape::Result));
    assert_eq!(look.defaults().len(), 1);
    assert_eq!(
        error(&look, "file->fd"),
        "0: file is not there any more when look returns, only retval is; --ret with kprobe:look tells both"
    );
    let nothing = FunctionScope::returning(btf(), "by_value").unwrap();
    assert_eq!(error(&nothing, "retval"), "0: by_value returns nothing");
    assert!(nothing.defaults().is_empty());
    let mut with_file = super::machine();
    with_file.registers[16] = 0x1000;
    let others = FunctionScope::returning(btf(), "others").unwrap();
    assert_eq!(integer(&others, &with_file, "retval"), (0x1000, Shape::Pointer));
    assert_eq!(integer(&others, &with_file, "retval->fd"), (-7, Shape::Signed));
}

#[test]
fn defaults_are_all_arguments_that_can_be_read() {
    let (scope, machine) = (look(), machine());
    let defaults = scope.defaults();
    let names: Vec<_> = defaults.iter().map(|(name, _, _)| name.as_str()).collect();
    assert_eq!(names, ["file", "count", "text", "path", "theirs", "letter"]);
    assert_eq!(machine.fetch(&defaults[3].1), Some(Got::Bytes(b"user's".into())));
    let plan = plan(&scope, None, &[], None).unwrap();
    // Integers come first in the table.
    let slots: Vec<_> = plan.fields.iter().map(|field| field.slot).collect();
    assert_eq!(slots, [0, 1, 4, 5, 2, 3]);
    assert_eq!((plan.table.field_count, plan.table.integer_count), (6, 4));
}

#[test]
fn a_name_comes_before_a_number() {
    let scope = FunctionScope::entry(btf(), "others").unwrap();
    let named =
        FieldPath { base: FieldBase::Name("arg0".to_owned()), at: At(0), steps: Vec::new() };
    assert_eq!(scope.field(&named, None, At(0)).unwrap().0.base, 2);
    assert_eq!(scope.field(&path("arg0"), None, At(0)).unwrap().0.base, 0);
}

#[test]
fn raw_tracepoints_have_the_arguments_of_their_callbacks() {
    let mut machine = machine();
    machine.registers[..3].copy_from_slice(&[1, 0x1000, 0x3000]);
    let scope = RawTracepointScope::new(btf(), "looked").unwrap();
    assert_eq!(integer(&scope, &machine, "again"), (1, Shape::Bool));
    assert_eq!(integer(&scope, &machine, "file->fd"), (-7, Shape::Signed));
    assert_eq!(integer(&scope, &machine, "arg1->fd").0, -7);
    assert_eq!(text(&scope, &machine, "text").as_deref(), Some("kernel's"));
    assert_eq!(text(&scope, &machine, "comm").as_deref(), Some("dd"));
    assert_eq!(
        error(&scope, "fle"),
        "0: there is no fle here: looked has again, file, text; did you mean file?"
    );
    let unnamed = RawTracepointScope::new(btf(), "unnamed").unwrap();
    assert_eq!(integer(&unnamed, &machine, "arg1->fd").0, -7);
    let names: Vec<_> = unnamed.defaults().into_iter().map(|(name, _, _)| name).collect();
    assert_eq!(names, ["arg0", "arg1", "arg2"]);
    assert!(RawTracepointScope::new(btf(), "none").is_err());
}

#[test]
fn without_types_there_are_registers() {
    let machine = machine();
    let scope = UntypedScope::Entry;
    assert_eq!(integer(&scope, &machine, "arg0"), (0x1000, Shape::Hex));
    let text = get(&scope, &machine, "arg3", Some(FieldType::Ustr)).unwrap().0;
    assert_eq!(text, Some(Got::Bytes(b"user's".into())));
    assert_eq!(scope.defaults().len(), 6);
    assert_eq!(
        error(&scope, "arg6"),
        "0: the types of its arguments are not known: only arg0 to arg5 can be read"
    );
    assert_eq!(
        error(&scope, "arg0->x"),
        "6: the types of its arguments are not known: arg0 has no members"
    );
    assert_eq!(integer(&UntypedScope::Return, &machine, "retval"), (-2, Shape::Hex));
}
