// SPDX-License-Identifier: Dual MIT/GPL
/*
 * A PMU with an AUX area whose bytes are known, for the tests of the AUX area.
 *
 * Each read(2) of an event that is scheduled on a CPU writes the next attr.config bytes of the
 * pattern as one output. Byte n of the total written to an area is (n ^ n >> 8) & 0xff. Bytes that
 * do not fit are dropped, and the output is flagged as truncated. Bits of attr.config1 request
 * flags that real hardware sets occasionally.
 */
#include <linux/module.h>
#include <linux/perf_event.h>
#include "pmus.h"

/* Bits of config1, and the output flag that each of them requests. */
#define WANTS_PARTIAL 1
#define WANTS_COLLISION 2

struct area {
	void **pages;
	int count;
	bool overwrite;
	u64 written;
};

static u8 pattern(u64 n)
{
	return n ^ n >> 8;
}

static void *area_map(struct perf_event *event, void **pages, int count, bool overwrite)
{
	struct area *area = kzalloc(sizeof(*area), GFP_KERNEL);

	if (!area)
		return NULL;
	area->pages = pages;
	area->count = count;
	area->overwrite = overwrite;
	return area;
}

static void area_unmap(void *area)
{
	kfree(area);
}

/* The event counts the bytes it has written. */
static void emit(struct perf_event *event)
{
	struct perf_output_handle handle = {};
	struct area *area = perf_aux_output_begin(&handle, event);
	unsigned long wanted = event->attr.config, at, n;
	unsigned long room;

	if (!area)
		return;
	room = area->overwrite ? wanted : min(wanted, handle.size);
	at = handle.head;
	for (n = 0; n < room; n++, at++) {
		unsigned long in_area = at & (((unsigned long)area->count << PAGE_SHIFT) - 1);
		u8 *page = area->pages[in_area >> PAGE_SHIFT];

		page[in_area & ~PAGE_MASK] = pattern(area->written + n);
	}
	area->written += room;
	local64_add(room, &event->count);
	if (room < wanted)
		perf_aux_output_flag(&handle, PERF_AUX_FLAG_TRUNCATED);
	if (event->attr.config1 & WANTS_PARTIAL)
		perf_aux_output_flag(&handle, PERF_AUX_FLAG_PARTIAL);
	if (event->attr.config1 & WANTS_COLLISION)
		perf_aux_output_flag(&handle, PERF_AUX_FLAG_COLLISION);
	if (area->overwrite)
		handle.head = at;
	perf_aux_output_end(&handle, room);
}

static void event_read(struct perf_event *event)
{
	if (!(event->hw.state & PERF_HES_STOPPED))
		emit(event);
}

static void event_start(struct perf_event *event, int flags)
{
	event->hw.state = 0;
}

static void event_stop(struct perf_event *event, int flags)
{
	event->hw.state = PERF_HES_STOPPED;
}

static int event_add(struct perf_event *event, int flags)
{
	event->hw.state = flags & PERF_EF_START ? 0 : PERF_HES_STOPPED;
	return 0;
}

static void event_del(struct perf_event *event, int flags)
{
	event_stop(event, flags);
}

static struct pmu probe_aux;

static int event_init(struct perf_event *event)
{
	return event->attr.type == probe_aux.type ? 0 : -ENOENT;
}

static struct pmu probe_aux = {
	.module = THIS_MODULE,
	/* Makes the kernel write a record for each thread traced from now on. */
	.capabilities = PERF_PMU_CAP_ITRACE,
	.task_ctx_nr = perf_sw_context,
	.event_init = event_init,
	.add = event_add,
	.del = event_del,
	.start = event_start,
	.stop = event_stop,
	.read = event_read,
	.setup_aux = area_map,
	.free_aux = area_unmap,
};

int area_register(void)
{
	return perf_pmu_register(&probe_aux, "probe_aux", -1);
}

void area_unregister(void)
{
	perf_pmu_unregister(&probe_aux);
}
