/* SPDX-License-Identifier: Apache-2.0 */
/* Launch sequences, and what the engine finds in them. An input is the lines of a file. */
#include "config.h"

#include "tests/fuzz/fuzz.h"

#include "runtime/infer/sequence.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct tpck_sequence sequence;
	struct tpck_infer *infer;

	if (tpck_sequence_parse(&sequence, (const char *)data, size, "input", NULL) == 0) {
		infer = tpck_infer_new(NULL);
		FUZZ_HOLDS(infer);
		tpck_sequence_tell_nodes(&sequence, infer);
		for (size_t i = 0; i < sequence.count; i++)
			(void)tpck_infer_feed(infer, &sequence.ops[i].token);
		tpck_infer_free(infer);
	}
	tpck_sequence_free(&sequence);
	return 0;
}
