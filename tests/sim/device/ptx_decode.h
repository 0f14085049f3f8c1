/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of PTX's decoder share: names and operands of the kernel that is read. */
#ifndef TESTS_SIM_DEVICE_PTX_DECODE_H
#define TESTS_SIM_DEVICE_PTX_DECODE_H

#include <string.h>

#include "device/ptx.h"

/* A name of the body: registers "%r<n>" with a place each, memory, or a label. */
enum name_kind { NAME_REGISTERS, NAME_MEMORY, NAME_LABEL };
struct name {
	const char *text;
	size_t length;
	enum name_kind kind;
	enum ptx_type type;        /* of registers */
	uint32_t first, count;     /* of registers: the first place, and how many (0: one without a number) */
	enum sim_ptx_space space;  /* of memory */
	uint64_t offset;
	uint32_t scope, insn;      /* of a label */
};

struct fixup {
	uint32_t insn, scope;
	const char *text;
	size_t length;
};

struct decoder {
	struct ptx_module *module;
	struct ptx_code *code;
	struct name *name;
	uint32_t n_names, names_room;
	struct fixup *fixup;
	uint32_t n_fixups;
	uint32_t *parent; /* of each scope */
	uint32_t scope, n_scopes, depth;
	struct name *label;
	uint32_t n_labels;
	bool failed;
};

#define DEPTH_MAX 16
#define PARTS 12
struct opcode {
	char text[160];
	char *part[PARTS];
	int n;
};

enum operand_kind { OP_NONE, OP_REGISTER, OP_NUMBER, OP_ADDRESS, OP_SYMBOL, OP_SPECIAL };
struct operand {
	enum operand_kind kind;
	bool inverted, real, sink;
	uint32_t at;
	enum ptx_type type; /* of a register */
	int64_t value;      /* number, offset */
	uint64_t bits;      /* of a 0f or 0d number */
	int digits;         /* 8 or 16 of such a number */
	bool memory; /* a name of the body that is memory, in `space` at `offset` */
	enum sim_ptx_space space;
	uint64_t offset;
	int32_t variable; /* of the module, or -1 */
	const char *text;
	size_t length;
	struct operand *list; /* of { } */
	int n;
};

#define OPERANDS_MAX 8

static inline bool ptx_same(const char *a, size_t n, const char *b)
{
	return strlen(b) == n && !memcmp(a, b, n);
}

static inline bool ptx_is_wide(enum ptx_type t)
{
	return t >= PTX_B64;
}

/* Says once what cannot be decoded. */
void ptx_unknown(struct decoder *d, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Room for one more behind `n`; it grows by doubling. */
void *ptx_grown(void *list, uint32_t n, size_t bytes);

/* ---- ptx_operands.c ---- */
enum ptx_type ptx_type_named(const char *text, size_t n);
uint32_t ptx_new_place(struct decoder *d, enum ptx_type t, uint32_t count);
struct name *ptx_add_name(struct decoder *d, const char *text, size_t n, enum name_kind kind);
const struct name *ptx_find_name(const struct decoder *d, const char *text, size_t n, uint32_t *at);
/* Those up to ';': how many, or -1. */
int ptx_operands(struct decoder *d, const char **from, struct operand *o);
void ptx_operands_free(struct operand *o, int n);
/* Put operands into an instruction, from index `k`, as type `t`; a list returns how many there are. */
bool ptx_put(struct decoder *d, struct ptx_insn *i, int k, const struct operand *o, enum ptx_type t);
bool ptx_put_address(struct decoder *d, struct ptx_insn *i, int k, const struct operand *o);
int ptx_put_list(struct decoder *d, struct ptx_insn *i, int k, const struct operand *o, enum ptx_type t);

/* ---- ptx_operations.c ---- */
bool ptx_operation(struct decoder *d, const struct opcode *p, struct ptx_insn *i, const struct operand *o, int n);

/* ---- ptx_decode.c ---- */
/* Instruction `insn` goes to label `text`, or with NULL behind the function that begins at `n`. */
void ptx_jump_to(struct decoder *d, uint32_t insn, const char *text, size_t n);

#endif
