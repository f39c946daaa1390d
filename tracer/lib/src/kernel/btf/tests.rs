use super::builder::Builder;
use super::*;
use probe_testing::skip::skip;
use proptest::prelude::*;

const VOID: TypeId = TypeId::VOID;

#[test]
fn types_are_decoded() {
    let mut b = Builder::new();
    let int = b.int("int", 4, 1);
    let long = b.int("unsigned long", 8, 0);
    let number = b.typedef("number", int);
    let pointer = b.pointer(number);
    let array = b.array(long, 3);
    let forward = b.forward("later");
    let function = b.function("f", int, &[("a", pointer), ("b", long)]);
    let btf = b.build();

    assert!(matches!(btf.at(VOID), Some(Type::Void)));
    let Some(Type::Int(found)) = btf.at(int) else { panic!() };
    assert_eq!((found.name, found.size, found.is_signed, found.bits), ("int", 4, true, 32));
    assert!(matches!(btf.at(number), Some(Type::Typedef { name: "number", of }) if of == int));
    assert!(matches!(btf.at(pointer), Some(Type::Pointer { to }) if to == number));
    assert!(matches!(btf.at(forward), Some(Type::Forward { name: "later", is_union: false })));
    assert_eq!(btf.size_of(array), Some(24));
    assert_eq!(btf.size_of(pointer), Some(8));
    assert_eq!(btf.size_of(forward), None);
    assert_eq!(btf.type_name(pointer), "number *");
    assert_eq!(btf.type_name(array), "unsigned long [3]");
    assert_eq!(btf.resolve(number).unwrap().id, int);
    assert_eq!(btf.named(Kind::Func, "f"), [function]);
    assert_eq!(btf.named(Kind::Func, ""), []);
    btf.index_functions();
    assert_eq!(btf.named(Kind::Func, "f"), [function]);
    assert_eq!(btf.named(Kind::Func, "g"), []);
    assert_eq!(btf.named(Kind::Typedef, "number"), [number]);
    assert!(btf.at(TypeId(btf.end_type())).is_none());
    let Some(Type::Prototype(prototype)) = btf.at(btf.function("f").unwrap()) else { panic!() };
    let parameters: Vec<_> = prototype.parameters().map(|one| (one.name, one.ty)).collect();
    assert_eq!(parameters, [("a", pointer), ("b", long)]);
    assert_eq!(prototype.returns, int);
}

#[test]
fn members_of_anonymous_members_are_found() {
    let mut b = Builder::new();
    let int = b.int("int", 4, 1);
    let deep = b.structure("", 8, &[("x", int, 0, 0), ("y", int, 32, 0)]);
    let either = b.union("", 8, &[("", deep, 0, 0), ("z", int, 0, 0)]);
    let either = b.constant(either);
    let named = b.structure("inner", 4, &[("hidden", int, 0, 0)]);
    let outer =
        b.structure("outer", 16, &[("a", int, 0, 0), ("", either, 32, 0), ("named", named, 96, 0)]);
    let btf = b.build();
    assert_eq!(btf.member_names(outer), ["a", "x", "y", "z", "named"]);
    let offset = |name| btf.member(outer, name).map(|found| found.bit_offset);
    let all = ["a", "x", "y", "z", "named", "hidden", ""].map(offset);
    assert_eq!(all, [Some(0), Some(32), Some(64), Some(32), Some(96), None, None]);
}

#[test]
fn bit_fields_of_both_encodings_are_found() {
    let mut b = Builder::new();
    let int = b.int("unsigned int", 4, 0);
    let old = b.bits("unsigned int", 4, 5);
    let new = b.structure("new", 8, &[("a", int, 3, 7), ("b", int, 32, 0)]);
    let before = b.structure("before", 8, &[("a", old, 3, 0), ("b", int, 32, 0)]);
    let btf = b.build();
    let found = |of, name| {
        let found = btf.member(of, name).unwrap();
        (found.bit_offset, found.bit_size)
    };
    assert_eq!((found(new, "a"), found(new, "b")), ((3, 7), (32, 0)));
    assert_eq!((found(before, "a"), found(before, "b")), ((3, 5), (32, 0)));
}

#[test]
fn enumerators_have_their_signs_and_all_bits() {
    let mut b = Builder::new();
    let signed = b.enumeration("s", (4, true), &[("MINUS", -1), ("ONE", 1)]);
    b.enumeration("u", (4, false), &[("MOST", 0xffff_ffff), ("BOTH", 1)]);
    b.enumeration("w", (8, false), &[("WIDE", 1 << 40), ("BOTH", 2)]);
    let btf = b.build();
    let Some(Type::Enum(values)) = btf.at(signed) else { panic!() };
    assert_eq!(values.values().collect::<Vec<_>>(), [("MINUS", u64::MAX), ("ONE", 1)]);
    let found = ["MINUS", "MOST", "WIDE", "BOTH", "NONE"].map(|name| btf.enumerator(name));
    assert_eq!(found, [Some(-1), Some(0xffff_ffff), Some(1 << 40), None, None]);
}

