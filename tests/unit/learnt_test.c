/* SPDX-License-Identifier: Apache-2.0 */
/* What tells a checkpoint by its first bytes, and what only looks like one; and the patterns of names that are learnt from it. */
#include "config.h"

#include <string.h>

#include "runtime/view/learnt_names.h"
#include "tests/unit/store_tap.h"

#define check(good, what) tap_ok(good, what, NULL)

static unsigned char head[TPCK_LEARNT_HEAD];

static void put(size_t at, uint64_t value, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++)
		head[at + i] = (unsigned char)(value >> 8 * i);
}

static enum tpck_rule of(size_t got, uint64_t size)
{
	return tpck_learnt_content(head, got, size);
}

/* A zip's first entry: its name, how it is stored, and what is behind the name. Gives the number of bytes. */
static size_t zip(const char *name, unsigned method, const char *extra, size_t extra_bytes, const char *content)
{
	size_t length = strlen(name);

	memset(head, 0, sizeof head);
	memcpy(head, "PK\x03\x04", 4);
	put(8, method, 2);
	put(26, length, 2);
	put(28, extra_bytes, 2);
	memcpy(head + 30, name, length);
	memcpy(head + 30 + length, extra, extra_bytes);
	strcpy((char *)head + 30 + length + extra_bytes, content);
	return 30 + length + extra_bytes + strlen(content);
}

static void test_zips(void)
{
	size_t got = zip("model/data.pkl", 0, "FB\x02\x00ZZ", 6, "");

	check(of(sizeof head, 1 << 20) == TPCK_RULE_TORCH, "torch.save: its first entry, with PyTorch's padding");
	check(of(got - 4, 1 << 20) == TPCK_RULE_TORCH, "as much of it as tells");
	check(of(got - 5, 1 << 20) == TPCK_RULE_UNKNOWN, "the padding cut");
	check(of(got - 7, 1 << 20) == TPCK_RULE_UNKNOWN, "the name cut");
	check(of(29, 1 << 20) == TPCK_RULE_UNKNOWN, "less than a zip's header");
	zip("archive/.format_version", 0, "FB\x02\x00", 4, "");
	check(of(sizeof head, 1 << 20) == TPCK_RULE_TORCH, "one of another release");
	zip("archive/byteorder", 0, "FB\x02\x00", 4, "");
	check(of(sizeof head, 1 << 20) == TPCK_RULE_TORCH, "and of another");
	zip("archive/data.pkl", 8, "FB\x02\x00", 4, "");
	check(of(sizeof head, 1 << 20) == TPCK_RULE_UNKNOWN, "somebody else's: compressed");
	zip("archive/data.pkl", 0, "UT\x02\x00", 4, "");
	check(of(sizeof head, 1 << 20) == TPCK_RULE_UNKNOWN, "somebody else's: no such padding");
	zip("archive/data.pkl", 0, "FB\x00", 3, "");
	check(of(sizeof head, 1 << 20) == TPCK_RULE_UNKNOWN, "somebody else's: a padding that is none");
	zip("archive/data.pkl.txt", 0, "FB\x02\x00", 4, "");
	check(of(sizeof head, 1 << 20) == TPCK_RULE_UNKNOWN, "somebody else's: another name");
	got = zip("weight.npy", 0, "", 0, "\x93NUMPY");
	check(of(got, 1 << 20) == TPCK_RULE_NPZ, "numpy.savez");
	check(of(got - 1, 1 << 20) == TPCK_RULE_UNKNOWN, "an array's begin cut");
	zip("weight.npy", 8, "", 0, "");
	check(of(sizeof head, 1 << 20) == TPCK_RULE_NPZ, "numpy.savez_compressed");
	zip("weight.npy", 0, "", 0, "\x93NUMPX");
	check(of(sizeof head, 1 << 20) == TPCK_RULE_UNKNOWN, "no array within");
}

