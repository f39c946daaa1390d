//! What perf recorded, decoded by us, beside what perf says of it.

use probe_user::perf::record::{
    Body, Layout, MappedFile, Mapping, ReadFormat, Record, SampleType, Switch, Task, Thread,
};
use std::path::Path;
use std::process::Command;

/// A file of `perf record`: `struct perf_file_header`, then the attributes, and the records.
struct Recording {
    layout: Layout,
    data: Vec<u8>,
}

impl Recording {
    fn read(path: &Path) -> Self {
        let file = std::fs::read(path).unwrap();
        let word = |at: usize| u64::from_ne_bytes(file[at..at + 8].try_into().unwrap());
        assert_eq!(&file[..8], b"PERFILE2");
        let attr = word(24) as usize;
        assert_eq!(word(16), word(32), "one event");
        let (begin, len) = (word(40) as usize, word(48) as usize);
        let layout = Layout {
            sample_type: SampleType::from_bits_retain(word(attr + 24)),
            read_format: ReadFormat::from_bits_retain(word(attr + 32)),
            has_ids: word(attr + 40) >> 18 & 1 != 0,
            branch_sample_type: word(attr + 72),
            regs_user: word(attr + 80),
            regs_intr: word(attr + 96),
        };
        Self { layout, data: file[begin..begin + len].to_vec() }
    }

    /// Each record of the kernel: others are perf's own.
    fn each(&self, mut each: impl FnMut(&Record<'_>)) {
        let mut at = 0;
        while at < self.data.len() {
            let rest = &self.data[at..];
            let kind = u32::from_ne_bytes(rest[..4].try_into().unwrap());
            let size = u16::from_ne_bytes(rest[6..8].try_into().unwrap());
            at += usize::from(size);
            if kind < 64 {
                let (record, len) = Record::read(rest, &self.layout).unwrap();
                assert_eq!(len, usize::from(size));
                assert!(!matches!(record.body, Body::Other { .. }), "{record:?}");
                each(&record);
            }
        }
    }
}

fn perf(args: &[&str]) -> Option<String> {
    let output = Command::new("perf").args(args).output().ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What perf records of a shell and a child of it, and where. `None` without perf.
fn recorded(options: &[&str]) -> Option<(tempfile::TempDir, String)> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("perf.data").to_str().unwrap().to_owned();
    let record = ["record", "-q", "-o", &path, "-m", "1024", "-c", "1", "--sample-cpu"];
    let command = ["--", "sh", "-c", "/bin/true; :"];
    match perf(&[&record[..], options, &command].concat()) {
        Some(_) => Some((dir, path)),
        None => {
            eprintln!("skipped: there is no perf here");
            None
        }
    }
}

/// As perf shows a time with `--ns`.
fn time(nanoseconds: Option<u64>) -> String {
    let nanoseconds = nanoseconds.unwrap();
    format!("{}.{:09}", nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000)
}

fn without_spaces(text: &str) -> String {
    text.split_ascii_whitespace().collect::<Vec<_>>().join(" ")
}

/// Both in the same order, whatever that is.
fn assert_same(mut ours: Vec<String>, mut theirs: Vec<String>, at_least: usize) {
    ours.sort();
    theirs.sort();
    assert!(ours.len() >= at_least, "{} are not all", ours.len());
    assert_eq!(ours.len(), theirs.len());
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs);
    }
}

