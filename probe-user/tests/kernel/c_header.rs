//! Programs in C that use `probe.h`: they pass the same checks as those in Rust.

#[path = "../../examples/forks/record.rs"]
mod record;

use crate::adaptive::{adaptive, check_packing};
use crate::clock::check_block_times;
use crate::ledger::{assert_exact_of, check_ledger_of_two_kinds};
use crate::nesting::{self, interrupt};
use crate::pipe::{check_refusals, check_tails};
use crate::suite::{AMPLE, Loaded, load_object, page_size, rejecting};
use aya::EbpfLoader;
use aya::programs::RawTracePoint;
use probe_user::common::control::{
    CLOCK_GLOBAL, CONTROL_CPUS, Clock, CpuControl, Flushed, MOST_UNANSWERED,
};
use probe_user::common::limits::{
    BUILTIN_KINDS, DEPTH, FIRST_USER_KIND, KINDS, MAX_EMIT, MAX_PACKED, TALLY_BANKS, USER_KINDS,
};
use probe_user::common::slot::{BLOCK_KINDS, SlotHead};
use probe_user::common::tally::{Bank, FailureClass, OutputTally};
use probe_user::{EvPipe, Options, Wakeup};
use record::Forked;
use std::fmt::Write;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// Compiles a file of this crate, as a user would, with more lines at its end.
fn compile(file: &str, more: &str) -> Vec<u8> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = tempfile::tempdir().unwrap();
    let (source, object) = (folder.path().join("main.bpf.c"), folder.path().join("main.bpf.o"));
    let lines = format!("#include \"{}\"\n{more}", root.join(file).display());
    std::fs::write(&source, lines).unwrap();
    let mut clang = Command::new("clang");
    clang.args(["-target", "bpf", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-c", "-o"]);
    clang.arg(&object).arg(source).arg("-I").arg(root.join("../probe-ebpf/include"));
    // Debian keeps <asm/types.h> here, where clang does not look for it if the target is bpf.
    clang.arg(format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH));
    let status = clang.status().expect("Debian's packages clang and libbpf-dev are needed");
    assert!(status.success(), "clang: {status}");
    std::fs::read(object).unwrap()
}

/// Compiles the programs of the suite.
fn suite() -> &'static [u8] {
    static OBJECT: OnceLock<Vec<u8>> = OnceLock::new();
    OBJECT.get_or_init(|| compile("tests/ebpf/numbered.bpf.c", ""))
}

fn load_with(loader: &mut EbpfLoader<'_>) -> Loaded {
    load_object(loader, suite())
}

fn load() -> Loaded {
    load_with(&mut EbpfLoader::new())
}

/// Opens a pipe, which finds all its parts.
fn open(options: &Options) -> (Loaded, EvPipe) {
    let mut object = load();
    let pipe = EvPipe::from_object(&mut object, options).unwrap();
    (object, pipe)
}

