/* SPDX-License-Identifier: Apache-2.0 */
/* Functions by the driver's handle: a name, an identity that is the same in every run, the size of
 * their parameters. Look-ups take no lock. */
#ifndef TPCK_RUNTIME_TRACK_FUNCTIONS_H
#define TPCK_RUNTIME_TRACK_FUNCTIONS_H

#include <stdint.h>

struct tpck_function {
	const char *name;     /* lives as long as the process; NULL unknown */
	uint64_t id;          /* digest of the name */
	uint32_t parameters;  /* bytes; 0 unknown */
	const void *layout;   /* what the parameters hold, for whoever reads them; NULL unknown; lives as long as the process */
	void *memo;           /* inference's, under its lock */
};

/* Remembers a handle; a second call for it replaces what is known. -ENOSPC. */
int tpck_functions_add(const void *handle, const char *name, uint32_t parameters, const void *layout);
/* NULL if the handle is not known. */
struct tpck_function *tpck_functions_find(const void *handle);

#endif
