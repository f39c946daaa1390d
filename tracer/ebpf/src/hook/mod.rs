//! The programs: one file for each kind of hook.

mod kprobe;
mod raw_tracepoint;
mod tracepoint;
mod trampoline;
