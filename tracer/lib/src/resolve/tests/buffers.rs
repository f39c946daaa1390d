//! Buffers whose lengths are fields.

use super::*;
use crate::resolve::SyscallFields;
use crate::resolve::tracepoint::tests::format_of;
use probe_tracer_common::fetch::{base, flag, kind};

const WRITE: &str = "\tfield:unsigned int fd;\toffset:16;\tsize:8;\tsigned:0;\n\
    \tfield:const char * buf;\toffset:24;\tsize:8;\tsigned:0;\n\
    \tfield:size_t count;\toffset:32;\tsize:8;\tsigned:0;\n";

const CONNECT: &str = "\tfield:int fd;\toffset:16;\tsize:8;\tsigned:0;\n\
    \tfield:struct sockaddr * uservaddr;\toffset:24;\tsize:8;\tsigned:0;\n\
    \tfield:int addrlen;\toffset:32;\tsize:8;\tsigned:0;\n";

fn syscall(name: &str, is_call: bool) -> SyscallFields {
    SyscallFields::new(name, format_of(WRITE), is_call)
}

fn fetch<'t>(plan: &'t Plan, name: &str) -> &'t FetchField {
    let field = plan.fields.iter().find(|field| field.field.name == name).unwrap();
    &plan.table.fields[usize::from(field.slot)]
}

/// The slot of a field's length.
fn length_of(field: &FetchField) -> Option<u8> {
    field.length.checked_sub(1)
}

#[test]
fn a_buffer_depends_on_the_argument_that_is_its_length() {
    let source = syscall("write", false);
    let plan = |fields: &[&str]| {
        let fields: Vec<_> = fields.iter().map(|field| parse(field)).collect();
        plan(&source, (!fields.is_empty()).then_some(&fields), &[], None)
    };
    let default = plan(&[]).unwrap();
    let slot = |name| default.fields.iter().find(|one| one.field.name == name).unwrap().slot;
    let buffer = fetch(&default, "buf");
    assert_eq!(
        (buffer.kind, buffer.size, length_of(buffer)),
        (kind::BYTES, 512, Some(slot("count")))
    );
    assert_eq!(default.fields[1].field.shape, Shape::Buffer);
    for (field, kind, size) in [
        ("buf", kind::BYTES, 512),
        ("args.buf", kind::BYTES, 512),
        ("buf:ustr", kind::STRING, 4097),
        ("buf:bytes[count]", kind::BYTES, 4096),
        ("buf:ustr[fd:s32]", kind::STRING, 4097),
    ] {
        let plan = plan(&[field]).unwrap();
        let [planned] = &plan.fields[..] else { panic!("{field}") };
        let fetch = &plan.table.fields[usize::from(planned.slot)];
        // The length is another field of the table, which is not shown.
        assert_eq!((fetch.kind, fetch.size, length_of(fetch)), (kind, size, Some(0)), "{field}");
        assert_eq!((plan.table.field_count, plan.table.late_fields), (2, 0), "{field}");
    }
    // Only a length that is known to be unsigned is long when its highest bit is set.
    for (field, is_unsigned) in [
        ("buf", true),
        ("buf:ustr", true),
        ("buf:bytes[count]", true),
        ("buf:bytes[count:s64]", false),
        ("buf:bytes[fd]", false),
        ("buf:bytes[fd:u32]", true),
    ] {
        let plan = plan(&[field]).unwrap();
        let flags = plan.table.fields[usize::from(plan.fields[0].slot)].flags;
        assert_eq!(flags & flag::UNSIGNED_LENGTH != 0, is_unsigned, "{field}");
    }
    // Explicit numbers, and other system calls, have no such length.
    let fixed = plan(&["buf:bytes[7]"]).unwrap();
    assert_eq!((fixed.table.field_count, fixed.table.fields[0].length), (1, 0));
    let error = plan(&["buf:bytes[buf]"]).unwrap_err().what;
    assert_eq!(error, "buf is not an integer, so it is no length");
    let other = super::plan(&syscall("other", false), None, &[], None).unwrap();
    assert_eq!(fetch(&other, "buf").length, 0);
}

#[test]
fn a_buffer_that_the_call_fills_is_read_at_its_return() {
    let source = syscall("read", true);
    let plan = plan(&source, None, &[], None).unwrap();
    let slot = |name| plan.fields.iter().find(|one| one.field.name == name).unwrap().slot;
    let buffer = fetch(&plan, "buf");
    assert_eq!(
        (buffer.base, buffer.kind, buffer.user, buffer.steps),
        (base::FIELD, kind::BYTES, 1, 0)
    );
    assert_eq!(length_of(buffer), Some(slot("retval")));
    assert_eq!(plan.table.late_fields >> slot("buf") & 1, 1);
    // The address is that of the entry.
    let address = &plan.table.fields[usize::from(buffer.from)];
    assert_eq!((address.kind, address.size, address.steps), (kind::INTEGER, 8, 0));
    assert_eq!(plan.table.late_fields >> buffer.from & 1, 0);
    // At the entry, only the address is known.
    let entry = super::plan(&syscall("read", false), Some(&[parse("buf:x64")]), &[], None).unwrap();
    assert_eq!(fetch(&entry, "buf").length, 0);
}

