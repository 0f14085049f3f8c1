/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that goes to files, and comes back. */
#include "config.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/base/error.h"
#include "runtime/replay/spill.h"
#include "tests/unit/store_tap.h"

enum { BYTES = 1 << 20 };

static struct tpck_error err;

static unsigned char *filled(unsigned seed)
{
	unsigned char *at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	for (unsigned i = 0; i < BYTES; i++)
		at[i] = (unsigned char)(seed + i * 7 + (i >> 9));
	return at;
}

static bool is_filled(const unsigned char *at, unsigned seed)
{
	for (unsigned i = 0; i < BYTES; i++)
		if (at[i] != (unsigned char)(seed + i * 7 + (i >> 9)))
			return false;
	return true;
}

/* Whether what is mapped there is a file that has no name. */
static bool in_file(const void *at)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[1000];
	bool found = false;

	while (maps && fgets(line, sizeof line, maps))
		found |= strtoull(line, NULL, 16) == (uint64_t)(uintptr_t)at && strstr(line, "(deleted)");
	if (maps)
		fclose(maps);
	return found;
}

int main(void)
{
	const char *folder = tap_folder("/tmp");
	unsigned char *one = filled(1), *two = filled(2), *three = filled(3);

	tpck_spill_limit(5 * BYTES / 2);
	ok(tpck_spill(one, BYTES, folder) && tpck_spill(two, BYTES, folder) && in_file(one) && in_file(two), "memory goes to files");
	ok(is_filled(one, 1) && is_filled(two, 2), "and is what it was");
	ok(!tpck_spill_over() && !tpck_spill(three, BYTES, folder) && !in_file(three) && tpck_spill_over(), "there are as many as may be");
	ok(is_filled(three, 3), "what has no room stays");
	tpck_spill_back();
	ok(!in_file(one) && !in_file(two) && is_filled(one, 1) && is_filled(two, 2), "all comes back");
	ok(!tpck_spill(three, BYTES, folder), "for good");
	(void)err;
	return tap_done();
}
