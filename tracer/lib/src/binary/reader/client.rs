//! The tracer's side: asks a reader, and starts another if one fails.

use super::channel::Channel;
use super::message::{
    ADDRESSES, Answer, Ended, FUNCTIONS, Kind, Request, STRINGS, Started, TEXT, WANTS, Wants,
    len_in_packet,
};
use super::{Function, command};
use crate::binary::contents::{Contents, Symbol};
use crate::binary::functions::Functions;
use crate::binary::root::RootId;
use crate::binary::{FileProblem, FileVersion};
use probe_sys::bpf;
use probe_sys::escape::Escaped;
use probe_sys::process::spawn_alone;
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a file may take: longer than reading the largest programs.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long the start of a reader may take.
const START: Duration = Duration::from_secs(10);

/// The memory for the functions of a program, in bytes. The largest programs take less.
const SYMBOLS: usize = 512 << 20;

/// How often a reader may fail.
const FAILURES: u32 = 32;

/// How long to wait for the end of the keeper.
const END: Duration = Duration::from_millis(200);

/// The processes that read untrusted files, as seen by the tracer.
#[derive(Debug)]
pub(crate) struct Reader {
    /// Why there is none any more, once a reader could not be started again.
    keeper: Result<Channel, String>,
    process: Child,
    running: Option<Channel>,
    failures: u32,
    /// The files that were read when a reader failed, at most [`FAILURES`].
    refused: HashSet<FileVersion>,
    state: Arc<ReaderState>,
    patience: Duration,
    /// The memory for the functions of a program, in bytes.
    room: usize,
}

/// What other threads may know of these processes.
#[derive(Debug, Default)]
pub(crate) struct ReaderState {
    /// The keeper's id, and those of all readers.
    ids: Mutex<Vec<u32>>,
    /// Where programs that must not trace these processes find them.
    map: OnceLock<OwnedFd>,
    unnamed: AtomicUsize,
}

impl ReaderState {
    /// The ids of these processes.
    pub(crate) fn ids(&self) -> MutexGuard<'_, Vec<u32>> {
        self.ids.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the keeper and the running reader into a map of programs, now and whenever there is another reader.
    pub(crate) fn leave_out_in(&self, map: OwnedFd) -> io::Result<()> {
        self.write(self.map.get_or_init(|| map))
    }

    fn write(&self, map: &OwnedFd) -> io::Result<()> {
        let ids = self.ids();
        let [keeper, reader] = [ids.first(), ids.last()].map(|id| id.copied().map_or(0, u64::from));
        bpf::map_set_bytes(map.as_fd(), 0, &(keeper | reader << 32).to_ne_bytes())
    }

    /// Notes that there is another reader.
    fn add(&self, reader: u32) {
        self.ids().push(reader);
        if let Some(map) = self.map.get()
            && let Err(error) = self.write(map)
        {
            log::warn!("hits of process {reader}, which reads symbols, are traced, too: {error}");
        }
    }

    /// The number of addresses that have no names because a reader failed.
    pub(crate) fn unnamed(&self) -> usize {
        // ORDERING: nothing else depends on the number.
        self.unnamed.load(Ordering::Relaxed)
    }

    pub(crate) fn add_unnamed(&self, number: usize) {
        // ORDERING: as above.
        self.unnamed.fetch_add(number, Ordering::Relaxed);
    }
}

/// Why there is no answer about a file.
enum Unanswered {
    Unreadable(io::Error),
    /// The file ended a reader before.
    Refused,
    /// There is no reader any more, for this reason.
    NoReader(String),
    /// What reading it did, and whether there is another reader.
    Failed(String, io::Result<()>),
}

impl From<Unanswered> for FileProblem {
    fn from(unanswered: Unanswered) -> Self {
        match unanswered {
            Unanswered::Unreadable(error) => Self::Unreadable(error),
            Unanswered::Refused => Self::ReaderFailed("failed before".to_owned()),
            Unanswered::NoReader(why) => Self::Unreadable(io::Error::other(format!(
                "the process that reads programs is not started again: {why}"
            ))),
            Unanswered::Failed(why, Ok(())) => Self::ReaderFailed(why),
            Unanswered::Failed(why, Err(error)) => Self::ReaderFailed(format!(
                "{why}. Nor can other programs be read, because the process that reads them is not started again: {error}"
            )),
        }
    }
}

