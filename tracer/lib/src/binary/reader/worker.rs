//! A reader: parses files, and answers with names. It trusts nothing in them, and may end at any time.

use super::channel::Channel;
use super::confine;
use super::message::{
    ADDRESSES, Answer, Function, Kind, LARGEST, Request, WANTS, Wants, shortened,
};
use super::perf_map::PerfMap;
use super::program::{Files, Program, files};
use crate::binary::contents::{Contents, is_boundary};
use rustix::fs::{Stat, fstat};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
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
            Request::Names { kind, addresses } => {
                let parsed = kept.get(kind, file, &mut want);
                for address in addresses.into_iter().take(ADDRESSES) {
                    channel.send(&Answer::Names(fitting(parsed.functions(address))), &[])?;
                }
            }
            Request::Contents => {
                let read = Contents::read(&file, &mut |wants| want(wants).candidates);
                send_contents(channel, read)?;
            }
            Request::Boundary { start, size } => {
                let answer = Answer::Boundary(is_boundary(&file, start, size));
                channel.send(&answer, &[])?;
            }
            Request::Files { .. } => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Sends as many functions in a packet as fit.
fn send_contents(channel: &Channel, read: Result<Contents, String>) -> io::Result<()> {
    let Contents { layout, functions } = match read {
        Ok(contents) => contents,
        Err(why) => return channel.send(&Answer::Layout(Err(shortened(why))), &[]),
    };
    let (mut packet, mut size) = (Vec::new(), 0);
    for symbol in functions.into_symbols() {
        let own = serde_json::to_vec(&symbol)?.len() + 1;
        // A longer name cannot be written in a spec.
        if own > ROOM {
            continue;
        }
        if size + own > ROOM {
            channel.send(&Answer::Symbols(mem::take(&mut packet)), &[])?;
            size = 0;
        }
        size += own;
        packet.push(symbol);
    }
    channel.send(&Answer::Symbols(packet), &[])?;
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

/// Leaves out inner functions until the rest fits into a packet.
fn fitting(mut functions: Vec<Function>) -> Vec<Function> {
    let size = |all: &Vec<Function>| serde_json::to_vec(all).map_or(usize::MAX, |text| text.len());
    while !functions.is_empty() && size(&functions) > ROOM {
        functions.remove(0);
    }
    functions
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

/// Which file it is, and of which time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    kind: Kind,
    device: u64,
    inode: u64,
    size: i64,
    modified: [i64; 2],
    changed: [i64; 2],
    /// Whether it changed so recently that a later version may have the same time.
    is_recent: bool,
}

impl Version {
    fn of(kind: Kind, file: &Stat) -> Self {
        let changed =
            Duration::new(file.st_ctime.max(0).cast_unsigned(), file.st_ctime_nsec as u32);
        Self {
            kind,
            device: file.st_dev,
            inode: file.st_ino,
            size: file.st_size,
            modified: [file.st_mtime, file.st_mtime_nsec as i64],
            changed: [file.st_ctime, file.st_ctime_nsec as i64],
            is_recent: SystemTime::now() < UNIX_EPOCH + changed + TICK,
        }
    }
}

/// Files that were read, the one that was used last at the end.
#[derive(Default)]
struct Kept(Vec<(Version, Parsed)>);

/// How old a change must be before the next one is sure to have another time: more than a tick of the kernel's clock.
const TICK: Duration = Duration::from_millis(20);

impl Kept {
    fn get(&mut self, kind: Kind, file: File, want: &mut dyn FnMut(Wants) -> Files) -> &Parsed {
        let Ok(stat) = fstat(&file) else { return &Parsed::Nothing };
        let version = Version::of(kind, &stat);
        match self.0.iter().position(|(known, _)| *known == version && !version.is_recent) {
            Some(at) => self.0[at..].rotate_left(1),
            None => {
                // An older version of the same file is of no use any more.
                let is_same = |known: &Version| {
                    (known.device, known.inode) == (version.device, version.inode)
                };
                self.0.retain(|(known, _)| !is_same(known));
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
