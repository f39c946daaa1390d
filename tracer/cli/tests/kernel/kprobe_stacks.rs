//! Stacks of kernel functions, for calls with a known call chain.

use crate::probe::chain::{Chain, functions, through};
use probe_testing::version::kernel as kernel_version;

#[test]
#[ignore = "needs root, BPF and kprobes: cargo xtask test"]
fn a_function_is_the_innermost_of_its_own_stack() {
    let chain = Chain::compile();
    // The entry function of the system call on every kernel.
    let function = "__x64_sys_getpgid";
    for args in [
        &[function][..],
        &[function, "--ret"],
        // Together with others, if the kernel can do that.
        &["kprobe:__x64_sys_getpgi*"],
        &["ksyscall:getpgid"],
    ] {
        let events = chain.trace(&[&["-K", "-U"], args].concat(), 5, 6);
        assert_eq!(events.len(), 11, "{args:?}");
        assert_eq!((through(&events, "left"), through(&events, "right")), (5, 6), "{args:?}");
        for event in &events {
            let kernel = functions(event, "kstack");
            assert_eq!(kernel.first(), Some(&function), "{event}");
            assert!(kernel.contains(&"do_syscall_64"), "{event}");
            // Newer kernels have a function in between.
            assert!(["do_syscall_64", "x64_sys_call"].contains(&kernel[1]), "{event}");
            // A call is reported with the stack of its entry.
            assert!(event["args"]["kstack"][0]["offset"].as_u64().unwrap() < 16, "{event}");
        }
    }
    let events = chain.trace(&["kretprobe:__x64_sys_getpgid(retval:s64, kstack)"], 2, 0);
    assert_eq!(events.len(), 2);
    for event in &events {
        assert_eq!(event["args"]["retval"], -3, "{event}");
        // On function return, old kernels see the return trampoline instead of the caller.
        let kernel = functions(event, "kstack");
        let is_old = kernel[0] == "kretprobe_trampoline" && kernel_version() < (5, 16);
        assert!(is_old || kernel.contains(&"do_syscall_64"), "{event}");
    }
}
