/* SPDX-License-Identifier: Apache-2.0 */
/* What the job sees at a path. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

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
	    syscall(SYS_newfstatat, folder, pending->path, &parent, 0))
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

/* So much of a path is a symbolic link that is pending: it is made real. */
static TPCK_FILES_SLOW bool settle_link(int folder, const char *path, size_t length, struct tpck_pending *pending)
{
	char link[TPCK_FILES_PATH];

	memcpy(link, path, length);
	link[length] = '\0';
	if (look_at(folder, link, pending) != TPCK_SEEN_PENDING || pending->kind != TPCK_VIEW_SYMLINK)
		return false;
	(void)tpck_files_settle_at(folder, link);
	return true;
}

/* Where a path leads through links that are pending the kernel does not follow. */
static TPCK_FILES_SLOW void settle_links(int folder, const char *path, bool follow, struct tpck_pending *pending)
{
	const struct tpck_view *view = atomic_load(&tpck_files_view);

	if (strnlen(path, TPCK_FILES_PATH) == TPCK_FILES_PATH)
		return;
	for (const char *part = path, *end; *part; part = end) {
		part += strspn(part, "/");
		end = part + strcspn(part, "/");
		if (end == part || (!*end && !follow))
			break;
		if (tpck_view_may_have(view, tpck_view_name_hash(part, (size_t)(end - part))) &&
		    settle_link(folder, path, (size_t)(end - path), pending))
			view = atomic_load(&tpck_files_view); /* it may be another one behind a wait */
	}
}

static inline bool has_links(void)
{
	return atomic_load_explicit(&tpck_files_view->symlinks, memory_order_acquire);
}

static TPCK_FILES_SLOW void seen_along(int folder, const char *path, bool follow)
{
	struct tpck_pending pending;
	int saved = errno;

	settle_links(folder, path, follow, &pending);
	errno = saved;
}

void tpck_files_along(int folder, const char *path, bool follow)
{
	if (!tpck_files_idle() && path && has_links())
		seen_along(folder, path, follow);
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

		if (has_links())
			settle_links(folder, path, follow, pending);
		seen = look_at(folder, path, pending);
		/* It could not be made real. */
		if (follow && seen == TPCK_SEEN_PENDING && pending->kind == TPCK_VIEW_SYMLINK)
			seen = TPCK_SEEN_REAL;
		if (seen != TPCK_SEEN_REAL || !follow)
			break;
		got = syscall(SYS_readlinkat, folder, path, pending->path, sizeof pending->path - 1);
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
