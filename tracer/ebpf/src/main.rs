//! The tracer's eBPF programs: `hook/` has a file for each kind of hook.

#![no_std]
#![no_main]

mod call;
mod count;
mod counter;
mod fetch;
mod filter;
mod follow;
mod histogram;
mod hit;
mod hook;
mod parts;
mod sampling;
mod stack;
mod task;
mod wait;

probe_ebpf::program!("Dual MIT/GPL");
