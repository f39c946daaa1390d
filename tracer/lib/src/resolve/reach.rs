//! The reads on the way to a value.

use probe_tracer_common::fetch::{FetchField, STEPS, flag, kind};

/// The location of a value: in a register, or in memory at a known address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reach {
    field: FetchField,
    storage: Storage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Storage {
    /// In the base register, from this bit on.
    Register { bit: u32 },
    /// In kernel memory or user memory.
    Memory { is_user: bool },
}

/// Why a value cannot be reached. The text continues a sentence that starts with the value's path.
pub(crate) type Refusal = String;

impl Reach {
    /// A value that the program starts with ([`base`](probe_tracer_common::fetch::base)).
    pub(crate) fn register(base: u8) -> Self {
        let field = FetchField { base, ..FetchField::default() };
        Self { field, storage: Storage::Register { bit: 0 } }
    }

    /// Memory at an offset from an address that the program starts with.
    pub(crate) fn memory(base: u8, offset: i32) -> Self {
        let mut field = FetchField { base, ..FetchField::default() };
        field.offsets[0] = offset;
        Self { field, storage: Storage::Memory { is_user: false } }
    }

    /// Whether the value is in user memory.
    pub(crate) fn is_user(&self) -> bool {
        self.storage == Storage::Memory { is_user: true }
    }

    /// Whether the value is in a register.
    pub(crate) fn is_register(&self) -> bool {
        matches!(self.storage, Storage::Register { .. })
    }

    /// Follows the value, an address, to kernel memory or to user memory.
    pub(crate) fn dereference(&mut self, to_user: bool) -> Result<(), Refusal> {
        match self.storage {
            Storage::Register { bit: 0 } => {}
            Storage::Register { .. } => return Err("is not a whole register".to_owned()),
            Storage::Memory { .. } => {
                if usize::from(self.field.steps) == STEPS {
                    return Err(format!("is behind more than {STEPS} pointers"));
                }
                self.mark();
                self.field.steps += 1;
            }
        }
        self.storage = Storage::Memory { is_user: to_user };
        Ok(())
    }

    /// Moves to a part of the value. Returns the bits beyond a whole byte, which are for
    /// [`bit_field`](Self::bit_field).
    pub(crate) fn skip(&mut self, bits: u64) -> Result<u32, Refusal> {
        let refused = || "is too far from the start".to_owned();
        match &mut self.storage {
            Storage::Register { bit } => {
                let sum = u64::from(*bit).checked_add(bits).filter(|&sum| sum < 64);
                *bit = sum.ok_or_else(refused)? as u32;
                Ok(0)
            }
            Storage::Memory { .. } => {
                let offset = &mut self.field.offsets[usize::from(self.field.steps)];
                let bytes = i32::try_from(bits / 8).ok();
                *offset = bytes.and_then(|bytes| offset.checked_add(bytes)).ok_or_else(refused)?;
                Ok((bits % 8) as u32)
            }
        }
    }

    /// Reads an integer of 8, 16, 32 or 64 bits.
    pub(crate) fn integer(mut self, bits: u32, is_signed: bool) -> Result<FetchField, Refusal> {
        match self.storage {
            Storage::Register { bit } => {
                self.cut(64, bit, bits)?;
                self.field.kind = kind::VALUE;
            }
            Storage::Memory { .. } => {
                if !matches!(bits, 8 | 16 | 32 | 64) {
                    return Err(format!("has {bits} bits"));
                }
                self = self.read(kind::INTEGER, (bits / 8) as u16);
                // The program zero-extends an integer that it reads.
                (self.field.left, self.field.right) = ((64 - bits) as u8, (64 - bits) as u8);
            }
        }
        Ok(self.signed(is_signed))
    }

    /// Reads a bit field from an integer of `size` bytes, or of as many as needed. `bit` is its position relative to
    /// where [`skip`](Self::skip) has led.
    pub(crate) fn bit_field(
        mut self,
        bit: u32,
        bits: u32,
        size: u32,
        is_signed: bool,
    ) -> Result<FetchField, Refusal> {
        if let Storage::Register { bit } = self.storage {
            self.cut(64, bit, bits)?;
            self.field.kind = kind::VALUE;
            return Ok(self.signed(is_signed));
        }
        let offset = &mut self.field.offsets[usize::from(self.field.steps)];
        // As compilers do, read an integer of the field's type at a multiple of its size.
        let before = if matches!(size, 2 | 4 | 8) { offset.rem_euclid(size as i32) } else { 0 };
        let (mut start, mut bytes) = (before as u32 * 8 + bit, size);
        if !matches!(size, 1 | 2 | 4 | 8) || start + bits > size * 8 {
            (start, bytes) = (bit, (bit + bits).div_ceil(8).next_power_of_two());
        } else {
            *offset -= before;
        }
        if bytes > 8 {
            return Err(format!("is a bit field in {bytes} bytes"));
        }
        self = self.read(kind::INTEGER, bytes as u16);
        self.cut(bytes * 8, start, bits)?;
        Ok(self.signed(is_signed))
    }

    /// Reads a zero-terminated string.
    pub(crate) fn string(self, size: u16) -> FetchField {
        self.read(kind::STRING, size).field
    }

    /// Reads a zero-terminated string from user or kernel memory, regardless of where the value is known to be.
    pub(crate) fn string_of(mut self, size: u16, is_user: bool) -> FetchField {
        self.storage = Storage::Memory { is_user };
        self.string(size)
    }

    /// Reads a string whose location is in a word here, relative to the start of the data or to the end of the word.
    pub(crate) fn located_string(self, size: u16, is_relative: bool) -> FetchField {
        self.read(if is_relative { kind::REL_LOC } else { kind::DATA_LOC }, size).field
    }

    /// Reads bytes that are located in the same way.
    pub(crate) fn located_bytes(self, size: u16, is_relative: bool) -> FetchField {
        let kind = if is_relative { kind::REL_LOC_BYTES } else { kind::DATA_LOC_BYTES };
        self.read(kind, size).field
    }

    /// Reads bytes.
    pub(crate) fn bytes(self, size: u16) -> FetchField {
        self.read(kind::BYTES, size).field
    }

    fn read(mut self, kind: u8, size: u16) -> Self {
        self.mark();
        (self.field.kind, self.field.size) = (kind, size);
        self
    }

    /// Marks whether the next read is of user memory.
    fn mark(&mut self) {
        if self.is_user() {
            self.field.user |= 1 << self.field.steps;
        }
    }

    /// Extracts bits from a zero-extended integer of `of` bits.
    fn cut(&mut self, of: u32, bit: u32, bits: u32) -> Result<(), Refusal> {
        let end = bit.checked_add(bits).filter(|&end| bits > 0 && end <= of);
        let end = end.ok_or_else(|| "goes past its integer's end".to_owned())?;
        let left = if cfg!(target_endian = "little") { 64 - end } else { 64 - of + bit };
        (self.field.left, self.field.right) = (left as u8, (64 - bits) as u8);
        Ok(())
    }

    fn signed(mut self, is_signed: bool) -> FetchField {
        if is_signed {
            self.field.flags |= flag::SIGNED;
        }
        self.field
    }
}

/// The width in bits of the integer that a field reads.
pub(super) fn width(field: &FetchField) -> u32 {
    64 - u32::from(field.right)
}
