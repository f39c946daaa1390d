// Programs of the test suite in C. They do what those of the same names in `src/main.rs` do.

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "probe.h"

// `Numbered` in `tests/kernel/suite/records.rs`.
struct numbered {
	__u64 number;
	__u64 cpu;
	__u64 fill[6];
};

// `Tailed` there.
struct tailed {
	__u64 number;
};

#define TAIL_LENS 64

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 3);
	__type(key, __u32);
	__type(value, __u64);
} NEXT SEC(".maps");

static __always_inline __u64 next(__u32 kind)
{
	__u64 *next = bpf_map_lookup_elem(&NEXT, &kind);

	return next ? (*next)++ : 0;
}

static __always_inline struct numbered numbered(__u32 kind)
{
	struct numbered record = { .number = next(kind), .cpu = bpf_get_smp_processor_id() };

#pragma unroll
	for (int at = 0; at < 6; at++)
		record.fill[at] = record.number * 0x9e3779b97f4a7c15 + at;
	return record;
}

#define EMIT_NUMBERED(ctx, kind)                                                                                       \
	({                                                                                                             \
		struct numbered record = numbered(kind);                                                               \
                                                                                                                       \
		probe_emit(ctx, PROBE_USER_KIND(kind), &record);                                                       \
	})

SEC("classifier")
int emit_numbered(void *ctx)
{
	EMIT_NUMBERED(ctx, 0);
	return 0;
}

SEC("raw_tp")
int emit_numbered_raw(void *ctx)
{
	EMIT_NUMBERED(ctx, 0);
	return 0;
}

SEC("classifier")
int emit_tailed(void *ctx)
{
	struct probe_reservation reservation;
	struct tailed *record = probe_reserve(&reservation, PROBE_USER_KIND(1), struct tailed);
	__u8 *tail;

	if (!record)
		return 0;
	record->number = next(1);
	tail = (__u8 *)(record + 1);
#pragma unroll
	for (int at = 0; at < TAIL_LENS; at++)
		tail[at] = record->number;
	probe_commit_with_tail(ctx, &reservation, record->number % TAIL_LENS);
	return 0;
}

// Discards a reservation, then commits another one with a tail that is too long.
SEC("classifier")
int emit_nothing(void *ctx)
{
	struct probe_reservation reservation;

	if (probe_reserve(&reservation, PROBE_USER_KIND(1), struct tailed))
		probe_discard(&reservation);
	if (probe_reserve(&reservation, PROBE_USER_KIND(1), struct tailed))
		probe_commit_with_tail(ctx, &reservation, PROBE_MAX_TAIL(struct tailed) + 1);
	return 0;
}

SEC("perf_event")
int emit_interrupting(void *ctx)
{
	EMIT_NUMBERED(ctx, 2);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
