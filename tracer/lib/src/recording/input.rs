//! The bytes of a recording, section by section. All of them are untrusted.

use super::format::{ALIGN, SectionHeader, Tag, VERSION};
use serde::de::DeserializeOwned;
use std::io::{self, ErrorKind, Read};
use zerocopy::{FromZeros, IntoBytes};

/// Memory is allocated in steps of this many bytes as data arrives, never as much as a length field claims.
const STEP: usize = 64 << 10;

/// The highest CPU number accepted; no kernel has more.
const MAX_CPU: u32 = u16::MAX as u32;

/// Why a recording cannot be read, or not to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// The file does not start like a recording.
    #[error("not a recording; create one with `probe record`")]
    NotARecording,
    /// The file has another version of the format.
    #[error(
        "format version {found} is not supported (this program reads version {VERSION}); replay it with \
         the program that recorded it"
    )]
    Version {
        /// The version of the file.
        found: u32,
    },
    /// The file ends too early. Everything before its end was read.
    #[error("truncated at byte {at}; later events and the ledger are missing")]
    Cut {
        /// The end of the file, in bytes.
        at: u64,
    },
    /// The file has invalid content. Everything before it was read.
    #[error("malformed at byte {at}: {what}")]
    Malformed {
        /// The position of the fault, in bytes.
        at: u64,
        /// The fault.
        what: String,
    },
    /// The system call failed.
    #[error("cannot read at byte {at}: {source}")]
    Read {
        /// The position in the file, in bytes.
        at: u64,
        /// The error of the system call.
        source: io::Error,
    },
}

pub(super) fn malformed(at: u64, what: impl ToString) -> RecordingError {
    RecordingError::Malformed { at, what: what.to_string() }
}

/// The input file and its current section.
#[derive(Debug)]
pub(super) struct Input<R> {
    reader: R,
    /// The number of bytes read.
    pub(super) at: u64,
    /// The section's contents, aligned to 8 bytes.
    words: Vec<u64>,
    len: usize,
}

/// A section that was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Section {
    pub(super) tag: Tag,
    pub(super) cpu: u32,
    /// The position of its contents in the file, in bytes.
    pub(super) at: u64,
    /// Whether its contents are complete.
    pub(super) is_whole: bool,
}

impl<R: Read> Input<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, at: 0, words: Vec::new(), len: 0 }
    }

    /// Reads the next section, or as much of it as exists. `None` at the end of the file.
    pub(super) fn section(&mut self) -> Result<Option<Section>, RecordingError> {
        let start = self.at;
        let mut header = SectionHeader::new_zeroed();
        match self.fill(header.as_mut_bytes())? {
            0 => return Ok(None),
            len if len < size_of::<SectionHeader>() => return Err(self.cut()),
            _ => {}
        }
        let tag = header.tag().ok_or_else(|| malformed(start, "unknown type of section"))?;
        let (len, longest) = (header.len(), tag.longest());
        if len > longest {
            let what = format!(
                "a section of {len} bytes, but those of its type have at most {longest}; the file was damaged or \
                 is not of `probe record`"
            );
            return Err(malformed(start, what));
        }
        if header.cpu.get() > MAX_CPU {
            return Err(malformed(start, "the CPU number is out of range"));
        }
        let at = self.at;
        let is_whole = self.contents(header.len())?;
        Ok(Some(Section { tag, cpu: header.cpu.get(), at, is_whole }))
    }

    /// The contents of the current section, as far as they exist.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.words.as_bytes()[..self.len]
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.words.as_mut_bytes()[..self.len]
    }

    /// The contents of the current section, parsed as JSON.
    pub(super) fn json<T: DeserializeOwned>(&self, section: &Section) -> Result<T, RecordingError> {
        if !section.is_whole {
            return Err(self.cut());
        }
        serde_json::from_slice(self.bytes()).map_err(|error| malformed(section.at, error))
    }

    /// The error of a file that ends here.
    pub(super) fn cut(&self) -> RecordingError {
        RecordingError::Cut { at: self.at }
    }

    /// Reads contents and their padding. Returns whether they are complete.
    fn contents(&mut self, len: usize) -> Result<bool, RecordingError> {
        let padded = len.next_multiple_of(ALIGN);
        let mut words = std::mem::take(&mut self.words);
        words.clear();
        let mut read = 0;
        while read < padded {
            let end = padded.min(read + STEP);
            words.resize(end / ALIGN, 0);
            let some = self.fill(&mut words.as_mut_bytes()[read..end])?;
            read += some;
            if read < end {
                break;
            }
        }
        (self.words, self.len) = (words, read.min(len));
        Ok(read == padded)
    }

    /// Fills the buffer unless the file ends before. Returns the number of bytes read.
    pub(super) fn fill(&mut self, mut room: &mut [u8]) -> Result<usize, RecordingError> {
        let start = self.at;
        while !room.is_empty() {
            match self.reader.read(room) {
                Ok(0) => break,
                Ok(read) => {
                    self.at += read as u64;
                    room = room.get_mut(read..).unwrap_or_default();
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => return Err(RecordingError::Read { at: self.at, source }),
            }
        }
        Ok((self.at - start) as usize)
    }
}