#[test]
fn enumerations_without_signs_are_signed_if_values_are_negative() {
    let of = |has_signs: bool| {
        let mut b = Builder::new();
        let states = b.enumeration("states", (4, false), &[("DEAD", -4), ("ACTIVE", 1)]);
        let bits = b.enumeration("bits", (4, false), &[("LAST", i64::from(i32::MIN)), ("ONE", 1)]);
        if has_signs {
            b.enumeration("other", (4, true), &[("LESS", -1)]);
        }
        let btf = b.build();
        [states, bits].map(|id| match btf.at(id) {
            Some(Type::Enum(values)) => {
                (values.is_signed, values.values().next().unwrap().1 as i64)
            }
            _ => panic!(),
        })
    };
    assert_eq!(of(false), [(true, -4), (false, 0x8000_0000)]);
    assert_eq!(of(true), [(false, 0xffff_fffc), (false, 0x8000_0000)]);
}

#[test]
fn user_tags_are_recognized() {
    let mut b = Builder::new();
    let char = b.int("char", 1, 0);
    let constant = b.constant(char);
    let tagged = b.tag("user", constant);
    let other = b.tag("rcu", constant);
    let btf = b.build();
    let is_user = |id| btf.resolve(id).map(|found| (found.id, found.is_user));
    assert_eq!(is_user(tagged), Some((char, true)));
    assert_eq!(is_user(other), Some((char, false)));
}

#[test]
fn split_types_continue_those_of_the_base() {
    let mut b = Builder::new();
    let int = b.int("int", 4, 1);
    b.function("both", int, &[]);
    b.function("of_base", int, &[("a", int)]);
    let base = b.build();
    let mut b = Builder::on(Arc::clone(&base));
    let pair = b.structure("pair", 8, &[("one", int, 0, 0), ("two", int, 32, 0)]);
    b.function("both", VOID, &[("p", pair)]);
    let btf = b.build();
    assert_eq!(pair.0, base.end_type());
    assert!(base.at(pair).is_none());
    assert_eq!(btf.type_name(pair), "struct pair");
    assert_eq!(btf.member(pair, "two").unwrap().bit_offset, 32);
    assert_eq!(btf.type_name(int), "int");
    // The module's own function takes precedence; others come from the kernel.
    assert_ne!(btf.function("both"), base.function("both"));
    assert_eq!(btf.function("of_base"), base.function("of_base"));
    assert_eq!(btf.all(Kind::Func).count(), 3);
}

#[test]
fn own_functions_are_unique_in_one_file() {
    let mut b = Builder::new();
    let int = b.int("int", 4, 1);
    for name in ["both", "of_base", "twice", "twice"] {
        b.function(name, int, &[]);
    }
    let base = b.build();
    let mut b = Builder::on(Arc::clone(&base));
    b.function("both", int, &[]);
    let module = b.build();
    for is_indexed in [false, true] {
        if is_indexed {
            base.index_functions();
            module.index_functions();
        }
        assert!(base.own_function("both").unwrap().0 < base.end_type());
        assert!(module.own_function("both").unwrap().0 >= base.end_type());
        assert_eq!(module.own_function("of_base"), Err(NoPrototype::Unknown));
        assert_eq!(base.own_function("twice"), Err(NoPrototype::Ambiguous));
    }
}

#[test]
fn functions_of_one_name_are_ambiguous_if_they_differ() {
    let mut b = Builder::new();
    let int = b.int("int", 4, 1);
    for name in ["same", "same", "other"] {
        b.function(name, int, &[("a", int)]);
    }
    b.function("other", int, &[("a", int), ("b", int)]);
    let btf = b.build();
    assert!(btf.function("same").is_ok());
    assert_eq!(btf.function("other"), Err(NoPrototype::Ambiguous));
    assert_eq!(btf.function("none"), Err(NoPrototype::Unknown));
}

