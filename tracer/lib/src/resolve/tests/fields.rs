use super::*;
use crate::resolve::reach::Reach;
use probe_testing::skip::skip;

#[test]
fn members_are_read_through_pointers_and_anonymous_members() {
    let (source, machine) = (look(), machine());
    let number = |text| integer(&source, &machine, text).0;
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
    let (source, machine) = (look(), machine());
    assert_eq!(integer(&source, &machine, "file->a"), (5, Shape::Unsigned));
    assert_eq!(integer(&source, &machine, "file->b"), (-3, Shape::Signed));
}

/// What follows a structure or an array is not part of it.
#[test]
fn integers_end_where_structures_and_arrays_do() {
    let (look, by_value) = (look(), function("by_value", Moment::Entry));
    for text in ["file->pairs[0]:u64", "file->id:u32", "file->id:x16", "file->name:x64"] {
        assert!(resolve(&look, text).is_ok(), "{text}");
    }
    assert!(resolve(&by_value, "uid:u32").is_ok());
    for (source, text, what) in [
        (&look, "file->id:u64", "file.id has 4 bytes, not 8"),
        (&by_value, "uid:u64", "uid has 4 bytes, not 8"),
    ] {
        assert_eq!(resolve(source, text).unwrap_err().what, what);
    }
}

#[test]
fn a_bit_field_in_any_place_is_cut_out() {
    let bytes: Vec<u8> = (0..32_u8).map(|n| n.wrapping_mul(151) ^ 0x5a).collect();
    let mut machine = Machine::default();
    machine.kernel(0x1000, &bytes);
    machine.registers[0] = 0x1000;
    if cfg!(target_endian = "big") {
        return skip("the expected bits are those of little-endian machines");
    }
    for bit in 0..100_u32 {
        for bits in 1..=32_u32 {
            for size in [1, 4, 8] {
                let mut reach = Reach::register(0);
                reach.dereference(false).unwrap();
                let rest = reach.skip(bit.into()).unwrap();
                let Ok(field) = reach.bit_field(rest, bits, size, false) else { continue };
                let is_set = |at: u32| u64::from(bytes[(at / 8) as usize] >> (at % 8) & 1);
                let expected = Got::Integer((0..bits).map(|n| is_set(bit + n) << n).sum());
                assert_eq!(machine.fetch(&field), Some(expected), "{bit} {bits} {size}");
            }
        }
    }
}

#[test]
fn values_have_the_shapes_of_their_types() {
    let (source, machine) = (look(), machine());
    let shape = |text| integer(&source, &machine, text).1;
    assert_eq!(shape("file"), Shape::Pointer);
    assert_eq!(shape("file->data"), Shape::Pointer);
    assert_eq!(shape("file->open"), Shape::Symbol);
    assert_eq!(shape("file->is_open"), Shape::Bool);
    assert_eq!(shape("pid"), Shape::Unsigned);
    let Shape::Enum(mode) = shape("file->mode") else { panic!() };
    assert_eq!([u64::MAX, 2, 3].map(|value| mode.name(value)), [Some("NONE"), Some("WRITE"), None]);
    let read = get(&source, &machine, "file->id", None).unwrap();
    assert_eq!(read, (Some(Got::Bytes(vec![1, 2, 3, 4])), Shape::Bytes));
}

#[test]
fn registers_are_as_wide_as_their_types() {
    let (source, machine) = (look(), machine());
    assert_eq!(integer(&source, &machine, "count"), (-2, Shape::Signed));
    assert_eq!(integer(&source, &machine, "letter"), (0x41, Shape::Char));
    let read = |ty| get(&source, &machine, "count", Some(ty)).unwrap().0.unwrap();
    assert_eq!(read(FieldType::Unsigned(16)), Got::Integer(0xfffe));
    // A wider type extends the value; it does not read the rest of the register.
    assert_eq!(read(FieldType::Signed(64)), Got::Integer(-2i64 as u64));
    assert_eq!(read(FieldType::Hex(64)), Got::Integer(-2i64 as u64));
    let numbers = ["pid", "tid", "uid", "cpu"].map(|name| integer(&source, &machine, name).0);
    assert_eq!(numbers, [100, 101, 102, 103]);
    assert_eq!(text(&source, &machine, "comm").as_deref(), Some("dd"));
}

