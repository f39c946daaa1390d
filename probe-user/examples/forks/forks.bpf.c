// The eBPF program of this example in C. User space opens it as it does the one in Rust, `ebpf/src/main.rs`:
//
//     clang -target bpf -O2 -g -I/usr/include/$(uname -m)-linux-gnu -Iprobe-ebpf/include -c \
//         probe-user/examples/forks/forks.bpf.c

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "probe.h"

// `Forked` in `record.rs`.
struct forked {
	__u32 pid;
	__u32 tid;
	char comm[16];
};

#define FORKED PROBE_USER_KIND(0)

SEC("raw_tp/sched_process_fork")
int on_fork(void *ctx)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct forked event = { .pid = id >> 32, .tid = id };

	bpf_get_current_comm(event.comm, sizeof(event.comm));
	probe_emit(ctx, FORKED, &event);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
