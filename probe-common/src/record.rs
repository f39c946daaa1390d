//! Records: their kinds, their header, and the trait that their Rust types implement.

use crate::limits::{
    BUILTIN_KINDS, FIRST_USER_KIND, MAX_EMIT, MAX_PAYLOAD, RECORD_ALIGN, USER_KINDS,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Identifies the layout of a record's payload.
///
/// Kinds below [`FIRST_USER_KIND`] belong to the toolkit. A user's kinds are [`RecordKind::user`]`(0)`
/// and up.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
)]
#[repr(transparent)]
pub struct RecordKind(pub u32);

impl RecordKind {
    /// The user's `n`th kind, counted from 0.
    ///
    /// # Panics
    ///
    /// If `n` is not below [`USER_KINDS`]. In a `const`, where kinds are usually defined, this is a
    /// compile error.
    pub const fn user(n: u32) -> Self {
        assert!(n < USER_KINDS, "there are 96 user kinds: RecordKind::user(0) to user(95)");
        Self(FIRST_USER_KIND + n)
    }

    /// The toolkit's `n`th kind, for the crates of this project.
    ///
    /// # Panics
    ///
    /// If `n` is not below [`BUILTIN_KINDS`].
    pub const fn builtin(n: u32) -> Self {
        assert!(n < BUILTIN_KINDS, "the toolkit has 32 kinds");
        Self(n)
    }

    /// The position of this kind in a table of [`KINDS`](crate::limits::KINDS) entries, or `None` for a
    /// number that no record type can have.
    #[inline]
    pub const fn index(self) -> Option<u32> {
        if self.0 < BUILTIN_KINDS {
            Some(self.0)
        } else if self.0 >= FIRST_USER_KIND && self.0 - FIRST_USER_KIND < USER_KINDS {
            Some(BUILTIN_KINDS + (self.0 - FIRST_USER_KIND))
        } else {
            None
        }
    }

    /// The kind at `index` of a table of [`KINDS`](crate::limits::KINDS) entries: the inverse of
    /// [`index`](Self::index).
    pub const fn at(index: u32) -> Option<Self> {
        if index < BUILTIN_KINDS {
            Some(Self(index))
        } else if index < BUILTIN_KINDS + USER_KINDS {
            Some(Self(FIRST_USER_KIND + (index - BUILTIN_KINDS)))
        } else {
            None
        }
    }
}

impl core::fmt::Display for RecordKind {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// The header before every payload: 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct RecordHeader {
    /// The layout of the payload.
    pub kind: RecordKind,
    /// The length of the payload in bytes, without the padding that follows it.
    pub len: u32,
    /// When the program began with the record: `CLOCK_MONOTONIC`, in nanoseconds, read as the pipe's
    /// [`Clock`](crate::control::Clock) says.
    pub time: u64,
}

const _: () = assert!(size_of::<RecordHeader>() == 16 && align_of::<RecordHeader>() == 8);

/// A type whose values travel through the pipe.
///
/// The type is `#[repr(C)]` without implicit padding, which `zerocopy`'s derives prove. A payload may
/// be longer than the type. The bytes after the type are the record's *tail*, for example a string.
///
/// ```
/// use probe_common::{Record, RecordKind};
/// use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
///
/// #[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
/// #[repr(C)]
/// struct Forked {
///     parent: u32,
///     child: u32,
/// }
///
/// impl Record for Forked {
///     const KIND: RecordKind = RecordKind::user(0);
/// }
/// ```
///
/// A type with padding does not compile:
///
/// ```compile_fail
/// use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
///
/// #[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
/// #[repr(C)]
/// struct Padded {
///     a: u8,
///     b: u64,
/// }
/// ```
pub trait Record: FromBytes + IntoBytes + Immutable + KnownLayout + Sized + 'static {
    /// The kind of this type, unique among the types in one pipe.
    const KIND: RecordKind;
}

/// Asserts that a type fits the wire. The pipe does so at compile time, for every type that is emitted or handled.
///
/// # Panics
///
/// If the type is longer than [`MAX_PAYLOAD`], needs more than [`RECORD_ALIGN`] bytes of alignment, or has a kind
/// [without an index](RecordKind::index). In a `const`, this is a compile error.
pub const fn assert_fits<T: Record>() {
    assert!(size_of::<T>() <= MAX_PAYLOAD, "the record exceeds limits::MAX_PAYLOAD");
    assert!(align_of::<T>() <= RECORD_ALIGN, "records are 8-aligned in the ring");
    assert!(T::KIND.index().is_some(), "use RecordKind::user(n) for the kind");
}

/// Asserts that a type fits the wire, and that a program has room to build it. Every function that emits the type does
/// so at compile time.
///
/// ```
/// # use probe_common::{Record, RecordKind, limits::MAX_EMIT, record::assert_can_be_emitted};
/// # use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
/// #[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
/// #[repr(C)]
/// struct Longest([u8; MAX_EMIT]);
///
/// impl Record for Longest {
///     const KIND: RecordKind = RecordKind::user(0);
/// }
///
/// const _: () = assert_can_be_emitted::<Longest>();
/// ```
///
/// One more byte does not compile:
///
/// ```compile_fail,E0080
/// # use probe_common::{Record, RecordKind, limits::MAX_EMIT, record::assert_can_be_emitted};
/// # use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};
/// #[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
/// #[repr(C)]
/// struct TooLong([u8; MAX_EMIT + 1]);
///
/// impl Record for TooLong {
///     const KIND: RecordKind = RecordKind::user(0);
/// }
///
/// const _: () = assert_can_be_emitted::<TooLong>();
/// ```
///
/// # Panics
///
/// If the type is longer than [`MAX_EMIT`], or does not [fit the wire](assert_fits). In a `const`, this is a compile
/// error.
pub const fn assert_can_be_emitted<T: Record>() {
    assert_fits::<T>();
    assert!(size_of::<T>() <= MAX_EMIT, "the record exceeds limits::MAX_EMIT");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::KINDS;

    #[test]
    fn kinds_and_indices_are_each_others_inverse() {
        for index in 0..KINDS {
            assert_eq!(RecordKind::at(index).and_then(RecordKind::index), Some(index));
        }
        assert_eq!(RecordKind::at(KINDS), None);
        for kind in [BUILTIN_KINDS, FIRST_USER_KIND - 1, FIRST_USER_KIND + USER_KINDS, u32::MAX] {
            assert_eq!(RecordKind(kind).index(), None, "{kind:#x}");
        }
    }
}