/// An address of a callchain. Of processes, perf shows some by where they are in the file: the page is another one.
fn address(at: u64) -> String {
    format!("{:x}", if at >> 63 == 0 { at % 4096 } else { at })
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn samples_are_what_perf_says() {
    let Some((_dir, path)) = recorded(&["-e", "page-faults", "-g", "-d", "-P"]) else { return };
    let fields = "pid,tid,cpu,time,period,addr,ip";
    let script = perf(&["script", "-i", &path, "-F", fields, "--ns"]).unwrap();
    let whole = script.split("\n\n").map(without_spaces).filter(|one| !one.is_empty());
    let theirs = whole.map(|one| {
        let mut words = one.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for word in &mut words[5..] {
            *word = address(u64::from_str_radix(word, 16).unwrap());
        }
        words.join(" ")
    });
    let theirs = theirs.collect();
    let mut ours = Vec::new();
    Recording::read(path.as_ref()).each(|record| {
        let Body::Sample(sample) = record.body else { return };
        let Thread { pid, tid } = sample.thread.unwrap();
        let chain = sample.callchain.unwrap();
        let addresses = chain.kernel().iter().chain(chain.user().iter());
        let addresses: Vec<_> = addresses.map(address).collect();
        ours.push(format!(
            "{pid}/{tid} [{:03}] {}: {} {:x} {}",
            sample.cpu.unwrap(),
            time(sample.time),
            sample.period.unwrap(),
            sample.addr.unwrap(),
            addresses.join(" ")
        ));
    });
    assert_same(ours, theirs, 50);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn raw_data_is_what_perf_says() {
    let Some((_dir, path)) = recorded(&["-e", "sched:sched_process_fork", "-R"]) else { return };
    let script = perf(&["script", "-i", &path, "-F", "trace"]).unwrap();
    let theirs = script.lines().map(without_spaces).collect();
    let mut ours = Vec::new();
    Recording::read(path.as_ref()).each(|record| {
        let Body::Sample(sample) = record.body else { return };
        let raw = sample.raw.unwrap();
        // Either the names have 16 bytes each, or words that say where they are.
        let number = |at: usize| u32::from_ne_bytes(raw[at..at + 4].try_into().unwrap());
        let (parent, child) = if number(8) >> 16 == 0 || number(8) >> 16 > 16 {
            (number(24), number(44))
        } else {
            (number(12), number(20))
        };
        ours.push(format!("comm=sh pid={parent} child_comm=sh child_pid={child}"));
    });
    assert_same(ours, theirs, 1);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn registers_and_stacks_are_what_perf_says() {
    let options = ["-e", "page-faults", "--user-regs=ip,sp,bx", "--call-graph", "dwarf,64"];
    let Some((_dir, path)) = recorded(&options) else { return };
    let script = perf(&["script", "-i", &path, "-F", "tid,uregs"]).unwrap();
    let theirs = script.lines().map(without_spaces).filter(|one| one.contains("ABI")).collect();
    let mut ours = Vec::new();
    Recording::read(path.as_ref()).each(|record| {
        let Body::Sample(sample) = record.body else { return };
        let (regs, tid) = (sample.regs_user.unwrap(), sample.thread.unwrap().tid);
        assert!(sample.stack_user.unwrap().len() <= 64);
        let [ax, bx, cx, dx] = [0, 1, 2, 3].map(|bit| (bit, regs.get(bit)));
        let [si, di, bp, sp, ip, flags, cs, ss] =
            [4, 5, 6, 7, 8, 9, 10, 11].map(|bit| (bit, regs.get(bit)));
        let names = ["AX", "BX", "CX", "DX", "SI", "DI", "BP", "SP", "IP", "FLAGS", "CS", "SS"];
        let named = names.into_iter().zip([ax, bx, cx, dx, si, di, bp, sp, ip, flags, cs, ss]);
        let high = (8..16).map(|n| (format!("R{n}"), regs.get(n + 8)));
        let all = named.map(|(name, (_, value))| (name.to_owned(), value)).chain(high);
        let shown: Vec<_> =
            all.filter_map(|(name, value)| Some(format!("{name}:{:#x}", value?))).collect();
        ours.push(format!("{tid} ABI:{} {}", regs.abi, shown.join(" ")));
    });
    assert_same(ours, theirs, 50);
}

/// What a record of a task or a mapping says, as perf shows it. The others are none of these.
fn shown(record: &Record<'_>) -> Option<String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let both = |Thread { pid, tid }: Thread| format!("{}/{}", pid as i32, tid as i32);
    let tasks = |Task { thread, parent, .. }: Task| {
        format!("({}:{}):({}:{})", thread.pid, thread.tid, parent.pid, parent.tid)
    };
    let zero_or_hex = |number: u64| if number == 0 { "0".into() } else { format!("{number:#x}") };
    let of_mapping = |mapping: &Mapping<'_>| {
        let (addr, len) = (mapping.addr, mapping.len);
        format!("[{addr:#x}({len:#x}) @ {}", zero_or_hex(mapping.pgoff))
    };
    Some(match record.body {
        Body::Comm { thread: Thread { pid, tid }, comm, is_exec } => {
            let exec = if is_exec { " exec" } else { "" };
            format!("PERF_RECORD_COMM{exec}: {}:{pid}/{tid}", text(comm))
        }
        Body::Fork(task) => format!("PERF_RECORD_FORK{}", tasks(task)),
        Body::Exit(task) => format!("PERF_RECORD_EXIT{}", tasks(task)),
        Body::Mmap(mapping) => {
            let kind = if mapping.is_data { 'r' } else { 'x' };
            let (who, place) = (both(mapping.thread), of_mapping(&mapping));
            format!("PERF_RECORD_MMAP {who}: {place}]: {kind} {}", text(mapping.filename))
        }
        Body::Mmap2 { mapping, file, prot, flags } => {
            let file = match file {
                MappedFile::Inode { major, minor, inode, generation } => {
                    format!("{major:02x}:{minor:02x} {inode} {generation}")
                }
                MappedFile::BuildId(id) => {
                    let digits: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
                    format!("<{digits}>")
                }
                other => panic!("{other:?}"),
            };
            let bit = |is_set, letter| if is_set { letter } else { '-' };
            let prot = [bit(prot & 1 != 0, 'r'), bit(prot & 2 != 0, 'w'), bit(prot & 4 != 0, 'x')];
            let shared = if flags & 1 != 0 { 's' } else { 'p' };
            let prot: String = prot.into_iter().chain([shared]).collect();
            let (who, place) = (both(mapping.thread), of_mapping(&mapping));
            format!("PERF_RECORD_MMAP2 {who}: {place} {file}]: {prot} {}", text(mapping.filename))
        }
        Body::Switch(Switch::In) => "PERF_RECORD_SWITCH IN".to_owned(),
        Body::Switch(Switch::Out { is_preempted }) => {
            format!("PERF_RECORD_SWITCH OUT{}", if is_preempted { " preempt" } else { "" })
        }
        Body::Namespaces { thread, links } => {
            format!(
                "PERF_RECORD_NAMESPACES {} - nr_namespaces: {}",
                both(thread),
                links.iter().len()
            )
        }
        _ => return None,
    })
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn tasks_and_mappings_are_what_perf_says() {
    let kinds = ["task", "mmap", "switch", "namespace"].map(|kind| format!("--show-{kind}-events"));
    for build_ids in [&[][..], &["--buildid-mmap"]] {
        let options = ["-e", "page-faults", "-d", "--switch-events", "--namespaces"];
        let Some((_dir, path)) = recorded(&[&options, build_ids].concat()) else { return };
        let mut args = vec!["script", "-i", &path, "-F", "pid,tid,cpu,time", "--ns"];
        args.extend(kinds.iter().map(String::as_str));
        let script = perf(&args).unwrap();
        let lines = script.lines().filter(|line| line.contains("PERF_RECORD_"));
        let theirs: Vec<_> = lines.map(without_spaces).collect();
        let mut ours = Vec::new();
        Recording::read(path.as_ref()).each(|record| {
            let Some(shown) = shown(record) else { return };
            let Thread { pid, tid } = record.ids.thread.unwrap();
            let (cpu, time) = (record.ids.cpu.unwrap(), time(record.ids.time));
            ours.push(without_spaces(&format!("{pid}/{tid} [{cpu:03}] {time}: {shown}")));
        });
        let is_by_id = ours.iter().any(|line| line.contains("MMAP2") && line.contains('<'));
        assert_eq!(is_by_id, !build_ids.is_empty());
        assert_same(ours, theirs, 30);
    }
}
