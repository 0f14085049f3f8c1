/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that the device has a description of and no code for. */
#ifndef TESTS_SIM_DEVICE_PSEUDO_H
#define TESTS_SIM_DEVICE_PSEUDO_H

#include "device/mix.h"
#include "device/protocol.h"
#include "image.h"

struct sim_rule;

struct sim_described {
	char *mangled;
	char *name;       /* demangled, without the parameters */
	char **type;      /* of each parameter, as the signature has it; empty where it says nothing */
	uint32_t n_params;
	struct sim_image_param *param;
	const struct sim_rule *rule; /* NULL: the signature alone */
	bool resolved;
};

/* What one launch reads and writes. */
struct sim_plan {
	const struct sim_described *kernel;
	const struct sim_launch_request *launch;
	const char *params;
	struct sim_range *in, *out;
	int n_in, cap_in, n_out, cap_out;
	const char *functor; /* of an elementwise kernel, and its size */
	uint32_t functor_bytes;
	float *found_inf; /* the gradient scaler's, or NULL */
	uint64_t scalars; /* digest of the values that came as parameters */
};

struct sim_range *sim_plan_in(struct sim_plan *p, const void *at, uint64_t n, enum sim_type t);
struct sim_range *sim_plan_out(struct sim_plan *p, const void *at, uint64_t n, enum sim_type t);
void sim_plan_scalar(struct sim_plan *p, const void *at, size_t n);

/* Parameter `i` at byte `offset`. */
const char *sim_param(const struct sim_plan *p, uint32_t i, uint32_t offset);
uint32_t sim_param_size(const struct sim_plan *p, uint32_t i);
uint64_t sim_param_word(const struct sim_plan *p, uint32_t i, uint32_t offset);
int32_t sim_param_int(const struct sim_plan *p, uint32_t i, uint32_t offset);

/* A layout that takes more than a row of the table: false when the launch does not look like one. */
struct sim_layout {
	const char *name;
	bool (*plan)(struct sim_plan *p, const struct sim_rule *r);
};
extern const struct sim_layout sim_layouts[];

/* Describes the kernels of an image without code; with `ruled` only one of which some kernel has a rule. */
int sim_describe(const char *image, size_t bytes, bool ruled, struct sim_described **out, uint32_t *n);
void sim_pseudo_launch(struct sim_described *k, const struct sim_launch_request *m, const char *params);

/* Template argument `i` (from 0) of what follows the first `part` in `text`: where it begins and its length. */
const char *sim_template_argument(const char *text, const char *part, int i, size_t *n);

#endif
