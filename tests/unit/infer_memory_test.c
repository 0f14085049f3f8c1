/* SPDX-License-Identifier: Apache-2.0 */
/* What inference takes of the host's memory with large iterations: 20,000 launches of 700 functions each. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/infer/infer.h"
#include "tests/unit/store_tap.h"

enum { LAUNCHES = 20000, TENSORS = 400, FUNCTIONS = 700, ITERATIONS = 12, MOST = 32 << 20 };

static uint64_t resident(void)
{
	char text[100] = "";
	FILE *file = fopen("/proc/self/statm", "r");
	unsigned long long pages = 0;

	if (file && fgets(text, sizeof text, file))
		sscanf(text, "%*u %llu", &pages);
	if (file)
		fclose(file);
	return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

static unsigned feed(struct tpck_infer *infer, uint64_t func, const char *name, uint32_t grid)
{
	struct tpck_token token = {.func = func, .name = name, .grid = {grid, 1, 1}, .block = {128, 1, 1}, .op = TPCK_OP_KERNEL,
				   .thread = 1};

	return tpck_infer_feed(infer, &token);
}

static unsigned iterations(const struct tpck_infer_options *options, char (*names)[64])
{
	struct tpck_infer *infer = tpck_infer_new(options);
	unsigned ends = 0;

	for (int i = 0; i < ITERATIONS; i++) {
		struct tpck_token batch = {.bytes = 1 << 20, .op = TPCK_OP_H2D, .thread = 1};

		ends += (tpck_infer_feed(infer, &batch) & (TPCK_V_BOUNDARY_BEFORE | TPCK_V_BOUNDARY_AFTER)) != 0;
		for (int n = 0; n < LAUNCHES - TENSORS; n++)
			ends += (feed(infer, 1000 + (unsigned)n % FUNCTIONS, names[n % FUNCTIONS], 1 + (unsigned)n % 97) &
				 (TPCK_V_BOUNDARY_BEFORE | TPCK_V_BOUNDARY_AFTER)) != 0;
		for (int n = 0; n < TENSORS; n++)
			ends += (feed(infer, 1, "adamw_update_kernel(float*, float const*, float*, float*, int)", 1 + (unsigned)n * 37 % 101) &
				 (TPCK_V_BOUNDARY_BEFORE | TPCK_V_BOUNDARY_AFTER)) != 0;
	}
	return ends; /* it stays: both together have to fit */
}

int main(void)
{
	const struct tpck_infer_options with_names = {true, true, false}, without = {false, true, false};
	static char names[FUNCTIONS][64];
	char text[100];
	uint64_t before;
	unsigned by_names, by_pattern;

	for (int i = 0; i < FUNCTIONS; i++)
		snprintf(names[i], sizeof names[i], "layer_%d_kernel(float*, float const*)", i);
	before = resident();
	by_names = iterations(&with_names, names);
	snprintf(text, sizeof text, "%.1f MiB", (double)(resident() - before) / (1 << 20));
	printf("# with names %s\n", text);
	tap_ok(resident() - before <= MOST, "20,000 launches an iteration take at most 32 MiB", text);
	before = resident();
	by_pattern = iterations(&without, names);
	snprintf(text, sizeof text, "%.1f MiB", (double)(resident() - before) / (1 << 20));
	printf("# without %s\n", text);
	tap_ok(resident() - before <= MOST, "without names too", text);
	printf("# %u and %u ends told\n", by_names, by_pattern);
	tap_ok(by_names >= ITERATIONS - 2 && by_names <= ITERATIONS, "and its ends are told", "");
	tap_ok(by_pattern >= ITERATIONS - 6 && by_pattern <= ITERATIONS, "without names too", "");
	return tap_done();
}
