//! Reading fields from the front of a record's bytes, without reading past the end.

/// 64-bit words of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Words<'r>(&'r [[u8; 8]]);

impl<'r> Words<'r> {
    /// The number of words.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no words.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the words.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u64> + Clone + use<'r> {
        self.0.iter().copied().map(u64::from_ne_bytes)
    }

    /// The bytes, as in the record.
    pub fn as_bytes(&self) -> &'r [u8] {
        self.0.as_flattened()
    }

    /// The words of a range, which must be within bounds.
    pub(super) fn part(&self, range: std::ops::Range<usize>) -> Self {
        Self(self.0.get(range).unwrap_or_default())
    }
}

/// A process and a thread of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Thread {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
}

/// The rest of a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'r> {
    left: &'r [u8],
    /// The name of the field that is being read.
    field: &'static str,
}

/// The name of a field that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Missing(pub(super) &'static str);

pub(super) type Taken<T> = Result<T, Missing>;

/// Reads something that is present only in some layouts.
pub(super) fn when<T>(is_present: bool, take: impl FnOnce() -> Taken<T>) -> Taken<Option<T>> {
    if is_present { take().map(Some) } else { Ok(None) }
}

impl<'r> Fields<'r> {
    pub(super) fn new(bytes: &'r [u8]) -> Self {
        Self { left: bytes, field: "" }
    }

    /// Sets the name of the next field.
    pub(super) fn named(&mut self, field: &'static str) -> &mut Self {
        self.field = field;
        self
    }

    pub(super) fn bytes(&mut self, len: u64) -> Taken<&'r [u8]> {
        let parts = usize::try_from(len).ok().and_then(|len| self.left.split_at_checked(len));
        let (bytes, left) = parts.ok_or(Missing(self.field))?;
        self.left = left;
        Ok(bytes)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Taken<[u8; N]> {
        let (array, left) = self.left.split_first_chunk().ok_or(Missing(self.field))?;
        self.left = left;
        Ok(*array)
    }

    pub(super) fn u64(&mut self) -> Taken<u64> {
        self.array().map(u64::from_ne_bytes)
    }

    pub(super) fn u32(&mut self) -> Taken<u32> {
        self.array().map(u32::from_ne_bytes)
    }

    pub(super) fn u16(&mut self) -> Taken<u16> {
        self.array().map(u16::from_ne_bytes)
    }

    /// Reads a word that is present only in some layouts.
    pub(super) fn word_if(&mut self, is_present: bool, field: &'static str) -> Taken<Option<u64>> {
        when(is_present, || self.named(field).u64())
    }

    pub(super) fn thread(&mut self, field: &'static str) -> Taken<Thread> {
        self.named(field);
        Ok(Thread { pid: self.u32()?, tid: self.u32()? })
    }

    /// Reads a CPU and the reserved bytes after it.
    pub(super) fn cpu(&mut self, field: &'static str) -> Taken<u32> {
        let cpu = self.named(field).u32()?;
        self.u32().map(|_| cpu)
    }

    pub(super) fn words(&mut self, count: u64) -> Taken<Words<'r>> {
        let len = count.checked_mul(8).ok_or(Missing(self.field))?;
        Ok(Words(self.bytes(len)?.as_chunks().0))
    }

    /// Reads `count` elements of `N` words.
    pub(super) fn tuples<const N: usize>(&mut self, count: u64) -> Taken<&'r [[[u8; 8]; N]]> {
        let words = self.words(count.checked_mul(N as u64).ok_or(Missing(self.field))?)?;
        Ok(words.0.as_chunks().0)
    }

    /// The text up to the first NUL, or the whole rest if there is none.
    pub(super) fn text(&mut self) -> &'r [u8] {
        let text = std::mem::take(&mut self.left);
        text.split(|byte| *byte == 0).next().unwrap_or_default()
    }
}
