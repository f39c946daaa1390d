//! Records written by hand, as the header file describes them. `tests/kernel/perf_dump.rs` compares others with perf's
//! output, and `tests/kernel/sampler_records.rs` has those of the kernel.

use super::*;

/// A record's bytes, field by field.
struct Bytes(Vec<u8>);

impl Bytes {
    fn new() -> Self {
        Self(Vec::new())
    }

    fn u64(mut self, words: &[u64]) -> Self {
        self.0.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        self
    }

    fn u32(mut self, words: &[u32]) -> Self {
        self.0.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        self
    }

    fn u16(mut self, words: &[u16]) -> Self {
        self.0.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
        self
    }

    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0.extend(bytes);
        self
    }

    /// Behind a header.
    fn record(self, kind: u32, misc: u16) -> Vec<u8> {
        let size = u16::try_from(8 + self.0.len()).unwrap();
        Self::new().u32(&[kind]).u16(&[misc, size]).bytes(&self.0).0
    }
}

const IDS: SampleType = SampleType::TID
    .union(SampleType::TIME)
    .union(SampleType::ID)
    .union(SampleType::STREAM_ID)
    .union(SampleType::CPU)
    .union(SampleType::IDENTIFIER);

/// Reads a record, and every beginning of it, which has to be an error.
fn read<'r>(bytes: &'r [u8], layout: &Layout) -> Record<'r> {
    let (record, size) = Record::read(bytes, layout).unwrap();
    assert_eq!(size, bytes.len());
    for end in 0..bytes.len() {
        let error = Record::read(&bytes[..end], layout).unwrap_err();
        assert!(matches!(error, RecordError::Header { .. }), "{error}");
    }
    record
}

/// The same, of a record whose header says that it is shorter.
fn shortened(bytes: &[u8], layout: &Layout) -> Vec<RecordError> {
    let short = (8..bytes.len()).step_by(8).map(|size| {
        let mut bytes = bytes[..size].to_vec();
        bytes[6..8].copy_from_slice(&(size as u16).to_ne_bytes());
        Record::read(&bytes, layout).map(|_| ()).err()
    });
    short.flatten().collect()
}