#[test]
fn strings_are_read_from_the_memory_that_their_pointers_point_to() {
    let (source, machine) = (look(), machine());
    let text_at = |name| text(&source, &machine, name);
    assert_eq!(text_at("text").as_deref(), Some("kernel's"));
    assert_eq!(text_at("path").as_deref(), Some("user's"));
    assert_eq!(text_at("file->name").as_deref(), Some("a-name"));
    assert_eq!(text_at("file->path").as_deref(), Some("kernel's"));
    // Pointers in user memory point to user memory.
    assert_eq!(text_at("theirs->path").as_deref(), Some("user's"));
    assert_eq!(integer(&source, &machine, "theirs->next->fd").0 & 0xff, 44);
    let with = |name, ty| get(&source, &machine, name, Some(ty)).unwrap().0;
    let bytes = |text: &str| Some(Got::Bytes(text.into()));
    assert_eq!(with("text", FieldType::Ustr), bytes("user's"));
    // Where a pointer is known to point decides.
    assert_eq!(with("path", FieldType::Str), bytes("user's"));
    assert_eq!(with("file->path", FieldType::Ustr), bytes("user's"));
    assert_eq!(with("theirs->path", FieldType::Str), bytes("user's"));
    assert_eq!(with("theirs->name", FieldType::Str), with("theirs->name", FieldType::Ustr));
    assert_ne!(with("theirs->name", FieldType::Str), None);
    assert_eq!(with("text", FieldType::Str), bytes("kernel's"));
    assert_eq!(with("text", FieldType::Bytes(6)), bytes("kernel"));
    assert_eq!(with("file->name", FieldType::Bytes(3)), bytes("a-n"));
    assert_eq!(with("file->data", FieldType::Str), None, "nothing is there");
}

#[test]
fn strings_that_fill_their_arrays_and_abstract_names_are_whole() {
    let source = function("bound", Moment::Entry);
    for (path, expected) in [
        (b"12345678", "12345678"),
        (b"1234567\0", "1234567"),
        (b"\0bstract", "\0bstract"),
        (b"\0ab\0\0\0\0c", "\0ab"),
        (b"\0\0......", ""),
    ] {
        let mut machine = machine();
        machine.kernel(0x6000, &[&[1, 0][..], path, b"behind\0"].concat());
        machine.registers[0] = 0x6000;
        assert_eq!(text(&source, &machine, "address->sun_path").as_deref(), Some(expected));
    }
    // Other arrays end at their first zero byte.
    let mut machine = machine();
    machine.kernel(0x1008, b"12345678");
    assert_eq!(text(&look(), &machine, "file->name").as_deref(), Some("12345678"));
    machine.kernel(0x1008, b"\x002345678");
    assert_eq!(text(&look(), &machine, "file->name").as_deref(), Some(""));
}

#[test]
fn arrays_of_unknown_size_need_a_type() {
    let (source, machine) = (look(), machine());
    let list = get(&source, &machine, "file->id", None).unwrap();
    assert_eq!(list, (Some(Got::Bytes(vec![1, 2, 3, 4])), Shape::Bytes));
    let error = error(&source, "file->tail");
    assert_eq!(error, "6: file.tail has no size that could be read; :bytes[N] reads N bytes");
}

#[test]
fn listed_functions_have_strings_in_user_memory() {
    let machine = machine();
    let mut with_buf = super::machine();
    with_buf.registers[1] = 0x3000;
    let access = function("do_faccessat", Moment::Entry);
    assert_eq!(text(&access, &with_buf, "filename").as_deref(), Some("user's"));
    let any = function("ksys_any", Moment::Entry);
    let bytes = get(&any, &machine, "buf", Some(FieldType::Bytes(1))).unwrap().0;
    assert_eq!(bytes, Some(Got::Bytes(vec![43])));
}

#[test]
fn structures_in_registers_have_members_too() {
    let source = function("by_value", Moment::Entry);
    let mut machine = machine();
    machine.registers[0] = 0xffff_ffff_1234_5678;
    if cfg!(target_endian = "little") {
        assert_eq!(integer(&source, &machine, "uid.low").0, 0x5678);
        assert_eq!(integer(&source, &machine, "uid.high").0, 0x1234);
    }
    let [(name, field, shape)] = &source.defaults()[..] else { panic!() };
    assert_eq!((name.as_str(), shape), ("uid", &Shape::Hex));
    assert_eq!(machine.fetch(field), Some(Got::Integer(0x1234_5678)));
}

