//! Specialized programs: a program that is loaded for one probe has no need of a [table](crate::fetch::FetchTable).
//!
//! User space replaces three functions of such a program by instructions that do what the table says, and removes those
//! that are not called any more:
//!
//! - [`SIEVE`] takes the context and the probe's number. It returns a [verdict](self#constants) before anything is reserved.
//! - [`READ_FIELDS`] takes the context, the address of the reserved [`ProbeHit`], its depth, the probe's number, and what the sieve
//!   has returned. It reads the fields that are read at the hook, and returns the verdict.
//! - [`SETTLE`] takes the probe's number, the depth, and the verdict. It returns whether to [send](SEND) a hit with faults, or
//!   an undecided one.
//!
//! [`FETCH_FIELD`] reads a field as the table says: it takes the probe's number, the depth, the field's index, and 0.
//! [`JUDGE`] takes the probe's number, the depth, and a [moment](crate::fetch::moment), and returns what the predicate says.

use crate::counter::Counted;
use crate::fetch::{DATA, FIELDS, LONGEST, SHORT};
use crate::trace::ProbeHit;

/// A function that is replaced. Symbols of replaced functions contain their names.
pub const SIEVE: &str = "sieve";
/// A function that is replaced.
pub const READ_FIELDS: &str = "read_fields";
/// A function that is replaced.
pub const SETTLE: &str = "settle";
/// A function that is replaced where [`SETTLE`] is: no hit waits.
pub const GIVE_UP: &str = "give_up";
/// A function that stays.
pub const FETCH_FIELD: &str = "fetch_field";
/// A function that stays.
pub const JUDGE: &str = "judge";

/// The verdict that the predicate does not hold.
pub const REJECTED: u32 = 0;
/// The verdict that it holds.
pub const ACCEPTED: u32 = 1;
/// The verdict that it depends on what is not known yet.
pub const UNDECIDED: u32 = 2;
/// [`READ_FIELDS`] alone returns this: the predicate holds, and nothing waits, whatever could not be read.
pub const FINAL: u32 = 3;

/// The depth that [`GIVE_UP`] returns if there is nothing to send.
pub const NOTHING: u32 = u32::MAX;

/// The hit is to be sent.
pub const SEND: u32 = 1;

/// The number of registers in a frame. It is a power of two, so that a mask bounds an index.
pub const REGISTERS: usize = 32;

/// The last offset in a hit's tail at which strings and arrays of maximum length may begin.
pub const LAST_DATA: usize = 8 * FIELDS + size_of::<Counted>() + DATA;

/// The longest tail that a hit has. A string of maximum length ends with a zero that is not sent.
pub const LONGEST_TAIL: usize = LAST_DATA + LONGEST + 8;

/// The last offset at which strings and arrays of at most [`SHORT`] bytes may begin.
pub const LAST_SHORT: usize = LONGEST_TAIL - SHORT - 8;

/// The offset of the tail from the hit.
pub const TAIL: usize = size_of::<ProbeHit>();
/// The offset of the registers from the hit: arguments, return value and context, indexed by [`base`](crate::fetch::base).
pub const FRAME_REGISTERS: usize = TAIL + LONGEST_TAIL;
/// The offset of the number of bytes of the tail that are used.
pub const FRAME_LEN: usize = FRAME_REGISTERS + 8 * REGISTERS;
/// The offset of eight bytes to read into.
pub const FRAME_ADDRESS: usize = FRAME_LEN + 8;
