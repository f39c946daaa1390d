use super::field::{At, FieldBase, FieldPath, FieldType, PathStep};
use super::predicate::{Comparison, Literal, Operator, Predicate};
use super::{ProbeSpec, Provider};
use proptest::prelude::*;

fn parsed(spec: &str) -> ProbeSpec {
    spec.parse().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn specs_are_read_as_they_are_shown() {
    for (spec, shown) in [
        ("vfs_read", "kprobe:vfs_read"),
        ("k:vfs_read", "kprobe:vfs_read"),
        ("kprobe:foo.isra.0", "kprobe:foo.isra.0"),
        ("kr:vfs_read", "kretprobe:vfs_read"),
        ("f:vfs_read", "fentry:vfs_read"),
        ("kfunc:vfs_read", "fentry:vfs_read"),
        ("fr:vfs_read", "fexit:vfs_read"),
        ("kretfunc:vfs_read", "fexit:vfs_read"),
        ("ksyscall:openat", "ksyscall:openat"),
        ("tracepoint:sched:sched_switch", "tracepoint:sched:sched_switch"),
        ("t:sched:sched_switch", "tracepoint:sched:sched_switch"),
        ("t:s*:*_[ab]?", "tracepoint:s*:*_[ab]?"),
        ("rawtp:sys_enter", "rawtp:sys_enter"),
        ("rt:sys_enter", "rawtp:sys_enter"),
        ("u:libc:malloc", "uprobe:libc:malloc"),
        ("ur:./a+b-c.so:f", "uretprobe:./a+b-c.so:f"),
        ("u:/bin/x:f+0x10(arg0)/arg0/", "uprobe:/bin/x:f+0x10(arg0)/arg0 != 0/"),
        ("k:nf_tables:nft_*", "kprobe:nf_tables:nft_*"),
        ("tcp_[!a-c]*", "kprobe:tcp_[!a-c]*"),
        ("f+16", "kprobe:f+0x10"),
        ("f+0", "kprobe:f"),
        ("f()", "kprobe:f()"),
        ("f( a , b=c )", "kprobe:f(a, b=c)"),
        ("f(a->b[3].c)", "kprobe:f(a.b[3].c)"),
        ("f($arg1,arg15,retval)", "kprobe:f(arg0, arg15, retval)"),
        ("f(x=arg0:x64, arg0:ustr)", "kprobe:f(x=arg0:x64, arg0:ustr)"),
        ("f(a:bytes[0x10])", "kprobe:f(a:bytes[16])"),
        ("f(arg, arg01, argument)", "kprobe:f(arg, arg01, argument)"),
        ("f/a/", "kprobe:f/a != 0/"),
        ("f / a / ", "kprobe:f/a != 0/"),
        ("f(a) /a/", "kprobe:f(a)/a != 0/"),
        ("f/!a/", "kprobe:f/!a/"),
        ("f/!!(a)/", "kprobe:f/!!a/"),
        ("f/!(a == 5)/", "kprobe:f/!(a == 5)/"),
        ("f/a&&b||c/", "kprobe:f/(a != 0 && b != 0) || c != 0/"),
        ("f/a&&(b||!c)/", "kprobe:f/a != 0 && (b != 0 || !c)/"),
        ("f/4096 < count/", "kprobe:f/count > 4096/"),
        ("f/-1 >= x:s32/", "kprobe:f/x:s32 <= -1/"),
        ("f/0x10 & flags/", "kprobe:f/flags & 16/"),
        ("f/\"a\\n\\\"/\" == comm/", "kprobe:f/comm == \"a\\x0a\\\"/\"/"),
        ("f/comm != \"grün\t\"/", "kprobe:f/comm != \"gr\\xc3\\xbcn\\x09\"/"),
        ("f/state == TCP_ESTABLISHED/", "kprobe:f/state == TCP_ESTABLISHED/"),
        ("f/c == 'a'/", "kprobe:f/c == 97/"),
    ] {
        let spec = parsed(spec);
        assert_eq!(spec.to_string(), shown);
        assert_eq!(parsed(shown), spec);
    }
}

#[test]
fn parts_are_where_they_belong() {
    let spec = parsed(
        "uprobe:/usr/lib/x86_64-linux-gnu/libc.so.6:malloc+4(n=arg0:u32, p->q[2]) /n:u8 > 7/",
    );
    assert_eq!(spec.provider(), Provider::Uprobe);
    assert_eq!(spec.module(), Some("/usr/lib/x86_64-linux-gnu/libc.so.6"));
    assert_eq!((spec.name(), spec.offset(), spec.is_glob()), ("malloc", 4, false));
    let [n, p] = spec.fields().unwrap() else { panic!("{spec}") };
    assert_eq!((n.name.as_deref(), &n.path.base), (Some("n"), &FieldBase::Argument(0)));
    assert_eq!(n.ty, Some(FieldType::Unsigned(32)));
    assert_eq!((n.path.at.0, n.ty_at.0), (54, 59));
    assert_eq!((&p.name, &p.path.base), (&None, &FieldBase::Name("p".into())));
    let steps = [(PathStep::Member("q".into()), At(0)), (PathStep::Index(2), At(0))];
    assert_eq!(p.path.steps, steps);
    assert_eq!([p.path.steps[0].1.0, p.path.steps[1].1.0], [67, 69]);
    let Some(Predicate::Compare(comparison)) = spec.predicate() else { panic!("{spec}") };
    let expected = Comparison {
        path: FieldPath { base: FieldBase::Name("n".into()), at: At(0), steps: Vec::new() },
        ty: Some(FieldType::Unsigned(8)),
        operator: Operator::Greater,
        value: Literal::Integer(7),
        value_at: At(0),
    };
    assert_eq!((comparison, comparison.value_at.0), (&expected, 81));
    assert_eq!(spec.error(81, "no").to_string().lines().last().unwrap().len(), 2 + 81 + 1);

    let spec = parsed("nf_conntrack:nf_ct_*");
    assert_eq!((spec.provider(), spec.module()), (Provider::Kprobe, Some("nf_conntrack")));
    assert_eq!((spec.name(), spec.is_glob()), ("nf_ct_*", true));
    let spec = parsed("t:tcp:*");
    assert_eq!((spec.module(), spec.name(), spec.is_glob()), (None, "tcp:*", true));
    assert_eq!(spec.tracepoint(), Some(("tcp", "*")));
    assert_eq!((spec.fields(), spec.predicate()), (None, None));
    assert_eq!(parsed("f()").fields(), Some(&[][..]));
}

#[test]
fn and_binds_more_than_or() {
    let name = |spec: &Predicate| match spec {
        Predicate::Compare(comparison) => comparison.path.to_string(),
        other => panic!("{other}"),
    };
    let spec = parsed("f/a || b && c || d/");
    let Some(Predicate::Any(terms)) = spec.predicate() else { panic!("{spec}") };
    let [a, Predicate::All(both), d] = &terms[..] else { panic!("{spec}") };
    assert_eq!([name(a), name(&both[0]), name(&both[1]), name(d)], ["a", "b", "c", "d"]);
}

#[test]
fn nesting_has_an_end() {
    for (open, close) in [("(", ")"), ("!", ""), ("!(", ")")] {
        let nested = |count: usize| {
            let (open, close) = (open.repeat(count), close.repeat(count));
            format!("f/{open}a{close}/").parse::<ProbeSpec>()
        };
        let most = 32 / open.len();
        assert_eq!(parsed(&nested(most).unwrap().to_string()), nested(most).unwrap());
        let told = nested(most + 1).unwrap_err().to_string();
        assert!(told.starts_with("this is in more than 32 others\n"), "{told}");
        assert!(nested(1_000_000).is_err());
    }
}

/// Wrong specs: what is told, and at which character.
const WRONG: &[(&str, &str, usize)] = &[
    ("", "a name has to come here", 0),
    ("kprobe:", "a name has to come here", 7),
    ("(a)", "a name has to come here", 0),
    ("/bin/x:f", "a name has to come here", 0),
    (":x", "a provider has to come before the colon, like kprobe", 0),
    ("kprob:x", "there is no provider `kprob`: did you mean kprobe?", 0),
    ("tracepont:a:b", "there is no provider `tracepont`: did you mean tracepoint?", 0),
    ("a b", "no name of the kernel has this character", 1),
    ("a ", "no name of the kernel has this character", 1),
    ("a (b)", "no name of the kernel has this character", 1),
    ("a\u{1b}[2J", "no name of the kernel has this character", 1),
    ("ä", "no name of the kernel has this character", 0),
    ("u:x:ä", "no name has this character", 4),
    ("rawtp:a:b", "there is one colon too many", 7),
    ("k:a:b:c", "there is one colon too many", 5),
    ("t:a:b:c", "there is one colon too many", 5),
    ("u:a:b:c", "there is one colon too many", 5),
    ("k:a*:b", "a module is named in full", 3),
    ("k:a:", "a name has to come here", 4),
    ("tracepoint:a", "a tracepoint is written tracepoint:CATEGORY:NAME", 12),
    ("tracepoint::a", "a tracepoint is written tracepoint:CATEGORY:NAME", 11),
    ("t:a:", "a tracepoint is written tracepoint:CATEGORY:NAME", 4),
    ("u:malloc", "a uprobe is written uprobe:FILE:FUNCTION", 8),
    ("ur::malloc", "a uretprobe is written uretprobe:FILE:FUNCTION", 3),
    ("u:libc(arg0:u8)", "a uprobe is written uprobe:FILE:FUNCTION", 6),
    ("u:a b:f", "a file has letters, digits and /._-+~@,=%# in its name here", 3),
    ("a[b", "this [ is not closed", 1),
    ("a[]", "characters have to come here, like [ab] or [!0-9]", 2),
    ("a[!]", "characters have to come here, like [ab] or [!0-9]", 3),
    ("a[b*]", "this cannot be among the characters of [...]", 3),
    ("t:a:b+1", "a tracepoint has no offset: only kprobe and uprobe have", 5),
    ("kr:a+0", "a kretprobe has no offset: only kprobe and uprobe have", 4),
    ("a*+1", "what is meant by a pattern has no offset", 2),
    ("a+", "an offset has to come here, like 16 or 0x10", 2),
    ("a+b", "an offset has to come here, like 16 or 0x10", 2),
    ("a+0x", "this is no hexadecimal number", 2),
    ("a+99999999999999999999", "this number is more than what 64 bits can hold", 2),
    ("a+1+2", "this character means nothing here", 3),
    ("f(", "a field has to come here: a name, arg0 or retval", 2),
    ("f(,", "a field has to come here: a name, arg0 or retval", 2),
    ("f(a,)", "a field has to come here: a name, arg0 or retval", 4),
    ("f(a", "a comma or a closing parenthesis has to come here", 3),
    ("f(a b)", "a comma or a closing parenthesis has to come here", 4),
    ("f(a==1)", "a comma or a closing parenthesis has to come here", 3),
    ("f(a)b", "only a predicate may come here: /.../", 4),
    ("f(1)", "a field has to come here: a name, arg0 or retval", 2),
    ("f(a.)", "the name of a member has to come here", 4),
    ("f(a->1)", "the name of a member has to come here", 5),
    ("f(a[b])", "the number of an element has to come here, from 0 on", 4),
    ("f(a[-1])", "the number of an element has to come here, from 0 on", 4),
    ("f(a[4294967296])", "the number of an element has to come here, from 0 on", 4),
    ("f(a[1)", "a closing bracket has to come here", 5),
    (
        "f(a:)",
        "a type has to come here: u8 to u64, s8 to s64, x8 to x64, str, ustr, sym, bytes[N]",
        4,
    ),
    (
        "f(a:u33)",
        "there is no type `u33`: u8 to u64, s8 to s64, x8 to x64, str, ustr, sym, bytes[N]",
        4,
    ),
    ("f(a:bytes)", "how many bytes? bytes[1] to bytes[1024]", 9),
    ("f(a:bytes[0])", "how many bytes? bytes[1] to bytes[1024]", 10),
    ("f(a:bytes[1025])", "how many bytes? bytes[1] to bytes[1024]", 10),
    ("f($arg0)", "$arg1 is the first argument; without the $, arg0 is", 2),
    ("f($arg17)", "there are $arg1 to $arg16", 2),
    ("f(arg16)", "there are arg0 to arg15", 2),
    ("f(arg99999)", "there are arg0 to arg15", 2),
    ("f($x)", "a $ comes before the number of an argument alone, like $arg1", 2),
    ("f($x=a)", "a $ comes before the number of an argument alone, like $arg1", 2),
    ("f(a, b=a, a)", "two fields are called `a`: give one another name, NAME=", 10),
    ("f(a.b, a->b)", "two fields are called `a.b`: give one another name, NAME=", 7),
    ("f(a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q)", "a probe has up to 16 fields", 34),
    ("f//", "a condition has to come here, like count > 4096", 2),
    ("f/a", "&&, || or the / at a predicate's end has to come here", 3),
    ("f/a &&/", "a condition has to come here, like count > 4096", 6),
    ("f/a b/", "&&, || or the / at a predicate's end has to come here", 4),
    ("f/a/b", "nothing comes behind a predicate", 4),
    ("f/(a/", "&&, || or a closing parenthesis has to come here", 4),
    ("f/a)/", "&&, || or the / at a predicate's end has to come here", 3),
    ("f/a = 1/", "to compare is written ==", 4),
    ("f/a == /", "a number, a string or a name has to come here", 7),
    ("f/5/", "one side of a comparison has to be a field", 2),
    ("f/5 == 5/", "one side of a comparison has to be a field", 7),
    (
        "f/a == b.c/",
        "a field is compared with a number, a string or the name of an enumerator, not with another \
         field",
        7,
    ),
    (
        "f/a == arg1/",
        "a field is compared with a number, a string or the name of an enumerator, not with another \
         field",
        7,
    ),
    ("f/a < b < 5/", "comparisons are joined by && and ||", 8),
    ("f/1 < a < 5/", "comparisons are joined by && and ||", 8),
    ("f/!a == 5/", "! comes before a field alone, or before parentheses: !(a == b)", 5),
    ("f/comm < \"a\"/", "strings are compared by == and != alone", 7),
    ("f/\"a\" & comm/", "strings are compared by == and != alone", 6),
    ("f/a == 09/", "what starts with 0 is an octal number: its digits are 0 to 7", 7),
    ("f/a == 0b2/", "this is no binary number: its digits are 0 and 1", 7),
    ("f/a == 12x/", "this is no number", 7),
    ("f/a == -9223372036854775809/", "this number is less than what 64 bits can hold", 7),
    ("f/a == \"b/", "this string is not closed", 7),
    (
        "f/a == \"\\q\"/",
        "there is no such escape: \\a \\b \\e \\f \\n \\r \\t \\v \\0 \\\\ \\\" \\' \\xNN",
        8,
    ),
    ("f/a == \"\\xg0\"/", "\\x is followed by two hexadecimal digits", 8),
    ("f/a == \"b\\0\"/", "a string has no zero byte in it", 9),
    ("f/a == \"\0\"/", "a string has no zero byte in it", 8),
    ("f/a == 'ab'/", "a character is one byte, like 'a' or '\\n'", 7),
    ("f/a | b/", "this character means nothing here", 4),
    ("f(ä)", "this character means nothing here", 2),
];

#[test]
fn wrong_specs_are_told_where() {
    for &(spec, what, at) in WRONG {
        let error = spec.parse::<ProbeSpec>().unwrap_err().to_string();
        let shown: Vec<String> = spec
            .chars()
            .map(|char| match char {
                ' '..='~' => char.to_string(),
                _ => char.escape_default().to_string(),
            })
            .collect();
        let blank = " ".repeat(shown[..at].concat().len());
        assert_eq!(error, format!("{what}\n  {}\n  {blank}^", shown.concat()), "{spec}");
    }
    assert_eq!(
        "kprobe:vfs_read(".parse::<ProbeSpec>().unwrap_err().to_string(),
        "a field has to come here: a name, arg0 or retval\n  kprobe:vfs_read(\n                  ^"
    );
}

/// Whatever is read is shown in a way that is read as the same, and that any terminal shows.
fn check(text: &str) -> Result<bool, TestCaseError> {
    match text.parse::<ProbeSpec>() {
        Ok(spec) => {
            let shown = spec.to_string();
            prop_assert!(shown.bytes().all(|byte| matches!(byte, b' '..=b'~')), "{:?}", shown);
            prop_assert_eq!(shown.parse(), Ok(spec));
            Ok(true)
        }
        Err(error) => {
            let told = error.to_string();
            prop_assert_eq!(told.lines().count(), 3);
            prop_assert!(
                told.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\n')),
                "{:?}",
                told
            );
            Ok(false)
        }
    }
}

/// Pieces of specs, in any order.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "kprobe:",
        "u:/a-b:",
        "t:",
        "f",
        "x*",
        "[ab]",
        ":",
        "+0x10",
        "(",
        ")",
        "/",
        "/",
        "a",
        "b=",
        "arg0",
        "$arg2",
        "retval",
        ".",
        "->",
        "[3]",
        ":u32",
        ":str",
        ":bytes[4]",
        ",",
        "==",
        "<",
        "&",
        "&&",
        "||",
        "!",
        "5",
        "-0x1",
        "'a'",
        "\"dd\"",
        "\"",
        "\\",
        " ",
        "\t",
        "ä",
        "\u{1b}",
    ]);
    prop::collection::vec(piece, 0..16).prop_map(|pieces| pieces.concat())
}

