/* SPDX-License-Identifier: Apache-2.0 */
/* While recording: what was at a path at its first touch, and versions that may be read again. */
#include "config.h"

#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/follow/follow.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/door.h"
#include "runtime/base/log.h"
#include "runtime/base/unsignalled.h"
#include "runtime/files/files.h"
#include "runtime/follow/contents.h"
#include "runtime/follow/follow_private.h"
#include "runtime/track/threads.h"

enum { PATH_SIZE = TPCK_FOLLOW_PATH };

char tpck_follow_keep[TPCK_FOLLOW_FOLDER] TPCK_LARGE;
static struct tpck_log *journal;
static uint64_t begun_ns;

enum { COPIED_MAX = 1 << 20 };
enum { TOUCHED_BITS = 16, SOME_BITS = 13, FEW_BITS = 10, READ_BIT = 1, NOTED_BIT = 2, FILE_BIT = 4, OWN_BIT = 8, STATE_BITS = 15 };
/* Of versions of files that others made and the program read, so much is kept in all. */
enum { KEPT_READ = 64 << 20 };

/* Paths touched so far: the digest, with its lowest bits telling whether the program may have read it, whether
 * follow/contents.h knows, and whether the regular file that was there at the first touch may be there still. */
static _Atomic uint64_t touched[1 << TOUCHED_BITS] TPCK_LARGE;
/* The first ones, and the next: of a short program's paths each would have a page to itself. */
static _Atomic uint64_t few[1 << FEW_BITS] TPCK_LARGE_USED, some[1 << SOME_BITS] TPCK_LARGE;
static _Atomic uint32_t touched_count;

static _Atomic uint64_t *slot_in(_Atomic uint64_t *table, int bits, uint64_t digest)
{
	uint32_t slot = (uint32_t)(digest >> (64 - bits));

	digest &= ~(uint64_t)STATE_BITS;
	for (;;) {
		uint64_t found = atomic_load(&table[slot]);

		if (!found || (found & ~(uint64_t)STATE_BITS) == digest)
			return &table[slot];
		slot = (slot + 1) & ((1u << bits) - 1);
	}
}

static _Atomic uint64_t *touched_slot(uint64_t digest)
{
	uint32_t count = atomic_load(&touched_count), room = (1u << FEW_BITS) * 3 / 4;
	_Atomic uint64_t *slot = slot_in(few, FEW_BITS, digest);

	if (atomic_load(slot) || count < room)
		return slot;
	slot = slot_in(some, SOME_BITS, digest);
	if (atomic_load(slot) || count < room + (1u << SOME_BITS) * 3 / 4)
		return slot;
	return slot_in(touched, TOUCHED_BITS, digest);
}

static void put_held_versions(void);

TPCK_AT_START void tpck_follow_record(struct tpck_log *into, const char *keep, uint64_t of_timeline)
{
	bool begins = !journal;

	if (begins) {
		uint64_t start_ns = tpck_clock_coarse_ns();
		struct tpck_record_file record = {
			.bytes = (uint64_t)getpid(), .mtime_s = (int64_t)(start_ns / 1000000000), .mtime_ns = (int64_t)(start_ns % 1000000000),
		};

		begun_ns = tpck_clock_realtime_ns();
		tpck_log_append(into, TPCK_RECORD_FILE, TPCK_FILE_BEGUN, 0, 0, &record, sizeof record);
	}
	journal = into;
	tpck_lists_of(of_timeline);
	if (*keep || !begins)
		snprintf(tpck_follow_keep, sizeof tpck_follow_keep, "%s", keep);
	if (!begins)
		tpck_lists_waited(*keep);
	if (!begins && *keep)
		put_held_versions();
}

void tpck_follow_goes_on(void)
{
	uint64_t began_ns = tpck_follow_begun_ns();
	struct tpck_record_file record = {
		.bytes = (uint64_t)getpid(), .mtime_s = (int64_t)(began_ns / 1000000000), .mtime_ns = (int64_t)(began_ns % 1000000000),
	};

	tpck_log_append(journal, TPCK_RECORD_FILE, TPCK_FILE_BEGUN, 0, 0, &record, sizeof record);
}

