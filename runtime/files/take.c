/* SPDX-License-Identifier: Apache-2.0 */
/* Opening: a file of ours in place of the one at the path. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/statfs.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/file_system.h"
#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/base/log.h"
#include "runtime/files/files_private.h"
#include "runtime/files/layer.h"

enum { TRIES = 2000 };

static const struct tpck_layer *const below = &tpck_layer_kernel;

/* The descriptor that its holder counts is there, or will not be. */
static void is_there(struct tpck_view *view, uint32_t index, uint64_t serial)
{
	if (!tpck_view_lock(view))
		return;
	tpck_view_opened(view, index, serial, tpck_files_pid());
	tpck_view_unlock(view);
}

static bool writes(int flags)
{
	return (flags & O_ACCMODE) != O_RDONLY || flags & O_TRUNC;
}

/* Openings that are the file system's business alone. */
static bool passes(int flags)
{
	return flags & (O_PATH | O_DIRECTORY | O_SYNC | O_DSYNC) || (flags & O_TMPFILE) == O_TMPFILE;
}

/* ---- one that is taken ------------------------------------------------------------------------ */

struct taking {
	int folder;               /* O_PATH; -1: its name is known */
	uint64_t free;            /* bytes that its disk had a moment ago, beyond those that stay free; 0: not known */
	struct stat parent, there;
	struct tpck_view_there seen; /* on the disk */
	bool exists;
	bool spare;               /* the agent may have made memory ready */
	bool remote;              /* several nodes have its file system mounted: what is written there waits for a network */
	const char *name;
	mode_t mode;
	int flags;
	const char *old;            /* of one that is pending */
	bool unsure;                /* only its folder, or a glob that has every name, says that it is a checkpoint */
	char path[TPCK_FILES_PATH]; /* the folder's own name, then where the bytes are */
};

/* Folders in which files were taken a moment ago. To find the kernel's name of one takes several calls, to see that it still has it one. */
enum { KNOWN = 8 };
#define KNOWN_NS 50000000ull
static struct {
	uint64_t device, inode, looked_ns, free;
	bool remote;
	char path[TPCK_FILES_PATH];
} known[KNOWN] TPCK_LARGE;
/* Who comes while another thread, or one of a process that has forked, is at them does without. */
static _Atomic bool known_taken;

static bool is_of(unsigned i, const struct stat *folder)
{
	return known[i].inode == folder->st_ino && known[i].device == folder->st_dev;
}

static unsigned place_of(const struct stat *folder)
{
	return (unsigned)((folder->st_ino * 0x9e3779b97f4a7c15ull ^ folder->st_dev) >> 32) % KNOWN;
}

static void remember_name(const struct taking *t)
{
	unsigned i = place_of(&t->parent);

	if (atomic_exchange(&known_taken, true))
		return;
	if (!is_of(i, &t->parent) || strcmp(known[i].path, t->path) != 0) {
		known[i].device = t->parent.st_dev;
		known[i].inode = t->parent.st_ino;
		known[i].looked_ns = 0;
		strcpy(known[i].path, t->path);
	}
	atomic_store(&known_taken, false);
}

static void remember_room(const struct taking *t, uint64_t free)
{
	unsigned i = place_of(&t->parent);

	if (atomic_exchange(&known_taken, true))
		return;
	if (is_of(i, &t->parent)) {
		known[i].looked_ns = tpck_clock_tick_ns();
		known[i].free = free;
		known[i].remote = t->remote;
	}
	atomic_store(&known_taken, false);
}

/* The folder's name in t->path. False: it is not known. */
static bool recall(struct taking *t)
{
	unsigned i = place_of(&t->parent);
	bool found;

	if (atomic_exchange(&known_taken, true))
		return false;
	found = is_of(i, &t->parent);
	if (found)
		strcpy(t->path, known[i].path);
	if (found && known[i].looked_ns && tpck_clock_tick_ns() - known[i].looked_ns < KNOWN_NS) {
		t->free = known[i].free;
		t->remote = known[i].remote;
	}
	atomic_store(&known_taken, false);
	return found;
}

