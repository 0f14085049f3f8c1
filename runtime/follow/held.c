/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that a twin has made (engine/following.h), as a loader's worker. The living process goes on meanwhile, and so does that one's worker. So this one
 * changes nothing at paths that both know, and waits there until it may. What it makes for itself under names that nobody has, as the folder of a socket, is
 * real at once.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/follow/follow_private.h"
#include "runtime/track/threads.h"

enum { OWN = 256 };

static _Atomic bool stays;
static void (*looks)(void);
static void (*waits)(void);
/* Digests of what it has made right in a folder for temporary files or shared memory; 0: none. */
static uint64_t own[OWN] TPCK_LARGE;
static tpck_spin lock;

void tpck_follow_hold(void (*look)(void), void (*wait)(void))
{
	looks = look;
	waits = wait;
	tpck_spin_unlock(&lock);
	atomic_store(&tpck_forward_held_now, true);
}

void tpck_follow_unhold(bool kept)
{
	atomic_store(&stays, kept);
	if (kept)
		atomic_store(&tpck_follow_sees_now, false);
	atomic_store(&tpck_forward_held_now, false);
}

bool tpck_held_kept(void)
{
	return atomic_load_explicit(&stays, memory_order_relaxed);
}

/* How many bytes of the path name what lies right in such a folder; 0: it is in none. */
static size_t top_of(const char *path)
{
	const char *const places[] = {getenv("TMPDIR"), "/tmp", "/var/tmp", "/dev/shm"};

	for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
		size_t length = places[i] && *places[i] == '/' ? strlen(places[i]) : 0;

		while (length && places[i][length - 1] == '/')
			length--;
		if (length && strncmp(path, places[i], length) == 0 && path[length] == '/' && path[length + 1])
			return (size_t)(strchrnul(path + length + 1, '/') - path);
	}
	return 0;
}

bool tpck_follow_may_be_own(const char *path)
{
	return top_of(path) != 0;
}

/* The lock is held. */
static uint64_t *find(uint64_t digest)
{
	for (unsigned i = 0; i < OWN; i++)
		if (own[i] == digest)
			return &own[i];
	return NULL;
}

/* Whether it is this process's own. `makes`: it becomes that, where there is nothing. */
static bool is_own(const char *path, bool makes)
{
	size_t length = top_of(path);
	char top[TPCK_FOLLOW_PATH];
	uint64_t digest, *at;
	struct stat found;
	bool absent;

	if (!length || length >= sizeof top)
		return false;
	memcpy(top, path, length);
	top[length] = '\0';
	digest = tpck_follow_digest(top);
	absent = makes && tpck_sys_fstatat(AT_FDCWD, top, &found, AT_SYMLINK_NOFOLLOW) && errno == ENOENT;
	tpck_spin_lock(&lock);
	at = find(digest);
	if (!at && absent && (at = find(0)))
		*at = digest;
	tpck_spin_unlock(&lock);
	return at != NULL;
}

/* The name may be another process's from here on. */
static void forget(const char *path)
{
	uint64_t *at;

	if (top_of(path) != strlen(path))
		return;
	tpck_spin_lock(&lock);
	at = find(tpck_follow_digest(path));
	if (at)
		*at = 0;
	tpck_spin_unlock(&lock);
}

void tpck_follow_listens(const struct sockaddr *address, socklen_t bytes)
{
	const struct sockaddr_in6 *six = (const void *)address;
	const struct sockaddr_in *four = (const void *)address;
	int saved = errno;

	/* The kernel chooses a port that nobody has. */
	if ((bytes >= sizeof *four && four->sin_family == AF_INET && four->sin_port) || (bytes >= sizeof *six && six->sin6_family == AF_INET6 && six->sin6_port))
		waits();
	errno = saved;
}

bool tpck_follow_may_listen(const char *path)
{
	int saved = errno;
	bool may = (!tpck_follow_held() || is_own(path, false)) && (!tpck_forward_follows() || tpck_temporary(path));

	errno = saved;
	return may;
}

static bool is_device(const char *path)
{
	return tpck_follow_outside(path) && strncmp(path, "/dev/shm/", 9) != 0;
}

void tpck_held_changes_slow(const struct tpck_at *at, enum tpck_held_change change)
{
	int saved = errno;
	char path[TPCK_FOLLOW_PATH];

	looks();
	if (!tpck_follow_held() || change == TPCK_HELD_READS) {
		errno = saved;
		return;
	}
	if (!tpck_follow_absolute(at->folder, at->path, path, sizeof path) || !(is_device(path) || is_own(path, change == TPCK_HELD_MAKES)))
		waits();
	else if (change == TPCK_HELD_REMOVES)
		forget(path);
	errno = saved;
}
