//! A reader: parses files, and answers with names. It trusts nothing in them, and may end at any time.

use super::channel::Channel;
use super::confine;
use super::message::{
    ADDRESSES, Answer, Function, Kind, LARGEST, Packed, Request, WANTS, Wants, shortened,
};
use super::perf_map::PerfMap;
use super::program::{Files, Program, files};
use crate::binary::FileVersion;
use crate::binary::contents::{Contents, is_boundary};
use crate::binary::demangle::symbols_of;
use crate::binary::root::RootId;
use serde_json::value::{RawValue, to_raw_value};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::{io, mem};

/// The memory for files that are kept, in bytes, as far as it can be estimated.
const KEPT: usize = 512 << 20;

/// The room for functions in a packet, in bytes.
const ROOM: usize = LARGEST - 64;

/// The number of files that are kept.
const FILES: usize = 512;

/// Answers until the tracer closes its end.
pub(super) fn run(channel: &Channel) -> io::Result<()> {
    confine::reader()?;
    let mut kept = Kept::default();
    loop {
        let (request, mut with) = channel.receive()?;
        let Some(file) = with.pop().map(File::from) else {
            return Err(io::ErrorKind::InvalidData.into());
        };
        let mut wants = 0;
        let mut want = |one: Wants| {
            wants += 1;
            let got = if wants <= WANTS {
                wanted(channel, one)
            } else {
                Err(io::ErrorKind::Other.into())
            };
            got.unwrap_or_else(|_| files(Vec::new(), false))
        };
        match request {
            Request::Names { kind, root, addresses } => {
                let parsed = kept.get(kind, root, file, &mut want);
                let mut names = Packets::of(channel, Packed::Names);
                for address in addresses.into_iter().take(ADDRESSES) {
                    names.add(fitting(parsed.functions(address))?)?;
                }
                names.send()?;
            }
            Request::Contents => {
                let read = Contents::read(&file, &mut |wants| want(wants).candidates);
                send_contents(channel, read)?;
            }
            Request::Boundary { start, size } => {
                let answer = Answer::Boundary(is_boundary(&file, start, size));
                channel.send(&answer, &[])?;
            }
            Request::Demangled { name, symbols } => {
                let found = symbols_of(&name, symbols.iter().map(String::as_str));
                channel.send(&Answer::Demangled(found), &[])?;
            }
            Request::Files { .. } => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Packs items into packets, and sends them.
struct Packets<'c> {
    channel: &'c Channel,
    of: fn(Vec<Box<RawValue>>) -> Packed,
    next: Vec<Box<RawValue>>,
    /// The size of the next packet, in bytes.
    size: usize,
}

impl<'c> Packets<'c> {
    fn of(channel: &'c Channel, of: fn(Vec<Box<RawValue>>) -> Packed) -> Self {
        Self { channel, of, next: Vec::new(), size: 0 }
    }

    /// Adds an item, which must fit into a packet.
    fn add(&mut self, one: Box<RawValue>) -> io::Result<()> {
        let size = one.get().len() + 1;
        if self.size + size > ROOM {
            self.send()?;
        }
        self.size += size;
        self.next.push(one);
        Ok(())
    }

    /// Sends what has not been sent yet.
    fn send(&mut self) -> io::Result<()> {
        self.size = 0;
        match mem::take(&mut self.next) {
            none if none.is_empty() => Ok(()),
            some => self.channel.send(&(self.of)(some), &[]),
        }
    }
}

fn send_contents(channel: &Channel, read: Result<Contents, String>) -> io::Result<()> {
    let Contents { layout, functions } = match read {
        Ok(contents) => contents,
        Err(why) => return channel.send(&Answer::Layout(Err(shortened(why))), &[]),
    };
    let mut symbols = Packets::of(channel, Packed::Symbols);
    for symbol in functions.into_symbols() {
        let symbol = to_raw_value(&symbol)?;
        // A longer name cannot be written in a spec.
        if symbol.get().len() < ROOM {
            symbols.add(symbol)?;
        }
    }
    symbols.send()?;
    channel.send(&Answer::Layout(Ok(layout)), &[])
}

/// Asks the tracer for files.
fn wanted(channel: &Channel, wants: Wants) -> io::Result<Files> {
    channel.send(&Answer::Wants(wants), &[])?;
    let (answer, with): (_, Vec<OwnedFd>) = channel.receive()?;
    match answer {
        Request::Files { has_package } => Ok(files(with, has_package)),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// The functions at an address, to be sent. Leaves out inner ones until the rest fits into a packet.
fn fitting(mut functions: Vec<Function>) -> io::Result<Box<RawValue>> {
    loop {
        let packed = to_raw_value(&functions)?;
        if packed.get().len() < ROOM || functions.is_empty() {
            return Ok(packed);
        }
        functions.remove(0);
    }
}

/// A file that was read.
pub(crate) enum Parsed {
    Program(Box<Program>),
    PerfMap(PerfMap),
    /// It is none, or malformed.
    Nothing,
}

impl Parsed {
    pub(crate) fn of(kind: Kind, file: &File, want: &mut dyn FnMut(Wants) -> Files) -> Self {
        match kind {
            Kind::Program => Program::read(file, want)
                .map_or(Self::Nothing, |program| Self::Program(Box::new(program))),
            Kind::PerfMap => PerfMap::read(file).map_or(Self::Nothing, Self::PerfMap),
        }
    }

    pub(crate) fn functions(&self, address: u64) -> Vec<Function> {
        match self {
            Self::Program(program) => program.functions(address),
            Self::PerfMap(map) => map.functions(address),
            Self::Nothing => Vec::new(),
        }
    }

    fn size(&self) -> usize {
        match self {
            Self::Program(program) => program.size,
            Self::PerfMap(map) => map.size(),
            Self::Nothing => 0,
        }
    }
}

/// A version of a file that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    of: FileVersion,
    kind: Kind,
    /// The root directory of the files beside it.
    root: Option<RootId>,
    is_final: bool,
}

/// Files that were read, the one that was used last at the end.
#[derive(Default)]
struct Kept(Vec<(Version, Parsed)>);

impl Kept {
    fn get(
        &mut self,
        kind: Kind,
        root: Option<RootId>,
        file: File,
        want: &mut dyn FnMut(Wants) -> Files,
    ) -> &Parsed {
        let Ok(of) = FileVersion::of(&file) else { return &Parsed::Nothing };
        let version = Version { of, kind, root, is_final: of.is_final() };
        match self.0.iter().position(|(known, _)| *known == version && version.is_final) {
            Some(at) => self.0[at..].rotate_left(1),
            None => {
                // An older version of the same file is of no use any more.
                self.0.retain(|(known, _)| {
                    !known.of.is_of_same_file(&of) || known.is_final && known.of == of
                });
                self.0.push((version, Parsed::of(kind, &file, want)));
                self.shrink();
            }
        }
        self.0.last().map_or(&Parsed::Nothing, |(_, parsed)| parsed)
    }

    /// Forgets the files that were not used for the longest time, until the others are few and small.
    fn shrink(&mut self) {
        let mut size: usize = self.0.iter().map(|(_, parsed)| parsed.size()).sum();
        let mut forgotten = 0;
        while forgotten + 1 < self.0.len() && (size > KEPT || self.0.len() - forgotten > FILES) {
            size -= self.0[forgotten].1.size();
            forgotten += 1;
        }
        self.0.drain(..forgotten);
    }
}