bool tpck_follow_recording(void)
{
	return journal && tpck_follow_keep[0] && !tpck_log_failed(journal);
}

void tpck_follow_known(uint64_t digest, bool noted, bool file)
{
	_Atomic uint64_t *slot = touched_slot(digest);

	if (!atomic_load(slot)) {
		if (atomic_fetch_add(&touched_count, 1) >= (1u << TOUCHED_BITS) * 3 / 4)
			return;
		atomic_store(slot, (digest & ~(uint64_t)STATE_BITS) | READ_BIT);
	}
	if (file)
		atomic_fetch_or(slot, FILE_BIT);
	if (noted)
		atomic_fetch_or(slot, NOTED_BIT);
}

/* ---- paths that came a moment ago ----
 * Finding a path's one name takes system calls, and programs ask for the same paths over and over. */
enum { LATELY = 1024 };
#define LATELY_NS 50000000u
static struct {
	_Atomic uint64_t digest, at_ns; /* of the path's text; the lowest bit: it was opened for reading too */
} lately[LATELY] TPCK_LARGE;

bool tpck_follow_lately(const char *path, bool read)
{
	uint64_t digest, known, at_ns;

	if (!path || *path != '/' || tpck_overlay_active())
		return false;
	digest = tpck_follow_digest(path);
	known = atomic_load_explicit(&lately[(digest >> 1) % LATELY].digest, memory_order_acquire);
	if ((known | 1) != (digest | 1) || (read && !(known & 1)))
		return false;
	at_ns = atomic_load_explicit(&lately[(digest >> 1) % LATELY].at_ns, memory_order_relaxed);
	return at_ns > tpck_names_changed_ns() && tpck_clock_tick_ns() - at_ns < LATELY_NS;
}

void tpck_follow_lately_note(const char *path, bool read)
{
	uint64_t digest;

	if (!path || *path != '/')
		return;
	digest = (tpck_follow_digest(path) & ~(uint64_t)1) | read;
	atomic_store(&lately[(digest >> 1) % LATELY].digest, 0);
	atomic_store(&lately[(digest >> 1) % LATELY].at_ns, tpck_clock_tick_ns());
	atomic_store(&lately[(digest >> 1) % LATELY].digest, digest);
}

void tpck_follow_forget(void)
{
	for (unsigned i = 0; i < LATELY; i++)
		atomic_store(&lately[i].digest, 0);
	memset(few, 0, sizeof few);
	memset(some, 0, sizeof some);
	memset(touched, 0, sizeof touched);
	atomic_store(&touched_count, 0);
}

/* What is there as the caller has just seen it; NULL: nothing is. */
static void note_first(const char *absolute, uint64_t digest, _Atomic uint64_t *slot, const struct stat *found)
{
	struct tpck_record_file record = {.path = digest};
	struct tpck_thread *self = tpck_thread_peek();
	size_t bytes = sizeof record, target = 0;
	uint64_t none = 0;
	char *payload;

	if (atomic_load(&touched_count) > (1u << TOUCHED_BITS) * 3 / 4)
		return;
	if (!atomic_compare_exchange_strong(slot, &none, digest & ~(uint64_t)STATE_BITS))
		return;
	atomic_fetch_add(&touched_count, 1);
	if (found) {
		record.mode = found->st_mode;
		record.bytes = (uint64_t)found->st_size;
		record.mtime_s = found->st_mtim.tv_sec;
		record.mtime_ns = found->st_mtim.tv_nsec;
		if (S_ISREG(found->st_mode) || S_ISLNK(found->st_mode))
			atomic_fetch_or(slot, FILE_BIT);
		if (S_ISLNK(found->st_mode) && found->st_size > 0 && found->st_size < PATH_SIZE) {
			target = (size_t)found->st_size;
			bytes += target + 1 + strlen(absolute) + 1;
		}
	}
	payload = tpck_log_append(journal, TPCK_RECORD_FILE, TPCK_FILE_FIRST, self ? self->id : 0, 0, NULL, bytes);
	if (!payload)
		return;
	memcpy(payload, &record, sizeof record);
	if (target) {
		/* Read right into the record: threads' stacks may be small. */
		payload += sizeof record;
		memset(payload, 0, target + 1);
		tpck_sys_readlink(absolute, payload, target);
		strcpy(payload + target + 1, absolute);
	}
}