/* Whether the disk has so many bytes; UINT64_MAX: as many as nobody knows yet. */
static bool disk_has(struct taking *t, uint64_t bytes)
{
	struct statfs disk;
	uint64_t room, least;

	if (t->free && (bytes == UINT64_MAX || bytes + bytes / 4 < t->free / 2))
		return true;
	if (t->folder >= 0 ? tpck_sys_fstatfs(t->folder, &disk) : tpck_sys_statfs(t->path, &disk))
		return true;
	t->remote = tpck_file_system_by((uint32_t)disk.f_type).site;
	/* Some file systems do not say. */
	if (!disk.f_blocks)
		return true;
	room = (uint64_t)disk.f_bavail * (uint64_t)disk.f_bsize;
	least = disk.f_blocks / 16 * (uint64_t)disk.f_bsize;
	remember_room(t, room / 2 > least ? room - least : 0);
	if (bytes == UINT64_MAX)
		return disk.f_bavail > disk.f_blocks / 16;
	return (uint64_t)disk.f_bavail * (uint64_t)disk.f_bsize > bytes + bytes / 4;
}

/* A file that the disk has no room for meets that disk itself, which tells the program: but not before what the program has
 * removed is gone. */
static bool fits(struct tpck_view *view, struct taking *t, uint64_t pattern)
{
	uint64_t last, owed, order, device = t->parent.st_dev;
	bool fails;

	if (!tpck_view_lock(view))
		return false;
	last = tpck_view_size_of(view, pattern);
	owed = view->memory_bytes;
	order = view->order;
	fails = tpck_files_failing(view, device);
	tpck_view_unlock(view);
	if (disk_has(t, last == UINT64_MAX ? last : last + owed))
		return true;
	return !fails && !tpck_files_await(order, device) && last != UINT64_MAX && disk_has(t, last);
}

/* The mode that a new file gets here, which only the kernel knows the mask of. */
static int new_file(const char *path, int flags, mode_t mode)
{
	return below->open(TPCK_AT(AT_FDCWD, path), (flags & (O_ACCMODE | O_APPEND | O_CLOEXEC | O_DIRECT)) | O_CREAT | O_EXCL, mode);
}

static void spare_name(char *path, size_t size, uint64_t pattern)
{
	snprintf(path, size, "%s/" TPCK_VIEW_FOLDER "/spare.%016llx", tpck_files_folder, (unsigned long long)pattern);
}

static uint64_t spare_bytes(uint64_t pattern)
{
	char spare[TPCK_VIEW_PATH / 2 + 64];
	struct stat found;

	spare_name(spare, sizeof spare, pattern);
	return tpck_sys_fstatat(AT_FDCWD, spare, &found, AT_SYMLINK_NOFOLLOW) ? 0 : (uint64_t)found.st_blocks * 512;
}

/* A file that the agent has made ready: its pages are there, beyond its end. */
static int spare_file(struct taking *t, uint64_t pattern, const char *path)
{
	char spare[TPCK_VIEW_PATH / 2 + 64];
	struct stat made;
	int fd;

	spare_name(spare, sizeof spare, pattern);
	fd = new_file(path, t->flags, t->mode);
	if (fd < 0 || tpck_sys_fstatat(fd, "", &made, AT_EMPTY_PATH) || tpck_sys_faccessat(AT_FDCWD, spare, F_OK))
		return fd;
	if (tpck_sys_fchmodat(AT_FDCWD, spare, made.st_mode & 07777) ||
	    tpck_sys_renameat(AT_FDCWD, spare, AT_FDCWD, path))
		return fd;
	tpck_sys_close(fd);
	return below->open(TPCK_AT(AT_FDCWD, path), t->flags & (O_ACCMODE | O_APPEND | O_CLOEXEC | O_DIRECT), 0);
}