fn path() -> impl Strategy<Value = String> {
    let base = prop::sample::select(vec!["arg0", "$arg3", "retval", "pid", "x", "__y"]);
    let step = prop::sample::select(vec![".a", "->b", "[0]", "[0x10]", " . c"]);
    let ty = prop::sample::select(vec!["", ":u8", ":s64", " : x16", ":str", ":sym", ":bytes[9]"]);
    (base, prop::collection::vec(step, 0..4), ty)
        .prop_map(|(base, steps, ty)| format!("{base}{}{ty}", steps.concat()))
}

fn condition() -> impl Strategy<Value = String> {
    let operator = prop::sample::select(vec!["==", "!=", "<", "<=", ">", ">=", "&"]);
    let value = prop::sample::select(vec!["0", "-1", "0xffffffffffffffff", "017", "'\\n'"]);
    let text = prop::sample::select(vec!["\"dd\"", "\"/\"", "\"\\\"\\xff\"", "\"ä\"", "\"\""]);
    let leaf = prop_oneof![
        path(),
        path().prop_map(|path| format!("!{path}")),
        path().prop_map(|path| format!("{path} == NAME")),
        (path(), operator.clone(), value.clone()).prop_map(|(a, by, b)| format!("{a}{by}{b}")),
        (value, operator, path()).prop_map(|(a, by, b)| format!("{a} {by} {b}")),
        (path(), text).prop_map(|(path, text)| format!("{path} != {text}")),
    ];
    leaf.prop_recursive(6, 40, 4, |inner| {
        let many = || prop::collection::vec(inner.clone(), 1..4);
        prop_oneof![
            many().prop_map(|terms| format!("({})", terms.join(" && "))),
            many().prop_map(|terms| format!("({})", terms.join("||"))),
            many().prop_map(|terms| format!("!({})", terms.join(" && "))),
            inner.prop_map(|term| format!("!({term})")),
        ]
    })
}

