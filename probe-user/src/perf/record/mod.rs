//! The records of perf events, all types that the kernel has, where they lie (`enum perf_event_type` in
//! `include/uapi/linux/perf_event.h`).
//!
//! Nothing of a record is believed: what is shorter than it has to be is an error that names the field.
//!
//! They are decoded here and not by the crate `perf-event-data` (0.1.8): that one reads no
//! `PERF_SAMPLE_WEIGHT_STRUCT`, which makes the fields behind it wrong, and reinterprets bytes in `unsafe`,
//! which has its own rooms in this crate.

mod body;
mod callchain;
mod fields;
mod layout;
mod read;
mod sample;
#[cfg(test)]
mod tests;

pub use crate::sys::perf_event::ReadFormat;
pub use body::{Body, MappedFile, Mapping, Namespaces, Switch, Task, Throttled};
pub use callchain::Callchain;
pub use fields::Words;
pub use layout::{Layout, SampleId, SampleType, Thread};
pub use read::{ReadValue, ReadValues};
pub use sample::{Branch, Branches, Registers, Sample};

use crate::ring::perf_record::{Header, PERF_RECORD_SAMPLE};
use fields::Missing;

/// A record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record<'r> {
    /// Which code ran, in the lowest three bits, and more: `PERF_RECORD_MISC_*`.
    pub misc: u16,
    /// What it says.
    pub body: Body<'r>,
    /// When and where it was written: nothing of a sample, which has that in itself.
    pub ids: SampleId,
}

/// Bytes that are not the record that they should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// It ends within a field.
    #[error("a record of type {kind} has {size} bytes, and ends within: {field}")]
    Short {
        /// Its type.
        kind: u32,
        /// Bytes that it has.
        size: usize,
        /// The field.
        field: &'static str,
    },
    /// There can be no such record.
    #[error("{available} bytes do not begin with the header of a record")]
    Header {
        /// How many bytes there are.
        available: usize,
    },
}

impl<'r> Record<'r> {
    /// Reads the record that bytes begin with, and says how many bytes it has. The bytes are those of a ring, or of
    /// a file of `perf record`: from a header on.
    ///
    /// # Errors
    ///
    /// If there is no such record, or it ends within a field. What follows it is to be found in the second case
    /// alone: the header says where.
    pub fn read(bytes: &'r [u8], layout: &Layout) -> Result<(Self, usize), RecordError> {
        let (header, size) = Header::read(bytes, bytes.len())
            .ok_or(RecordError::Header { available: bytes.len() })?;
        Self::with_header(header, &bytes[..size], layout).map(|record| (record, size))
    }

    /// The event that it is of, if it says so: samples of a [`Sampler`](super::Sampler) always do.
    pub fn id(&self) -> Option<u64> {
        match &self.body {
            Body::Sample(sample) => sample.id,
            _ => self.ids.id,
        }
    }

    /// Reads a whole record, whose header was read already.
    pub(crate) fn with_header(
        header: Header,
        record: &'r [u8],
        layout: &Layout,
    ) -> Result<Self, RecordError> {
        let Header { kind, misc, .. } = header;
        let bytes = record.get(Header::LEN..).unwrap_or_default();
        let ids_len = if kind == PERF_RECORD_SAMPLE { 0 } else { layout.ids_len() };
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