/* What is truncated, or moved, keeps its attributes. */
void tpck_files_keep_attributes(const char *from, int fd)
{
	char names[4096], value[4096];
	ssize_t length = tpck_sys_listxattr(from, names, sizeof names), got;

	for (char *name = names; length > 0 && name < names + length; name += strlen(name) + 1) {
		if (strncmp(name, "user.", 5) != 0 && strcmp(name, "system.posix_acl_access") != 0)
			continue;
		got = tpck_sys_getxattr(from, name, value, sizeof value);
		if (got >= 0)
			(void)!tpck_sys_fsetxattr(fd, name, value, got, 0);
	}
}

/* Of a folder whose name is known nothing is there to be kept. */
static void keep_attributes(const struct taking *t, int fd)
{
	char from[TPCK_VIEW_NAME + 40];

	snprintf(from, sizeof from, "/proc/self/fd/%d/%s", t->folder, t->name);
	tpck_files_keep_attributes(t->old ? t->old : from, fd);
}

static int make_bytes(struct taking *t, uint64_t pattern)
{
	int fd = t->spare ? spare_file(t, pattern, t->path) : new_file(t->path, t->flags, t->mode);

	if (fd >= 0 && t->exists && tpck_sys_fchmod(fd, t->there.st_mode & 07777)) {
		tpck_sys_close(fd);
		tpck_sys_unlinkat(AT_FDCWD, t->path, 0);
		return -1;
	}
	if (fd >= 0 && t->exists) {
		(void)!tpck_sys_fchown(fd, -1, t->there.st_gid);
		keep_attributes(t, fd);
	}
	return fd;
}

/* Whether the table can be had: the program does not wait for an agent that somebody has stopped. */
static bool is_free(struct tpck_view *view)
{
	static _Atomic bool said;
	bool held;

	if (tpck_view_lock_soon(view, &held)) {
		tpck_view_unlock(view);
		return true;
	}
	if (held && !atomic_exchange(&said, true))
		tpck_log_warn("the table of files is held by a process that does not go on, as a stopped agent: files are written without the library meanwhile");
	return false;
}

/* The descriptor, or -1: it is not taken. */
static int take(struct taking *t)
{
	struct tpck_view *view;
	struct tpck_view_entry *entry;
	uint64_t pattern = tpck_view_pattern(t->path, t->name), last, serial = 0;
	enum tpck_view_kind kind = TPCK_VIEW_DIRECT;
	uint64_t started = tpck_files_started();
	uint32_t index = 0;
	bool fitting, wanted;
	int fd;

	view = tpck_files_ready();
	if (!view || !is_free(view))
		return -1;
	fitting = fits(view, t, pattern);
	if (!(view = tpck_files_lock()))
		return -1;
	last = tpck_view_size_of(view, pattern);
	/* One that is taken until it is synced has the inode that it will have at its path from the begin: whoever has opened, mapped or
	 * locked it by then goes on with the same file. Of one whose size nobody knows room is made as it grows. If there turns out to be none it has been written twice, which
	 * only a network is slower than: a local disk's page cache is memory of this node already. */
	wanted = (last != UINT64_MAX || t->remote) && !t->unsure;
	if (last == UINT64_MAX)
		last = 0;
	if (wanted && fitting && tpck_files_room_for(view, t->parent.st_dev, last, last < TPCK_VIEW_SPARE_LEAST ? 0 : spare_bytes(pattern)))
		kind = TPCK_VIEW_MEMORY;
	t->spare = kind == TPCK_VIEW_MEMORY && last >= TPCK_VIEW_SPARE_LEAST;
	entry = tpck_view_add(view, t->parent.st_dev, t->parent.st_ino, t->path, t->name, kind);
	if (entry) {
		index = (uint32_t)(entry - view->entry);
		serial = entry->serial;
		tpck_view_opening(tpck_view_holder_of(entry, tpck_files_pid(), started));
		entry->pattern = pattern;
		tpck_files_date(entry);
		entry->there = t->seen;
		entry->until_sync = t->unsure;
		entry->over = t->exists;
		entry->remote = t->remote;
		if (strcmp(tpck_files_settings->fsync, "replicated") == 0)
			view->replicates = 1;
		if (kind == TPCK_VIEW_MEMORY) {
			entry->bytes = last;
			view->memory_bytes += last;
			view->writer = tpck_files_pid();
		}
		tpck_view_bytes(view, entry, tpck_files_folder, t->path, sizeof t->path);
	}
	tpck_view_unlock(view);
	if (wanted && kind == TPCK_VIEW_DIRECT)
		tpck_files_say_small();
	if (!entry)
		return -1;
	fd = make_bytes(t, pattern);
	if (fd >= 0 && tpck_files_writes(fd, index, serial, kind == TPCK_VIEW_MEMORY ? tpck_files_limit(last) : UINT64_MAX)) {
		is_there(view, index, serial);
		tpck_files_taken(view);
		return fd;
	}
	if (fd >= 0)
		tpck_sys_close(fd);
	if (tpck_view_lock(view)) {
		entry = tpck_view_by_serial(view, index, serial);
		if (entry)
			tpck_view_discard(view, entry, tpck_files_folder);
		else
			tpck_view_unlock(view);
	}
	return -1;
}

