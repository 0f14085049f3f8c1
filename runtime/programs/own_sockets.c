/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unix sockets of a twin and of the processes that it has made. The living process has the paths that the program gives them: beside it a socket lies in the twin's folder,
 * and whoever connects to the path in one of these processes connects to that. At the takeover the path becomes a symbolic link to the socket, for others, too.
 */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/kernel.h"
#include "runtime/follow/follow.h"
#include "runtime/programs/programs.h"
#include "runtime/programs/programs_private.h"
#include "runtime/replay/forward.h"
#include "runtime/wire/segment.h"

enum { DIGITS = 16, ENTRIES = 4096, FOLDER = 300 };

/* Of a twin, or a process that one has made; NULL: this is neither. */
static const struct tpck_standin_page *page_of_twin(void)
{
	const struct tpck_standin_page *page = tpck_starts_page();

	return page && page->process ? page : NULL;
}

/* "JOB/twin.PROCESS". The session's folder may be the twin's, or the one that it has got, beside it. */
static bool folder_of(const struct tpck_standin_page *page, char folder[FOLDER])
{
	const char *session = tpck_starts_folder(), *end = strrchr(session, '/');

	return end && snprintf(folder, FOLDER, "%.*s/" TPCK_TWIN_FOLDER "%d", (int)(end - session), session, page->process) < FOLDER;
}

/* What the path is beside the living process. False: nothing has an address of its own, or it would be too long for a socket's. */
static bool own_address(const char *path, struct sockaddr_un *own, char absolute[PATH_MAX])
{
	const struct tpck_standin_page *page = page_of_twin();
	char folder[FOLDER];
	uint64_t digest;

	if (!page || !atomic_load_explicit(&page->follows, memory_order_acquire) || !folder_of(page, folder) ||
	    !tpck_follow_socket_name(path, absolute, PATH_MAX, &digest))
		return false;
	own->sun_family = AF_UNIX;
	return snprintf(own->sun_path, sizeof own->sun_path, "%s/" TPCK_TWIN_SOCKET "%016" PRIx64, folder, digest) < (int)sizeof own->sun_path;
}

static bool is_local(int fd)
{
	socklen_t bytes = sizeof(int);
	int domain = 0;

	return !tpck_sys_getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &bytes) && domain == AF_UNIX;
}

bool tpck_own_socket_begins(int fd, const char *path, struct sockaddr_un *own)
{
	char absolute[PATH_MAX], name[sizeof own->sun_path + sizeof TPCK_TWIN_SOCKET_NAME];
	int saved = errno;
	bool begins = is_local(fd) && own_address(path, own, absolute);

	if (begins && tpck_forward_follows())
		begins = !tpck_follow_socket(path, own->sun_path);
	if (begins)
		(void)tpck_sys_unlinkat(AT_FDCWD, own->sun_path, 0);
	if (begins) {
		snprintf(name, sizeof name, "%s" TPCK_TWIN_SOCKET_NAME, own->sun_path);
		begins = !tpck_sys_symlinkat(absolute, AT_FDCWD, name) || errno == EEXIST;
	}
	errno = saved;
	return begins;
}

bool tpck_own_socket_at(const char *path, struct sockaddr_un *own)
{
	char absolute[PATH_MAX];
	struct stat found;
	int saved = errno;
	bool there = own_address(path, own, absolute) && !tpck_sys_fstatat(AT_FDCWD, own->sun_path, &found, AT_SYMLINK_NOFOLLOW);

	errno = saved;
	return there;
}

/* ---- its name ------------------------------------------------------------------------------------------- */

/* The program's path of the socket with this file's name. False: it is none of a twin's. */
static bool path_of(int folder, const char *file, char *path, size_t size)
{
	const char *last = strrchr(file, '/') ? strrchr(file, '/') + 1 : file;
	char name[sizeof((struct sockaddr_un *)0)->sun_path + sizeof TPCK_TWIN_SOCKET_NAME];
	ssize_t got;

	if (strncmp(last, TPCK_TWIN_SOCKET, strlen(TPCK_TWIN_SOCKET)) != 0 || strlen(last) != strlen(TPCK_TWIN_SOCKET) + DIGITS ||
	    snprintf(name, sizeof name, "%s" TPCK_TWIN_SOCKET_NAME, file) >= (int)sizeof name)
		return false;
	got = tpck_sys_readlinkat(folder, name, path, size - 1);
	if (got <= 0 || (size_t)got >= size - 1)
		return false;
	path[got] = '\0';
	return true;
}

bool tpck_own_socket_name(int fd, bool peer, struct sockaddr *address, socklen_t *bytes)
{
	struct sockaddr_un own = {.sun_family = AF_UNSPEC}, name = {.sun_family = AF_UNIX};
	socklen_t own_bytes = sizeof own - 1, room = *bytes;
	int saved = errno;
	bool found;

	if (!page_of_twin())
		return false;
	found = !(peer ? tpck_sys_getpeername(fd, &own, &own_bytes) : tpck_sys_getsockname(fd, &own, &own_bytes)) && own.sun_family == AF_UNIX && own.sun_path[0] == '/' &&
		path_of(AT_FDCWD, own.sun_path, name.sun_path, sizeof name.sun_path);
	errno = saved;
	if (!found)
		return false;
	*bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name.sun_path) + 1);
	memcpy(address, &name, *bytes < room ? *bytes : room);
	return true;
}

/* ---- the takeover ---------------------------------------------------------------------------------------- */

static void becomes_real(int folder, const char *of_folder, const char *file)
{
	char own[FOLDER + NAME_MAX], path[PATH_MAX];
	struct stat found;

	if (!path_of(folder, file, path, sizeof path) || snprintf(own, sizeof own, "%s/%s", of_folder, file) >= (int)sizeof own)
		return;
	/* The living process's, which is gone. */
	if (!tpck_sys_fstatat(AT_FDCWD, path, &found, AT_SYMLINK_NOFOLLOW) && (S_ISSOCK(found.st_mode) || S_ISLNK(found.st_mode)))
		(void)tpck_sys_unlinkat(AT_FDCWD, path, 0);
	(void)tpck_sys_symlinkat(own, AT_FDCWD, path);
}

void tpck_own_sockets_real(void)
{
	const struct tpck_standin_page *page = page_of_twin();
	_Alignas(struct dirent64) char buffer[ENTRIES];
	char path[FOLDER];
	int saved = errno, folder;
	ssize_t got;

	folder = page && folder_of(page, path) ? tpck_sys_openat(AT_FDCWD, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0) : -1;
	while (folder >= 0 && (got = tpck_sys_getdents(folder, buffer, sizeof buffer)) > 0)
		for (char *at = buffer; at < buffer + got; at += ((struct dirent64 *)at)->d_reclen)
			becomes_real(folder, path, ((struct dirent64 *)at)->d_name);
	if (folder >= 0)
		tpck_sys_close(folder);
	errno = saved;
}
