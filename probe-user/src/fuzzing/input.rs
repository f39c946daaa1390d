//! Numbers out of arbitrary bytes.

/// Bytes of which numbers are taken; 0 when there are no more.
pub(super) struct Input<'d>(pub(super) &'d [u8]);

impl Input<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut taken = [0; N];
        let (first, rest) = self.0.split_at(N.min(self.0.len()));
        taken[..first.len()].copy_from_slice(first);
        self.0 = rest;
        taken
    }

    pub(super) fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.take())
    }

    pub(super) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.take())
    }

    pub(super) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
}