/* Why a checkpoint is written as ever is said once. */
static bool beside_in_place(const struct taking *t)
{
	static _Atomic bool said;

	if (!tpck_files_in_place_in(&t->parent))
		return false;
	if (!t->unsure && !atomic_exchange(&said, true))
		tpck_log_info("%s/%s is written as ever, and so is all else there: this process changes a file in place in that folder",
			      t->path, t->name);
	return true;
}

/* A new file in a folder whose name is known: t->path is that. Whether one that goes beside its target may be made there says the kernel when
 * it is. False: all is to be looked at. */
static bool is_new_in_known(struct taking *t, const struct tpck_at *at)
{
	struct stat named;

	t->folder = -1;
	return !tpck_sys_fstatat(at->folder, t->path, &t->parent, 0) && S_ISDIR(t->parent.st_mode) &&
	       (t->unsure || !tpck_sys_faccessat(at->folder, t->path, W_OK | X_OK)) &&
	       (at->absent || (tpck_sys_fstatat(at->folder, at->path, &t->there, AT_SYMLINK_NOFOLLOW) && errno == ENOENT)) && recall(t) &&
	       !tpck_sys_fstatat(AT_FDCWD, t->path, &named, AT_SYMLINK_NOFOLLOW) && named.st_ino == t->parent.st_ino &&
	       named.st_dev == t->parent.st_dev;
}

/* The path may be taken by what is there. The kernel's name of its folder is in t->path: the agent has another working folder. */
static bool look_around(struct taking *t, const struct tpck_at *at, const struct tpck_pending *pending)
{
	char link[40];
	ssize_t got;

	if (!pending && is_new_in_known(t, at))
		return true;
	if (!tpck_files_split(at->path, t->path, &t->name))
		return false;
	t->folder = tpck_sys_high(below->open(TPCK_AT(at->folder, t->path), O_PATH | O_DIRECTORY | O_CLOEXEC, 0));
	if (t->folder < 0)
		return false;
	snprintf(link, sizeof link, "/proc/self/fd/%d", t->folder);
	got = tpck_sys_readlink(link, t->path, sizeof t->path - 1);
	t->path[got > 0 ? got : 0] = '\0';
	if (got <= 0 || t->path[0] != '/' ||
	    !tpck_rule_takes(tpck_rules_place(t->folder, t->name, pending && pending->kind == TPCK_VIEW_REMOVED, &t->parent, &t->there, &t->exists)))
		return false;
	remember_name(t);
	return true;
}

