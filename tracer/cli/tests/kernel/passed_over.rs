//! Hits that the kernel does not pass on, because another program is running on the CPU.

use crate::probe::commands::writes;
use crate::probe::{all_json_lines, probe, stderr, succeed};
use probe_testing::skip::skip;
use probe_testing::version;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command};
use tempfile::TempDir;

const NOT_COUNTED: &str = "hits while another eBPF program ran on the CPU are missing, and this kernel does not count them";

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn hits_during_other_programs_are_counted() {
    // The clock's ticks interrupt programs that run most of the time.
    let busy = "tracepoint:raw_syscalls:*/id == 9999/";
    let specs = [busy, "tracepoint:irq:softirq_raise", "rawtp:softirq_raise"];
    let args = ["trace", "-a", "-F", "jsonl", "-B", "4M"].into_iter().chain(specs);
    let output = succeed(probe(args).arg("--").args(writes(100_000)));
    let lines = all_json_lines(&output);
    let (ledger, errors) = (&lines[lines.len() - 1], stderr(&output));
    if version::kernel() < (6, 7) {
        assert!(ledger["skipped"].is_null() && errors.contains(NOT_COUNTED), "{ledger}: {errors}");
        return;
    }
    let skipped = ledger["skipped"].as_u64().unwrap();
    assert!(skipped > 0, "{ledger}");
    let events = |kind: &str| lines.iter().filter(|line| line["type"] == kind).count();
    assert!(events("rawtp") > events("tracepoint"), "{ledger}");
    let expected = " not passed on by the kernel, because another eBPF program was running";
    assert!(errors.contains(expected) && !errors.contains(NOT_COUNTED), "{errors}");

    // Nothing else is skipped.
    let output =
        succeed(&mut probe(["trace", "-F", "jsonl", "rawtp:sched_process_exec", "--", "true"]));
    let lines = all_json_lines(&output);
    assert_eq!(lines[lines.len() - 1]["skipped"], 0, "{}", stderr(&output));
}

/// A 32-bit program that waits for ever.
fn program_of_32_bits() -> Vec<u8> {
    // mov eax, 29 (pause); int 0x80; jmp to the beginning
    let code = [0xb8, 29, 0, 0, 0, 0xcd, 0x80, 0xeb, 0xf7];
    let (address, header) = (0x0804_8000_u32, 52 + 32);
    let (entry, size) = (address + header, header + code.len() as u32);
    let mut file = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x03\0\x01\0\0\0".to_vec();
    // The entry; the program headers; no sections and flags; sizes and counts of headers.
    for word in [entry, 52, 0, 0, 52 | 32 << 16, 1, 0] {
        file.extend(word.to_le_bytes());
    }
    // A segment of code.
    for word in [1, 0, address, address, size, size, 5, 0x1000] {
        file.extend(word.to_le_bytes());
    }
    file.extend(code);
    file
}

/// Runs that program from a directory. `None` if the kernel does not run it, and then the test is skipped.
fn run_32_bits() -> Option<(Child, TempDir)> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("program");
    std::fs::write(&path, program_of_32_bits()).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    let child = Command::new(&path).spawn();
    if child.is_err() {
        skip("this kernel runs no 32-bit programs (CONFIG_IA32_EMULATION)");
    }
    Some((child.ok()?, dir))
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn numbers_of_32_bit_system_calls_have_no_names() {
    let Some((mut child, file)) = run_32_bits() else { return };
    child.kill().unwrap();
    child.wait().unwrap();
    // The number of its call, 29, is that of another call in 64-bit programs.
    let specs = ["rawtp:sys_enter(id)", "tracepoint:raw_syscalls:sys_enter(id)/id >= 0/"];
    let program = file.path().join("program").into_os_string().into_string().unwrap();
    let args = ["trace", "-F", "jsonl", "-d", "300ms"].into_iter().chain(specs);
    let lines = all_json_lines(&succeed(&mut probe(args.chain(["--", &program]))));
    let shown = |id: u64| {
        let of_id = lines.iter().filter(move |line| line["args"]["id"] == id);
        of_id.map(|line| line["names"]["id"].as_str()).collect::<Vec<_>>()
    };
    assert_eq!(shown(59), [Some("execve"); 2], "{lines:?}");
    assert_eq!(shown(29), [None; 2], "{lines:?}");
}

#[test]
#[ignore = "needs root and BPF: cargo xtask test"]
fn system_calls_of_32_bit_programs_are_reported_as_unseen() {
    let Some((mut child, _file)) = run_32_bits() else { return };
    let pid = child.id().to_string();
    let mut args = vec!["count", "tracepoint:syscalls:sys_enter_pause", "-d", "1ms"];
    let everywhere = stderr(&succeed(&mut probe(&args)));
    args.extend(["-p", &pid]);
    let one = stderr(&succeed(&mut probe(&args)));
    child.kill().unwrap();
    child.wait().unwrap();
    let expected = "whose system calls have functions of their own and are not seen here";
    assert!(everywhere.contains(expected), "{everywhere}");
    assert!(one.contains(&format!("process {pid} is a 32-bit program, {expected}")), "{one}");
}
