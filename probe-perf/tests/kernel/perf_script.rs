//! Decodes what perf recorded, and compares with the output of perf itself.

use crate::perf_data::recording::recorded;
use crate::perf_data::shown::{named, records, shown, time, with_writer};
use crate::perf_data::{SHOW_ALL, assert_same_lines, without_spaces};
use probe_perf::record::{Body, Thread};

/// An address of a callchain. perf shows some addresses of processes as file offsets, so only the
/// offset within the page is comparable.
fn address(at: u64) -> String {
    format!("{:x}", if at >> 63 == 0 { at % 4096 } else { at })
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn samples_are_as_perf_prints_them() {
    let Some(recording) = recorded(&["-e", "page-faults", "-g", "-d", "-P"]) else { return };
    let fields = "pid,tid,cpu,time,period,addr,ip";
    let script = recording.perf(&["script", "-F", fields, "--ns"]).unwrap();
    let whole = script.split("\n\n").map(without_spaces).filter(|one| !one.is_empty());
    let theirs = whole.map(|one| {
        let mut words = one.split(' ').map(str::to_owned).collect::<Vec<_>>();
        for word in &mut words[5..] {
            *word = address(u64::from_str_radix(word, 16).unwrap());
        }
        words.join(" ")
    });
    let theirs = theirs.collect();
    let ours = recording.collect(|record| {
        let Body::Sample(sample) = record.body else { return None };
        let Thread { pid, tid } = sample.thread.unwrap();
        let chain = sample.callchain.unwrap();
        let addresses = chain.kernel().iter().chain(chain.user().iter());
        let addresses: Vec<_> = addresses.map(address).collect();
        Some(format!(
            "{pid}/{tid} [{:03}] {}: {} {:x} {}",
            sample.cpu.unwrap(),
            time(sample.time),
            sample.period.unwrap(),
            sample.addr.unwrap(),
            addresses.join(" ")
        ))
    });
    assert_same_lines(ours, theirs, 50);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn raw_data_is_as_perf_prints_it() {
    let Some(recording) = recorded(&["-e", "sched:sched_process_fork", "-R"]) else { return };
    let script = recording.perf(&["script", "-F", "trace"]).unwrap();
    let theirs = script.lines().map(without_spaces).collect();
    let ours = recording.collect(|record| {
        let Body::Sample(sample) = record.body else { return None };
        let raw = sample.raw.unwrap();
        // Newer kernels store a name's position instead of its 16 bytes.
        let number = |at: usize| u32::from_ne_bytes(raw[at..at + 4].try_into().unwrap());
        let (parent, child) = if number(8) >> 16 == 0 || number(8) >> 16 > 16 {
            (number(24), number(44))
        } else {
            (number(12), number(20))
        };
        Some(format!("comm=sh pid={parent} child_comm=sh child_pid={child}"))
    });
    assert_same_lines(ours, theirs, 1);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn registers_and_stacks_are_as_perf_prints_them() {
    let options = ["-e", "page-faults", "--user-regs=ip,sp,bx", "--call-graph", "dwarf,64"];
    let Some(recording) = recorded(&options) else { return };
    let script = recording.perf(&["script", "-F", "tid,uregs"]).unwrap();
    let theirs = script.lines().map(without_spaces).filter(|one| one.contains("ABI")).collect();
    let ours = recording.collect(|record| {
        let Body::Sample(sample) = record.body else { return None };
        let (regs, tid) = (sample.regs_user.unwrap(), sample.thread.unwrap().tid);
        assert!(sample.stack_user.unwrap().len() <= 64);
        let shown: Vec<_> =
            named(&regs).map(|(name, value)| format!("{name}:{value:#x}")).collect();
        Some(format!("{tid} ABI:{} {}", regs.abi, shown.join(" ")))
    });
    assert_same_lines(ours, theirs, 50);
}

#[test]
#[ignore = "needs root: cargo xtask test"]
fn tasks_and_mappings_are_as_perf_prints_them() {
    for build_ids in [&[][..], &["--buildid-mmap"]] {
        let options = ["-e", "page-faults", "-d", "--switch-events", "--namespaces"];
        let Some(recording) = recorded(&[&options, build_ids].concat()) else { return };
        let mut args = vec!["script", "-F", "pid,tid,cpu,time", "--ns"];
        args.extend(SHOW_ALL);
        let script = recording.perf(&args).unwrap();
        let theirs = records(&script).iter().map(|one| without_spaces(one)).collect();
        let ours = recording.collect(|record| Some(with_writer(record, &shown(record)?)));
        let is_by_id = ours.iter().any(|line| line.contains("MMAP2") && line.contains('<'));
        assert_eq!(is_by_id, !build_ids.is_empty());
        assert_same_lines(ours, theirs, 30);
    }
}
