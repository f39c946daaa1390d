//! The thread that looks symbols up.

use super::images::ElfFile;
use super::{Address, Frame, Owner, Space, SymbolAccess};
use crate::kernel::capabilities::{self, Capabilities};
use blazesym::symbolize::cache::{self, Cache};
use blazesym::symbolize::evict::{self, Evict};
use blazesym::symbolize::source::{Elf, Kernel, Process, Source};
use blazesym::symbolize::{Input, Sym, Symbolized, Symbolizer};
use blazesym::{MaybeDefault, Pid};
use probe_tracer_common::trace::COMM_LEN;
use std::collections::HashMap;
use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// A request: the addresses, and where they are.
struct Question {
    space: Space,
    /// The thread whose stack they are of.
    tid: Option<u32>,
    addresses: Vec<Address>,
    answer: Sender<Answer>,
}

/// The functions at each address, the innermost first.
type Answer = Vec<Arc<[Frame]>>;

/// The number of processes whose mappings are remembered at a time.
const PROCESSES: usize = 1024;

/// Looks symbols up in a thread of its own, until it is dropped.
#[derive(Debug)]
pub(super) struct Service {
    questions: Sender<Question>,
}

impl Service {
    /// Starts the thread, and waits until it has read the kernel's symbols and given up unneeded privileges.
    pub(super) fn start(access: SymbolAccess) -> io::Result<Self> {
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
            names.answer(asked);
        };
        thread::Builder::new().name("symbols".into()).spawn(run)?;
        // It fails only if the thread panicked, which has printed a message.
        let _ = begun.recv();
        Ok(Self { questions })
    }

    /// The functions at each address; `None` if the thread has ended.
    pub(super) fn look_up(
        &self,
        space: &Space,
        tid: Option<u32>,
        addresses: &[Address],
    ) -> Option<Answer> {
        let (answer, answered) = channel();
        let (space, addresses) = (space.clone(), addresses.to_vec());
        let question = Question { space, tid, addresses, answer };
        self.questions.send(question).ok()?;
        answered.recv().ok()
    }
}

struct Names {
    symbolizer: Symbolizer,
    /// Processes whose mappings are remembered.
    remembered: HashMap<u32, Owner>,
}

impl Names {
    fn new() -> Self {
        // A replaced file has another inode, so it counts as another file.
        let symbolizer = Symbolizer::builder().enable_auto_reload(false).build();
        Self { symbolizer, remembered: HashMap::new() }
    }

    fn answer(&mut self, asked: Receiver<Question>) {
        for Question { space, tid, addresses, answer } in asked {
            let found = match space {
                Space::Kernel => self.of_kernel(&addresses),
                Space::Process(owner) => {
                    let found = self.of_process(owner, &addresses);
                    match tid.is_some_and(|tid| has_executed_another(owner, tid)) {
                        true => vec![Arc::default(); addresses.len()],
                        false => found,
                    }
                }
                Space::File(file) => self.of_file(&file, &addresses),
            };
            // The asker may have stopped waiting.
            let _ = answer.send(found);
        }
    }

    fn of_kernel(&self, addresses: &[Address]) -> Answer {
        let kernel = Kernel { vmlinux: MaybeDefault::None, ..Kernel::default() };
        self.look_up(&Source::Kernel(kernel), addresses)
    }

    fn of_process(&mut self, owner: Owner, addresses: &[Address]) -> Answer {
        self.remember(owner);
        let by_file = Process::new(Pid::from(owner.pid));
        let found = self.look_up(&Source::Process(by_file.clone()), addresses);
        if found.iter().any(|frames| !frames.is_empty()) {
            return found;
        }
        // Opening the mapped files themselves takes a privilege (5.9+); opening them by their paths does not.
        let by_path = Process { map_files: false, ..by_file };
        self.look_up(&Source::Process(by_path), addresses)
    }

    fn of_file(&self, file: &ElfFile, offsets: &[Address]) -> Answer {
        match file.is_replaced() {
            Ok(false) => self.look_up(&Source::Elf(Elf::new(&file.path)), offsets),
            is_replaced => {
                log::debug!("no names for {}, replaced: {is_replaced:?}", file.path.display());
                vec![Arc::default(); offsets.len()]
            }
        }
    }

    /// Reads the mappings of a process, so that they are known after it has ended.
    fn remember(&mut self, owner: Owner) {
        let pid = Pid::from(owner.pid);
        let mapped = cache::Process { cache_perf_map: false, ..cache::Process::new(pid) };
        let is_read = self.symbolizer.cache(&Cache::Process(mapped)).is_ok();
        if !is_read && self.remembered.get(&owner.pid) == Some(&owner) {
            return;
        }
        if self.remembered.len() >= PROCESSES {
            self.remembered.keys().for_each(|&pid| forget(&mut self.symbolizer, pid));
            self.remembered.clear();
            return self.remember(owner);
        }
        match is_read {
            true => drop(self.remembered.insert(owner.pid, owner)),
            // They belong to another process.
            false => forget(&mut self.symbolizer, owner.pid),
        }
    }

    fn look_up(&self, source: &Source<'_>, addresses: &[Address]) -> Answer {
        let calls: Vec<u64> =
            addresses.iter().map(|address| address.at.saturating_sub(back(address))).collect();
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
            Symbolized::Sym(symbol) => frames(symbol, back(address)),
            Symbolized::Unknown(_) => Arc::default(),
        };
        addresses.iter().zip(&found).map(frames).collect()
    }
}

/// Whether a thread has executed another program since it had the owner's name, so that its addresses are those of that one
/// now. An `execve` gives the thread the name of the program's or script's file. Other new names mean nothing.
fn has_executed_another(owner: Owner, tid: u32) -> bool {
    let read = |file: &str| fs::read(format!("/proc/{}/{file}", owner.pid)).ok();
    let is_new = || {
        let comm = read(&format!("task/{tid}/comm"))?;
        let comm = comm.trim_ascii_end();
        // Without a name, nothing is known of it.
        let before = owner.comm.split(|&byte| byte == 0).next().filter(|name| !name.is_empty())?;
        if comm == before {
            return None;
        }
        // A program, or an interpreter with its options and a script.
        let command = read("cmdline")?;
        let mut words = command.split(|&byte| byte == 0).take(3);
        let is_called = |word: &[u8]| {
            let name = word.rsplit(|&byte| byte == b'/').next().unwrap_or(word);
            name.get(..COMM_LEN - 1).unwrap_or(name) == comm
        };
        Some(words.any(is_called))
    };
    is_new().unwrap_or(false)
}

fn forget(symbolizer: &mut Symbolizer, pid: u32) {
    // Evicting a process cannot fail.
    let _ = symbolizer.evict(&Evict::Process(evict::Process::new(Pid::from(pid))));
}

/// How far before an address to look: a return address lies behind its call instruction.
fn back(address: &Address) -> u64 {
    u64::from(address.is_return)
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
