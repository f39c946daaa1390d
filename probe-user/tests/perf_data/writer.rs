//! Files as `perf record` writes them.

use super::generator::Attr;
use std::path::Path;

/// `struct perf_file_header`.
const HEADER: usize = 104;
/// `PERF_ATTR_SIZE_VER7`: perf 6.1 knows no more.
const ATTR: usize = 128;
/// The attribute, and where its ids are (`struct perf_file_section`).
const ATTR_AND_IDS: usize = ATTR + 16;

/// An event of the kernel (`enum perf_sw_ids`), and its id.
pub struct Event {
    pub config: u64,
    pub id: u64,
}

/// Writes a file of events, which have the rest of their attribute in common, and of their records.
pub fn write(path: &Path, attr: &Attr, events: &[Event], records: &[u8]) {
    let attrs_at = HEADER + 8 * events.len();
    let records_at = attrs_at + ATTR_AND_IDS * events.len();
    let mut file = b"PERFILE2".to_vec();
    let mut words = |words: &[usize]| {
        file.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
    };
    words(&[HEADER, ATTR_AND_IDS, attrs_at, ATTR_AND_IDS * events.len()]);
    // No event types, and no features: perf finds out what it wants to know.
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
