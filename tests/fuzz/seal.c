/* SPDX-License-Identifier: Apache-2.0 */
/* Sealed messages. An input is the level and the cipher, the number of bytes of the head, how many of its bytes are changed
 * once it is sealed, and where and into what; then the head and the bytes. The same bytes are also opened as they are. */
#include "config.h"

#include "tests/fuzz/fuzz.h"

#include "runtime/peer/seal.h"

enum { CHANGES = 4 };

static void open_as_it_is(const struct tpck_seal *seal, const uint8_t *data, size_t size)
{
	struct tpck_seal_front front;
	uint8_t *head = malloc(size + 1), *bytes;

	FUZZ_HOLDS(head);
	if (tpck_seal_is(data, size, &front))
		(void)tpck_seal_open_head(seal, data, size, head);
	free(head);
	if (size < TPCK_SEAL_TAG)
		return;
	bytes = malloc(size - TPCK_SEAL_TAG + 1);
	FUZZ_HOLDS(bytes && tpck_seal_open_bytes(seal, 0, data, size - TPCK_SEAL_TAG, bytes));
	free(bytes);
}

/* What the other side has sealed is opened; what somebody has changed is not. */
static void open_sealed(const struct tpck_seal *mine, const struct tpck_seal *theirs, struct fuzz_input *input)
{
	size_t head_bytes = fuzz_byte(input), got;
	uint8_t changes = fuzz_byte(input) % CHANGES, where[CHANGES], what[CHANGES], *head, *sealed, *opened;
	bool changed = false;

	for (unsigned i = 0; i < changes; i++) {
		where[i] = fuzz_byte(input);
		what[i] = fuzz_byte(input);
	}
	head = fuzz_bytes(input, head_bytes, &head_bytes);
	got = head_bytes + TPCK_SEAL_HEAD_MORE;
	sealed = malloc(got);
	opened = malloc(head_bytes + 1);
	FUZZ_HOLDS(sealed && opened && tpck_seal_head(theirs, 3, head, head_bytes, input->left, sealed) == 0);
	for (unsigned i = 0; i < changes; i++) {
		uint8_t before = sealed[where[i] % got];

		sealed[where[i] % got] = what[i];
		changed = changed || before != what[i];
	}
	/* Two changes may undo each other. */
	if (!changed)
		FUZZ_HOLDS(tpck_seal_open_head(mine, sealed, got, opened) == 0 && memcmp(opened, head, head_bytes) == 0);
	else if (changes == 1)
		FUZZ_HOLDS(tpck_seal_open_head(mine, sealed, got, opened) != 0);
	else
		(void)tpck_seal_open_head(mine, sealed, got, opened);
	free(head);
	free(sealed);
	free(opened);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t secret[TPCK_SECRET_BYTES] = {1}, shared[TPCK_NONCE_BYTES] = {2};
	struct fuzz_input input = {data, size};
	uint8_t first = fuzz_byte(&input);
	uint32_t cipher = tpck_seal_choose(tpck_seal_ciphers(), first & 1 ? TPCK_SEAL_AES256_GCM : TPCK_SEAL_CHACHA20_POLY1305);
	enum tpck_seal_level level = first & 2 ? TPCK_SEAL_AUTH : TPCK_SEAL_ENCRYPT;
	struct tpck_seal mine, theirs;

	if (!cipher)
		return 0;
	tpck_seal_make(&mine, level, cipher, secret, shared, "said", 4, true);
	tpck_seal_make(&theirs, level, cipher, secret, shared, "said", 4, false);
	open_as_it_is(&mine, input.at, input.left);
	open_sealed(&mine, &theirs, &input);
	return 0;
}
