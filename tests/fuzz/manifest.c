/* SPDX-License-Identifier: Apache-2.0 */
/* Manifests, manifests that name parts, and marks of parts. An input is the text; the digests in it are made right. */
#include "config.h"

#include "tests/fuzz/fuzz.h"

#include "runtime/base/digest.h"
#include "runtime/store/manifest_text.h"
#include "runtime/store/parts.h"
#include "runtime/store/tier.h"

#define KEY "\"digest\":\""
#define NONE "00000000000000000000000000000000"

/* A text that is damaged anywhere does not match its digest, and nothing behind that check would be looked at. */
static void seal(char *text, size_t size)
{
	char *place = memmem(text, size, KEY, sizeof KEY - 1);

	if (!place || size - (size_t)(place - text) < sizeof KEY - 1 + 32)
		return;
	memcpy(place + sizeof KEY - 1, NONE, 32);
	tpck_text_seal(text, size);
}

static void look_at(const struct tpck_manifest *manifest)
{
	struct tpck_identity_key key;

	tpck_identity_key("user\n", &key);
	(void)tpck_manifest_identity(manifest);
	(void)tpck_manifest_resumable(manifest);
	(void)tpck_manifest_bytes(manifest);
	for (uint32_t rank = 0; rank < 4; rank++) {
		(void)tpck_manifest_member(manifest, rank, 0);
		(void)tpck_manifest_is_of(manifest, rank, 0, "user\n");
		(void)tpck_manifest_is_of_key(manifest, rank, 0, &key);
	}
	for (size_t i = 0; i < manifest->container_count; i++)
		(void)tpck_manifest_owns(manifest, i);
	for (size_t i = 0; i < manifest->member_count; i++)
		for (size_t o = 0; o < manifest->members[i].object_count; o++)
			for (size_t c = 0; c < manifest->members[i].objects[o].count; c++)
				FUZZ_HOLDS(manifest->members[i].objects[o].chunks[c].container < manifest->container_count);
}

/* What was read is written, read again and is the same. */
static void again(const struct tpck_manifest *manifest, bool part)
{
	struct tpck_manifest *other = NULL;
	char *text = NULL, *text_again = NULL;
	size_t size, size_again;

	FUZZ_HOLDS(tpck_manifest_format(manifest, &text, &size, NULL) == 0);
	FUZZ_HOLDS((part ? tpck_manifest_parse_part(&other, text, size, "again", NULL)
			 : tpck_manifest_parse_published(&other, text, size, "again", NULL)) == 0);
	FUZZ_HOLDS(tpck_manifest_format(other, &text_again, &size_again, NULL) == 0);
	FUZZ_HOLDS(size == size_again && memcmp(text, text_again, size) == 0);
	tpck_manifest_free(other);
	free(text);
	free(text_again);
}

static void parse(int kind, const char *text, size_t size)
{
	struct tpck_manifest *manifest = NULL;
	struct tpck_ranks missing = {0};
	uint32_t twice;
	int rc = kind == 0   ? tpck_manifest_parse(&manifest, text, size, "input", NULL)
		 : kind == 1 ? tpck_manifest_parse_part(&manifest, text, size, "input", NULL)
			     : tpck_manifest_parse_published(&manifest, text, size, "input", NULL);

	if (rc)
		return;
	look_at(manifest);
	again(manifest, kind == 1);
	/* What a loader does behind it. */
	if (manifest->part_count)
		(void)tpck_parts_settle(manifest, NULL);
	(void)tpck_manifest_ranks(manifest, &missing, &twice);
	(void)tpck_ranks_text(&missing);
	look_at(manifest);
	tpck_manifest_free(manifest);
}

/* A mark is a line for its part, the part's own line, and the part's manifest, which the first one has the digest of. */
static void parse_mark(char *text, size_t size)
{
	struct tpck_tier tier = {.root = "/store"};
	struct tpck_manifest *part = NULL, *head = NULL;
	char *made = NULL;
	uint8_t digest[16];
	size_t used;

	if (tpck_parts_text_parse(&head, true, text, size, "input", &used, NULL) == 0) {
		FUZZ_HOLDS(used <= size && head->part_count == 1);
		tpck_manifest_free(head);
	}
	if (tpck_mark_parse(&part, digest, &tier, "mark", text, size, NULL) == 0) {
		look_at(part);
		tpck_manifest_free(part);
	}
	/* From the part alone the rest follows. */
	part = NULL;
	if (tpck_manifest_parse_part(&part, text, size, "input", NULL))
		return;
	if (part->container_count && tpck_mark_format(part, &made, NULL) == 0) {
		struct tpck_manifest *read = NULL;

		if (tpck_mark_parse(&read, digest, &tier, "mark", made, strlen(made), NULL) == 0) {
			look_at(read);
			tpck_manifest_free(read);
		}
		free(made);
	}
	tpck_manifest_free(part);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	/* tpck_text_seal() wants a NUL behind the text; parsers get a copy without. */
	char *text = malloc(size + 1), *exact = malloc(size ? size : 1);

	if (!text || !exact)
		abort();
	memcpy(text, data, size);
	text[size] = '\0';
	if (strlen(text) == size)
		seal(text, size);
	memcpy(exact, text, size);
	for (int kind = 0; kind < 3; kind++)
		parse(kind, exact, size);
	parse_mark(exact, size);
	free(exact);
	free(text);
	return 0;
}
