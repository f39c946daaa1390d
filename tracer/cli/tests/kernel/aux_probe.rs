//! `probe sample --aux` with a test PMU that writes known bytes: the files hold exactly these.

use crate::probe::busy::Busy;
use crate::probe::{Run, assert_failure, probe, stderr, stdout, succeed};
use probe_testing::aux_module::{MISSING, is_loaded, pattern};
use probe_testing::set_on_drop::SetOnDrop;
use probe_testing::skip::skip;
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

const AREA: u64 = 32 << 10;
/// The kernel keeps one byte of an area free.
const ROOM: u64 = AREA - 1;
const RECORDS: &str = "records.jsonl";
const SIZE: [&str; 2] = ["-m", "32K"];

/// The numbers in each line of the table, by file.
type Lines = BTreeMap<String, Vec<u64>>;

fn lines(output: &Output) -> Lines {
    let line = |line: &str| {
        let (numbers, file) = line.rsplit_once(' ').unwrap();
        let numbers = numbers.split_whitespace().map(|number| number.parse().unwrap()).collect();
        (file.to_owned(), numbers)
    };
    stdout(output).lines().skip(1).map(line).collect()
}

/// Traces an event of the PMU into a new directory and parses the table.
fn trace(terms: &str, rest: &[&str]) -> (TempDir, Lines, Output) {
    let dir = tempfile::tempdir().unwrap();
    let event = format!("probe_aux/{terms}/");
    let mut run = probe(["sample", "-e", &event, "--aux"]);
    let output = run.arg(dir.path()).args(SIZE).args(rest).output().unwrap();
    assert!(output.status.code().is_some_and(|code| code == 0 || code == 7), "{}", stderr(&output));
    let lines = lines(&output);
    let files = fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().file_name());
    let mut files: Vec<_> = files.map(|file| file.into_string().unwrap()).collect();
    files.retain(|file| file != RECORDS);
    files.sort();
    assert_eq!(files, lines.keys().cloned().collect::<Vec<_>>(), "{}", stdout(&output));
    (dir, lines, output)
}

/// Length of a file, whose bytes must be the pattern from offset `from` on.
fn bytes(dir: &Path, file: &str, from: u64) -> u64 {
    let bytes = fs::read(dir.join(file)).unwrap();
    let differs = bytes.iter().copied().zip(pattern(from)).position(|(own, other)| own != other);
    assert_eq!(differs, None, "{file}: {} bytes from {from} on", bytes.len());
    bytes.len() as u64
}

#[test]
#[ignore = "needs root and a kernel module: cargo xtask test"]
fn every_byte_of_each_cpu_is_in_its_file() {
    if !is_loaded() {
        return skip(MISSING);
    }
    let (dir, lines, output) = trace("config=1000", &["-a", "-d", "2s"]);
    let cpus = probe_sys::cpus::online().unwrap();
    let files: Vec<_> = cpus.iter().map(|cpu| format!("cpu-{cpu}.aux")).collect();
    assert_eq!(lines.keys().collect::<Vec<_>>(), files.iter().collect::<Vec<_>>());
    let mut sum = 0;
    for (file, numbers) in &lines {
        let len = bytes(dir.path(), file, 0);
        assert!(len >= 3000 && len.is_multiple_of(1000), "{file}: {len}");
        assert_eq!(*numbers, [len, len / 1000, 0, 0, 0, 0, 0], "{file}");
        sum += len;
    }
    let summary = format!(
        "probe: {sum} bytes in {} files in {}, 0 skipped, 0 records lost, 0 pieces truncated\n",
        files.len(),
        dir.path().display()
    );
    assert_eq!(stderr(&output), summary);
}

#[test]
#[ignore = "needs root and a kernel module: cargo xtask test"]
fn lost_bytes_are_reported_and_the_trace_goes_on() {
    if !is_loaded() {
        return skip(MISSING);
    }
    let (dir, lines, output) = trace("config=40000", &["-C", "1", "-d", "2s"]);
    let len = bytes(dir.path(), "cpu-1.aux", 0);
    let pieces = len / ROOM;
    assert!(pieces >= 2 && len.is_multiple_of(ROOM), "{len}");
    assert_eq!(lines["cpu-1.aux"], [len, pieces, 0, 0, pieces, 0, 0]);
    let printed = stderr(&output);
    assert!(printed.ends_with(&format!(" {pieces} pieces truncated\n")), "{printed}");
}

