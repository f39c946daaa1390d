//! Kernel side of the event pipe, for eBPF programs on [`aya_ebpf`].
//!
//! A program that depends on this crate has the pipe's maps in its object. It emits records with
//! [`pipe::emit`], or builds them in place with [`pipe::reserve`]:
//!
//! ```ignore
//! #[raw_tracepoint(tracepoint = "sched_process_fork")]
//! pub fn on_fork(ctx: RawTracePointContext) -> u32 {
//!     let _ = pipe::emit(&ctx, &Forked { parent: ctx.pid() });
//!     0
//! }
//! ```
//!
//! Ignoring the result loses nothing: every failure is tallied by CPU, kind and reason, and user space
//! reads the tally.

#![no_std]
#![cfg_attr(
    target_arch = "bpf",
    expect(unstable_features, reason = "inline assembly for eBPF is not stable yet"),
    feature(asm_experimental_arch)
)]
#![deny(missing_docs)]
#![allow(
    clippy::multiple_unsafe_ops_per_block,
    reason = "a field behind a raw pointer is two operations, and one thought"
)]

pub mod atomic;
mod clock;
mod output;
pub mod pipe;
mod preempted;
mod slot;

pub use pipe::{EmitError, Reservation, emit, reserve};
pub use preempted::unshared_stack;
pub use probe_common as common;

/// Defines what every eBPF binary needs: its licence, in the section that the kernel reads; the
/// program that sends a CPU's open block when user space asks for it; and a panic handler, which the
/// verifier proves unreachable.
///
/// ```ignore
/// probe_ebpf::program!("Dual MIT/GPL");
/// ```
#[macro_export]
macro_rules! program {
    ($license:literal) => {
        #[unsafe(link_section = "license")]
        #[unsafe(no_mangle)]
        static LICENSE: [u8; {
            // The terminating zero.
            $license.len() + 1
        }] = {
            let mut bytes = [0; $license.len() + 1];
            let mut at = 0;
            while at < $license.len() {
                bytes[at] = $license.as_bytes()[at];
                at += 1;
            }
            bytes
        };

        #[unsafe(link_section = "raw_tp")]
        #[unsafe(no_mangle)]
        extern "C" fn pipe_flush(ctx: *mut ::core::ffi::c_void) -> u32 {
            $crate::unshared_stack();
            $crate::pipe::flush(ctx)
        }

        #[cfg(target_arch = "bpf")]
        #[panic_handler]
        fn panic(_info: &::core::panic::PanicInfo) -> ! {
            loop {}
        }
    };
}
