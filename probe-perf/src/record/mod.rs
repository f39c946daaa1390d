//! Decoding the records of perf events without copying them. All types of the kernel are known (`enum perf_event_type`
//! in `include/uapi/linux/perf_event.h`).
//!
//! Records are not trusted: one that is too short is an error that names the missing field.
//!
//! The crate `perf-event-data` (0.1.8) does not replace this module: it does not read `PERF_SAMPLE_WEIGHT_STRUCT`, which
//! corrupts the fields that follow, and it reinterprets bytes in `unsafe` code, which this crate has none of.

mod body;
mod fields;
mod layout;
mod sample;
#[cfg(test)]
mod tests;

pub use body::{Body, MappedFile, Mapping, Namespaces, Switch, Task, Throttled};
pub use fields::{Thread, Words};
pub use layout::{Layout, SampleId, SampleType};
pub use probe_sys::perf_event::ReadFormat;
pub use sample::{Branch, Branches, Callchain, ReadValue, ReadValues, Registers, Sample};

use fields::Missing;
use probe_sys::ring::perf_record::{Header, PERF_RECORD_SAMPLE};

/// The first type of the records that perf itself adds to its files. They have no sample id.
const PERF_RECORD_USER_TYPE_START: u32 = 64;

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record<'r> {
    /// `PERF_RECORD_MISC_*`. The lowest three bits say which code was running.
    pub misc: u16,
    /// The contents.
    pub body: Body<'r>,
    /// When and where the record was written. Empty for a sample, which has these fields itself, and for records that perf
    /// adds to its files.
    pub ids: SampleId,
}

/// Why bytes are not a valid record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The record ends within a field.
    #[error("a record of type {kind} has {size} bytes and ends within the field: {field}")]
    Short {
        /// The type of the record.
        kind: u32,
        /// The bytes of the record.
        size: usize,
        /// The field.
        field: &'static str,
    },
    /// The bytes do not start with a valid header.
    #[error("{available} bytes do not start with a valid record header")]
    Header {
        /// The number of bytes.
        available: usize,
    },
}

impl<'r> Record<'r> {
    /// Creates a record from data of another source, without flags.
    pub fn new(body: Body<'r>, ids: SampleId) -> Self {
        Self { misc: 0, body, ids }
    }

    /// Reads the record at the start of `bytes` and returns its length. The bytes come from a ring or from a file of `perf
    /// record`, and start with a header.
    ///
    /// # Errors
    ///
    /// [`Header`](RecordError::Header) if there is no valid header; the next record cannot be found then.
    /// [`Short`](RecordError::Short) if the record ends within a field; the error has the length of the record.
    pub fn read(bytes: &'r [u8], layout: &Layout) -> Result<(Self, usize), RecordError> {
        let (header, size) = Header::read(bytes, bytes.len())
            .ok_or(RecordError::Header { available: bytes.len() })?;
        Self::with_header(header, &bytes[..size], layout).map(|record| (record, size))
    }

    /// The id of the record's event, if it has one. Samples of a [`Sampler`](super::Sampler) always do.
    pub fn id(&self) -> Option<u64> {
        match &self.body {
            Body::Sample(sample) => sample.id,
            _ => self.ids.id,
        }
    }

    /// Reads a whole record, whose header has already been read.
    pub(crate) fn with_header(
        header: Header,
        record: &'r [u8],
        layout: &Layout,
    ) -> Result<Self, RecordError> {
        let Header { kind, misc, .. } = header;
        let bytes = record.get(Header::LEN..).unwrap_or_default();
        let has_ids = kind != PERF_RECORD_SAMPLE && kind < PERF_RECORD_USER_TYPE_START;
        let ids_len = if has_ids { layout.ids_len() } else { 0 };
        let read = || {
            let end = bytes.len().checked_sub(ids_len).ok_or(Missing("sample id"))?;
            let (body, ids) = bytes.split_at(end);
            let body = Body::take(kind, misc, body, layout)?;
            let ids = if ids_len == 0 { SampleId::default() } else { layout.read_ids(ids)? };
            Ok(Self { misc, body, ids })
        };
        read().map_err(|Missing(field)| RecordError::Short { kind, size: record.len(), field })
    }
}
