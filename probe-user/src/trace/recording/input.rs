//! The bytes of a recording, section by section. Nothing in them is believed.

use super::error::RecordingError;
use super::format::{ALIGN, SectionHeader, Tag};
use serde::de::DeserializeOwned;
use std::io::{ErrorKind, Read};
use zerocopy::{FromZeros, IntoBytes};

/// Memory is taken as bytes come, so many at a time: not as many as are claimed.
const STEP: usize = 64 << 10;

/// No kernel numbers CPUs as high.
const MAX_CPU: u32 = u16::MAX as u32;

/// A file that is read, and the section at hand.
#[derive(Debug)]
pub(super) struct Input<R> {
    reader: R,
    /// Bytes that were read.
    at: u64,
    /// The section's contents, 8-aligned.
    words: Vec<u64>,
    len: usize,
}

/// The section that was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Section {
    pub(super) tag: Tag,
    pub(super) cpu: u32,
    /// Where its contents begin in the file, in bytes.
    pub(super) at: u64,
    /// Whether all of it is there.
    pub(super) is_whole: bool,
}

impl<R: Read> Input<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, at: 0, words: Vec::new(), len: 0 }
    }

    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// Reads the next section, or as much of it as there is. `None` at the end.
    pub(super) fn section(
        &mut self,
        longest: fn(Tag) -> usize,
    ) -> Result<Option<Section>, RecordingError> {
        let start = self.at;
        let mut header = SectionHeader::new_zeroed();
        match self.fill(header.as_mut_bytes())? {
            0 => return Ok(None),
            len if len < size_of::<SectionHeader>() => return Err(self.cut()),
            _ => {}
        }
        let malformed = |what: &str| RecordingError::Malformed { at: start, what: what.to_owned() };
        let tag = header.tag().ok_or_else(|| malformed("there is no section of this sort"))?;
        if header.len() > longest(tag) {
            return Err(malformed("a section is longer than any of its sort"));
        }
        if header.cpu() > MAX_CPU {
            return Err(malformed("there is no such CPU"));
        }
        let at = self.at;
        let is_whole = self.contents(header.len())?;
        Ok(Some(Section { tag, cpu: header.cpu(), at, is_whole }))
    }

    /// The contents of the section at hand, as far as they are there.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.words.as_bytes()[..self.len]
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.words.as_mut_bytes()[..self.len]
    }

    /// The same, as JSON.
    pub(super) fn json<T: DeserializeOwned>(&self, section: &Section) -> Result<T, RecordingError> {
        if !section.is_whole {
            return Err(self.cut());
        }
        serde_json::from_slice(self.bytes())
            .map_err(|error| RecordingError::Malformed { at: section.at, what: error.to_string() })
    }

    /// It ends here.
    pub(super) fn cut(&self) -> RecordingError {
        RecordingError::Cut { at: self.at }
    }

    /// Reads contents and their padding. Whether all is there.
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

    /// Reads as much as there is room for, unless the file ends. How much that is.
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
