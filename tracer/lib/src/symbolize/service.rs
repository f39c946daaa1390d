//! The thread that looks symbols up.

use super::files;
use super::images::ElfFile;
use super::kernel_names::KernelNames;
use super::known::{Known, Space};
use super::mappings::{self, Mapped, Mapping};
use super::watch::Watch;
use super::{Address, Frame, Owner, SymbolAccess, Watched, locked};
use crate::binary::beside::Opened;
use crate::binary::reader::{Function, Kind, Lookup, Reader, ReaderState};
use crate::binary::root::Root;
use crate::binary::{FileVersion, id_with_memory};
use crate::kernel::capabilities::Capabilities;
use crate::kernel::identity::{TO_READ_AS_ROOT, leave_all_in_thread, leave_root_to_read};
use crate::session::interrupt::Interrupt;
use crate::session::privileges::keep_only;
use probe_sys::clock::monotonic;
use rustix::fs::{MemfdFlags, memfd_create};
use std::cell::LazyCell;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

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
    /// They are offsets in these files, in bytes: each address has its file.
    Files(Vec<Arc<ElfFile>>),
}

/// The answer to a question.
#[derive(Default)]
pub(super) struct Answer {
    /// The functions at each address, the innermost first.
    pub(super) found: Found,
    /// Of a process: its mappings were read, and their files opened, between these times.
    pub(super) between: [u64; 2],
}

pub(super) type Found = Vec<Arc<[Frame]>>;

/// How often the rings of a watch are emptied, at least.
const LOOK: Duration = Duration::from_millis(50);

/// How long to wait for an answer: longer than it takes to read the largest programs.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long to wait for an answer that does not come after a signal, which wants the trace to end.
const AFTER_SIGNAL: Duration = Duration::from_secs(1);

/// How long files are opened for one answer. Each of them is given some time, so a user who prepares many could use up that of
/// others.
const READING: Duration = Duration::from_secs(15);

/// Roughly how many bytes the names in one answer take. Further addresses of the question have no names.
const ANSWER: usize = 16 << 20;

/// The number of processes whose mappings are remembered at a time, and roughly how many bytes these take.
const PROCESSES: usize = 1024;
const ROOM: usize = 16 << 20;

/// Looks symbols up in a thread of its own, until it is dropped.
#[derive(Debug)]
pub(super) struct Service {
    /// `None` once the thread has ended, or has taken too long.
    questions: Option<Sender<Question>>,
    /// Of the processes that read files.
    readers: Arc<ReaderState>,
    /// A signal that ends the waiting for answers.
    interrupt: Interrupt,
    /// The number of addresses of hits from times of which it is not known what was mapped.
    unknown: usize,
}

impl Service {
    /// Starts the thread, and waits until it has read the kernel's symbols and given up unneeded privileges. It also empties
    /// the rings of a watch in time and, if processes are watched, asks a process that reads files.
    pub(super) fn start(access: SymbolAccess, watched: &Watched) -> io::Result<Self> {
        let (questions, asked) = channel();
        let (begins, begun) = channel();
        // It is started with all privileges, which it gives up itself.
        let reader = match watched {
            Watched::Processes(_) => start_reader(),
            _ => None,
        };
        let readers = reader.as_ref().map(|reader| Arc::clone(reader.state())).unwrap_or_default();
        let watch = watched.watch().cloned();
        let run = move || {
            let mut names = Names::new(reader);
            if let Err(error) = give_up_but_for(access, watch.as_deref()) {
                log::warn!("the thread that looks up symbols keeps its privileges: {error}");
            }
            // The send fails only if nobody waits.
            let _ = begins.send(());
            names.answer(&asked, watch.as_deref());
        };
        thread::Builder::new().name("symbols".into()).spawn(run)?;
        // It fails only if the thread panicked, which has printed a message.
        let _ = begun.recv();
        Ok(Self {
            questions: Some(questions),
            readers,
            interrupt: Interrupt::default(),
            unknown: 0,
        })
    }

