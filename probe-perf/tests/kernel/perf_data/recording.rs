//! Files in the format of `perf record`, read both by us and by perf.

use super::generator::Attr;
use super::perf;
use probe_perf::record::{Body, Layout, ReadFormat, Record, SampleType};
use tempfile::TempDir;

/// `struct perf_file_header`.
const HEADER: usize = 104;
/// `PERF_ATTR_SIZE_VER7`, the newest that perf 6.1 supports.
const ATTR: usize = 128;
/// The attribute and the location of its ids (`struct perf_file_section`).
const ATTR_AND_IDS: usize = ATTR + 16;

/// A software event (`enum perf_sw_ids`) and its id.
pub struct Event {
    pub config: u64,
    pub id: u64,
}

/// A file: `struct perf_file_header`, the attributes and the records. It is removed on drop.
pub struct Recording {
    pub layout: Layout,
    pub data: Vec<u8>,
    /// Offset of the records in the file.
    begin: usize,
    path: String,
    pub dir: TempDir,
}

impl Recording {
    /// A file with these events and records. The events differ only in `config`.
    pub fn written(attr: &Attr, events: &[Event], records: &[u8]) -> Self {
        let (dir, path) = new_path();
        write(&path, attr, events, records);
        Self::read(dir, path)
    }

    /// Reads a file whose events all have records with the same fields.
    fn read(dir: TempDir, path: String) -> Self {
        let file = std::fs::read(&path).unwrap();
        let word = |at: usize| u64::from_ne_bytes(file[at..at + 8].try_into().unwrap());
        assert_eq!(&file[..8], b"PERFILE2");
        let (attr_len, attr, attrs_len) = (word(16) as usize, word(24) as usize, word(32) as usize);
        let layout = |attr: usize| Layout {
            sample_type: SampleType::from_bits_retain(word(attr + 24)),
            read_format: ReadFormat::from_bits_retain(word(attr + 32)),
            has_ids: word(attr + 40) >> 18 & 1 != 0,
            branch_sample_type: word(attr + 72),
            regs_user: word(attr + 80),
            regs_intr: word(attr + 96),
        };
        let (begin, len) = (word(40) as usize, word(48) as usize);
        let others = (attr..attr + attrs_len).step_by(attr_len);
        let layout = others.map(layout).reduce(|one, other| {
            assert_eq!(one, other);
            one
        });
        let data = file[begin..begin + len].to_vec();
        Self { layout: layout.unwrap(), data, begin, path, dir }
    }

    /// Passes each kernel record and its offset in the file to `each`. Skips perf's own records.
    pub fn each(&self, mut each: impl FnMut(usize, &Record<'_>)) {
        let mut at = 0;
        while at < self.data.len() {
            let rest = &self.data[at..];
            let kind = u32::from_ne_bytes(rest[..4].try_into().unwrap());
            let size = u16::from_ne_bytes(rest[6..8].try_into().unwrap());
            if kind < 64 {
                let (record, len) = Record::read(rest, &self.layout).unwrap();
                assert_eq!(len, usize::from(size));
                assert!(!matches!(record.body, Body::Other { .. }), "{record:?}");
                each(self.begin + at, &record);
            }
            at += usize::from(size);
        }
    }

    /// Collects what `show` returns for each of these records.
    pub fn collect<T>(&self, mut show: impl FnMut(&Record<'_>) -> Option<T>) -> Vec<T> {
        let mut collected = Vec::new();
        self.each(|_, record| collected.extend(show(record)));
        collected
    }

    /// What perf prints of the file.
    pub fn perf(&self, args: &[&str]) -> Option<String> {
        perf(&[args, &["-i", &self.path]].concat())
    }
}

/// What perf records of a shell and a child of it. Without perf, `None`, and the test is skipped.
pub fn recorded(options: &[&str]) -> Option<Recording> {
    let (dir, path) = new_path();
    let record = ["record", "-q", "-o", &path, "-m", "1024", "-c", "1", "--sample-cpu"];
    let command = ["--", "sh", "-c", "/bin/true; :"];
    perf(&[&record[..], options, &command].concat()).map(|_| Recording::read(dir, path))
}

fn new_path() -> (TempDir, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("perf.data").to_str().unwrap().to_owned();
    (dir, path)
}

fn write(path: &str, attr: &Attr, events: &[Event], records: &[u8]) {
    let attrs_at = HEADER + 8 * events.len();
    let records_at = attrs_at + ATTR_AND_IDS * events.len();
    let mut file = b"PERFILE2".to_vec();
    let mut words = |words: &[usize]| {
        file.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
    };
    words(&[HEADER, ATTR_AND_IDS, attrs_at, ATTR_AND_IDS * events.len()]);
    // No event types and no features: perf works without them.
    words(&[records_at, records.len(), 0, 0, 0, 0, 0, 0]);
    assert_eq!(file.len(), HEADER);
    file.extend(events.iter().flat_map(|event| event.id.to_ne_bytes()));
    for (number, event) in events.iter().enumerate() {
        file.extend(bytes(attr, event.config));
        file.extend([HEADER + 8 * number, 8].iter().flat_map(|word| word.to_ne_bytes()));
    }
    file.extend(records);
    std::fs::write(path, file).unwrap();
}

/// `struct perf_event_attr`.
fn bytes(attr: &Attr, config: u64) -> [u8; ATTR] {
    const PERF_TYPE_SOFTWARE: u32 = 1;
    const SAMPLE_ID_ALL: u64 = 1 << 18;
    let flags = if attr.sample_id_all { SAMPLE_ID_ALL } else { 0 };
    let mut bytes = [0; ATTR];
    bytes[..4].copy_from_slice(&PERF_TYPE_SOFTWARE.to_ne_bytes());
    bytes[4..8].copy_from_slice(&(ATTR as u32).to_ne_bytes());
    for (at, word) in [
        (8, config),
        // The period.
        (16, 1),
        (24, attr.sample_type),
        (32, attr.read_format),
        (40, flags),
        (72, attr.branch_sample_type),
        (80, attr.regs_user),
        (96, attr.regs_intr),
    ] {
        bytes[at..at + 8].copy_from_slice(&word.to_ne_bytes());
    }
    bytes
}
