/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Before a device is met. Most programs that a job starts never meet one: what they look at is noted as they asked for it, with
 * what they were told, and is gone through when a device comes, or when the program is about to change what it has looked at.
 * Finding a path's one name, and what is there, takes several system calls; noting it takes none.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/digest.h"
#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/base/lock_order.h"
#include "runtime/files/files.h"
#include "runtime/follow/caches.h"
#include "runtime/follow/follow.h"
#include "runtime/follow/follow_private.h"
#include "runtime/track/threads.h"

enum { ROOM = 512 << 10, PATH_MOST = 1000, RECENT = 64 };
/* Who changes so many paths changes more: the looks are gone through at once, rather than compared with each. */
enum { CHANGES = 16 };
/* What others do to links meanwhile is not seen: no longer than paths are known for elsewhere (follow/names.c), as long as the
 * program looks at more. */
#define WAITS_NS 50000000u

struct look {
	uint16_t bytes; /* with the path and its NUL, a multiple of 8 */
	uint8_t kind;
	bool follow, done;
	uint32_t mode;  /* as st_mode; 0: nothing was there */
	uint64_t device, inode, size;
	int64_t mtime_s, mtime_ns;
	char path[];    /* absolute, not canonical */
};

static _Atomic bool on; /* looks are noted */
static tpck_spin lock;  /* of all below */
static bool settling;   /* another thread goes through them: what comes meanwhile is gone into at once */
static uint32_t used, reads, listings;
static _Atomic uint32_t changes; /* so many came while there were looks */
static uint64_t oldest_ns;
static char base[PATH_MOST] TPCK_LARGE; /* the program's folder; "": not known */
static uint16_t base_bytes;
static uint64_t base_ns;     /* when it was asked for */
static uint32_t leaving;     /* its folder is changing */
static pid_t pid;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER; /* to go through them */
static uint64_t recent[RECENT] TPCK_LARGE; /* digests of what came last: programs ask for the same paths over and over */
static char room[ROOM] TPCK_LARGE __attribute__((aligned(8)));

TPCK_AT_START void tpck_follow_early(pid_t of)
{
	pid = of;
	atomic_store(&on, true);
}

bool tpck_early_defers(int folder, const char *path)
{
	return atomic_load_explicit(&on, memory_order_relaxed) && path && *path && (folder == AT_FDCWD || *path == '/');
}

bool tpck_follow_asks_first(int folder)
{
	return folder == AT_FDCWD && atomic_load_explicit(&on, memory_order_relaxed) && !tpck_files_owes() && !tpck_caches_hiding();
}

/* ---- noting ----------------------------------------------------------------------------------- */

/* With the lock. */
static bool base_is_known(void)
{
	long got;

	if (base_bytes || leaving)
		return base_bytes && !leaving;
	base_ns = tpck_clock_tick_ns();
	got = tpck_sys_getcwd(base, sizeof base); /* with its NUL; outside of what can be reached it begins with '(' */
	base_bytes = got > 1 && *base == '/' ? (uint16_t)(got - 1) : 0;
	return base_bytes;
}

bool tpck_early_base(char *out, size_t size, size_t *length)
{
	bool is;

	if (!atomic_load_explicit(&on, memory_order_relaxed))
		return false;
	tpck_spin_lock(&lock);
	/* As with names, somebody else may have renamed it, or the program what is above it. */
	if (on && base_bytes && (base_ns <= tpck_names_changed_ns() || tpck_clock_tick_ns() - base_ns > WAITS_NS))
		base_bytes = 0;
	is = on && base_is_known() && base_bytes < size;
	if (is) {
		memcpy(out, base, base_bytes);
		*length = base_bytes;
	}
	tpck_spin_unlock(&lock);
	return is;
}

