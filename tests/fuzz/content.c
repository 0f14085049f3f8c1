/* SPDX-License-Identifier: Apache-2.0 */
/* The first bytes of files, by which checkpoints are known: zip, safetensors, HDF5, NumPy, pickle. An input is the size of
 * the file and these bytes. */
#include "config.h"

#include "tests/fuzz/fuzz.h"

#include "runtime/view/learnt_names.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = {data, size};
	uint64_t said = 0;
	size_t got;
	void *head;

	for (int i = 0; i < 8; i++)
		said = said << 8 | fuzz_byte(&input);
	head = fuzz_bytes(&input, input.left, &got);
	(void)tpck_learnt_content(head, got, said);
	(void)tpck_learnt_content(head, got, got);
	free(head);
	return 0;
}