#[test]
fn what_a_call_fills_is_read_at_its_return_whatever_its_type() {
    const PIPE: &str = "\tfield:int * fildes;\toffset:16;\tsize:8;\tsigned:0;\n\
        \tfield:int flags;\toffset:24;\tsize:8;\tsigned:0;\n";
    let of = |source: SyscallFields, field: &str| {
        let plan = plan(&source, Some(&[parse(field)]), &[], None).unwrap();
        let slot = plan.fields[0].slot;
        let field = plan.table.fields[usize::from(slot)];
        (field, plan.table.late_fields >> slot & 1 != 0, plan.table)
    };
    let pipe = |is_call| SyscallFields::new("pipe2", format_of(PIPE), is_call);
    for (source, text, length) in [
        (syscall("read", true), "buf:bytes[5]", None),
        (syscall("read", true), "buf:ustr[count]", Some(false)),
        (syscall("read", true), "buf:ustr", Some(true)),
        (pipe(true), "fildes:bytes[8]", None),
    ] {
        let (field, is_late, table) = of(source, text);
        assert!(is_late, "{text}");
        let address = &table.fields[usize::from(field.from)];
        assert_eq!((field.base, field.user, address.kind), (base::FIELD, 1, kind::INTEGER));
        assert_eq!(table.late_fields >> field.from & 1, 0, "{text}");
        let length_of_field = length_of(&field).map(|length| table.fields[usize::from(length)]);
        let is_result = length_of_field.map(|length| length.base == base::RETVAL);
        assert_eq!(is_result, length, "{text}");
    }
    // Nothing else waits: what the call reads, the address itself, and what is seen of the entry alone.
    for (source, text) in [
        (syscall("write", true), "buf:bytes[5]"),
        (pipe(true), "fildes"),
        (pipe(true), "fildes:x64"),
        (pipe(false), "fildes:x64"),
    ] {
        assert!(!of(source, text).1, "{text}");
    }
    let spec: ProbeSpec = "t:a:b/flags == 0 && fildes:bytes[2] == \"\\x07\\0\"/".parse().unwrap();
    let table = plan(&pipe(true), Some(&[]), &[], spec.predicate()).unwrap().table;
    assert_eq!((table.check_count, table.early_checks), (2, 1));
    let field = usize::from(table.checks[1].field);
    assert_eq!((table.fields[field].base, table.late_fields >> field & 1), (base::FIELD, 1));
}

#[test]
fn the_path_of_getcwd_is_a_string() {
    let getcwd = "\tfield:char * buf;\toffset:16;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned long size;\toffset:24;\tsize:8;\tsigned:0;\n";
    let fields = |is_call| SyscallFields::new("getcwd", format_of(getcwd), is_call);
    let call = super::plan(&fields(true), None, &[], None).unwrap();
    let buffer = fetch(&call, "buf");
    assert_eq!((buffer.kind, buffer.user), (kind::STRING, 1));
    assert!(length_of(buffer).is_some());
    // Its bytes are still there.
    let bytes = [parse("buf:bytes[retval]")];
    let bytes = super::plan(&fields(true), Some(&bytes), &[], None).unwrap();
    assert_eq!(bytes.table.fields[usize::from(bytes.fields[0].slot)].kind, kind::BYTES);
    let entry = super::plan(&fields(false), None, &[], None).unwrap();
    assert_eq!(fetch(&entry, "buf").kind, kind::INTEGER, "it is not filled yet");
}

#[test]
fn a_buffer_that_is_filled_in_part_has_two_bounds() {
    let getxattr = "\tfield:const char * pathname;\toffset:16;\tsize:8;\tsigned:0;\n\
        \tfield:void * value;\toffset:24;\tsize:8;\tsigned:0;\n\
        \tfield:size_t size;\toffset:32;\tsize:8;\tsigned:0;\n";
    let source = SyscallFields::new("getxattr", format_of(getxattr), true);
    for fields in [None, Some(&[parse("value")][..])] {
        let plan = plan(&source, fields, &[], None).unwrap();
        let value = fetch(&plan, "value");
        let length = &plan.table.fields[usize::from(length_of(value).unwrap())];
        let room = &plan.table.fields[usize::from(value.room) - 1];
        let size = super::plan(&source, Some(&[parse("size")]), &[], None).unwrap();
        assert_eq!((length.base, room), (base::RETVAL, fetch(&size, "size")));
    }
    // Every other call fills as much as it returns.
    let plan = plan(&syscall("read", true), None, &[], None).unwrap();
    assert_eq!(fetch(&plan, "buf").room, 0);
}

