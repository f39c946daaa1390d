//! Functions chosen at random have the arguments of the kernel's own trace.

use crate::bystanders::TracefsProbe;
use crate::probe::kernel_trace::Instance;
use crate::probe::{commands, counts, events};
use crate::random::Random;
use probe_tracer::Info;
use std::collections::BTreeMap;

/// How many functions to choose.
const CHOSEN: usize = 12;

/// How many arguments to compare of a function that has so many.
const MOST: usize = 4;

/// A function and how many of its arguments to compare.
type Function = (String, usize);

fn with_arguments(name: &str) -> Option<Function> {
    let info = Info::of(&format!("kprobe:{name}").parse().unwrap()).unwrap();
    let count = info.signature.map_or(MOST, |signature| signature.parameters.len().min(MOST));
    (count > 0).then(|| (name.to_owned(), count))
}

/// Fetch arguments of the kernel's trace.
fn of_kernel(count: usize) -> String {
    (0..count).map(|at| format!(" x{at}=$arg{}:x64", at + 1)).collect()
}

/// The same fields of an event.
fn ours(count: usize) -> String {
    (0..count).map(|at| format!("x{at}=arg{at}:x64")).collect::<Vec<_>>().join(",")
}

fn number(text: &str) -> u64 {
    u64::from_str_radix(text.strip_prefix("0x").unwrap(), 16).unwrap()
}

/// Whether our value is that of a register. Of an `int`, only the lower half has a meaning, and we extend its sign.
fn agree(ours: u64, register: u64) -> bool {
    ours == register || ours == register as i32 as u64
}

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn functions_chosen_at_random_have_the_kernels_arguments() {
    let folder = tempfile::tempdir().unwrap();
    let instance = Instance::new().unwrap();
    let work = commands::shell(&instance.work(folder.path()));

    // Those that the work hits.
    let (hit, _) = counts(["vfs_*", "do_sys_*", "ksys_*"], &work);
    // The kernel's trace has no arguments of what the compiler has made of a function.
    let is_whole = |name: &str| !name.contains('.');
    let hit = hit["kprobe"].iter().filter(|(name, hits)| **hits > 0 && is_whole(name));
    let mut hit = hit.filter_map(|(name, _)| with_arguments(name)).collect::<Vec<_>>();
    assert!(hit.len() >= CHOSEN, "{hit:?}");
    let seed = Random::seed();
    let mut random = Random::of(seed);
    let chosen = (0..CHOSEN).map(|_| hit.swap_remove(random.below(hit.len())));
    let chosen = chosen.collect::<BTreeMap<_, _>>();

    let probe = |(name, count): (&String, &usize)| {
        let location = format!("{name}{}", of_kernel(*count));
        (name.clone(), TracefsProbe::new("kprobe_events", name, &location))
    };
    // The instance is dropped first, which uses the probes.
    let (instance, probes) = &(instance, chosen.iter().map(probe).collect::<Vec<_>>());
    instance.write("buffer_size_kb", "4096");
    for (_, probe) in probes {
        instance.write(&format!("events/{}/enable", probe.name()), "1");
    }
    instance.write("trace", "");
    let specs = chosen.iter().map(|(name, count)| format!("kprobe:{name}({})", ours(*count)));
    let events = events(specs.chain(["-B".into(), "4M".into()]), &work);

    let mut theirs = BTreeMap::<(String, u64), Vec<Vec<u64>>>::new();
    for hit in instance.hits() {
        let of = |(_, probe): &&(String, TracefsProbe)| probe.name().ends_with(&hit.event);
        let Some((name, _)) = probes.iter().find(of) else { continue };
        // The address comes first: ` (vfs_read+0x0/0x2f0) a=0x1 b=0x2`.
        let (_, args) = hit.fields.split_once(") ").unwrap();
        let args = args.split_whitespace().map(|arg| number(arg.split_once('=').unwrap().1));
        theirs.entry((name.clone(), hit.tid)).or_default().push(args.collect());
    }
    let mut ours = BTreeMap::<(String, u64), Vec<Vec<u64>>>::new();
    for event in &events {
        let name = event["probe"].as_str().unwrap().to_owned();
        let args = event["args"].as_object().unwrap().values();
        let args = args.map(|value| number(value.as_str().unwrap())).collect();
        ours.entry((name, event["tid"].as_u64().unwrap())).or_default().push(args);
    }
    // The shell, in the middle of whose work recording starts and ends.
    let shell = events.iter().filter_map(|event| event["pid"].as_u64()).min().unwrap();
    ours.retain(|(_, tid), _| *tid != shell);
    theirs.retain(|(_, tid), _| *tid != shell && ours.keys().any(|(_, one)| one == tid));
    assert!(ours.len() > CHOSEN, "seed {seed}: {ours:?}");
    for (of, ours) in &ours {
        let theirs = theirs.remove(of).unwrap_or_default();
        assert_eq!(ours.len(), theirs.len(), "seed {seed}: {of:?}: {ours:x?} {theirs:x?}");
        for (ours, theirs) in ours.iter().zip(&theirs) {
            let mut pairs = ours.iter().zip(theirs);
            let are_same =
                ours.len() == theirs.len() && pairs.all(|(one, other)| agree(*one, *other));
            assert!(are_same, "seed {seed}: {of:?}: {ours:x?} {theirs:x?}");
        }
    }
    assert!(theirs.is_empty(), "seed {seed}: {theirs:?}");
}
