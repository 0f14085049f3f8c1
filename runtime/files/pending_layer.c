/* SPDX-License-Identifier: Apache-2.0 */
/* The layer of what is pending (layer.h): the calls on the bytes and attributes of a file. Opening is in take.c, names are in linking.c, removing.c and renaming.c. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/kernel.h"
#include "runtime/files/files_private.h"
#include "runtime/files/layer.h"

enum { TRIES = 2000 };
static const struct tpck_layer *const below = &tpck_layer_kernel;

/* What is changed while the agent copies it is copied again: the change is made under the lock, which is NULL with
 * ENOENT where it is too late for it. */
static struct tpck_view *begin_change(const struct tpck_pending *pending)
{
	struct tpck_view *view = tpck_files_lock();
	struct tpck_view_entry *entry = view ? tpck_view_by_serial(view, pending->index, pending->serial) : NULL;

	if (entry && entry->state != TPCK_VIEW_COMMITTING)
		return view;
	if (view)
		tpck_view_unlock(view);
	errno = ENOENT;
	return NULL;
}

static void end_change(struct tpck_view *view, const struct tpck_pending *pending)
{
	int saved = errno;

	if (view) {
		view->entry[pending->index].changed++;
		tpck_view_unlock(view);
	}
	errno = saved;
}

/* A call that is made on the bytes of what is pending at a path. They may be published just then: ENOENT of such a path is looked at again. */
struct bytes {
	struct tpck_pending pending; /* where they are */
	struct tpck_view *locked;
	bool changes;
	bool done;                   /* the answer is there */
	int tries;
	long result;                 /* the caller's to set, between bytes_next() and the next one */
};

static void bytes_begin(struct bytes *of, bool changes)
{
	of->changes = changes;
	of->done = false;
	of->tries = -1;
}

/* Whether the call is to be made. Once it is not, either `done`, or nothing is pending there. */
static bool bytes_next(struct bytes *of, const struct tpck_at *at, bool follow)
{
	enum tpck_seen seen;

	do {
		if (of->tries >= 0) {
			if (of->changes)
				end_change(of->locked, &of->pending);
			of->done = !of->result || errno != ENOENT;
			if (!of->done && of->tries)
				tpck_files_breathe();
		}
		if (of->done || tpck_files_idle() || ++of->tries == TRIES)
			return false;
		seen = tpck_files_look(at->folder, at->path, follow, &of->pending);
		if (seen == TPCK_SEEN_REAL)
			return false;
		of->result = -1;
		if (seen == TPCK_SEEN_REMOVED) {
			errno = ENOENT;
			of->done = true;
			return false;
		}
		of->locked = of->changes ? begin_change(&of->pending) : NULL;
	} while (of->changes && !of->locked);
	return true;
}

static int verdict(int result, const struct tpck_at *at)
{
	return tpck_files_verdict(result, at->folder, at->path);
}

/* What is no link, and not pending by its own name, costs one call as ever. False: more is to be looked at. */
static TPCK_FILES_SLOW bool stat_plainly(const struct tpck_at *at, struct stat *found, int flags, int *result)
{
	struct tpck_pending pending;

	if (flags & AT_SYMLINK_NOFOLLOW || !at->path || !*at->path ||
	    tpck_files_look(at->folder, at->path, false, &pending) != TPCK_SEEN_REAL)
		return false;
	*result = below->stat(at, found, flags | AT_SYMLINK_NOFOLLOW);
	return *result || !S_ISLNK(found->st_mode);
}

static TPCK_FILES_SLOW int seen_stat(const struct tpck_at *at, struct stat *found, int flags)
{
	struct bytes of;
	int plain;

	tpck_files_stays(at->folder, at->path, !(flags & AT_SYMLINK_NOFOLLOW));
	if (!tpck_files_idle() && stat_plainly(at, found, flags, &plain))
		return plain;
	bytes_begin(&of, false);
	while (bytes_next(&of, at, !(flags & AT_SYMLINK_NOFOLLOW)))
		of.result = tpck_sys_fstatat(AT_FDCWD, of.pending.path, found, 0);
	if (of.done)
		return (int)of.result;
	return below->stat(at, found, flags);
}

static int pending_stat(const struct tpck_at *at, struct stat *found, int flags)
{
	return tpck_files_idle() ? below->stat(at, found, flags) : verdict(seen_stat(at, found, flags), at);
}

