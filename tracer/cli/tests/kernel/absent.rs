//! Strings on pages that are not in memory when a probe is hit: the kernel, or the program, reads them a moment later.

use crate::probe::commands::{own, requested_work, workload as workload_of};
use crate::probe::{Run, all_json_lines, counts, events, json_lines, ledger, stderr, trace};
use serde_json::Value;
use std::ffi::c_char;
use std::hint::black_box;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The kernel maps the pages around one that is missing, in aligned groups of this many bytes.
const APART: usize = 64 << 10;

/// The number of strings.
pub(crate) const STRINGS: usize = 1000;

/// What this program's own file has, each in a group of pages that nothing else uses.
const OWN_STRINGS: usize = 20;

#[repr(align(65536))]
struct OwnString([u8; APART]);

/// Initialized, so that it is in the file, and in data that nobody changes.
static OWN: [OwnString; OWN_STRINGS] = {
    let mut all = [const { OwnString([0; APART]) }; OWN_STRINGS];
    let mut n = 0;
    while n < OWN_STRINGS {
        // A page that is not the first of its group: what is before the group may be touched.
        let at = APART / 2;
        let text = *b"own string 00";
        let mut byte = 0;
        while byte < text.len() {
            all[n].0[at + byte] = text[byte];
            byte += 1;
        }
        all[n].0[at + text.len() - 2] += n as u8 / 10;
        all[n].0[at + text.len() - 1] += n as u8 % 10;
        n += 1;
    }
    all
};

/// The `n`th string of this program's own file.
fn own_string(n: usize) -> *const c_char {
    OWN[n].0[APART / 2..].as_ptr().cast()
}

/// The strings of this program's own file, in the order in which they are read.
pub(crate) fn own_strings() -> impl Iterator<Item = String> {
    (0..OWN_STRINGS).map(|n| format!("own string {n:02}"))
}

/// The name of the thread that uses them, which does nothing else under this name.
const NAME: &str = "absent";

/// An address of no memory.
const NOWHERE: usize = 0x1234_5678_9000;

/// An address where nothing is mapped in any program.
const THERE: usize = 0x3456_7890_0000;

/// The highest page of a stack, where a program finds its environment, if addresses are not random.
const STACK: usize = 0x7fff_ffff_e000;

