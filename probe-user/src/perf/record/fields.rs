//! A record's bytes, taken from the front, and never more than there are.

/// 64-bit words of a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Words<'r>(&'r [[u8; 8]]);

impl<'r> Words<'r> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each of them.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u64> + Clone + use<'r> {
        self.0.iter().copied().map(u64::from_ne_bytes)
    }

    /// As they are in the record.
    pub fn as_bytes(&self) -> &'r [u8] {
        self.0.as_flattened()
    }

    /// Those of a range, which has to be one of theirs.
    pub(super) fn part(&self, range: std::ops::Range<usize>) -> Self {
        Self(self.0.get(range).unwrap_or_default())
    }
}

/// What is left of a record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'r> {
    left: &'r [u8],
    /// What was asked for last, by the name of its field.
    field: &'static str,
}

/// What is not there, by the name of its field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Missing(pub(super) &'static str);

pub(super) type Taken<T> = Result<T, Missing>;

impl<'r> Fields<'r> {
    pub(super) fn new(bytes: &'r [u8]) -> Self {
        Self { left: bytes, field: "" }
    }

    /// What comes next is of this name.
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

    fn array<const N: usize>(&mut self) -> Taken<[u8; N]> {
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

    pub(super) fn tag(&mut self) -> Taken<[u8; 8]> {
        self.array()
    }

    pub(super) fn words(&mut self, count: u64) -> Taken<Words<'r>> {
        let len = count.checked_mul(8).ok_or(Missing(self.field))?;
        Ok(Words(self.bytes(len)?.as_chunks().0))
    }

    /// So many elements of `N` words.
    pub(super) fn tuples<const N: usize>(&mut self, count: u64) -> Taken<&'r [[[u8; 8]; N]]> {
        let words = self.words(count.checked_mul(N as u64).ok_or(Missing(self.field))?)?;
        Ok(words.0.as_chunks().0)
    }

    /// Text up to its NUL, which is in the rest; all of that, without one.
    pub(super) fn text(&mut self) -> &'r [u8] {
        let text = std::mem::take(&mut self.left);
        text.split(|byte| *byte == 0).next().unwrap_or_default()
    }
}
