/* SPDX-License-Identifier: Apache-2.0 */
/* What nodes say of ranks that wait for each other. An input is the world's size, then of each node how many bytes it says,
 * in eights, and these. */
#include "config.h"

#include "tests/fuzz/fuzz.h"

#include <stdio.h>

#include "runtime/peer/waiting.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = {data, size};
	struct tpck_waiting *waiting = tpck_waiting_new(fuzz_byte(&input) % 16 + 1u);
	char text[300];

	FUZZ_HOLDS(waiting);
	for (int node = 0; input.left && node < 8; node++) {
		char name[16], host[16];
		size_t got;
		void *rows = fuzz_bytes(&input, 8u * fuzz_byte(&input), &got);

		snprintf(name, sizeof name, "node%d", node % 6);
		snprintf(host, sizeof host, "host%d", node % 3);
		if (tpck_waiting_put(waiting, name, host, rows, got) == 0)
			tpck_waiting_describe(waiting, text, sizeof text);
		free(rows);
	}
	(void)tpck_waiting_all(waiting);
	tpck_waiting_describe(waiting, text, 40);
	FUZZ_HOLDS(strlen(text) < 40);
	tpck_waiting_take(waiting, "node0");
	tpck_waiting_describe(waiting, text, sizeof text);
	tpck_waiting_free(waiting);
	return 0;
}
