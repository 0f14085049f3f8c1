/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Device memory that an allocator within the program has handed out to it. PyTorch's takes large blocks from the driver, hands out parts of them, and
 * tells PyTorch's profiler of each part when it goes out and when it comes back. What came back is written before it is read again.
 *
 * Thread-safe.
 */
#ifndef TPCK_RUNTIME_TRACK_HANDED_H
#define TPCK_RUNTIME_TRACK_HANDED_H

#include <stdbool.h>
#include <stdint.h>

struct tpck_handed_part {
	uint64_t begin, end; /* device addresses */
	uint64_t order;      /* allocations of blocks before it was handed out */
};

/* What is out, by address, and what came back since the last look, by address. */
struct tpck_handed {
	uint64_t digest;
	uint32_t out_count, back_count;
	struct tpck_handed_part *out, *back;
};

void tpck_handed_out(uint64_t address, uint64_t bytes, uint64_t order);
void tpck_handed_back(uint64_t address);
/* From here on nothing is known but what is out: memory that came back may be read all the same, as a graph does that was captured while it was out. */
void tpck_handed_distrust(void);
/* Equal digests: the same parts are out. 0: nothing is known. */
uint64_t tpck_handed_digest(void);
/* NULL: nothing is known, or there is no memory. The caller's, to free. With `take`, what came back is forgotten. */
struct tpck_handed *tpck_handed_look(bool take);
/* What is out, however it is with what came back. NULL: nothing is known to be. The caller's, to free. */
struct tpck_handed *tpck_handed_look_at_out(void);
void tpck_handed_free(struct tpck_handed *handed);
/* Index of the first part that ends behind the address; of parts of which none overlap. */
uint32_t tpck_handed_from(const struct tpck_handed_part *parts, uint32_t count, uint64_t address);

#endif
