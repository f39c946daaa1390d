//! Records of all types with random fields: compares our decoding with perf's.
//!
//! perf 6.1 does not print everything. For samples, it omits the stream id, the hardware index of
//! branches, the counters between branches, the third weight, and the data of stacks and of the AUX
//! area. If such a field were decoded with the wrong length, all later fields would be wrong too;
//! unit tests cover the contents. perf also omits the tag of an eBPF program and the stream id at
//! the end of other records. It prints `PERF_RECORD_READ` correctly only up to the first optional
//! field that is absent.

use crate::perf_data::generator::{
    Attr, BITS, CGROUP, CPU, ID, IDENTIFIER, IP, KINDS, Numbers, RAW, REGS_INTR, SAMPLE, TID, TIME,
};
use crate::perf_data::recording::{Event, Recording};
use crate::perf_data::shown::{dumped, hex, records, shown, with_writer};
use crate::perf_data::{SHOW_ALL, assert_same_lines, perf};
use probe_perf::record::{Body, Layout, Record, Thread, Throttled};
use probe_testing::skip::skip;
use std::collections::BTreeMap;

/// `PERF_COUNT_SW_BPF_OUTPUT`, the only software event whose raw data perf shows.
const BPF_OUTPUT: Event = Event { config: 10, id: 0x1234_5678_9abc };
const DUMMY: Event = Event { config: 9, id: 77 };
/// The names that perf gives them.
const NAME_OF_BPF_OUTPUT: &str = "unknown-software:HG";
const NAME_OF_DUMMY: &str = "dummy:HG";

/// Other versions may print differently.
const VERSION: &str = "perf version 6.1.";

/// A file with `count` records of each of these types.
fn recording(
    numbers: &mut Numbers,
    attr: &Attr,
    kinds: impl Iterator<Item = u32> + Clone,
    count: usize,
) -> Recording {
    let all = std::iter::repeat_n(kinds, count).flatten();
    let records = all.map(|kind| numbers.record(kind, attr, BPF_OUTPUT.id));
    Recording::written(attr, &[BPF_OUTPUT], &records.collect::<Vec<_>>().concat())
}

/// What perf prints of a file. With another perf than the one that we know, `None`, and the test is skipped.
fn printed(recording: &Recording, args: &[&str]) -> Option<String> {
    let version = perf(&["version"])?;
    if !version.starts_with(VERSION) {
        skip(format_args!("{} may print otherwise than 6.1", version.trim()));
        return None;
    }
    recording.perf(args)
}

/// perf's output for a record, without what perf knows from elsewhere.
fn comparable(text: &str) -> String {
    let text = text.replace(": unhandled!", "").replace(NAME_OF_BPF_OUTPUT, "");
    // Removes the offset of the stack.
    let lines =
        text.lines().map(|line| line.split_once(", offset 0x").map_or(line, |(text, _)| text));
    // Removes symbol names, which perf learns from other records.
    let words = lines.flat_map(str::split_ascii_whitespace).filter(|word| !word.contains("+0x"));
    words.collect::<Vec<_>>().join(" ")
}

/// perf's output for each record, by offset in the file.
fn by_offset(dump: &str) -> BTreeMap<usize, String> {
    let mut records = BTreeMap::<_, String>::new();
    let mut current = None;
    for line in dump.lines() {
        // The format is `CPU TIME 0xOFFSET [0xSIZE]: PERF_RECORD_`, followed by the fields.
        if let Some((head, rest)) = line.split_once("]: PERF_RECORD_") {
            let head = head.rsplit_once(" [").unwrap().0;
            let (before, offset) = head.rsplit_once("0x").unwrap();
            let offset = usize::from_str_radix(offset, 16).unwrap();
            assert!(records.insert(offset, format!("{before}PERF_RECORD_{rest}\n")).is_none());
            current = Some(offset);
        } else if line.is_empty() || line.starts_with("0x") {
            current = None;
        } else if let Some(offset) = current
            && !line.starts_with(" ... thread:")
            && !line.starts_with(" ...... dso:")
        {
            records.get_mut(&offset).unwrap().extend([line, "\n"]);
        }
    }
    records.into_iter().map(|(offset, text)| (offset, comparable(&text))).collect()
}

