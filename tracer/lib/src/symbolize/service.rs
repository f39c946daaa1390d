//! The thread that looks symbols up.

use super::images::ElfFile;
use super::watch::Watch;
use super::{Address, Frame, Owner, SymbolAccess, locked, trust};
use crate::kernel::capabilities::{self, Capabilities};
use blazesym::helper::ElfResolver;
use blazesym::symbolize::cache::{self, Cache};
use blazesym::symbolize::evict::{self, Evict};
use blazesym::symbolize::source::{Elf, Kernel, Process, Source};
use blazesym::symbolize::{
    Input, ProcessMemberInfo, ProcessMemberType, Resolve, Sym, Symbolized, Symbolizer,
};
use blazesym::{MaybeDefault, Pid};
use probe_sys::clock::monotonic;
use std::collections::HashMap;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A request: the addresses, and where they are.
struct Question {
    place: Place,
    addresses: Vec<Address>,
    answer: Sender<Answer>,
}

/// Where addresses are looked up.
#[derive(Clone, Debug)]
pub(super) enum Place {
    Kernel,
    /// In what a process has mapped now or, if it has ended, had mapped before.
    Process(Owner),
    /// They are offsets in this file, in bytes.
    File(Arc<ElfFile>),
}

/// The answer to a question.
#[derive(Default)]
pub(super) struct Answer {
    /// The functions at each address, the innermost first.
    pub(super) found: Found,
    /// Of a process: its mappings were read, and their files opened, between these times.
    pub(super) between: [u64; 2],
}

type Found = Vec<Arc<[Frame]>>;

/// How often the rings of a watch are emptied, at least.
const LOOK: Duration = Duration::from_millis(50);

/// How long to wait for an answer: longer than it takes to read the largest programs.
const PATIENCE: Duration = Duration::from_secs(30);

/// The number of processes whose mappings are remembered at a time.
const PROCESSES: usize = 1024;

/// Looks symbols up in a thread of its own, until it is dropped.
#[derive(Debug)]
pub(super) struct Service {
    /// `None` once the thread has taken too long.
    questions: Option<Sender<Question>>,
}

impl Service {
    /// Starts the thread, and waits until it has read the kernel's symbols and given up unneeded privileges. It also
    /// empties the rings of the watch in time.
    pub(super) fn start(
        access: SymbolAccess,
        watch: Option<Arc<Mutex<Watch>>>,
    ) -> io::Result<Self> {
        let (questions, asked) = channel();
        let (begins, begun) = channel();
        let run = move || {
            let mut names = Names::new();
            // The kernel's symbols are cached on first use, so read them while the thread has its privileges.
            names.of_kernel(&[Address { at: u64::MAX, is_return: false }]);
            let kept = match access {
                SymbolAccess::Kernel => Capabilities::NONE,
                SymbolAccess::Processes => {
                    Capabilities::SYS_PTRACE
                        | Capabilities::DAC_READ_SEARCH
                        | Capabilities::CHECKPOINT_RESTORE
                }
            };
            if let Err(error) = capabilities::keep_in_thread(kept) {
                log::warn!("the thread that looks up symbols keeps its privileges: {error}");
            }
            // The send fails only if nobody waits.
            let _ = begins.send(());
            names.answer(&asked, watch.as_deref());
        };
        thread::Builder::new().name("symbols".into()).spawn(run)?;
        // It fails only if the thread panicked, which has printed a message.
        let _ = begun.recv();
        Ok(Self { questions: Some(questions) })
    }

    /// The functions at each address; `None` if the thread has ended, or has not answered in time.
    pub(super) fn look_up(&mut self, place: Place, addresses: &[Address]) -> Option<Answer> {
        let (answer, answered) = channel();
        let addresses = addresses.to_vec();
        self.questions.as_ref()?.send(Question { place, addresses, answer }).ok()?;
        let found = answered.recv_timeout(PATIENCE);
        if let Err(RecvTimeoutError::Timeout) = &found {
            log::warn!(
                "further addresses have no names, because reading a file with names takes too long"
            );
            self.questions = None;
        }
        found.ok()
    }
}

struct Names {
    symbolizer: Symbolizer,
    /// Processes whose mappings are remembered, and a time before these were read.
    remembered: HashMap<u32, (Owner, u64)>,
}

impl Names {
    fn new() -> Self {
        // It looks at a file again before each use: the path of a mapping in `/proc` leads to another file once that takes
        // its place.
        let symbolizer = Symbolizer::builder().set_process_dispatcher(opened_otherwise).build();
        Self { symbolizer, remembered: HashMap::new() }
    }

    fn answer(&mut self, asked: &Receiver<Question>, watch: Option<&Mutex<Watch>>) {
        loop {
            let next = match watch {
                None => asked.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(_) => asked.recv_timeout(LOOK),
            };
            let Question { place, addresses, answer } = match (next, watch) {
                (Ok(question), _) => question,
                (Err(RecvTimeoutError::Timeout), Some(watch)) => {
                    locked(watch).catch_up();
                    continue;
                }
                _ => return,
            };
            let of = |found| Answer { found, ..Answer::default() };
            let found = match place {
                Place::Kernel => of(self.of_kernel(&addresses)),
                Place::Process(owner) => self.of_process(owner, &addresses),
                Place::File(file) => of(self.of_file(&file, &addresses)),
            };
            // The asker may have stopped waiting.
            let _ = answer.send(found);
        }
    }

