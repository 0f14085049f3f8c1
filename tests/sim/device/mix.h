/* SPDX-License-Identifier: Apache-2.0 */
/* Pseudo-execution: what a kernel without code reads and writes, and the values that stand for its results. */
#ifndef TESTS_SIM_DEVICE_MIX_H
#define TESTS_SIM_DEVICE_MIX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sim_type {
	SIM_TYPE_NONE,
	SIM_TYPE_BOOL,
	SIM_TYPE_U8,
	SIM_TYPE_I8,
	SIM_TYPE_I16,
	SIM_TYPE_I32,
	SIM_TYPE_I64,
	SIM_TYPE_F16,
	SIM_TYPE_BF16,
	SIM_TYPE_F32,
	SIM_TYPE_F64,
	SIM_TYPE_RAW, /* bytes, copied or hashed only */
};

#define SIM_DIMS 25

/* n elements from `at`; dense without dimensions, else element i lies where its index over size[] and stride[] (bytes) says. */
struct sim_range {
	char *at;
	uint64_t n;
	enum sim_type type;
	bool positive; /* a loss, a variance: no value below 0 */
	int dims;
	uint32_t size[SIM_DIMS];
	uint32_t stride[SIM_DIMS];
};

uint64_t sim_type_bytes(enum sim_type t);
/* By the name in a demangled signature or in the rules: "float", "c10::Half", "f16", ... */
enum sim_type sim_type_named(const char *name, size_t n);

uint64_t sim_mix_bytes(uint64_t h, const void *p, size_t n);
uint64_t sim_mix_word(uint64_t h, uint64_t x);
uint64_t sim_mix_range(uint64_t h, const struct sim_range *r);
/* Every element becomes a plausible value that `h` and its index decide. */
void sim_mix_write(const struct sim_range *r, uint64_t h);
/* Element i of `from`, converted. */
void sim_mix_copy(const struct sim_range *to, const struct sim_range *from);
/* Element i of `a` where `choice` is set, else of `b`. */
void sim_mix_where(const struct sim_range *to, const struct sim_range *choice, const struct sim_range *a, const struct sim_range *b);
enum sim_relation { SIM_EQ, SIM_NE, SIM_GE, SIM_GT, SIM_LE, SIM_LT };
/* Whether element i of `a` has that relation to the one of `b`. */
void sim_mix_compare(const struct sim_range *to, const struct sim_range *a, const struct sim_range *b, enum sim_relation relation);
/* Of truth values: a or b, a and b; `b` NULL: not a. */
void sim_mix_logic(const struct sim_range *to, const struct sim_range *a, const struct sim_range *b, bool both);
void sim_mix_abs(const struct sim_range *to, const struct sim_range *from);
/* Of whole numbers: element i and as many as come to each of `to` behind it, and `more` has it already where it is not NULL. */
void sim_mix_sum(const struct sim_range *to, const struct sim_range *from, const struct sim_range *more);
/* Of whole numbers of eight bytes: a + times * b. */
void sim_mix_add(const struct sim_range *to, const struct sim_range *a, const struct sim_range *b, int64_t times);
/* Element i of `from`, times `by`. */
void sim_mix_scale(const struct sim_range *to, const struct sim_range *from, double by);
/* Every element is the value at `value`, which has the range's type. */
void sim_mix_fill(const struct sim_range *r, const void *value);

#endif
