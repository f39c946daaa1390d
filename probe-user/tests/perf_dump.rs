//! Records of every type with any fields, decoded by us, beside what perf says of them.
//!
//! perf (6.1) does not say all that there is. Of samples: the stream id, the index of the hardware's list of branches,
//! what was counted between branches, the third weight, the data of stacks and of the AUX area. Where such a field is
//! not read as long as it is, what comes behind it is not right, either; of what it has, there are unit tests. Nor does
//! perf say the tag of an eBPF program, and the stream id at the end of other records. Counters in a record of their own
//! (`PERF_RECORD_READ`) it has right as far as no field is left out that could come before.

mod perf_data;

use perf_data::generator::{self, Attr, KINDS, Numbers, SAMPLE};
use perf_data::perf;
use perf_data::recording::Recording;
use perf_data::shown::{dumped, records, shown, time};
use perf_data::writer::{self, Event};
use probe_user::perf::record::{Body, Record, Thread, Throttled};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// `PERF_COUNT_SW_BPF_OUTPUT`: the only event of the kernel whose raw data perf shows.
const BPF_OUTPUT: Event = Event { config: 10, id: 0x1234_5678_9abc };
const DUMMY: Event = Event { config: 9, id: 77 };
/// What perf calls them.
const NAME_OF_BPF_OUTPUT: &str = "unknown-software:HG";
const NAME_OF_DUMMY: &str = "dummy:HG";

/// What one version prints, another may print otherwise.
const VERSION: &str = "perf version 6.1.";

/// A file of records, for perf and for us.
struct Both {
    path: PathBuf,
    recording: Recording,
    dir: tempfile::TempDir,
}

impl Both {
    fn new(attr: &Attr, events: &[Event], records: &[u8]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("perf.data");
        writer::write(&path, attr, events, records);
        Self { recording: Recording::read(&path), path, dir }
    }

    /// So many records of each of these types.
    fn of(
        numbers: &mut Numbers,
        attr: &Attr,
        kinds: impl Iterator<Item = u32> + Clone,
        count: usize,
    ) -> Self {
        let all = std::iter::repeat_n(kinds, count).flatten();
        let records = all.map(|kind| numbers.record(kind, attr, BPF_OUTPUT.id));
        Self::new(attr, &[BPF_OUTPUT], &records.collect::<Vec<_>>().concat())
    }

    /// What perf prints of the file, if it is the perf that we know.
    fn perf(&self, args: &[&str]) -> Option<String> {
        let version = perf(&["version"])?;
        if !version.starts_with(VERSION) {
            eprintln!("skipped: {} may print otherwise than 6.1", version.trim());
            return None;
        }
        perf(&[args, &["-i", self.path.to_str().unwrap()]].concat())
    }