    fn of_kernel(&self, addresses: &[Address]) -> Found {
        let kernel = Kernel { vmlinux: MaybeDefault::None, ..Kernel::default() };
        self.look_up(&Source::Kernel(kernel), addresses)
    }

    fn of_process(&mut self, owner: Owner, addresses: &[Address]) -> Answer {
        let since = self.remember(owner);
        let perf_map = trust::may_open_perf_map(owner.pid);
        let by_file = Process { perf_map, ..Process::new(Pid::from(owner.pid)) };
        let found = self.look_up(&Source::Process(by_file.clone()), addresses);
        // A mapping's file is opened only now, by a path that leads to another file once that is mapped there.
        let between = [since, monotonic()];
        if found.iter().any(|frames| !frames.is_empty()) {
            return Answer { found, between };
        }
        // Opening the mapped files themselves takes a privilege (5.9+); opening them by their paths does not.
        let by_path = Process { map_files: false, ..by_file };
        let found = self.look_up(&Source::Process(by_path), addresses);
        Answer { found, between: [since, monotonic()] }
    }

    fn of_file(&self, file: &ElfFile, offsets: &[Address]) -> Found {
        match file.is_replaced() {
            Ok(false) => {
                let debug_syms = trust::may_open(&file.path);
                let elf = Elf { debug_syms, ..Elf::new(&file.path) };
                self.look_up(&Source::Elf(elf), offsets)
            }
            is_replaced => {
                log::debug!("no names for {}, replaced: {is_replaced:?}", file.path.display());
                vec![Arc::default(); offsets.len()]
            }
        }
    }

    /// Reads the mappings of a process, so that they are known after it has ended. Returns the time before that.
    fn remember(&mut self, owner: Owner) -> u64 {
        let pid = Pid::from(owner.pid);
        let mapped = cache::Process { cache_perf_map: false, ..cache::Process::new(pid) };
        let before = monotonic();
        let is_read = self.symbolizer.cache(&Cache::Process(mapped)).is_ok();
        if !is_read
            && let Some(&(same, since)) = self.remembered.get(&owner.pid)
            && same == owner
        {
            return since;
        }
        if self.remembered.len() >= PROCESSES {
            self.remembered.keys().for_each(|&pid| forget(&mut self.symbolizer, pid));
            self.remembered.clear();
            return self.remember(owner);
        }
        match is_read {
            true => drop(self.remembered.insert(owner.pid, (owner, before))),
            // They belong to another process.
            false => forget(&mut self.symbolizer, owner.pid),
        }
        before
    }

    fn look_up(&self, source: &Source<'_>, addresses: &[Address]) -> Found {
        let calls: Vec<u64> = addresses.iter().map(|address| address.instruction()).collect();
        let input = match source {
            Source::Elf(_) => Input::FileOffset(calls.as_slice()),
            _ => Input::AbsAddr(calls.as_slice()),
        };
        let found = match self.symbolizer.symbolize(source, input) {
            Ok(found) => found,
            Err(error) => {
                log::debug!("cannot look up addresses: {error}");
                return vec![Arc::default(); addresses.len()];
            }
        };
        let frames = |(address, one): (&Address, &Symbolized<'_>)| match one {
            Symbolized::Sym(symbol) => frames(symbol, address.at - address.instruction()),
            Symbolized::Unknown(_) => Arc::default(),
        };
        addresses.iter().zip(&found).map(frames).collect()
    }
}

/// Opens a mapped file by its mapping only, if its path, or what is beside it there, must not be opened.
fn opened_otherwise(
    member: ProcessMemberInfo<'_>,
) -> Result<Option<Box<dyn Resolve>>, blazesym::Error> {
    match member.member_entry {
        ProcessMemberType::Path(path) if !trust::may_open(&path.symbolic_path) => {
            Ok(Some(Box::new(ElfResolver::open(&path.maps_file)?)))
        }
        _ => Ok(None),
    }
}

fn forget(symbolizer: &mut Symbolizer, pid: u32) {
    // Evicting a process cannot fail.
    let _ = symbolizer.evict(&Evict::Process(evict::Process::new(Pid::from(pid))));
}

/// The functions of a symbol, the innermost first. It was looked up `back` bytes before the requested address.
fn frames(symbol: &Sym<'_>, back: u64) -> Arc<[Frame]> {
    let module = symbol.module.as_ref().map(|module| module.to_string_lossy().into_owned());
    let inlined = symbol.inlined.iter().map(|inlined| Frame {
        name: inlined.name.to_string(),
        offset: None,
        module: module.clone(),
        source: inlined.code_info.as_ref().map(source_of),
    });
    let outer = Frame {
        name: symbol.name.to_string(),
        offset: Some(symbol.offset as u64 + back),
        module: module.clone(),
        source: symbol.code_info.as_deref().map(source_of),
    };
    let mut frames: Vec<Frame> = [outer].into_iter().chain(inlined).collect();
    frames.reverse();
    frames.into()
}

fn source_of(info: &blazesym::symbolize::CodeInfo<'_>) -> (String, Option<u32>) {
    (info.to_path().to_string_lossy().into_owned(), info.line)
}