#[test]
#[ignore = "needs clang: cargo xtask test"]
fn the_header_has_the_values_and_layouts_of_the_crates() {
    let class = |class: FailureClass| class as usize;
    let bank = |bank: Bank| bank.index() as usize;
    let mut asserts = String::new();
    let mut same = |name: &str, value: usize| {
        writeln!(asserts, "_Static_assert({name} == {value}, \"differs\");").unwrap();
    };
    same("PROBE_MAX_EMIT", MAX_EMIT);
    same("PROBE_MAX_PACKED", MAX_PACKED as usize);
    same("PROBE_DEPTH", DEPTH as usize);
    same("PROBE_FIRST_USER_KIND", FIRST_USER_KIND as usize);
    same("PROBE_BUILTIN_KINDS", BUILTIN_KINDS as usize);
    same("PROBE_USER_KINDS", USER_KINDS as usize);
    same("PROBE_KINDS", KINDS as usize);
    same("PROBE_BLOCK_KINDS", BLOCK_KINDS);
    same("PROBE_CONTROL_CPUS", CONTROL_CPUS as usize);
    same("PROBE_MOST_UNANSWERED", MOST_UNANSWERED as usize);
    same("PROBE_BANKS", TALLY_BANKS as usize);
    same("PROBE_SENT_FIRST", bank(Bank::SentFirst));
    same("PROBE_SENT_NESTED", bank(Bank::SentNested));
    same("PROBE_FAILED", bank(Bank::Failed(FailureClass::NoSpace)));
    same("PROBE_NO_SPACE", class(FailureClass::NoSpace));
    same("PROBE_NO_EVENT", class(FailureClass::NoEvent));
    same("PROBE_NOT_ACTIVE", class(FailureClass::NotActive));
    same("PROBE_TOO_BIG", class(FailureClass::TooBig));
    same("PROBE_BUSY", class(FailureClass::Busy));
    same("PROBE_FAULT", class(FailureClass::Fault));
    same("PROBE_NESTED", class(FailureClass::Nested));
    same("PROBE_OTHER", class(FailureClass::Other));
    same("PROBE_FAILURES", FailureClass::COUNT);
    same("PROBE_FLUSH_SENT", Flushed::Sent as usize);
    same("PROBE_FLUSH_HELD", Flushed::Held as usize);
    same("PROBE_FLUSH_KEPT", Flushed::Kept as usize);
    same("PROBE_PER_RECORD", Clock::PerRecord as usize);
    same("PROBE_PER_BLOCK", Clock::PerBlock as usize);
    same("PROBE_COARSE", Clock::Coarse as usize);
    macro_rules! offsets {
        ($of:literal, $type:ident: $($field:ident)*) => {$(
            let name = concat!("__builtin_offsetof(struct ", $of, ", ", stringify!($field), ")");
            same(name, offset_of!($type, $field));
        )*};
    }
    offsets!("probe_slot", SlotHead: claims given_back fill seq time kinds);
    same("__builtin_offsetof(struct probe_slot, used)", offset_of!(SlotHead, prefix));
    offsets!("probe_control", CpuControl: limit eager open ending ended wakeups answered owner);
    offsets!("probe_control", CpuControl: lost_records failures);
    offsets!("probe_outputs", OutputTally: lost_records failed);
    compile("tests/ebpf/numbered.bpf.c", &asserts);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn the_example_in_c_emits_the_records_of_the_one_in_rust() {
    let bytes = compile("examples/forks/forks.bpf.c", "");
    let mut object = load_object(&mut EbpfLoader::new(), &bytes);
    let pipe = EvPipe::from_object(&mut object, &Options::new()).unwrap();
    let program: &mut RawTracePoint = object.program_mut("on_fork").unwrap().try_into().unwrap();
    program.load().unwrap();
    program.attach("sched_process_fork").unwrap();
    Command::new("true").status().unwrap();
    program.unload().unwrap();
    let (mut forks, comm) = (0, std::fs::read_to_string("/proc/thread-self/comm").unwrap());
    let mut handlers = rejecting();
    handlers.on::<Forked, _>(|event| {
        if event.pid == std::process::id() {
            forks += 1;
            assert_eq!(str::from_utf8(&event.comm).unwrap().trim_end_matches('\0'), comm.trim());
        }
    });
    let ledger = pipe.close(&mut handlers).ledger.unwrap();
    drop(handlers);
    assert!(ledger.is_complete(), "{ledger}");
    assert_eq!(forks, 1);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn records_of_c_are_packed_and_flushed() {
    let (mut object, pipe) = open(&adaptive(Duration::from_secs(5)));
    assert_eq!(pipe.fallback(), None);
    check_packing(&mut object, pipe);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn accounting_of_c_is_exact() {
    let ledger = assert_exact_of(&mut load(), &Options::new().bytes_per_cpu(AMPLE), Duration::ZERO);
    assert!(ledger.is_complete(), "{ledger}");
    for wakeup in [Options::new().wakeup(Wakeup::PollOnly), Options::new()] {
        let options = wakeup.bytes_per_cpu(page_size());
        let ledger = assert_exact_of(&mut load(), &options, Duration::from_secs(1));
        assert!(ledger.failed() > 0, "{ledger}");
    }
    let (mut object, pipe) = open(&Options::new());
    check_ledger_of_two_kinds(&mut object, pipe);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn tails_of_c_arrive_whole_and_refused_records_are_tallied() {
    let (mut object, pipe) = open(&Options::new().bytes_per_cpu(AMPLE));
    check_tails(&mut object, pipe);
    let (mut object, pipe) = open(&Options::new().wakeup(Wakeup::PollOnly));
    check_refusals(&mut object, pipe);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn interrupted_records_of_c_are_neither_torn_nor_lost() {
    let (mut object, pipe) = open(&nesting::options());
    interrupt(&mut object, pipe);
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn the_clock_of_c_is_the_one_that_the_loader_chose() {
    let clock = Clock::PerBlock as u32;
    check_block_times(load_with(EbpfLoader::new().override_global(CLOCK_GLOBAL, &clock, true)));
}
