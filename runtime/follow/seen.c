/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What processes that the program has made see of its overlay. A worker or service runs for real while the program runs forward, and is told to read a file that
 * the program has written: by now that is a scratch file of the program's, and at its path there is what the first run came to, or nothing. So
 * the program notes in memory that they share which paths it has changed, and they open its scratch files. A file that the program has
 * removed meanwhile can still be opened, as they may be behind it. They write to real files (programs/written.c).
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/kernel.h"
#include "runtime/base/log.h"
#include "runtime/base/shared_file.h"
#include "runtime/follow/follow.h"
#include "runtime/follow/follow_private.h"
#include "runtime/wire/segment.h"

#define MAGIC 0x79616c7265766f73ull
#define GHOST_MOST (256ull << 20)
enum { SLOTS = 4096, GHOSTS = 8, PATH = TPCK_FOLLOW_PATH };

struct seen {
	uint64_t magic;
	uint32_t version;     /* TPCK_WIRE_VERSION */
	int32_t process;      /* whose descriptors these are */
	_Atomic bool ended;   /* real files are as they should be */
	struct slot {
		_Atomic uint64_t digest; /* of the path; 0: none */
		_Atomic uint32_t kind;   /* enum tpck_seen_kind */
		_Atomic int32_t fd;
		_Atomic uint64_t inode;  /* of the scratch file */
	} slot[SLOTS];
};

static struct seen *table; /* of this process, and of those that it forks; or another one's */
_Atomic bool tpck_follow_sees_now;
/* Scratch files of paths that were removed last, and what all of them take. */
static struct ghost {
	uint64_t digest, bytes;
	int fd;
} ghosts[GHOSTS];
static unsigned ghosts_made;
static uint64_t ghost_bytes;

/* ---- the program ---------------------------------------------------------------------------------- */

void tpck_follow_show(const char *session)
{
	char path[PATH];

	if (table)
		return;
	if (snprintf(path, sizeof path, "%s/" TPCK_SEEN, session) < (int)sizeof path)
		table = tpck_shared_file_new(path, sizeof *table);
	else
		errno = ENAMETOOLONG;
	if (!table) {
		tpck_log_warn("workers and services do not see what the program has written until it is live: %s/" TPCK_SEEN " cannot be made: %m", session);
		return;
	}
	table->version = TPCK_WIRE_VERSION;
	table->process = tpck_sys_getpid();
	table->magic = MAGIC;
}

void tpck_follow_show_too(const char *from, const char *session)
{
	char old[PATH], new[PATH];

	if (table && snprintf(old, sizeof old, "%s/" TPCK_SEEN, from) < (int)sizeof old &&
	    snprintf(new, sizeof new, "%s/" TPCK_SEEN, session) < (int)sizeof new)
		(void)tpck_sys_linkat(AT_FDCWD, old, AT_FDCWD, new, 0);
}

static struct slot *slot_of(uint64_t digest, bool takes)
{
	for (uint32_t i = 0; i < SLOTS; i++) {
		struct slot *at = &table->slot[(digest + i) % SLOTS];
		uint64_t there = atomic_load(&at->digest);

		if (there == digest || (!there && takes && atomic_compare_exchange_strong(&at->digest, &there, digest)))
			return at;
		if (!there && !takes)
			return NULL;
	}
	return NULL;
}

/* A forked child has an overlay of its own, which is nobody else's. */
static bool is_shown(void)
{
	return table && !tpck_follow_sees() && table->process == tpck_sys_getpid();
}

/* Where there is no room the real path counts. */
void tpck_seen_put(uint64_t digest, enum tpck_seen_kind kind, int fd, ino_t inode)
{
	static bool said;
	bool shown = is_shown();
	struct slot *at = shown ? slot_of(digest, true) : NULL;

	if (shown && !at && !said)
		tpck_log_warn("workers and services do not see all that the program has written until it is live: there are more than %d files", SLOTS);
	said = said || (shown && !at);
	if (!at)
		return;
	atomic_store(&at->kind, TPCK_SEEN_REAL);
	atomic_store(&at->fd, fd);
	atomic_store(&at->inode, inode);
	atomic_store(&at->kind, kind);
}

