/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for the next file of a name. */
#include "config.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "agent/files/publisher_private.h"
#include "runtime/base/lock_order.h"

enum { PIECE_BYTES = 2 << 20 };

uint64_t files_spare_bytes(DIR *list, char oldest[64])
{
	struct timespec since = {0};
	struct dirent *entry;
	uint64_t bytes = 0;
	struct stat found;

	*oldest = '\0';
	rewinddir(list);
	while ((entry = readdir(list))) {
		if (strncmp(entry->d_name, "spare.", 6) != 0 || strlen(entry->d_name) >= 64 ||
		    fstatat(dirfd(list), entry->d_name, &found, AT_SYMLINK_NOFOLLOW))
			continue;
		bytes += (uint64_t)found.st_blocks * 512;
		if (*oldest && (found.st_ctim.tv_sec > since.tv_sec ||
				(found.st_ctim.tv_sec == since.tv_sec && found.st_ctim.tv_nsec >= since.tv_nsec)))
			continue;
		since = found.st_ctim;
		strcpy(oldest, entry->d_name);
	}
	return bytes;
}

static void spare_name(char *name, size_t size, uint64_t pattern, const char *end)
{
	snprintf(name, size, "%s/" TPCK_VIEW_FOLDER "/spare.%016" PRIx64 "%s", home.folder, pattern, end);
}

/* ---- pages ------------------------------------------------------------------------------------ */
/* A page that was in use a moment ago is written to at once. One that nobody has used for seconds the host of a virtual machine
 * may have taken back, and the program's write would wait for it, ten times as long as for the copy. So pages go from the file
 * that is not needed any more right to the next one, piece by piece; where there is none, they are fetched before. */

void files_spare_give(const char *path, uint64_t pattern)
{
	char name[TPCK_PATH_MAX + 64];

	spare_name(name, sizeof name, pattern, ".old");
	if (rename(path, name))
		unlink(path);
}

/* Whoever reads it, or has it mapped, goes on doing so: its pages are not to be had. A lease on writing is given to a file's only
 * opener. */
static int open_old(const char *name, uint64_t *bytes)
{
	int fd = open(name, O_RDWR | O_CLOEXEC);
	struct stat found;

	*bytes = 0;
	if (fd >= 0 && (fcntl(fd, F_SETLEASE, F_WRLCK) || fcntl(fd, F_SETLEASE, F_UNLCK) || fstat(fd, &found))) {
		close(fd);
		fd = -1;
	}
	if (fd >= 0)
		*bytes = (uint64_t)found.st_blocks * 512;
	return fd;
}

/* Small pages, and few at a time: what is freed so is what the kernel gives out next. */
static void fetch(uint64_t bytes)
{
	volatile char *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (pages == MAP_FAILED)
		return;
	(void)madvise((void *)pages, bytes, MADV_NOHUGEPAGE);
	for (uint64_t at = 0; at < bytes; at += 4096)
		pages[at] = 1;
	munmap((void *)pages, bytes);
}

static int fill(int fd, int old, uint64_t old_bytes, uint64_t bytes)
{
	int result = 0;

	for (uint64_t at = 0; at < bytes && !result; at += PIECE_BYTES) {
		uint64_t piece = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;

		if (at >= old_bytes)
			fetch(piece);
		else if (fallocate(old, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)piece))
			old_bytes = 0;
		result = fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)piece);
	}
	return result;
}

/* ---- one for each name ------------------------------------------------------------------------ */

static DIR *open_folder(void)
{
	char folder[TPCK_PATH_MAX + 8];

	snprintf(folder, sizeof folder, "%s/" TPCK_VIEW_FOLDER, home.folder);
	return opendir(folder);
}

bool files_spare_drop(void)
{
	DIR *list = open_folder();
	char oldest[64];
	bool dropped;

	if (!list)
		return false;
	(void)files_spare_bytes(list, oldest);
	dropped = *oldest && unlinkat(dirfd(list), oldest, 0) == 0;
	closedir(list);
	return dropped;
}

bool files_spares(void)
{
	DIR *list = open_folder();
	char oldest[64];
	bool any = list && files_spare_bytes(list, oldest);

	if (list)
		closedir(list);
	return any;
}

/* Spares and files are within half of TRANSPCKPT_MEMORY: names that do not come again lose theirs. */
static bool make_way(uint64_t bytes)
{
	uint64_t limit = home.settings.memory / 2, used = files.view->memory_bytes + bytes;
	struct tpck_cgroup_room room = files_groups_room(bytes);
	char oldest[64];
	DIR *list;

	list = used <= limit && tpck_cgroup_has(&room, bytes) ? open_folder() : NULL;
	if (!list)
		return false;
	while (used + files_spare_bytes(list, oldest) > limit && *oldest && unlinkat(dirfd(list), oldest, 0) == 0)
		;
	closedir(list);
	return true;
}

/* A file with pages for what the last one of its name had: the next one's writes find them there. */
static void make_from(uint64_t pattern, int old, uint64_t old_bytes)
{
	uint64_t bytes = tpck_view_size_of(files.view, pattern), more;
	char name[TPCK_PATH_MAX + 64], making[TPCK_PATH_MAX + 64];
	struct statvfs shm;
	int fd;

	if (bytes == UINT64_MAX || bytes < TPCK_VIEW_SPARE_LEAST)
		return;
	spare_name(name, sizeof name, pattern, "");
	if (access(name, F_OK) == 0)
		return;
	bytes += bytes / 64;
	more = bytes > old_bytes ? bytes - old_bytes : 0;
	files_yield(more);
	if (!make_way(more))
		return;
	if (statvfs(home.folder, &shm) || (uint64_t)shm.f_bavail * shm.f_frsize < more + bytes / 4 + FILES_FREE_BYTES)
		return;
	spare_name(making, sizeof making, pattern, ".new");
	fd = open(making, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	if (fill(fd, old, old_bytes, bytes) || rename(making, name))
		unlink(making);
	close(fd);
}

static void make_spare(uint64_t pattern)
{
	char name[TPCK_PATH_MAX + 64];
	uint64_t old_bytes;
	int old;

	spare_name(name, sizeof name, pattern, ".old");
	old = open_old(name, &old_bytes);
	make_from(pattern, old, old_bytes);
	unlink(name);
	if (old >= 0)
		close(old);
}

void files_want_spare(uint64_t pattern)
{
	unsigned i = 0;

	pthread_mutex_lock(&files.spare_lock);
	while (i < files.spares && files.spare[i] != pattern)
		i++;
	if (i == files.spares && i < FILES_SPARES)
		files.spare[files.spares++] = pattern;
	pthread_mutex_unlock(&files.spare_lock);
}

bool files_make_spare(void)
{
	uint64_t pattern = 0;
	bool any;

	pthread_mutex_lock(&files.spare_lock);
	any = files.spares;
	if (any)
		pattern = files.spare[--files.spares];
	pthread_mutex_unlock(&files.spare_lock);
	if (any)
		make_spare(pattern);
	return any;
}
