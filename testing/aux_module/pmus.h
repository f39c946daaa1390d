/* SPDX-License-Identifier: Dual MIT/GPL */
/* The PMUs of the module, one per source file. */
#ifndef PROBE_PMUS_H
#define PROBE_PMUS_H

int area_register(void);
void area_unregister(void);

int narrow_register(void);
void narrow_unregister(void);

#endif