void tpck_follow_version_name(char *path, size_t size, uint64_t digest, uint64_t bytes, int64_t s, int64_t ns)
{
	snprintf(path, size, "%s/%016llx-%llu-%lld.%09lld", tpck_follow_keep, (unsigned long long)digest,
		 (unsigned long long)bytes, (long long)s, (long long)ns);
}

/* Where a symbolic link leads, before that changes. */
static __attribute__((noinline)) void keep_link(const char *absolute, const struct stat *found)
{
	char target[PATH_SIZE], entry[2 * PATH_SIZE + 32];
	ssize_t got = tpck_sys_readlink(absolute, target, sizeof target);

	if (got <= 0 || (uint64_t)found->st_mtim.tv_sec * 1000000000u + (uint64_t)found->st_mtim.tv_nsec >= begun_ns)
		return;
	snprintf(entry, sizeof entry, "%zd %.*s%s", got, (int)got, target, absolute);
	tpck_lists_add("relinked", entry);
}

/* ---- after programs that the thread had started have ended ---- */

enum { AGAIN = 2048 };
static struct again {
	uint64_t key; /* of path and thread */
	uint32_t others, mode;
	uint64_t bytes;
	int64_t mtime_s, mtime_ns;
} again[AGAIN] TPCK_LARGE;
static tpck_spin again_lock;
static _Atomic uint64_t kept_read;

void tpck_follow_others_ran(void)
{
	struct tpck_thread *self = tpck_thread_peek();

	if (self)
		self->others++;
	tpck_names_changed();
}

static uint64_t again_key(const struct tpck_thread *self, uint64_t digest)
{
	return digest ^ self->id * 0x9e3779b97f4a7c15u;
}

/* Whether the program has written it while running forward: it is its own, as what it writes once it is live. */
static bool is_own_since_forward(uint64_t digest)
{
	const struct tpck_overlay_entry *entry = tpck_overlay_find(digest);

	return entry && entry->changed;
}

/* Whether the path has not been looked at since a program ended that this thread had started. */
static bool is_stale(uint64_t digest, _Atomic uint64_t *slot)
{
	const struct tpck_thread *self = tpck_thread_peek();
	const struct again *at = self ? &again[again_key(self, digest) % AGAIN] : NULL;

	return self && self->others && !(atomic_load(slot) & OWN_BIT) && !is_own_since_forward(digest) && (at->key != again_key(self, digest) || at->others != self->others);
}

/* What is there now goes into the log, if it is another thing than at the last look. */
static void note_again(uint64_t digest, const struct stat *found, bool first)
{
	const struct tpck_thread *self = tpck_thread_peek();
	struct again now = {.key = again_key(self, digest), .others = self->others}, *at = &again[now.key % AGAIN];
	struct tpck_record_file record = {.path = digest, .names = self->others};
	bool same;

	if (found) {
		record.mode = now.mode = found->st_mode;
		record.bytes = now.bytes = (uint64_t)found->st_size;
		record.mtime_s = now.mtime_s = found->st_mtim.tv_sec;
		record.mtime_ns = now.mtime_ns = found->st_mtim.tv_nsec;
	}
	tpck_spin_lock(&again_lock);
	same = at->key == now.key && at->mode == now.mode && at->bytes == now.bytes && at->mtime_s == now.mtime_s && at->mtime_ns == now.mtime_ns;
	*at = now;
	tpck_spin_unlock(&again_lock);
	/* Before it goes it is kept: that is what this thread will look at again. */
	if (found && S_ISREG(found->st_mode))
		atomic_fetch_or(touched_slot(digest), FILE_BIT);
	if (!same && !first)
		tpck_log_append(journal, TPCK_RECORD_FILE, TPCK_FILE_AGAIN, self->id, (uint32_t)self->operations, &record, sizeof record);
}