/// A file that addresses are looked up in.
pub(crate) struct Lookup<'q> {
    pub(crate) kind: Kind,
    pub(crate) file: &'q File,
    /// For messages.
    pub(crate) path: &'q Path,
    /// The root directory in which `open` looks, if it does.
    pub(crate) root: Option<RootId>,
    /// Opens what a reader wants. The last file may be a DWARF package.
    pub(crate) open: &'q dyn Fn(&Wants) -> (Vec<File>, bool),
}

impl Reader {
    /// Starts the processes.
    ///
    /// # Errors
    ///
    /// If the program did not allow it, or a process cannot be started.
    pub(crate) fn start() -> io::Result<Self> {
        let mut this = Self::idle()?;
        this.run()?;
        Ok(this)
    }

    /// Starts the keeper alone. It starts a reader when a file is to be read.
    ///
    /// # Errors
    ///
    /// As for [`start`](Self::start).
    pub(super) fn idle() -> io::Result<Self> {
        let mut command = command().ok_or_else(|| {
            io::Error::other(
                "the program does not call probe_tracer::allow_symbol_reader() in main",
            )
        })?;
        let [keeper, theirs] = Channel::pair()?;
        let null = || Stdio::null();
        command.stdin(OwnedFd::from(theirs)).stdout(null()).stderr(null());
        let process = spawn_alone(command)?;
        let state = Arc::<ReaderState>::default();
        state.ids().push(process.id());
        let (failures, refused) = (0, HashSet::new());
        let keeper = Ok(keeper);
        let (running, patience, room) = (None, PATIENCE, SYMBOLS);
        Ok(Self { keeper, process, running, failures, refused, state, patience, room })
    }

    /// Gives each file less time.
    #[cfg(test)]
    pub(super) fn hurried(mut self) -> Self {
        self.patience = Duration::from_secs(5);
        self
    }

    /// Gives the functions of a program less room.
    #[cfg(test)]
    pub(super) fn with_little_room(mut self) -> Self {
        self.room = 1 << 16;
        self
    }

    /// What is known of these processes.
    pub(crate) fn state(&self) -> &Arc<ReaderState> {
        &self.state
    }

    /// The functions at each address, the innermost first. The result is shorter than `addresses` if reading the file fails.
    pub(crate) fn functions(
        &mut self,
        lookup: &Lookup<'_>,
        addresses: &[u64],
    ) -> Vec<Vec<Function>> {
        let mut found = Vec::new();
        let asked = self.ask(lookup.file, |reader, deadline| {
            addresses
                .chunks(ADDRESSES)
                .try_for_each(|some| ask_for_names(reader, lookup, some, deadline, &mut found))
        });
        if let Err(Unanswered::Refused | Unanswered::NoReader(_) | Unanswered::Failed(..)) = asked {
            self.state.add_unnamed(addresses.len() - found.len());
        }
        if let Err(Unanswered::Failed(why, restarted)) = asked {
            let path = Escaped(lookup.path.as_os_str().as_bytes());
            log::warn!("addresses in {path} have no names, because reading it {why}");
            if let Err(error) = restarted {
                log::warn!(
                    "further user addresses have no names, because the process that reads symbols is not started again: {error}"
                );
            }
        }
        found
    }

    /// What a probe needs to know of a program.
    pub(in crate::binary) fn contents(
        &mut self,
        lookup: &Lookup<'_>,
    ) -> Result<Contents, FileProblem> {
        let room = self.room;
        let read = self.ask(lookup.file, |reader, deadline| {
            ask_for_contents(reader, lookup, room, deadline)
        })?;
        if let Err(FileProblem::TooManySymbols { .. }) = read {
            // The reader still sends symbols. The next question starts another one.
            self.running = None;
        }
        read
    }

