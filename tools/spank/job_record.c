/* SPDX-License-Identifier: Apache-2.0 */
/* Files of root's, each line once: a job may have very many steps. */
#include "config.h"

#include "tools/spank/job_record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <slurm/spank.h>

#include "tools/spank/options.h"

static long read_all(int fd, char *text, size_t size)
{
	size_t used = 0;
	ssize_t got;

	while (used + 1 < size && (got = read(fd, text + used, size - 1 - used)) > 0)
		used += (size_t)got;
	text[used] = '\0';
	return (long)used;
}

size_t record_text(const char *path, char *text, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	long used;

	text[0] = '\0';
	if (fd < 0)
		return 0;
	used = read_all(fd, text, size);
	close(fd);
	return (size_t)used;
}

bool record_has(const char *text, const char *line, size_t length)
{
	for (; *text; text += strcspn(text, "\n") + (text[strcspn(text, "\n")] == '\n'))
		if (strcspn(text, "\n") == length && memcmp(text, line, length) == 0)
			return true;
	return false;
}

void record_slurmd(void)
{
	char path[PATH_MAX];
	int fd;

	if (mkdir(options_state_folder(), 0755) && errno != EEXIST) {
		slurm_error("transpckpt: cannot make %s: %m; agents stay in the cgroups of their steps", options_state_folder());
		return;
	}
	snprintf(path, sizeof path, "%s/slurmd.pid", options_state_folder());
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
	if (fd < 0 || dprintf(fd, "%d\n", (int)getpid()) < 0)
		slurm_error("transpckpt: cannot write %s: %m; agents stay in the cgroups of their steps", path);
	if (fd >= 0)
		close(fd);
}

long record_slurmd_is(void)
{
	char path[PATH_MAX], text[32];
	long pid;

	snprintf(path, sizeof path, "%s/slurmd.pid", options_state_folder());
	if (!record_text(path, text, sizeof text))
		return 0;
	pid = strtol(text, NULL, 10);
	return pid > 0 ? pid : 0;
}

int record_path(uint32_t job, const char *kind, char path[static PATH_MAX])
{
	int used = snprintf(path, PATH_MAX, "%s/%u.%s", options_state_folder(), (unsigned)job, kind);

	return used > 0 && used < PATH_MAX ? 0 : -ENAMETOOLONG;
}

static int add(int fd, const char *line)
{
	size_t length = strlen(line);
	char *text = malloc(RECORD_MAX);
	long used = 0;
	int rc = text ? 0 : -ENOMEM;

	if (!rc && flock(fd, LOCK_EX))
		rc = -errno;
	if (!rc)
		used = read_all(fd, text, RECORD_MAX);
	if (!rc && !record_has(text, line, length)) {
		if ((size_t)used + length + 1 >= RECORD_MAX)
			rc = -EFBIG;
		else if (dprintf(fd, "%s\n", line) != (int)length + 1)
			rc = -errno;
	}
	free(text);
	return rc;
}

int record_add(uint32_t job, const char *kind, const char *line)
{
	char path[PATH_MAX];
	int rc = record_path(job, kind, path), fd;

	if (rc)
		return rc;
	fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	rc = add(fd, line);
	close(fd);
	return rc;
}

long record_read(uint32_t job, const char *kind, char text[static RECORD_MAX])
{
	char path[PATH_MAX];
	int rc = record_path(job, kind, path), fd;
	long used;

	if (rc)
		return rc;
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	used = read_all(fd, text, RECORD_MAX);
	close(fd);
	return used;
}

void record_remove(uint32_t job, const char *kind)
{
	char path[PATH_MAX];

	if (!record_path(job, kind, path))
		(void)unlink(path);
}
