/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The emitting side of the event pipe, for eBPF programs in C: what the crate probe-ebpf is for programs in Rust. User
 * space opens the pipe with EvPipe::from_object, or with PipeParts and any other loader.
 *
 *     #include <linux/bpf.h>
 *     #include <bpf/bpf_helpers.h>
 *     #include "probe.h"
 *
 *     struct forked { __u32 parent, child; };
 *     #define FORKED PROBE_USER_KIND(0)
 *
 *     SEC("raw_tp/sched_process_fork")
 *     int on_fork(void *ctx)
 *     {
 *         struct forked event = { .parent = bpf_get_current_pid_tgid() >> 32 };
 *         probe_emit(ctx, FORKED, &event);
 *         return 0;
 *     }
 *
 *     char LICENSE[] SEC("license") = "Dual MIT/GPL";
 *
 * Include it in one file of an object: it defines the pipe's maps and its flush program. Build with
 * `clang -target bpf -O2 -g -c`. A record type must have no implicit padding, and the Rust type that implements `Record`
 * must have the same layout and kind. Every failure is tallied, so results can be ignored.
 *
 * Begin programs of uprobes and tracepoints with probe_unshared_stack(): see docs/embedding.md.
 *
 * The layouts are those of the crate probe-common, and each step is that of the function in probe-ebpf/src that the
 * comment names. The reasons for the order of the steps are there.
 */
#ifndef PROBE_H
#define PROBE_H

/* vmlinux.h has its types, if it is included before. */
#ifndef __VMLINUX_H__
#include <linux/bpf.h>
#endif
#include <linux/errno.h>
#include <bpf/bpf_helpers.h>

/* The limits: probe-common/src/limits.rs. */
#define PROBE_MAX_EMIT 8192
#define PROBE_MAX_PACKED 8192
#define PROBE_DEPTH 4
#define PROBE_FIRST_USER_KIND 0x1000
#define PROBE_BUILTIN_KINDS 32
#define PROBE_USER_KINDS 96
#define PROBE_KINDS (PROBE_BUILTIN_KINDS + PROBE_USER_KINDS)
#define PROBE_BLOCK_KINDS 4
#define PROBE_CONTROL_CPUS 1024
#define PROBE_MOST_UNANSWERED 16

/* The user's nth kind: RecordKind::user(n). */
#define PROBE_USER_KIND(n) (PROBE_FIRST_USER_KIND + (n))
#define PROBE_IS_USER_KIND(kind) ((kind) >= PROBE_FIRST_USER_KIND && (kind) < PROBE_USER_KIND(PROBE_USER_KINDS))
#define PROBE_INDEX_OF(kind) ((kind) - PROBE_FIRST_USER_KIND + PROBE_BUILTIN_KINDS)

/* FailureClass. */
enum probe_failure {
	PROBE_NO_SPACE,
	PROBE_NO_EVENT,
	PROBE_NOT_ACTIVE,
	PROBE_TOO_BIG,
	PROBE_BUSY,
	PROBE_FAULT,
	PROBE_NESTED,
	PROBE_OTHER,
	PROBE_FAILURES,
};

/* Bank: the tally has one for each sort of count. */
enum probe_bank {
	PROBE_SENT_FIRST,
	PROBE_SENT_NESTED,
	PROBE_FAILED, /* and the class */
	PROBE_BANKS = PROBE_FAILED + PROBE_FAILURES,
};

/* Flushed. */
enum probe_flushed {
	PROBE_FLUSH_SENT,
	PROBE_FLUSH_HELD,
	PROBE_FLUSH_KEPT,
};

/* Clock: the loader sets PIPE_CLOCK before it loads the object. */
enum probe_clock {
	PROBE_PER_RECORD,
	PROBE_PER_BLOCK,
	PROBE_COARSE,
};

struct probe_header {
	__u32 kind;
	__u32 len;
	__u64 time;
};

#define PROBE_SPAN(len) (sizeof(struct probe_header) + (((len) + 7) & ~7U))

/* A slot: SlotHead, whose last four bytes are the prefix of the block, and the records of the block. */
struct probe_slot {
	__u64 claims;
	__u64 given_back;
	__u32 fill;
	__u32 seq;
	__u64 time;
	__u32 kinds[PROBE_BLOCK_KINDS]; /* index + 1 in the upper half, records in the lower */
	__u32 reserved;
	__u16 used;
	__u16 prefix_seq;
	__u8 records[PROBE_MAX_PACKED + PROBE_SPAN(PROBE_MAX_EMIT)];
} __attribute__((aligned(64)));

#define PROBE_PREFIX 4