    /// The ids of the processes that read files.
    pub(super) fn readers(&self) -> MutexGuard<'_, Vec<u32>> {
        self.readers.ids()
    }

    /// Writes these processes into a map, now and whenever another one is started.
    pub(super) fn leave_out_readers(&self, map: OwnedFd) -> io::Result<()> {
        self.readers.leave_out_in(map)
    }

    /// The functions at each address; `None` if the thread has ended, or has not answered in time.
    pub(super) fn look_up(&mut self, place: Place, addresses: &[Address]) -> Option<Answer> {
        let (answer, answered) = channel();
        let addresses = addresses.to_vec();
        // If the thread has ended, the question is dropped, and nobody is left who could answer.
        let _ = self.questions.as_ref()?.send(Question { place, addresses, answer });
        let begun = Instant::now();
        loop {
            let why = match answered.recv_timeout(LOOK) {
                Ok(found) => return Some(found),
                Err(RecvTimeoutError::Disconnected) => "the thread that looks them up has ended",
                Err(RecvTimeoutError::Timeout) if begun.elapsed() > PATIENCE => {
                    "reading a file with names takes too long"
                }
                Err(RecvTimeoutError::Timeout) => match self.interrupt.check() {
                    Err(_) if begun.elapsed() > AFTER_SIGNAL => {
                        "a signal arrived while a file with names was read"
                    }
                    _ => continue,
                },
            };
            log::warn!("further addresses have no names, because {why}");
            self.questions = None;
            return None;
        }
    }

    /// Counts addresses that have no names because it is not known what was mapped there.
    pub(super) fn add_unknown(&mut self, number: usize) {
        self.unknown += number;
    }

    /// Lets a signal end the waiting for an answer.
    pub(super) fn interrupted_by(&mut self, interrupt: Interrupt) {
        self.interrupt = interrupt;
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        for (number, why) in [
            (self.readers.unnamed(), "files that contain them could not be read"),
            (self.unknown, "it is not known what was mapped there at the time"),
        ] {
            if number > 0 {
                log::warn!("{number} user addresses have no names, because {why}");
            }
        }
    }
}

/// Starts the process that reads files. A warning says if that fails.
fn start_reader() -> Option<Reader> {
    let warn = |error: &io::Error| {
        log::warn!(
            "user addresses have no names, because the process that reads symbols cannot be started: {error}"
        );
    };
    Reader::start().inspect_err(warn).ok()
}

/// Gives up the privileges of the calling thread that it does not need to look names up and to watch CPUs that come online.
fn give_up_but_for(access: SymbolAccess, watch: Option<&Mutex<Watch>>) -> io::Result<()> {
    let kept = match access {
        SymbolAccess::Kernel => return leave_all_in_thread(),
        SymbolAccess::Processes => TO_READ_AS_ROOT | Capabilities::CHECKPOINT_RESTORE,
    };
    leave_root_to_read()?;
    match watch {
        Some(watch) => locked(watch).keep_to_cover(kept)?,
        None => keep_only(kept)?,
    };
    Ok(())
}

struct Names {
    of_kernel: KernelNames,
    reader: Option<Reader>,
    /// Processes whose mappings are remembered.
    remembered: HashMap<u32, Remembered>,
    /// How many bytes these mappings take.
    taken: usize,
    /// Names in files.
    known: Known,
    /// The library that the kernel maps.
    vdso: Option<Opened>,
}

/// What a process has mapped, read after a time.
struct Remembered {
    owner: Owner,
    /// Its id in its own PID namespace, if it has been read.
    own_id: Option<u32>,
    since: u64,
    mappings: Arc<[Mapping]>,
}

impl Remembered {
    /// Whether they are those of the program that a process runs, or ran last.
    fn is_of(&self, owner: Owner, watch: Option<&Mutex<Watch>>) -> bool {
        match watch {
            // Each thread may have a name of its own.
            Some(watch) => locked(watch).is_same_program_since(owner.pid, self.since),
            None => self.owner == owner,
        }
    }

    /// Roughly how many bytes it takes.
    fn size(&self) -> usize {
        self.mappings.iter().map(Mapping::size).sum()
    }
}