static int open_kept_folder(void)
{
	return tpck_door_folder(tpck_follow_keep, TPCK_KEEP_NAMES, 0);
}

/* Of a version's path. */
static const char *name_in(const char *kept)
{
	return strrchr(kept, '/') + 1;
}

/* A file of this thread's alone; one that a killed process has left goes. */
static int make_in(int folder, const char *making)
{
	enum { FLAGS = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC };
	int fd;

	if (folder < 0) {
		errno = -folder;
		return -1;
	}
	fd = tpck_sys_openat(folder, making, FLAGS, 0600);

	if (fd < 0 && errno == EEXIST && !tpck_sys_unlinkat(folder, making, 0))
		fd = tpck_sys_openat(folder, making, FLAGS, 0600);
	return fd;
}

/* Under the name `kept` in the folder, which is there once the copy is whole: who is killed before that leaves none that a later run would take for one. */
static void copy_version(const char *absolute, int folder, const char *kept, const struct stat *found)
{
	char making[160];
	int from, to;

	snprintf(making, sizeof making, "%s.%d", kept, tpck_sys_gettid());
	from = tpck_sys_openat(AT_FDCWD, absolute, O_RDONLY | O_CLOEXEC, 0);
	to = make_in(folder, making);
	if (from < 0 || to < 0 || tpck_follow_copy(from, to, (uint64_t)found->st_size) || fchmod(to, found->st_mode & 07777) ||
	    futimens(to, (const struct timespec[2]){found->st_atim, found->st_mtim}) ||
	    tpck_sys_renameat2(folder, making, folder, kept, 0)) {
		tpck_log_warn("cannot keep the version of %s that was read: %m; snapshots from here on may not be resumable",
			      absolute);
		if (to >= 0)
			tpck_sys_unlinkat(folder, making, 0);
	}
	if (from >= 0)
		tpck_sys_close(from);
	if (to >= 0)
		tpck_sys_close(to);
}

/* ---- before there is a place for versions ----
 * What a program reads and writes over before it has met a device, as libuuid does with its clock: small files are held until then. Without a
 * lock: a child of a fork comes here too. */

enum { EARLY_BYTES = 256 << 10, EARLY_MOST = 64 << 10 };
static char early[EARLY_BYTES] TPCK_LARGE;
static _Atomic uint32_t early_used;
struct early_version {
	uint64_t digest; /* of its path; 0: it could not be read */
	uint32_t size, whole; /* of its content, and of this with content and path behind it */
	mode_t mode;
	struct timespec accessed, modified;
};

