//! How far a program has got on its way to a value.

use probe_common::fetch::{FetchField, STEPS, flag, kind};

/// Where a value is: in a register, or in memory whose address is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reach {
    field: FetchField,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// In what it started with, from this bit on.
    Register { bit: u32 },
    /// In the kernel's memory, or the process's.
    Memory { is_user: bool },
}

/// Why there is no way on, as the end of a sentence.
pub(crate) type Refusal = String;

impl Reach {
    /// A value that the program has to begin with ([`base`](probe_common::fetch::base)).
    pub(crate) fn register(base: u8) -> Self {
        let field = FetchField { base, ..FetchField::default() };
        Self { field, place: Place::Register { bit: 0 } }
    }

    /// Memory that the program has the address of.
    pub(crate) fn memory(base: u8, offset: i32) -> Self {
        let mut field = FetchField { base, ..FetchField::default() };
        field.offsets[0] = offset;
        Self { field, place: Place::Memory { is_user: false } }
    }

    /// Whether the value is in the memory of the process.
    pub(crate) fn is_user(&self) -> bool {
        self.place == Place::Memory { is_user: true }
    }

    /// Whether it is in a register.
    pub(crate) fn is_register(&self) -> bool {
        matches!(self.place, Place::Register { .. })
    }

    /// Goes where the value, an address, points to: the kernel's memory, or the process's.
    pub(crate) fn dereference(&mut self, to_user: bool) -> Result<(), Refusal> {
        match self.place {
            Place::Register { bit: 0 } => {}
            Place::Register { .. } => return Err("is no whole register".to_owned()),
            Place::Memory { .. } => {
                if usize::from(self.field.steps) == STEPS {
                    return Err(format!("is behind more than {STEPS} pointers"));
                }
                self.mark();
                self.field.steps += 1;
            }
        }
        self.place = Place::Memory { is_user: to_user };
        Ok(())
    }

    /// Goes to a part of the value. What is less than a byte stays for [`bit_field`](Self::bit_field).
    pub(crate) fn skip(&mut self, bits: u64) -> Result<u32, Refusal> {
        let refused = || "is too far from the start".to_owned();
        match &mut self.place {
            Place::Register { bit } => {
                let sum = u64::from(*bit).checked_add(bits).filter(|&sum| sum < 64);
                *bit = sum.ok_or_else(refused)? as u32;
                Ok(0)
            }
            Place::Memory { .. } => {
                let offset = &mut self.field.offsets[usize::from(self.field.steps)];
                let bytes = i32::try_from(bits / 8).ok();
                *offset = bytes.and_then(|bytes| offset.checked_add(bytes)).ok_or_else(refused)?;
                Ok((bits % 8) as u32)
            }
        }
    }

    /// Takes an integer of 8, 16, 32 or 64 bits.
    pub(crate) fn integer(mut self, bits: u32, is_signed: bool) -> Result<FetchField, Refusal> {
        match self.place {
            Place::Register { bit } => {
                self.cut(64, bit, bits)?;
                self.field.kind = kind::VALUE;
            }
            Place::Memory { .. } => {
                if !matches!(bits, 8 | 16 | 32 | 64) {
                    return Err(format!("has {bits} bits"));
                }
                self.read(kind::INTEGER, (bits / 8) as u16);
                // An integer that was read has zeros before it.
                (self.field.left, self.field.right) = ((64 - bits) as u8, (64 - bits) as u8);
            }
        }
        Ok(self.signed(is_signed))
    }

    /// Takes a bit field out of an integer of `size` bytes, or as many as are needed. `bit`: where
    /// it begins, behind where [`skip`](Self::skip) has led.
    pub(crate) fn bit_field(
        mut self,
        bit: u32,
        bits: u32,
        size: u32,
        is_signed: bool,
    ) -> Result<FetchField, Refusal> {
        if let Place::Register { bit } = self.place {
            self.cut(64, bit, bits)?;
            self.field.kind = kind::VALUE;
            return Ok(self.signed(is_signed));
        }
        let offset = &mut self.field.offsets[usize::from(self.field.steps)];
        // As the compiler does: in an integer of its type, which is at a multiple of its size.
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
        self.read(kind::INTEGER, bytes as u16);
        self.cut(bytes * 8, start, bits)?;
        Ok(self.signed(is_signed))
    }

    /// Takes a zero-terminated string.
    pub(crate) fn string(mut self, size: u16) -> FetchField {
        self.read(kind::STRING, size);
        self.field
    }

    /// The same, of the process's memory or the kernel's, whatever is known of it.
    pub(crate) fn string_of(mut self, size: u16, is_user: bool) -> FetchField {
        self.place = Place::Memory { is_user };
        self.string(size)
    }

    /// Takes a string whose place a word here tells, counted from the start or from behind the word.
    pub(crate) fn located_string(mut self, size: u16, is_relative: bool) -> FetchField {
        self.read(if is_relative { kind::REL_LOC } else { kind::DATA_LOC }, size);
        self.field
    }

    /// Takes bytes.
    pub(crate) fn bytes(mut self, size: u16) -> FetchField {
        self.read(kind::BYTES, size);
        self.field
    }

    fn read(&mut self, kind: u8, size: u16) {
        self.mark();
        (self.field.kind, self.field.size) = (kind, size);
    }

    /// Notes whose memory the next read is of.
    fn mark(&mut self) {
        if self.is_user() {
            self.field.user |= 1 << self.field.steps;
        }
    }

    /// Cuts bits out of an integer of `of` bits, which has zeros before it.
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

/// How many bits an integer has that is read so.
pub(super) fn width(field: &FetchField) -> u32 {
    64 - u32::from(field.right)
}