/// The `n`th string.
pub(crate) fn path(n: usize) -> String {
    format!("/probe-test-none/{n:04}")
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn absent_fixture_reads(text: *const c_char) -> usize {
    // SAFETY: callers pass a string.
    unsafe { libc::strlen(black_box(text)) }
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn absent_fixture_ignores(text: *const c_char) -> usize {
    black_box(text).addr()
}

/// Maps the strings, each in a group of pages that was never touched. They begin `before` bytes before the group.
fn map(strings: usize, before: usize) -> Vec<*const c_char> {
    let file = tempfile::tempfile().unwrap();
    let len = (strings + 1) * APART;
    file.set_len(len as u64).unwrap();
    for n in 0..strings {
        let at = (n + 1) * APART - before;
        file.write_all_at(path(n).as_bytes(), at as u64).unwrap();
    }
    let (none, read) = (libc::PROT_NONE, libc::PROT_READ);
    let (anonymous, private) = (libc::MAP_ANONYMOUS | libc::MAP_PRIVATE, libc::MAP_PRIVATE);
    // SAFETY: a new mapping.
    let room = unsafe { libc::mmap(ptr::null_mut(), len + APART, none, anonymous, -1, 0) };
    assert_ne!(room, libc::MAP_FAILED);
    let start = room
        .cast::<u8>()
        .wrapping_add(room.align_offset(1))
        .map_addr(|at| at.next_multiple_of(APART));
    let fixed = private | libc::MAP_FIXED;
    // SAFETY: it replaces a part of that mapping.
    let mapped = unsafe { libc::mmap(start.cast(), len, read, fixed, file.as_raw_fd(), 0) };
    assert_eq!(mapped, start.cast());
    (0..strings).map(|n| start.wrapping_add((n + 1) * APART - before).cast_const().cast()).collect()
}

/// Maps this string at [`THERE`], in a page that was never touched.
fn map_there(text: &str) -> *const c_char {
    // SAFETY: nothing is there.
    unsafe { map_at(THERE, text) }
}

/// What a call that failed is about to find at [`THERE`]: nothing of this takes a page fault outside the kernel once it has run.
struct Later {
    file: std::fs::File,
    /// Untouched memory, of which each use takes a page.
    room: *mut u8,
}

impl Later {
    fn new(text: &str) -> Self {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.set_len(rustix::param::page_size() as u64).unwrap();
        let (size, how) = (16 * APART, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping.
        let room = unsafe { libc::mmap(ptr::null_mut(), size, access, how, -1, 0) };
        assert_ne!(room, libc::MAP_FAILED);
        Self { file, room: room.cast() }
    }

    /// Memory that only the kernel touches.
    fn room(&mut self) -> *mut c_char {
        self.room = self.room.wrapping_add(APART);
        self.room.cast()
    }

    /// Maps the text, in a page that is in memory.
    fn map(&self) {
        self.map_at(&AtomicUsize::new(THERE));
    }

    /// The same at an address, and the next time before it.
    #[inline(never)]
    fn map_at(&self, next: &AtomicUsize) {
        let how = libc::MAP_PRIVATE | libc::MAP_FIXED | libc::MAP_POPULATE;
        let at = ptr::without_provenance_mut(next.fetch_sub(APART, Ordering::Relaxed));
        let page = rustix::param::page_size();
        // SAFETY: nothing else is there.
        let mapped =
            unsafe { libc::mmap(at, page, libc::PROT_READ, how, self.file.as_raw_fd(), 0) };
        assert_eq!(mapped, at);
    }

    fn unmap(&self) {
        let at = ptr::without_provenance_mut(THERE);
        // SAFETY: nobody uses what is there.
        assert_eq!(unsafe { libc::munmap(at, rustix::param::page_size()) }, 0);
    }
}

/// Opens what is nowhere until the call has failed. Then the kernel takes a page fault in another call.
fn open_nothing() {
    let mut later = Later::new(LATER);
    for _ in 0..ROUNDS {
        open(ptr::without_provenance(THERE));
        later.map();
        // SAFETY: there is room for a path.
        assert!(!unsafe { libc::getcwd(later.room(), 4096) }.is_null());
        later.unmap();
    }
}

/// Reads a symbolic link into untouched memory, twice by the same system call and with the same registers: the first time, its
/// path is nowhere.
fn read_link_twice() {
    let mut later = Later::new(LINK);
    for _ in 0..ROUNDS {
        let to = later.room();
        // The path is mapped behind the place first.
        let next = AtomicUsize::new(THERE + APART);
        loop {
            later.map_at(&next);
            // SAFETY: the kernel checks the path, and there is room for one.
            if unsafe { libc::readlink(ptr::without_provenance(THERE), to, 4096) } > 0 {
                break;
            }
        }
        later.unmap();
    }
}

/// In the first round, code of this program is not in memory either.
const ROUNDS: usize = 3;

const LATER: &str = "/probe-test-none/later";

const LINK: &str = "/proc/self/exe";

/// Maps this string at an address, in a page that was never touched.
///
/// # Safety
///
/// Nobody may use what was in that page.
unsafe fn map_at(address: usize, text: &str) -> *const c_char {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let page = rustix::param::page_size();
    file.set_len(page as u64).unwrap();
    let (at, flags) = (ptr::without_provenance_mut(address), libc::MAP_PRIVATE | libc::MAP_FIXED);
    // SAFETY: the caller's promise.
    let mapped = unsafe { libc::mmap(at, page, libc::PROT_READ, flags, file.as_raw_fd(), 0) };
    assert_eq!(mapped.addr(), address);
    mapped.cast_const().cast()
}

/// Executes a program whose path is where the stack of that program will be.
fn execute_from_its_stack() {
    const PROGRAM: &str = "/bin/true";
    // SAFETY: it changes only what this process executes.
    assert_ne!(unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) }, -1);
    let environment = std::ffi::CString::new(vec![b'X'; 8 << 10]).unwrap();
    let (arguments, environment) =
        ([c"true".as_ptr(), ptr::null()], [environment.as_ptr(), ptr::null()]);
    // SAFETY: if the stack of the first thread is there, that thread does not run any more.
    let path = unsafe { map_at(STACK, PROGRAM) };
    // SAFETY: the strings and the lists of them end.
    unsafe { libc::execve(path, arguments.as_ptr(), environment.as_ptr()) };
    panic!("{}", std::io::Error::last_os_error());
}

/// Opens what does not exist.
fn open(path: *const c_char) {
    // SAFETY: the kernel checks the address.
    assert_eq!(unsafe { libc::open(path, libc::O_RDONLY) }, -1);
}

fn nowhere(n: usize) -> *const c_char {
    ptr::without_provenance(NOWHERE + 8 * n)
}

/// Does the requested work.
#[test]
#[ignore = "what the others trace: cargo xtask test"]
fn workload() {
    let work = requested_work();
    let mut words = work.split_terminator(' ');
    let Some(work) = words.next() else { return };
    let number = |word: Option<&str>| word.map_or(0, |word| word.parse().unwrap());
    let (count, before) = (number(words.next()), number(words.next()));
    let paths = map(if work == "nowhere" { 0 } else { count }, before);
    let name = std::ffi::CString::new(NAME).unwrap();
    // SAFETY: it is a string.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    match work {
        "opens" => paths.into_iter().for_each(open),
        "nowhere" => (0..count).for_each(|n| open(nowhere(n))),
        "exits" => {
            let paths: Vec<_> = paths.into_iter().map(<*const c_char>::addr).collect();
            for (n, path) in paths.into_iter().enumerate() {
                let thread = std::thread::spawn(move || {
                    open(ptr::with_exposed_provenance(path));
                    open(nowhere(n));
                });
                thread.join().unwrap();
            }
        }
        "reads" => paths.into_iter().for_each(|path| {
            assert_eq!(absent_fixture_reads(path), self::path(0).len());
        }),
        "reads_own" => (0..OWN_STRINGS).for_each(|n| {
            assert_eq!(absent_fixture_reads(own_string(n)), "own string 00".len());
        }),
        "opens_nothing" => open_nothing(),
        "reads_link_twice" => read_link_twice(),
        "points_at_nothing" => {
            absent_fixture_ignores(ptr::without_provenance(THERE));
            let text = map_there("/another/text");
            assert_eq!(absent_fixture_reads(text), "/another/text".len());
        }
        "ignores" => paths.into_iter().for_each(|path| {
            assert_eq!(absent_fixture_ignores(path), path.addr());
        }),
        "continues" => {
            open(nowhere(0));
            for _ in 0..count {
                std::thread::sleep(Duration::from_millis(20));
                open(c"/".as_ptr().wrapping_add(1));
            }
        }
        "executes" => {
            // In a process of one thread: any other gets another id when it executes a program.
            // SAFETY: the child has no other thread's lock to wait for, as this is the only test that runs.
            let child = unsafe { libc::fork() };
            if child != 0 {
                // SAFETY: the status is not wanted.
                assert_eq!(unsafe { libc::waitpid(child, ptr::null_mut(), 0) }, child);
                return;
            }
            absent_fixture_ignores(map_there(&self::path(0)));
            let [program, arguments @ ..] = self::work("executed");
            panic!("{}", Command::new(program).args(arguments).exec());
        }
        "executes_from_its_stack" => execute_from_its_stack(),
        "executed" => {
            let text = map_there("/another/text");
            assert_eq!(absent_fixture_reads(text), "/another/text".len());
        }
        "waits" => {
            open(nowhere(0));
            std::io::stderr().write_all(b"waiting\n").unwrap();
            std::thread::sleep(Duration::from_secs(200));
        }
        _ => panic!("{work}"),
    }
}