#[test]
fn every_field_of_a_sample_is_read() {
    let layout = Layout {
        sample_type: SampleType::all() - SampleType::WEIGHT_STRUCT,
        read_format: ReadFormat::all(),
        has_ids: true,
        branch_sample_type: (1 << 17) | (1 << 19),
        regs_user: 0b1010,
        regs_intr: 1 << 63,
    };
    let user = u64::MAX - 511;
    let kernel = u64::MAX - 127;
    let bytes = Bytes::new()
        .u64(&[1, 2])
        .u32(&[3, 4])
        .u64(&[5, 6, 7, 8])
        .u32(&[9, 0])
        .u64(&[10])
        // A group of two: their times, then value, id and lost of each.
        .u64(&[2, 11, 12, 13, 14, 15, 16, 17, 18])
        .u64(&[5, kernel, 20, 21, user, 22])
        .u32(&[12])
        .bytes(b"twelve bytes")
        .u64(&[2, 30, 31, 32, 33, 34, 35, 36, 37, 38])
        .u64(&[2, 40, 41])
        .u64(&[16])
        .bytes(b"sixteen bytes of")
        .u64(&[9])
        .u64(&[50, 51, 52])
        .u64(&[1, 53])
        .u64(&[54, 55, 56, 57])
        .u64(&[8])
        .bytes(b"AUX data")
        .record(9, 2);
    let record = read(&bytes, &layout);
    let Body::Sample(sample) = record.body else { panic!("{record:?}") };
    // The id stands twice.
    assert_eq!((sample.id, record.id(), record.misc), (Some(7), Some(7), 2));
    assert_eq!(sample.ip, Some(2));
    assert_eq!(sample.thread, Some(Thread { pid: 3, tid: 4 }));
    assert_eq!((sample.time, sample.addr, sample.stream_id), (Some(5), Some(6), Some(8)));
    assert_eq!((sample.cpu, sample.period), (Some(9), Some(10)));
    let values = sample.values.unwrap();
    assert_eq!((values.time_enabled, values.time_running), (Some(11), Some(12)));
    let counters: Vec<_> = values.counters().map(|one| (one.value, one.id, one.lost)).collect();
    assert_eq!(counters, [(13, Some(14), Some(15)), (16, Some(17), Some(18))]);
    let chain = sample.callchain.unwrap();
    assert_eq!(chain.words().len(), 5);
    assert_eq!(chain.kernel().iter().collect::<Vec<_>>(), [20, 21]);
    assert_eq!(chain.user().iter().collect::<Vec<_>>(), [22]);
    assert_eq!(sample.raw, Some(&b"twelve bytes"[..]));
    let branches = sample.branches.unwrap();
    assert_eq!(branches.hw_index, Some(30));
    let entries: Vec<_> = branches.iter().map(|one| [one.from, one.to, one.flags]).collect();
    assert_eq!(entries, [[31, 32, 33], [34, 35, 36]]);
    assert_eq!(branches.counters.unwrap().iter().collect::<Vec<_>>(), [37, 38]);
    let regs = sample.regs_user.unwrap();
    assert_eq!([0, 1, 2, 3, 64].map(|bit| regs.get(bit)), [None, Some(40), None, Some(41), None]);
    assert_eq!(sample.stack_user, Some(&b"sixteen b"[..]), "nine bytes could be read");
    assert_eq!(sample.weight, Some(50));
    assert_eq!((sample.data_src, sample.transaction), (Some(51), Some(52)));
    assert_eq!(sample.regs_intr.unwrap().get(63), Some(53));
    assert_eq!((sample.phys_addr, sample.cgroup), (Some(54), Some(55)));
    assert_eq!((sample.data_page_size, sample.code_page_size), (Some(56), Some(57)));
    assert_eq!(sample.aux, Some(&b"AUX data"[..]));
    assert_eq!(shortened(&bytes, &layout).len(), bytes.len() / 8 - 1, "each is an error");
}

#[test]
fn a_sample_has_only_the_requested_fields() {
    for flag in SampleType::all().iter() {
        let layout = Layout { sample_type: flag, ..Layout::default() };
        let read = |bytes: &[u8]| {
            let Body::Sample(sample) = Record::read(bytes, &layout).unwrap().0.body else {
                panic!()
            };
            let shown = format!("{sample:?}");
            // Each field that is there, and what is there of its own.
            shown.matches("Some(").count()
        };
        // Lengths of zero, where there are lengths.
        assert!(read(&Bytes::new().u64(&[0; 4]).record(9, 0)) >= 1, "{flag:?}");
        assert!(Record::read(&Bytes::new().record(9, 0), &layout).is_err(), "{flag:?}");
    }
    let none = Bytes::new().record(9, 0);
    let Body::Sample(sample) = read(&none, &Layout::default()).body else { panic!() };
    assert_eq!(sample, Sample::default());
}

#[test]
fn weights_are_a_word_or_three_parts() {
    let layout = Layout { sample_type: SampleType::WEIGHT_STRUCT, ..Layout::default() };
    let bytes = Bytes::new().u64(&[0x0003_0002_0000_0001]).record(9, 0);
    let Body::Sample(sample) = read(&bytes, &layout).body else { panic!() };
    assert_eq!(sample.weights(), Some((1, 2, 3)));
}

#[test]
fn empty_registers_and_stacks_take_few_bytes() {
    let layout = Layout {
        sample_type: SampleType::REGS_USER | SampleType::STACK_USER | SampleType::READ,
        read_format: ReadFormat::ID,
        regs_user: 0xff,
        ..Layout::default()
    };
    // A kernel thread: it has no registers, and no stack.
    let bytes = Bytes::new().u64(&[70, 71, 0, 0]).record(9, 0);
    let Body::Sample(sample) = read(&bytes, &layout).body else { panic!() };
    let regs = sample.regs_user.unwrap();
    assert_eq!((regs.abi, regs.get(0), regs.values.len()), (0, None, 0));
    assert_eq!(sample.stack_user, Some(&[][..]));
    let counters: Vec<_> = sample.values.unwrap().counters().collect();
    assert_eq!((counters.len(), counters[0].value, counters[0].id), (1, 70, Some(71)));
}