#[test]
#[ignore = "needs root and a kernel module: cargo xtask test"]
fn flags_of_pieces_are_counted() {
    if !is_loaded() {
        return skip(MISSING);
    }
    for (flags, [partial, collided]) in [(1, [1, 0]), (2, [0, 1]), (3, [1, 1])] {
        let terms = format!("config=8,config1={flags}");
        let (dir, lines, _) = trace(&terms, &["-C", "0", "-d", "500ms"]);
        let pieces = bytes(dir.path(), "cpu-0.aux", 0) / 8;
        assert!(pieces > 0);
        let expected = [8 * pieces, pieces, 0, 0, 0, partial * pieces, collided * pieces];
        assert_eq!(lines["cpu-0.aux"], expected, "{flags}");
    }
}

#[test]
#[ignore = "needs root and a kernel module: cargo xtask test"]
fn snapshots_on_request_and_at_the_end_have_the_newest_bytes() {
    if !is_loaded() {
        return skip(MISSING);
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new");
    let event = "probe_aux/config=5000/";
    let args = ["sample", "-e", event, "--aux", path.to_str().unwrap(), "--snapshot", "-C", "0,1"];
    let run = Run::spawn(args.into_iter().chain(SIZE));
    // The directory appears shortly before or after the signal handler for snapshots is in place.
    while !path.exists() {
        thread::sleep(Duration::from_millis(50));
    }
    thread::sleep(Duration::from_secs(2));
    run.signal(Signal::USR2);
    while !path.join("cpu-1.1.aux").exists() {
        thread::sleep(Duration::from_millis(50));
    }
    thread::sleep(Duration::from_secs(1));
    run.signal(Signal::INT);
    let output = run.finish();
    assert!(output.status.success(), "{}", stderr(&output));
    let lines = lines(&output);
    let names = ["cpu-0.1.aux", "cpu-0.2.aux", "cpu-1.1.aux", "cpu-1.2.aux"];
    assert_eq!(lines.keys().collect::<Vec<_>>(), names);
    for (file, numbers) in &lines {
        let [len, from, 0, 0, 0, 0] = numbers[..] else { panic!("{numbers:?}") };
        assert_eq!(bytes(&path, file, from), len);
        let end = from + len;
        assert!(end.is_multiple_of(5000) && len == AREA.min(end), "{file}: {numbers:?}");
    }
    for cpu in 0..2 {
        let [first, second] = [1, 2].map(|n| lines[&format!("cpu-{cpu}.{n}.aux")][1]);
        assert!(first < second, "{first}, {second}");
    }
    let sum: u64 = lines.values().map(|numbers| numbers[0]).sum();
    let what = format!("{sum} bytes in 2 snapshots in {}", path.display());
    let summary = format!("probe: {what}, 0 records lost, 0 pieces truncated\n");
    assert_eq!(stderr(&output), summary);
}

#[test]
#[ignore = "needs root and a kernel module: cargo xtask test"]
fn snapshots_have_the_flags_of_their_pieces() {
    if !is_loaded() {
        return skip(MISSING);
    }
    // Either all pieces have a flag, or none has it.
    for (flags, [partial, collided]) in [(0, [0, 0]), (1, [1, 0]), (2, [0, 1]), (3, [1, 1])] {
        let terms = format!("config=5000,config1={flags}");
        let (_dir, lines, _) = trace(&terms, &["--snapshot", "-C", "0", "-d", "1s"]);
        assert_eq!(lines["cpu-0.1.aux"][2..], [0, 0, partial, collided], "{flags}");
    }
}

/// The lines of the task file, by type.
fn records(dir: &Path) -> BTreeMap<String, Vec<Value>> {
    let mut records = BTreeMap::<String, Vec<Value>>::new();
    for line in fs::read_to_string(dir.join(RECORDS)).unwrap().lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert!(line["time"].is_u64() && line["cpu"].is_u64(), "{line}");
        records.entry(line["type"].as_str().unwrap().to_owned()).or_default().push(line);
    }
    records
}