/* Paths that other processes write to. */
static struct given {
	uint64_t digest;
	bool said; /* that it cannot be */
	struct given *next;
} *given;

void tpck_follow_given(const char *path)
{
	struct given *of = malloc(sizeof *of);

	if (!of) {
		tpck_log_warn("there is no memory for it that other processes write to %s: what they write while the program runs forward may be lost", path);
		return;
	}
	*of = (struct given){tpck_follow_digest(path), false, given};
	given = of;
}

void tpck_seen_give(struct tpck_overlay_entry *entry)
{
	struct given *of = given;
	int fd = -1, result, saved = errno;

	while (of && of->digest != entry->digest)
		of = of->next;
	if (!of || entry->given || entry->linked)
		return;
	/* What a forked child does that had ended stays in its memory, whoever else writes to the file. */
	if (table && table->process != tpck_sys_getpid())
		return;
	result = tpck_reconcile_file(entry);
	if (!result)
		fd = tpck_sys_high(tpck_sys_openat(AT_FDCWD, entry->path, O_RDWR | O_CLOEXEC, 0));
	if (fd < 0) {
		errno = result ? -result : errno;
		if (!of->said)
			tpck_log_warn("what other processes write to %s while the program runs forward may be lost: %m", entry->path);
		of->said = true;
		errno = saved;
		return;
	}
	tpck_sys_close(entry->fd);
	entry->fd = fd;
	entry->inode = 0;
	entry->given = true;
}

static void ghost_end(struct ghost *ghost)
{
	struct slot *at = ghost->digest ? slot_of(ghost->digest, false) : NULL;

	if (at && atomic_load(&at->fd) == ghost->fd) {
		uint32_t kind = TPCK_SEEN_GHOST;

		(void)atomic_compare_exchange_strong(&at->kind, &kind, TPCK_SEEN_ABSENT);
	}
	if (ghost->digest)
		tpck_sys_close(ghost->fd);
	ghost_bytes -= ghost->bytes;
	*ghost = (struct ghost){.fd = -1};
}

bool tpck_seen_keeps(uint64_t digest, int fd, ino_t inode)
{
	struct stat found;
	struct ghost *to;

	if (!is_shown() || tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH) || (uint64_t)found.st_size > GHOST_MOST)
		return false;
	for (unsigned i = 0; i < GHOSTS && ghost_bytes + (uint64_t)found.st_size > GHOST_MOST; i++)
		ghost_end(&ghosts[(ghosts_made + i) % GHOSTS]);
	to = &ghosts[ghosts_made++ % GHOSTS];
	ghost_end(to);
	*to = (struct ghost){digest, (uint64_t)found.st_size, fd};
	ghost_bytes += to->bytes;
	tpck_seen_put(digest, TPCK_SEEN_GHOST, fd, inode);
	return true;
}

void tpck_seen_end(void)
{
	if (!is_shown())
		return;
	atomic_store(&table->ended, true);
	for (unsigned i = 0; i < GHOSTS; i++)
		ghost_end(&ghosts[i]);
}

/* ---- a process that the program has made ------------------------------------------------------------------- */

void tpck_follow_see(const char *session)
{
	char path[PATH];
	int saved = errno;

	if (session && snprintf(path, sizeof path, "%s/" TPCK_SEEN, session) < (int)sizeof path) {
		errno = EBADMSG;
		table = tpck_shared_file_open(path, sizeof *table);
		if (table && (table->magic != MAGIC || table->version != TPCK_WIRE_VERSION)) {
			tpck_sys_munmap(table, sizeof *table);
			table = NULL;
			errno = EBADMSG;
		}
		/* Where there is none the program has said so. */
		if (!table && errno != ENOENT)
			tpck_log_warn("this process does not see what its program has written until that is live: %s cannot be read: %m", path);
	}
	atomic_store(&tpck_follow_sees_now, table != NULL);
	errno = saved;
}

