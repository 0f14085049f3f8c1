/* SPDX-License-Identifier: Apache-2.0 */
/* PTX as an image: its kernels, parameters and variables for the driver, the text itself for the device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver/sim.h"
#include "image.h"
#include "ptx_text.h"

/* Those that the driver gives memory; shared memory is a block's. */
static bool placed(const struct sim_ptx_symbol *v)
{
	return !v->external && (v->space == SIM_PTX_GLOBAL || v->space == SIM_PTX_CONST);
}

struct sizes {
	uint32_t params, variables;
	size_t strings;
};

static struct sizes measure(const struct sim_ptx_text *t)
{
	struct sizes s = { 0 };

	for (uint32_t i = 0; i < t->n_kernels; i++) {
		s.params += t->kernel[i].param.n;
		s.strings += strlen(t->kernel[i].name) + 1;
	}
	for (uint32_t i = 0; i < t->n_variables; i++)
		if (placed(&t->variable[i])) {
			s.variables++;
			s.strings += strlen(t->variable[i].name) + 1;
		}
	return s;
}

static char *describe(const struct sim_ptx_text *t, const char *text, size_t bytes)
{
	struct sizes s = measure(t);
	struct sim_image_header h = {
		.version = SIMGPU_IMAGE_VERSION, .n_kernels = t->n_kernels, .n_variables = s.variables, .n_params = s.params, .object_bytes = bytes + 1
	};

	memcpy(h.magic, SIMGPU_IMAGE_MAGIC, sizeof h.magic);
	h.kernels = sizeof h;
	h.variables = h.kernels + t->n_kernels * sizeof(struct sim_image_kernel);
	h.params = h.variables + s.variables * sizeof(struct sim_image_variable);
	h.strings = h.params + s.params * sizeof(struct sim_image_param);
	h.object = h.strings + s.strings;
	h.total_bytes = h.object + h.object_bytes;
	char *image = calloc(1, h.total_bytes);
	if (!image)
		return NULL;
	memcpy(image, &h, sizeof h);
	struct sim_image_kernel *k = (void *)(image + h.kernels);
	struct sim_image_param *p = (void *)(image + h.params);
	struct sim_image_variable *v = (void *)(image + h.variables);
	char *name = image + h.strings;
	uint32_t n = 0;
	for (uint32_t i = 0; i < t->n_kernels; i++, k++) {
		const struct sim_ptx_list *l = &t->kernel[i].param;

		*k = (struct sim_image_kernel){ (uint32_t)(name - (image + h.strings)), n, l->n, l->bytes };
		for (uint32_t j = 0; j < l->n; j++)
			p[n++] = (struct sim_image_param){ (uint32_t)l->symbol[j].offset, (uint32_t)l->symbol[j].bytes };
		name = stpcpy(name, t->kernel[i].name) + 1;
	}
	for (uint32_t i = 0; i < t->n_variables; i++)
		if (placed(&t->variable[i])) {
			*v++ = (struct sim_image_variable){ (uint32_t)(name - (image + h.strings)), t->variable[i].space == SIM_PTX_CONST, t->variable[i].bytes };
			name = stpcpy(name, t->variable[i].name) + 1;
		}
	memcpy(image + h.object, text, bytes);
	return image;
}

CUresult sim_ptx_image(const char *text, size_t bytes, char **image)
{
	struct sim_ptx_text t;
	CUresult r = CUDA_SUCCESS;

	*image = NULL;
	if (sim_ptx_read(&t, text, bytes)) {
		fprintf(stderr, "simgpu: PTX: %s\n", t.error);
		r = CUDA_ERROR_INVALID_PTX;
	} else {
		*image = describe(&t, text, bytes);
		if (!*image)
			r = CUDA_ERROR_OUT_OF_MEMORY;
	}
	sim_ptx_text_free(&t);
	return r;
}