/// The CPU and the time that perf prints in front of a record.
fn cpu_and_time(record: &Record<'_>, layout: &Layout) -> String {
    let (cpu, time) = match &record.body {
        Body::Sample(sample) => (sample.cpu, sample.time),
        _ if layout.has_ids => (record.ids.cpu, record.ids.time),
        _ => return "-1 -1 ".to_owned(),
    };
    let cpu = cpu.map(|cpu| format!("{cpu} ")).unwrap_or_default();
    cpu + &time.map(|time| format!("{time} ")).unwrap_or_default()
}

#[test]
fn every_record_is_as_perf_prints_it() {
    const ALL: u64 = (1 << BITS) - 1;
    let numbers = &mut Numbers::new(1);
    let one = (0..BITS).map(|bit| 1 << bit);
    let all_but_one = (0..BITS).map(|bit| ALL & !(1 << bit));
    let any: Vec<u64> = (0..50).map(|_| numbers.sample_type()).collect();
    let mut count = 0;
    for sample_type in one.chain(all_but_one).chain(any) {
        let attr = numbers.attr(sample_type);
        let recording = recording(numbers, &attr, KINDS.chain([SAMPLE; 3]), 2);
        let Some(dump) = printed(&recording, &["report", "-D"]) else { return };
        let theirs = by_offset(&dump);
        recording.each(|at, record| {
            let layout = &recording.layout;
            let ours = cpu_and_time(record, layout) + &dumped(record, layout);
            let theirs = theirs.get(&at).unwrap_or_else(|| panic!("nothing of {record:?}"));
            match record.body {
                // perf prints the rest of this record incorrectly.
                Body::Read { .. } => assert!(theirs.starts_with(&ours), "{ours}\n{theirs}"),
                _ => assert_eq!(&ours, theirs, "{attr:x?}"),
            }
            count += 1;
        });
        assert_eq!(recording.collect(|_| Some(())).len(), theirs.len());
    }
    assert_eq!(count, 100 * 2 * 24);
}

fn mask(bits: &[u32]) -> u64 {
    bits.iter().map(|bit| 1 << bit).sum()
}

/// An attribute with all fields that identify the writer of a record.
fn with_ids(numbers: &mut Numbers, more: &[u32]) -> Attr {
    let needed = mask(&[CPU, IDENTIFIER, TID, TIME]);
    Attr { sample_id_all: true, ..numbers.attr(needed | mask(more)) }
}

#[test]
fn the_writer_of_a_record_is_as_perf_prints_it() {
    let numbers = &mut Numbers::new(2);
    let attr = with_ids(numbers, &[]);
    // The types that `perf script` prints without a sample.
    let kinds = [1, 2, 3, 4, 7, 10, 14, 15, 16, 17, 18, 19, 20];
    let recording = recording(numbers, &attr, kinds.into_iter(), 50);
    let mut args = vec!["script", "--ns", "-F", "pid,tid,cpu,time"];
    args.extend(SHOW_ALL);
    let Some(script) = printed(&recording, &args) else { return };
    let theirs = records(&script).iter().map(|one| comparable(one)).collect();
    let ours = recording.collect(|record| {
        let body = match record.body {
            Body::Lost { lost, .. } => format!("PERF_RECORD_LOST lost {lost}"),
            _ => shown(record).unwrap(),
        };
        Some(with_writer(record, &body))
    });
    assert_same_lines(ours, theirs, kinds.len() * 50);
}

/// A script for perf: prints the event that perf finds by a sample's id, and the raw data.
const SCRIPT: &str = r#"
def process_event(event):
    sample = event["sample"]
    print(event["ev_name"], sample["pid"], sample["tid"], sample["cpu"], sample["time"],
          event["raw_buf"].hex())

def throttle(*fields):
    print("throttle", *fields)

def unthrottle(*fields):
    print("unthrottle", *fields)
"#;