/* `pending`: what the job sees there, or NULL. -1: it is not taken. */
static TPCK_FILES_SLOW int try_take(const struct tpck_at *at, int flags, mode_t mode, const struct tpck_pending *pending, bool unsure)
{
	struct taking t = {.flags = flags, .mode = mode, .unsure = unsure};
	int saved = errno, fd = -1;

	t.folder = -1;
	if (!tpck_files_split(at->path, t.path, &t.name))
		return -1;
	if (look_around(&t, at, pending) && !tpck_rules_excepted(tpck_files_settings, t.path) && !beside_in_place(&t)) {
		t.seen = tpck_view_there_of(t.exists ? &t.there : NULL);
		if (pending && !tpck_sys_fstatat(AT_FDCWD, pending->path, &t.there, 0)) {
			t.exists = true;
			t.old = pending->path;
		}
		/* What the program may not write by now, as another user say, it may not replace. */
		if (t.old ? !(flags & O_EXCL) && tpck_files_may(t.old, W_OK) : t.exists ? !(flags & O_EXCL) : flags & O_CREAT)
			fd = take(&t);
	}
	if (t.folder >= 0)
		tpck_sys_close(t.folder);
	errno = saved;
	return fd;
}

/* ---- one that is pending ---------------------------------------------------------------------- */

/* A pending file's bytes are opened again for writing. -1 with ENOENT: look again. */
static int reopen(const struct tpck_pending *pending, int flags)
{
	uint64_t started = tpck_files_started();
	struct tpck_view *view = tpck_files_lock();
	struct tpck_view_entry *entry = view ? tpck_view_by_serial(view, pending->index, pending->serial) : NULL;
	struct tpck_view_holder *holder = NULL;
	uint64_t limit = UINT64_MAX;
	int fd, saved;

	if (entry && entry->goes_on) {
		/* The part has the inode that it will have at its path, and is an ordinary file. */
		tpck_view_unlock(view);
		fd = below->open(TPCK_AT(AT_FDCWD, pending->path), flags & ~(O_CREAT | O_EXCL | O_NOFOLLOW), 0);
		if (fd >= 0)
			(void)tpck_files_in_place_opened(fd, flags, pending);
		return fd;
	}
	if (entry && entry->state != TPCK_VIEW_COMMITTING)
		holder = tpck_view_holder_of(entry, tpck_files_pid(), started);
	if (holder) {
		if (entry->kind == TPCK_VIEW_DIRECT && flags & O_DSYNC)
			tpck_view_synced(entry, NULL);
		tpck_view_opening(holder);
		atomic_store(&entry->state, TPCK_VIEW_OPEN);
		if (entry->kind == TPCK_VIEW_MEMORY)
			limit = tpck_files_limit(entry->bytes);
	}
	if (view)
		tpck_view_unlock(view);
	if (!holder) {
		errno = ENOENT;
		return -1;
	}
	fd = below->open(TPCK_AT(AT_FDCWD, pending->path), flags & ~(O_CREAT | O_EXCL | O_NOFOLLOW), 0);
	saved = errno;
	if (fd >= 0 && !tpck_files_writes(fd, pending->index, pending->serial, limit)) {
		tpck_sys_close(fd);
		fd = -1;
		saved = EMFILE;
	}
	is_there(view, pending->index, pending->serial);
	if (fd < 0)
		tpck_files_release(pending->index, pending->serial, true);
	else
		(void)tpck_files_in_place_opened(fd, flags, pending);
	errno = saved;
	return fd;
}