    /// What we say of each record that we say something of.
    fn ours<T>(&self, mut say: impl FnMut(&Record<'_>) -> Option<T>) -> Vec<T> {
        let mut ours = Vec::new();
        self.recording.each(|_, record| ours.extend(say(record)));
        ours
    }
}

/// What perf says of a record, less what it knows from elsewhere.
fn said(text: &str) -> String {
    let text = text.replace(": unhandled!", "").replace(NAME_OF_BPF_OUTPUT, "");
    // Where the stack is in the record.
    let lines =
        text.lines().map(|line| line.split_once(", offset 0x").map_or(line, |(text, _)| text));
    // Which symbol an address of the kernel belongs to, of those that other records tell of.
    let words = lines.flat_map(str::split_ascii_whitespace).filter(|word| !word.contains("+0x"));
    words.collect::<Vec<_>>().join(" ")
}

/// What perf says of each record, by where it is in the file.
fn by_offset(dump: &str) -> BTreeMap<usize, String> {
    let mut records = BTreeMap::<_, String>::new();
    let mut current = None;
    for line in dump.lines() {
        // `CPU TIME 0xOFFSET [0xSIZE]: PERF_RECORD_`, and what follows.
        if let Some((head, rest)) = line.split_once("]: PERF_RECORD_") {
            let place = head.rsplit_once(" [").unwrap().0;
            let (before, offset) = place.rsplit_once("0x").unwrap();
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
    records.into_iter().map(|(offset, text)| (offset, said(&text))).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What perf has before what a record says: on which CPU it was written, and when.
fn place(record: &Record<'_>, both: &Both) -> String {
    let (cpu, time) = match &record.body {
        Body::Sample(sample) => (sample.cpu, sample.time),
        _ if both.recording.layout.has_ids => (record.ids.cpu, record.ids.time),
        _ => return "-1 -1 ".to_owned(),
    };
    let cpu = cpu.map(|cpu| format!("{cpu} ")).unwrap_or_default();
    cpu + &time.map(|time| format!("{time} ")).unwrap_or_default()
}

#[test]
fn every_record_is_what_perf_says() {
    const ALL: u64 = (1 << generator::BITS) - 1;
    let numbers = &mut Numbers::new(1);
    let one = (0..generator::BITS).map(|bit| 1 << bit);
    let all_but_one = (0..generator::BITS).map(|bit| ALL & !(1 << bit));
    let any: Vec<u64> = (0..50).map(|_| numbers.sample_type()).collect();
    let mut count = 0;
    for sample_type in one.chain(all_but_one).chain(any) {
        let attr = numbers.attr(sample_type);
        let both = Both::of(numbers, &attr, KINDS.chain([SAMPLE; 3]), 2);
        let Some(dump) = both.perf(&["report", "-D"]) else { return };
        let theirs = by_offset(&dump);
        both.recording.each(|at, record| {
            let ours = place(record, &both) + &dumped(record, &both.recording.layout);
            let theirs = theirs.get(&at).unwrap_or_else(|| panic!("nothing of {record:?}"));
            match record.body {
                // What follows is not what is there.
                Body::Read { .. } => assert!(theirs.starts_with(&ours), "{ours}\n{theirs}"),
                _ => assert_eq!(&ours, theirs, "{attr:x?}"),
            }
            count += 1;
        });
        assert_eq!(both.ours(|_| Some(())).len(), theirs.len());
    }
    assert_eq!(count, 100 * 2 * 24);
}

/// What says on its own who wrote a record.
fn with_ids(numbers: &mut Numbers, more: u64) -> Attr {
    use generator::{CPU, IDENTIFIER, TID, TIME};
    let needed = [CPU, IDENTIFIER, TID, TIME].map(|bit| 1 << bit).into_iter().sum::<u64>();
    Attr { sample_id_all: true, ..numbers.attr(needed | more) }
}

#[test]
fn who_wrote_a_record_is_what_perf_says() {
    let numbers = &mut Numbers::new(2);
    let attr = with_ids(numbers, 0);
    // What perf script shows without a sample.
    let kinds = [1, 2, 3, 4, 7, 10, 14, 15, 16, 17, 18, 19, 20];
    let both = Both::of(numbers, &attr, kinds.into_iter(), 50);
    let mut args = vec!["script", "--ns", "-F", "pid,tid,cpu,time"];
    args.extend([
        "--show-task-events",
        "--show-mmap-events",
        "--show-switch-events",
        "--show-namespace-events",
        "--show-bpf-events",
        "--show-cgroup-events",
        "--show-text-poke-events",
        "--show-lost-events",
    ]);
    let Some(script) = both.perf(&args) else { return };
    let mut theirs: Vec<_> = records(&script).iter().map(|one| said(one)).collect();
    let mut ours = both.ours(|record| {
        let body = match record.body {
            Body::Lost { lost, .. } => format!("PERF_RECORD_LOST lost {lost}"),
            _ => shown(record).unwrap(),
        };
        let (Thread { pid, tid }, cpu) = (record.ids.thread.unwrap(), record.ids.cpu.unwrap());
        Some(format!("{pid}/{tid} [{cpu:03}] {}: {body}", time(record.ids.time)))
    });
    assert_eq!(ours.len(), kinds.len() * 50);
    ours.sort();
    theirs.sort();
    assert_eq!(ours, theirs);
}

/// Has perf print what it tells scripts: of samples, which event it finds by the id, and the raw data.
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
fn ids_raw_data_and_throttling_are_what_perf_says() {
    let numbers = &mut Numbers::new(3);
    for id in [generator::ID, generator::IDENTIFIER] {
        // Scripts take samples that have an address.
        let attr = with_ids(numbers, 1 << generator::IP | 1 << generator::RAW);
        let attr = Attr {
            sample_type: attr.sample_type & !(1 << generator::IDENTIFIER) | 1 << id,
            ..attr
        };
        let records = [SAMPLE, SAMPLE, SAMPLE, 5, 6].into_iter().cycle().take(200).enumerate();
        let events = [BPF_OUTPUT, DUMMY];
        let records =
            records.map(|(count, kind)| numbers.record(kind, &attr, events[count % 2].id));
        let both = Both::new(&attr, &events, &records.collect::<Vec<_>>().concat());
        let script = both.dir.path().join("say.py");
        std::fs::write(&script, SCRIPT).unwrap();
        let Some(options) = perf(&["version", "--build-options"]) else { return };
        if !options.lines().any(|line| line.contains("libpython: [ on")) {
            return eprintln!("skipped: perf takes no scripts here");
        }
        let Some(theirs) = both.perf(&["script", "-s", script.to_str().unwrap()]) else { return };
        let mut theirs: Vec<_> = theirs.lines().map(str::to_owned).collect();
        let throttled = |record: &Record<'_>, what, Throttled { time, id, stream_id, .. }| {
            let (Thread { pid, tid }, cpu) = (record.ids.thread.unwrap(), record.ids.cpu.unwrap());
            Some(format!("{what} {time} {id} {stream_id} {cpu} {pid} {tid}"))
        };
        let mut ours = both.ours(|record| match record.body {
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
        assert_eq!(ours.len(), 200);
        ours.sort();
        theirs.sort();
        assert_eq!(ours, theirs);
    }
}

#[test]
fn cgroups_of_samples_are_what_perf_says() {
    let numbers = &mut Numbers::new(4);
    // What stands before it has any length; there is no time, so that perf takes records in their order.
    let bits = [
        generator::IP,
        generator::TID,
        generator::IDENTIFIER,
        generator::RAW,
        generator::REGS_INTR,
        generator::CGROUP,
    ];
    let attr = numbers.attr(bits.map(|bit| 1 << bit).into_iter().sum());
    let attr = Attr { sample_id_all: true, ..attr };
    let samples = Both::of(numbers, &attr, [SAMPLE].into_iter(), 60);
    let cgroup = |record: &Record<'_>| {
        let Body::Sample(sample) = record.body else { return None };
        Some(sample.cgroup.unwrap())
    };
    let mut ours = BTreeMap::<_, usize>::new();
    let ids = samples.ours(cgroup);
    ids.iter().for_each(|id| *ours.entry(format!("/made/{id}")).or_default() += 1);
    // perf knows the names of cgroups that were made before. It groups samples by its own reading of their ids.
    let made = ids.iter();
    let made = made.map(|id| numbers.cgroup(&attr, BPF_OUTPUT.id, *id, &format!("/made/{id}")));
    let records = made.chain([samples.recording.data.clone()]).collect::<Vec<_>>().concat();
    let both = Both::new(&attr, &[BPF_OUTPUT], &records);
    let Some(report) = both.perf(&["report", "--stdio", "--sort=cgroup", "-F", "sample,cgroup"])
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