_Static_assert(__builtin_offsetof(struct probe_slot, used) == 52, "the prefix precedes the records");
_Static_assert(__builtin_offsetof(struct probe_slot, records) == 56, "records are 8-aligned");

struct probe_tally {
	__u64 records[PROBE_KINDS];
};

struct probe_outputs {
	__u64 lost_records;
	__u64 failed[PROBE_FAILURES];
};

/* CpuControl. */
struct probe_control {
	__u32 limit;
	__u32 eager;
	__u32 open;
	__u32 ending;
	__u32 ended;
	__u32 wakeups;
	__u32 answered;
	__u32 owner;
	__u64 lost_records;
	__u64 failures;
	__u32 uncounted;
	__u32 reserved[3];
} __attribute__((aligned(64)));

_Static_assert(sizeof(struct probe_control) == 64, "each CPU has a cache line");

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
} PIPE_EVENTS SEC(".maps"), PIPE_EAGER SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, PROBE_DEPTH);
	__type(key, __u32);
	__type(value, struct probe_slot);
} PIPE_SCRATCH SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, PROBE_BANKS);
	__type(key, __u32);
	__type(value, struct probe_tally);
} PIPE_TALLY SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct probe_outputs);
} PIPE_OUTPUTS SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PROBE_CONTROL_CPUS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct probe_control);
} PIPE_CONTROL SEC(".maps");

const volatile __u32 PIPE_CLOCK = PROBE_PER_RECORD;

#define PROBE_READ(field) (*(const volatile __typeof__(field) *)&(field))
#define PROBE_WRITE(field, value) (*(volatile __typeof__(field) *)&(field) = (value))
/* Keeps the compiler from moving other accesses to memory to the other side. */
#define PROBE_BARRIER() __asm__ volatile("" ::: "memory")

/* Keeps the compiler from using what it knows of a value: it would remove a check that the verifier needs. */
#define PROBE_OPAQUE(value) __asm__ volatile("" : "+r"(value))

/* A value that is at most `most`, which the verifier does not know: in the very register that it has seen compared. */
#define PROBE_AT_MOST(value, most)                                                                                     \
	({                                                                                                             \
		__u64 probe__value = (value);                                                                          \
                                                                                                                       \
		PROBE_OPAQUE(probe__value);                                                                            \
		if (probe__value > (most))                                                                             \
			probe__value = 0;                                                                              \
		PROBE_OPAQUE(probe__value);                                                                            \
		probe__value;                                                                                          \
	})

/* Adds atomically, without fetching, which needs 5.12. */
static __always_inline void probe__add(__u64 *counter, __u64 n)
{
	__asm__ volatile("lock *(u64 *)(%0 + 0) += %1" : : "r"(counter), "r"(n) : "memory");
}

/* As unshared_stack() in Rust: each run of the program has a stack of its own. */
static __always_inline void probe_unshared_stack(void)
{
	/* A tail call that never runs. */
	__asm__ volatile("r0 = 0\n\tif r0 == 0 goto +1\n\tcall 12" : : : "r0", "r1", "r2", "r3", "r4", "r5");
}

static __always_inline struct probe_slot *probe__slot(__u32 depth)
{
	return bpf_map_lookup_elem(&PIPE_SCRATCH, &depth);
}

static __always_inline struct probe_control *probe__control(void)
{
	__u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&PIPE_CONTROL, &cpu);
}

/* Tallying: output.rs */

static __always_inline __u64 *probe__counter(__u32 bank, __u32 index)
{
	struct probe_tally *tally = bpf_map_lookup_elem(&PIPE_TALLY, &bank);

	PROBE_OPAQUE(index);
	return tally ? &tally->records[index & (PROBE_KINDS - 1)] : NULL;
}

static __always_inline void probe__count(__u32 bank, __u32 index, __u32 records)
{
	__u64 *counter = probe__counter(bank, index);

	if (counter)
		probe__add(counter, records);
}

static __always_inline void probe__count_sent(__u32 depth, __u32 index, __u32 records)
{
	__u64 *counter;

	if (depth != 0) {
		probe__count(PROBE_SENT_NESTED, index, records);
		return;
	}
	/* Only the holder of the first slot counts there. */
	counter = probe__counter(PROBE_SENT_FIRST, index);
	if (counter)
		*counter += records;
}

static __always_inline __u32 probe__class_of(long error)
{
	switch (error) {
	case -ENOSPC:
		return PROBE_NO_SPACE;
	case -ENOENT:
		return PROBE_NO_EVENT;
	case -EOPNOTSUPP:
		return PROBE_NOT_ACTIVE;
	case -E2BIG:
		return PROBE_TOO_BIG;
	case -EBUSY:
		return PROBE_BUSY;
	case -EFAULT:
		return PROBE_FAULT;
	default:
		return PROBE_OTHER;
	}
}

