/* SPDX-License-Identifier: Apache-2.0 */
/* Fragments: whatever M of K + M are lost, the others give the bytes back; one less does not, and a damaged one is no fragment. */
#include "config.h"

#include <errno.h>

#include "runtime/peer/erasure.h"
#include "runtime/wire/segment.h"
#include "tests/unit/store_tap.h"

static struct {
	char text[120];
} err;
static uint64_t state = 88172645463325252u;

static uint8_t noise(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint8_t)(state >> 24);
}

/* All fragments of the bytes, each in memory of its very size, and one guard behind it. */
static void cut(const struct tpck_fragment *code, const uint8_t *bytes, size_t length, uint8_t **fragment)
{
	struct tpck_fragment each = *code;

	for (each.index = 0; each.index < code->data + code->parity; each.index++) {
		size_t size = tpck_fragment_bytes(&each, length);

		fragment[each.index] = malloc(size + 1);
		fragment[each.index][size] = 0x5a;
		if (tpck_erasure_cut(&each, bytes, length, fragment[each.index]) || fragment[each.index][size] != 0x5a)
			snprintf(err.text, sizeof err.text, "fragment %u of %u+%u of %zu bytes", each.index, code->data, code->parity, length);
	}
}

/* Of every choice of K fragments, given in the order of their indexes and turned round: how many give the bytes back, and how many there are. */
static void join_all(const struct tpck_fragment *code, const uint8_t *bytes, size_t length, uint8_t *const *fragment, unsigned *good, unsigned *all)
{
	unsigned count = code->data + code->parity;
	uint8_t *made = malloc(length + 1);

	for (uint32_t mask = 0; mask < 1u << count; mask++) {
		uint16_t index[TPCK_FRAGMENTS_MAX];
		const uint8_t *has[TPCK_FRAGMENTS_MAX];
		unsigned n = 0;

		if (__builtin_popcount(mask) != code->data)
			continue;
		for (unsigned at = 0; at < count; at++) {
			unsigned i = mask & 1 ? count - 1 - at : at;

			if (mask >> i & 1) {
				index[n] = (uint16_t)i;
				has[n++] = fragment[i];
			}
		}
		memset(made, 0xee, length + 1);
		++*all;
		*good += tpck_erasure_join(code, index, has, made, length) == 0 && memcmp(made, bytes, length) == 0 && made[length] == 0xee;
	}
	free(made);
}

static void check_code(uint16_t data, uint16_t parity)
{
	static const size_t lengths[] = {1, 2, 7, 31, 64, 1000, 4096, 65537, TPCK_CHUNK_BYTES - 1, TPCK_CHUNK_BYTES};
	struct tpck_fragment code = {data, parity, 0, 0};
	unsigned good = 0, all = 0;
	char what[120];

	for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
		uint8_t *bytes = malloc(lengths[l]), *fragment[TPCK_FRAGMENTS_MAX];

		/* Many choices of large ones say no more than few. */
		if (lengths[l] > 100000 && data + parity > 6) {
			free(bytes);
			continue;
		}
		for (size_t i = 0; i < lengths[l]; i++)
			bytes[i] = noise();
		cut(&code, bytes, lengths[l], fragment);
		join_all(&code, bytes, lengths[l], fragment, &good, &all);
		for (unsigned i = 0; i < data + parity; i++)
			free(fragment[i]);
		free(bytes);
	}
	snprintf(what, sizeof what, "%u+%u: all %u choices of %u fragments give the bytes back, %u do", data, parity, all, data, good);
	ok(good == all && all && !err.text[0], what);
}

static void check_limits(void)
{
	struct tpck_fragment code = {3, 2, 0, 0};
	uint8_t bytes[300], made[300], *fragment[TPCK_FRAGMENTS_MAX];
	uint16_t twice[] = {0, 4, 4}, beyond[] = {0, 1, 5}, some[] = {0, 3, 4};
	const uint8_t *has[3];

	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = noise();
	cut(&code, bytes, sizeof bytes, fragment);
	has[0] = fragment[0];
	has[1] = fragment[3];
	has[2] = fragment[4];
	ok(tpck_erasure_join(&code, twice, has, made, sizeof bytes) == -EINVAL && tpck_erasure_join(&code, beyond, has, made, sizeof bytes) == -EINVAL,
	   "one fragment twice, or one that the code has not, is refused");
	fragment[4][10] ^= 1;
	ok(tpck_erasure_join(&code, some, has, made, sizeof bytes) == 0 && memcmp(made, bytes, sizeof bytes) != 0,
	   "a damaged one gives other bytes, which the chunk's digest tells");
	for (unsigned i = 0; i < 5; i++)
		free(fragment[i]);
	ok(tpck_fragment_is_valid(&(struct tpck_fragment){4, 2, 5, 0}) && !tpck_fragment_is_valid(&(struct tpck_fragment){4, 2, 6, 0}) &&
		   !tpck_fragment_is_valid(&(struct tpck_fragment){1, 2, 0, 0}) && !tpck_fragment_is_valid(&(struct tpck_fragment){4, 0, 0, 0}) &&
		   !tpck_fragment_is_valid(&(struct tpck_fragment){30, 3, 0, 0}) && !tpck_fragment_is_valid(&(struct tpck_fragment){0, 0, 0, 0}),
	   "what is no fragment of any code is known");
	ok(tpck_fragment_bytes(&(struct tpck_fragment){4, 2, 0, 0}, TPCK_CHUNK_BYTES) == TPCK_CHUNK_BYTES / 4 &&
		   tpck_fragment_bytes(&(struct tpck_fragment){3, 2, 0, 0}, 10) == 4,
	   "a fragment takes the K-th part");
}

int main(void)
{
	if (!tpck_erasure_can()) {
		printf("1..0 # SKIP built without ISA-L\n");
		return 77;
	}
	check_code(2, 1);
	check_code(2, 2);
	check_code(3, 2);
	check_code(4, 2);
	check_code(5, 1);
	check_code(8, 4);
	check_limits();
	return tap_done();
}
