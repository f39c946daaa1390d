//! The tracer's eBPF programs: `hook/` has a file for each kind of hook.

#![no_std]
#![no_main]

mod call;
mod count;
mod counter;
mod fetch;
mod filter;
mod follow;
mod gate;
mod histogram;
mod hit;
mod hook;
mod number;
mod sampling;
mod stack;
mod task;

probe_ebpf::program!("Dual MIT/GPL");
