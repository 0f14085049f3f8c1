/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parameters of a known optimizer kernel hold: lists of tensors by part, and scalars. A layout is found by
 * the kernel's name, and only if every parameter that the function itself describes has the offset and size that the
 * layout says: where anything differs there is none, and nothing is read.
 */
#ifndef TPCK_RUNTIME_INFER_LAYOUTS_H
#define TPCK_RUNTIME_INFER_LAYOUTS_H

#include <stdbool.h>
#include <stdint.h>

#include "runtime/wire/segment.h"

enum {
	TPCK_LAYOUT_LISTS = 5,
	TPCK_LAYOUT_SCALARS = 12,
	TPCK_LAYOUT_PARAMETERS = 24, /* most parameters of a kernel with a layout */
};

/* A parameter as the function describes it. */
struct tpck_parameter {
	uint32_t offset, size;
};

/* What a launch does to its tensors, element by element. */
enum tpck_layout_kind {
	TPCK_LAYOUT_STEP,      /* a whole optimizer's step: each list has a role */
	TPCK_LAYOUT_LERP,      /* a = lerp(a, b) */
	TPCK_LAYOUT_ADDCMUL,   /* a += value b c */
	TPCK_LAYOUT_ADDCDIV,   /* a += value b / c */
	TPCK_LAYOUT_ADD,       /* a += value b */
	TPCK_LAYOUT_SCALE,     /* a *= value */
	TPCK_LAYOUT_SUM,       /* a new c = a + value b */
	TPCK_LAYOUT_WRITE,     /* list `written` is written somehow */
};

struct tpck_layout_scalar {
	uint8_t parameter, bytes; /* 4, 8 */
	uint8_t what;             /* enum tpck_scalar, or with `on_device` enum tpck_tensor_role */
	bool on_device;           /* the address of a float, may be 0 */
	bool integer;
};

struct tpck_layout {
	char family[24];
	enum tpck_layout_kind kind;
	uint32_t lists, written;
	uint32_t role[TPCK_LAYOUT_LISTS];    /* enum tpck_tensor_role; of TPCK_LAYOUT_STEP */
	uint32_t element[TPCK_LAYOUT_LISTS]; /* as in tensor rows */
	/* A structure of lists: */
	bool listed;
	uint32_t parameter;         /* that holds it */
	uint32_t room, blocks;      /* tensors in a list, thread blocks */
	uint32_t numels_at, numel_bytes, steps_at, block_tensors_at, block_tensor_bytes, values_at; /* 0: none */
	/* or one tensor each: */
	uint32_t pointer[TPCK_LAYOUT_LISTS];    /* parameters */
	uint32_t pointer_at[TPCK_LAYOUT_LISTS]; /* and offsets in them */
	uint32_t count, count_bytes;            /* the parameter with the number of elements */
	bool whole_grid;                        /* one dimension of blocks covers all elements */
	uint32_t value, value_at, value_bytes;  /* the operation's scalar; bytes 0: none */
	uint32_t scalars;
	struct tpck_layout_scalar scalar[TPCK_LAYOUT_SCALARS];
};

/** Fills in the layout of the kernel of this (mangled) name. False: none is known, or the parameters are not its. */
bool tpck_layout_find(const char *name, const struct tpck_parameter *parameters, uint32_t count, struct tpck_layout *layout);

#endif
