/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first layer of a path (files/layer.h): in a process that the program has made, and that runs for real while the program runs forward, what is in the
 * program's overlay (seen.c), and what such a process may not change yet (held.c); and what is not there for a resumed program, compilers' files that
 * came to be behind its first start (caches.c).
 */
#include "config.h"

#include <fcntl.h>

#include "runtime/follow/caches.h"
#include "runtime/follow/follow_private.h"

/* A call that changes what is at a path, in its turn (standstill.c). */
#define CHANGES(CALL)                                       \
	__extension__({                                     \
		bool changes_ = tpck_follow_changes();      \
		int result_ = CALL;                         \
                                                       \
		tpck_follow_changed(changes_);              \
		result_;                                    \
	})

static const struct tpck_layer *below(const struct tpck_at *at)
{
	return at->recorded || tpck_held_kept() ? &tpck_layer_follow : &tpck_layer_pending;
}

static enum tpck_held_change opening(int flags)
{
	return flags & O_CREAT ? TPCK_HELD_MAKES : tpck_follow_writes(flags) ? TPCK_HELD_CHANGES : TPCK_HELD_READS;
}

static int open_below(const struct tpck_at *at, int flags, mode_t mode)
{
	bool changes = (tpck_follow_writes(flags) || flags & O_CREAT) && tpck_follow_changes();
	int fd = below(at)->open(at, flags, mode);

	tpck_follow_changed(changes);
	return fd;
}

static int top_open(const struct tpck_at *at, int flags, mode_t mode)
{
	int fd;

	if (!(flags & O_PATH) && (flags & O_TMPFILE) != O_TMPFILE)
		tpck_held_changes(at, opening(flags));
	if (tpck_follow_sees() && tpck_seen_open(at, flags, &fd))
		return fd;
	return tpck_caches_refuse(at->folder, at->path, flags) ? -1 : open_below(at, flags, mode);
}

static int top_stat(const struct tpck_at *at, struct stat *found, int flags)
{
	int result;

	if (tpck_follow_sees() && tpck_seen_stat(at, found, &result))
		return result;
	return tpck_caches_refuse(at->folder, at->path, 0) ? -1 : below(at)->stat(at, found, flags);
}

static int top_statx(const struct tpck_at *at, int flags, unsigned mask, struct statx *found)
{
	struct stat plain;
	int result;

	if (tpck_follow_sees() && tpck_seen_stat(at, &plain, &result))
		return result ? result : tpck_follow_to_statx(&plain, found);
	result = tpck_caches_refuse(at->folder, at->path, 0) ? -1 : below(at)->statx(at, flags, mask, found);
	if (!result && tpck_follow_shows())
		tpck_follow_shown_x(found);
	return result;
}

static int top_access(const struct tpck_at *at, int mode, int flags)
{
	struct stat found;
	int result;

	if (tpck_follow_sees() && tpck_seen_stat(at, &found, &result))
		return result;
	return tpck_caches_refuse(at->folder, at->path, 0) ? -1 : below(at)->access(at, mode, flags);
}

static ssize_t top_readlink(const struct tpck_at *at, char *target, size_t size)
{
	return below(at)->readlink(at, target, size);
}

static int top_truncate(const struct tpck_at *at, off_t bytes)
{
	tpck_held_changes(at, TPCK_HELD_CHANGES);
	return tpck_caches_refuse(at->folder, at->path, 0) ? -1 : CHANGES(below(at)->truncate(at, bytes));
}

static int top_chmod(const struct tpck_at *at, mode_t mode)
{
	tpck_held_changes(at, TPCK_HELD_CHANGES);
	return CHANGES(below(at)->chmod(at, mode));
}

static int top_times(const struct tpck_at *at, const struct timespec times[2], int flags)
{
	tpck_held_changes(at, TPCK_HELD_CHANGES);
	return CHANGES(below(at)->times(at, times, flags));
}

static int top_mkdir(const struct tpck_at *at, mode_t mode)
{
	tpck_held_changes(at, TPCK_HELD_MAKES);
	return CHANGES(below(at)->mkdir(at, mode));
}

static int top_symlink(const char *target, const struct tpck_at *at)
{
	tpck_held_changes(at, TPCK_HELD_MAKES);
	return tpck_caches_refuse(at->folder, at->path, O_CREAT) ? -1 : CHANGES(below(at)->symlink(target, at));
}

static int top_link(const struct tpck_at *from, const struct tpck_at *to, int flags)
{
	tpck_held_changes(to, TPCK_HELD_MAKES);
	return tpck_caches_refuse(to->folder, to->path, O_CREAT) ? -1 : CHANGES(below(from)->link(from, to, flags));
}

static int top_unlink(const struct tpck_at *at, int flags)
{
	tpck_held_changes(at, TPCK_HELD_REMOVES);
	return CHANGES(below(at)->unlink(at, flags));
}

static int top_rename(const struct tpck_at *from, const struct tpck_at *to, unsigned flags)
{
	tpck_held_changes(from, TPCK_HELD_REMOVES);
	tpck_held_changes(to, TPCK_HELD_MAKES);
	return tpck_caches_refuse(from->folder, from->path, 0) ? -1 : CHANGES(below(from)->rename(from, to, flags));
}

static const char *top_place(const struct tpck_at *at, bool follow, bool changes, char *buffer)
{
	if (changes)
		tpck_held_changes(at, TPCK_HELD_CHANGES);
	return below(at)->place(at, follow, changes, buffer);
}

static const char *top_around(const struct tpck_at *at, char *buffer)
{
	return below(at)->around(at, buffer);
}

static bool top_redirects(const struct tpck_at *at, int flags)
{
	/* Whoever asks opens it behind that, by another call: what it then is has to be known. */
	tpck_held_changes(at, opening(flags));
	return (tpck_follow_sees() && tpck_seen_redirects(at, flags)) || tpck_caches_refuse(at->folder, at->path, flags) || below(at)->redirects(at, flags);
}

static void top_touches(const struct tpck_at *at, int flags)
{
	tpck_held_changes(at, opening(flags));
	below(at)->touches(at, flags);
}

const struct tpck_layer tpck_layer_top = {
	.open = top_open,
	.stat = top_stat,
	.statx = top_statx,
	.access = top_access,
	.readlink = top_readlink,
	.truncate = top_truncate,
	.chmod = top_chmod,
	.times = top_times,
	.mkdir = top_mkdir,
	.symlink = top_symlink,
	.link = top_link,
	.unlink = top_unlink,
	.rename = top_rename,
	.place = top_place,
	.around = top_around,
	.redirects = top_redirects,
	.touches = top_touches,
};
