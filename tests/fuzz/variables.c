/* SPDX-License-Identifier: Apache-2.0 */
/* Names of variables in code for the device. An input is an image. */
#include "config.h"

#include "tests/fuzz/fuzz.h"

#include <elf.h>

#include "runtime/track/variables.h"

static void take(void *context, const char *name)
{
	FUZZ_HOLDS(*name && strlen(name) <= 96 && (name[0] < '0' || name[0] > '9'));
	++*(size_t *)context;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = {data, size};
	char *text = fuzz_text(&input, size);
	size_t names = 0;
	Elf64_Ehdr head;

	tpck_variables_read_strings((const char *)data, size, take, &names);
	tpck_variables_read_words(text, take, &names);
	FUZZ_HOLDS(names <= 2 * size);
	free(text);
	/* What the driver takes for an image is as large as its header says, or ends with a NUL. */
	if (size >= SELFMAG && memcmp(data, ELFMAG, SELFMAG) == 0) {
		memset(&head, 0xff, sizeof head);
		memcpy(&head, data, size < sizeof head ? 0 : sizeof head);
		if (head.e_shoff <= size && (uint64_t)head.e_shnum * head.e_shentsize <= size - head.e_shoff)
			tpck_variables_read_image(data, take, &names);
	} else if (size && !data[size - 1]) {
		tpck_variables_read_image(data, take, &names);
	}
	return 0;
}
