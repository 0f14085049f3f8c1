/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of 2 MiB for files on tmpfs. */
#include "config.h"

#include "runtime/base/huge.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/mman.h>

#include "runtime/base/kernel.h"
#include "runtime/base/undumped.h"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

static uint64_t up(uint64_t at)
{
	return (at + TPCK_HUGE_BYTES - 1) & ~(TPCK_HUGE_BYTES - 1);
}

void *tpck_huge_map(int fd, size_t bytes, int protection)
{
	int saved = errno;
	size_t room = up(bytes) + TPCK_HUGE_BYTES;
	char *begin = tpck_sys_mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	char *at, *end;
	void *mapped;

	/* Where address space is short, small pages will do. */
	if (begin == MAP_FAILED) {
		errno = saved;
		return tpck_undumped(tpck_sys_mmap(NULL, bytes, protection, MAP_SHARED, fd, 0), bytes);
	}
	at = begin + (up((uintptr_t)begin) - (uintptr_t)begin);
	end = begin + room;
	mapped = tpck_sys_mmap(at, bytes, protection, MAP_SHARED | MAP_FIXED, fd, 0);
	saved = errno;
	if (mapped == MAP_FAILED) {
		tpck_sys_munmap(begin, room);
	} else {
		size_t pages = (bytes + 4095) & ~(size_t)4095;

		if (at > begin)
			tpck_sys_munmap(begin, (size_t)(at - begin));
		tpck_sys_munmap(at + pages, (size_t)(end - (at + pages)));
	}
	errno = saved;
	return tpck_undumped(mapped, bytes);
}

/* What has pages already keeps them: making huge ones of them would be a copy. */
static bool has_memory(const char *at)
{
	unsigned char resident = 0;

	return mincore((void *)at, 1, &resident) == 0 && (resident & 1);
}

int tpck_huge_reserve(int fd, void *base, uint64_t at, uint64_t bytes)
{
	uint64_t end = (at + bytes) & ~(TPCK_HUGE_BYTES - 1), from = up(at);

	/* In runs: each call has the kernel look at the lists of all processors. */
	for (uint64_t piece = from; piece <= end; piece += TPCK_HUGE_BYTES) {
		bool empty = piece < end && !has_memory((char *)base + piece);

		/* A range without any page is not made huge. */
		if (empty && tpck_sys_fallocate(fd, 0, (off_t)piece, 1))
			return -errno;
		if (empty)
			continue;
		if (from < piece)
			(void)madvise((char *)base + from, (size_t)(piece - from), MADV_COLLAPSE);
		from = piece + TPCK_HUGE_BYTES;
	}
	/* All that has no memory by now, where the kernel has no such pages, or none left. */
	return bytes && tpck_sys_fallocate(fd, 0, (off_t)at, (off_t)bytes) ? -errno : 0;
}
