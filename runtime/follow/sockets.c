/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of named pipes, and of Unix sockets that the program listens at, while it runs forward. A twin's socket lies in a folder of its own (runtime/programs/own_sockets.c): to the twin's calls
 * on paths it is at the name that the program gives it. In any other process that runs forward it is real, and known to those calls. What a killed run has left of a name
 * goes before the program listens there once more.
 */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "runtime/base/kernel.h"
#include "runtime/follow/follow.h"
#include "runtime/follow/follow_private.h"

bool tpck_follow_socket_name(const char *path, char *absolute, size_t size, uint64_t *digest)
{
	int saved = errno;
	bool found = tpck_follow_absolute(AT_FDCWD, path, absolute, size);

	if (found)
		*digest = tpck_follow_digest(absolute);
	errno = saved;
	return found;
}

int tpck_follow_socket(const char *path, const char *target)
{
	struct tpck_name name;

	if (!tpck_follow_resolve(TPCK_AT(AT_FDCWD, path), false, &name)) {
		errno = EADDRINUSE;
		return -1;
	}
	return tpck_overlay_socket(target ? target : name.path, name.path, name.digest);
}

/* Nobody listens there: to a socket of another type that somebody has the kernel says something else. */
static bool is_dead(const char *path)
{
	struct sockaddr_un at = {.sun_family = AF_UNIX};
	int fd = strlen(path) < sizeof at.sun_path ? tpck_sys_socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0) : -1;
	bool dead;

	if (fd < 0)
		return false;
	strcpy(at.sun_path, path);
	dead = tpck_sys_connect(fd, &at, sizeof at) && errno == ECONNREFUSED;
	tpck_sys_close(fd);
	return dead;
}

/* Whether the path was free when the first run came there. */
static bool was_free(const struct tpck_name *name, const struct tpck_overlay_entry *entry)
{
	char version[TPCK_FOLLOW_FOLDER + 128];

	return entry || !tpck_learnt_first(name->digest) || tpck_learnt_source(name->path, name->digest, version, sizeof version) == TPCK_SOURCE_ABSENT;
}

int tpck_follow_pipe(int folder, const char *path)
{
	const struct tpck_overlay_entry *entry;
	struct tpck_name name;
	struct stat found;
	int saved = errno;

	if (!tpck_overlay_active() || tpck_follow_held() || !tpck_follow_resolve(TPCK_AT(folder, path), false, &name)) {
		errno = saved;
		return 1;
	}
	entry = tpck_overlay_find(name.digest);
	if (entry && entry->kind != TPCK_KIND_ABSENT) {
		errno = EEXIST;
		return -1;
	}
	/* What a killed run has left stays: others may have it open. */
	if (!was_free(&name, entry) || tpck_sys_fstatat(AT_FDCWD, name.path, &found, AT_SYMLINK_NOFOLLOW) || !S_ISFIFO(found.st_mode) || found.st_uid != geteuid()) {
		errno = saved;
		return 1;
	}
	if (tpck_overlay_socket(name.path, name.path, name.digest))
		return -1;
	errno = saved;
	return 0;
}

void tpck_follow_made_pipe(int folder, const char *path)
{
	struct tpck_name name;
	int saved = errno;

	if (tpck_overlay_active() && !tpck_follow_held() && tpck_follow_resolve(TPCK_AT(folder, path), false, &name))
		(void)tpck_overlay_socket(name.path, name.path, name.digest);
	errno = saved;
}

bool tpck_follow_socket_may(const char *path)
{
	const struct tpck_overlay_entry *entry;
	struct tpck_name name;
	struct stat found;
	int saved = errno;

	if (!tpck_overlay_active() || !tpck_follow_resolve(TPCK_AT(AT_FDCWD, path), false, &name)) {
		errno = saved;
		return true;
	}
	entry = tpck_overlay_find(name.digest);
	if (entry && entry->kind != TPCK_KIND_ABSENT) {
		errno = EADDRINUSE;
		return false;
	}
	if (was_free(&name, entry) && !tpck_sys_fstatat(AT_FDCWD, name.path, &found, AT_SYMLINK_NOFOLLOW) && S_ISSOCK(found.st_mode) && found.st_uid == geteuid() &&
	    is_dead(name.path))
		(void)tpck_sys_unlinkat(AT_FDCWD, name.path, 0);
	errno = saved;
	return true;
}
