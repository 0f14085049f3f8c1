/* SPDX-License-Identifier: Apache-2.0 */
/* Published files that are read: compared with their digests once, and read from the copy in memory where they have rotted, or
 * where the page cache does not have them (doc/files.md). A file is known by inode, size and time, whatever its path is by now; one that the job has not published, or
 * that somebody has changed since, is opened as ever. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/digest.h"
#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/base/lock_order.h"
#include "runtime/base/log.h"
#include "runtime/base/tier_settings.h"
#include "runtime/files/files_private.h"
#include "runtime/view/sums_record.h"

/* How often the log is looked at for what has been published since. */
#define LOOK_NS 250000000ull
/* Most of the log that is held at a time, and most files that are known. */
#define SLAB_BYTES (16ull << 20)
#define KNOWN_MAX (1u << 18)
#define KNOWN_FIRST (1u << 10)
/* A name with so many bad files beside it gets no more of them. A file of which so many places are in the page cache, out of as
 * many, is. */
enum { ASIDE_MAX = 100, PLACES = 16 };

struct known {
	uint64_t inode, bytes; /* inode 0: unused */
	struct timespec modified;
	uint64_t at;           /* of its record in the log */
	struct timespec good;  /* its time of change when its bytes were right */
	struct timespec copy;  /* and that of its copy in memory */
	bool said;             /* that it cannot be read */
};

static struct {
	pthread_mutex_t lock;
	struct known *slot;
	uint32_t room, used;
	uint64_t log_inode, seen; /* of the log so much has been looked at */
	_Atomic uint64_t looked_ns;
	const char *job, *start_folder;
} published = {.lock = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP};

/* What is wrong with a copy. */
struct fault {
	uint64_t from, to;
	int error; /* 0: other bytes than were saved */
};

/* Not on the stack, which may be a small one. */
struct work {
	uint8_t piece[TPCK_SUMS_CHUNK]; /* first: at a page, for O_DIRECT */
	uint8_t *record;
	size_t record_bytes;
	const uint8_t (*digest)[16];
	struct stat file;
	struct fault disk, memory;
	char path[TPCK_FILES_PATH], kept[TPCK_VIEW_PATH], aside[TPCK_FILES_PATH + 32], said[160];
	struct tpck_pending pending;
};

static void *get_memory(size_t bytes)
{
	void *at = (void *)tpck_sys_mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);

	return at == MAP_FAILED ? NULL : at;
}

static void give_back(void *at, size_t bytes)
{
	if (at)
		tpck_sys_munmap(at, bytes);
}