static void hold_version(const char *absolute, uint64_t digest, const struct stat *found)
{
	uint32_t whole = (uint32_t)((sizeof(struct early_version) + (size_t)found->st_size + strlen(absolute) + 1 + 15) / 16 * 16);
	uint32_t at = atomic_load(&early_used);
	struct early_version *held;
	int fd;

	if (found->st_size > EARLY_MOST)
		return;
	do {
		if (whole > EARLY_BYTES - at)
			return;
	} while (!atomic_compare_exchange_weak(&early_used, &at, at + whole));
	held = (void *)(early + at);
	*held = (struct early_version){0, (uint32_t)found->st_size, whole, found->st_mode, found->st_atim, found->st_mtim};
	fd = tpck_sys_openat(AT_FDCWD, absolute, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
	if (fd >= 0 && tpck_sys_read(fd, held + 1, held->size) == (long)held->size)
		held->digest = digest;
	if (fd >= 0)
		tpck_sys_close(fd);
	strcpy((char *)(held + 1) + held->size, absolute);
}

static void list_version(const char *absolute, int64_t bytes, const struct timespec *modified)
{
	char entry[PATH_SIZE + 80];

	snprintf(entry, sizeof entry, "%llu %lld %ld %s", (unsigned long long)bytes, (long long)modified->tv_sec, modified->tv_nsec, absolute);
	/* What others have made since the program began was not there at every boundary. */
	if ((uint64_t)modified->tv_sec * 1000000000u + (uint64_t)modified->tv_nsec < begun_ns)
		tpck_lists_add("changed", entry);
}

/* There is a place now. */
static void put_held_versions(void)
{
	uint32_t used = atomic_exchange(&early_used, EARLY_BYTES);
	int folder = used && used < EARLY_BYTES ? open_kept_folder() : -1;

	for (uint32_t at = 0; used < EARLY_BYTES && at < used;) {
		const struct early_version *held = (const void *)(early + at);
		char kept[TPCK_FOLLOW_FOLDER + 96];
		int fd;

		at += held->whole;
		if (!held->digest)
			continue;
		list_version((const char *)(held + 1) + held->size, held->size, &held->modified);
		tpck_follow_version_name(kept, sizeof kept, held->digest, held->size, held->modified.tv_sec, held->modified.tv_nsec);
		fd = tpck_sys_openat(folder, name_in(kept), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (fd < 0)
			continue;
		if (tpck_sys_write(fd, held + 1, held->size) != (long)held->size || fchmod(fd, held->mode & 07777) ||
		    futimens(fd, (const struct timespec[2]){held->accessed, held->modified}))
			tpck_sys_unlinkat(folder, name_in(kept), 0);
		tpck_sys_close(fd);
	}
	if (folder >= 0)
		tpck_sys_close(folder);
}

/* Keeps the version of the first touch, before it goes away. `gone`: the name goes, the inode stays: a link will do, but
 * is worth nothing once the program changes the file under its new name, as is done with small ones. */
static void keep_version(const char *absolute, uint64_t digest, bool gone)
{
	const struct tpck_record_file *first = tpck_learnt_first(digest);
	char kept[TPCK_FOLLOW_FOLDER + 96];
	struct stat found;
	int folder;

	if (tpck_sys_fstatat(AT_FDCWD, absolute, &found, AT_SYMLINK_NOFOLLOW))
		return;
	if (S_ISLNK(found.st_mode) && tpck_follow_keep[0])
		keep_link(absolute, &found);
	if (!S_ISREG(found.st_mode))
		return;
	if (!tpck_follow_keep[0]) {
		hold_version(absolute, digest, &found);
		return;
	}
	/* A run that was resumed: it may have gone in the one before. */
	if (first && ((uint64_t)found.st_size != first->bytes || found.st_mtim.tv_sec != first->mtime_s ||
		      found.st_mtim.tv_nsec != first->mtime_ns))
		return;
	tpck_follow_version_name(kept, sizeof kept, digest, (uint64_t)found.st_size, found.st_mtim.tv_sec,
				 found.st_mtim.tv_nsec);
	list_version(absolute, found.st_size, &found.st_mtim);
	folder = open_kept_folder();
	if (tpck_sys_faccessat(folder, name_in(kept), F_OK) &&
	    !(gone && found.st_size > COPIED_MAX && !tpck_sys_linkat(AT_FDCWD, absolute, folder, name_in(kept), 0)))
		copy_version(absolute, folder, name_in(kept), &found);
	if (folder >= 0)
		tpck_sys_close(folder);
}

/* A file that the program reads, and that another program made: the next one of it is made by that, too, and nobody keeps this one. */
static void keep_read(const char *absolute, uint64_t digest, const struct stat *found)
{
	char kept[TPCK_FOLLOW_FOLDER + 96];
	int folder;

	if (!tpck_follow_keep[0] || !S_ISREG(found->st_mode) || found->st_size > COPIED_MAX ||
	    (uint64_t)found->st_mtim.tv_sec * 1000000000u + (uint64_t)found->st_mtim.tv_nsec < begun_ns ||
	    atomic_load(&kept_read) + (uint64_t)found->st_size > KEPT_READ)
		return;
	tpck_follow_version_name(kept, sizeof kept, digest, (uint64_t)found->st_size, found->st_mtim.tv_sec, found->st_mtim.tv_nsec);
	folder = open_kept_folder();
	if (tpck_sys_faccessat(folder, name_in(kept), F_OK)) {
		atomic_fetch_add(&kept_read, (uint64_t)found->st_size);
		copy_version(absolute, folder, name_in(kept), found);
	}
	if (folder >= 0)
		tpck_sys_close(folder);
}

/* ftruncate first, so that a reflink or copy_file_range can do the rest. */
static int copy_bytes(int from, int to, uint64_t bytes)
{
	loff_t at = 0, put = 0;

	while ((uint64_t)at < bytes) {
		ssize_t moved = tpck_sys_copy_file_range(from, &at, to, &put, bytes - (uint64_t)at, 0);

		if (moved <= 0) {
			char buffer[4096]; /* threads' stacks may be small */

			moved = tpck_sys_pread(from, buffer, sizeof buffer, at);
			if (moved <= 0)
				return moved ? -errno : -EIO;
			if (tpck_sys_pwrite(to, buffer, moved, put) != moved)
				return -EIO;
			at += moved;
			put += moved;
		}
	}
	return 0;
}

int tpck_follow_copy(int from, int to, uint64_t bytes)
{
	struct tpck_unsignalled signals;
	int rc;

	tpck_unsignalled_begin(&signals);
	rc = copy_bytes(from, to, bytes);
	tpck_unsignalled_end(&signals);
	return rc;
}

static void note_look(const char *absolute, uint64_t digest, _Atomic uint64_t *slot, const struct stat *found)
{
	bool first = !atomic_load(slot);

	if (first)
		note_first(absolute, digest, slot, found);
	if (is_stale(digest, slot))
		note_again(digest, found, first);
}

void tpck_follow_seen(const char *absolute, uint64_t digest, const struct stat *found)
{
	int saved = errno;
	_Atomic uint64_t *slot = touched_slot(digest);

	if (journal && !tpck_log_failed(journal) && (!atomic_load(slot) || is_stale(digest, slot)))
		note_look(absolute, digest, slot, found);
	errno = saved;
}

/* What the program is about to do with the path, while recording. `absent`: the kernel had nothing by that name a moment ago. */
static void about(_Atomic uint64_t *slot, const char *absolute, uint64_t digest, bool reads, bool destroys, bool gone, bool absent)
{
	int saved = errno;
	struct stat found;

	if (!journal || tpck_log_failed(journal))
		return;
	/* A version is kept of the file itself, not of what is still on its way there; where none is kept nothing is waited for. */
	if (destroys && atomic_load(slot) & FILE_BIT && (gone || reads || atomic_load(slot) & READ_BIT))
		tpck_files_settle_path(absolute);
	if (!atomic_load(slot) || is_stale(digest, slot)) {
		bool first = !atomic_load(slot);

		absent = (absent && !tpck_files_may_be_pending(absolute)) || tpck_layer_pending.stat(TPCK_AT(AT_FDCWD, absolute), &found, AT_SYMLINK_NOFOLLOW);
		if (first)
			note_first(absolute, digest, slot, absent ? NULL : &found);
		if (is_stale(digest, slot))
			note_again(digest, absent ? NULL : &found, first);
	}
	if (reads && atomic_load(slot))
		atomic_fetch_or(slot, READ_BIT);
	if (destroys && atomic_load(slot) & FILE_BIT) {
		/* What is only written over is not worth a copy; where a name goes a link costs nothing. */
		if (gone || atomic_load(slot) & READ_BIT)
			keep_version(absolute, digest, gone);
		atomic_fetch_and(slot, ~(uint64_t)FILE_BIT);
	}
	if (destroys && atomic_load(slot))
		atomic_fetch_or(slot, OWN_BIT);
	errno = saved;
}

void tpck_follow_about(const char *absolute, uint64_t digest, bool reads, bool destroys, bool gone)
{
	about(touched_slot(digest), absolute, digest, reads, destroys, gone, false);
}

ssize_t tpck_follow_link_at(const char *absolute, char *target, size_t size)
{
	uint64_t digest = tpck_follow_digest(absolute);
	ssize_t got = tpck_overlay_active() ? tpck_overlay_readlink(absolute, digest, target, size - 1) : TPCK_OVERLAY_REAL;

	if (got != TPCK_OVERLAY_REAL)
		return got;
	got = tpck_sys_readlink(absolute, target, size - 1);
	if (got > 0 && !tpck_overlay_active())
		tpck_follow_about(absolute, digest, false, false, false);
	return got;
}

/* A path comes to be that was not there: should the program be resumed from before, it must not be
 * there again, and only this list tells it from one that somebody else made. Paths end with NUL. */
static void makes(const char *absolute, bool absent)
{
	int saved = errno;

	if (journal && !tpck_log_failed(journal) && (absent || tpck_sys_faccessat(AT_FDCWD, absolute, F_OK))) {
		_Atomic uint64_t *slot = touched_slot(tpck_follow_digest(absolute));

		/* A look after a program has ended would say that this program has made it. */
		if (atomic_load(slot))
			atomic_fetch_or(slot, OWN_BIT);
		if (tpck_follow_keep[0])
			tpck_lists_add("created", absolute);
		else
			tpck_lists_wait(absolute);
	}
	errno = saved;
}

void tpck_follow_makes(const char *absolute)
{
	makes(absolute, false);
}

/* A folder that goes to another name takes with it what is in it: what the program knows there by its old name was not there
 * by the new one. `from` and `to` are buffers of PATH bytes, and are what they were afterwards. */
void tpck_follow_moves(char *from, char *to)
{
	size_t from_length = strlen(from), to_length = strlen(to);
	int saved = errno;
	int fd = tpck_sys_openat(AT_FDCWD, from, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0);
	char buffer[4096];
	ssize_t got;

	/* What has still to come to its path in there is not listed. */
	if (fd >= 0)
		(void)tpck_files_settle_at(AT_FDCWD, from);
	while (fd >= 0 && (got = tpck_sys_getdents(fd, buffer, sizeof buffer)) > 0) {
		for (char *at = buffer; at < buffer + got; at += ((struct dirent64 *)at)->d_reclen) {
			const struct dirent64 *entry = (const void *)at;
			size_t length = strlen(entry->d_name);
			uint64_t digest;

			if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
			    from_length + length + 2 > PATH_SIZE || to_length + length + 2 > PATH_SIZE)
				continue;
			sprintf(from + from_length, "/%s", entry->d_name);
			sprintf(to + to_length, "/%s", entry->d_name);
			digest = tpck_follow_digest(from);
			if (atomic_load(touched_slot(digest))) {
				digest = tpck_follow_digest(to);
				tpck_follow_about(to, digest, false, false, false);
				tpck_follow_makes(to);
			}
			if (entry->d_type == DT_DIR)
				tpck_follow_moves(from, to);
			from[from_length] = to[to_length] = '\0';
		}
	}
	if (fd >= 0)
		tpck_sys_close(fd);
	errno = saved;
}

/* The program opens it to read what is there. */
static void note_read(const char *absolute, uint64_t digest, const struct stat *found)
{
	_Atomic uint64_t *slot = touched_slot(digest);
	int saved = errno;

	if (journal && atomic_load(slot) && !(atomic_fetch_or(slot, NOTED_BIT) & NOTED_BIT))
		tpck_contents_note(absolute, digest, found);
	errno = saved;
}

void tpck_follow_has_opened(const char *absolute, uint64_t digest, const struct stat *found)
{
	int saved = errno;
	_Atomic uint64_t *slot = touched_slot(digest);

	if (journal && !tpck_log_failed(journal)) {
		bool stale = is_stale(digest, slot);

		if (stale || !atomic_load(slot))
			note_look(absolute, digest, slot, found);
		if (stale)
			keep_read(absolute, digest, found);
		if (atomic_load(slot) && !(atomic_fetch_or(slot, READ_BIT | NOTED_BIT) & NOTED_BIT))
			tpck_contents_note(absolute, digest, found);
	}
	errno = saved;
}

void tpck_follow_opens(const char *absolute, uint64_t digest, int flags, bool absent)
{
	/* What is appended to or updated in place needs its old content when it is run again. */
	bool old_needed = tpck_follow_writes(flags) && !(flags & O_TRUNC);
	_Atomic uint64_t *slot = touched_slot(digest);

	about(slot, absolute, digest, !tpck_follow_writes(flags) || old_needed, false, false, absent);
	if (tpck_follow_writes(flags))
		about(slot, absolute, digest, false, true, false, absent);
	else
		note_read(absolute, digest, NULL);
	if (flags & O_CREAT)
		makes(absolute, absent);
}

enum { LISTING_BYTES = 64 << 10 };
/* One name more of a listing. False: there is no room. */
static bool add_name(struct tpck_record_file *record, size_t *used, char type, const char *name)
{
	size_t length = strlen(name);

	if (*used + length + 2 > sizeof *record + LISTING_BYTES)
		return false;
	((char *)record)[(*used)++] = type;
	memcpy((char *)record + *used, name, length + 1);
	*used += length + 1;
	record->names++;
	return true;
}

static void note_listing(const char *absolute, uint64_t digest)
{
	struct tpck_record_file *record = malloc(sizeof *record + LISTING_BYTES);
	struct tpck_thread *self = tpck_thread_peek();
	size_t used = sizeof *record;
	char buffer[32768];
	int fd = tpck_sys_openat(AT_FDCWD, absolute, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	ssize_t got = 0;
	struct tpck_files_listing *pending;
	const char *name;

	if (!record || fd < 0) {
		free(record);
		if (fd >= 0)
			tpck_sys_close(fd);
		return;
	}
	*record = (struct tpck_record_file){.path = digest, .mode = S_IFDIR};
	pending = tpck_files_listing_begin(fd);
	while ((got = tpck_sys_getdents(fd, buffer, sizeof buffer)) > 0) {
		for (char *at = buffer; at < buffer + got; at += ((struct dirent64 *)at)->d_reclen) {
			const struct dirent64 *entry = (const void *)at;

			if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
			    tpck_files_hides(pending, entry->d_name))
				continue;
			if (!add_name(record, &used, entry->d_type == DT_DIR ? 'd' : entry->d_type == DT_LNK ? 'l' : 'f',
				      entry->d_name)) {
				got = -1;
				break;
			}
		}
		if (got < 0)
			break;
	}
	while (got == 0 && (name = tpck_files_more(pending)))
		if (!add_name(record, &used, 'f', name))
			got = -1;
	tpck_files_listing_end(pending);
	tpck_sys_close(fd);
	if (got == 0)
		tpck_log_append(journal, TPCK_RECORD_FILE, TPCK_FILE_LISTING, self ? self->id : 0, 0, record, used);
	free(record);
}

void tpck_follow_lists(const char *absolute, uint64_t digest)
{
	if (!journal || tpck_log_failed(journal))
		return;
	tpck_follow_about(absolute, digest, false, false, false);
	note_listing(absolute, digest);
}

void tpck_record_forked(void)
{
	tpck_spin_unlock(&again_lock);
}