/* Whoever opens it so that each write is a sync has no file in memory. */
static TPCK_FILES_SLOW void ready_to_sync(int folder, const char *path, const struct tpck_pending *pending)
{
	struct tpck_view *view = tpck_files_lock();
	struct tpck_view_entry *entry = view ? tpck_view_by_serial(view, pending->index, pending->serial) : NULL;
	uint64_t what = entry && entry->state == TPCK_VIEW_OPEN ? tpck_files_pack(pending->index, pending->serial) : 0;

	if (view)
		tpck_view_unlock(view);
	if (!what)
		(void)tpck_files_settle_at(folder, path);
	else if (tpck_files_let_be(what, true) == -1)
		tpck_files_to_disk(what);
}

/* Whether this process or its parent is writing it: they made the name, and what is written by it is what they made. Other
 * processes that save by one path, as ranks do, each write a file of their own: the last one is whole. */
static bool writes_already(const struct tpck_pending *pending)
{
	struct tpck_view *view = tpck_files_lock();
	struct tpck_view_entry *entry;
	bool found = false;

	if (!view)
		return false;
	entry = tpck_view_by_serial(view, pending->index, pending->serial);
	if (entry && entry->state == TPCK_VIEW_OPEN)
		found = tpck_view_holder_of(entry, tpck_files_pid(), 0) || tpck_view_holder_of(entry, tpck_sys_getppid(), 0);
	tpck_view_unlock(view);
	return found;
}

static int open_pending(const struct tpck_at *at, int flags, mode_t mode, const struct tpck_pending *pending)
{
	int fd;

	if ((flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL)) {
		errno = EEXIST;
		return -1;
	}
	if (flags & O_DIRECTORY) {
		errno = ENOTDIR;
		return -1;
	}
	if (!writes(flags) && !(flags & O_PATH) && tpck_files_notes_loads())
		tpck_files_note_pending_load(pending);
	if (!writes(flags) || flags & O_PATH)
		return below->open(TPCK_AT(AT_FDCWD, pending->path), flags & ~(O_CREAT | O_NOFOLLOW), 0);
	/* What is whole and owed stays so until the new one is. */
	if (flags & O_TRUNC && !passes(flags) && tpck_files_may_take() && !writes_already(pending)) {
		fd = try_take(at, flags, mode, pending, tpck_files_wanted(at) == TPCK_WANTED_UNSURE);
		if (fd >= 0)
			return fd;
	}
	return reopen(pending, flags);
}

/* What is about to be renamed past us replaces what is in its folder now: nothing that is owed there may come behind it. */
static TPCK_FILES_SLOW void settle_folder(int folder, const char *path)
{
	struct tpck_view *view = atomic_load(&tpck_files_view);
	char parent[TPCK_FILES_PATH];
	struct stat found;
	const char *name;
	bool owed = false;

	if (!tpck_files_split(path, parent, &name) || tpck_sys_fstatat(folder, parent, &found, 0) || !tpck_view_lock(view))
		return;
	for (uint32_t i = 0, left = view->used; left && i < TPCK_VIEW_ENTRIES && !owed; i++) {
		const struct tpck_view_entry *entry = &view->entry[i];
		const struct tpck_view_folder *at = &view->folder[tpck_view_key_of(entry)->folder];

		if (entry->state == TPCK_VIEW_FREE)
			continue;
		left--;
		owed = entry->kind != TPCK_VIEW_PLAIN && at->inode == found.st_ino && at->device == found.st_dev;
	}
	tpck_view_unlock(view);
	if (owed)
		(void)tpck_files_settle_at(folder, path);
}

/* What is at the path; of what the job has published, a copy that is as it was saved. */
static int open_there(const struct tpck_at *at, int flags, mode_t mode)
{
	int fd = below->open(at, flags, mode);

	return fd >= 0 && tpck_files_verifies(flags) ? tpck_files_verified(fd, at->folder, at->path, flags) : fd;
}

