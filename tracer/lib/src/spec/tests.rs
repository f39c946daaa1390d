use super::field::{At, FieldBase, FieldPath, FieldType, PathStep};
use super::parser::MASKED;
use super::predicate::{Comparison, Operand, Operator, Predicate};
use super::{ProbeSpec, Provider};
use proptest::prelude::*;

fn parsed(spec: &str) -> ProbeSpec {
    spec.parse().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn specs_are_displayed_in_full() {
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
        ("ksyscall:ia32:open*", "ksyscall:ia32:open*"),
        ("tracepoint:sched:sched_switch", "tracepoint:sched:sched_switch"),
        ("t:sched:sched_switch", "tracepoint:sched:sched_switch"),
        ("t:s*:*_[ab]?", "tracepoint:s*:*_[ab]?"),
        ("rawtp:sys_enter", "rawtp:sys_enter"),
        ("rt:sys_enter", "rawtp:sys_enter"),
        ("u:libc:malloc", "uprobe:libc:malloc"),
        ("ur:./a+b-c.so:f", "uretprobe:./a+b-c.so:f"),
        ("u:/bin/x:f+0x10(arg0)/arg0/", "uprobe:/bin/x:f+0x10(arg0)/arg0/"),
        ("k:nf_tables:nft_*", "kprobe:nf_tables:nft_*"),
        ("tcp_[!a-c]*", "kprobe:tcp_[!a-c]*"),
        ("f+16", "kprobe:f+0x10"),
        ("0xffffffff81234560", "kprobe:0xffffffff81234560"),
        ("kr:0xffffffff81234560(retval)", "kretprobe:0xffffffff81234560(retval)"),
        ("f+0", "kprobe:f"),
        ("f()", "kprobe:f()"),
        ("f( a , b=c )", "kprobe:f(a, b=c)"),
        ("f(a->b[3].c)", "kprobe:f(a.b[3].c)"),
        ("f($arg1,arg15,retval)", "kprobe:f($arg1, arg15, retval)"),
        (
            "f(pid,$pid,p=$comm)/$uid == 0 && $arg16/",
            "kprobe:f(pid, $pid, p=$comm)/$uid == 0 && $arg16/",
        ),
        ("f(x=arg0:x64, arg0:ustr)", "kprobe:f(x=arg0:x64, arg0:ustr)"),
        ("f(a:bytes[0x10])", "kprobe:f(a:bytes[16])"),
        ("f(a:bytes[ b->c ])", "kprobe:f(a:bytes[b.c])"),
        ("f(a=b:ustr[$arg2:s32])", "kprobe:f(a=b:ustr[$arg2:s32])"),
        ("f(arg, arg01, argument)", "kprobe:f(arg, arg01, argument)"),
        ("f/a/", "kprobe:f/a/"),
        ("f / a / ", "kprobe:f/a/"),
        ("f(a) /a/", "kprobe:f(a)/a/"),
        ("f/!a/", "kprobe:f/!a/"),
        ("f/!!(a)/", "kprobe:f/!!a/"),
        ("f/!(a == 5)/", "kprobe:f/!(a == 5)/"),
        ("f/a&&b||c/", "kprobe:f/(a && b) || c/"),
        ("f/a&&(b||!c)/", "kprobe:f/a && (b || !c)/"),
        ("f/4096 < count/", "kprobe:f/count > 4096/"),
        ("f/-1 >= x:s32/", "kprobe:f/x:s32 <= -1/"),
        ("f/-ENOENT == retval/", "kprobe:f/retval == -ENOENT/"),
        ("f/0x10 & flags/", "kprobe:f/flags & 16/"),
        ("f/flags & (A|B) && mode == (C)/", "kprobe:f/flags & A|B && mode == C/"),
        ("f/\"a\\n\\\"/\" == comm/", "kprobe:f/comm == \"a\\x0a\\\"/\"/"),
        ("f/buf == \"a\\0b\"/", "kprobe:f/buf == \"a\\x00b\"/"),
        ("f/comm != \"grün\t\"/", "kprobe:f/comm != \"gr\\xc3\\xbcn\\x09\"/"),
        ("f/state == TCP_ESTABLISHED/", "kprobe:f/state == TCP_ESTABLISHED/"),
        ("f/a < b && c->d != e[2]:u8/", "kprobe:f/a < b && c.d != e[2]:u8/"),
        ("f/a == $pid || b & arg1/", "kprobe:f/a == $pid || b & arg1/"),
        ("f/comm ~ \"*sh\" && comm!~\"a?\"/", "kprobe:f/comm ~ \"*sh\" && comm !~ \"a?\"/"),
        ("f/c == 'a'/", "kprobe:f/c == 97/"),
    ] {
        let spec = parsed(spec);
        assert_eq!(spec.to_string(), shown);
        assert_eq!(parsed(shown), spec);
    }
}

