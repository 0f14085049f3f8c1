/* SPDX-License-Identifier: Apache-2.0 */
/* The memory witness: jobs whose launches have no names, and whose optimizer is a launch like others, with what each launch changes in memory. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/infer/infer.h"
#include "runtime/infer/persistent.h"
#include "tests/unit/store_tap.h"

/* Rows of memory: parameters of two models, gradients, weights that stay, and a number. */
enum { FIRST, SECOND, GRADIENTS, CONSTANT, SCALAR, ROWS };
enum { BATCH = 4096, WARM = 20 };
static const uint64_t weights[ROWS] = {4000, 4000, 4000, 1000, 4}, with_workspace[ROWS] = {4000, 4000, 4000, 100000, 4}, *weighs = weights;

static struct job {
	struct tpck_infer *infer;
	struct tpck_persistent *persistent;
	uint64_t memory[ROWS], now, last_change, looks;
	unsigned told, right, lost; /* every lost-th look has no digests */
	bool may_end;               /* an end here is right */
} job;

static void begin(void)
{
	struct tpck_infer_options options = {.use_pattern = true};

	tpck_infer_free(job.infer);
	memset(&job, 0, sizeof job);
	job.infer = tpck_infer_new(&options);
	job.persistent = tpck_infer_watch(job.infer);
}

static void look(void)
{
	uint64_t id, digests[ROWS];

	if (tpck_persistent_look(job.persistent, &id)) {
		for (int i = 0; i < ROWS; i++)
			digests[i] = job.memory[i] * 0x9e3779b97f4a7c15ull;
		if (!job.lost || job.looks % job.lost)
			tpck_persistent_digests(job.persistent, id, ROWS, digests);
	} else if (job.looks == WARM) {
		tpck_persistent_rows(job.persistent, ROWS, weighs);
	}
	job.looks++;
}

static void told(void)
{
	job.told++;
	job.right += job.may_end;
	job.may_end = false;
}

/* Whether this launch is the iteration's last that matters. */
static void operation(const struct tpck_token *token, int changes, bool last)
{
	unsigned verdict = tpck_infer_feed(job.infer, token);

	if (verdict & TPCK_V_BOUNDARY_BEFORE)
		told();
	if (verdict & TPCK_V_LOOK)
		look();
	if (changes >= 0)
		job.memory[changes]++;
	job.may_end = last || (job.may_end && token->op != TPCK_OP_H2D && token->op != TPCK_OP_KERNEL);
	if (verdict & TPCK_V_BOUNDARY_AFTER)
		told();
}

static void launch(uint64_t func, int changes, bool last)
{
	struct tpck_token token = {.op = TPCK_OP_KERNEL, .func = func, .grid = {4, 1, 1}, .block = {128, 1, 1}, .thread = 1};

	operation(&token, changes, last);
}

static void copy(enum tpck_op op, uint64_t bytes)
{
	struct tpck_token token = {.op = op, .bytes = bytes, .thread = 1};

	operation(&token, -1, false);
}

/* Forward and backward. */
static void pass(void)
{
	copy(TPCK_OP_H2D, BATCH);
	for (uint64_t i = 0; i < 12; i++)
		launch(10 + i % 5, -1, false);
	for (uint64_t i = 0; i < 12; i++)
		launch(20 + i % 4, i > 3 ? GRADIENTS : -1, false);
}

/* Three launches, of functions and grids that come elsewhere as well. */
static void optimizer(int which, bool last)
{
	launch(10, -1, false);
	launch(20, which, false);
	launch(11, which, last);
}

static void show(const char *what, unsigned true_ends, unsigned least)
{
	char text[200];
	bool good = job.told == job.right && job.told >= least && (least || !job.told);

	snprintf(text, sizeof text, "%u told, %u right, of %u; at least %u", job.told, job.right, true_ends, least);
	tap_ok(good, what, good ? NULL : text);
}

static void plain(const char *what, unsigned least, unsigned lost)
{
	begin();
	job.lost = lost;
	for (int i = 0; i < 200; i++) {
		pass();
		optimizer(FIRST, true);
		copy(TPCK_OP_D2H, 4);
	}
	show(what, 200, least);
}

static void micro_batches(void)
{
	begin();
	for (int i = 0; i < 200; i++) {
		for (int k = 0; k < 4; k++)
			pass();
		optimizer(FIRST, true);
		launch(30, GRADIENTS, true);
		copy(TPCK_OP_D2H, 4);
	}
	show("micro-batches that add up gradients: the last one only", 200, 120);
}