static bool same_time(struct timespec a, struct timespec b)
{
	return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

TPCK_AT_START void tpck_files_verify_start(const char *job, const char *start_folder)
{
	published.job = job;
	published.start_folder = start_folder;
}

void tpck_files_verify_forked(void)
{
	/* Another thread was at it: what it had half made is left alone. */
	if (pthread_mutex_trylock(&published.lock)) {
		published.lock = (pthread_mutex_t)PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
		published.slot = NULL;
		published.room = published.used = 0;
		published.seen = 0;
	} else {
		pthread_mutex_unlock(&published.lock);
	}
}

/* ---- what is known, under the lock ------------------------------------------------------------ */

/* A file's place, or the one that it would get. NULL: there is no table. */
static struct known *place_of(uint64_t inode, uint64_t bytes, struct timespec modified)
{
	const uint64_t is[] = {inode, bytes, (uint64_t)modified.tv_sec, (uint64_t)modified.tv_nsec};
	uint32_t i = (uint32_t)tpck_digest64(is, sizeof is, 3);

	while (published.room) {
		struct known *known = &published.slot[i++ % published.room];

		if (!known->inode || (known->inode == inode && known->bytes == bytes && same_time(known->modified, modified)))
			return known;
	}
	return NULL;
}

static bool grow(void)
{
	struct known *old = published.slot;
	uint32_t room = published.room, next = room ? room * 2 : KNOWN_FIRST;
	struct known *slot = next <= KNOWN_MAX ? get_memory(next * sizeof *slot) : NULL;

	if (!slot)
		return false;
	published.slot = slot;
	published.room = next;
	for (uint32_t i = 0; i < room; i++)
		if (old[i].inode)
			*place_of(old[i].inode, old[i].bytes, old[i].modified) = old[i];
	give_back(old, room * sizeof *old);
	return true;
}

static void note(const struct tpck_sums_record *head, uint64_t at)
{
	const struct timespec modified = {head->modified_sec, (long)head->modified_ns};
	struct known *known;

	if (!head->inode || (published.used >= published.room / 4 * 3 && !grow()))
		return;
	known = place_of(head->inode, head->bytes, modified);
	if (!known->inode) {
		known->inode = head->inode;
		known->bytes = head->bytes;
		known->modified = modified;
		published.used++;
	}
	known->at = at;
}

static ssize_t read_at(int fd, void *buffer, size_t bytes, uint64_t at)
{
	ssize_t got = tpck_sys_pread_full(fd, buffer, bytes, (off_t)at);

	return got < 0 ? -errno : got;
}

/* The records from there to the end. What is none is passed over byte by byte: a crash may have cut several off. */
static void read_log(int fd, uint64_t end)
{
	size_t room = end - published.seen < SLAB_BYTES ? (size_t)(end - published.seen) : SLAB_BYTES;
	uint8_t *slab = room ? get_memory(room) : NULL;

	while (slab && published.seen + sizeof(struct tpck_sums_record) <= end) {
		ssize_t got = read_at(fd, slab, room, published.seen);
		struct tpck_sums_record head;
		size_t at = 0;

		if (got < (ssize_t)sizeof head)
			break;
		while (at + sizeof head <= (size_t)got) {
			size_t left = (size_t)got - at, length = tpck_sums_record_at(slab + at, left, &head);

			/* Cut by the slab's end it begins the next one; by the log's, it is still being written. */
			if (!length && tpck_sums_record_length(&head) > left) {
				if (at)
					break;
				if (published.seen + left >= end) {
					give_back(slab, room);
					return;
				}
			}
			if (length)
				note(&head, published.seen + at);
			at += length ? length : 1;
		}
		published.seen += at;
	}
	give_back(slab, room);
}

static int open_log(struct stat *log)
{
	char path[TPCK_FILES_PATH];
	int fd;

	if (!tpck_settings_store_file(tpck_files_settings, published.start_folder, published.job, TPCK_SUMS_LOG, path, sizeof path))
		return -1;
	fd = tpck_sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
	if (fd >= 0 && (tpck_sys_fstatat(fd, "", log, AT_EMPTY_PATH) || !S_ISREG(log->st_mode) || log->st_uid != geteuid())) {
		tpck_sys_close(fd);
		fd = -1;
	}
	return fd;
}

/* What has been added since, or all of one that was made anew. */
static void look(void)
{
	char path[TPCK_FILES_PATH];
	struct stat log;
	int fd;

	atomic_store(&published.looked_ns, tpck_clock_tick_ns());
	if (!tpck_settings_store_file(tpck_files_settings, published.start_folder, published.job, TPCK_SUMS_LOG, path, sizeof path) ||
	    tpck_sys_fstatat(AT_FDCWD, path, &log, AT_SYMLINK_NOFOLLOW) ||
	    (log.st_ino == published.log_inode && (uint64_t)log.st_size == published.seen))
		return;
	fd = open_log(&log);
	if (fd < 0)
		return;
	if (log.st_ino != published.log_inode || (uint64_t)log.st_size < published.seen)
		published.seen = 0;
	published.log_inode = log.st_ino;
	read_log(fd, (uint64_t)log.st_size);
	tpck_sys_close(fd);
}

static bool find(const struct stat *file, struct known *found)
{
	struct known *known;
	bool is;

	if (pthread_mutex_lock(&published.lock))
		return false;
	known = place_of(file->st_ino, (uint64_t)file->st_size, file->st_mtim);
	if ((!known || !known->inode) && tpck_clock_tick_ns() - atomic_load(&published.looked_ns) >= LOOK_NS) {
		look();
		known = place_of(file->st_ino, (uint64_t)file->st_size, file->st_mtim);
	}
	is = known && known->inode;
	if (is)
		*found = *known;
	pthread_mutex_unlock(&published.lock);
	return is;
}

/* The file has these bytes as of now; or has not, which was said. */
static bool remember(const struct stat *file, bool good)
{
	struct known *known;
	bool said = false;

	if (pthread_mutex_lock(&published.lock))
		return false;
	known = place_of(file->st_ino, (uint64_t)file->st_size, file->st_mtim);
	if (known && known->inode) {
		said = known->said;
		known->said = !good;
		if (good)
			known->good = file->st_ctim;
	}
	pthread_mutex_unlock(&published.lock);
	return said;
}

static void remember_copy(const struct stat *file, struct timespec copy)
{
	struct known *known;

	if (pthread_mutex_lock(&published.lock))
		return;
	known = place_of(file->st_ino, (uint64_t)file->st_size, file->st_mtim);
	if (known && known->inode)
		known->copy = copy;
	pthread_mutex_unlock(&published.lock);
}

/* The record as it is in the log: whether it is the file's. */
static bool read_record(struct work *w, uint64_t at)
{
	struct tpck_sums_record head;
	struct stat log;
	int fd = open_log(&log);
	bool is = fd >= 0 && read_at(fd, &head, sizeof head, at) == (ssize_t)sizeof head;

	w->record_bytes = is ? tpck_sums_record_length(&head) : 0;
	is = w->record_bytes && at + w->record_bytes <= (uint64_t)log.st_size;
	w->record = is ? get_memory(w->record_bytes) : NULL;
	is = w->record && read_at(fd, w->record, w->record_bytes, at) == (ssize_t)w->record_bytes &&
	     tpck_sums_record_at(w->record, w->record_bytes, &head) && head.inode == w->file.st_ino &&
	     head.bytes == (uint64_t)w->file.st_size && head.modified_sec == w->file.st_mtim.tv_sec &&
	     head.modified_ns == (uint64_t)w->file.st_mtim.tv_nsec;
	if (is)
		w->digest = tpck_sums_record_digests(w->record, &head);
	if (!is && w->record) {
		give_back(w->record, w->record_bytes);
		w->record = NULL;
	}
	if (fd >= 0)
		tpck_sys_close(fd);
	return is;
}

static bool get_digests(struct work *w, const struct known *known)
{
	struct known *again;
	uint64_t at = 0;

	if (read_record(w, known->at))
		return true;
	/* The log has been made anew. */
	if (pthread_mutex_lock(&published.lock))
		return false;
	published.log_inode = 0;
	look();
	again = place_of(w->file.st_ino, (uint64_t)w->file.st_size, w->file.st_mtim);
	if (again && again->inode)
		at = again->at;
	pthread_mutex_unlock(&published.lock);
	return read_record(w, at);
}

/* ---- copies ----------------------------------------------------------------------------------- */

static bool is_good(struct work *w, int fd, struct fault *fault)
{
	uint64_t bytes = (uint64_t)w->file.st_size;
	uint8_t digest[16];

	for (uint64_t at = 0; at < bytes; at += TPCK_SUMS_CHUNK) {
		size_t size = bytes - at < TPCK_SUMS_CHUNK ? (size_t)(bytes - at) : TPCK_SUMS_CHUNK;
		ssize_t got = read_at(fd, w->piece, size, at);

		if (got == (ssize_t)size) {
			tpck_digest128(w->piece, size, digest);
			if (!memcmp(digest, w->digest[at / TPCK_SUMS_CHUNK], sizeof digest))
				continue;
		}
		*fault = (struct fault){at, at + size - 1, got < 0 ? (int)-got : 0};
		return false;
	}
	return true;
}

static bool is_still(const struct stat *file, int fd)
{
	struct stat now;

	return !tpck_sys_fstatat(fd, "", &now, AT_EMPTY_PATH) && now.st_dev == file->st_dev && now.st_ino == file->st_ino &&
	       now.st_size == file->st_size && same_time(now.st_mtim, file->st_mtim);
}

/* The bad file gets a name of its own: it is there until somebody has looked at it. */
static bool set_aside(struct work *w)
{
	for (int i = 0; i < ASIDE_MAX; i++) {
		if (snprintf(w->aside, sizeof w->aside, i ? "%s.tpck-bad.%d" : "%s.tpck-bad", w->path, i) >= (int)sizeof w->aside)
			return false;
		if (!tpck_sys_linkat(AT_FDCWD, w->path, AT_FDCWD, w->aside, 0))
			return true;
		if (errno != EEXIST)
			return false;
	}
	return false;
}

/* The kept copy becomes what is owed to the path, as if it had been saved just now. */
static bool owe(struct work *w, const struct stat *parent, const char *folder, const char *name)
{
	struct tpck_view *view = tpck_files_ready() ? tpck_files_lock() : NULL;
	struct tpck_view_entry *entry;
	bool moved = false;

	if (!view)
		return false;
	entry = tpck_view_find(view, parent->st_dev, parent->st_ino, name)
			? NULL
			: tpck_view_add(view, parent->st_dev, parent->st_ino, folder, name, TPCK_VIEW_MEMORY);
	if (entry) {
		entry->pattern = tpck_view_pattern(folder, name);
		entry->bytes = (uint64_t)w->file.st_size;
		view->memory_bytes += entry->bytes;
		tpck_view_bytes(view, entry, tpck_files_folder, w->pending.path, sizeof w->pending.path);
		moved = !tpck_sys_renameat(AT_FDCWD, w->kept, AT_FDCWD, w->pending.path);
		if (moved)
			tpck_view_close(view, entry);
		else
			tpck_view_remove(view, entry);
	}
	tpck_view_unlock(view);
	if (moved)
		tpck_view_tell(&view->news);
	return moved;
}

/* False: it is not the program's to replace, or is something else by now. */
static bool put_back(struct work *w, int fd)
{
	struct stat parent, there = {0};
	bool exists, done = false;
	char link[40], *slash;
	ssize_t got;
	int folder;

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	got = tpck_sys_readlink(link, w->path, sizeof w->path - 1);
	if (!tpck_files_may_take() || got <= 0 || w->path[0] != '/')
		return false;
	w->path[got] = '\0';
	slash = strrchr(w->path, '/');
	if (slash == w->path || strlen(slash + 1) >= TPCK_VIEW_NAME)
		return false;
	*slash = '\0';
	folder = tpck_sys_openat(AT_FDCWD, w->path, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
	if (folder >= 0 && tpck_rule_takes(tpck_rules_place(folder, slash + 1, false, &parent, &there, &exists)) && exists &&
	    there.st_ino == w->file.st_ino && there.st_dev == w->file.st_dev) {
		*slash = '/';
		if (set_aside(w)) {
			*slash = '\0';
			done = owe(w, &parent, w->path, slash + 1);
			if (!done)
				tpck_sys_unlinkat(AT_FDCWD, w->aside, 0);
		}
	}
	*slash = '/';
	if (folder >= 0)
		tpck_sys_close(folder);
	return done;
}

static const char *text_of(const struct fault *fault)
{
	return fault->error ? "cannot be read" : "are not what was saved";
}

/* The copy in memory, open for reading; -1: there is none that is as it was saved, and `fault` says what of one that is not. `known`
 * may say that it has been compared, and does afterwards. */
static int open_copy(struct work *w, struct fault *fault, struct timespec *known)
{
	struct stat found;
	int kept;

	tpck_kept_name(w->kept, sizeof w->kept, tpck_files_folder, &w->file);
	kept = tpck_sys_openat(AT_FDCWD, w->kept, O_RDONLY | O_NOFOLLOW | O_CLOEXEC, 0);
	if (kept < 0)
		return -1;
	if (tpck_sys_fstatat(kept, "", &found, AT_EMPTY_PATH) || found.st_size != w->file.st_size ||
	    (!same_time(found.st_ctim, *known) && !is_good(w, kept, fault))) {
		tpck_sys_close(kept);
		return -1;
	}
	*known = found.st_ctim;
	return kept;
}

/* `fd`, which is bad, becomes the copy in memory. False: there is none that is good. */
static bool from_memory(struct work *w, int fd, const char *path, int flags)
{
	struct timespec never = {0};
	int kept = open_copy(w, &w->memory, &never);
	bool good;

	if (kept < 0)
		return false;
	if (put_back(w, fd))
		tpck_log_warn("%.500s: bytes %llu to %llu on disk %s; it is read from the copy in memory, which replaces it, and the bad file is %.300s",
			      path, (unsigned long long)w->disk.from, (unsigned long long)w->disk.to, text_of(&w->disk), w->aside);
	else
		tpck_log_warn("%.500s: bytes %llu to %llu on disk %s; it is read from the copy in memory, and stays as it is", path,
			      (unsigned long long)w->disk.from, (unsigned long long)w->disk.to, text_of(&w->disk));
	/* At the number that the program would have got. */
	good = tpck_sys_dup3(kept, fd, flags & O_CLOEXEC) >= 0;
	tpck_sys_close(kept);
	return good;
}

/* Whether the page cache seems to have it, by some of its pages. */
static bool is_cached(int fd, uint64_t bytes)
{
	const uint64_t page = (uint64_t)getpagesize(), pages = (bytes + page - 1) / page;
	uint8_t *at = (uint8_t *)tpck_sys_mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0L), resident = 1;

	if (at == MAP_FAILED)
		return errno != ENODEV;
	for (unsigned i = 0; i <= PLACES && resident & 1; i++)
		if (tpck_sys_mincore(at + (pages - 1) * i / PLACES * page, page, &resident))
			break;
	tpck_sys_munmap(at, bytes);
	return resident & 1;
}

/* Who only reads gets the copy in memory where the disk would have to be read. */
static bool from_nearer(struct work *w, int fd, int flags, struct known *known)
{
	struct timespec before = known->copy;
	struct fault fault;
	int kept;
	bool is;

	if ((flags & O_ACCMODE) != O_RDONLY || flags & O_DIRECT || is_cached(fd, (uint64_t)w->file.st_size))
		return false;
	kept = open_copy(w, &fault, &known->copy);
	if (kept < 0)
		return false;
	if (!same_time(before, known->copy))
		remember_copy(&w->file, known->copy);
	is = tpck_sys_dup3(kept, fd, flags & O_CLOEXEC) >= 0;
	tpck_sys_close(kept);
	return is;
}

/* Somebody else of the job has replaced it meanwhile. */
static bool from_path(struct work *w, int fd, int folder, const char *path, int flags)
{
	struct stat now;
	int other = -1;
	bool is;

	if (tpck_files_look(folder, path, !(flags & O_NOFOLLOW), &w->pending) == TPCK_SEEN_PENDING)
		other = tpck_sys_openat(AT_FDCWD, w->pending.path, O_RDONLY | O_CLOEXEC, 0);
	if (other < 0)
		other = tpck_sys_openat(folder, path, (flags & ~O_CREAT) | O_CLOEXEC, 0);
	if (other < 0)
		return false;
	is = !tpck_sys_fstatat(other, "", &now, AT_EMPTY_PATH) && (now.st_ino != w->file.st_ino || now.st_dev != w->file.st_dev) &&
	     tpck_sys_dup3(other, fd, flags & O_CLOEXEC) >= 0;
	tpck_sys_close(other);
	return is;
}

/* 0, or the errno that opening it fails with. */
static int next_copy(struct work *w, int fd, int folder, const char *path, int flags)
{
	w->memory.to = 0;
	if (from_memory(w, fd, path, flags) || from_path(w, fd, folder, path, flags))
		return 0;
	if (remember(&w->file, false))
		return EIO;
	if (w->memory.to)
		snprintf(w->said, sizeof w->said, "bytes %llu to %llu of the copy in memory %s", (unsigned long long)w->memory.from,
			 (unsigned long long)w->memory.to, text_of(&w->memory));
	else
		snprintf(w->said, sizeof w->said, "there is no copy in memory");
	tpck_log_warn("%.600s cannot be read: bytes %llu to %llu on disk %s, and %s (TRANSPCKPT_FILES_VERIFY=off reads it as it is)", path,
		      (unsigned long long)w->disk.from, (unsigned long long)w->disk.to, text_of(&w->disk), w->said);
	return EIO;
}

static TPCK_FILES_SLOW int compare(int fd, int folder, const char *path, int flags, const struct stat *file, struct known *known)
{
	struct work *w = get_memory(sizeof *w);
	int plain = fd, error = 0;

	if (!w)
		return 0;
	w->file = *file;
	if (get_digests(w, known)) {
		/* Direct reading has rules of its own. */
		if (flags & O_DIRECT) {
			snprintf(w->path, sizeof w->path, "/proc/self/fd/%d", fd);
			plain = tpck_sys_openat(AT_FDCWD, w->path, O_RDONLY | O_CLOEXEC, 0);
		}
		if (plain < 0 || from_nearer(w, fd, flags, known))
			;
		else if (is_good(w, plain, &w->disk))
			(void)remember(file, true);
		else if (is_still(file, plain)) /* nobody has written to it meanwhile */
			error = next_copy(w, fd, folder, path, flags);
		if (plain != fd && plain >= 0)
			tpck_sys_close(plain);
	}
	give_back(w->record, w->record_bytes);
	give_back(w, sizeof *w);
	return error;
}

/* Nothing has been published, as of a moment ago. */
static bool none_known(void)
{
	return !__atomic_load_n(&published.used, __ATOMIC_RELAXED) &&
	       tpck_clock_tick_ns() - atomic_load_explicit(&published.looked_ns, memory_order_relaxed) < LOOK_NS;
}

bool tpck_files_verifies(int flags)
{
	return (flags & O_ACCMODE) != O_WRONLY && !(flags & (O_TRUNC | O_PATH | O_DIRECTORY)) && tpck_files_on() &&
	       tpck_files_settings->files_verify[1] == 'n' && !none_known();
}

/* Whether it is one that is to be compared. */
static bool concerns(const struct stat *file, struct known *known)
{
	bool may_be = S_ISREG(file->st_mode) && file->st_size > 0;

	/* Where nothing has been published, finding that out with any file spares the next openings the question. Who the user is is asked for
	 * of those alone that have been. */
	return (may_be || !__atomic_load_n(&published.used, __ATOMIC_RELAXED)) && find(file, known) && may_be &&
	       file->st_uid == geteuid() && !same_time(known->good, file->st_ctim);
}

/* Who is to change it must have the file itself, once the good copy is at its path. `bad`: what was there. 0, or an errno. */
static TPCK_FILES_SLOW int to_change(int fd, int folder, const char *path, int flags, const struct stat *bad)
{
	struct stat now;
	int other, error;

	if ((tpck_sys_fcntl(fd, F_GETFL, 0) & O_ACCMODE) == O_RDWR)
		return 0;
	(void)tpck_files_settle();
	other = tpck_sys_openat(folder, path, (flags & ~(O_CREAT | O_EXCL)) | O_CLOEXEC, 0);
	if (other < 0)
		return errno;
	error = tpck_sys_fstatat(other, "", &now, AT_EMPTY_PATH) || (now.st_ino == bad->st_ino && now.st_dev == bad->st_dev) ? EIO : 0;
	if (!error && tpck_sys_dup3(other, fd, flags & O_CLOEXEC) < 0)
		error = errno;
	tpck_sys_close(other);
	return error;
}

int tpck_files_verified(int fd, int folder, const char *path, int flags)
{
	int saved = errno, error = 0;
	struct known known;
	struct stat file;

	if (fd < 0 || tpck_sys_fstatat(fd, "", &file, AT_EMPTY_PATH)) {
		errno = saved;
		return fd;
	}
	/* What is read may be another copy in a moment. */
	if (tpck_files_notes_loads() && (flags & O_ACCMODE) == O_RDONLY && S_ISREG(file.st_mode) && file.st_size > 0 && find(&file, &known))
		tpck_files_note_load(fd);
	if (concerns(&file, &known)) {
		error = compare(fd, folder, path, flags, &file, &known);
		if (!error && (flags & O_ACCMODE) == O_RDWR)
			error = to_change(fd, folder, path, flags, &file);
	}
	if (error)
		tpck_sys_close(fd);
	errno = error ? error : saved;
	return error ? -1 : fd;
}

bool tpck_files_to_verify(const char *path)
{
	int saved = errno;
	struct known known;
	struct stat file;
	bool is = !tpck_sys_fstatat(AT_FDCWD, path, &file, 0) && concerns(&file, &known);

	errno = saved;
	return is;
}
