/* SPDX-License-Identifier: Apache-2.0 */
/* Files that turned out to be checkpoints, and the patterns of their names. */
#include "config.h"

#include "runtime/view/learnt_names.h"

#include <string.h>

#include "runtime/base/digest.h"

/* ---- content ---------------------------------------------------------------------------------- */

static bool begins(const unsigned char *head, size_t got, const void *with, size_t length)
{
	return got >= length && memcmp(head, with, length) == 0;
}
#define BEGINS(head, got, with) begins(head, got, with, sizeof(with) - 1)

static uint64_t number(const unsigned char *at, unsigned bytes)
{
	uint64_t value = 0;

	while (bytes--)
		value = value << 8 | at[bytes];
	return value;
}

static bool ends(const unsigned char *name, size_t length, const char *with)
{
	size_t tail = strlen(with);

	return length >= tail && memcmp(name + length - tail, with, tail) == 0;
}

/* A zip is anybody's: its first entry tells whose. PyTorch stores all of them uncompressed, each behind a padding of its own that
 * begins with "FB"; NumPy has nothing but arrays in it. */
static enum tpck_rule zipped(const unsigned char *head, size_t got)
{
	enum { NAME_AT = 30 };
	const unsigned char *name = head + NAME_AT;
	size_t length, more, method;

	if (got < NAME_AT)
		return TPCK_RULE_UNKNOWN;
	method = number(head + 8, 2);
	length = number(head + 26, 2);
	more = number(head + 28, 2);
	if (NAME_AT + length > got)
		return TPCK_RULE_UNKNOWN;
	if (method == 0 && more >= 4 && NAME_AT + length + 2 <= got && memcmp(name + length, "FB", 2) == 0 &&
	    (ends(name, length, "/data.pkl") || ends(name, length, "/.format_version") || ends(name, length, "/byteorder")))
		return TPCK_RULE_TORCH;
	if (!ends(name, length, ".npy"))
		return TPCK_RULE_UNKNOWN;
	if (method != 0)
		return TPCK_RULE_NPZ;
	return NAME_AT + length + more <= got && BEGINS(name + length + more, got - NAME_AT - length - more, "\x93NUMPY")
		       ? TPCK_RULE_NPZ : TPCK_RULE_UNKNOWN;
}

enum tpck_rule tpck_learnt_content(const unsigned char *head, size_t got, uint64_t size)
{
	if (BEGINS(head, got, "PK\x03\x04"))
		return zipped(head, got);
	/* pickle.dump(0x1950a86a20f9469cfc6c, protocol=2), which torch.save began with. */
	if (BEGINS(head, got, "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19\x2e"))
		return TPCK_RULE_PICKLE;
	if (BEGINS(head, got, "\x89HDF\r\n\x1a\n"))
		return TPCK_RULE_HDF5;
	if (BEGINS(head, got, "\x93NUMPY") && got > 7 && head[6] >= 1 && head[6] <= 3)
		return TPCK_RULE_NPY;
	/* The length of a header, and the header: text in JSON. */
	if (got > 10 && size > 10 && memcmp(head + 8, "{\"", 2) == 0 && number(head, 8) >= 2 && number(head, 8) <= size - 8 &&
	    number(head, 8) <= 100000000)
		return TPCK_RULE_SAFETENSORS;
	return TPCK_RULE_UNKNOWN;
}

/* ---- patterns --------------------------------------------------------------------------------- */

uint32_t tpck_learnt_name(const char *name)
{
	return (uint32_t)tpck_view_pattern("", name);
}

bool tpck_learnt_may_be(const struct tpck_view_learnt *learnt, uint32_t count, const char *name)
{
	uint32_t hash = count ? tpck_learnt_name(name) : 0;

	for (uint32_t i = 0; i < count && i < TPCK_VIEW_LEARNT; i++)
		if (learnt[i].name == hash)
			return true;
	return false;
}

enum tpck_rule tpck_learnt_rule(const struct tpck_view_learnt *learnt, uint32_t count, const char *folder, const char *name)
{
	uint64_t pattern = count ? tpck_view_pattern(folder, name) : 0;

	for (uint32_t i = 0; i < count && i < TPCK_VIEW_LEARNT; i++)
		if (learnt[i].pattern == pattern && tpck_rule_learnt((enum tpck_rule)learnt[i].rule))
			return (enum tpck_rule)learnt[i].rule;
	return TPCK_RULE_UNKNOWN;
}

bool tpck_learnt_add(struct tpck_view *view, const char *folder, const char *name, enum tpck_rule rule)
{
	uint32_t count = view->learnt;

	if (count >= TPCK_VIEW_LEARNT || tpck_learnt_rule(view->pattern, count, folder, name) != TPCK_RULE_UNKNOWN)
		return false;
	view->pattern[count] = (struct tpck_view_learnt){tpck_view_pattern(folder, name), tpck_learnt_name(name), (uint32_t)rule};
	atomic_store_explicit(&view->learnt, count + 1, memory_order_release);
	return true;
}