#[test]
#[ignore = "needs root and a kernel module: cargo xtask test"]
fn records_for_decoders_are_written_beside_the_data() {
    if !is_loaded() {
        return skip(MISSING);
    }
    let script = "i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done; /bin/true; :";
    for mode in [&[][..], &["--snapshot"]] {
        let (dir, lines, output) =
            trace("config=100", &[mode, &["--", "sh", "-c", script]].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        let records = records(dir.path());
        assert!(!records.contains_key("lost"));
        let of = |kind: &str| records.get(kind).into_iter().flatten();
        let names: Vec<_> =
            of("comm").filter(|line| line["exec"] == true).map(|line| &line["name"]).collect();
        assert_eq!(names, ["sh", "true"]);
        let [fork] = &records["fork"][..] else { panic!("{records:?}") };
        let shell = &records["comm"][0]["pid"];
        assert_eq!((&fork["parent_pid"], &fork["pid"] != shell), (shell, true));
        assert_eq!(of("exit").count(), 2);
        let maps = |file: &str| {
            let ends = |line: &&Value| line["file"].as_str().unwrap().ends_with(file);
            of("mmap").find(ends).is_some_and(|line| line["inode"].as_u64() > Some(0))
        };
        assert!(maps("/true") && of("mmap").count() > 3, "{:?}", records["mmap"]);
        assert!(of("switch").any(|line| line["direction"] == "in" && &line["pid"] == shell));
        assert!(of("itrace_start").any(|line| &line["pid"] == shell), "{records:?}");
        // Each piece has a record with its position.
        if mode.is_empty() {
            let sizes: u64 = of("aux").map(|line| line["size"].as_u64().unwrap()).sum();
            assert_eq!(sizes, lines.values().map(|numbers| numbers[0]).sum::<u64>());
        }
        assert!(of("aux").count() > 0, "{:?}", records.keys());
    }
}

#[test]
#[ignore = "needs root and a kernel module: cargo xtask test"]
fn snapshots_are_written_where_root_may_write() {
    if !is_loaded() {
        return skip(MISSING);
    }
    let dir = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(dir.path(), Some(65534), Some(65534)).unwrap();
    let run = || {
        let mut run = probe(["sample", "-e", "probe_aux/config=100/", "--aux"]);
        run.arg(dir.path()).args(SIZE).args(["--snapshot", "-C", "0", "-d", "500ms"]);
        run
    };
    assert_failure(&mut run(), "choose a directory to which only you can write, or give --force");
    succeed(run().arg("--force"));
    assert!(dir.path().join("cpu-0.1.aux").exists());
}

#[test]
#[ignore = "needs root and a kernel module: cargo xtask test"]
fn a_thread_has_a_file_wherever_it_runs() {
    if !is_loaded() {
        return skip(MISSING);
    }
    let busy = Busy::start();
    let pid = busy.pid();
    for target in [&["-t", &*pid][..], &["-p", &pid, "--per-thread"]] {
        let (dir, lines, _) = trace("config=100", &[target, &["-d", "1s"]].concat());
        let file = format!("thread-{pid}.aux");
        let len = bytes(dir.path(), &file, 0);
        assert!(len > 0);
        assert_eq!(lines, BTreeMap::from([(file, vec![len, len / 100, 0, 0, 0, 0, 0])]));
    }
}

#[test]
#[ignore = "needs root and a kernel module: cargo xtask test"]
fn threads_share_the_files_of_cpus() {
    if !is_loaded() {
        return skip(MISSING);
    }
    let is_over = AtomicBool::new(false);
    let pid = std::process::id().to_string();
    let spin = || {
        while !is_over.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    };
    thread::scope(|scope| {
        let _spinning = [scope.spawn(spin), scope.spawn(spin)];
        let _over = SetOnDrop(&is_over);
        let (dir, lines, _) = trace("config=100", &["-p", &pid, "-d", "2s"]);
        assert_eq!(lines.len(), probe_sys::cpus::online().unwrap().len());
        let lens: Vec<_> = lines.keys().map(|file| bytes(dir.path(), file, 0)).collect();
        assert_eq!(lens, lines.values().map(|numbers| numbers[0]).collect::<Vec<_>>());
        // This thread owns the areas that the other threads share, but it only waits.
        let sum: u64 = lens.iter().sum();
        assert!(sum >= 1000, "{sum}");
    });
}

#[test]
#[ignore = "needs root and a kernel module: cargo xtask test"]
fn a_command_is_traced_and_its_status_kept() {
    if !is_loaded() {
        return skip(MISSING);
    }
    let script = "i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done; exit 7";
    let (dir, lines, output) = trace("config=100", &["--", "sh", "-c", script]);
    assert_eq!(output.status.code(), Some(7));
    let lens: Vec<_> = lines.keys().map(|file| bytes(dir.path(), file, 0)).collect();
    assert_eq!(lens, lines.values().map(|numbers| numbers[0]).collect::<Vec<_>>());
    assert!(lens.iter().sum::<u64>() > 0);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn what_cannot_be_traced_is_explained_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("new");
    let sample = |event, rest: &[&str], expected: &str| {
        let mut run = probe(["sample", "-e", event, "--aux"]);
        assert_failure(run.arg(&path).args(rest), expected);
    };
    sample("cpu-clock", &[], "cannot map the AUX area of cpu-clock on CPU 0");
    sample("cpu-clock", &[], "This event has no AUX area");
    sample("cpu-clock,faults", &[], "--aux takes one event, but 2 are given");
    assert!(!path.exists());
    // Without the module, the test leaves out what only an event with an AUX area can show.
    if is_loaded() {
        sample("probe_aux//", &["-m", "0"], "Its size must not be 0");
        assert!(!path.exists());
        fs::write(&path, "").unwrap();
        sample("probe_aux//", &[], "cannot create ");
    }
}
