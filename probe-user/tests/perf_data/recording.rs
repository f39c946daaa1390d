//! Files of perf, read.

use probe_user::perf::record::{Body, Layout, ReadFormat, Record, SampleType};
use std::path::Path;

/// A file of `perf record`: `struct perf_file_header`, then the attributes, and the records.
pub struct Recording {
    pub layout: Layout,
    pub data: Vec<u8>,
    /// Where the records begin in the file.
    begin: usize,
}

impl Recording {
    /// Reads a file of events whose records have the same fields.
    pub fn read(path: &Path) -> Self {
        let file = std::fs::read(path).unwrap();
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
        Self { layout: layout.unwrap(), data: file[begin..begin + len].to_vec(), begin }
    }

    /// Each record of the kernel, and where it is in the file: others are perf's own.
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
}