#[test]
fn errors_suggest_fields_that_can_be_read() {
    // A function, a path at its entry, the position of the error, and the error.
    for line in [
        "look fil 0: unknown field fil: look has file, count, text, path, theirs, letter, seventh; did you mean `file`?",
        "look arg9 0: unknown field arg9: look has file, count, text, path, theirs, letter, seventh",
        "look retval 0: look has not returned yet, so there is no retval; --ret reports calls when they return",
        "look latency 0: the latency of look is not known here; use --ret with kprobe:look",
        "look seventh 0: seventh is argument 7 of look: only the first 6 are in registers",
        "look pid.x 4: pid has no members",
        "look file->pathh 6: struct file has no member pathh; did you mean `path`?",
        "look file->data->x 12: file.data is `void *`, so its target has no known members",
        "look file->fd.x 9: file.fd has no members: it is `int`",
        "look file->a.x 8: file.a has no members: it is a bit field",
        "look file->fd[1] 9: file.fd is not an array: it is `int`",
        "look file->data[1] 11: file.data has elements of no known size: `void`",
        "look file->pairs[3] 12: file.pairs has 3 elements, up to [2]",
        "look file->pairs 6: file.pairs is an array; [0] is its first element",
        "look file->pairs[1] 12: file.pairs[1] is a struct pair: only its members can be read; available: one, two",
        "others p->x 3: p is a struct later, whose members the kernel's BTF does not have",
        "by_value uid 0: uid is a struct small: only its members can be read; available: low, high",
        "by_value wide 0: wide is passed by value, and has no register of its own: it is `__int128`",
        "by_value after 0: after follows wide, which is passed by value without a register of its own, so its location is unknown",
    ] {
        let (name, rest) = line.split_once(' ').unwrap();
        let (path, message) = rest.split_once(' ').unwrap();
        assert_eq!(error(&function(name, Moment::Entry), path), message);
    }
    let far = |steps| format!("file{}->fd", "->next".repeat(steps));
    assert!(plan(&look(), Some(&[field(&far(6), None)]), &[], None).is_ok());
    assert!(error(&look(), &far(7)).ends_with("is behind more than 6 pointers"));
}

#[test]
fn errors_of_types_have_the_position_of_the_type() {
    let source = look();
    for (text, ty, message) in [
        ("count", FieldType::Str, "count is neither an address nor an array of characters"),
        ("count", FieldType::Symbol, "count is not an address"),
        ("count", FieldType::Bytes(4), "count is in a register and is not an address"),
        ("text", FieldType::Bytes(0), "text can be read as 1 to 4096 bytes"),
        ("text", FieldType::Bytes(4097), "text can be read as 1 to 4096 bytes"),
        (
            "count",
            FieldType::Unsigned(7),
            "count cannot be read as an integer of 7 bits: 8, 16, 32 or 64",
        ),
        ("file->a", FieldType::Bytes(1), "file.a is a bit field"),
    ] {
        let error = plan(&source, Some(&[field(text, Some(ty))]), &[], None).unwrap_err();
        assert_eq!((error.at, error.what.as_str()), (100, message));
    }
}

#[test]
fn return_values_are_results() {
    let machine = machine();
    let look = function("look", Moment::Return);
    assert_eq!(integer(&look, &machine, "retval"), (-2, Shape::Result));
    assert_eq!(look.defaults().len(), 1);
    assert_eq!(
        error(&look, "file->fd"),
        "0: file is no longer available when look returns, only retval is; use --ret with kprobe:look for both"
    );
    let nothing = function("by_value", Moment::Return);
    assert_eq!(error(&nothing, "retval"), "0: by_value returns nothing");
    assert!(nothing.defaults().is_empty());
    let mut with_file = super::machine();
    with_file.registers[16] = 0x1000;
    let others = function("others", Moment::Return);
    assert_eq!(integer(&others, &with_file, "retval"), (0x1000, Shape::PointerOrError));
    assert_eq!(integer(&others, &with_file, "retval->fd"), (-7, Shape::Signed));
    let spec: crate::ProbeSpec = "kr:f/retval == ENOENT/".parse().unwrap();
    for source in [look, others] {
        let error = plan(&source, Some(&[]), &[], spec.predicate()).unwrap_err().what;
        assert!(error.contains("compare with -ENOENT"), "{error}");
    }
}