    /// Whether an instruction ends there.
    pub(in crate::binary) fn is_boundary(
        &mut self,
        file: &File,
        start: u64,
        size: u64,
    ) -> Result<bool, FileProblem> {
        let answer = self.ask(file, |reader, deadline| {
            let request = Request::Boundary { start, size };
            reader.send_until(&request, &[file.as_fd()], deadline)?;
            match reader.receive_until(deadline)? {
                Answer::Boundary(answer) => Ok(answer),
                _ => Err(io::ErrorKind::InvalidData.into()),
            }
        });
        answer?.map_err(FileProblem::unreadable)
    }

    /// The numbers of those symbols of a program that have a name in the source.
    pub(in crate::binary) fn symbols_of(
        &mut self,
        name: &str,
        symbols: &[&str],
        file: &File,
    ) -> Result<Vec<usize>, FileProblem> {
        let mut found = Vec::new();
        self.ask(file, |reader, deadline| {
            let mut next = 0;
            while next < symbols.len() {
                let (begin, mut size) = (next, len_in_packet(name));
                while next < symbols.len()
                    && (next == begin || size + len_in_packet(symbols[next]) < STRINGS)
                {
                    size += len_in_packet(symbols[next]);
                    next += 1;
                }
                // There is no packet for a longer symbol.
                if size < STRINGS {
                    let some = &symbols[begin..next];
                    let numbers = ask_for_symbols(reader, name, some, file, deadline)?;
                    found.extend(numbers.into_iter().map(|number| begin + number));
                }
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// What `ask` returns, unless the reader fails.
    fn ask<T>(
        &mut self,
        file: &File,
        ask: impl FnOnce(&Channel, Instant) -> io::Result<T>,
    ) -> Result<T, Unanswered> {
        let version = FileVersion::of(file).map_err(Unanswered::Unreadable)?;
        if self.refused.contains(&version) {
            return Err(Unanswered::Refused);
        }
        if let Err(why) = &self.keeper {
            return Err(Unanswered::NoReader(why.clone()));
        }
        if self.running.is_none() {
            self.run().map_err(|error| Unanswered::Unreadable(not_started(error)))?;
        }
        let answer = match &self.running {
            Some(running) => ask(running, Instant::now() + self.patience),
            None => Err(io::ErrorKind::NotConnected.into()),
        };
        answer.map_err(|error| {
            let (why, restarted) = self.failed(version, &error);
            Unanswered::Failed(why, restarted)
        })
    }

    /// Starts another reader after a failure, and never reads the file again. Returns what reading it did, and whether there is another
    /// reader.
    fn failed(&mut self, version: FileVersion, error: &io::Error) -> (String, io::Result<()>) {
        self.refused.insert(version);
        self.running = None;
        self.failures += 1;
        let restarted = match self.failures < FAILURES {
            true => self.run(),
            false => Err(io::Error::other(format!("reading programs failed {FAILURES} times"))),
        };
        let why = match (error.kind(), &restarted) {
            (io::ErrorKind::WouldBlock, _) => {
                format!("took more than {:?}", self.patience)
            }
            (
                io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset,
                Ok(Some(Ended::Signal(signal))),
            ) => {
                format!("ended the process that reads symbols with signal {signal}")
            }
            (io::ErrorKind::InvalidData, _) => "led to an answer that is not valid".to_owned(),
            _ => "ended the process that reads symbols".to_owned(),
        };
        if let Err(error) = &restarted {
            self.keeper = Err(error.to_string());
        }
        (why, restarted.map(drop))
    }

    /// Starts a reader. Returns how the previous one ended.
    fn run(&mut self) -> io::Result<Option<Ended>> {
        let keeper = self.keeper.as_ref().map_err(|why| io::Error::other(&**why))?;
        let deadline = Instant::now() + START;
        keeper.send_until(&(), &[], deadline)?;
        let (Started { pid, previous }, mut with) = keeper.receive_files_until(deadline)?;
        self.running = with.pop().map(Channel::from);
        self.state.add(pid);
        Ok(previous)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // The keeper ends when its channel is closed. It is not waited for if somebody has stopped it.
        (self.keeper, self.running) = (Err(String::new()), None);
        let begun = Instant::now();
        while begun.elapsed() < END && matches!(self.process.try_wait(), Ok(None)) {
            sleep(Duration::from_millis(1));
        }
    }
}

/// The error of a reader that cannot be started.
pub(super) fn not_started(error: io::Error) -> io::Error {
    io::Error::other(format!("the process that reads programs cannot be started: {error}"))
}

/// Asks a reader for what a probe needs to know of a program. The inner error says what is wrong with the file.
fn ask_for_contents(
    reader: &Channel,
    lookup: &Lookup<'_>,
    room: usize,
    deadline: Instant,
) -> io::Result<Result<Contents, FileProblem>> {
    reader.send_until(&Request::Contents, &[lookup.file.as_fd()], deadline)?;
    let (mut functions, mut known, mut wants) = (Functions::default(), 0, 0);
    loop {
        match receive(reader, lookup, deadline, &mut wants)? {
            Answer::Symbols(symbols) => {
                known += symbols.iter().map(Symbol::size).sum::<usize>();
                if known > room {
                    return Ok(Err(FileProblem::TooManySymbols { room }));
                }
                symbols.into_iter().for_each(|symbol| functions.insert(symbol));
            }
            Answer::Layout(Ok(layout)) => {
                functions.set_stripped(layout.is_stripped);
                return Ok(Ok(Contents { layout, functions }));
            }
            Answer::Layout(Err(why)) => return Ok(Err(FileProblem::NotElf(why))),
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// The next part of an answer. Before the first one, a reader may want files, which are sent. `wants` counts how often.
fn receive(
    reader: &Channel,
    lookup: &Lookup<'_>,
    deadline: Instant,
    wants: &mut usize,
) -> io::Result<Answer> {
    loop {
        match reader.receive_until(deadline)? {
            Answer::Wants(wanted) if *wants < WANTS => {
                *wants += 1;
                let (files, has_package) = (lookup.open)(&wanted);
                let files: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
                reader.send_until(&Request::Files { has_package }, &files, deadline)?;
            }
            answer => {
                *wants = WANTS;
                return Ok(answer);
            }
        }
    }
}

/// Asks a reader, and adds the functions at each address.
fn ask_for_names(
    reader: &Channel,
    lookup: &Lookup<'_>,
    addresses: &[u64],
    deadline: Instant,
    found: &mut Vec<Vec<Function>>,
) -> io::Result<()> {
    let request =
        Request::Names { kind: lookup.kind, root: lookup.root, addresses: addresses.to_vec() };
    reader.send_until(&request, &[lookup.file.as_fd()], deadline)?;
    let (mut wants, mut left) = (0, addresses.len());
    while left > 0 {
        match receive(reader, lookup, deadline, &mut wants)? {
            Answer::Names(names)
                if (1..=left).contains(&names.len())
                    && names.iter().all(|functions| are_valid(functions)) =>
            {
                left -= names.len();
                found.extend(names);
            }
            _ => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
    Ok(())
}

/// Asks a reader which symbols have a name in the source.
fn ask_for_symbols(
    reader: &Channel,
    name: &str,
    symbols: &[&str],
    file: &File,
    deadline: Instant,
) -> io::Result<Vec<usize>> {
    let owned = symbols.iter().map(|&symbol| symbol.to_owned()).collect();
    let request = Request::Demangled { name: name.to_owned(), symbols: owned };
    reader.send_until(&request, &[file.as_fd()], deadline)?;
    match reader.receive_until(deadline)? {
        Answer::Demangled(numbers)
            if numbers.is_sorted_by(|one, next| one < next)
                && numbers.last().is_none_or(|&last| last < symbols.len()) =>
        {
            Ok(numbers)
        }
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Whether a reader may give this answer: only the last function is not inlined, and nothing is too long.
fn are_valid(functions: &[Function]) -> bool {
    let is_short = |one: &Function| {
        one.name.len() <= TEXT && one.source.as_ref().is_none_or(|(file, _)| file.len() <= TEXT)
    };
    let Some((outer, inlined)) = functions.split_last() else { return true };
    functions.len() <= FUNCTIONS
        && functions.iter().all(is_short)
        && outer.offset.is_some()
        && inlined.iter().all(|one| one.offset.is_none())
}
