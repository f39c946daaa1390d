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

/// The number of root directories that are remembered for a file.
const ROOTS: usize = 1024;

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
    /// The file is neither, or it is malformed.
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

/// The files beside one that is read, each of which is wanted once.
struct Beside<'w> {
    want: &'w mut dyn FnMut(Wants) -> Files,
    /// What was wanted, the versions of these files, and the files until they are taken.
    got: Vec<(Wants, Vec<FileVersion>, Option<Files>)>,
}

impl Beside<'_> {
    fn get(&mut self, wants: &Wants) -> &mut (Wants, Vec<FileVersion>, Option<Files>) {
        let at = self.got.iter().position(|(known, ..)| known == wants).unwrap_or_else(|| {
            let files = (self.want)(wants.clone());
            self.got.push((wants.clone(), files.versions(), Some(files)));
            self.got.len() - 1
        });
        &mut self.got[at]
    }

    fn take(&mut self, wants: &Wants) -> Files {
        self.get(wants).2.take().unwrap_or_else(|| files(Vec::new(), false))
    }
}

/// A file that was read.
struct KeptFile {
    version: FileVersion,
    kind: Kind,
    is_final: bool,
    /// What was wanted beside it, and the versions of the files that were there.
    beside: Vec<(Wants, Vec<FileVersion>)>,
    /// The root directories in which these files are beside it.
    roots: Vec<Option<RootId>>,
    parsed: Parsed,
}

impl KeptFile {
    /// Whether the same files are beside it in this root directory, which is then remembered.
    fn is_same_in(&mut self, root: Option<RootId>, beside: &mut Beside<'_>) -> bool {
        let is_same = self.beside.iter().all(|(wants, known)| beside.get(wants).1 == *known);
        if is_same {
            if self.roots.len() >= ROOTS {
                self.roots.clear();
            }
            self.roots.push(root);
        }
        is_same
    }
}

/// Files that were read, the one that was used last at the end.
#[derive(Default)]
struct Kept(Vec<KeptFile>);

impl Kept {
    fn get(
        &mut self,
        kind: Kind,
        root: Option<RootId>,
        file: File,
        want: &mut dyn FnMut(Wants) -> Files,
    ) -> &Parsed {
        let Ok(version) = FileVersion::of(&file) else { return &Parsed::Nothing };
        let mut beside = Beside { want, got: Vec::new() };
        let is_it = |kept: &KeptFile| kept.is_final && (kept.version, kept.kind) == (version, kind);
        let known = self.0.iter().position(|kept| is_it(kept) && kept.roots.contains(&root));
        let known = known.or_else(|| {
            self.0.iter_mut().position(|kept| is_it(kept) && kept.is_same_in(root, &mut beside))
        });
        match known {
            Some(at) => self.0[at..].rotate_left(1),
            None => {
                // An older version of the same file is of no use any more.
                self.0.retain(|kept| {
                    !kept.version.is_of_same_file(&version)
                        || kept.is_final && kept.version == version
                });
                let is_final = version.is_final();
                let parsed = Parsed::of(kind, &file, &mut |wants| beside.take(&wants));
                let beside =
                    beside.got.into_iter().map(|(wants, versions, _)| (wants, versions)).collect();
                let roots = vec![root];
                self.0.push(KeptFile { version, kind, is_final, beside, roots, parsed });
                self.shrink();
            }
        }
        self.0.last().map_or(&Parsed::Nothing, |kept| &kept.parsed)
    }

    /// Forgets the files that were not used for the longest time, until the others are few and small.
    fn shrink(&mut self) {
        let mut size: usize = self.0.iter().map(|kept| kept.parsed.size()).sum();
        let mut forgotten = 0;
        while forgotten + 1 < self.0.len() && (size > KEPT || self.0.len() - forgotten > FILES) {
            size -= self.0[forgotten].parsed.size();
            forgotten += 1;
        }
        self.0.drain(..forgotten);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use probe_testing::crafted::elf;
    use std::io::Write;
    use std::thread::sleep;
    use std::time::Duration;

    #[test]
    fn a_program_is_read_once_while_the_same_files_are_beside_it() {
        let file = |sections: &[_]| {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&elf(sections)).unwrap();
            file
        };
        let program = file(&[(".gnu_debuglink", false, b"x\0\0\0sum!")]);
        let [one, other] = [(); 2].map(|()| file(&[]));
        // Versions are remembered once they are old enough to differ from the next ones.
        sleep(Duration::from_millis(40));
        let mut kept = Kept::default();
        let mut number_after = |root: u64, beside: &File| {
            let root = format!(r#"{{"mount":{root},"device":[0,0],"inode":2}}"#);
            let root = Some(serde_json::from_str(&root).unwrap());
            let mut wanted = 0;
            let mut want = |_| {
                wanted += 1;
                files(vec![beside.try_clone().unwrap().into()], false)
            };
            kept.get(Kind::Program, root, program.try_clone().unwrap(), &mut want);
            (wanted, kept.0.len())
        };
        assert_eq!(number_after(1, &one), (1, 1));
        assert_eq!(number_after(2, &one), (1, 1));
        assert_eq!(number_after(3, &other), (1, 2));
        assert_eq!(number_after(4, &program), (1, 3));
        for root in 1..=4 {
            assert_eq!(number_after(root, &program), (0, 3));
        }
    }
}
