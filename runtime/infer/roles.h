/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Roles of tensors: which are parameters, gradients and moments, read from the launches of the optimizer phase. Launches
 * are gathered as they are made, which is a few copies of memory each; what they say is worked out only for an image, by
 * the thread that writes it. A whole step's kernel names the roles itself. Of PyTorch's elementwise operations on lists
 * they follow from what is computed from what: p += m / d with m = lerp(m, g) and v += g g is Adam's, whatever else there
 * is. What contradicts itself, overlaps or is not in live memory has no role.
 */
#ifndef TPCK_RUNTIME_INFER_ROLES_H
#define TPCK_RUNTIME_INFER_ROLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/infer/layouts.h"
#include "runtime/wire/segment.h"

/* Launches since the last boundary. */
struct tpck_gathered;

/* A launch with these parameters, as cuLaunchKernel() gets them; NULL: they were given in another way. Thread-safe. */
void tpck_roles_launch(const struct tpck_layout *layout, void *const *parameters, const uint32_t grid[3]);
/* A launch in the optimizer phase that works on lists and has no layout. */
void tpck_roles_unknown(void);
/* What the host told the optimizer's launches, in their order: of a launch that was told what the one before was told,
 * nothing. */
struct tpck_roles_scalar {
	uint32_t launch; /* among those gathered */
	uint32_t what;   /* enum tpck_scalar; TPCK_SCALARS: the factor of an operation on lists */
	double value;
};
/* The first of them, up to `room`, of what was gathered since the last boundary; how many. */
size_t tpck_roles_scalars(struct tpck_roles_scalar *scalars, size_t room);
/* What was gathered since the last call, or NULL; the caller's, to give back. */
struct tpck_gathered *tpck_roles_take(void);
/* Forgets it instead. */
void tpck_roles_forget(void);
void tpck_roles_give_back(struct tpck_gathered *gathered);

struct tpck_roles {
	uint32_t tensors, optimizers;
	struct tpck_image_tensor *tensor;       /* by ascending address */
	struct tpck_image_optimizer *optimizer;
};

/* What the launches say of what lies in these rows. 0 or -ENOMEM. */
int tpck_roles_resolve(const struct tpck_gathered *gathered, const struct tpck_image_row *rows, uint32_t count,
		       struct tpck_roles *roles);
/* Adds to the optimizers the scalars that lie on the device, out of the image's data. */
void tpck_roles_read_scalars(const struct tpck_roles *roles, const struct tpck_image_row *rows, uint32_t count, const char *data);
void tpck_roles_free(struct tpck_roles *roles);
const char *tpck_tensor_role_name(uint32_t role);

#endif
