//! Strings in one allocation.

/// Concatenated strings.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Texts(String);

/// Where a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Text {
    begin: u32,
    len: u32,
}

impl Texts {
    /// Adds a text; `None` if there are more than 4 GiB.
    pub(super) fn add(&mut self, text: &[u8]) -> Option<Text> {
        let begin = u32::try_from(self.0.len()).ok()?;
        self.0.push_str(&String::from_utf8_lossy(text));
        Some(Text { begin, len: u32::try_from(self.0.len() - begin as usize).ok()? })
    }

    pub(super) fn get(&self, text: Text) -> &str {
        let begin = text.begin as usize;
        self.0.get(begin..begin + text.len as usize).unwrap_or_default()
    }

    /// The memory that they take, in bytes.
    pub(super) fn size(&self) -> usize {
        self.0.capacity()
    }

    /// Releases unused capacity.
    pub(super) fn shrink(&mut self) {
        self.0.shrink_to_fit();
    }
}