/* With the lock; a path that lies in `base`, which gets a slash in between. False: no room. */
static bool add(const char *path, size_t length, const struct look *what)
{
	size_t before = *path == '/' ? 0 : base_bytes + 1u;
	size_t bytes = (sizeof *what + before + length + 1 + 7) & ~(size_t)7;
	struct look *made = (void *)(room + used);

	if (bytes > ROOM - used)
		return false;
	if (!used)
		oldest_ns = tpck_clock_tick_ns();
	*made = *what;
	made->bytes = (uint16_t)bytes;
	if (before) {
		memcpy(made->path, base, base_bytes);
		made->path[base_bytes] = '/';
	}
	memcpy(made->path + before, path, length + 1);
	used += (uint32_t)bytes;
	reads += what->kind == TPCK_LOOK_READ;
	listings += what->kind == TPCK_LOOK_LISTED;
	return true;
}

static uint64_t digest_of(const char *path, size_t length, bool follow, enum tpck_look kind)
{
	return tpck_digest64(path, length, (uint64_t)kind * 2 + follow);
}

bool tpck_early_knows(const char *path, bool follow, enum tpck_look kind)
{
	uint64_t digest = digest_of(path, strlen(path), follow, kind);
	bool known;

	tpck_spin_lock(&lock);
	known = on && recent[digest % RECENT] == digest;
	tpck_spin_unlock(&lock);
	return known;
}

bool tpck_early_look(const char *path, bool follow, enum tpck_look kind, const struct stat *found)
{
	size_t length = strnlen(path, PATH_MOST);
	struct look what = {.kind = (uint8_t)kind, .follow = follow};
	uint64_t digest = digest_of(path, length, follow, kind);
	bool noted = false, full = false;
	int saved = errno;

	if (!length || length == PATH_MOST)
		return false;
	if (found) {
		what.mode = found->st_mode;
		what.device = found->st_dev;
		what.inode = found->st_ino;
		what.size = (uint64_t)found->st_size;
		what.mtime_s = found->st_mtim.tv_sec;
		what.mtime_ns = found->st_mtim.tv_nsec;
	}
	for (int tries = 0; tries < 2 && !noted; tries++) {
		tpck_spin_lock(&lock);
		noted = on && recent[digest % RECENT] == digest;
		full = !noted && used && tpck_clock_tick_ns() - oldest_ns > WAITS_NS;
		if (on && !noted && !settling && !full && (*path == '/' || base_is_known())) {
			noted = add(path, length, &what);
			full = !noted;
			if (noted)
				recent[digest % RECENT] = digest;
		}
		tpck_spin_unlock(&lock);
		if (!full)
			break;
		tpck_early_settle();
	}
	errno = saved;
	return noted;
}

/* ---- going through them ------------------------------------------------------------------------- */

/* `before`: a look at a name itself that came just before, or NULL: if it was at this one, and no link, nobody has to ask for that again. */
static void go_into(const struct look *look, const struct look *before)
{
	bool known = before && before->mode && !S_ISLNK(before->mode) && look->follow && strcmp(before->path, look->path) == 0;
	const struct stat found = {
		.st_mode = look->mode, .st_dev = look->device, .st_ino = look->inode, .st_size = (off_t)look->size,
		.st_mtim = {look->mtime_s, look->mtime_ns},
	};
	struct tpck_name name;

	if (!tpck_follow_resolve_last(TPCK_AT(AT_FDCWD, look->path), look->follow, known ? TPCK_LAST_NO_LINK : TPCK_LAST_UNKNOWN, &name))
		return;
	if (look->kind == TPCK_LOOK_LISTED)
		tpck_follow_lists(name.path, name.digest);
	else if (look->kind == TPCK_LOOK_READ)
		tpck_follow_has_opened(name.path, name.digest, &found);
	else
		tpck_follow_seen(name.path, name.digest, look->mode ? &found : NULL);
}

/* Those that `wanted` says; NULL: all, which are then gone. Whoever comes meanwhile, and has to see them done, waits. */
static void go_through(bool (*wanted)(const struct look *look, const struct stat *of), const struct stat *of, bool end)
{
	const struct look *before = NULL;
	int saved = errno;

	if (pthread_mutex_lock(&turn))
		return;
	tpck_spin_lock(&lock);
	settling = true;
	if (end)
		on = false;
	tpck_spin_unlock(&lock);
	for (uint32_t at = 0; at < used; at += ((struct look *)(void *)(room + at))->bytes) {
		struct look *look = (void *)(room + at);

		if (look->done || (wanted && !wanted(look, of)))
			continue;
		look->done = true;
		reads -= look->kind == TPCK_LOOK_READ;
		listings -= look->kind == TPCK_LOOK_LISTED;
		go_into(look, before);
		before = look->follow ? NULL : look;
	}
	tpck_spin_lock(&lock);
	if (!wanted) {
		used = base_bytes = 0;
		memset(recent, 0, sizeof recent);
	}
	settling = false;
	tpck_spin_unlock(&lock);
	pthread_mutex_unlock(&turn);
	errno = saved;
}