static TPCK_FILES_SLOW int seen_statx(const struct tpck_at *at, int flags, unsigned mask, struct statx *found)
{
	struct bytes of;

	tpck_files_stays(at->folder, at->path, !(flags & AT_SYMLINK_NOFOLLOW));
	bytes_begin(&of, false);
	while (bytes_next(&of, at, !(flags & AT_SYMLINK_NOFOLLOW)))
		of.result = tpck_sys_statx(AT_FDCWD, of.pending.path, flags, mask, found);
	if (of.done)
		return (int)of.result;
	return below->statx(at, flags, mask, found);
}

static int pending_statx(const struct tpck_at *at, int flags, unsigned mask, struct statx *found)
{
	return tpck_files_idle() ? below->statx(at, flags, mask, found) : verdict(seen_statx(at, flags, mask, found), at);
}

static TPCK_FILES_SLOW int seen_access(const struct tpck_at *at, int mode, int flags)
{
	struct bytes of;

	bytes_begin(&of, false);
	while (bytes_next(&of, at, !(flags & AT_SYMLINK_NOFOLLOW)))
		of.result = tpck_sys_faccessat(AT_FDCWD, of.pending.path, mode);
	if (of.done)
		return (int)of.result;
	return below->access(at, mode, flags);
}

static int pending_access(const struct tpck_at *at, int mode, int flags)
{
	return tpck_files_idle() || mode & ~(R_OK | W_OK | X_OK) ? below->access(at, mode, flags) : verdict(seen_access(at, mode, flags), at);
}

static TPCK_FILES_SLOW int seen_truncate(const struct tpck_at *at, off_t bytes)
{
	struct bytes of;

	bytes_begin(&of, true);
	while (bytes_next(&of, at, true))
		of.result = tpck_sys_truncate(of.pending.path, bytes);
	if (of.done)
		return (int)of.result;
	return below->truncate(at, bytes);
}

static int pending_truncate(const struct tpck_at *at, off_t bytes)
{
	return tpck_files_idle() || bytes < 0 ? below->truncate(at, bytes) : verdict(seen_truncate(at, bytes), at);
}

static TPCK_FILES_SLOW int seen_chmod(const struct tpck_at *at, mode_t mode)
{
	struct bytes of;
	int saved = errno;

	/* A program: whoever executes it asks the kernel for its path. */
	if (mode & 0111 && tpck_files_is_pending(at->folder, at->path, true)) {
		(void)tpck_files_settle_at(at->folder, at->path);
		errno = saved;
	}
	bytes_begin(&of, true);
	while (bytes_next(&of, at, true))
		of.result = tpck_sys_fchmodat(AT_FDCWD, of.pending.path, mode);
	if (of.done)
		return (int)of.result;
	return below->chmod(at, mode);
}

static int pending_chmod(const struct tpck_at *at, mode_t mode)
{
	return tpck_files_idle() ? below->chmod(at, mode) : verdict(seen_chmod(at, mode), at);
}

static TPCK_FILES_SLOW int seen_times(const struct tpck_at *at, const struct timespec times[2], int flags)
{
	struct bytes of;

	bytes_begin(&of, true);
	while (bytes_next(&of, at, !(flags & AT_SYMLINK_NOFOLLOW)))
		of.result = tpck_sys_utimensat(AT_FDCWD, of.pending.path, times, 0);
	if (of.done)
		return (int)of.result;
	return below->times(at, times, flags);
}

static int pending_times(const struct tpck_at *at, const struct timespec times[2], int flags)
{
	return tpck_files_idle() ? below->times(at, times, flags) : verdict(seen_times(at, times, flags), at);
}

static TPCK_FILES_SLOW ssize_t seen_readlink(const struct tpck_at *at, char *target, size_t size)
{
	struct tpck_pending pending;
	int numbered = at->path ? tpck_files_numbered(at->path) : -1;
	ssize_t got = numbered >= 0 ? tpck_files_name_of(numbered, target, size) : -2;

	if (got != -2)
		return got;
	if (!tpck_files_idle() && tpck_files_look(at->folder, at->path, false, &pending) != TPCK_SEEN_REAL) {
		errno = pending.kind == TPCK_VIEW_REMOVED ? ENOENT : EINVAL;
		return -1;
	}
	return below->readlink(at, target, size);
}

