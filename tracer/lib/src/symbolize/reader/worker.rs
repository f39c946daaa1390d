//! A reader: parses files, and answers with names. It trusts nothing in them, and may end at any time.

use super::channel::Channel;
use super::confine;
use super::message::{ADDRESSES, Answer, Function, Kind, LARGEST, Request, WANTS, Wants};
use super::perf_map::PerfMap;
use super::program::{Files, Program, files};
use rustix::fs::{Stat, fstat};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The memory for files that are kept, in bytes, as far as it can be estimated.
const KEPT: usize = 512 << 20;

/// The number of files that are kept.
const FILES: usize = 512;

/// Answers until the tracer closes its end.
pub(super) fn run(channel: &Channel) -> io::Result<()> {
    confine::reader()?;
    let mut kept = Kept::default();
    loop {
        let (request, mut with) = channel.receive()?;
        let (Request::Names { kind, addresses }, Some(file)) = (request, with.pop()) else {
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
        let parsed = kept.get(kind, file.into(), &mut want);
        for address in addresses.into_iter().take(ADDRESSES) {
            channel.send(&Answer::Names(fitting(parsed.functions(address))), &[])?;
        }
    }
}

/// Asks the tracer for files.
fn wanted(channel: &Channel, wants: Wants) -> io::Result<Files> {
    channel.send(&Answer::Wants(wants), &[])?;
    let (answer, with): (_, Vec<OwnedFd>) = channel.receive()?;
    match answer {
        Request::Files { has_package } => Ok(files(with, has_package)),
        Request::Names { .. } => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Leaves out inner functions until the rest fits into a packet.
fn fitting(mut functions: Vec<Function>) -> Vec<Function> {
    let size = |all: &Vec<Function>| serde_json::to_vec(all).map_or(usize::MAX, |text| text.len());
    while !functions.is_empty() && size(&functions) > LARGEST - 64 {
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
