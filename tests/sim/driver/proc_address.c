/* SPDX-License-Identifier: Apache-2.0 */
/* cuGetProcAddress: names, versions and flags to entry points, and what is exported but not implemented. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "driver/sim.h"

/* Drivers have what no header of today names. */
SIM_API int cuSimNewerThanTheList(void);
SIM_API int cuSimNewerThanTheList(void)
{
	return 0;
}

/* Generated from the vendor's headers: which symbol a base name means from which version on. */
struct proc {
	const char *base;
	int version;
	const char *symbol;
	void *address;
	const char *per_thread_symbol; /* or NULL */
	void *per_thread_address;
};

#define SIM_PROC_TABLE
#include "driver_procs.inc"

CUresult sim_unsupported(const char *symbol)
{
	static char seen[1024][48];
	static int n;
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	int i;

	pthread_mutex_lock(&lock);
	for (i = 0; i < n && strcmp(seen[i], symbol); i++)
		;
	if (i == n && n < 1024) {
		snprintf(seen[n++], sizeof seen[0], "%s", symbol);
		fprintf(stderr, "simgpu: %s is not supported\n", symbol);
	}
	pthread_mutex_unlock(&lock);
	return CUDA_ERROR_NOT_SUPPORTED;
}

static CUresult look_up(const char *name, void **out, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
	const struct proc *best = NULL;
	bool known = false;

	if (!name || !out || (flags & ~(cuuint64_t)(CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM)))
		return CUDA_ERROR_INVALID_VALUE;
	for (const struct proc *p = procs; p->base; p++)
		if (!strcmp(p->base, name)) {
			known = true;
			if (p->version <= version && (!best || p->version > best->version))
				best = p;
		}
	*out = NULL;
	bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) && version >= 7000;
	if (best)
		*out = per_thread && best->per_thread_address ? best->per_thread_address : best->address;
	if (status)
		*status = best ? CU_GET_PROC_ADDRESS_SUCCESS :
			  known ? CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	/* With a status to fill in, a missing symbol is an answer and no error. */
	return best || status ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

SIM_API CUresult cuGetProcAddress(const char *name, void **out, int version, cuuint64_t flags)
{
	return look_up(name, out, version, flags, NULL);
}

SIM_API CUresult cuGetProcAddress_v2(const char *name, void **out, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
	return look_up(name, out, version, flags, status);
}

/* The per-thread twin prefers the per-thread entry points. */
SIM_API CUresult cuGetProcAddress_v2_ptsz(const char *name, void **out, int version, cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
	if (!(flags & CU_GET_PROC_ADDRESS_LEGACY_STREAM))
		flags |= CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
	return look_up(name, out, version, flags, status);
}
