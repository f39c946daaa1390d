//! What perf recorded, decoded by us, beside what perf says of it.

mod perf_data;

use perf_data::recording::Recording;
use perf_data::shown::{records, shown, time};
use perf_data::{perf, without_spaces};
use probe_user::perf::record::{Body, Thread};

/// What perf records of a shell and a child of it, and where. `None` without perf.
fn recorded(options: &[&str]) -> Option<(tempfile::TempDir, String)> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("perf.data").to_str().unwrap().to_owned();
    let record = ["record", "-q", "-o", &path, "-m", "1024", "-c", "1", "--sample-cpu"];
    let command = ["--", "sh", "-c", "/bin/true; :"];
    perf(&[&record[..], options, &command].concat()).map(|_| (dir, path))
}

/// Both in the same order, whatever that is.
fn assert_same(mut ours: Vec<String>, mut theirs: Vec<String>, at_least: usize) {
    ours.sort();
    theirs.sort();
    assert!(ours.len() >= at_least, "{} are not all", ours.len());
    assert_eq!(ours.len(), theirs.len());
    for (ours, theirs) in ours.iter().zip(&theirs) {
        assert_eq!(ours, theirs);
    }
}

/// An address of a callchain. Of processes, perf shows some by where they are in the file: the page is another one.
fn address(at: u64) -> String {
    format!("{:x}", if at >> 63 == 0 { at % 4096 } else { at })
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn samples_are_what_perf_says() {
    let Some((_dir, path)) = recorded(&["-e", "page-faults", "-g", "-d", "-P"]) else { return };
    let fields = "pid,tid,cpu,time,period,addr,ip";
    let script = perf(&["script", "-i", &path, "-F", fields, "--ns"]).unwrap();
    let whole = script.split("\n\n").map(without_spaces).filter(|one| !one.is_empty());
    let theirs = whole.map(|one| {
        let mut words = one.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for word in &mut words[5..] {
            *word = address(u64::from_str_radix(word, 16).unwrap());
        }
        words.join(" ")
    });
    let theirs = theirs.collect();
    let mut ours = Vec::new();
    Recording::read(path.as_ref()).each(|_, record| {
        let Body::Sample(sample) = record.body else { return };
        let Thread { pid, tid } = sample.thread.unwrap();
        let chain = sample.callchain.unwrap();
        let addresses = chain.kernel().iter().chain(chain.user().iter());
        let addresses: Vec<_> = addresses.map(address).collect();
        ours.push(format!(
            "{pid}/{tid} [{:03}] {}: {} {:x} {}",
            sample.cpu.unwrap(),
            time(sample.time),
            sample.period.unwrap(),
            sample.addr.unwrap(),
            addresses.join(" ")
        ));
    });
    assert_same(ours, theirs, 50);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn raw_data_is_what_perf_says() {
    let Some((_dir, path)) = recorded(&["-e", "sched:sched_process_fork", "-R"]) else { return };
    let script = perf(&["script", "-i", &path, "-F", "trace"]).unwrap();
    let theirs = script.lines().map(without_spaces).collect();
    let mut ours = Vec::new();
    Recording::read(path.as_ref()).each(|_, record| {
        let Body::Sample(sample) = record.body else { return };
        let raw = sample.raw.unwrap();
        // Either the names have 16 bytes each, or words that say where they are.
        let number = |at: usize| u32::from_ne_bytes(raw[at..at + 4].try_into().unwrap());
        let (parent, child) = if number(8) >> 16 == 0 || number(8) >> 16 > 16 {
            (number(24), number(44))
        } else {
            (number(12), number(20))
        };
        ours.push(format!("comm=sh pid={parent} child_comm=sh child_pid={child}"));
    });
    assert_same(ours, theirs, 1);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn registers_and_stacks_are_what_perf_says() {
    let options = ["-e", "page-faults", "--user-regs=ip,sp,bx", "--call-graph", "dwarf,64"];
    let Some((_dir, path)) = recorded(&options) else { return };
    let script = perf(&["script", "-i", &path, "-F", "tid,uregs"]).unwrap();
    let theirs = script.lines().map(without_spaces).filter(|one| one.contains("ABI")).collect();
    let mut ours = Vec::new();
    Recording::read(path.as_ref()).each(|_, record| {
        let Body::Sample(sample) = record.body else { return };
        let (regs, tid) = (sample.regs_user.unwrap(), sample.thread.unwrap().tid);
        assert!(sample.stack_user.unwrap().len() <= 64);
        let [ax, bx, cx, dx] = [0, 1, 2, 3].map(|bit| (bit, regs.get(bit)));
        let [si, di, bp, sp, ip, flags, cs, ss] =
            [4, 5, 6, 7, 8, 9, 10, 11].map(|bit| (bit, regs.get(bit)));
        let names = ["AX", "BX", "CX", "DX", "SI", "DI", "BP", "SP", "IP", "FLAGS", "CS", "SS"];
        let named = names.into_iter().zip([ax, bx, cx, dx, si, di, bp, sp, ip, flags, cs, ss]);
        let high = (8..16).map(|n| (format!("R{n}"), regs.get(n + 8)));
        let all = named.map(|(name, (_, value))| (name.to_owned(), value)).chain(high);
        let shown: Vec<_> =
            all.filter_map(|(name, value)| Some(format!("{name}:{:#x}", value?))).collect();
        ours.push(format!("{tid} ABI:{} {}", regs.abi, shown.join(" ")));
    });
    assert_same(ours, theirs, 50);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn tasks_and_mappings_are_what_perf_says() {
    let kinds = ["task", "mmap", "switch", "namespace"].map(|kind| format!("--show-{kind}-events"));
    for build_ids in [&[][..], &["--buildid-mmap"]] {
        let options = ["-e", "page-faults", "-d", "--switch-events", "--namespaces"];
        let Some((_dir, path)) = recorded(&[&options, build_ids].concat()) else { return };
        let mut args = vec!["script", "-i", &path, "-F", "pid,tid,cpu,time", "--ns"];
        args.extend(kinds.iter().map(String::as_str));
        let script = perf(&args).unwrap();
        let theirs = records(&script).iter().map(|one| without_spaces(one)).collect();
        let mut ours = Vec::new();
        Recording::read(path.as_ref()).each(|_, record| {
            let Some(shown) = shown(record) else { return };
            let Thread { pid, tid } = record.ids.thread.unwrap();
            let (cpu, time) = (record.ids.cpu.unwrap(), time(record.ids.time));
            ours.push(format!("{pid}/{tid} [{cpu:03}] {time}: {shown}"));
        });
        let is_by_id = ours.iter().any(|line| line.contains("MMAP2") && line.contains('<'));
        assert_eq!(is_by_id, !build_ids.is_empty());
        assert_same(ours, theirs, 30);
    }
}