impl Names {
    fn new(reader: Option<Reader>) -> Self {
        let of_kernel = KernelNames::open();
        let (remembered, taken, known, vdso) = (HashMap::new(), 0, Known::default(), None);
        Self { of_kernel, reader, remembered, taken, known, vdso }
    }

    fn answer(&mut self, asked: &Receiver<Question>, watch: Option<&Mutex<Watch>>) {
        loop {
            let next = match watch {
                None => asked.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(_) => asked.recv_timeout(LOOK),
            };
            if let Some(watch) = watch {
                locked(watch).cover();
                self.of_kernel.follow(watch);
            }
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
                Place::Kernel => of(self.of_kernel.look_up(&addresses, watch)),
                Place::Process(owner) => self.of_process(owner, &addresses, watch),
                Place::Files(files) => of(self.of_files(&files, &addresses)),
            };
            // The asker may have stopped waiting.
            let _ = answer.send(found);
        }
    }

    fn of_process(
        &mut self,
        owner: Owner,
        addresses: &[Address],
        watch: Option<&Mutex<Watch>>,
    ) -> Answer {
        let (since, mappings) = self.mappings(owner, watch);
        let mut found = vec![Arc::default(); addresses.len()];
        let begun = Instant::now();
        let shown = LazyCell::new(|| {
            let with_memory = id_with_memory(owner.pid);
            (with_memory, root_of(owner.pid, with_memory))
        });
        // The positions of addresses, by what is mapped there.
        let mut by_file = BTreeMap::<(PathBuf, u64), (&Mapping, Vec<_>)>::new();
        let mut in_vdso = Vec::new();
        for (n, address) in addresses.iter().enumerate() {
            let at = address.instruction();
            let Some(mapping) = mappings::at(&mappings, at) else { continue };
            let behind = at - mapping.range.start;
            match &mapping.of {
                Mapped::File { path, inode, offset } => {
                    let of_file = by_file.entry((path.clone(), *inode));
                    let of_file = of_file.or_insert_with(|| (mapping, Vec::new()));
                    of_file.1.push((n, address.in_file(offset.saturating_add(behind))));
                }
                Mapped::Vdso => in_vdso.push((n, address.in_file(behind))),
                Mapped::Memory => {}
            }
        }
        for ((path, inode), (mapping, places)) in by_file {
            if begun.elapsed() > READING {
                break;
            }
            let (with_memory, root) = &*shown;
            match files::mapped(*with_memory, root.as_ref(), &mapping.range, &path, inode) {
                Ok(opened) => self.in_program(&opened, &places, &mut found),
                Err(error) => log::debug!("no names for {}: {error}", path.display()),
            }
        }
        if !in_vdso.is_empty()
            && let Some(vdso) = self.vdso.take().or_else(|| vdso().ok())
        {
            self.in_program(&vdso, &in_vdso, &mut found);
            self.vdso = Some(vdso);
        }
        // A stack may contain values that are not addresses of code.
        let is_unknown = |&(n, address): &(usize, Address)| {
            found[n].is_empty() && mappings::at(&mappings, address.instruction()).is_some()
        };
        let unknown: Vec<_> = addresses.iter().copied().enumerate().filter(is_unknown).collect();
        if !unknown.is_empty()
            && begun.elapsed() <= READING
            && let Some(root) = &shown.1
            && let Some(own_id) = self.own_id(owner.pid)
            && let Some(file) = files::perf_map(owner.pid, root, own_id)
        {
            let path = Path::new("a list of generated code");
            let (kind, open) = (Kind::PerfMap, &|_: &_| (Vec::new(), false));
            let lookup = Lookup { kind, file: &file, path, root: None, open };
            self.ask(&lookup, None, &unknown, &mut found);
        }
        // A mapping's file is opened only now, by a path that leads to another file once that is mapped there.
        Answer { found, between: [since, monotonic()] }
    }

    fn of_files(&mut self, files: &[Arc<ElfFile>], offsets: &[Address]) -> Found {
        let mut found = vec![Arc::default(); offsets.len()];
        let mut by_file = HashMap::<_, Vec<_>>::new();
        for (file, place) in files.iter().zip(offsets.iter().copied().enumerate()) {
            by_file.entry(file).or_default().push(place);
        }
        let Ok(root) = Root::own() else { return found };
        let begun = Instant::now();
        for (file, places) in by_file {
            if begun.elapsed() > READING {
                break;
            }
            match files::at(&root, &file.path, file.inode) {
                Ok(opened) => self.in_program(&opened, &places, &mut found),
                Err(error) => log::debug!("no names for {}: {error}", file.path.display()),
            }
        }
        found
    }

    /// Looks up offsets in a program or library, and remembers their names: other processes run the same code.
    fn in_program(&mut self, opened: &Opened, places: &[(usize, Address)], found: &mut Found) {
        let (file, path, open) = (&opened.file, &*opened.path, &|wants: &_| opened.wanted(wants));
        let root = opened.root();
        let version = FileVersion::of(file).ok().filter(FileVersion::is_final);
        let space = version.map(|version| Space::Contents(version, path.to_owned(), root));
        self.known.shrink();
        let names = space.as_ref().map(|space| self.known.of(space));
        let mut unknown = Vec::new();
        for &(n, address) in places {
            match names.and_then(|names| names.since(address, 0)) {
                Some(frames) => found[n] = Arc::clone(frames),
                None => unknown.push((n, address)),
            }
        }
        if unknown.is_empty() {
            return;
        }
        let lookup = Lookup { kind: Kind::Program, file, path, root, open };
        let answered = self.ask(&lookup, Some(path), &unknown, found);
        if let Some(space) = space {
            for &(n, address) in &unknown[..answered] {
                self.known.insert(&space, address, 0, Arc::clone(&found[n]));
            }
        }
    }

    /// Asks the reader for the addresses with these numbers, which are in a file. Returns the number of addresses with an
    /// answer.
    fn ask(
        &mut self,
        lookup: &Lookup<'_>,
        module: Option<&Path>,
        places: &[(usize, Address)],
        found: &mut Found,
    ) -> usize {
        let Some(reader) = &mut self.reader else { return 0 };
        let at: Vec<u64> = places.iter().map(|(_, address)| address.instruction()).collect();
        let module = module.map(|path| path.to_string_lossy().into_owned());
        let module_len = module.as_ref().map_or(0, String::len);
        let answers = reader.functions(lookup, &at);
        let all = answers.len();
        let (mut answered, mut left) = (0, ANSWER);
        for (functions, &(n, address)) in answers.into_iter().zip(places) {
            let size: usize = functions.iter().map(|one| one.size() + module_len).sum();
            let Some(rest) = left.checked_sub(size) else {
                // The reader has counted those without an answer.
                reader.state().add_unnamed(all - answered);
                break;
            };
            (left, answered) = (rest, answered + 1);
            let back = address.back();
            let frame = |Function { name, offset, source }| Frame {
                name,
                offset: offset.map(|offset| offset.saturating_add(back)),
                module: module.clone(),
                source,
            };
            found[n] = functions.into_iter().map(frame).collect();
        }
        answered
    }

    /// The mappings of a process, and a time before they were read, since when they have been the same.
    fn mappings(&mut self, owner: Owner, watch: Option<&Mutex<Watch>>) -> (u64, Arc<[Mapping]>) {
        if let (Some(watch), Some(known)) = (watch, self.remembered.get(&owner.pid))
            && locked(watch).is_same_since(owner.pid, known.since)
        {
            return (known.since, Arc::clone(&known.mappings));
        }
        self.remember(owner, watch)
    }

    /// Reads the mappings of a process, so that they are known after it has ended. Returns them, and the time before that.
    fn remember(&mut self, owner: Owner, watch: Option<&Mutex<Watch>>) -> (u64, Arc<[Mapping]>) {
        let since = monotonic();
        let mappings = match read_mappings(owner.pid) {
            none if none.is_empty() => read_mappings(id_with_memory(owner.pid)),
            some => some,
        };
        if mappings.is_empty() {
            // A process that is exiting has no mappings any more.
            return match self.remembered.get(&owner.pid) {
                Some(known) if known.is_of(owner, watch) => {
                    (known.since, Arc::clone(&known.mappings))
                }
                _ => {
                    // They belong to another process.
                    self.forget(owner.pid);
                    (since, Arc::default())
                }
            };
        }
        let mappings: Arc<[_]> = mappings.into();
        let new = Remembered { owner, own_id: None, since, mappings: Arc::clone(&mappings) };
        self.forget(owner.pid);
        if self.remembered.len() >= PROCESSES || self.taken + new.size() > ROOM {
            self.remembered.clear();
            self.taken = 0;
        }
        self.taken += new.size();
        self.remembered.insert(owner.pid, new);
        (since, mappings)
    }

    /// The id of a process in its own PID namespace. The mappings of the process are remembered.
    fn own_id(&mut self, pid: u32) -> Option<u32> {
        let remembered = self.remembered.get_mut(&pid)?;
        remembered.own_id = remembered.own_id.or_else(|| files::own_id(pid));
        remembered.own_id
    }

    fn forget(&mut self, pid: u32) {
        self.taken -= self.remembered.remove(&pid).map_or(0, |one| one.size());
    }
}