/* A record that the pipe refuses. */
static __always_inline void probe__refuse(__u32 index, __u32 class)
{
	struct probe_control *control = probe__control();

	probe__count(PROBE_FAILED + class, index, 1);
	if (control)
		probe__add(&control->failures, 1);
}

static __always_inline void probe__count_output(__u32 records, __u32 class)
{
	struct probe_control *control = probe__control();
	__u32 zero = 0;
	struct probe_outputs *outputs = bpf_map_lookup_elem(&PIPE_OUTPUTS, &zero);

	if (outputs) {
		__u32 at = class;

		if (class == PROBE_NO_SPACE)
			probe__add(&outputs->lost_records, records);
		PROBE_OPAQUE(at);
		probe__add(&outputs->failed[at & (PROBE_FAILURES - 1)], 1);
	}
	if (!control)
		return;
	if (class == PROBE_NO_SPACE)
		probe__add(&control->lost_records, records);
	else
		probe__add(&control->failures, 1);
}

static __always_inline void probe__tally_kind(__u32 depth, __u32 kind, long error, __u32 class)
{
	if (error)
		probe__count(PROBE_FAILED + class, (kind >> 16) - 1, kind & 0xffff);
	else
		probe__count_sent(depth, (kind >> 16) - 1, kind & 0xffff);
}

/* pipe_tally(): tallies and clears the records of a block, and tallies the output if it failed. */
static __noinline int probe__tally(__u32 depth, __u32 uncounted, long error)
{
	struct probe_slot *slot = probe__slot(depth);
	__u32 class = probe__class_of(error);
	__u32 records = uncounted & 0xffff;

	if (!slot)
		return 0;
	if (uncounted)
		probe__tally_kind(depth, uncounted, error, class);
#pragma unroll
	for (int at = 0; at < PROBE_BLOCK_KINDS; at++) {
		__u32 kind = slot->kinds[at];

		if (!kind)
			break;
		slot->kinds[at] = 0;
		records += kind & 0xffff;
		probe__tally_kind(depth, kind, error, class);
	}
	if (error)
		probe__count_output(records, class);
	return 0;
}

/* Sending: output.rs */

static __always_inline __u32 probe__limit(struct probe_control *control)
{
	/* A CPU without an entry packs nothing. */
	__u32 limit = control ? PROBE_READ(control->limit) : 0;

	return limit > PROBE_MAX_PACKED ? PROBE_MAX_PACKED : limit;
}

static __always_inline int probe__count_wakeup(struct probe_control *control, __u32 period)
{
	__u32 wakeups = PROBE_READ(control->wakeups) + 1;

	PROBE_WRITE(control->wakeups, wakeups);
	if (wakeups - PROBE_READ(control->answered) < PROBE_MOST_UNANSWERED)
		return 0;
	PROBE_WRITE(control->ending, period);
	return 1;
}

static __always_inline long probe__offer(void *ctx, struct probe_slot *slot, __u32 fill, __u32 depth,
					 struct probe_control *control)
{
	__u64 len = PROBE_AT_MOST(fill, sizeof(slot->records));

	slot->used = len / 8;
	len += PROBE_PREFIX;
	slot->prefix_seq = depth << 13 | (slot->seq & 0x1fff);
	if (control) {
		__u32 period = PROBE_READ(control->eager);

		if (period != PROBE_READ(control->ended) && period != 0) {
			int is_last = probe__count_wakeup(control, period);
			long error = bpf_perf_event_output(ctx, &PIPE_EAGER, BPF_F_CURRENT_CPU, &slot->used, len);

			if (error == 0 && is_last)
				PROBE_WRITE(control->ended, period);
			if (error != -ENOENT)
				return error;
		}
	}
	return bpf_perf_event_output(ctx, &PIPE_EVENTS, BPF_F_CURRENT_CPU, &slot->used, len);
}

/* Empties the first slot after an output. */
static __always_inline void probe__empty(struct probe_slot *slot, __u32 uncounted, struct probe_control *control,
					 long error)
{
	__u32 first = slot->kinds[0];

	slot->seq++;
	slot->fill = 0;
	if (control)
		PROBE_WRITE(control->open, 0);
	if (first && !error && !slot->kinds[1]) {
		slot->kinds[0] = 0;
		probe__count_sent(0, (first >> 16) - 1, first & 0xffff);
	} else {
		probe__tally(0, uncounted, error);
	}
}

