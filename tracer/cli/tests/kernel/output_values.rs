//! Events have the same values as in the kernel's own trace, for tracepoints chosen at random.
//!
//! An instance of the kernel's tracer records the same hits. Its option `fields` (6.4+) prints each field of the event's format by itself.

use crate::probe::kernel_trace::{Hit, Instance, TRACEFS};
use crate::probe::{commands, json_lines, stderr, succeed};
use crate::random::Random;
use probe_testing::skip::skip;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;

/// How many tracepoints to choose.
const CHOSEN: usize = 50;

/// A field of an event's format.
struct Field {
    size: u32,
    is_pointer: bool,
    is_text: bool,
}

fn format_of(event: &str) -> BTreeMap<String, Field> {
    let path = Path::new(TRACEFS).join("events").join(event.replace(':', "/")).join("format");
    let text = fs::read_to_string(path).unwrap();
    let fields = text.lines().filter_map(|line| line.trim().strip_prefix("field:"));
    fields
        .map(|line| {
            let (declared, rest) = line.split_once(';').unwrap();
            let (kind, name) = declared.rsplit_once(' ').unwrap();
            let name = name.split('[').next().unwrap().to_owned();
            let (_, size) = rest.split_once("size:").unwrap();
            let size = size.split(';').next().unwrap().parse().unwrap();
            let is_text = kind.contains("char");
            (name, Field { size, is_pointer: kind.ends_with('*'), is_text })
        })
        .collect()
}

/// Whether the values agree; `None` if they cannot be compared.
fn agree(field: &Field, ours: &Value, theirs: &str) -> Option<bool> {
    let number = match ours {
        Value::Bool(value) => i128::from(*value),
        Value::Number(value) => {
            value.as_i64().map(i128::from).or(value.as_u64().map(i128::from))?
        }
        Value::String(text) => match parse(text) {
            Some(number) if theirs != text => number,
            // The kernel prints the address of its own copy of what a pointer points to.
            None if field.is_pointer => return None,
            _ if field.is_text => return Some(theirs == text),
            // An array.
            _ => return None,
        },
        _ => return None,
    };
    if field.size > 8 || (field.is_pointer && theirs.starts_with("(0xffff")) {
        return None;
    }
    // The kernel prints a number as `0x1 (1)`, and an address also as a symbol. An `int` of a system call is in a field
    // of 8 bytes, whose upper half it clears.
    let is_negative_int = field.size == 8 && (i64::from(i32::MIN)..0).contains(&(number as i64));
    let modulus = 1i128 << if is_negative_int { 32 } else { 8 * field.size };
    let words = theirs.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    let mut numbers = words.filter_map(parse);
    Some(numbers.any(|one| (one - number).rem_euclid(modulus) == 0))
}

fn parse(text: &str) -> Option<i128> {
    match text.strip_prefix("0x") {
        Some(hexadecimal) => i128::from_str_radix(hexadecimal, 16).ok(),
        None => text.parse().ok(),
    }
}

#[test]
fn numbers_and_texts_are_compared() {
    let of = |size, is_pointer, ours: Value, theirs| {
        agree(&Field { size, is_pointer, is_text: size > 8 }, &ours, theirs)
    };
    assert_eq!(of(4, false, (-100).into(), "0xffffff9c (4294967196)"), Some(true));
    assert_eq!(of(4, false, 99.into(), "0xffffff9c (4294967196)"), Some(false));
    assert_eq!(of(8, false, "0xffffffff81000010".into(), "f+0x1/0x2 (-2130706416)"), Some(true));
    assert_eq!(of(16, false, "sh".into(), "sh"), Some(true));
    assert_eq!(of(16, false, "sh".into(), "bash"), Some(false));
    assert_eq!(of(8, true, "/etc".into(), "(0xffff88810687701c)"), None);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn tracepoints_chosen_at_random_have_the_kernels_values() {
    if !Path::new(TRACEFS).join("options/fields").exists() {
        return skip("this kernel does not print fields by themselves: it does since 6.4");
    }
    let folder = tempfile::tempdir().unwrap();
    let instance = Instance::new().unwrap();
    let [_, _, work] = commands::shell(&instance.work(folder.path()));

    // Those that the work hits.
    instance.write("buffer_size_kb", "16384");
    instance.write("options/fields", "1");
    instance.write("events/enable", "1");
    succeed(std::process::Command::new("sh").args(["-c", &work]));
    instance.write("events/enable", "0");
    let hit = instance.hits().into_iter().map(|hit| (hit.event, ())).collect::<HashMap<_, _>>();
    let available = fs::read_to_string(Path::new(TRACEFS).join("available_events")).unwrap();
    let mut events = available
        .lines()
        .filter(|event| event.split_once(':').is_some_and(|(_, name)| hit.contains_key(name)))
        .collect::<Vec<_>>();
    assert!(events.len() > CHOSEN, "{events:?}");

    let seed = Random::seed();
    let mut random = Random::of(seed);
    let chosen =
        (0..CHOSEN).map(|_| events.swap_remove(random.below(events.len()))).collect::<Vec<_>>();
    instance.write("trace", "");
    for event in &chosen {
        instance.write(&format!("events/{}/enable", event.replace(':', "/")), "1");
    }
    let specs = chosen.iter().map(|event| format!("tracepoint:{event}"));
    let args = specs.chain(["-B".into(), "4M".into()]);
    let output = crate::probe::trace(args, ["sh", "-c", &work]);
    let events = json_lines(&output);

    let mut theirs: HashMap<(String, u64), Vec<Hit>> = HashMap::new();
    for hit in instance.hits() {
        theirs.entry((hit.event.clone(), hit.tid)).or_default().push(hit);
    }
    let mut ours: BTreeMap<(String, u64), Vec<&Value>> = BTreeMap::new();
    for event in &events {
        let name = event["probe"].as_str().unwrap();
        let name = name.rsplit(':').next().unwrap().to_owned();
        ours.entry((name, event["tid"].as_u64().unwrap())).or_default().push(event);
    }
    let shell = events.iter().filter_map(|event| event["pid"].as_u64()).min().unwrap();
    let formats = chosen.iter().map(|event| (event.split_once(':').unwrap().1, format_of(event)));
    let formats = formats.collect::<HashMap<_, _>>();
    let mut compared = 0;
    for ((name, tid), ours) in ours.into_iter().filter(|((_, tid), _)| *tid != shell) {
        let format = &formats[&*name];
        let names = format.keys().cloned().collect::<Vec<_>>();
        let mut theirs = theirs.remove(&(name.clone(), tid)).unwrap_or_default();
        for event in ours {
            let args = event["args"].as_object().unwrap();
            let compare = |hit: &Hit| {
                let pairs = args.iter().filter_map(|(arg, value)| {
                    agree(format.get(arg)?, value, hit.field(arg, &names)?)
                });
                pairs.collect::<Vec<_>>()
            };
            // The kernel does not run a tracepoint's program in an interrupt of another one, and a hit in an interrupt may
            // come between the kernel's own record of a hit and ours.
            let same = theirs.iter().enumerate().find_map(|(at, hit)| {
                let pairs = compare(hit);
                pairs.iter().all(|agrees| *agrees).then_some((at, pairs))
            });
            let Some((at, pairs)) = same else {
                let fields = theirs.iter().map(|hit| &*hit.fields).collect::<Vec<_>>();
                panic!("seed {seed}: {event}\nis none of the kernel's:\n{}", fields.join("\n"))
            };
            theirs.remove(at);
            compared += pairs.len();
        }
    }
    assert!(compared > 500, "{compared} values compared: {}", stderr(&output));
}
