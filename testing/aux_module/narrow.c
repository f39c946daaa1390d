// SPDX-License-Identifier: Dual MIT/GPL
/*
 * Two identical PMUs, each with room for one event at a time per CPU: the kernel multiplexes
 * further events.
 *
 * An event counts the nanoseconds that it is scheduled on its CPU, multiplied by attr.config. A
 * group with several of these events never fits and is rejected, as CPU PMUs do. With bit 0 of the
 * leader's attr.config1 the group is accepted and never counted, as on PMUs that do not check.
 */
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/perf_event.h>
#include <linux/timekeeping.h>
#include "pmus.h"

#define COUNT 2
#define TAKES_ANY_GROUP 1

struct narrow {
	struct pmu pmu;
	/* The event on each CPU. */
	struct perf_event * __percpu *counted;
};

static struct narrow narrows[COUNT];

static struct perf_event **place_of(struct perf_event *event)
{
	return this_cpu_ptr(container_of(event->pmu, struct narrow, pmu)->counted);
}

static bool fits(struct perf_event *event)
{
	struct perf_event *leader = event->group_leader, *other;

	if (leader == event || leader->attr.config1 & TAKES_ANY_GROUP)
		return true;
	if (leader->pmu == event->pmu)
		return false;
	for_each_sibling_event(other, leader)
		if (other->pmu == event->pmu)
			return false;
	return true;
}

static int narrow_init(struct perf_event *event)
{
	if (event->attr.type != event->pmu->type)
		return -ENOENT;
	return event->cpu >= 0 && fits(event) ? 0 : -EINVAL;
}

static void narrow_start(struct perf_event *event, int flags)
{
	local64_set(&event->hw.prev_count, ktime_get_mono_fast_ns());
	event->hw.state = 0;
}

static void narrow_read(struct perf_event *event)
{
	u64 now = ktime_get_mono_fast_ns();

	if (!(event->hw.state & PERF_HES_STOPPED))
		local64_add((now - local64_xchg(&event->hw.prev_count, now)) * event->attr.config,
			    &event->count);
}

static void narrow_stop(struct perf_event *event, int flags)
{
	narrow_read(event);
	event->hw.state = PERF_HES_STOPPED | PERF_HES_UPTODATE;
}

static int narrow_add(struct perf_event *event, int flags)
{
	struct perf_event **place = place_of(event);

	if (*place)
		return -EAGAIN;
	*place = event;
	event->hw.state = PERF_HES_STOPPED | PERF_HES_UPTODATE;
	if (flags & PERF_EF_START)
		narrow_start(event, flags);
	return 0;
}

static void narrow_del(struct perf_event *event, int flags)
{
	narrow_stop(event, flags);
	*place_of(event) = NULL;
}

static void unregister(int count)
{
	while (count--) {
		perf_pmu_unregister(&narrows[count].pmu);
		free_percpu(narrows[count].counted);
	}
}

static int register_one(struct narrow *narrow, const char *name)
{
	int error;

	narrow->counted = alloc_percpu(struct perf_event *);
	if (!narrow->counted)
		return -ENOMEM;
	narrow->pmu = (struct pmu) {
		.module = THIS_MODULE,
		.task_ctx_nr = perf_invalid_context,
		.capabilities = PERF_PMU_CAP_NO_INTERRUPT,
		.event_init = narrow_init,
		.add = narrow_add,
		.del = narrow_del,
		.start = narrow_start,
		.stop = narrow_stop,
		.read = narrow_read,
	};
	error = perf_pmu_register(&narrow->pmu, name, -1);
	if (error)
		free_percpu(narrow->counted);
	return error;
}

int narrow_register(void)
{
	static const char *const names[COUNT] = { "probe_narrow_0", "probe_narrow_1" };
	int n, error;

	for (n = 0; n < COUNT; n++) {
		error = register_one(&narrows[n], names[n]);
		if (error) {
			unregister(n);
			return error;
		}
	}
	return 0;
}

void narrow_unregister(void)
{
	unregister(COUNT);
}