static ssize_t pending_readlink(const struct tpck_at *at, char *target, size_t size)
{
	return tpck_files_idle() ? below->readlink(at, target, size) : verdict((int)seen_readlink(at, target, size), at);
}

static TPCK_FILES_SLOW const char *seen_place(const struct tpck_at *at, bool follow, bool changes, char *buffer)
{
	struct tpck_pending pending;
	enum tpck_seen seen = tpck_files_idle() ? TPCK_SEEN_REAL : tpck_files_look(at->folder, at->path, follow, &pending);

	/* The agent may be copying it just now. */
	if (changes && seen == TPCK_SEEN_PENDING && tpck_files_settle_at(at->folder, at->path))
		seen = tpck_files_idle() ? TPCK_SEEN_REAL : tpck_files_look(at->folder, at->path, follow, &pending);
	if (seen == TPCK_SEEN_REAL)
		return below->place(at, follow, changes, buffer);
	if (seen == TPCK_SEEN_REMOVED) {
		errno = ENOENT;
		return NULL;
	}
	return strcpy(buffer, pending.path);
}

static const char *pending_place(const struct tpck_at *at, bool follow, bool changes, char *buffer)
{
	return tpck_files_idle() ? below->place(at, follow, changes, buffer) : seen_place(at, follow, changes, buffer);
}

static TPCK_FILES_SLOW int seen_runs(int folder, const char *path)
{
	struct tpck_pending pending;
	enum tpck_seen seen = tpck_files_look(folder, path, true, &pending);
	int saved = errno;

	if (seen == TPCK_SEEN_PENDING) {
		(void)tpck_files_settle_at(folder, path);
		seen = tpck_files_look(folder, path, true, &pending);
	}
	if (seen == TPCK_SEEN_REAL) {
		errno = saved;
		return 0;
	}
	if (seen == TPCK_SEEN_REMOVED)
		errno = ENOENT;
	else if (tpck_files_may(pending.path, X_OK))
		errno = ETXTBSY; /* somebody writes it */
	return -1;
}

int tpck_files_runs(int folder, const char *path)
{
	return tpck_files_idle() ? 0 : seen_runs(folder, path);
}

bool tpck_files_again(int tries)
{
	if (errno != ENOENT || tpck_files_idle())
		return errno == ENOENT && !tries;
	if (tries)
		tpck_files_breathe();
	return tries < TRIES;
}

static TPCK_FILES_SLOW const char *seen_around(const struct tpck_at *at, char *buffer)
{
	struct tpck_pending pending;
	const struct tpck_view_entry *entry;
	const char *around = at->path;
	struct tpck_view *view;

	switch (tpck_files_look(at->folder, at->path, true, &pending)) {
	case TPCK_SEEN_REAL:
		return below->around(at, buffer);
	case TPCK_SEEN_REMOVED:
		errno = ENOENT;
		return NULL;
	case TPCK_SEEN_PENDING:
		break;
	}
	view = tpck_files_lock();
	entry = view ? tpck_view_by_serial(view, pending.index, pending.serial) : NULL;
	if (entry)
		around = strcpy(buffer, view->folder[tpck_view_key_of(entry)->folder].path);
	if (view)
		tpck_view_unlock(view);
	return around;
}

static const char *pending_around(const struct tpck_at *at, char *buffer)
{
	return tpck_files_idle() ? below->around(at, buffer) : seen_around(at, buffer);
}

static int pending_mkdir(const struct tpck_at *at, mode_t mode)
{
	if (!tpck_files_idle() && tpck_files_name_taken(at->folder, at->path))
		return -1;
	return verdict(below->mkdir(at, mode), at);
}

static void pending_touches(const struct tpck_at *at, int flags)
{
	(void)at;
	(void)flags;
}

const struct tpck_layer tpck_layer_pending = {
	.open = tpck_pending_open,
	.stat = pending_stat,
	.statx = pending_statx,
	.access = pending_access,
	.readlink = pending_readlink,
	.truncate = pending_truncate,
	.chmod = pending_chmod,
	.times = pending_times,
	.mkdir = pending_mkdir,
	.symlink = tpck_pending_symlink,
	.link = tpck_pending_link,
	.unlink = tpck_pending_unlink,
	.rename = tpck_pending_rename,
	.place = pending_place,
	.around = pending_around,
	.redirects = tpck_pending_redirects,
	.touches = pending_touches,
};