/// The mappings of a process; none if it has ended, or if they cannot be read.
fn read_mappings(pid: u32) -> Vec<Mapping> {
    mappings::read(&pid.to_string()).unwrap_or_default()
}

/// The root directory of a process, which this thread shows: after its end, that of this process.
fn root_of(pid: u32, with_memory: u32) -> Option<Arc<Root>> {
    let root = Root::of(with_memory).or_else(|error| {
        match read_mappings(id_with_memory(pid)).is_empty() {
            true => Root::own(),
            false => Err(error),
        }
    });
    root.inspect_err(|error| log::debug!("no root directory of process {pid}: {error}")).ok()
}

/// The library that the kernel maps, as a file.
fn vdso() -> io::Result<Opened> {
    let own = mappings::read("self")?;
    let mapping = own.iter().find(|one| one.of == Mapped::Vdso).ok_or(io::ErrorKind::NotFound)?;
    let mut bytes = vec![0; (mapping.range.end - mapping.range.start) as usize];
    File::open("/proc/self/mem")?.read_exact_at(&mut bytes, mapping.range.start)?;
    let mut file = File::from(memfd_create("vdso", MemfdFlags::CLOEXEC)?);
    file.write_all(&bytes)?;
    Ok(Opened::trusted(file, "[vdso]"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::binary::root::tests::Chrooted;
    use probe_perf::Target;
    use probe_testing::crafted::{elf, inlined};
    use probe_testing::shell::Shell;
    use probe_testing::skip::skip;
    use rustix::process::geteuid;
    use std::fs;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn mappings_are_read_again_only_if_something_was_mapped() {
        let watch = Mutex::new(Watch::of_processes(&Target::ThisProcess).unwrap());
        let mut shell = Shell::start("echo; read go; exec cat");
        let owner = Owner { pid: shell.id(), comm: [0; _] };
        let mut names = Names::new(None);
        let mut read = || names.mappings(owner, Some(&watch)).1;
        let first = read();
        assert!(!first.is_empty() && Arc::ptr_eq(&first, &read()));
        shell.lead(b"go\nx");
        let of_cat = read();
        assert!(!Arc::ptr_eq(&first, &of_cat) && first != of_cat);
        assert!(Arc::ptr_eq(&of_cat, &read()));
        shell.end();
        // Of whatever thread, as that of a process that has ended.
        let owner = Owner { comm: [1; _], ..owner };
        assert!(Arc::ptr_eq(&of_cat, &names.mappings(owner, Some(&watch)).1));
        let (libc, function) = probe_sys::process::linked_function(c"getpid").unwrap();
        let libc = std::fs::canonicalize(libc).unwrap();
        let address = of_cat.iter().find_map(|mapping| {
            let Mapped::File { path, offset, .. } = &mapping.of else { return None };
            let at = mapping.range.start + function.checked_sub(*offset)?;
            (*path == libc && mapping.range.contains(&at)).then_some(at)
        });
        let address = Address { at: address.unwrap(), is_return: false };
        names.reader = Some(Reader::start().unwrap());
        let answer = names.of_process(owner, &[address], Some(&watch));
        assert_eq!(answer.found[0].last().map(|one| &*one.name), Some("getpid"));
    }

    #[test]
    fn names_in_a_file_are_remembered_until_it_changes() {
        let (libc, offset) = probe_sys::process::linked_function(c"getpid").unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("library");
        std::fs::copy(libc, &path).unwrap();
        // A version is remembered once it is old enough to differ from the next one.
        thread::sleep(Duration::from_millis(40));
        let inode = path.metadata().unwrap().ino();
        let file = Arc::new(ElfFile { path: path.clone(), inode });
        let mut names = Names::new(None);
        let address = Address { at: offset, is_return: false };
        let mut is_named = |reader: Option<Reader>| {
            names.reader = reader;
            let files = [Arc::clone(&file)];
            let found = names.of_files(&files, &[address]);
            found[0].last().is_some_and(|one| one.name == "getpid")
        };
        assert!(!is_named(None));
        assert!(is_named(Some(Reader::start().unwrap())));
        assert!(is_named(None));
        File::options().append(true).open(&path).unwrap().write_all(b"x").unwrap();
        assert!(!is_named(None));
    }

    #[test]
    fn names_of_files_in_a_root_directory_are_not_those_of_another() {
        if !geteuid().is_root() {
            return skip("only root can change the root directory");
        }
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let (abbreviations, unit) = inlined(&["inlined"]);
        let debug = elf(&[(".debug_abbrev", false, &abbreviations), (".debug_info", false, &unit)]);
        let sum = crc32fast::hash(&debug).to_le_bytes();
        let link = [b"x.debug\0", &sum[..]].concat();
        fs::write(path("x"), elf(&[(".gnu_debuglink", false, &link)])).unwrap();
        // Where only a process with this root directory has it.
        fs::create_dir_all(path("usr/lib/debug")).unwrap();
        fs::write(path("usr/lib/debug/x.debug"), debug).unwrap();
        thread::sleep(Duration::from_millis(40));
        let process = Chrooted::start(dir.path());
        let inode = path("x").metadata().unwrap().ino();
        let mut names = Names::new(Some(Reader::start().unwrap()));
        for (root, first) in [
            (Root::own(), "f"),
            (Root::of(process.pid()), "inlined"),
            (Root::own(), "f"),
            (Root::of(process.pid()), "inlined"),
        ] {
            let opened = files::at(&root.unwrap(), &path("x"), inode).unwrap();
            for at in [0, 1] {
                let (address, mut found) = (Address { at, is_return: false }, vec![Arc::default()]);
                names.in_program(&opened, &[(0, address)], &mut found);
                assert_eq!(found[0][0].name, first);
            }
        }
    }

    #[test]
    fn a_thread_that_has_ended_is_not_asked_again() {
        let (questions, asked) = channel();
        drop(asked);
        let questions = Some(questions);
        let (readers, interrupt) = (Arc::default(), Interrupt::default());
        let mut service = Service { questions, readers, interrupt, unknown: 0 };
        assert!(service.look_up(Place::Kernel, &[]).is_none());
        assert!(service.questions.is_none());
    }

    #[test]
    fn mappings_are_not_remembered_without_limit() {
        let mut names = Names::new(None);
        let own = Owner { pid: std::process::id(), comm: [0; _] };
        names.remember(own, None);
        let of_this = names.taken;
        assert!(of_this > 0);
        names.remember(own, None);
        assert_eq!(names.taken, of_this);
        names.taken = ROOM;
        names.remember(Owner { pid: std::os::unix::process::parent_id(), ..own }, None);
        assert!(names.remembered.len() == 1 && names.taken < ROOM, "{}", names.taken);
    }
}