#[test]
fn all_readable_arguments_are_read_by_default() {
    let (source, machine) = (look(), machine());
    let defaults = source.defaults();
    assert_eq!(names(&defaults), ["file", "count", "text", "path", "theirs", "letter"]);
    assert_eq!(machine.fetch(&defaults[3].1), Some(Got::Bytes(b"user's".into())));
    let plan = plan(&source, None, &[], None).unwrap();
    // Integers come first in the table.
    let slots: Vec<_> = plan.fields.iter().map(|field| field.slot).collect();
    assert_eq!(slots, [0, 1, 4, 5, 2, 3]);
    assert_eq!((plan.table.field_count, plan.table.integer_count), (6, 4));
}

#[test]
fn a_name_comes_before_a_position() {
    let source = function("others", Moment::Entry);
    let position = |text: &str| source.field(&path(text), None, At(0)).map(|(field, _)| field.base);
    for (text, expected) in
        [("arg0", 2), ("$arg1", 0), ("arg1", 1), ("$arg2", 1), ("$arg3", 2), ("retval", 3)]
    {
        assert_eq!(position(text).unwrap(), expected, "{text}");
    }
    // It would be the third argument, which is called arg0.
    assert_eq!(
        position("arg2").unwrap_err().what,
        "arg2 is ambiguous: no argument has this name, and the one at this position, counted from 0, is called \
         arg0: write arg0 or $arg3"
    );
    assert_eq!(position("$arg5").unwrap_err().what.split(':').next(), Some("unknown field $arg5"));
    // A call's own names come before those of its arguments.
    let returned = |moment| {
        let (field, _) = function("others", moment).field(&path("retval"), None, At(0)).unwrap();
        field.base
    };
    assert_eq!([Moment::Return, Moment::Call, Moment::Exit].map(returned), [16, 16, 4]);
}

#[test]
fn built_in_fields_have_names_of_their_own() {
    let (source, machine) = (function("tasks", Moment::Entry), machine());
    assert_eq!(integer(&source, &machine, "pid"), (0x1000, Shape::Signed));
    assert_eq!(integer(&source, &machine, "$pid"), (100, Shape::Unsigned));
    let named = |text| parse(text).shown_name();
    assert_eq!(["$pid", "$arg1", "$arg1->a", "x=$pid"].map(named), ["$pid", "arg0", "arg0.a", "x"]);
}

#[test]
fn a_value_is_extended_by_its_own_sign() {
    let (source, machine) = (look(), machine());
    let read = |text, ty| match get(&source, &machine, text, Some(ty)) {
        Ok((Some(Got::Integer(value)), _)) => Ok(value.cast_signed()),
        Ok(other) => panic!("{other:?}"),
        Err(what) => Err(what),
    };
    use FieldType::{Hex, Signed, Unsigned};
    // `a` is unsigned, 5 in three bits; `b` is signed, -3 in five bits.
    for ty in [Signed(8), Signed(64), Unsigned(32), Hex(64)] {
        assert_eq!(read("file->a", ty), Ok(5), "{ty:?}");
    }
    assert_eq!(read("file->b", Signed(16)), Ok(-3));
    assert_eq!(read("file->b", Unsigned(64)), Ok(-3));
    for (text, ty) in [
        ("letter", Hex(16)),
        ("letter", Unsigned(32)),
        ("file->b", Unsigned(8)),
        ("file->b", Hex(32)),
    ] {
        let what = read(text, ty).unwrap_err();
        assert!(what.contains("cannot be extended to an unsigned one"), "{what}");
    }
    assert_eq!(read("count", Unsigned(32)), Ok(0xffff_fffe));
}