#[test]
fn all_parts_are_parsed() {
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
        value: Operand::Integer(7),
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
fn and_binds_tighter_than_or() {
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
fn nesting_is_limited() {
    for (open, close) in [("(", ")"), ("!", ""), ("!(", ")")] {
        let nested = |count: usize| {
            let (open, close) = (open.repeat(count), close.repeat(count));
            format!("f/{open}a{close}/").parse::<ProbeSpec>()
        };
        let most = 32 / open.len();
        assert_eq!(parsed(&nested(most).unwrap().to_string()), nested(most).unwrap());
        let error = nested(most + 1).unwrap_err().to_string();
        assert!(error.starts_with("this is nested more than 32 deep\n"), "{error}");
        assert!(nested(1_000_000).is_err());
    }
}

const NO_VARIABLE: &str = "after a $, there is an argument's position, like $arg1, or one of $pid, $tid, $uid, $cpu, \
                           $comm, $kstack, $ustack";

/// Invalid specs, each with its error message and the position in characters.
const WRONG: &[(&str, &str, usize)] = &[
    ("", "expected a name", 0),
    ("kprobe:", "expected a name", 7),
    ("(a)", "expected a name", 0),
    ("/bin/x:f", "a function of a file is written uprobe:FILE:FUNCTION", 0),
    (":x", "expected a provider before the colon, like kprobe", 0),
    ("kprob:x", "unknown provider `kprob`; did you mean `kprobe`?", 0),
    ("tracepont:a:b", "unknown provider `tracepont`; did you mean `tracepoint`?", 0),
    (
        "a b",
        "kernel names contain no spaces; fields and a condition follow as in NAME(FIELD, FIELD)/FIELD > 0/",
        1,
    ),
    (
        "a ",
        "kernel names contain no spaces; fields and a condition follow as in NAME(FIELD, FIELD)/FIELD > 0/",
        1,
    ),
    (
        "a (b)",
        "kernel names contain no spaces; fields and a condition follow as in NAME(FIELD, FIELD)/FIELD > 0/",
        1,
    ),
    ("a\u{1b}[2J", "kernel names cannot contain this character", 1),
    ("ä", "kernel names cannot contain this character", 0),
    ("u:x:ä", "names cannot contain this character; a name in quotes can: uprobe:FILE:\"NAME\"", 4),
    ("rawtp:a:b", "a raw tracepoint is written rawtp:NAME, without a category", 7),
    (
        "ksyscall:x64:open",
        "a system call is written ksyscall:NAME, or ksyscall:ia32:NAME for 32-bit calls only",
        9,
    ),
    ("ksyscall:ia32:", "expected a name", 14),
    ("ksyscall:ia32:a:b", "there is one colon too many", 15),
    ("k:a:b:c", "there is one colon too many", 5),
    ("t:a:b:c", "there is one colon too many", 5),
    (
        "u:a:b:c",
        "there is one colon too many; a name with colons is written in quotes: \"ns::function\"",
        5,
    ),
    ("k:a*:b", "a module cannot be a pattern", 3),
    ("k:a:", "expected a name", 4),
    ("tracepoint:a", "a tracepoint is written tracepoint:CATEGORY:NAME", 12),
    ("tracepoint::a", "a tracepoint is written tracepoint:CATEGORY:NAME", 11),
    ("t:a:", "a tracepoint is written tracepoint:CATEGORY:NAME", 4),
    ("u:x:\"a\\x1b[2J\"", "names cannot contain control characters", 4),
    ("u:malloc", "a uprobe is written uprobe:FILE:FUNCTION", 8),
    ("ur::malloc", "a uretprobe is written uretprobe:FILE:FUNCTION", 3),
    ("u:libc(arg0:u8)", "a uprobe is written uprobe:FILE:FUNCTION", 6),
    ("u:a b:f", "without quotes, a file name can contain only letters, digits and /._-+~@,=%#", 3),
    ("a[b", "this [ is not closed", 1),
    ("a[]", "expected characters, like [ab] or [!0-9]", 2),
    ("a[!]", "expected characters, like [ab] or [!0-9]", 3),
    ("a[b*]", "[...] cannot contain this character", 3),
    ("t:a:b+1", "a tracepoint cannot have an offset: only kprobe and uprobe can", 5),
    ("kr:a+0", "a kretprobe cannot have an offset: only kprobe and uprobe can", 4),
    ("a*+1", "a pattern cannot have an offset", 2),
    ("a+", "expected an offset, like 16 or 0x10", 2),
    ("0x12x", "expected an address, like 0x1139", 0),
    ("xfs:0x12", "an address is in no module: leave it out", 4),
    ("fentry:0x12", "only kprobe, kretprobe, uprobe and uretprobe take an address", 7),
    ("a+b", "expected an offset, like 16 or 0x10", 2),
    ("a+0x", "invalid hexadecimal number", 2),
    ("a+99999999999999999999", "this number is too large for 64 bits", 2),
    ("a+1+2", "unexpected character", 3),
    ("f(", "expected a field: a name, arg0 or retval", 2),
    ("f(,", "expected a field: a name, arg0 or retval", 2),
    ("f(a,)", "expected a field: a name, arg0 or retval", 4),
    ("f(a", "expected a comma or a closing parenthesis", 3),
    ("f(a b)", "expected a comma or a closing parenthesis", 4),
    ("f(a==1)", "expected a comma or a closing parenthesis", 3),
    ("f(a)b", "only a predicate may follow: /.../", 4),
    ("f(1)", "expected a field: a name, arg0 or retval", 2),
    ("f(a.)", "expected the name of a member", 4),
    ("f(a->1)", "expected the name of a member", 5),
    ("f(a[b])", "expected the number of an element, from 0 on", 4),
    ("f(a[-1])", "expected the number of an element, from 0 on", 4),
    ("f(a[4294967296])", "expected the number of an element, from 0 on", 4),
    ("f(a[1)", "expected a closing bracket", 5),
    ("f(a:)", "expected a type: u8 to u64, s8 to s64, x8 to x64, str, ustr, sym, bytes[N]", 4),
    (
        "f(a:u33)",
        "unknown type `u33`: u8 to u64, s8 to s64, x8 to x64, str, ustr, sym, bytes[N]",
        4,
    ),
    ("f(a:bytes)", "expected a length: bytes[1] to bytes[4096], or bytes[FIELD]", 9),
    ("f(a:bytes[0])", "expected a length: bytes[1] to bytes[4096], or bytes[FIELD]", 10),
    ("f(a:bytes[4097])", "expected a length: bytes[1] to bytes[4096], or bytes[FIELD]", 10),
    ("f($arg0)", "$arg1 is the first argument; without the $, arg0 is", 2),
    ("f($arg17)", "the arguments are $arg1 to $arg16", 2),
    ("f(arg16)", "the arguments are arg0 to arg15", 2),
    ("f(arg99999)", "the arguments are arg0 to arg15", 2),
    ("f($x)", NO_VARIABLE, 2),
    ("f($x=a)", NO_VARIABLE, 2),
    ("f($retval)", "retval is written without a $", 2),
    ("f(arg0, $arg1)", "two fields are called `arg0`; rename one with NAME=PATH", 8),
    ("f(a, b=a, a)", "two fields are called `a`; rename one with NAME=PATH", 10),
    ("f(a.b, a->b)", "two fields are called `a.b`; rename one with NAME=PATH", 7),
    (
        "f(a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q,r,s,t,u,v,w,x,y,z,aa,ab,ac,ad,ae,af,ag)",
        "a probe has up to 32 fields",
        72,
    ),
    ("f(a:bytes[b:str])", "the type of a length is u8 to u64 or s8 to s64", 12),
    ("f(a:bytes[b)", "expected a closing bracket", 11),
    ("f(a:str[3])", "expected the field that has the length, as in buf:ustr[count]", 8),
    (
        "f/a:str[b] == \"\"/",
        "a predicate cannot name the length of a value, only fields can; bytes[N] with a number can be compared",
        4,
    ),
    ("f//", "expected a condition, like count > 4096", 2),
    ("f/a", "expected &&, || or the / that ends the predicate", 3),
    ("f/a &&/", "expected a condition, like count > 4096", 6),
    ("f/a b/", "expected &&, || or the / that ends the predicate", 4),
    ("f/a/b", "nothing may follow a predicate", 4),
    ("f/(a/", "expected &&, || or a closing parenthesis", 4),
    ("f/a)/", "expected &&, || or the / that ends the predicate", 3),
    ("f/a = 1/", "a comparison is written ==, and one with a pattern ~", 4),
    (
        "f/a == /",
        "expected a number, a name or a string in double quotes; put the whole probe into single quotes",
        7,
    ),
    ("f/-ENOENT/", "one side of a comparison has to be a field", 2),
    ("f(-ENOENT)", "expected a field: a name, arg0 or retval", 2),
    ("f/5/", "one side of a comparison has to be a field", 2),
    ("f/5 == 5/", "one side of a comparison has to be a field", 7),
    ("f/a == b.5/", "expected the name of a member", 9),
    (
        "f/a == b:str[c]/",
        "a predicate cannot name the length of a value, only fields can; bytes[N] with a number can be compared",
        9,
    ),
    ("f/a < b < 5/", "join comparisons with && or ||", 8),
    ("f/1 < a < 5/", "join comparisons with && or ||", 8),
    ("f/(a < b) < 5/", "join conditions with && or ||", 10),
    ("f/a & 3 == 1/", MASKED, 8),
    ("f/(a & 3) == 1/", MASKED, 10),
    ("f/!a == 5/", "! takes a field without a comparison, or parentheses: !(a == b)", 5),
    ("f/comm < \"a\"/", "strings can be compared with ==, !=, ~ and !~ only", 7),
    ("f/\"a\" & comm/", "strings can be compared with ==, !=, ~ and !~ only", 6),
    ("f/comm ~ 5/", "~ compares a field with a pattern, as in comm ~ \"ssh*\"", 7),
    ("f/comm !~ a/", "~ compares a field with a pattern, as in comm ~ \"ssh*\"", 7),
    ("f/\"a*\" ~ comm/", "the pattern comes last, as in comm ~ \"ssh*\"", 7),
    ("f/a == 09/", "a number that starts with 0 is octal: its digits are 0 to 7", 7),
    ("f/a == 0b2/", "invalid binary number: its digits are 0 and 1", 7),
    ("f/a == 12x/", "invalid number", 7),
    (
        "f/a > 1ms/",
        "a number has no unit here: durations are in nanoseconds, so 1ms is 1000000, and sizes in bytes",
        6,
    ),
    ("f/a == -9223372036854775809/", "this number is too small for 64 bits", 7),
    ("f/a == \"b/", "this string is not closed", 7),
    (
        "f/a == \"\\q\"/",
        "unknown escape; use one of \\a \\b \\e \\f \\n \\r \\t \\v \\0 \\\\ \\\" \\' \\xNN",
        8,
    ),
    ("f/a == \"\\xg0\"/", "\\x is followed by two hexadecimal digits", 8),
    ("f/a == \"\0\"/", "in a string, a zero byte is written \\0", 8),
    ("f/a == 'ab'/", "a character is one byte, like 'a' or '\\n'; a string is in double quotes", 7),
    ("f/a | b/", "expected &&, || or the / that ends the predicate", 4),
    ("f/a & b | 1 | -1/", "expected the name of a constant", 14),
    ("f(ä)", "unexpected character", 2),
];

#[test]
fn errors_point_at_the_mistake() {
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
        "expected a field: a name, arg0 or retval\n  kprobe:vfs_read(\n                  ^"
    );
}

fn is_printable(byte: u8) -> bool {
    matches!(byte, b' '..=b'~')
}

/// Every spec that parses is displayed as printable text that parses to the same spec.
fn check(text: &str) -> Result<bool, TestCaseError> {
    match text.parse::<ProbeSpec>() {
        Ok(spec) => {
            let shown = spec.to_string();
            prop_assert!(shown.bytes().all(is_printable), "{:?}", shown);
            prop_assert_eq!(shown.parse(), Ok(spec));
            Ok(true)
        }
        Err(error) => {
            let error = error.to_string();
            prop_assert_eq!(error.lines().count(), 3);
            let is_shown = |byte| is_printable(byte) || byte == b'\n';
            prop_assert!(error.bytes().all(is_shown), "{:?}", error);
            Ok(false)
        }
    }
}

/// One of several texts.
fn one_of<const N: usize>(texts: [&'static str; N]) -> impl Strategy<Value = &'static str> + Clone {
    prop::sample::select(texts.to_vec())
}

/// Fragments of specs, in any order.
fn pieces() -> impl Strategy<Value = String> {
    let piece = one_of([
        "kprobe:", "u:/a-b:", "t:", "f", "x*", "[ab]", ":", "+0x10", "(", ")", "/", "/", "a", "b=",
        "arg0", "$arg2", "retval", ".", "->", "[3]", ":u32", ":str", ":bytes", "[4]", ",", "==",
        "<", "&", "&&", "||", "!", "5", "-0x1", "'a'", "\"dd\"", "\"", "\\", " ", "\t", "ä",
        "\u{1b}",
    ]);
    prop::collection::vec(piece, 0..16).prop_map(|pieces| pieces.concat())
}

fn path() -> impl Strategy<Value = String> {
    let base = one_of(["arg0", "$arg3", "retval", "pid", "x", "__y"]);
    let step = one_of([".a", "->b", "[0]", "[0x10]", " . c"]);
    let ty = one_of(["", ":u8", ":s64", " : x16", ":str", ":sym", ":bytes[9]"]);
    (base, prop::collection::vec(step, 0..4), ty)
        .prop_map(|(base, steps, ty)| format!("{base}{}{ty}", steps.concat()))
}

fn condition() -> impl Strategy<Value = String> {
    let operator = one_of(["==", "!=", "<", "<=", ">", ">=", "&"]);
    let value = one_of(["0", "-1", "0xffffffffffffffff", "017", "'\\n'"]);
    let text = one_of(["\"dd\"", "\"/\"", "\"\\\"\\xff\"", "\"ä\"", "\"\""]);
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
    let kernel =
        one_of(["vfs_read", "k:a.b+7", "kr:m:f*", "f:x", "fr:[a-z]?", "ksyscall:ia32:open"]);
    let head = prop_oneof![kernel, one_of(["t:a:b", "rt:x", "u:/l/c++:f+010", "ur:a:$x"])];
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
    fn arbitrary_text_parses_or_is_refused(text in any::<String>()) {
        check(&text)?;
    }

    #[test]
    fn arbitrary_pieces_parse_or_are_refused(text in pieces()) {
        check(&text)?;
    }

    #[test]
    fn valid_specs_parse(text in whole()) {
        prop_assert!(check(&text)?, "{}", text.parse::<ProbeSpec>().unwrap_err());
    }
}
