//! A ring in ordinary memory, for tests that play the kernel's part.

use super::RingMemory;
use super::cursor::Geometry;
use super::page::Scratch;

/// A ring whose writer is a test.
#[derive(Debug)]
pub struct MemoryRing {
    geometry: Geometry,
    /// 8-aligned, as pages are.
    words: Vec<u64>,
    /// The position up to which the ring is written.
    pub head: u64,
    /// The position up to which the ring is read.
    pub tail: u64,
    /// The largest number of bytes returned at a time.
    pub longest_step: u64,
}

impl MemoryRing {
    /// A ring of `size` bytes, a power of two, whose positions begin at `start`.
    pub fn new(size: usize, start: u64) -> Self {
        let geometry = Geometry::new(size).expect("a power of two");
        Self { geometry, words: vec![0; size / 8], head: start, tail: start, longest_step: 0 }
    }

    /// Resets the ring to what [`new`](Self::new) returns: empty, and zero everywhere.
    pub fn restart(&mut self, start: u64) {
        self.words.fill(0);
        (self.head, self.tail, self.longest_step) = (start, start, 0);
    }

    /// The data area.
    pub fn data(&self) -> &[u8] {
        zerocopy::IntoBytes::as_bytes(&*self.words)
    }

    /// The data area, for writing.
    pub fn data_mut(&mut self) -> &mut [u8] {
        zerocopy::IntoBytes::as_mut_bytes(&mut *self.words)
    }

    /// Writes at the head, as the kernel does, and advances the head. Returns `false` and writes nothing if there is no
    /// room.
    pub fn write(&mut self, bytes: &[u8]) -> bool {
        let used = self.head.wrapping_sub(self.tail) as usize;
        if bytes.len() > self.geometry.size() - used {
            return false;
        }
        self.put(self.head, bytes);
        self.head = self.head.wrapping_add(bytes.len() as u64);
        true
    }

    /// Writes before the head and moves the head back, as the kernel does in a ring that it overwrites.
    #[cfg(any(test, feature = "testing"))]
    pub fn write_before(&mut self, bytes: &[u8]) {
        self.head = self.head.wrapping_sub(bytes.len() as u64);
        self.put(self.head, bytes);
    }

    fn put(&mut self, at: u64, bytes: &[u8]) {
        let (first, second) = self.geometry.span(at, bytes.len());
        let (start, end) = bytes.split_at(first.len());
        self.data_mut()[first].copy_from_slice(start);
        self.data_mut()[second].copy_from_slice(end);
    }
}

impl RingMemory for MemoryRing {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn head(&self) -> u64 {
        self.head
    }

    fn publish_tail(&mut self, tail: u64) {
        let (given, there) = (tail.wrapping_sub(self.tail), self.head.wrapping_sub(self.tail));
        assert!(given <= there, "{given} bytes are given back of {there}");
        self.longest_step = self.longest_step.max(given);
        self.tail = tail;
    }

    fn bytes<'r>(&'r self, at: u64, len: usize, scratch: &'r mut Scratch) -> &'r [u8] {
        let (first, second) = self.geometry.span(at, len);
        if second.is_empty() {
            &self.data()[first]
        } else {
            scratch.join(&self.data()[first], &self.data()[second])
        }
    }

    fn piece(&self, at: u64, available: usize) -> &[u8] {
        &self.data()[self.geometry.span(at, available).0]
    }
}
