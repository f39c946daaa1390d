//! Numbers from arbitrary bytes.

/// Bytes to take numbers from. When they are used up, every number is 0.
pub struct Input<'d>(pub &'d [u8]);

impl Input<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut taken = [0; N];
        let (first, rest) = self.0.split_at(N.min(self.0.len()));
        taken[..first.len()].copy_from_slice(first);
        self.0 = rest;
        taken
    }

    /// The next byte.
    pub fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.take())
    }

    /// The next two bytes.
    pub fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.take())
    }

    /// The next eight bytes.
    pub fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
}
