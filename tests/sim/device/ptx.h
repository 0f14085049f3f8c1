/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels that came as PTX: decoded once, then interpreted a warp at a time. */
#ifndef TESTS_SIM_DEVICE_PTX_H
#define TESTS_SIM_DEVICE_PTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device/protocol.h"
#include "ptx_text.h"

#define PTX_LANES 32
#define PTX_OPERANDS 18

enum ptx_type {
	PTX_NONE, PTX_PRED,
	PTX_B8, PTX_U8, PTX_S8,
	PTX_B16, PTX_U16, PTX_S16, PTX_F16, PTX_BF16,
	PTX_B32, PTX_U32, PTX_S32, PTX_F32, PTX_TF32, PTX_F16X2, PTX_BF16X2, PTX_U16X2, PTX_S16X2,
	PTX_B64, PTX_U64, PTX_S64, PTX_F64,
	PTX_B128,
};

enum ptx_round { PTX_RN, PTX_RZ, PTX_RM, PTX_RP, PTX_RNA, PTX_RNI, PTX_RZI, PTX_RMI, PTX_RPI };

/* What the loop over instructions must know of one; all others just run. */
enum ptx_flow {
	PTX_FLOW_NEXT,
	PTX_FLOW_BRANCH, /* to `target` */
	PTX_FLOW_EXIT,
	PTX_FLOW_BARRIER, /* `imm` its number, `n` whether it waits, operand 0 the threads it is for, if any */
	PTX_FLOW_WARP,    /* needs the lanes of operand `mask` together */
};

struct ptx_warp;
struct ptx_insn;
typedef void (*ptx_run)(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask);

/* Operands are places in the warp's frame: 32 words, 32 double words, or one word of 32 bits for a predicate. */
struct ptx_insn {
	ptx_run run;
	uint32_t guard; /* the predicate's place, 0 for none */
	uint32_t target;
	bool negate, ftz, sat, extra; /* `extra`: what the operation makes of it */
	uint8_t flow, type, from; /* `from`: the type of what is converted */
	uint8_t how;              /* comparison, kind of shuffle or atomic operation */
	uint8_t and_or;
	uint8_t round, space, n;  /* `n`: elements of a vector, operands of a packed move */
	uint8_t mask;             /* which operand names the lanes, 0 for all */
	uint32_t wide, invert;    /* a bit an operand: a place of double words; a predicate that is taken inverted */
	uint32_t at[PTX_OPERANDS];
	int64_t imm;
};

/* The first places of a frame: what nobody reads, and the carry of add.cc and its like. */
#define PTX_SINK 0
#define PTX_CARRY 256
#define PTX_FRAME_FIRST 512

/* Operand `k` as an array of `type`, and a statement for each lane `l` of a mask. */
#define PTX_AT(k, type) ((type *)(void *)(w->frame + i->at[k]))
#define PTX_EACH(mask, ...) \
	do { \
		if ((mask) == ~0u) { \
			for (int l = 0; l < PTX_LANES; l++) { \
				__VA_ARGS__; \
			} \
		} else { \
			for (uint32_t rest = (mask); rest; rest &= rest - 1) { \
				int l = __builtin_ctz(rest); \
				__VA_ARGS__; \
			} \
		} \
	} while (0)

/* What is written into a frame before a kernel starts. */
enum ptx_given_kind { PTX_GIVEN_NUMBER, PTX_GIVEN_VARIABLE, PTX_GIVEN_LOCAL, PTX_GIVEN_PARAM, PTX_GIVEN_SPECIAL };
struct ptx_given {
	uint32_t at;
	bool wide;
	uint8_t kind;
	uint64_t value; /* the number; an index of a variable; an offset in local memory or the parameters; a special register */
};

struct ptx_code {
	const struct sim_ptx_kernel *kernel;
	struct ptx_insn *insn;
	uint32_t n;
	struct ptx_given *given;
	uint32_t n_given;
	uint32_t frame_bytes, local_bytes, shared_bytes; /* of shared memory what does not come with the launch */
	char unknown[200]; /* an instruction that cannot be run, or empty */
	bool told;
};

struct ptx_module {
	struct sim_ptx_text text;
	uint64_t *address; /* of each variable */
	struct ptx_code *code;
};

