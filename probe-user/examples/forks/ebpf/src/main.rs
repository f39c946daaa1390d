//! The eBPF program: emits a record for every fork.

#![no_std]
#![no_main]

#[path = "../../record.rs"]
mod record;

use aya_ebpf::{EbpfContext, macros::raw_tracepoint, programs::RawTracePointContext};
use probe_ebpf::pipe;
use record::Forked;

probe_ebpf::program!("Dual MIT/GPL");

#[raw_tracepoint(tracepoint = "sched_process_fork")]
pub fn on_fork(ctx: RawTracePointContext) -> u32 {
    let comm = ctx.command().unwrap_or_default();
    let _ = pipe::emit(&ctx, &Forked { pid: ctx.tgid(), tid: ctx.pid(), comm });
    0
}