/* Slots: slot.rs */

static __always_inline void probe__claim(struct probe_slot *slot)
{
	probe__add(&slot->claims, 1);
}

/* Whether the claim is the only one. Otherwise it is withdrawn. */
static __always_inline int probe__take(struct probe_slot *slot, __u64 *given_back)
{
	*given_back = PROBE_READ(slot->given_back);
	if (PROBE_READ(slot->claims) - *given_back == 1) {
		PROBE_BARRIER();
		return 1;
	}
	probe__add(&slot->claims, -1);
	return 0;
}

static __always_inline void probe__give_back(struct probe_slot *slot, __u64 given_back)
{
	PROBE_BARRIER();
	PROBE_WRITE(slot->given_back, given_back + 1);
}

/* Records: pipe.rs */

/* Memory for one record, until it is committed or discarded. */
struct probe_reservation {
	struct probe_slot *slot;
	struct probe_header *header;
	__u64 given_back;
	__u32 fill;
	__u32 depth;
	__u32 index;
	__u32 size;
};

static __always_inline __u64 probe__now(void)
{
	return PIPE_CLOCK == PROBE_COARSE ? bpf_ktime_get_coarse_ns() : bpf_ktime_get_ns();
}

static __always_inline void *probe__reserve(struct probe_reservation *to, __u32 kind, __u32 size)
{
	__u32 clock = PIPE_CLOCK, depth = 0;
	struct probe_slot *slot = probe__slot(0);
	__u64 now = 0, given_back = 0, fill;

	if (!slot)
		goto refused;
	probe__claim(slot);
	if (clock != PROBE_PER_BLOCK)
		now = probe__now();
	if (!probe__take(slot, &given_back)) {
#pragma unroll
		for (depth = 1; depth < PROBE_DEPTH; depth++) {
			slot = probe__slot(depth);
			if (!slot)
				goto refused;
			probe__claim(slot);
			if (probe__take(slot, &given_back))
				goto taken;
		}
		goto refused;
	}
taken:
	fill = PROBE_AT_MOST(slot->fill, PROBE_MAX_PACKED);
	if (clock == PROBE_PER_BLOCK) {
		if (fill == 0)
			slot->time = probe__now();
		now = slot->time;
	}
	to->slot = slot;
	to->header = (void *)slot->records + fill;
	to->given_back = given_back;
	to->fill = fill;
	to->depth = depth;
	to->index = PROBE_INDEX_OF(kind);
	to->size = size;
	to->header->kind = kind;
	to->header->len = size;
	to->header->time = now;
	return to->header + 1;
refused:
	probe__refuse(PROBE_INDEX_OF(kind), PROBE_NESTED);
	return NULL;
}

/* Counts the record in the block. Returns 0 if the block has too many kinds already. */
static __always_inline int probe__count_in_block(struct probe_slot *slot, __u32 index)
{
#pragma unroll
	for (int at = 0; at < PROBE_BLOCK_KINDS; at++) {
		__u32 kind = slot->kinds[at];

		if (kind >> 16 == index + 1) {
			slot->kinds[at] = kind + 1;
			return 1;
		}
		if (!kind) {
			slot->kinds[at] = (index + 1) << 16 | 1;
			return 1;
		}
	}
	return 0;
}

static __always_inline long probe__begin(void *ctx, struct probe_reservation *from, __u32 span)
{
	struct probe_control *control = probe__control();
	__u32 limit = from->depth == 0 ? probe__limit(control) : 0;
	struct probe_slot *slot = from->slot;

	if (2 * span > limit) {
		__u32 depth = from->depth;
		long error = probe__offer(ctx, slot, span, depth, control);

		slot->seq++;
		/* Otherwise, the compiler may compare the depth and a pointer as one word, which 5.10 does not allow. */
		PROBE_OPAQUE(depth);
		if (error)
			probe__tally(depth, (from->index + 1) << 16 | 1, error);
		else
			probe__count_sent(depth, from->index, 1);
		return error;
	}
	probe__count_in_block(slot, from->index);
	slot->fill = span;
	/* Not 0, which means that no block is open. */
	if (control)
		PROBE_WRITE(control->open, (slot->seq & 0xffff) + 1);
	return 0;
}

static __always_inline long probe__go_on(void *ctx, struct probe_reservation *from, __u32 span)
{
	int is_counted = probe__count_in_block(from->slot, from->index);
	struct probe_control *control = probe__control();
	__u32 fill = from->fill + span;
	long error;

	if (is_counted && fill + span <= probe__limit(control)) {
		from->slot->fill = fill;
		return 0;
	}
	error = probe__offer(ctx, from->slot, fill, 0, control);
	probe__empty(from->slot, is_counted ? 0 : (from->index + 1) << 16 | 1, control, error);
	return error;
}

