//! The programs: one file for each kind of hook.

mod kprobe;
mod number;
mod raw_tracepoint;
mod syscall;
mod tracepoint;
mod trampoline;