#[test]
fn ids_raw_data_and_throttling_are_as_perf_prints_them() {
    let numbers = &mut Numbers::new(3);
    for id in [ID, IDENTIFIER] {
        // perf passes samples to scripts only if they have an address.
        let attr = with_ids(numbers, &[IP, RAW]);
        let sample_type = attr.sample_type & !(1 << IDENTIFIER) | 1 << id;
        let attr = Attr { sample_type, ..attr };
        let records = [SAMPLE, SAMPLE, SAMPLE, 5, 6].into_iter().cycle().take(200).enumerate();
        let events = [BPF_OUTPUT, DUMMY];
        let records =
            records.map(|(count, kind)| numbers.record(kind, &attr, events[count % 2].id));
        let recording = Recording::written(&attr, &events, &records.collect::<Vec<_>>().concat());
        let script = recording.dir.path().join("print.py");
        std::fs::write(&script, SCRIPT).unwrap();
        let Some(options) = perf(&["version", "--build-options"]) else { return };
        if !options.lines().any(|line| line.contains("libpython: [ on")) {
            return skip("this perf was built without libpython and takes no scripts");
        }
        let Some(theirs) = printed(&recording, &["script", "-s", script.to_str().unwrap()]) else {
            return;
        };
        let theirs = theirs.lines().map(str::to_owned).collect();
        let throttled = |record: &Record<'_>, what, Throttled { time, id, stream_id, .. }| {
            let (Thread { pid, tid }, cpu) = (record.ids.thread.unwrap(), record.ids.cpu.unwrap());
            Some(format!("{what} {time} {id} {stream_id} {cpu} {pid} {tid}"))
        };
        let ours = recording.collect(|record| match record.body {
            Body::Sample(sample) => {
                let name = match record.id().unwrap() {
                    id if id == DUMMY.id => NAME_OF_DUMMY,
                    id if id == BPF_OUTPUT.id => NAME_OF_BPF_OUTPUT,
                    other => panic!("{other:#x}"),
                };
                let (Thread { pid, tid }, cpu) = (sample.thread.unwrap(), sample.cpu.unwrap());
                let (time, raw) = (sample.time.unwrap(), hex(sample.raw.unwrap()));
                Some(format!("{name} {pid} {tid} {cpu} {time} {raw}"))
            }
            Body::Throttle(this) => throttled(record, "throttle", this),
            Body::Unthrottle(this) => throttled(record, "unthrottle", this),
            ref other => panic!("{other:?}"),
        });
        assert_same_lines(ours, theirs, 200);
    }
}

#[test]
fn cgroups_of_samples_are_as_perf_prints_them() {
    let numbers = &mut Numbers::new(4);
    // The fields in front have varying lengths. Without a time, perf keeps the records in order.
    let attr = numbers.attr(mask(&[IP, TID, IDENTIFIER, RAW, REGS_INTR, CGROUP]));
    let attr = Attr { sample_id_all: true, ..attr };
    let samples = recording(numbers, &attr, [SAMPLE].into_iter(), 60);
    let cgroup = |record: &Record<'_>| {
        let Body::Sample(sample) = record.body else { return None };
        Some(sample.cgroup.unwrap())
    };
    let mut ours = BTreeMap::<_, usize>::new();
    let ids = samples.collect(cgroup);
    ids.iter().for_each(|id| *ours.entry(format!("/made/{id}")).or_default() += 1);
    // perf resolves cgroups that were created earlier in the file, and groups samples by the id it
    // decodes.
    let made = ids.iter();
    let made = made.map(|id| numbers.cgroup(&attr, BPF_OUTPUT.id, *id, &format!("/made/{id}")));
    let records = made.chain([samples.data.clone()]).collect::<Vec<_>>().concat();
    let recording = Recording::written(&attr, &[BPF_OUTPUT], &records);
    let Some(report) =
        printed(&recording, &["report", "--stdio", "--sort=cgroup", "-F", "sample,cgroup"])
    else {
        return;
    };
    let lines = report.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    let theirs = lines.map(|line| {
        let (count, cgroup) = line.trim().split_once(' ').unwrap();
        (cgroup.trim().to_owned(), count.parse().unwrap())
    });
    assert_eq!(ours, theirs.collect());
}
