/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that goes to files. */
#include "config.h"

#include "runtime/replay/spill.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/base/kernel.h"
#include "runtime/base/log.h"
#include "runtime/base/undumped.h"

static bool write_all(int fd, const char *from, uint64_t bytes)
{
	uint64_t done = 0;

	while (done < bytes) {
		ssize_t got = tpck_sys_pwrite(fd, from + done, bytes - done, (off_t)done);

		if (got <= 0 && errno != EINTR)
			return false;
		done += got > 0 ? (uint64_t)got : 0;
	}
	return true;
}

/* What lies in a file. */
struct area {
	void *at;
	uint64_t bytes;
	struct area *next;
};
static struct area *areas;
static uint64_t spilled, limit = UINT64_MAX;
static bool over;

void tpck_spill_limit(uint64_t bytes)
{
	limit = bytes;
}

bool tpck_spill_over(void)
{
	return over;
}

bool tpck_spill(void *at, uint64_t bytes, const char *folder)
{
	struct area *area = !over && bytes <= limit - spilled ? malloc(sizeof *area) : NULL;
	int fd = area ? tpck_sys_openat(AT_FDCWD, folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600) : -1;
	bool done = fd >= 0 && write_all(fd, at, bytes) &&
		    tpck_sys_mmap(at, bytes, PROT_READ, MAP_PRIVATE | MAP_FIXED, fd, 0) == at;

	if (!done && !over && area)
		tpck_log_info("what a twin has behind it of the record stays in memory from here on: it cannot be written to %s: %m", folder);
	if (fd >= 0)
		tpck_sys_close(fd);
	over = over || !done;
	if (!done) {
		free(area);
		return false;
	}
	*area = (struct area){at, bytes, areas};
	areas = area;
	spilled += bytes;
	return true;
}

/* By a call, which says where a page cannot be read; whoever touches that gets SIGBUS. */
static bool read_back(int memory, const struct area *area)
{
	char *copy = tpck_sys_mmap(NULL, area->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uint64_t done = 0;

	if (copy == MAP_FAILED)
		return false;
	copy = tpck_undumped(copy, area->bytes);
	while (done < area->bytes) {
		ssize_t got = tpck_sys_pread(memory, copy + done, area->bytes - done, (off_t)((uintptr_t)area->at + done));

		if (got <= 0 && errno != EINTR)
			break;
		done += got > 0 ? (uint64_t)got : 0;
	}
	if (done == area->bytes && tpck_sys_mremap(copy, area->bytes, area->bytes, MREMAP_MAYMOVE | MREMAP_FIXED, area->at) == area->at)
		return true;
	tpck_sys_munmap(copy, area->bytes);
	return false;
}

void tpck_spill_back(void)
{
	int memory = areas ? tpck_sys_openat(AT_FDCWD, "/proc/self/mem", O_RDONLY | O_CLOEXEC, 0) : -1;
	uint64_t left = 0;

	over = true;
	while (areas) {
		struct area *area = areas;

		if (memory < 0 || !read_back(memory, area))
			left += area->bytes;
		areas = area->next;
		free(area);
	}
	if (memory >= 0)
		tpck_sys_close(memory);
	if (left)
		tpck_log_warn("%llu MiB of the record stay in files of the store that cannot be read now: a process that looks there ends", (unsigned long long)(left >> 20));
}

static bool is_one(const char *path, const char *end, const char *prefix, const char *name)
{
	static const char gone[] = " (deleted)";
	size_t length = strlen(prefix);
	const char *below = path && strncmp(path, prefix, length) == 0 && path[length] == '/' ? strchr(path + length + 1, '/') : NULL;

	return below && strncmp(below + 1, name, strlen(name)) == 0 && !strchr(below + 1, '/') && end - path >= (long)sizeof gone &&
	       strcmp(end - sizeof gone + 1, gone) == 0;
}

bool tpck_spill_nameless(const char *prefix, const char *name, const char *folder)
{
	int maps = tpck_sys_openat(AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC, 0);
	char buffer[8192];
	size_t used = 0;
	ssize_t got;

	while (maps >= 0 && (got = tpck_sys_read(maps, buffer + used, sizeof buffer - 1 - used)) > 0) {
		char *line = buffer, *end;

		used += (size_t)got;
		buffer[used] = '\0';
		for (; (end = strchr(line, '\n')); line = end + 1) {
			char *path, *next;
			uint64_t from = strtoull(line, &next, 16), to = strtoull(next + 1, &next, 16);

			*end = '\0';
			path = strchr(line, '/');
			if (!is_one(path, end, prefix, name))
				continue;
			tpck_sys_close(maps);
			return tpck_spill((void *)(uintptr_t)from, to - from, folder);
		}
		used = strlen(line);
		memmove(buffer, line, used);
		/* A line that is longer than the buffer is nobody's whom this is about. */
		if (used == sizeof buffer - 1)
			used = 0;
	}
	if (maps >= 0)
		tpck_sys_close(maps);
	return false;
}
