//! 32-bit programs. Their system calls pass the tracepoints of single system calls by (`arch_trace_is_compat_syscall` in
//! the kernel).

use super::Host;
use crate::binary::{id_with_memory, open_regular};
use crate::kernel::features;
use probe_sys::escape::Escaped;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What a user of the tracepoints of single system calls should know, if there are 32-bit programs among the targets. They are looked for
/// once.
pub(super) fn note(host: &mut Host) -> Option<String> {
    let (targets, program) = (&*host.targets, host.program.as_deref());
    host.compat.get_or_insert_with(|| note_on(targets, program)).clone()
}

/// `targets` are the processes that are traced; all if there are none.
fn note_on(targets: &[u32], program: Option<&Path>) -> Option<String> {
    let subject = match (program, targets) {
        (Some(program), _) => {
            let name = || Escaped(program.as_os_str().as_bytes());
            is_32_bit(program).then(|| format!("{} is a 32-bit program", name()))?
        }
        (None, [_, ..]) => {
            let pid = targets.iter().find(|pid| is_of_32_bits(**pid))?;
            format!("process {pid} is a 32-bit program")
        }
        (None, []) => {
            let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
            let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
            match pids.filter(|pid| is_of_32_bits(*pid)).count() {
                0 => return None,
                1 => "1 running process is a 32-bit program".to_owned(),
                count => format!("{count} running processes are 32-bit programs"),
            }
        }
    };
    let instead = match features::kprobe_pmu() {
        Some(_) => "ksyscall:NAME sees them",
        None => "tracepoint:raw_syscalls:sys_enter has the numbers of all calls",
    };
    Some(format!("{subject}, whose system calls pass by this tracepoint; {instead}"))
}

fn is_of_32_bits(pid: u32) -> bool {
    is_32_bit(Path::new(&format!("/proc/{}/exe", id_with_memory(pid))))
}

fn is_32_bit(program: &Path) -> bool {
    // A FIFO in place of a program would never be opened.
    let Ok(mut program) = open_regular(program) else { return false };
    let mut head = [0; 5];
    program.read_exact(&mut head).is_ok() && is_32_bit_elf(head)
}

fn is_32_bit_elf(head: [u8; 5]) -> bool {
    head == *b"\x7fELF\x01"
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn the_class_of_a_program_is_in_its_head() {
        let mut head = [0; 5];
        File::open("/proc/self/exe").unwrap().read_exact(&mut head).unwrap();
        assert!(!is_32_bit_elf(head) && is_32_bit_elf([0x7f, b'E', b'L', b'F', 1]));
    }

    #[test]
    fn only_files_are_looked_into() {
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        let mode = rustix::fs::Mode::from_raw_mode(0o700);
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        assert!(!is_32_bit(&fifo));
    }
}
