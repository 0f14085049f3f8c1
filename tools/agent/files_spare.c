/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for the next file of a name. */
#include "config.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "tools/agent/files_private.h"

enum { SPARE_LEAST = 64 << 10 };

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

/* Spares and files are within half of TRANSPCKPT_MEMORY: names that do not come again lose theirs. */
static bool make_way(uint64_t bytes)
{
	uint64_t limit = files.agent->settings.memory / 2, used = files.view->memory_bytes + bytes;
	char folder[TPCK_PATH_MAX + 8], oldest[64];
	DIR *list;

	snprintf(folder, sizeof folder, "%s/" TPCK_VIEW_FOLDER, files.agent->folder);
	list = used <= limit ? opendir(folder) : NULL;
	if (!list)
		return false;
	while (used + files_spare_bytes(list, oldest) > limit && *oldest && unlinkat(dirfd(list), oldest, 0) == 0)
		;
	closedir(list);
	return true;
}

/* A file with pages for what the last one of its name had: the next one's writes find them there. */
static void make_spare(uint64_t pattern)
{
	uint64_t bytes = tpck_view_size_of(files.view, pattern);
	char name[TPCK_PATH_MAX + 64], making[TPCK_PATH_MAX + 72];
	struct statvfs shm;
	int fd;

	if (bytes == UINT64_MAX || bytes < SPARE_LEAST)
		return;
	snprintf(name, sizeof name, "%s/" TPCK_VIEW_FOLDER "/spare.%016" PRIx64, files.agent->folder, pattern);
	if (access(name, F_OK) == 0)
		return;
	files_yield(bytes);
	if (!make_way(bytes))
		return;
	if (statvfs(files.agent->folder, &shm) || (uint64_t)shm.f_bavail * shm.f_frsize < bytes + bytes / 4 + FILES_FREE_BYTES)
		return;
	snprintf(making, sizeof making, "%s.new", name);
	fd = open(making, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return;
	if (fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)(bytes + bytes / 64)) || rename(making, name))
		unlink(making);
	close(fd);
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