void tpck_early_settle(void)
{
	if (atomic_load(&on) && used)
		go_through(NULL, NULL, false);
}

void tpck_follow_device(void)
{
	if (atomic_load(&on))
		go_through(NULL, NULL, true);
}

static bool is_listing(const struct look *look, const struct stat *of)
{
	return look->kind == TPCK_LOOK_LISTED && look->inode == of->st_ino && look->device == of->st_dev;
}

static bool is_read(const struct look *look, const struct stat *of)
{
	return look->kind == TPCK_LOOK_READ && look->inode == of->st_ino && look->device == of->st_dev;
}

void tpck_early_makes(const struct tpck_at *at)
{
	const char *path = at->path, *slash = strrchr(path, '/');
	size_t length = slash ? (size_t)(slash - path) : 0;
	char parent[PATH_MOST] = ".";
	struct stat found;
	int saved = errno;

	if (!atomic_load(&on) || !listings)
		return;
	if (slash && (!slash[1] || length >= sizeof parent)) {
		tpck_early_settle();
		return;
	}
	if (slash)
		*(char *)mempcpy(parent, length ? path : "/", length ? length : 1) = '\0';
	if (!tpck_layer_pending.stat(TPCK_AT(at->folder, parent), &found, 0))
		go_through(is_listing, &found, false);
	errno = saved;
}

/* Whether all are gone into: many changes have come, or the looks are old. Going into all takes more of a stack than a thread may
 * have that was given a small one. */
static bool changes_much(bool counts)
{
	bool much = counts && atomic_fetch_add_explicit(&changes, 1, memory_order_relaxed) % CHANGES == CHANGES - 1;

	if ((!much && tpck_clock_tick_ns() - oldest_ns <= WAITS_NS) || tpck_sys_gettid() != getpid())
		return false;
	tpck_early_settle();
	return true;
}

enum tpck_last tpck_early_changes(const struct tpck_at *at, bool follow)
{
	enum tpck_last last = TPCK_LAST_UNKNOWN;
	struct stat found;
	int saved = errno;
	bool there, link;

	if (!atomic_load(&on) || !used)
		return last;
	there = !tpck_layer_pending.stat(at, &found, AT_SYMLINK_NOFOLLOW);
	link = there && S_ISLNK(found.st_mode);
	if (!link && (there || errno == ENOENT))
		last = there ? TPCK_LAST_NO_LINK : TPCK_LAST_ABSENT;
	/* A name that nothing has is new to listings only. */
	if (!changes_much(there || listings)) {
		tpck_early_makes(at);
		if (link && follow)
			there = !tpck_layer_pending.stat(at, &found, 0);
		if (there && (S_ISLNK(found.st_mode) || (S_ISDIR(found.st_mode) && !follow)))
			tpck_early_settle();
		else if (there && reads)
			go_through(is_read, &found, false);
	}
	errno = saved;
	return last;
}

/* ---- the program's folder ----------------------------------------------------------------------- */

void tpck_follow_leaves(void)
{
	if (!atomic_load(&on))
		return;
	tpck_spin_lock(&lock);
	leaving++;
	base_bytes = 0;
	memset(recent, 0, sizeof recent);
	tpck_spin_unlock(&lock);
}

void tpck_follow_left(void)
{
	if (!atomic_load(&on))
		return;
	tpck_spin_lock(&lock);
	/* A child that shares this memory is elsewhere from here on. */
	if (leaving && tpck_sys_getpid() == pid)
		leaving--;
	tpck_spin_unlock(&lock);
}

void tpck_early_forked(void)
{
	tpck_spin_unlock(&lock);
}
