/* SPDX-License-Identifier: Apache-2.0 */
/* What the job sees at a path. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/digest.h"
#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/files/files_private.h"

enum { LINKS_MAX = 40 };

bool tpck_files_split(const char *path, char *parent, const char **name)
{
	const char *slash = strrchr(path, '/');
	size_t length = slash ? (size_t)(slash - path) : 0;

	*name = slash ? slash + 1 : path;
	/* A path that is too long is the kernel's to refuse, even if its folder's is not. */
	if (strnlen(path, TPCK_FILES_PATH) == TPCK_FILES_PATH)
		return false;
	if (!**name || strcmp(*name, ".") == 0 || strcmp(*name, "..") == 0 || strlen(*name) >= TPCK_VIEW_NAME ||
	    length >= TPCK_FILES_PATH)
		return false;
	if (!slash) {
		strcpy(parent, ".");
	} else if (!length) {
		strcpy(parent, "/");
	} else {
		memcpy(parent, path, length);
		parent[length] = '\0';
	}
	return true;
}

bool tpck_files_may_be_pending(const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

	return !tpck_files_idle() && tpck_view_may_have(atomic_load(&tpck_files_view), tpck_view_name_hash(name, strlen(name)));
}

/* By the name itself. */
static enum tpck_seen look_at(int folder, const char *path, struct tpck_pending *pending)
{
	struct tpck_view *view = atomic_load(&tpck_files_view);
	enum tpck_seen seen = TPCK_SEEN_REAL;
	const struct tpck_view_entry *entry;
	const char *name, *slash = strrchr(path, '/');
	struct stat parent;

	name = slash ? slash + 1 : path;
	if (!tpck_view_may_have(view, tpck_view_name_hash(name, strlen(name))) ||
	    !tpck_files_split(path, pending->path, &name) ||
	    tpck_sys_fstatat(folder, pending->path, &parent, 0))
		return TPCK_SEEN_REAL;
	if (!tpck_view_lock(view))
		return TPCK_SEEN_REAL;
	entry = tpck_view_find(view, parent.st_dev, parent.st_ino, name);
	if (entry) {
		seen = entry->kind == TPCK_VIEW_REMOVED ? TPCK_SEEN_REMOVED : TPCK_SEEN_PENDING;
		pending->index = (uint32_t)(entry - view->entry);
		pending->kind = entry->kind;
		pending->serial = entry->serial;
		pending->device = parent.st_dev;
		pending->inode = parent.st_ino;
		memmove(pending->name, name, strlen(name) + 1);
		tpck_view_bytes(view, entry, tpck_files_folder, pending->path, sizeof pending->path);
	}
	tpck_view_unlock(view);
	return seen;
}

enum tpck_seen tpck_files_look(int folder, const char *path, bool follow, struct tpck_pending *pending)
{
	char next[TPCK_FILES_PATH];
	int saved = errno;
	enum tpck_seen seen = TPCK_SEEN_REAL;

	if (tpck_files_idle() || !path || !*path)
		return TPCK_SEEN_REAL;
	for (int links = 0; links < LINKS_MAX; links++) {
		const char *name;
		size_t used = 0;
		ssize_t got;

		seen = look_at(folder, path, pending);
		if (seen != TPCK_SEEN_REAL || !follow)
			break;
		got = tpck_sys_readlinkat(folder, path, pending->path, sizeof pending->path - 1);
		if (got <= 0)
			break;
		pending->path[got] = '\0';
		/* A link leads on from its own folder. */
		if (pending->path[0] != '/') {
			name = strrchr(path, '/');
			used = name ? (size_t)(name - path) + 1 : 0;
			if (used + (size_t)got >= sizeof next)
				break;
			memmove(next, path, used);
		}
		memcpy(next + used, pending->path, (size_t)got + 1);
		path = next;
	}
	errno = saved;
	return seen;
}

