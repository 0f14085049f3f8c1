/* SPDX-License-Identifier: Apache-2.0 */
/* cuLink*: texts of PTX become one, in a cubin that cuModuleLoadData takes. The device looks for a name in all of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cubin.h"
#include "driver/sim.h"
#include "ptx_text.h"

#define LINK_MAGIC 0x6c696e6bu
#define LOGS 4

struct link {
	uint32_t magic;
	char *text, *cubin;
	size_t bytes;
	void **log_bytes[LOGS]; /* the caller's: how much of his buffers was filled */
	unsigned n_logs;
};

static struct link *link_check(CUlinkState h)
{
	struct link *l = (struct link *)(void *)h;

	return l && l->magic == LINK_MAGIC ? l : NULL;
}

SIM_API CUresult cuLinkCreate_v2(unsigned n, CUjit_option *options, void **values, CUlinkState *out)
{
	SIM_ENTER();
	if (!out || (n && (!options || !values)))
		return sim_return(CUDA_ERROR_INVALID_VALUE);
	struct link *l = calloc(1, sizeof *l);
	if (!l)
		return sim_return(CUDA_ERROR_OUT_OF_MEMORY);
	l->magic = LINK_MAGIC;
	for (unsigned i = 0; i < n; i++)
		if ((options[i] == CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES || options[i] == CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES) && l->n_logs < LOGS)
			l->log_bytes[l->n_logs++] = &values[i];
		else if ((options[i] == CU_JIT_INFO_LOG_BUFFER || options[i] == CU_JIT_ERROR_LOG_BUFFER) && values[i])
			*(char *)values[i] = 0;
	*out = (CUlinkState)(void *)l;
	return sim_return(CUDA_SUCCESS);
}

static CUresult add(struct link *l, CUjitInputType type, const char *data, size_t bytes, const char *name)
{
	struct sim_ptx_text t;

	if (type != CU_JIT_INPUT_PTX) {
		fprintf(stderr, "simgpu: %s is no PTX, and nothing else is linked\n", name && *name ? name : "an input");
		return CUDA_ERROR_INVALID_IMAGE;
	}
	bytes = strnlen(data, bytes);
	int r = sim_ptx_looks(data, bytes) ? sim_ptx_read(&t, data, bytes) : -1;
	if (r)
		return CUDA_ERROR_INVALID_PTX;
	sim_ptx_text_free(&t);
	char *longer = realloc(l->text, l->bytes + bytes + 1);
	if (!longer)
		return CUDA_ERROR_OUT_OF_MEMORY;
	l->text = longer;
	memcpy(l->text + l->bytes, data, bytes);
	l->bytes += bytes;
	l->text[l->bytes++] = '\n';
	return CUDA_SUCCESS;
}

SIM_API CUresult cuLinkAddData_v2(CUlinkState h, CUjitInputType type, void *data, size_t bytes, const char *name, unsigned n,
				  CUjit_option *options, void **values)
{
	(void)n, (void)options, (void)values;
	SIM_ENTER();
	struct link *l = link_check(h);
	if (!l || !data)
		return sim_return(l ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE);
	return sim_return(add(l, type, data, bytes, name));
}

SIM_API CUresult cuLinkComplete(CUlinkState h, void **out, size_t *bytes)
{
	SIM_ENTER();
	struct link *l = link_check(h);
	if (!l || !out)
		return sim_return(l ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_HANDLE);
	for (unsigned i = 0; i < l->n_logs; i++)
		*l->log_bytes[i] = NULL;
	if (!l->text)
		return sim_return(CUDA_ERROR_NO_BINARY_FOR_GPU);
	struct sim_cubin cubin = sim_cubin_of_ptx(l->bytes);
	free(l->cubin);
	l->cubin = malloc(sizeof cubin + l->bytes);
	if (!l->cubin)
		return sim_return(CUDA_ERROR_OUT_OF_MEMORY);
	memcpy(l->cubin, &cubin, sizeof cubin);
	memcpy(l->cubin + sizeof cubin, l->text, l->bytes);
	*out = l->cubin;
	if (bytes)
		*bytes = sizeof cubin + l->bytes;
	return sim_return(CUDA_SUCCESS);
}

SIM_API CUresult cuLinkDestroy(CUlinkState h)
{
	struct link *l = link_check(h);

	if (!l)
		return CUDA_ERROR_INVALID_HANDLE;
	l->magic = 0;
	free(l->text);
	free(l->cubin);
	free(l);
	return CUDA_SUCCESS;
}
