//! The life of processes, as records of their own.

use super::{filter, task};
use aya_ebpf::{
    EbpfContext, Global, helpers::bpf_probe_read_kernel_str_bytes, macros::tracepoint,
    programs::TracePointContext,
};
use probe_common::process::{EXEC_FILENAME_LEN, ProcessExec};
use probe_ebpf::pipe;

/// The number of the probe that asked for these records.
#[unsafe(no_mangle)]
static EXEC_PROBE: Global<u32> = Global::new(0);

/// Where `old_pid` and `__data_loc filename` stand in the tracepoint's data: user space reads it
/// from the tracepoint's format.
#[unsafe(no_mangle)]
static EXEC_OLD_PID_AT: Global<u32> = Global::new(16);
#[unsafe(no_mangle)]
static EXEC_FILENAME_AT: Global<u32> = Global::new(8);

/// `sched:sched_process_exec`.
#[tracepoint]
pub(crate) fn process_exec(ctx: TracePointContext) -> u32 {
    if !filter::current_is_traced() {
        return 0;
    }
    let Ok(mut record) = pipe::reserve::<ProcessExec>() else { return 0 };
    record.task = task::current();
    record.probe = EXEC_PROBE.load();
    // SAFETY: the helper checks the address.
    record.old_tid = unsafe { ctx.read_at(EXEC_OLD_PID_AT.load() as usize) }.unwrap_or(0);
    // The low half of a __data_loc is the offset of the string in the tracepoint's data.
    // SAFETY: as above.
    let at: u32 = unsafe { ctx.read_at(EXEC_FILENAME_AT.load() as usize) }.unwrap_or(0);
    let filename = ctx.as_ptr().cast::<u8>().wrapping_add((at & 0xffff) as usize);
    // SAFETY: as above.
    let read = unsafe {
        bpf_probe_read_kernel_str_bytes(filename, &mut record.tail()[..EXEC_FILENAME_LEN])
    };
    let len = read.map_or(0, <[u8]>::len);
    // A failure is in the tally.
    let _ = record.commit_with_tail(&ctx, len);
    0
}
