/* SPDX-License-Identifier: Apache-2.0 */
/* Files of STORE/JOB/agents, which agents of all nodes see. The job's folder is looked at each time, and no link is followed from there: the folder
 * above it may be a group's. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/home/home.h"
#include "agent/peers/agents_folder.h"
#include "runtime/base/door.h"
#include "runtime/store/file.h"

/* Of the folder, and of a file in it, below STORE/JOB. */
enum { FOLDER = 1, FILE_IN_IT = 2 };

static int open_folder_of(const char *path, struct tpck_below *below, struct tpck_error *err)
{
	char folder[TPCK_PATH_MAX];
	size_t length = (size_t)(strrchr(path, '/') - path);

	if (length >= sizeof folder)
		return tpck_error_set(err, ENAMETOOLONG, "opening %.200s", path);
	memcpy(folder, path, length);
	folder[length] = '\0';
	*below = (struct tpck_below){tpck_door_folder(folder, FOLDER, TPCK_DOOR_MAKE), length + 1};
	return below->at < 0 ? tpck_error_set(err, -below->at, "opening folder %s", folder) : 0;
}

int shared_write(const char *path, const char *text, int flags, struct tpck_error *err)
{
	struct tpck_below below;
	int rc = open_folder_of(path, &below, err);

	if (rc)
		return rc;
	rc = tpck_file_write_below(below, path, text, strlen(text), flags, err);
	close(below.at);
	return rc;
}

int shared_read(const char *path, size_t limit, char **text)
{
	struct tpck_below below;
	int rc = open_folder_of(path, &below, NULL);

	if (rc)
		return rc;
	rc = tpck_file_read_below(below, path, limit, text, NULL, NULL);
	close(below.at);
	return rc;
}

int shared_look(const char *path)
{
	int fd = tpck_door_file(path, FILE_IN_IT, O_PATH | O_CLOEXEC, 0);

	if (fd < 0)
		return fd;
	close(fd);
	return 0;
}

int shared_open(const char *path)
{
	return tpck_door_file(path, FILE_IN_IT, TPCK_DOOR_READ, 0);
}

void shared_remove(const char *path)
{
	(void)tpck_door_remove(path, FILE_IN_IT);
}

void shared_rename(const char *path, const char *to)
{
	struct tpck_below below;

	if (open_folder_of(path, &below, NULL))
		return;
	(void)renameat(below.at, path + below.skip, below.at, to + below.skip);
	close(below.at);
}
