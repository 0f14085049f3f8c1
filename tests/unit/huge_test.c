/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of files in huge pages: as much as was asked for, what is there stays, and an image is made of it. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/huge.h"
#include "runtime/store/memory_tier.h"
#include "tests/unit/shm_room.h"
#include "tests/unit/store_tap.h"

#define check(good, what) tap_ok(good, what, NULL)

enum { HUGE = 2 << 20, FILE_BYTES = 4 * HUGE + 20000 };

static int new_file(uint64_t bytes)
{
	char path[] = "/dev/shm/tpck-huge.XXXXXX";
	int fd = mkstemp(path);

	if (fd < 0 || unlink(path) || ftruncate(fd, (off_t)bytes))
		abort();
	return fd;
}

/* KiB of this process's mappings from `at` to `end` of which smaps says so. */
static long in_smaps(const void *at, const void *end, const char *what)
{
	FILE *file = fopen("/proc/self/smaps", "r");
	bool inside = false;
	char line[400];
	long found = 0, value;

	while (file && fgets(line, sizeof line, file)) {
		void *from, *to;

		if (sscanf(line, "%p-%p ", &from, &to) == 2)
			inside = from >= at && to <= end;
		else if (inside && strncmp(line, what, strlen(what)) == 0 && sscanf(line + strlen(what), " %ld", &value) == 1)
			found += value;
	}
	if (file)
		fclose(file);
	return found;
}

static uint64_t memory_of(int fd)
{
	struct stat status;

	return fstat(fd, &status) == 0 ? (uint64_t)status.st_blocks * 512 : 0;
}

/* Asked of the kernel with nothing of ours in between. */
static bool kernel_has_them(void)
{
	int fd = new_file(HUGE);
	char *room = mmap(NULL, 2 * (size_t)HUGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *at = (char *)(((uintptr_t)room + HUGE - 1) / HUGE * HUGE);
	bool has;

	at = mmap(at, HUGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
	at[0] = 1;
	has = madvise(at, HUGE, 25 /* MADV_COLLAPSE */) == 0;
	munmap(room, 2 * (size_t)HUGE);
	close(fd);
	return has;
}

static void ranges(void)
{
	int fd = new_file(FILE_BYTES);
	char *at = tpck_huge_map(fd, FILE_BYTES, PROT_READ | PROT_WRITE);
	bool same = true;

	check(at != MAP_FAILED && (uintptr_t)at % HUGE == 0, "a mapping begins where a huge page does");
	memset(at + HUGE - 100, 7, 300);
	check(tpck_huge_reserve(fd, at, 5000, 2 * HUGE) == 0, "memory for a range that begins and ends within pages");
	check(memory_of(fd) >= 2 * HUGE && memory_of(fd) < 3 * HUGE, "as much of it");
	for (int i = -200; i < 400; i++)
		same = same && at[HUGE + i] == (i >= -100 && i < 200 ? 7 : 0);
	check(same, "what was there is as it was, all else is zero");
	check(tpck_huge_reserve(fd, at, 0, FILE_BYTES) == 0 && memory_of(fd) >= FILE_BYTES && memory_of(fd) < FILE_BYTES + 8192,
	      "memory for all of a file that does not end with a huge page");
	memset(at, 9, FILE_BYTES);
	check(tpck_huge_reserve(fd, at, 0, FILE_BYTES) == 0 && at[0] == 9 && at[FILE_BYTES - 1] == 9, "and once more");
	check(tpck_huge_reserve(fd, at, FILE_BYTES, 0) == 0, "nothing is nothing");
	munmap(at, FILE_BYTES);
	close(fd);
	at = tpck_huge_map(-1, HUGE, PROT_READ);
	check(at == MAP_FAILED && errno == EBADF, "no file: errno says so");
}

static void image(void)
{
	char folder[] = "/dev/shm/tpck-huge.XXXXXX", path[200];
	uint64_t bytes = 3ull * TPCK_CHUNK_BYTES, more = 5ull * TPCK_CHUNK_BYTES;
	struct tpck_image made = {0};
	struct tpck_error err = {0};

	if (!mkdtemp(folder))
		abort();
	snprintf(path, sizeof path, "%s/image", folder);
	check(tpck_image_allocate(path, 0, bytes, &err) == 0 && tpck_image_prefault(path, &err) == 0 &&
	      tpck_image_open(&made, path, true, &err) == 0, "an image");
	memset(tpck_image_data(&made), 5, bytes);
	if (kernel_has_them()) {
		check(in_smaps(made.header, (char *)made.header + made.size, "ShmemPmdMapped:") >= (long)(bytes >> 11),
		      "its data is in huge pages, but for what the kernel had none for, and so mapped");
	} else {
		check(true, "its data is in huge pages # SKIP this kernel has none for files on tmpfs");
	}
	check(tpck_image_allocate(path, 0, more, &err) == 0, "it grows");
	tpck_image_close(&made);
	check(tpck_image_open(&made, path, true, &err) == 0 && made.size == TPCK_IMAGE_DATA_AT + more &&
	      tpck_image_data(&made)[bytes - 1] == 5 && tpck_image_data(&made)[bytes] == 0, "with what is in it");
	memset(tpck_image_data(&made), 6, more);
	if (kernel_has_them())
		check(in_smaps(made.header, (char *)made.header + made.size, "ShmemPmdMapped:") >= (long)(more >> 11),
		      "in huge pages too");
	tpck_image_close(&made);
	unlink(path);
	rmdir(folder);
}

int main(void)
{
	tap_need_shm(256);
	ranges();
	image();
	return tap_done();
}