#[test]
fn a_predicate_compares_the_whole_buffer() {
    let source = syscall("write", false);
    let plan = |text: &str| {
        let spec: ProbeSpec = format!("t:a:b(buf){text}").parse().unwrap();
        plan(&source, spec.fields(), &[], spec.predicate())
    };
    for (text, fields) in [
        // The buffer that is compared is the one that is shown.
        ("/buf == \"hello\"/", [2, 2]),
        ("/buf == \"he\\0llo\"/", [2, 2]),
        ("/buf ~ \"he*\"/", [2, 2]),
        ("/buf:bytes[5] == \"hello\"/", [3, 2]),
    ] {
        let table = plan(text).unwrap().table;
        let field = &table.fields[usize::from(table.checks[0].field)];
        assert_eq!(field.kind, kind::BYTES, "{text}");
        assert_eq!([table.field_count, table.checks[0].field + 1], fields, "{text}");
        let is_bounded = !text.contains("bytes[5]");
        assert_eq!(length_of(field), is_bounded.then_some(0), "{text}");
    }
    let table = plan("/buf:ustr == \"hello\"/").unwrap().table;
    let field = &table.fields[usize::from(table.checks[0].field)];
    assert_eq!((field.kind, length_of(field)), (kind::STRING, Some(0)));
    let what = plan("/buf:bytes[5] == \"hell\"/").unwrap_err().what;
    assert!(what.starts_with("this is never true: the field always has 5 bytes"), "{what}");
    let what = plan("/buf:ustr == \"a\\0b\"/").unwrap_err().what;
    assert!(what.starts_with("a string ends at its first zero byte"), "{what}");
}

#[test]
fn a_predicate_waits_for_the_buffer_that_the_call_fills() {
    let condition = |text: &str| format!("t:a:b{text}").parse::<ProbeSpec>().unwrap();
    let source = syscall("read", true);
    for (text, kind) in [
        ("/buf == \"hello\"/", kind::BYTES),
        ("/args.buf != \"hello\"/", kind::BYTES),
        ("/buf:ustr ~ \"he*\"/", kind::STRING),
    ] {
        let spec = condition(text);
        let table = plan(&source, Some(&[]), &[], spec.predicate()).unwrap().table;
        let at = usize::from(table.checks[0].field);
        let field = &table.fields[at];
        assert_eq!((table.check_count, table.early_checks), (1, 0), "{text}");
        assert_eq!((field.kind, table.late_fields >> at & 1), (kind, 1), "{text}");
        // It ends where the result says.
        let length = &table.fields[usize::from(length_of(field).unwrap())];
        assert_eq!(length.base, base::RETVAL, "{text}");
    }
    // The bytes of an address are no text.
    let connect = SyscallFields::new("connect", format_of(CONNECT), true);
    let refused =
        plan(&connect, None, &[], condition("/uservaddr == \"127.0.0.1:80\"/").predicate());
    let what = refused.unwrap_err().what;
    assert!(what.contains("uservaddr:bytes[N] compares the bytes"), "{what}");
    // What the entry has is decided there.
    let spec = condition("/count == 5 && buf == \"hello\"/");
    let table = plan(&source, Some(&[]), &[], spec.predicate()).unwrap().table;
    assert_eq!((table.check_count, table.early_checks), (2, 1));

    // At the entry, the buffer has what was there before: only its address can be compared.
    let source = syscall("read", false);
    let refused = plan(&source, None, &[], condition("/buf == \"hello\"/").predicate());
    let what = refused.unwrap_err().what;
    assert!(what.starts_with("buf is not filled before the call returns; `probe trace"), "{what}");
    assert!(plan(&source, None, &[], condition("/buf != NULL/").predicate()).is_ok());
    for (fields, predicate) in [
        (vec![], "/buf:ustr == \"hello\"/"),
        (vec![], "/buf:bytes[1] == \"h\"/"),
        (vec![parse("buf:ustr")], ""),
        (vec![parse("buf:bytes[count]")], ""),
    ] {
        let refused = plan(&source, Some(&fields), &[], condition(predicate).predicate());
        assert_eq!(refused.unwrap_err().what, what, "{fields:?} {predicate}");
    }
}

#[test]
fn a_buffer_is_compared_with_other_data_as_a_whole() {
    let source = syscall("write", false);
    for (predicate, kinds) in [
        ("/buf == comm/", [kind::BYTES, kind::STRING]),
        ("/comm == buf/", [kind::STRING, kind::BYTES]),
        ("/buf:bytes[4] != comm/", [kind::BYTES, kind::STRING]),
        ("/buf:ustr == comm/", [kind::STRING, kind::STRING]),
    ] {
        let spec: ProbeSpec = format!("t:a:b{predicate}").parse().unwrap();
        let table = plan(&source, Some(&[]), &[], spec.predicate()).unwrap().table;
        let check = table.checks[0];
        let fields = [check.field, check.other - 1].map(|at| table.fields[usize::from(at)]);
        assert_eq!(fields.map(|field| field.kind), kinds, "{predicate}");
        let is_whole = fields.iter().filter(|field| field.kind == kind::BYTES && field.size > 4);
        assert!(is_whole.clone().all(|field| length_of(field).is_some()), "{predicate}");
    }
}
