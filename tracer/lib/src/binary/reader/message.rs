//! What the tracer and the reader say to each other. The tracer does not trust what it receives.

use crate::binary::contents::{Layout, Symbol};
use crate::binary::root::RootId;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The largest packet, in bytes. A longer answer is shortened.
pub(super) const LARGEST: usize = 64 << 10;

/// The number of addresses in a request.
pub(super) const ADDRESSES: usize = 128;

/// The number of files that come with a packet.
pub(super) const FILES: usize = 8;

/// The room for strings in a request, in bytes.
pub(super) const STRINGS: usize = LARGEST - 256;

/// The longest name or path, in bytes. A longer one is shortened.
pub(super) const TEXT: usize = 4096;

/// The number of functions at an address. More of them are left out.
pub(super) const FUNCTIONS: usize = 64;

/// What a file has names in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Kind {
    /// A program or library. Addresses are offsets in the file.
    Program,
    /// A list of generated code, as `perf` reads it.
    PerfMap,
}

/// From the tracer to the reader.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// The functions at addresses in the file that comes with this packet. An answer for each of them is expected. The same
    /// files are beside it whenever the root directory is the same.
    Names { kind: Kind, root: Option<RootId>, addresses: Vec<u64> },
    /// What a probe needs to know of the program that comes with this packet. [`Answer::Symbols`] are expected, and then one
    /// [`Answer::Layout`].
    Contents,
    /// Whether an instruction ends `size` bytes after `start` in the program that comes with this packet.
    Boundary { start: u64, size: u64 },
    /// Which of these symbols of the program that comes with this packet have this name in the source.
    Demangled { name: String, symbols: Vec<String> },
    /// The files that were wanted come with this packet: some that may have the debug information, and the DWARF package.
    Files { has_package: bool },
}

/// From the reader to the tracer.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Answer {
    /// The functions at the next addresses, the innermost of each first.
    Names(Vec<Vec<Function>>),
    /// Some functions of a program.
    Symbols(Vec<Symbol>),
    /// What else is known of the program, after all its functions, or why it is none.
    Layout(Result<Layout, String>),
    /// Whether an instruction ends there, or why that is not known.
    Boundary(Result<bool, String>),
    /// The numbers of the symbols that have the name.
    Demangled(Vec<usize>),
    /// Names need more files. It is said before the first answer, and at most [`WANTS`] times.
    Wants(Wants),
}

/// Answers whose parts are already serialized.
#[derive(Debug, Serialize)]
pub(super) enum Packed {
    Names(Vec<Box<RawValue>>),
    Symbols(Vec<Box<RawValue>>),
}

/// How often a reader may want files for one question: debug information, and what that shares with others.
pub(super) const WANTS: usize = 2;

/// Debug information that is in a file of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Wants {
    pub(crate) build_id: Vec<u8>,
    /// The name in the debug link.
    pub(crate) link: Option<Vec<u8>>,
    /// The name of a file that several programs share, as one of them has it.
    pub(crate) shared: Option<Vec<u8>>,
    /// The DWARF package of the program.
    pub(crate) package: bool,
}

/// A function, as the reader describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Function {
    pub(crate) name: String,
    /// `None` for an inlined function.
    pub(crate) offset: Option<u64>,
    pub(crate) source: Option<(String, Option<u32>)>,
}

impl Function {
    /// The approximate size of its names, in bytes.
    pub(crate) fn size(&self) -> usize {
        size_of::<Self>() + self.name.len() + self.source.as_ref().map_or(0, |(file, _)| file.len())
    }
}

/// What a string takes in a packet at most, in bytes.
pub(super) fn len_in_packet(text: &str) -> usize {
    let escaped = |byte: u8| match byte {
        ..b' ' => r"\u0000".len(),
        b'"' | b'\\' => 2,
        _ => 1,
    };
    r#"",""#.len() + text.bytes().map(escaped).sum::<usize>()
}

/// A text of limited length.
pub(super) fn shortened(mut text: String) -> String {
    if text.len() > TEXT {
        text.truncate(text.floor_char_boundary(TEXT - '…'.len_utf8()));
        text.push('…');
    }
    text
}

/// From the keeper of readers to the tracer, with a channel to a new reader.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Started {
    pub(super) pid: u32,
    /// How the previous one ended.
    pub(super) previous: Option<Ended>,
}

/// How a reader ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Ended {
    Signal(i32),
    Code(i32),
}