/* Where nothing of it is pending: taken, or the real one. A thread's stack may be small: no buffers here. */
static TPCK_FILES_SLOW int fresh_open(const struct tpck_at *at, int flags, mode_t mode)
{
	enum tpck_wanted wanted;
	int fd;

	if (at->path && writes(flags) && !passes(flags) && tpck_files_may_take() && (wanted = tpck_files_wanted(at)) != TPCK_WANTED_NOT) {
		/* In place, and not written by us from its begin: as ever. */
		if (flags & O_TRUNC || flags & O_CREAT) {
			int saved = errno;
			bool begins = flags & O_TRUNC || tpck_sys_faccessat(at->folder, at->path, F_OK);

			errno = saved;
			fd = begins ? try_take(at, flags, mode, NULL, wanted == TPCK_WANTED_UNSURE) : -1;
			if (fd >= 0)
				return fd;
		}
	}
	if (at->path && flags & O_CREAT && writes(flags) && tpck_files_may_take() && tpck_rules_renamed_past_us(at->path)) {
		int saved = errno;

		if (!tpck_files_idle())
			settle_folder(at->folder, at->path);
		errno = saved;
		fd = below->open(at, flags, mode);
		tpck_files_past(fd);
		return fd;
	}
	fd = open_there(at, flags, mode);
	if (writes(flags))
		tpck_files_opened(fd, flags);
	return fd;
}

static TPCK_FILES_SLOW int seen_open(const struct tpck_at *at, int flags, mode_t mode)
{
	struct tpck_pending pending;
	int fd;

	for (int tries = 0; !tpck_files_idle() && tries < TRIES; tries++) {
		/* A name that nothing has leads nowhere else. */
		enum tpck_seen seen = tpck_files_look(at->folder, at->path, !(flags & O_NOFOLLOW) && !at->absent, &pending);

		if (seen == TPCK_SEEN_REAL)
			break;
		if (seen == TPCK_SEEN_REMOVED) {
			if (!(flags & O_CREAT)) {
				errno = ENOENT;
				return -1;
			}
			fd = tpck_files_may_take() && !passes(flags) ? try_take(at, flags, mode, &pending, tpck_files_wanted(at) == TPCK_WANTED_UNSURE) : -1;
			if (fd >= 0)
				return fd;
			(void)tpck_files_settle_at(at->folder, at->path);
			continue;
		}
		if (!tries && flags & O_DSYNC && writes(flags) && !(flags & O_PATH)) {
			ready_to_sync(at->folder, at->path, &pending);
			continue;
		}
		fd = open_pending(at, flags, mode, &pending);
		if (fd >= 0 || errno != ENOENT)
			return fd;
		/* The file is being published, or not there yet. */
		if (tries)
			tpck_files_breathe();
	}
	return fresh_open(at, flags, mode);
}

int tpck_pending_open(const struct tpck_at *at, int flags, mode_t mode)
{
	int numbered = writes(flags) && !(flags & O_PATH) && tpck_files_some() ? tpck_files_numbered(at->path) : -1;
	int saved = errno, fd;

	if (numbered >= 0)
		return tpck_files_open_numbered(numbered, at->path, flags);
	if (tpck_files_idle() && !(writes(flags) && tpck_files_may_take()))
		return open_there(at, flags, mode);
	fd = tpck_files_idle() ? fresh_open(at, flags, mode) : tpck_files_verdict(seen_open(at, flags, mode), at->folder, at->path);
	if (fd >= 0)
		errno = saved;
	return fd;
}

static bool seen_redirects(const struct tpck_at *at, int flags)
{
	if (!tpck_files_idle() && (tpck_files_is_pending(at->folder, at->path, true) || (writes(flags) && tpck_files_numbered(at->path) >= 0)))
		return true;
	return writes(flags) && tpck_files_may_take() && tpck_files_wanted(at);
}

bool tpck_pending_redirects(const struct tpck_at *at, int flags)
{
	if ((!tpck_files_idle() || (writes(flags) && tpck_files_may_take())) && seen_redirects(at, flags))
		return true;
	return tpck_files_verifies(flags) && tpck_files_to_verify(at->path);
}