/// A command that does this work.
pub(crate) fn work(work: &str) -> [String; 5] {
    workload_of("absent", work)
}

/// Asserts that the strings of these events are all of those of the workload, each once and in order.
#[track_caller]
pub(crate) fn assert_strings<'e>(events: impl IntoIterator<Item = &'e Value>, field: &str) {
    let strings: Vec<_> = events.into_iter().map(|event| event["args"][field].clone()).collect();
    let expected: Vec<_> = (0..STRINGS).map(|n| Value::from(path(n))).collect();
    let different = strings.iter().zip(&expected).filter(|(one, other)| one != other).count();
    assert!(strings == expected, "{} strings, {different} are wrong", strings.len());
}

const OPENS: &str = "tracepoint:syscalls:sys_enter_openat";

/// A spec for the opens of the workload.
pub(crate) fn opens(fields: &str, condition: &str) -> String {
    format!("{OPENS}({fields})/comm == \"{NAME}\"{condition}/")
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn every_string_is_read_and_has_the_time_of_its_hit() {
    // The second program runs right after the first one. It reads no memory, so its hits do not wait.
    let probes = [opens("filename", ""), opens("flags", "")];
    let events = events(probes, work(&format!("opens {STRINGS}")));
    let (strings, others): (Vec<_>, Vec<_>) =
        events.iter().partition(|event| event["args"].get("filename").is_some());
    assert_strings(strings.iter().copied(), "filename");
    assert_eq!(others.len(), STRINGS);
    let time = |event: &Value| event["time"].as_u64().unwrap();
    for (n, (string, other)) in strings.iter().zip(&others).enumerate() {
        assert!(time(string) < time(other), "{n}: {string} {other}");
        assert!(others.get(n + 1).is_none_or(|next| time(other) < time(next)));
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn strings_on_two_pages_are_whole() {
    let events = events([opens("filename", "")], work(&format!("opens {STRINGS} 5")));
    assert_strings(&events, "filename");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn conditions_wait_for_the_string() {
    let all = work(&format!("opens {STRINGS}"));
    let wanted = path(STRINGS / 2);
    let is_it = format!(" && filename == \"{wanted}\"");
    let found = events([opens("flags", &is_it)], &all);
    assert_eq!(found.len(), 1, "{found:#?}");
    let is_not = format!(" && filename != \"{wanted}\"");
    assert_eq!(events([opens("filename", &is_not)], &all).len(), STRINGS - 1);
    let condition = format!("{OPENS}/comm == \"{NAME}\"{is_not}/");
    let (counted, text) = counts([condition], &all);
    let counted: u64 = counted.into_values().flatten().map(|(_, count)| count).sum();
    assert_eq!(counted, STRINGS as u64 - 1, "{text}");
    // Samples are of the hits that the condition accepts.
    let on_one_cpu = ["taskset", "-c", "0"].map(str::to_owned).into_iter().chain(all);
    let sampled = events([opens("filename", &is_not).as_str(), "--sample", "1/10"], on_one_cpu);
    assert_eq!(sampled.len(), STRINGS.div_ceil(10));
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn several_probes_wait_at_the_same_time() {
    let probes = ["filename", "filename, dfd", "filename, flags"].map(|fields| opens(fields, ""));
    let events = events(probes, work(&format!("opens {STRINGS}")));
    for fields in 1..=2 {
        let of = |event: &&Value| event["args"].as_object().unwrap().len() == fields;
        let events: Vec<_> = events.iter().filter(of).collect();
        assert_eq!(events.len(), fields * STRINGS);
        for (n, event) in events.iter().enumerate() {
            assert_eq!(event["args"]["filename"], path(n / fields), "{event}");
        }
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn what_is_nowhere_is_reported_once() {
    const OPENED: usize = 50;
    let output = trace([opens("filename", "")], work(&format!("nowhere {OPENED}")));
    let events = json_lines(&output);
    assert_eq!(events.len(), OPENED, "{events:#?}");
    assert!(events.iter().all(|event| event["faults"] == serde_json::json!(["filename"])));
    let condition = opens("filename", " && filename == \"nowhere\"");
    let output = trace([condition], work(&format!("nowhere {OPENED}")));
    let lines = all_json_lines(&output);
    let missed = &lines.last().unwrap()["missed"][0];
    assert_eq!((lines.len(), &missed["undecided"]), (2, &Value::from(OPENED)));
    let text = stderr(&output);
    assert!(text.contains(&format!("{OPENED} hits undecided (")), "{text}");
}

/// What can be read decides about a hit, wherever it is in the predicate.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_string_that_does_not_matter_leaves_no_hit_undecided() {
    const OPENED: u64 = 20;
    let (wrong, right) = ("filename == \"nowhere\"", "flags == O_RDONLY");
    for (condition, reported, undecided) in [
        (format!("({wrong} || {right})"), OPENED, 0),
        (format!("({right} || {wrong})"), OPENED, 0),
        (format!("{wrong} && dfd == 7"), 0, 0),
        (format!("dfd == 7 && {wrong}"), 0, 0),
        ("filename != \"nowhere\" && dfd == 7".to_owned(), 0, 0),
        (format!("!({wrong} || {right})"), 0, 0),
        (format!("!({wrong} && dfd == 7)"), OPENED, 0),
        ("(filename !~ \"no*\" || filename == comm || flags == O_RDONLY)".to_owned(), OPENED, 0),
        (format!("({wrong} || dfd == 7)"), 0, OPENED),
        (format!("!({wrong} || dfd == 7)"), 0, OPENED),
        (format!("{wrong} && {right}"), 0, OPENED),
    ] {
        let spec = opens("dfd", &format!(" && {condition}"));
        let output = trace([spec], work(&format!("nowhere {OPENED}")));
        let lines = all_json_lines(&output);
        let undecided_of = |line: &Value| line["missed"][0]["undecided"].as_u64().unwrap_or(0);
        let found = (lines.len() as u64 - 2, undecided_of(lines.last().unwrap()));
        assert_eq!(found, (reported, undecided), "{condition}: {}", stderr(&output));
    }
}

/// What has no extent cannot be read later, either. The hits of the other probe come after those of this one.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_string_whose_length_cannot_be_read_does_not_wait() {
    // No task that has executed a program submits blocks at the same time.
    let fields = ["text=p.mm.arg_start:ustr[p.plug.rq_count]", "old_pid"];
    let probes = fields.map(|field| format!("rawtp:sched_process_exec({field})"));
    let output = trace(probes, ["sh", "-c", "env env env env true"]);
    let events = json_lines(&output);
    let faulted: Vec<_> = events.iter().map(|event| &event["faults"]).collect();
    let (faulted, rest) = faulted.as_chunks();
    assert!(faulted.len() >= 6 && rest.is_empty(), "{events:#?}");
    let text = serde_json::json!(["text"]);
    assert!(faulted.iter().all(|pair| *pair == [&text, &Value::Null]), "{events:#?}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_thread_that_exits_leaves_its_hits() {
    const THREADS: usize = 100;
    let output = trace([opens("filename", "")], work(&format!("exits {THREADS}")));
    let events = json_lines(&output);
    assert_eq!(events.len(), 2 * THREADS);
    for (n, pair) in events.chunks(2).enumerate() {
        assert_eq!(pair[0]["args"]["filename"], path(n));
        assert_eq!(pair[1]["faults"], serde_json::json!(["filename"]));
    }
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn hits_that_wait_are_in_the_order_of_time() {
    // The first hit waits for half a second at least.
    const LATER: usize = 60;
    let probes = [opens("filename", ""), opens("flags", "")];
    let output = trace(
        probes.into_iter().chain(["--ordered".to_owned()]),
        work(&format!("continues {LATER}")),
    );
    let lines = all_json_lines(&output);
    // In the order in which they were printed.
    let events: Vec<_> = lines.iter().filter(|line| line.get("time").is_some()).collect();
    assert_eq!(events.len(), 2 * (1 + LATER));
    assert_eq!(events[0]["faults"], serde_json::json!(["filename"]));
    assert!(events.is_sorted_by_key(|event| event["time"].as_u64().unwrap()));
    assert_eq!(lines.last().unwrap()["late"], 0);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_wait_ends_while_the_trace_goes_on() {
    let spec = opens("filename", "");
    let mut args = vec!["trace".to_owned(), "-F".into(), "jsonl".into(), "--max-events".into()];
    args.extend(["1".to_owned(), spec, "--".into()]);
    args.extend(work("waits"));
    let begun = Instant::now();
    // It ends with the first event.
    let output = Run::start(args).finish();
    assert_eq!(ledger(&output).lost, 0);
    // The command takes longer than that.
    assert!(begun.elapsed() < Duration::from_secs(100), "{:?}", begun.elapsed());
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn a_string_is_not_read_from_the_memory_of_the_next_program() {
    let spec = format!("u:{}:absent_fixture_ignores(text=arg0:str)", own());
    let output = trace([spec], work("executes"));
    let [event] = &json_lines(&output)[..] else { panic!("{}", stderr(&output)) };
    assert_eq!(event["faults"], serde_json::json!(["text"]), "{event}");
}

/// What a call that failed pointed at may be there later.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_string_is_not_read_after_its_call() {
    let output = trace([opens("filename", "")], work("opens_nothing"));
    let events = json_lines(&output);
    let is_absent = |event: &&Value| event["faults"] == serde_json::json!(["filename"]);
    assert_eq!(events.iter().filter(is_absent).count(), ROUNDS, "{events:#?}");
    assert!(events.iter().all(|event| event["args"]["filename"] != LATER), "{events:#?}");
    let links = format!("tracepoint:syscalls:sys_enter_readlink(path)/comm == \"{NAME}\"/");
    let output = trace([links], work("reads_link_twice"));
    let events = json_lines(&output);
    let (pairs, rest) = events.as_chunks();
    assert_eq!((pairs.len(), rest.len()), (ROUNDS, 0));
    for [nowhere, there] in pairs {
        assert_eq!(nowhere["faults"], serde_json::json!(["path"]), "{nowhere}");
        assert_eq!(there["args"]["path"], LINK, "{there}");
    }
}

/// The same for a predicate, and for counts.
#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn a_condition_does_not_hold_for_what_is_there_after_the_call() {
    let condition = format!(" && filename == \"{LATER}\"");
    let output = trace([opens("filename", &condition)], work("opens_nothing"));
    assert!(json_lines(&output).is_empty(), "{}", stderr(&output));
    let undecided = format!("{ROUNDS} hits undecided (");
    assert!(stderr(&output).contains(&undecided), "{}", stderr(&output));
    let condition = format!("{OPENS}/comm == \"{NAME}\"{condition}/");
    let (counted, text) = counts([condition], work("opens_nothing"));
    let counted: u64 = counted.into_values().flatten().map(|(_, count)| count).sum();
    assert_eq!(counted, 0, "{text}");
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn a_program_has_the_strings_of_its_own_file() {
    let own = own();
    let spec = format!("u:{own}:absent_fixture_reads(text=arg0:str)");
    let events = events([spec], work("reads_own"));
    let strings: Vec<_> = events.iter().map(|event| event["args"]["text"].clone()).collect();
    let expected: Vec<_> = own_strings().map(Value::from).collect();
    assert_eq!(strings, expected);
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn a_string_is_not_read_where_a_program_maps_it_later() {
    let own = own();
    let specs =
        ["ignores", "reads"].map(|what| format!("u:{own}:absent_fixture_{what}(text=arg0:str)"));
    let output = trace(specs, work("points_at_nothing"));
    let events = json_lines(&output);
    assert_eq!(events.len(), 2, "{}", stderr(&output));
    assert!(events.iter().all(|event| event["args"]["text"].is_null()), "{events:#?}");
}

#[test]
#[ignore = "needs root, BPF and uprobes: cargo xtask test"]
fn a_program_reads_its_string_before_it_returns() {
    let own = own();
    let spec = format!("u:{own}:absent_fixture_reads(text=arg0:str, retval:u64)");
    let read = events([spec.as_str(), "--ret"], work(&format!("reads {STRINGS}")));
    assert_strings(&read, "text");
    let spec = format!("u:{own}:absent_fixture_ignores(text=arg0:str)");
    let output = trace([spec], work("ignores 20"));
    let ignored = json_lines(&output);
    assert_eq!(ignored.len(), 20);
    assert!(ignored.iter().all(|event| event["args"]["text"].is_null()), "{ignored:#?}");
}
