/* SPDX-License-Identifier: Apache-2.0 */
/* Fragments of chunks, over ISA-L. */
#include "config.h"

#include "runtime/peer/erasure.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool tpck_fragment_is_valid(const struct tpck_fragment *fragment)
{
	return fragment->data >= 2 && fragment->parity >= 1 && fragment->data + fragment->parity <= TPCK_FRAGMENTS_MAX &&
	       fragment->index < fragment->data + fragment->parity;
}

size_t tpck_fragment_bytes(const struct tpck_fragment *fragment, size_t length)
{
	return (length + fragment->data - 1) / fragment->data;
}

#ifdef HAVE_ISAL

#include <isa-l/erasure_code.h>

enum { MATRIX_BYTES = TPCK_FRAGMENTS_MAX * TPCK_FRAGMENTS_MAX, TABLE_BYTES = 32 * MATRIX_BYTES };

bool tpck_erasure_can(void)
{
	return true;
}

/* How many of a block's bytes are in `length`, the others being zeros. */
static size_t block_has(size_t block, size_t size, size_t length)
{
	size_t from = block * size;

	return from >= length ? 0 : length - from < size ? length - from : size;
}

/* The blocks of some bytes, those that end behind them filled up in memory of their own, *more. */
static int blocks_of(const uint8_t *bytes, size_t length, size_t size, unsigned count, uint8_t **block, uint8_t **more)
{
	unsigned whole = (unsigned)(length / size);

	*more = whole < count ? calloc(count - whole, size) : NULL;
	if (whole < count && !*more)
		return -ENOMEM;
	for (unsigned b = 0; b < count; b++) {
		block[b] = b < whole ? (uint8_t *)bytes + b * size : *more + (b - whole) * size;
		if (b >= whole)
			memcpy(block[b], bytes + (b == whole ? b * size : 0), block_has(b, size, length));
	}
	return 0;
}

int tpck_erasure_cut(const struct tpck_fragment *f, const uint8_t *bytes, size_t length, uint8_t *to)
{
	uint8_t matrix[MATRIX_BYTES], table[32 * TPCK_FRAGMENTS_MAX], *block[TPCK_FRAGMENTS_MAX], *more;
	size_t size = tpck_fragment_bytes(f, length), has = block_has(f->index, size, length);

	if (f->index < f->data) {
		if (has)
			memcpy(to, bytes + f->index * size, has);
		memset(to + has, 0, size - has);
		return 0;
	}
	if (blocks_of(bytes, length, size, f->data, block, &more))
		return -ENOMEM;
	gf_gen_cauchy1_matrix(matrix, f->data + f->parity, f->data);
	ec_init_tables(f->data, 1, matrix + f->index * f->data, table);
	ec_encode_data((int)size, f->data, 1, table, block, &to);
	free(more);
	return 0;
}

/* Rows of the matrix that make the blocks which lack of those fragments that are there. How many lack; negative: an error. */
static int rows_for(const struct tpck_fragment *code, const uint16_t *index, uint8_t *rows, unsigned *lacking)
{
	uint8_t matrix[MATRIX_BYTES], chosen[MATRIX_BYTES], inverse[MATRIX_BYTES];
	unsigned k = code->data, all = k + code->parity;
	bool there[TPCK_FRAGMENTS_MAX] = {false};
	int count = 0;

	gf_gen_cauchy1_matrix(matrix, (int)all, (int)k);
	for (unsigned i = 0; i < k; i++) {
		if (index[i] >= all || there[index[i]])
			return -EINVAL;
		there[index[i]] = true;
		memcpy(chosen + i * k, matrix + index[i] * k, k);
	}
	if (gf_invert_matrix(chosen, inverse, (int)k))
		return -EINVAL;
	for (unsigned b = 0; b < k; b++)
		if (!there[b]) {
			memcpy(rows + (unsigned)count * k, inverse + b * k, k);
			lacking[count++] = b;
		}
	return count;
}

int tpck_erasure_join(const struct tpck_fragment *code, const uint16_t *index, const uint8_t *const *fragment, uint8_t *to, size_t length)
{
	size_t size = tpck_fragment_bytes(code, length);
	uint8_t rows[MATRIX_BYTES], *made[TPCK_FRAGMENTS_MAX], *source[TPCK_FRAGMENTS_MAX], *table, *room;
	unsigned lacking[TPCK_FRAGMENTS_MAX];
	int count = rows_for(code, index, rows, lacking);

	if (count < 0)
		return count;
	for (unsigned i = 0; i < code->data; i++) {
		source[i] = (uint8_t *)fragment[i];
		if (index[i] < code->data)
			memcpy(to + (block_has(index[i], size, length) ? index[i] * size : 0), fragment[i], block_has(index[i], size, length));
	}
	if (!count)
		return 0;
	table = malloc(TABLE_BYTES);
	room = malloc((size_t)count * size + 1);
	if (!table || !room) {
		free(table);
		free(room);
		return -ENOMEM;
	}
	for (int i = 0; i < count; i++)
		made[i] = room + (size_t)i * size;
	ec_init_tables(code->data, count, rows, table);
	ec_encode_data((int)size, code->data, count, table, source, made);
	for (int i = 0; i < count; i++) {
		size_t has = block_has(lacking[i], size, length);

		if (has)
			memcpy(to + lacking[i] * size, made[i], has);
	}
	free(table);
	free(room);
	return 0;
}

#else

bool tpck_erasure_can(void)
{
	return false;
}

int tpck_erasure_cut(const struct tpck_fragment *f, const uint8_t *bytes, size_t length, uint8_t *to)
{
	(void)f;
	(void)bytes;
	(void)length;
	(void)to;
	return -ENOSYS;
}

int tpck_erasure_join(const struct tpck_fragment *code, const uint16_t *index, const uint8_t *const *fragment, uint8_t *to, size_t length)
{
	(void)code;
	(void)index;
	(void)fragment;
	(void)to;
	(void)length;
	return -ENOSYS;
}

#endif