TPCK_FILES_SLOW bool tpck_files_is_pending(int folder, const char *path, bool follow)
{
	struct tpck_pending pending;

	return !tpck_files_idle() && tpck_files_look(folder, path, follow, &pending) != TPCK_SEEN_REAL;
}

/* The folders of a path, from its begin: what is pending or to go among them says what the path is: an errno,
 * or 0: the kernel has said it. `length`: up to where it leads through. */
static int along(int folder, char *path, size_t length)
{
	struct tpck_pending pending;
	struct stat found;

	for (size_t at = 1; at <= length; at++) {
		char was = path[at];
		enum tpck_seen seen;
		bool real;

		if ((was && was != '/') || path[at - 1] == '/')
			continue;
		path[at] = '\0';
		seen = tpck_files_look(folder, path, true, &pending);
		real = seen == TPCK_SEEN_REAL && !tpck_sys_fstatat(folder, path, &found, 0) && S_ISDIR(found.st_mode);
		path[at] = was;
		if (real)
			continue;
		return seen == TPCK_SEEN_REAL ? 0 : seen == TPCK_SEEN_PENDING ? ENOTDIR : ENOENT;
	}
	return 0;
}

/* Folders that were there a moment ago, by the text that led to them. */
enum { GOOD = 64 };
#define GOOD_NS 50000000u
static struct {
	_Atomic uint64_t digest, at_ns;
} good_folders[GOOD] TPCK_LARGE;

/* Whether the text leads through nothing that is pending or to go: by no name of its own, and it was a folder a moment ago, so by none that a
 * link in it leads to. */
static bool was_good(int folder, const char *text, size_t length, uint64_t *digest)
{
	struct tpck_view *view = atomic_load(&tpck_files_view);

	*digest = 0;
	if ((folder != AT_FDCWD && *text != '/') || !view)
		return false;
	for (size_t at = 0, part; at < length; at += part + 1) {
		part = strcspn(text + at, "/");
		if (part && tpck_view_may_have(view, tpck_view_name_hash(text + at, part)))
			return false;
	}
	*digest = tpck_digest64(text, length, 0);
	return atomic_load(&good_folders[*digest % GOOD].digest) == *digest &&
	       tpck_clock_tick_ns() - atomic_load(&good_folders[*digest % GOOD].at_ns) < GOOD_NS;
}

static void is_good(uint64_t digest)
{
	if (!digest)
		return;
	atomic_store(&good_folders[digest % GOOD].digest, 0);
	atomic_store(&good_folders[digest % GOOD].at_ns, tpck_clock_tick_ns());
	atomic_store(&good_folders[digest % GOOD].digest, digest);
}

static TPCK_FILES_SLOW void seen_through(int folder, const char *path, enum tpck_through how)
{
	size_t length = strnlen(path, TPCK_FILES_PATH);
	char text[TPCK_FILES_PATH];
	int said = errno, now;
	struct stat found;
	uint64_t digest;
	bool good, whole = how == TPCK_THROUGH_ALL;

	if (!length || length == TPCK_FILES_PATH)
		return;
	/* Whoever means a folder may say so by a slash. */
	for (; length > 1 && path[length - 1] == '/'; length--)
		whole = how != TPCK_THROUGH_FOLDERS;
	for (; !whole && length && path[length - 1] != '/'; length--)
		;
	for (; length > 1 && path[length - 1] == '/'; length--)
		;
	if (!length)
		return;
	*(char *)mempcpy(text, path, length) = '\0';
	if (was_good(folder, text, length, &digest)) {
		errno = said;
		return;
	}
	/* The common case: a name that is not there, in a folder that is. */
	good = !tpck_sys_fstatat(folder, text, &found, 0) && S_ISDIR(found.st_mode);
	if (good)
		is_good(digest);
	now = good ? 0 : along(folder, text, length);
	errno = now ? now : said;
}

void tpck_files_through(int folder, const char *path, enum tpck_through how)
{
	if ((errno == ENOENT || errno == ENOTDIR) && path && !tpck_files_idle())
		seen_through(folder, path, how);
}