#[test]
fn impossible_counts_are_errors() {
    let of = |sample_type| Layout { sample_type, branch_sample_type: 0, ..Layout::default() };
    let group = Layout { read_format: ReadFormat::GROUP, ..of(SampleType::READ) };
    // Eight times as many wrap to the eight bytes that are there.
    let bytes = Bytes::new().u64(&[(1 << 61) | 1, 0]).record(9, 0);
    assert!(Record::read(&bytes, &of(SampleType::CALLCHAIN)).is_err());
    for (field, layout) in [
        ("callchain", of(SampleType::CALLCHAIN)),
        ("branches", of(SampleType::BRANCH_STACK)),
        ("stack", of(SampleType::STACK_USER)),
        ("AUX data", of(SampleType::AUX)),
        ("raw data", of(SampleType::RAW)),
        ("counters", group),
    ] {
        for count in [3, 1 << 32, 1 << 61, u64::MAX / 8, u64::MAX] {
            let bytes = Bytes::new().u64(&[count | 17, 0]).record(9, 0);
            let expected = RecordError::Short { kind: 9, size: 24, field };
            assert_eq!(Record::read(&bytes, &layout), Err(expected), "{count:#x}");
        }
    }
}

#[test]
fn all_other_records_are_read_with_their_ids() {
    let all = Layout { sample_type: IDS, has_ids: true, ..Layout::default() };
    let thread = Thread { pid: 1, tid: 2 };
    let parent = Thread { pid: 3, tid: 4 };
    let task = Task { thread, parent, time: 5 };
    let throttled = Throttled { time: 1, id: 2, stream_id: 3 };
    let mapping = Mapping::new(thread, 0x1000..0x3000, 0x3000, b"/bin/x");
    let data = Mapping { is_data: true, ..mapping };
    let mapped = || Bytes::new().u32(&[1, 2]).u64(&[0x1000, 0x2000, 0x3000]);
    let path = b"/bin/x\0\0";
    let comm = |comm, is_exec| Body::Comm { thread, comm, is_exec };
    let words = |words: &[u64]| Bytes::new().u64(words);
    let threads = || Bytes::new().u32(&[1, 2]);
    let id = b"\x03\0\0\0abcdefghijklmnopqrst";
    let inode = MappedFile::Inode { major: 8, minor: 1, inode: 42, generation: 7 };
    let out = |is_preempted| Switch::Out { is_preempted };
    for (kind, misc, bytes, expected) in [
        (1, 0, mapped().bytes(path), Body::Mmap(mapping)),
        (1, 1 << 13, mapped().bytes(path), Body::Mmap(data)),
        (2, 0, words(&[6, 7]), Body::Lost { id: 6, lost: 7 }),
        (3, 0, threads().bytes(b"cat\0\0\0\0\0"), comm(b"cat", false)),
        (3, 1 << 13, threads().bytes(b"12345678"), comm(b"12345678", true)),
        (4, 0, Bytes::new().u32(&[1, 3, 2, 4]).u64(&[5]), Body::Exit(task)),
        (5, 0, words(&[1, 2, 3]), Body::Throttle(throttled)),
        (6, 0, words(&[1, 2, 3]), Body::Unthrottle(throttled)),
        (7, 0, Bytes::new().u32(&[1, 3, 2, 4]).u64(&[5]), Body::Fork(task)),
        (
            10,
            1 << 13,
            mapped().u32(&[8, 1]).u64(&[42, 7]).u32(&[5, 2]).bytes(path),
            Body::Mmap2 { mapping: data, file: inode, prot: 5, flags: 2 },
        ),
        (
            10,
            1 << 14,
            mapped().bytes(id).u32(&[5, 2]).bytes(path),
            Body::Mmap2 { mapping, file: MappedFile::BuildId(b"abc"), prot: 5, flags: 2 },
        ),
        (11, 0, words(&[1, 2, 3]), Body::Aux { offset: 1, size: 2, flags: 3 }),
        (12, 0, threads(), Body::ItraceStart(thread)),
        (13, 0, words(&[9]), Body::LostSamples(9)),
        (14, 0, words(&[]), Body::Switch(Switch::In)),
        (14, 1 << 13, words(&[]), Body::Switch(out(false))),
        (15, 3 << 13, threads(), Body::SwitchCpuWide { switch: out(true), other: thread }),
        (
            17,
            0,
            words(&[0x1000]).u32(&[64]).u16(&[1, 1]).bytes(b"bpf_prog"),
            Body::Ksymbol { addr: 0x1000, len: 64, kind: 1, is_removed: true, name: b"bpf_prog" },
        ),
        (
            18,
            0,
            Bytes::new().u16(&[1, 0]).u32(&[77]).bytes(b"tagtagta"),
            Body::BpfEvent { kind: 1, flags: 0, id: 77, tag: *b"tagtagta" },
        ),
        (19, 0, words(&[5]).bytes(b"/a/b\0\0\0\0"), Body::Cgroup { id: 5, path: b"/a/b" }),
        (
            20,
            0,
            words(&[0x1000]).u16(&[5, 2]).bytes(b"oldernw\0\0\0\0\0"),
            Body::TextPoke { addr: 0x1000, old: b"older", new: b"nw" },
        ),
        (21, 0, words(&[12]), Body::AuxOutputHwId(12)),
        (63, 0, Bytes::new().bytes(b"whatever"), Body::Other { kind: 63, bytes: b"whatever" }),
    ] {
        let plain = Bytes::new().bytes(&bytes.0).record(kind, misc);
        let record = read(&plain, &Layout::default());
        assert_eq!((record.body, record.ids, record.misc), (expected, SampleId::default(), misc));
        let with_ids =
            bytes.u32(&[10, 11]).u64(&[12, 13, 14]).u32(&[15, 0]).u64(&[16]).record(kind, misc);
        let record = read(&with_ids, &all);
        assert_eq!(record.body, expected);
        assert_eq!((record.ids.thread, record.id()), (Some(Thread { pid: 10, tid: 11 }), Some(16)));
        let ids = (record.ids.time, record.ids.stream_id, record.ids.cpu);
        assert_eq!(ids, (Some(12), Some(14), Some(15)));
        let errors = shortened(&with_ids, &all);
        assert!(errors.len() >= 6, "without its ids: {errors:?}");
        assert_eq!(errors[0], RecordError::Short { kind, size: 8, field: "sample id" });
    }
}