static void evaluation(void)
{
	begin();
	for (int i = 0; i < 200; i++) {
		pass();
		optimizer(FIRST, true);
		for (int k = 0; i % 3 == 2 && k < 2; k++) {
			copy(TPCK_OP_H2D, BATCH);
			for (uint64_t n = 0; n < 12; n++)
				launch(10 + n % 5, n == 5 ? SCALAR : -1, false);
			copy(TPCK_OP_D2H, 4);
		}
	}
	show("evaluation now and then is none", 200, 110);
}

/* Each iteration: by what is launched last, evaluation looks like the optimizer's end. */
static void evaluation_alike(void)
{
	begin();
	for (int i = 0; i < 200; i++) {
		pass();
		optimizer(FIRST, true);
		copy(TPCK_OP_H2D, BATCH);
		for (uint64_t n = 0; n < 12; n++)
			launch(10 + n % 5, -1, false);
		launch(11, SCALAR, false);
		copy(TPCK_OP_D2H, 4);
	}
	show("evaluation that ends with a launch like the optimizer's last is none", 200, 120);
}

/* `other`: a launch is the second's only. */
static void turns(const char *what, bool other, unsigned least)
{
	begin();
	for (int i = 0; i < 200; i++) {
		pass();
		optimizer(FIRST, false);
		pass();
		if (other)
			launch(31, -1, false);
		optimizer(SECOND, true);
	}
	show(what, 200, least);
}

static void no_training(void)
{
	begin();
	for (int i = 0; i < 300; i++) {
		copy(TPCK_OP_H2D, BATCH);
		for (uint64_t n = 0; n < 24; n++)
			launch(10 + n % 5, n == 20 ? CONSTANT : -1, false);
		copy(TPCK_OP_D2H, 4);
	}
	show("a small part of memory that changes is no training", 0, 0);
}

/* The optimizer's launches come in each pass as well, behind the same ones. */
static void no_mark(void)
{
	begin();
	for (int i = 0; i < 150; i++) {
		copy(TPCK_OP_H2D, BATCH);
		for (uint64_t n = 0; n < 300; n++)
			launch(10, n == 200 ? FIRST : n == 3 ? GRADIENTS : -1, false);
	}
	show("launches that are like others in all that is known of them: none", 0, 0);
}

/* What is changed is not the same from one stretch to the next: it is not known which launch does. */
static void wandering(void)
{
	begin();
	for (int i = 0; i < 300; i++) {
		copy(TPCK_OP_H2D, BATCH);
		for (int n = 0; n < 24; n++)
			launch(10 + (uint64_t)n % 5, n == i * 7 % 24 ? FIRST : n == 0 ? GRADIENTS : -1, false);
	}
	show("a last change that wanders: none", 0, 0);
}

/* Every fourth time something is changed again, ten launches later. */
static void later_at_times(void)
{
	bool good = true;

	for (int rest = 0; rest < 4; rest++) {
		begin();
		for (int i = 0; i < 300; i++) {
			copy(TPCK_OP_H2D, BATCH);
			for (int n = 0; n < 24; n++)
				launch(10 + (uint64_t)n % 5, n == 10 || (n == 20 && i % 4 == rest) ? FIRST : n == 3 ? GRADIENTS : -1, n == 20);
		}
		good = good && job.told == job.right;
	}
	tap_ok(good, "a last change that is later at times: not told earlier", NULL);
}

/* What stays is larger than all that changes. */
static void workspace(bool many)
{
	begin();
	weighs = with_workspace;
	for (int i = 0; i < 200; i++) {
		pass();
		launch(10, -1, false);
		launch(20, many ? SECOND : FIRST, false);
		launch(12, many ? SCALAR : FIRST, false);
		launch(11, FIRST, true);
		copy(TPCK_OP_D2H, 4);
	}
	weighs = weights;
	show(many ? "beside one that is larger than all others most tensors change" : "beside one that is larger than all others two of five change: none", 200, many ? 120 : 0);
}

int main(void)
{
	plain("an optimizer whose launches come elsewhere too", 120, 0);
	plain("where every fifth look fails", 100, 5);
	micro_batches();
	evaluation();
	evaluation_alike();
	turns("two models in turn: behind the second", true, 120);
	turns("two models in turn that launch the same: none", false, 0);
	no_training();
	workspace(true);
	workspace(false);
	no_mark();
	wandering();
	later_at_times();
	tpck_infer_free(job.infer);
	return tap_done();
}
