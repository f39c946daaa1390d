//! The eBPF programs of the tracer: one file for each kind of hook.

#![no_std]
#![no_main]

mod tracer {
    pub(crate) mod call;
    pub(crate) mod count;
    pub(crate) mod counter;
    pub(crate) mod fetch;
    pub(crate) mod filter;
    pub(crate) mod follow;
    pub(crate) mod histogram;
    pub(crate) mod hit;
    pub(crate) mod kprobe;
    pub(crate) mod number;
    pub(crate) mod raw_tracepoint;
    pub(crate) mod sampling;
    pub(crate) mod stack;
    pub(crate) mod task;
    pub(crate) mod tracepoint;
    pub(crate) mod trampoline;
}

probe_ebpf::program!("Dual MIT/GPL");
