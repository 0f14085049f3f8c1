/* SPDX-License-Identifier: Apache-2.0 */
/* Folders that have got another name behind the job's back: what is owed in them goes there. The table knows a folder by its inode;
 * its path is only how the agent comes to it. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/files/publisher_private.h"
#include "runtime/base/log.h"
#include "runtime/store/replace.h"

/* Whether one of the last so many names of its path has changed, others staying as they were. */
enum { LEVELS = 4, PATH = TPCK_VIEW_PATH + TPCK_VIEW_NAME };

/* A folder's number may be given to another one once it is removed. Where the file system does not say when that was made, none
 * is taken for it. */
static bool is_it(int above, const char *path, const struct tpck_view_folder *folder)
{
	struct statx made;
	struct stat found;

	return !fstatat(above, path, &found, AT_SYMLINK_NOFOLLOW) && S_ISDIR(found.st_mode) && found.st_dev == folder->device &&
	       found.st_ino == folder->inode && !statx(above, path, AT_SYMLINK_NOFOLLOW, STATX_BTIME, &made) && made.stx_mask & STATX_BTIME &&
	       (uint64_t)made.stx_btime.tv_sec * 1000000000u + made.stx_btime.tv_nsec <= folder->since_ns;
}

/* Below `above`, by way of a folder of any name: its path in `path`, which holds the text of `above` up to `length`. */
static bool look_below(int above, const char *rest, const struct tpck_view_folder *folder, char path[PATH], size_t length)
{
	DIR *list = fdopendir(above);
	struct dirent *entry;
	bool found = false;

	if (!list) {
		close(above);
		return false;
	}
	while (!found && (entry = readdir(list))) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 || (entry->d_type != DT_DIR && entry->d_type != DT_UNKNOWN))
			continue;
		if (snprintf(path + length, PATH - length, "/%s%s", entry->d_name, rest) < (int)(PATH - length))
			found = is_it(dirfd(list), path + length + 1, folder);
	}
	closedir(list);
	return found;
}

/* Where it is by now, in `path`. */
static bool find(const struct tpck_view_folder *folder, char path[PATH])
{
	const char *rest = folder->path + strlen(folder->path);

	for (int level = 0; level < LEVELS; level++) {
		struct stat found;
		size_t length;
		int above;

		for (length = (size_t)(rest - folder->path); length && folder->path[length - 1] != '/'; length--)
			;
		if (!length)
			return false;
		length--;
		memcpy(path, folder->path, length);
		strcpy(path + length, length ? "" : "/");
		above = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		/* What is on another file system cannot have come from there. */
		if (above >= 0 && (fstat(above, &found) || found.st_dev != folder->device)) {
			close(above);
			return false;
		}
		if (above >= 0 && look_below(above, rest, folder, path, length))
			return true;
		rest = folder->path + length;
	}
	return false;
}

/* One that is nowhere holds many files, maybe, of which each asks. */
static bool is_nowhere(const struct tpck_view_folder *folder, bool note)
{
	static _Thread_local struct tpck_view_folder nowhere;

	if (note)
		nowhere = *folder;
	return nowhere.inode == folder->inode && nowhere.device == folder->device && strcmp(nowhere.path, folder->path) == 0;
}

static bool note_moved(const struct tpck_view_folder *folder, const char *path)
{
	bool noted = false;

	if (strlen(path) >= TPCK_VIEW_PATH || !tpck_view_lock(files.view))
		return false;
	for (uint32_t i = 0; i < TPCK_VIEW_FOLDERS && files.view->folder[i].inode && !noted; i++) {
		struct tpck_view_folder *known = &files.view->folder[i];

		if (known->used && known->device == folder->device && known->inode == folder->inode) {
			strcpy(known->path, path);
			noted = true;
		}
	}
	tpck_view_unlock(files.view);
	if (noted)
		tpck_log_warn("%s has been renamed: what is owed there goes to %s", folder->path, path);
	return noted;
}

int files_folder(const struct tpck_view_folder *folder, struct tpck_error *err)
{
	int fd = tpck_replace_folder(folder->path, folder->device, folder->inode, err);
	char path[PATH];
	bool found;

	if ((fd != -ENOENT && fd != -ESTALE) || is_nowhere(folder, false))
		return fd;
	found = find(folder, path) && note_moved(folder, path);
	(void)is_nowhere(folder, !found);
	return found ? -EAGAIN : fd;
}

bool files_folder_gone(const struct tpck_view_folder *folder)
{
	char path[TPCK_VIEW_PATH], *slash;
	struct stat found;

	strcpy(path, folder->path);
	if (stat(path, &found) == 0)
		return found.st_dev == folder->device && found.st_ino != folder->inode;
	while (errno == ENOENT && (slash = strrchr(path, '/')) && slash > path) {
		*slash = '\0';
		if (stat(path, &found) == 0)
			return found.st_dev == folder->device;
	}
	return false;
}