/* A warp as instructions see it. */
struct ptx_warp {
	char *frame;
	char *shared;
	uint64_t shared_bytes;
};

enum ptx_special {
	PTX_TID_X, PTX_TID_Y, PTX_TID_Z, PTX_NTID_X, PTX_NTID_Y, PTX_NTID_Z,
	PTX_CTAID_X, PTX_CTAID_Y, PTX_CTAID_Z, PTX_NCTAID_X, PTX_NCTAID_Y, PTX_NCTAID_Z,
	PTX_LANEID, PTX_WARPID, PTX_NWARPID, PTX_SMID, PTX_NSMID,
	PTX_LANEMASK_EQ, PTX_LANEMASK_LE, PTX_LANEMASK_LT, PTX_LANEMASK_GE, PTX_LANEMASK_GT,
	PTX_DYNAMIC_SMEM, PTX_TOTAL_SMEM, PTX_DYNAMIC_SHARED, /* where what the launch asks for begins */
};

/* ---- ptx_decode.c ---- */
int ptx_decode(struct ptx_module *m, struct ptx_code *c, const struct sim_ptx_kernel *k);

/* ---- ptx_alu.c: arithmetic, by "name.type" without what only rounds ---- */
struct ptx_row {
	const char *name;
	/* Of each operand, the result first: t the operation's type, p a predicate, h 16 bits, w 32, d 64. */
	const char *operands;
	ptx_run run;
	ptx_run careful; /* with a rounding mode, or saturating; or NULL */
	enum ptx_type type;
	uint8_t how;
};
const struct ptx_row *ptx_row_find(const char *name);
ptx_run ptx_compare(const struct ptx_insn *i, bool numbers);

/* ---- ptx_convert.c ---- */
/* What converts as the instruction's types and roundings say, or NULL. */
ptx_run ptx_convert(struct ptx_insn *i);
float ptx_half_to_float(uint16_t h);
uint16_t ptx_float_to_half(float f);
float ptx_bfloat_to_float(uint16_t h);
uint16_t ptx_float_to_bfloat(float f);
uint16_t ptx_to_half(double x, enum ptx_round round);
uint16_t ptx_to_bfloat(double x, enum ptx_round round);
/* As fesetround() takes it. */
int ptx_rounding_mode(enum ptx_round round);
/* A number too small for a normal one as zero. */
static inline float ptx_flushed(float x)
{
	return __builtin_fabsf(x) < 0x1p-126f ? __builtin_copysignf(0, x) : x;
}

/* ---- ptx_memory.c: loads, stores, atomics, and what moves between lanes ---- */
void ptx_load(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask);
void ptx_store(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask);
void ptx_atomic(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask);
void ptx_copy_async(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask);
void ptx_shuffle(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask);
void ptx_vote(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask);
void ptx_reduce(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask);
void ptx_match(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask);
void ptx_elect(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask);
void ptx_active_mask(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask);
void ptx_load_matrix(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask);
void ptx_store_matrix(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask);
void ptx_to_shared(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask);
void ptx_from_shared(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask);
enum ptx_atomic { PTX_ADD, PTX_MIN, PTX_MAX, PTX_AND, PTX_OR, PTX_XOR, PTX_EXCH, PTX_CAS, PTX_INC, PTX_DEC };
enum ptx_shuffle { PTX_UP, PTX_DOWN, PTX_BFLY, PTX_IDX };
enum ptx_vote { PTX_ALL, PTX_ANY, PTX_UNI, PTX_BALLOT };

/* ---- ptx_run.c ---- */
int ptx_module_new(const char *text, size_t bytes, struct ptx_module **out);
int ptx_module_bind(struct ptx_module *m, const char *name, uint64_t address);
int ptx_module_fill(struct ptx_module *m, const char *name, uint64_t address, size_t bytes);
uint32_t ptx_module_launch(struct ptx_module *m, uint32_t kernel, const struct sim_launch_request *q, const char *params);
/* Ends the kernel as hardware does at a wild address. */
_Noreturn void ptx_fault(void);
/* Ends the kernel as a failed assertion: what the operands of __assertfail say. */
void ptx_assert_failed(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask);
void ptx_trap(struct ptx_warp *w, const struct ptx_insn *i, uint32_t mask);

#endif
