// SPDX-License-Identifier: Dual MIT/GPL
/* The test module: PMUs that imitate hardware with predictable results. */
#include <linux/module.h>
#include "pmus.h"

static int __init probe_aux_init(void)
{
	int error = area_register();

	if (error)
		return error;
	error = narrow_register();
	if (error)
		area_unregister();
	return error;
}

static void __exit probe_aux_exit(void)
{
	narrow_unregister();
	area_unregister();
}

module_init(probe_aux_init);
module_exit(probe_aux_exit);
MODULE_LICENSE("Dual MIT/GPL");
MODULE_DESCRIPTION("PMUs with known bytes and counts");