fn whole() -> impl Strategy<Value = String> {
    let head = prop::sample::select(vec![
        "vfs_read",
        "k:a.b+7",
        "kr:m:f*",
        "f:x",
        "fr:[a-z]?",
        "t:a:b",
        "rt:x",
        "u:/l/c++:f+010",
        "ur:a:$x",
        "ksyscall:open",
    ]);
    let fields = prop_oneof![
        Just(String::new()),
        prop::collection::vec(path(), 0..6).prop_map(|paths| {
            let name = |(number, path)| format!("n{number}={path}");
            format!("({})", paths.iter().enumerate().map(name).collect::<Vec<_>>().join(" , "))
        }),
    ];
    let predicate =
        prop_oneof![Just(String::new()), condition().prop_map(|text| format!(" /{text}/"))];
    (head, fields, predicate)
        .prop_map(|(head, fields, predicate)| format!("{head}{fields}{predicate}"))
}

proptest! {
    #[test]
    fn any_text_is_read_or_told(text in any::<String>()) {
        check(&text)?;
    }

    #[test]
    fn any_pieces_are_read_or_told(text in pieces()) {
        check(&text)?;
    }

    #[test]
    fn right_specs_are_read(text in whole()) {
        prop_assert!(check(&text)?, "{}", text.parse::<ProbeSpec>().unwrap_err());
    }
}