static __always_inline long probe__append(void *ctx, struct probe_reservation *from, __u32 span)
{
	long error = from->fill == 0 ? probe__begin(ctx, from, span) : probe__go_on(ctx, from, span);

	probe__give_back(from->slot, from->given_back);
	return error;
}

/*
 * Reserves memory for a record of a type and kind, as pipe::reserve. Returns a pointer to the record, or NULL if
 * PROBE_DEPTH programs hold a reservation on this CPU already. The memory holds anything: write every field. Then call
 * probe_commit, probe_commit_with_tail or probe_discard, on every path.
 */
#define probe_reserve(reservation, record_kind, type)                                                                  \
	({                                                                                                             \
		_Static_assert(PROBE_IS_USER_KIND(record_kind), "use PROBE_USER_KIND(0) to (95)");                     \
		_Static_assert(sizeof(type) <= PROBE_MAX_EMIT, "the record is longer than PROBE_MAX_EMIT");            \
		_Static_assert(_Alignof(type) <= 8, "records are 8-aligned");                                          \
		(type *)probe__reserve((reservation), (record_kind), sizeof(type));                                    \
	})

/* How many bytes of tail a record of a type can have. They follow the record in a reservation. */
#define PROBE_MAX_TAIL(type) (PROBE_MAX_EMIT - sizeof(type))

/* Sends the record. Returns 0, or the negative errno of the kernel, which is tallied. */
static __always_inline long probe_commit(void *ctx, struct probe_reservation *reservation)
{
	return probe__append(ctx, reservation, PROBE_SPAN(reservation->size));
}

/* Sends the record and `len` bytes of its tail. -E2BIG if it can have no such tail. */
static __always_inline long probe_commit_with_tail(void *ctx, struct probe_reservation *reservation, __u32 len)
{
	if (len > PROBE_MAX_EMIT - reservation->size) {
		probe__refuse(reservation->index, PROBE_TOO_BIG);
		probe__give_back(reservation->slot, reservation->given_back);
		return -E2BIG;
	}
	len += reservation->size;
	reservation->header->len = len;
	return probe__append(ctx, reservation, PROBE_SPAN(len));
}

/* Sends nothing and counts nothing. */
static __always_inline void probe_discard(struct probe_reservation *reservation)
{
	probe__give_back(reservation->slot, reservation->given_back);
}

/* Sends a copy of a record, as pipe::emit. Returns 0 or a negative errno; -EBUSY also if there is no slot. */
#define probe_emit(ctx, record_kind, record)                                                                           \
	({                                                                                                             \
		struct probe_reservation probe__reservation;                                                           \
		__typeof__(*(record)) *probe__to =                                                                     \
			probe_reserve(&probe__reservation, record_kind, __typeof__(*(record)));                        \
		long probe__error = -EBUSY;                                                                            \
                                                                                                                       \
		if (probe__to) {                                                                                       \
			*probe__to = *(record);                                                                        \
			probe__error = probe_commit((ctx), &probe__reservation);                                       \
		}                                                                                                      \
		probe__error;                                                                                          \
	})

/* User space runs this on a CPU to send its open block. */
SEC("raw_tp")
int pipe_flush(void *ctx)
{
	struct probe_control *control;
	struct probe_slot *slot;
	int answer = PROBE_FLUSH_SENT;
	__u64 given_back;
	__u32 fill;

	probe_unshared_stack();
#pragma unroll
	for (__u32 depth = 1; depth < PROBE_DEPTH; depth++) {
		slot = probe__slot(depth);
		if (slot) {
			given_back = PROBE_READ(slot->given_back);
			if (PROBE_READ(slot->claims) != given_back)
				return PROBE_FLUSH_HELD;
		}
	}
	slot = probe__slot(0);
	if (!slot)
		return PROBE_FLUSH_SENT;
	probe__claim(slot);
	if (!probe__take(slot, &given_back))
		return PROBE_FLUSH_HELD;
	fill = slot->fill;
	if (fill) {
		long error;

		control = probe__control();
		error = probe__offer(ctx, slot, fill, 0, control);
		/* A CPU that was offline, and has no new event yet, keeps its block. */
		if (error == -EOPNOTSUPP)
			answer = PROBE_FLUSH_KEPT;
		else
			probe__empty(slot, 0, control, error);
	}
	probe__give_back(slot, given_back);
	return answer;
}

#endif
