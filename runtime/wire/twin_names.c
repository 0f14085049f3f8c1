/* SPDX-License-Identifier: Apache-2.0 */
/* The names of a twin's shared memory and semaphores. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/kernel.h"
#include "runtime/wire/twin_names.h"

#define FOLDER "/dev/shm"
/* TRIES: whoever looks whether a twin lives has its lock for a moment. */
enum { ENTRIES = 4096, OWNER = 64, TRIES = 200 };

/* "tpck-twin.NAMESPACE.PROCESS". */
static void owner_of(int32_t process, char owner[OWNER])
{
	struct stat found = {0};

	/* Without /proc all processes count as of one. */
	(void)tpck_sys_fstatat(AT_FDCWD, "/proc/self/ns/pid", &found, 0);
	snprintf(owner, OWNER, TPCK_TWIN_NAMES "%llx.%d", (unsigned long long)found.st_ino, (int)process);
}

int tpck_twin_name(char *text, size_t size, int32_t process, const char *name)
{
	char owner[OWNER];

	owner_of(process, owner);
	return snprintf(text, size, "/%s.%s", owner, name);
}

/* Whether it is the name of a twin, or that which it locks: in `owner` the latter, in `name` the rest. */
static bool read_name(const char *entry, char owner[OWNER], struct tpck_twin_name *name)
{
	const char *kind = strncmp(entry, TPCK_SEMAPHORES, strlen(TPCK_SEMAPHORES)) == 0 ? TPCK_SEMAPHORES : "", *begin = entry + strlen(kind);
	const char *space = begin + strlen(TPCK_TWIN_NAMES), *process, *end;

	if (strncmp(begin, TPCK_TWIN_NAMES, strlen(TPCK_TWIN_NAMES)) != 0)
		return false;
	process = space + strspn(space, "0123456789abcdef");
	if (process == space || *process != '.')
		return false;
	process++;
	end = process + strspn(process, "0123456789");
	if (end == process || (*end && (*end != '.' || !end[1])) || end - begin >= OWNER)
		return false;
	snprintf(owner, OWNER, "%.*s", (int)(end - begin), begin);
	*name = (struct tpck_twin_name){entry, kind, *end ? end + 1 : end};
	return true;
}

static void each(void (*call)(int folder, const char *owner, const struct tpck_twin_name *name, void *of), void *of)
{
	int folder = tpck_sys_openat(AT_FDCWD, FOLDER, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	_Alignas(struct dirent64) char buffer[ENTRIES];
	ssize_t got;

	while (folder >= 0 && (got = tpck_sys_getdents(folder, buffer, sizeof buffer)) > 0)
		for (char *at = buffer; at < buffer + got; at += ((struct dirent64 *)at)->d_reclen) {
			struct tpck_twin_name name;
			char owner[OWNER];

			if (read_name(((struct dirent64 *)at)->d_name, owner, &name))
				call(folder, owner, &name, of);
		}
	if (folder >= 0)
		tpck_sys_close(folder);
}

bool tpck_twin_names_hold(int32_t process)
{
	char owner[OWNER], path[sizeof FOLDER + OWNER];

	owner_of(process, owner);
	snprintf(path, sizeof path, FOLDER "/%s", owner);
	for (int i = 0; i < TRIES; i++) {
		int fd = tpck_sys_high(tpck_sys_openat(AT_FDCWD, path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
		struct stat found = {0};

		if (fd < 0)
			return false;
		/* The descriptor stays open as long as this process is there. */
		if (!tpck_sys_flock(fd, LOCK_EX | LOCK_NB) && !tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH) && found.st_nlink)
			return true;
		tpck_sys_close(fd);
		tpck_sys_clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){0, 1000000}, NULL);
	}
	return false;
}

struct of_one {
	char owner[OWNER];
	void (*call)(int folder, const struct tpck_twin_name *name);
};

static void look_at_one(int folder, const char *owner, const struct tpck_twin_name *name, void *of)
{
	const struct of_one *one = of;

	if (*name->name && strcmp(owner, one->owner) == 0)
		one->call(folder, name);
}

void tpck_twin_names_each(int32_t process, void (*call)(int folder, const struct tpck_twin_name *name))
{
	struct of_one one = {.call = call};

	owner_of(process, one.owner);
	each(look_at_one, &one);
}

static void goes(int folder, const struct tpck_twin_name *name)
{
	tpck_sys_unlinkat(folder, name->entry, 0);
}

void tpck_twin_names_remove(int32_t process)
{
	char owner[OWNER], path[sizeof FOLDER + OWNER];

	tpck_twin_names_each(process, goes);
	owner_of(process, owner);
	snprintf(path, sizeof path, FOLDER "/%s", owner);
	tpck_sys_unlinkat(AT_FDCWD, path, 0);
}

/* What a twin locks is there before its names are, and behind them. */
static void goes_if_left(int folder, const char *owner, const struct tpck_twin_name *name, void *locks)
{
	int fd;

	if (!*name->name != *(bool *)locks)
		return;
	fd = tpck_sys_openat(folder, owner, O_RDWR | O_NOFOLLOW | O_CLOEXEC, 0);
	if (fd >= 0 ? !tpck_sys_flock(fd, LOCK_EX | LOCK_NB) : errno == ENOENT)
		tpck_sys_unlinkat(folder, name->entry, 0);
	if (fd >= 0)
		tpck_sys_close(fd);
}

void tpck_twin_names_clear(void)
{
	each(goes_if_left, &(bool){false});
	each(goes_if_left, &(bool){true});
}
