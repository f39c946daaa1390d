//! Records formatted like perf does: by `perf script` in one line, by `perf report -D` in several.

use super::without_spaces;
use probe_perf::record::{
    Body, Branch, Layout, MappedFile, Mapping, Namespaces, ReadFormat, ReadValues, Record,
    Registers, Sample, SampleType, Switch, Task, Thread,
};
use std::fmt::Write as _;

/// A time as printed with `--ns`.
pub fn time(nanoseconds: Option<u64>) -> String {
    let nanoseconds = nanoseconds.unwrap();
    format!("{}.{:09}", nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000)
}

/// Splits the output of `perf script` into records, each with all of its lines.
pub fn records(script: &str) -> Vec<String> {
    let mut records: Vec<String> = Vec::new();
    for line in script.lines() {
        if line.contains("PERF_RECORD_") {
            records.push(line.to_owned());
        } else if line.starts_with('\t') || line.contains(" bytes: ") {
            records.last_mut().unwrap().extend(["\n", line]);
        }
    }
    records
}

/// A record other than a sample, as printed by `perf script --show-*-events`, with whitespace
/// collapsed. Types without such an option are printed as by `-D`.
pub fn shown(record: &Record<'_>) -> Option<String> {
    Some(without_spaces(&match record.body {
        Body::Comm { thread: Thread { pid, tid }, comm, is_exec } => {
            let exec = if is_exec { " exec" } else { "" };
            format!("PERF_RECORD_COMM{exec}: {}:{pid}/{tid}", text(comm))
        }
        Body::Fork(task) => format!("PERF_RECORD_FORK{}", tasks(task)),
        Body::Exit(task) => format!("PERF_RECORD_EXIT{}", tasks(task)),
        Body::Mmap(mapping) => {
            let kind = if mapping.is_data { 'r' } else { 'x' };
            let area = of_mapping(&mapping);
            format!("PERF_RECORD_MMAP {area}]: {kind} {}", text(mapping.filename))
        }
        Body::Mmap2 { mapping, file, prot, flags } => {
            let (area, file) = (of_mapping(&mapping), of_file(file));
            let (prot, name) = (protection(prot, flags), text(mapping.filename));
            format!("PERF_RECORD_MMAP2 {area} {file}]: {prot} {name}")
        }
        Body::Switch(switch) => format!("PERF_RECORD_SWITCH {}", direction(switch).0),
        Body::SwitchCpuWide { switch, other } => {
            let (direction, which) = direction(switch);
            format!("PERF_RECORD_SWITCH_CPU_WIDE {direction} {which} pid/tid: {}", both(other))
        }
        Body::Namespaces { thread, links } => {
            let count = links.iter().len();
            let all = all(links);
            format!("PERF_RECORD_NAMESPACES {} - nr_namespaces: {count} [{all}]", both(thread))
        }
        Body::Ksymbol { addr, len, kind, is_removed, name } => {
            let (flags, name) = (u16::from(is_removed), text(name));
            format!(
                "PERF_RECORD_KSYMBOL addr {addr:x} len {len} type {kind} flags {flags:#x} name {name}"
            )
        }
        Body::BpfEvent { kind, flags, id, .. } => {
            format!("PERF_RECORD_BPF_EVENT type {kind}, flags {flags}, id {id}")
        }
        Body::Cgroup { id, path } => format!("PERF_RECORD_CGROUP cgroup: {id} {}", text(path)),
        Body::TextPoke { addr, old, new } => {
            let (before, after) = (code("Old bytes:", old), code("New bytes:", new));
            let lens = format!("old len {} new len {}", old.len(), new.len());
            format!("PERF_RECORD_TEXT_POKE {addr:x} {lens} {before} {after}")
        }
        Body::Lost { id, lost } => format!("PERF_RECORD_LOST: id:{id}: lost:{lost}"),
        Body::Aux { offset, size, flags } => {
            let [offset, size] = [offset, size].map(zero_or_hex);
            let letters = [(1, 'T'), (2, 'O'), (4, 'P')].into_iter();
            let letters: String =
                letters.filter(|(bit, _)| flags & bit != 0).map(|(_, letter)| letter).collect();
            let flags = zero_or_hex(flags);
            format!("PERF_RECORD_AUX offset: {offset} size: {size} flags: {flags} [{letters}]")
        }
        Body::ItraceStart(Thread { pid, tid }) => {
            format!("PERF_RECORD_ITRACE_START pid: {pid} tid: {tid}")
        }
        Body::AuxOutputHwId(id) => {
            format!("PERF_RECORD_AUX_OUTPUT_HW_ID hw_id: {}", zero_or_hex(id))
        }
        _ => return None,
    }))
}