#[test]
fn records_that_perf_adds_to_its_files_have_no_ids() {
    let layout = Layout { sample_type: IDS, has_ids: true, ..Layout::default() };
    // PERF_RECORD_FINISHED_ROUND has a header only.
    for (kind, bytes) in [(68, &b""[..]), (64, &b"whatever"[..])] {
        let record = Bytes::new().bytes(bytes).record(kind, 0);
        let record = read(&record, &layout);
        assert_eq!((record.body, record.ids), (Body::Other { kind, bytes }, SampleId::default()));
    }
}

#[test]
fn namespaces_and_counters_of_threads_are_read() {
    let bytes = Bytes::new().u32(&[1, 2]).u64(&[2, 3, 4, 5, 6]).record(16, 0);
    let Body::Namespaces { links, .. } = read(&bytes, &Layout::default()).body else { panic!() };
    assert_eq!(links.iter().collect::<Vec<_>>(), [(3, 4), (5, 6)]);
    let layout = Layout { read_format: ReadFormat::TOTAL_TIME_RUNNING, ..Layout::default() };
    let bytes = Bytes::new().u32(&[1, 2]).u64(&[30, 40]).record(8, 0);
    let Body::Read { thread, values } = read(&bytes, &layout).body else { panic!() };
    assert_eq!((thread, values.time_running), (Thread { pid: 1, tid: 2 }, Some(40)));
    assert_eq!(values.counters().map(|one| one.value).collect::<Vec<_>>(), [30]);
}