/* As the program calls it: its folder's true name, and the last part. */
static uint64_t digest_of(int folder, const char *path)
{
	const char *slash = strrchr(path, '/');
	char absolute[PATH], above[PATH], link[40];
	int fd;
	long got = -1;

	if (slash && slash - path + 1 >= (long)sizeof above)
		return 0;
	snprintf(above, sizeof above, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
	fd = tpck_sys_openat(folder, above, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
	if (fd >= 0) {
		snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
		got = tpck_sys_readlink(link, absolute, sizeof absolute - 1);
		tpck_sys_close(fd);
	}
	if (got <= 0 || (size_t)got + strlen(path) + 2 >= sizeof absolute)
		/* A folder that is in the overlay only. */
		return tpck_follow_absolute(folder, path, absolute, sizeof absolute) ? tpck_follow_digest(absolute) : 0;
	absolute[got] = '\0';
	snprintf(absolute + (got > 1 ? got : 0), sizeof absolute - (size_t)got, "/%s", slash ? slash + 1 : path);
	return tpck_follow_digest(absolute);
}

/* What the program has at the path, and the name of its scratch file. */
static enum tpck_seen_kind look(int folder, const char *path, char name[40], uint64_t *inode)
{
	enum tpck_seen_kind kind = TPCK_SEEN_REAL;
	const struct slot *at;
	uint64_t digest;

	if (atomic_load(&table->ended)) {
		atomic_store(&tpck_follow_sees_now, false);
		return kind;
	}
	digest = *path ? digest_of(folder, path) : 0;
	at = digest ? slot_of(digest, false) : NULL;
	if (!at)
		return kind;
	kind = (enum tpck_seen_kind)atomic_load(&at->kind);
	*inode = atomic_load(&at->inode);
	snprintf(name, 40, "/proc/%d/fd/%d", table->process, atomic_load(&at->fd));
	return kind;
}

/* The descriptor in `name` is another one by now where this is not its inode. */
static bool is_it(const char *name, uint64_t inode, struct stat *found)
{
	return !tpck_sys_fstatat(AT_FDCWD, name, found, 0) && found->st_ino == inode;
}

static bool reads(int flags)
{
	return !tpck_follow_writes(flags) && !(flags & (O_CREAT | O_PATH | O_DIRECTORY));
}

bool tpck_seen_redirects(const struct tpck_at *at, int flags)
{
	uint64_t inode;
	char name[40];

	return reads(flags) && look(at->folder, at->path, name, &inode) != TPCK_SEEN_REAL;
}

bool tpck_seen_open(const struct tpck_at *at, int flags, int *fd)
{
	int saved = errno;
	enum tpck_seen_kind kind;
	struct stat found;
	uint64_t inode;
	char name[40];

	if (!reads(flags))
		return false;
	kind = look(at->folder, at->path, name, &inode);
	if (kind == TPCK_SEEN_ABSENT) {
		errno = ENOENT;
		*fd = -1;
		return true;
	}
	*fd = kind != TPCK_SEEN_REAL ? tpck_sys_openat(AT_FDCWD, name, flags & ~O_NOFOLLOW, 0) : -1;
	if (*fd >= 0 && (tpck_sys_fstatat(*fd, "", &found, AT_EMPTY_PATH) || found.st_ino != inode)) {
		tpck_sys_close(*fd);
		*fd = -1;
	}
	errno = saved;
	return *fd >= 0;
}

bool tpck_seen_stat(const struct tpck_at *at, struct stat *found, int *result)
{
	int saved = errno;
	struct stat its;
	uint64_t inode;
	char name[40];

	switch (look(at->folder, at->path, name, &inode)) {
	case TPCK_SEEN_FILE:
		if (!is_it(name, inode, &its))
			break;
		its.st_nlink = 1;
		*found = its;
		*result = 0;
		errno = saved;
		return true;
	case TPCK_SEEN_ABSENT:
	case TPCK_SEEN_GHOST:
		errno = ENOENT;
		*result = -1;
		return true;
	case TPCK_SEEN_REAL:
		break;
	}
	errno = saved;
	return false;
}