/// A record's thread, CPU and time as printed by `perf script`, followed by its `text`.
pub fn with_writer(record: &Record<'_>, text: &str) -> String {
    let (Thread { pid, tid }, cpu) = (record.ids.thread.unwrap(), record.ids.cpu.unwrap());
    format!("{pid}/{tid} [{cpu:03}] {}: {text}", time(record.ids.time))
}

/// Any record as printed by `perf report -D`, with whitespace collapsed.
pub fn dumped(record: &Record<'_>, layout: &Layout) -> String {
    match record.body {
        Body::Sample(sample) => without_spaces(&format!(
            "PERF_RECORD_SAMPLE{}",
            of_sample(record.misc, &sample, layout)
        )),
        Body::Throttle(_) => "PERF_RECORD_THROTTLE".to_owned(),
        Body::Unthrottle(_) => "PERF_RECORD_UNTHROTTLE".to_owned(),
        // perf prints the id from the end of the record.
        Body::LostSamples(lost) => {
            let id = record.ids.id.unwrap_or(u64::MAX);
            format!("PERF_RECORD_LOST_SAMPLES: id:{id}: lost samples :{lost}")
        }
        Body::Read { thread, values } => of_read(thread, &values, layout.read_format),
        _ => shown(record).unwrap(),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn both(Thread { pid, tid }: Thread) -> String {
    format!("{}/{}", pid as i32, tid as i32)
}

fn tasks(Task { thread, parent, .. }: Task) -> String {
    format!("({}:{}):({}:{})", thread.pid, thread.tid, parent.pid, parent.tid)
}

fn zero_or_hex(number: u64) -> String {
    if number == 0 { "0".into() } else { format!("{number:#x}") }
}

/// The direction of a switch, and which task is the other one.
fn direction(switch: Switch) -> (&'static str, &'static str) {
    match switch {
        Switch::In => ("IN", "prev"),
        Switch::Out { is_preempted: true } => ("OUT preempt", "next"),
        Switch::Out { is_preempted: false } => ("OUT", "next"),
        other => panic!("{other:?}"),
    }
}

fn of_mapping(mapping: &Mapping<'_>) -> String {
    let Mapping { thread, addr, len, pgoff, .. } = *mapping;
    let [addr, len, pgoff] = [addr, len, pgoff].map(zero_or_hex);
    format!("{}: [{addr}({len}) @ {pgoff}", both(thread))
}

fn of_file(file: MappedFile<'_>) -> String {
    match file {
        MappedFile::Inode { major, minor, inode, generation } => {
            format!("{major:02x}:{minor:02x} {inode} {generation}")
        }
        MappedFile::BuildId(id) => format!("<{}>", hex(id)),
        other => panic!("{other:?}"),
    }
}

fn protection(prot: u32, flags: u32) -> String {
    let bit = |is_set, letter| if is_set { letter } else { '-' };
    let prot = [bit(prot & 1 != 0, 'r'), bit(prot & 2 != 0, 'w'), bit(prot & 4 != 0, 'x')];
    let shared = if flags & 1 != 0 { 's' } else { 'p' };
    prot.into_iter().chain([shared]).collect()
}

fn all(links: Namespaces<'_>) -> String {
    let names = ["net", "uts", "ipc", "pid", "user", "mnt", "cgroup"];
    let named = links.iter().zip(names).enumerate();
    let shown = named.map(|(number, ((device, inode), name))| {
        format!("{number}/{name}: {device}/{}", zero_or_hex(inode))
    });
    shown.collect::<Vec<_>>().join(", ")
}

/// Bytes of code, as lines with a heading each.
fn code(heading: &str, code: &[u8]) -> String {
    let bytes = |line: &[u8]| line.iter().map(|byte| format!(" {byte:02x}")).collect::<String>();
    code.chunks(16).map(|line| format!(" {heading}{}", bytes(line))).collect()
}

/// A thread's counters, as far as perf prints them correctly: it assumes that there is no group and
/// that all optional fields are present.
fn of_read(Thread { pid, tid }: Thread, values: &ReadValues<'_>, format: ReadFormat) -> String {
    let mut shown = format!("PERF_RECORD_READ: {pid} {tid}");
    if format.contains(ReadFormat::GROUP) {
        return shown;
    }
    let counter = values.counters().next().unwrap();
    write!(shown, " {}", counter.value).unwrap();
    let fields = [
        ("time enabled", values.time_enabled),
        ("time running", values.time_running),
        ("id", counter.id),
        ("lost", counter.lost),
    ];
    for (name, value) in fields.into_iter().map_while(|(name, value)| Some((name, value?))) {
        write!(shown, " ... {name} : {value}").unwrap();
    }
    shown
}

fn of_sample(misc: u16, sample: &Sample<'_>, layout: &Layout) -> String {
    // perf prints zeros or ones for fields that are not there.
    let thread = sample.thread.map_or("-1/-1".to_owned(), both);
    let [ip, addr] = [sample.ip, sample.addr].map(|word| zero_or_hex(word.unwrap_or(0)));
    // Without the field, perf assumes a period of one.
    let period = sample.period.unwrap_or(1);
    let mut shown = format!("(IP, {misc:#x}): {thread}: {ip} period: {period} addr: {addr}");
    let mut line = |line: String| write!(shown, " {line}").unwrap();
    if let Some(chain) = sample.callchain {
        line(format!("... FP chain: nr:{}", chain.words().len()));
        chain.words().iter().enumerate().for_each(|(n, at)| line(format!("..... {n}: {at:016x}")));
    }
    if let Some(branches) = sample.branches {
        line(format!("... branch stack: nr:{}", branches.iter().len()));
        branches.iter().enumerate().for_each(|(n, one)| line(of_branch(n, one)));
    }
    for (mode, regs) in [("user", sample.regs_user), ("intr", sample.regs_intr)] {
        // Kernel threads have no ABI, and perf prints nothing for them.
        let some = regs.iter().filter(|regs| regs.abi != 0);
        some.for_each(|regs| line(registers(mode, regs)));
    }
    if let Some(stack) = sample.stack_user {
        line(format!("... ustack: size {}", stack.len()));
    }
    if layout.sample_type.contains(SampleType::WEIGHT_STRUCT) {
        // perf decodes the third part only on Power.
        let (first, second, _) = sample.weights().unwrap();
        line(format!("... weight: {first},{second:#x},0x0"));
    } else if let Some(weight) = sample.weight {
        line(format!("... weight: {weight}"));
    }
    let hex = |word: u64| format!("0x{word:x}");
    for (name, value) in [
        (". data_src:", sample.data_src.map(hex)),
        (".. phys_addr:", sample.phys_addr.map(hex)),
        (".. data page size:", sample.data_page_size.map(size)),
        (".. code page size:", sample.code_page_size.map(size)),
        ("... transaction:", sample.transaction.map(|word| format!("{word:x}"))),
    ] {
        value.iter().for_each(|value| line(format!("{name} {value}")));
    }
    if let Some(values) = sample.values {
        line(counters(&values, layout.read_format));
    }
    shown
}

fn counters(values: &ReadValues<'_>, format: ReadFormat) -> String {
    let mut shown = "... sample_read:".to_owned();
    for (name, time) in [("enabled", values.time_enabled), ("running", values.time_running)] {
        time.iter().for_each(|time| write!(shown, " ...... time {name} {time:016x}").unwrap());
    }
    if format.contains(ReadFormat::GROUP) {
        write!(shown, " .... group nr {}", values.counters().count()).unwrap();
    }
    for counter in values.counters() {
        let id = counter.id.unwrap();
        write!(shown, " ..... id {id:016x}, value {:016x}", counter.value).unwrap();
        counter.lost.iter().for_each(|lost| write!(shown, ", lost {lost}").unwrap());
    }
    shown
}

/// The bits of `struct perf_branch_entry`.
fn of_branch(number: usize, Branch { from, to, flags, .. }: Branch) -> String {
    const EXTENDED: u64 = 15;
    const TYPES: [&str; 15] = [
        "",
        "COND",
        "UNCOND",
        "IND",
        "CALL",
        "IND_CALL",
        "RET",
        "SYSCALL",
        "SYSRET",
        "COND_CALL",
        "COND_RET",
        "ERET",
        "IRQ",
        "SERROR",
        "NO_TX",
    ];
    const EXTENDED_TYPES: [&str; 8] = [
        "FAULT_ALGN",
        "FAULT_DATA",
        "FAULT_INST",
        "ARCH_1",
        "ARCH_2",
        "ARCH_3",
        "ARCH_4",
        "ARCH_5",
    ];
    let letters = [('M', 0), ('P', 1), ('A', 3), ('T', 2)].into_iter();
    let letters: String =
        letters.map(|(letter, bit)| if flags >> bit & 1 != 0 { letter } else { ' ' }).collect();
    let (cycles, reserved) = (flags >> 4 & 0xffff, flags >> 33);
    let kind = match (flags >> 20 & 0xf, flags >> 26 & 0xf) {
        (EXTENDED, kind) => EXTENDED_TYPES.get(kind as usize),
        (kind, _) => TYPES.get(kind as usize),
    };
    let kind = kind.unwrap_or(&"(null)");
    format!(
        "..... {number}: {from:016x} -> {to:016x} {cycles} cycles {letters} {reserved:x} {kind}"
    )
}

fn registers(mode: &str, regs: &Registers<'_>) -> String {
    let abi = match regs.abi {
        1 => "32-bit",
        2 => "64-bit",
        other => panic!("ABI {other}"),
    };
    let values = named(regs).map(|(name, value)| format!(" .... {name} 0x{value:016x}"));
    let values: String = values.collect();
    format!("... {mode} regs: mask {:#x} ABI {abi}{values}", regs.mask)
}

/// The registers of a sample, by the names that perf gives them.
pub fn named(regs: &Registers<'_>) -> impl Iterator<Item = (&'static str, u64)> {
    const NAMES: [&str; 24] = [
        "AX", "BX", "CX", "DX", "SI", "DI", "BP", "SP", "IP", "FLAGS", "CS", "SS", "DS", "ES",
        "FS", "GS", "R8", "R9", "R10", "R11", "R12", "R13", "R14", "R15",
    ];
    (0..).zip(NAMES).filter_map(|(bit, name)| Some((name, regs.get(bit)?)))
}

/// A size as printed by perf: in the largest unit that gives at least 2, up to gigabytes.
fn size(bytes: u64) -> String {
    if bytes == 0 {
        return "N/A".to_owned();
    }
    let (mut size, mut units) = (bytes, ["B", "K", "M", "G"].iter());
    let mut unit = units.next().unwrap();
    while size / 1024 > 1
        && let Some(larger) = units.next()
    {
        size /= 1024;
        unit = larger;
    }
    format!("{size}{unit}")
}