#[test]
fn cycles_and_deep_nesting_end() {
    let mut b = Builder::new();
    let next = b.next();
    let circle = b.typedef("circle", next);
    let array = b.next();
    b.array(array, 2);
    let inside = b.next();
    b.structure("", 8, &[("", inside, 0, 0), ("", inside, 0, 0), ("x", circle, 0, 0)]);
    let mut deep = b.int("int", 4, 0);
    for _ in 0..1000 {
        deep = b.array(deep, 1);
    }
    let mut nested = b.structure("", 4, &[("x", deep, 0, 0)]);
    for _ in 0..1000 {
        nested = b.structure("", 4, &[("", nested, 0, 0)]);
    }
    let pointer = b.next();
    b.pointer(pointer);
    let btf = b.build();
    assert!(btf.resolve(circle).is_none());
    assert_eq!([circle, array, deep].map(|id| btf.size_of(id)), [None; 3]);
    assert_eq!([circle, pointer].map(|id| btf.type_name(id)), ["circle", "?"]);
    assert_eq!(btf.member_names(inside), ["x"]);
    assert!(btf.member(nested, "x").is_none());
}

#[test]
fn damaged_files_are_refused() {
    let mut b = Builder::new();
    b.int("int", 4, 1);
    let good = b.bytes();
    let error = |bytes: &[u8]| Btf::parse(bytes.to_vec(), None).unwrap_err().to_string();
    assert_eq!(error(&good[..23]), "the BTF ends within its header at 0");
    assert_eq!(error(&good[..good.len() - 1]), "the BTF ends within its strings at 40");
    for (at, byte, expected) in [
        (0, 1, "the file is not BTF of this machine: it begins with 0xeb01"),
        (2, 2, "unknown BTF version 2"),
        (31, 20, "the BTF has a type of unknown kind 20 at 24"),
        (31, 0, "the BTF has a type of unknown kind 0 at 24"),
        (31, 4, "the BTF ends within its type at 36"),
        (good.len() - 1, 1, "the BTF's last string is not terminated"),
    ] {
        let mut bytes = good.clone();
        bytes[at] = byte;
        assert_eq!(error(&bytes), expected);
    }
}

#[test]
fn the_kernels_types_are_read() {
    let Ok(btf) = Btf::kernel() else { return skip("this kernel has no BTF") };
    let btf = Arc::new(btf);
    let none = Btf::module("no-module", Arc::clone(&btf)).unwrap_err().to_string();
    assert!(none.starts_with("cannot read /sys/kernel/btf/no-module: "), "{none}");
    let [task] = btf.named(Kind::Struct, "task_struct")[..] else { panic!() };
    let comm = btf.member(task, "comm").unwrap();
    assert_eq!((comm.bit_size, btf.size_of(comm.ty)), (0, Some(16)));
    assert_eq!(btf.type_name(btf.member(task, "pid").unwrap().ty), "pid_t");
    let Some(Type::Prototype(open)) = btf.at(btf.function("do_sys_openat2").unwrap()) else {
        panic!()
    };
    let parameters: Vec<_> = open.parameters().map(|one| one.name).collect();
    assert_eq!(parameters, ["dfd", "filename", "how"]);
    let exec = btf.raw_tracepoint("sched_process_exec").unwrap();
    assert!(matches!(btf.at(exec), Some(Type::Prototype(_))));
    assert_eq!(btf.enumerator("BPF_MAP_TYPE_PERF_EVENT_ARRAY"), Some(4));
}

proptest! {
    #[test]
    fn arbitrary_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        crate::fuzzing::btf(&bytes);
    }

    #[test]
    fn damaged_types_do_not_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
        flags in 0..4u8,
    ) {
        let mut bytes = sample().bytes();
        for (at, byte) in changes {
            *at.get_mut(&mut bytes) = byte;
        }
        bytes.insert(0, flags);
        crate::fuzzing::btf(&bytes);
    }
}

/// BTF with types of all kinds.
pub(crate) fn sample() -> Builder {
    let mut b = Builder::new();
    let int = b.int("int", 4, 1);
    let char = b.int("char", 1, 0);
    let text = b.pointer(char);
    let name = b.array(char, 16);
    let deep = b.structure("", 8, &[("x", int, 0, 0), ("bits", int, 35, 9)]);
    let either = b.union("", 8, &[("", deep, 0, 0), ("z", int, 0, 0)]);
    let own = b.next();
    let to_own = b.pointer(TypeId(own.0 + 1));
    b.structure("s", 40, &[("n", to_own, 0, 0), ("name", name, 64, 0), ("", either, 192, 0)]);
    b.enumeration("e", (4, true), &[("A", -1), ("B", 1)]);
    let wide = b.enumeration("w", (8, false), &[("C", 1 << 40)]);
    let wide = b.typedef("wide", wide);
    let user = b.tag("user", char);
    let user = b.pointer(user);
    b.function("f", int, &[("s", to_own), ("t", text), ("w", wide), ("u", user)]);
    b
}
