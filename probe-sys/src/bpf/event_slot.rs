//! The entries of perf event arrays. User space can set them, but only programs can look at them.

use super::load::{Code, Purpose, load};
use super::{run_here, run_on};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// A program that looks whether an entry of a perf event array has an event.
#[derive(Debug)]
pub struct SlotProbe {
    program: OwnedFd,
}

impl SlotProbe {
    /// Loads the program for a map.
    ///
    /// # Errors
    ///
    /// If the kernel does not let this process load programs for tracing.
    pub fn load(map: BorrowedFd<'_>) -> io::Result<Self> {
        const PERF_EVENT_READ: i32 = 22;
        let [first, second] = map_of(1, map);
        let instructions = [
            // r2 = the argument, which is the index of the entry
            instruction(0x79, 2, 1, 0, 0),
            first,
            second,
            instruction(0x85, 0, 0, 0, PERF_EVENT_READ),
            // exit
            0x95,
        ];
        Ok(Self { program: load_raw("slot_probe", &instructions)? })
    }

    /// Whether the entry has an event. The helper cannot read events of other CPUs, but then returns another error.
    ///
    /// # Errors
    ///
    /// If the kernel cannot run programs for raw tracepoints on request (before 5.10).
    pub fn is_filled(&self, index: u32) -> io::Result<bool> {
        let answer = run_here(self.program.as_fd(), &[u64::from(index)])? as i32;
        Ok(answer != -libc::ENOENT && answer != -libc::E2BIG)
    }
}

/// Writes 4 zero bytes to the event of a CPU in a perf event array, which wakes the reader of that event. Does nothing if
/// there is no such event. Returns whether the kernel counts the output as lost, because the ring had no room.
///
/// # Errors
///
/// As [`SlotProbe`].
pub fn write_zeros(map: BorrowedFd<'_>, cpu: u32) -> io::Result<bool> {
    const PERF_EVENT_OUTPUT: i32 = 25;
    let [first, second] = map_of(2, map);
    let instructions = [
        // *(u64 *)(r10 - 8) = 0
        instruction(0x7a, 10, 0, -8, 0),
        first,
        second,
        // r3 = BPF_F_CURRENT_CPU
        instruction(0xb4, 3, 0, 0, -1),
        // r4 = r10 - 8
        instruction(0xbf, 4, 10, 0, 0),
        instruction(0x07, 4, 0, 0, -8),
        // r5 = 4
        instruction(0xb7, 5, 0, 0, 4),
        instruction(0x85, 0, 0, 0, PERF_EVENT_OUTPUT),
        // exit
        0x95,
    ];
    let answer = run_on(load_raw("write_zeros", &instructions)?.as_fd(), cpu)? as i32;
    Ok(answer == -libc::ENOSPC)
}

fn load_raw(name: &str, instructions: &[u64]) -> io::Result<OwnedFd> {
    let code = Code { name, instructions, license: c"GPL", functions: None };
    load(&code, Purpose::RawTracepoint, &mut [])
}

/// The two instructions that load the address of a map into a register.
fn map_of(register: u8, map: BorrowedFd<'_>) -> [u64; 2] {
    const BPF_PSEUDO_MAP_FD: u8 = 1;
    [instruction(0x18, register, BPF_PSEUDO_MAP_FD, 0, map.as_raw_fd()), 0]
}

/// A `struct bpf_insn`.
fn instruction(code: u8, destination: u8, source: u8, offset: i16, immediate: i32) -> u64 {
    let [o0, o1] = offset.to_ne_bytes();
    let [i0, i1, i2, i3] = immediate.to_ne_bytes();
    let registers = match cfg!(target_endian = "little") {
        true => source << 4 | destination,
        false => destination << 4 | source,
    };
    u64::from_ne_bytes([code, registers, o0, o1, i0, i1, i2, i3])
}