#[test]
fn raw_tracepoints_have_the_arguments_of_their_callbacks() {
    let mut machine = machine();
    machine.registers[..3].copy_from_slice(&[1, 0x1000, 0x3000]);
    let source = FunctionFields::raw_tracepoint(btf(), "looked").unwrap();
    assert_eq!(integer(&source, &machine, "again"), (1, Shape::Bool));
    assert_eq!(integer(&source, &machine, "file->fd"), (-7, Shape::Signed));
    assert_eq!(integer(&source, &machine, "arg1->fd").0, -7);
    assert_eq!(text(&source, &machine, "text").as_deref(), Some("kernel's"));
    assert_eq!(text(&source, &machine, "comm").as_deref(), Some("dd"));
    assert_eq!(
        error(&source, "fle"),
        "0: unknown field fle: looked has again, file, text; did you mean `file`?"
    );
    let unnamed = FunctionFields::raw_tracepoint(btf(), "unnamed").unwrap();
    assert_eq!(integer(&unnamed, &machine, "arg1->fd").0, -7);
    assert_eq!(names(&unnamed.defaults()), ["arg0", "arg1", "arg2"]);
    assert!(FunctionFields::raw_tracepoint(btf(), "none").is_err());
}

#[test]
fn what_each_cpu_has_is_not_read() {
    let mut b = Builder::new();
    let int = b.int("int", 4, 1);
    let counts = b.structure("counts", 4, &[("found", int, 0, 0)]);
    let tagged = b.tag("percpu", counts);
    let counts = b.pointer(tagged);
    let net = b.structure("net", 8, &[("counts", counts, 0, 0)]);
    let net = b.pointer(net);
    b.function("look_in", int, &[("net", net)]);
    let source = FunctionFields::new(b.build(), "look_in", Moment::Entry).unwrap();
    // The offset itself is a value like any other.
    assert_eq!(resolve(&source, "net->counts").unwrap().1, Shape::Pointer);
    for path in ["net->counts->found", "net->counts[1].found"] {
        let expected = "net.counts is not an address: each CPU has a value of its own there";
        assert!(error(&source, path).contains(expected), "{}", error(&source, path));
    }
}

#[test]
fn a_result_in_memory_moves_the_arguments() {
    let register = |function: &FunctionFields, name| resolve(function, name).unwrap().0.base;
    let large = function("returns_large", Moment::Call);
    // The address of the result comes first.
    let first = u8::from(cfg!(target_arch = "x86_64"));
    assert_eq!((register(&large, "a"), register(&large, "e")), (first, first + 4));
    assert_eq!((register(&large, "arg1"), register(&large, "$arg1")), (first + 1, first));
    if first == 1 {
        let expected = "0: f is argument 6 of returns_large: only the first 5 are in registers";
        assert_eq!(error(&large, "f"), expected);
    }
    let expected = "0: retval is returned in memory, not in a register: it is `struct large`";
    for retval in ["retval", "retval.one"] {
        assert_eq!(error(&large, retval), expected);
    }
    let left_out = large.left_out();
    assert!(left_out.iter().any(|one| one.name == "retval"), "{left_out:?}");
    // What fits into two registers is returned there.
    let pair = function("returns_pair", Moment::Call);
    assert_eq!((register(&pair, "a"), register(&pair, "f")), (0, 5));
    assert_eq!(register(&pair, "retval.one"), probe_tracer_common::fetch::base::RETVAL);
}

#[test]
fn types_that_say_what_their_numbers_mean_have_names() {
    let mut b = Builder::new();
    let int = b.int("int", 4, 1);
    let word = b.int("unsigned int", 4, 0);
    let short = b.int("unsigned short", 2, 0);
    let device = b.typedef("__kernel_dev_t", word);
    let device = b.typedef("dev_t", device);
    let mode = b.typedef("umode_t", short);
    let clock = b.typedef("clockid_t", int);
    let family = b.typedef("sa_family_t", short);
    let inode = b.structure(
        "inode",
        12,
        &[
            ("i_mode", mode, 0, 0),
            ("family", family, 16, 0),
            ("i_rdev", device, 32, 0),
            ("i_uid", word, 64, 0),
        ],
    );
    let inode = b.pointer(inode);
    let constant = b.constant(device);
    let arguments = [("dev", constant), ("inode", inode), ("which", clock), ("count", word)];
    b.function("open_device", device, &arguments);
    let types = b.build();
    let named = |text: &str, value: u64| {
        let source = FunctionFields::new(types.clone(), "open_device", Moment::Call).unwrap();
        let spec = parse(text);
        let planned = plan(&source, Some(&[spec]), &[], None).unwrap().fields.remove(0);
        let names = planned.field.names?;
        names.of_integer(value, &planned.field.shape).map(|name| name.into_owned())
    };
    for (text, value, name) in [
        ("dev", 8 << 20 | 1, Some("8:1")),
        ("arg0", 8 << 20 | 1, Some("8:1")),
        ("retval", 1 << 20 | 3, Some("1:3")),
        ("inode->i_rdev", 8 << 20, Some("8:0")),
        ("inode->i_mode", 0o100_644, Some("S_IFREG|0644")),
        ("inode->family", 2, Some("AF_INET")),
        ("which", 1, Some("CLOCK_MONOTONIC")),
        ("dev:u32", 8 << 20, None),
        ("inode->i_uid", 1000, None),
        ("count", 1, None),
    ] {
        assert_eq!(named(text, value).as_deref(), name, "{text}");
    }
    let source = FunctionFields::new(types.clone(), "open_device", Moment::Return).unwrap();
    let planned = plan(&source, None, &[], None).unwrap().fields;
    assert!(planned[0].field.names.is_some(), "the default field");
}

