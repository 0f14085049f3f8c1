/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory that kernels may write to: what is watched, what is not, and what counts as changed. */
#include "config.h"

#include "runtime/track/host_memory.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static int count, failed;

static void ok(bool good, const char *what)
{
	printf("%sok %d - %s\n", good ? "" : "not ", ++count, what);
	failed |= !good;
}

static char *map(size_t bytes)
{
	return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

int main(void)
{
	char *small = map(4096), *middle = map(64 << 10), *large = map(TPCK_WATCH_ONE + 4096), *stranger = map(4096), *gone = map(4096);

	tpck_host_memory_add(small, 64);
	tpck_host_memory_add(middle, 64 << 10);
	tpck_host_memory_add(large, TPCK_WATCH_ONE + 4096);
	tpck_host_memory_add(gone, 4096);
	ok(tpck_host_memory_any() && tpck_host_memory_maybe((uintptr_t)small) && tpck_host_memory_maybe((uintptr_t)middle + 100) &&
		   !tpck_host_memory_maybe(4096) && !tpck_host_memory_maybe(0x4a0000000000u), "where it is at all");
	ok(tpck_host_memory_shown(stranger) == -ENOENT, "memory that the driver did not give is not known");
	ok(tpck_host_memory_shown(small + 64) == -ENOENT, "nor is what lies behind an allocation");
	ok(tpck_host_memory_shown(large) == -EFBIG, "what is large is not watched");
	ok(!tpck_host_memory_shown_anew, "there is nothing to keep");
	ok(!tpck_host_memory_shown(small + 8) && !tpck_host_memory_shown(middle) && tpck_host_memory_shown_anew, "small memory is watched");
	memset(small, 1, 64);
	ok(!tpck_host_memory_changed(UINT64_MAX), "the processor sets it up before a kernel is launched");
	tpck_host_memory_keep();
	ok(!tpck_host_memory_shown_anew && !tpck_host_memory_changed(UINT64_MAX), "it is kept as it is then");
	ok(!tpck_host_memory_shown(small) && !tpck_host_memory_shown_anew, "and not again where it is shown once more");
	middle[60000] = 1;
	ok(!tpck_host_memory_changed(4096), "what is not asked for is not compared");
	ok(tpck_host_memory_changed(UINT64_MAX), "one byte of it is seen");
	middle[60000] = 0;
	ok(!tpck_host_memory_changed(UINT64_MAX), "the same bytes again are no change");
	small[0] = 2;
	ok(tpck_host_memory_changed(64), "small memory is compared at once");
	tpck_host_memory_register(stranger, 64);
	ok(tpck_host_memory_maybe((uintptr_t)stranger) && tpck_host_memory_shown(stranger + 8) == -EFBIG, "what the program registers is not watched");
	tpck_host_memory_drop(stranger);
	ok(tpck_host_memory_shown(stranger + 8) == -ENOENT, "and is forgotten");
	tpck_host_memory_drop(small);
	ok(!tpck_host_memory_changed(UINT64_MAX), "what was given back is not looked at");
	munmap(small, 4096);
	ok(tpck_host_memory_shown(small) == -ENOENT, "and not known any more");
	tpck_host_memory_shown(gone);
	tpck_host_memory_keep();
	ok(!tpck_host_memory_changed(UINT64_MAX), "a page that stays is fine");
	munmap(gone, 4096);
	ok(tpck_host_memory_changed(UINT64_MAX), "one that is gone without a word counts as changed, and is not touched");
	printf("1..%d\n", count);
	return failed;
}
