/* SPDX-License-Identifier: Apache-2.0 */
/* Content classes, by evidence. */
#include "config.h"

#include "runtime/base/lock_order.h"
#include "runtime/infer/classes.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { BITS = 16, BLOCKS = 1 << BITS, RELEARN = 512, TEACHING = 16 };

/* What is known of one block. A block that was not seen at a boundary is forgotten when its slot is
 * needed. */
static struct known {
	uint64_t order, address;   /* address 0: free */
	uint64_t seen;             /* step of the last boundary digest */
	uint64_t boundary;         /* its digest */
	uint64_t phase_step;       /* iteration whose optimizer phase digest follows */
	uint64_t phase;
	uint8_t class_, candidate;
	uint8_t flips;             /* times that it lost its class: each asks for twice the evidence */
	uint32_t kept;             /* iterations in a row that agreed with `candidate` */
} *blocks;
static uint32_t used;
static uint64_t version, last_learnt, teaching_until = TEACHING;
static bool begun;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct known *find(uint64_t order, uint64_t address, bool make)
{
	uint32_t slot = (uint32_t)((address ^ order * 0x9e3779b97f4a7c15ull) * 0xff51afd7ed558ccdull >> (64 - BITS));

	if (!blocks)
		blocks = make ? calloc(BLOCKS, sizeof *blocks) : NULL;
	if (!blocks)
		return NULL;
	while (blocks[slot].address) {
		if (blocks[slot].address == address && blocks[slot].order == order)
			return &blocks[slot];
		slot = (slot + 1) & (BLOCKS - 1);
	}
	if (!make)
		return NULL;
	if (used > BLOCKS / 2) {
		/* Mostly blocks that came and went: begin afresh rather than grow without bound. */
		memset(blocks, 0, BLOCKS * sizeof *blocks);
		used = 0;
		version++;
		return find(order, address, true);
	}
	used++;
	blocks[slot].order = order;
	blocks[slot].address = address;
	return &blocks[slot];
}

static void evidence(struct known *block, uint8_t candidate)
{
	if (block->candidate != candidate) {
		block->candidate = candidate;
		block->kept = 0;
	}
	block->kept++;
	if (block->class_ != TPCK_CLASS_UNKNOWN && block->class_ != candidate &&
	    !(candidate == TPCK_CLASS_CONSTANT && block->class_ != TPCK_CLASS_CONSTANT)) {
		/* An iteration without a change (a skipped step) contradicts nothing. */
		block->class_ = TPCK_CLASS_UNKNOWN;
		if (block->flips < 10)
			block->flips++;
		version++;
	}
	if (block->class_ == TPCK_CLASS_UNKNOWN && block->kept >= (uint32_t)TPCK_CLASSES_EVIDENCE << block->flips) {
		block->class_ = candidate;
		version++;
	}
}

void tpck_classes_boundary(const struct tpck_image_row *rows, uint32_t count, const uint64_t *digests, uint64_t step)
{
	pthread_mutex_lock(&lock);
	if (!begun) {
		begun = true;
		teaching_until = step + TEACHING;
	}
	for (uint32_t i = 0; i < count; i++) {
		struct known *block = rows[i].class_ == TPCK_CLASS_DEAD ? NULL : find(rows[i].order, rows[i].address, true);

		if (!block)
			continue;
		if (block->seen && block->seen + 1 == step) {
			if (block->boundary == digests[i])
				evidence(block, TPCK_CLASS_CONSTANT);
			else if (block->phase_step + 1 == step && block->phase_step == block->seen)
				evidence(block, block->phase == block->boundary ? TPCK_CLASS_OPTIMIZER : TPCK_CLASS_EARLY);
			else if (block->class_ == TPCK_CLASS_CONSTANT)
				evidence(block, TPCK_CLASS_EARLY);
		}
		block->seen = step;
		block->boundary = digests[i];
	}
	last_learnt = step;
	if (step >= teaching_until + RELEARN)
		teaching_until = step + 8;
	pthread_mutex_unlock(&lock);
}

void tpck_classes_optimizer(const struct tpck_image_row *rows, uint32_t count, const uint64_t *digests, uint64_t step)
{
	pthread_mutex_lock(&lock);
	for (uint32_t i = 0; i < count; i++) {
		struct known *block = rows[i].class_ == TPCK_CLASS_DEAD ? NULL : find(rows[i].order, rows[i].address, true);

		if (!block)
			continue;
		block->phase_step = step;
		block->phase = digests[i];
	}
	pthread_mutex_unlock(&lock);
}

bool tpck_classes_learning(void)
{
	bool learning;

	pthread_mutex_lock(&lock);
	learning = last_learnt < teaching_until;
	pthread_mutex_unlock(&lock);
	return learning;
}

uint32_t tpck_classes_of(uint64_t order, uint64_t address)
{
	const struct known *block;
	uint32_t class_;

	pthread_mutex_lock(&lock);
	block = find(order, address, false);
	class_ = block ? block->class_ : TPCK_CLASS_UNKNOWN;
	pthread_mutex_unlock(&lock);
	return class_;
}

uint64_t tpck_classes_version(void)
{
	return __atomic_load_n(&version, __ATOMIC_RELAXED);
}

void tpck_classes_forget(void)
{
	pthread_mutex_lock(&lock);
	if (blocks)
		memset(blocks, 0, BLOCKS * sizeof *blocks);
	used = 0;
	version++;
	teaching_until = last_learnt + TEACHING;
	pthread_mutex_unlock(&lock);
}