#[test]
fn without_types_there_are_registers() {
    let machine = machine();
    let source = UntypedFields::Kernel(Moment::Entry);
    assert_eq!(integer(&source, &machine, "arg0"), (0x1000, Shape::Hex));
    let text = get(&source, &machine, "arg3", Some(FieldType::Ustr)).unwrap().0;
    assert_eq!(text, Some(Got::Bytes(b"user's".into())));
    assert_eq!(source.defaults().len(), 6);
    assert_eq!(
        error(&source, "arg6"),
        "0: the types of its arguments are not known: only arg0 to arg5 can be read"
    );
    assert_eq!(
        error(&source, "arg0->x"),
        "6: the types of its arguments are not known: arg0 has no members"
    );
    assert_eq!(
        integer(&UntypedFields::Kernel(Moment::Return), &machine, "retval"),
        (-2, Shape::Hex)
    );
}

#[test]
fn a_field_is_read_once() {
    let fields = [field("path", None), field("count", None), field("file->fd", None)];
    let fd = || number("arg0->fd", Operator::Less, 0);
    let comm = || compare("comm", Operator::Equal, Operand::Text(b"dd".into()));
    let predicate = Predicate::All(vec![fd(), comm(), fd()]);
    let plan = plan(&look(), Some(&fields), &[], Some(&predicate)).unwrap();
    let named: Vec<_> = plan.fields.iter().map(|one| (one.field.name.as_str(), one.slot)).collect();
    assert_eq!(named, [("path", 3), ("count", 0), ("file.fd", 1)]);
    assert_eq!((plan.table.field_count, plan.table.integer_count), (4, 2));
    assert_eq!((plan.table.check_count, plan.table.checks_text), (3, 1));
    let mut machine = machine();
    assert!(machine.hit(&plan.table).1);
    machine.comm = b"ddd".to_vec();
    assert!(!machine.hit(&plan.table).1);
}

#[test]
fn the_number_of_fields_is_limited() {
    let many: Vec<_> = (0..33).map(|n| field(&format!("file->tail[{n}]"), None)).collect();
    assert!(plan(&look(), Some(&many[..32]), &[], None).is_ok());
    let message = plan(&look(), Some(&many), &[], None).unwrap_err().what;
    assert_eq!(message, "a probe has at most 32 fields, those of its predicate included");
    let pid = number("pid", Operator::Equal, 1);
    assert!(plan(&look(), Some(&many[..32]), &[], Some(&pid)).is_err());
    let shared = number("file->tail[3]", Operator::Equal, 1);
    assert!(plan(&look(), Some(&many[..32]), &[], Some(&shared)).is_ok());
}

#[test]
fn names_of_fields_are_unique() {
    let twice = [field("count", None), field("count", Some(FieldType::Hex(8)))];
    let message = plan(&look(), Some(&twice), &[], None).unwrap_err().what;
    assert_eq!(message, "two fields are called count; rename one with NAME=PATH");
    let [one, mut other] = twice;
    other.name = Some("low".to_owned());
    let plan = plan(&look(), Some(&[one, other]), &[], None).unwrap();
    assert_eq!(plan.fields[1].field.name, "low");
}