static void test_others(void)
{
	static const char pickle[] = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19\x2e";

	memset(head, 0, sizeof head);
	memcpy(head, pickle, 15);
	check(of(15, 1 << 20) == TPCK_RULE_PICKLE && of(14, 1 << 20) == TPCK_RULE_UNKNOWN, "torch.save as it was");
	memcpy(head, "\x89HDF\r\n\x1a\n", 8);
	check(of(8, 1 << 20) == TPCK_RULE_HDF5 && of(7, 1 << 20) == TPCK_RULE_UNKNOWN, "HDF5");
	memcpy(head, "\x93NUMPY\x01\x00", 8);
	check(of(8, 1 << 20) == TPCK_RULE_NPY && of(7, 1 << 20) == TPCK_RULE_UNKNOWN, "numpy.save");
	head[6] = 3;
	check(of(8, 1 << 20) == TPCK_RULE_NPY, "its third version");
	head[6] = 4;
	check(of(8, 1 << 20) == TPCK_RULE_UNKNOWN, "one that there is not yet");
	head[6] = 0;
	check(of(8, 1 << 20) == TPCK_RULE_UNKNOWN, "none");
}

static void test_safetensors(void)
{
	memset(head, 0, sizeof head);
	memcpy(head + 8, "{\"", 2);
	put(0, 1000, 8);
	check(of(11, 1008) == TPCK_RULE_SAFETENSORS, "safetensors, with nothing but its header");
	check(of(11, 1007) == TPCK_RULE_UNKNOWN, "a header longer than the file");
	check(of(10, 1008) == TPCK_RULE_UNKNOWN, "less than tells");
	put(0, 2, 8);
	check(of(11, 11) == TPCK_RULE_SAFETENSORS && of(11, 10) == TPCK_RULE_UNKNOWN, "the smallest header");
	put(0, 1, 8);
	check(of(11, 1 << 20) == TPCK_RULE_UNKNOWN, "one that is too small for JSON");
	put(0, 100000000, 8);
	check(of(11, 1ull << 30) == TPCK_RULE_SAFETENSORS, "the largest header that is allowed");
	put(0, 100000001, 8);
	check(of(11, 1ull << 30) == TPCK_RULE_UNKNOWN, "a larger one");
	/* Every byte of the length counts. */
	for (unsigned byte = 4; byte < 8; byte++) {
		put(0, 1000 | 1ull << 8 * byte, 8);
		check(of(11, 1 << 20) == TPCK_RULE_UNKNOWN, "a length that no file has");
	}
	put(0, 1000, 8);
	memcpy(head + 8, "{ ", 2);
	check(of(11, 1 << 20) == TPCK_RULE_UNKNOWN, "no JSON of safetensors");
}

static void test_patterns(void)
{
	struct tpck_view *view = calloc(1, sizeof *view);
	unsigned added = 1;
	char name[32];

	if (!view)
		exit(1);
	check(tpck_learnt_add(view, "/out", "weights-10.bin", TPCK_RULE_TORCH) && view->learnt == 1, "a name is learnt");
	check(!tpck_learnt_add(view, "/out", "weights-11.bin", TPCK_RULE_TORCH) && view->learnt == 1, "once, whatever its digits");
	check(tpck_learnt_rule(view->pattern, 1, "/out", "weights-200.bin") == TPCK_RULE_TORCH, "the next one is taken by what it was");
	check(tpck_learnt_rule(view->pattern, 1, "/other", "weights-200.bin") == TPCK_RULE_UNKNOWN, "not in another folder");
	check(tpck_learnt_rule(view->pattern, 0, "/out", "weights-200.bin") == TPCK_RULE_UNKNOWN, "not before it is there");
	check(tpck_learnt_may_be(view->pattern, 1, "weights-7.bin") && !tpck_learnt_may_be(view->pattern, 1, "weight-7.bin") &&
		      !tpck_learnt_may_be(view->pattern, 0, "weights-7.bin"), "the name alone says whether it may be one");
	for (char end = 'a'; added < TPCK_VIEW_LEARNT; added++) {
		snprintf(name, sizeof name, "%c%c.bin", end + (char)(added / 20), (char)('a' + added % 20));
		if (!tpck_learnt_add(view, "/out", name, TPCK_RULE_NPY))
			break;
	}
	check(added == TPCK_VIEW_LEARNT && view->learnt == TPCK_VIEW_LEARNT, "as many as there is room for");
	check(!tpck_learnt_add(view, "/out", "more.bin", TPCK_RULE_NPY) && view->learnt == TPCK_VIEW_LEARNT, "and no more");
	check(tpck_learnt_rule(view->pattern, TPCK_VIEW_LEARNT, "/out", name) == TPCK_RULE_NPY, "the last one counts");
	free(view);
}

int main(void)
{
	test_zips();
	test_others();
	test_safetensors();
	test_patterns();
	return tap_done();
}
