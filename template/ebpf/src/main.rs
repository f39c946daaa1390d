//! The eBPF program: emits a record for every program that is started.

#![no_std]
#![no_main]

use aya_ebpf::{EbpfContext, macros::raw_tracepoint, programs::RawTracePointContext};
use my_probe_event::Exec;
use probe_ebpf::pipe;

probe_ebpf::program!("Dual MIT/GPL");

#[raw_tracepoint(tracepoint = "sched_process_exec")]
pub fn on_exec(ctx: RawTracePointContext) -> u32 {
    let comm = ctx.command().unwrap_or_default();
    let exec = Exec { pid: ctx.tgid(), uid: ctx.uid(), comm };
    // A record that cannot be sent is counted in the ledger.
    let _ = pipe::emit(&ctx, &exec);
    0
}
