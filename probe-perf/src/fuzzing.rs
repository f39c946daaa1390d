//! Fuzzing of records and their layouts.

use crate::record::{Body, Layout, ReadFormat, Record, RecordError, SampleType};

/// The input is 8 bytes for the layout, then records. Each record is read, and all that is borrowed from it is checked:
/// nothing is longer than the record.
pub fn perf_record(data: &[u8]) {
    let Some((&[a, b, c, d, format, ids, branches, regs], mut left)) = data.split_first_chunk()
    else {
        return;
    };
    let layout = Layout {
        sample_type: SampleType::from_bits_truncate(u32::from_ne_bytes([a, b, c, d]).into()),
        read_format: ReadFormat::from_bits_truncate(format.into()),
        has_ids: ids & 1 != 0,
        branch_sample_type: u64::from(branches) << 17,
        regs_user: regs.into(),
        regs_intr: u64::from(regs) << 32,
    };
    loop {
        let size = match Record::read(left, &layout) {
            Ok((record, size)) => {
                assert!(borrowed(&record) <= size, "{record:?}");
                size
            }
            Err(RecordError::Short { size, .. }) => size,
            Err(RecordError::Header { available }) => {
                assert_eq!(available, left.len());
                return;
            }
        };
        assert!(size >= 8, "reading a record makes progress");
        left = &left[size..];
    }
}

/// How many bytes are borrowed from a record.
fn borrowed(record: &Record<'_>) -> usize {
    match record.body {
        Body::Sample(sample) => {
            let chain = sample.callchain.map_or(0, |chain| {
                let (all, user, kernel) = (chain.words(), chain.user(), chain.kernel());
                assert!(user.len() + kernel.len() <= all.len());
                8 * all.iter().len()
            });
            let registers = [sample.regs_user, sample.regs_intr].into_iter().flatten();
            let registers: usize = registers
                .map(|regs| {
                    let there = (0..70).filter_map(|bit| regs.get(bit)).count();
                    assert_eq!(there, regs.values.len());
                    8 * there
                })
                .sum();
            let branches = sample.branches.map_or(0, |branches| 24 * branches.iter().count());
            let counters = sample.values.map_or(0, |values| 8 * values.counters().count());
            let bytes = [sample.raw, sample.stack_user, sample.aux].into_iter().flatten();
            chain + registers + branches + counters + bytes.map(<[u8]>::len).sum::<usize>()
        }
        Body::Comm { comm: bytes, .. }
        | Body::Ksymbol { name: bytes, .. }
        | Body::Cgroup { path: bytes, .. }
        | Body::Other { bytes, .. } => bytes.len(),
        Body::Mmap(mapping) | Body::Mmap2 { mapping, .. } => mapping.filename.len(),
        Body::TextPoke { old, new, .. } => old.len() + new.len(),
        Body::Namespaces { links, .. } => 16 * links.iter().count(),
        Body::Read { values, .. } => 8 * values.counters().count(),
        _ => 0,
    }
}

#[cfg(test)]
#[test]
fn corpus_of_perf_record() {
    probe_testing::corpus::run("perf_record", perf_record);
}
