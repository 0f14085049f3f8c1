/* SPDX-License-Identifier: Apache-2.0 */
/* The table of a job's pending files. */
#include "config.h"

#include "runtime/base/kernel.h"
#include "runtime/base/lock_order.h"
#include "runtime/view/view.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/digest.h"
#include "runtime/base/door.h"
#include "runtime/base/layout.h"
#include "runtime/base/text.h"
#include "runtime/base/unsignalled.h"
#include "runtime/view/rules.h"
#include "runtime/wire/segment.h"

/* ---- the table -------------------------------------------------------------------------------- */

static int set_up(struct tpck_view *view)
{
	pthread_mutexattr_t kind;
	uint32_t begin = 0;
	struct stat root;
	int rc;

	rc = pthread_mutexattr_init(&kind);
	if (rc)
		return -rc;
	pthread_mutexattr_setpshared(&kind, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&kind, PTHREAD_MUTEX_ROBUST);
	/* A signal's handler may come here while its thread holds it. */
	pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ERRORCHECK);
	rc = pthread_mutex_init(&view->lock, &kind);
	pthread_mutexattr_destroy(&kind);
	view->version = TPCK_WIRE_VERSION;
	if (!tpck_sys_fstatat(AT_FDCWD, "/", &root, 0)) {
		view->root_device = root.st_dev;
		view->root_inode = root.st_ino;
	}
	/* Parts of other jobs may lie in the same folder: their names must not be ours. */
	if (tpck_sys_getrandom(&begin, sizeof begin, 0) != sizeof begin)
		begin = (uint32_t)tpck_clock_monotonic_ns() ^ (uint32_t)tpck_sys_getpid();
	view->serial = (uint64_t)(begin >> 1) << 32;
	atomic_thread_fence(memory_order_release);
	view->magic = TPCK_VIEW_MAGIC;
	return -rc;
}

/* Made under another name: whoever sees the table sees all of it. A process of the same number may have left one, or make one in
 * another namespace. */
static int open_new(int folder, char name[64])
{
	static _Atomic unsigned serial;
	int fd = -1;

	for (int tries = 0; tries < 100 && fd < 0; tries++) {
		snprintf(name, 64, TPCK_VIEW_TABLE ".%d.%u", tpck_sys_getpid(), atomic_fetch_add(&serial, 1));
		fd = tpck_sys_openat(folder, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (fd < 0 && errno != EEXIST)
			break;
	}
	return fd < 0 ? -errno : fd;
}

static int make_table(int folder)
{
	const struct timespec found_by = {0, 2 * TPCK_VIEW_LOOK_NS};
	struct tpck_unsignalled signals;
	struct tpck_view *view;
	char name[64];
	int fd, rc;

	fd = open_new(folder, name);
	if (fd < 0)
		return fd;
	tpck_unsignalled_begin(&signals);
	rc = tpck_sys_ftruncate(fd, sizeof *view) ? -errno : 0;
	tpck_unsignalled_end(&signals);
	view = rc ? MAP_FAILED : tpck_sys_mmap(NULL, sizeof *view, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	tpck_sys_close(fd);
	if (view == MAP_FAILED) {
		rc = rc ? rc : -errno;
	} else {
		rc = set_up(view);
		tpck_sys_munmap(view, sizeof *view);
	}
	/* link(2) rather than rename: the first one stays. */
	if (!rc && tpck_sys_linkat(folder, name, folder, TPCK_VIEW_TABLE, 0) && errno != EEXIST)
		rc = -errno;
	/* Until then there are processes that have looked for it and have not found it. */
	tpck_sys_nanosleep(&found_by, NULL);
	tpck_sys_unlinkat(folder, name, 0);
	return rc;
}

static __attribute__((noinline)) int make_all(int of_job)
{
	int folder = tpck_door_open(of_job, TPCK_VIEW_FOLDER, TPCK_DOOR_MAKE), rc;

	if (folder < 0)
		return folder;
	rc = make_table(folder);
	tpck_sys_close(folder);
	return rc;
}

/* The job's folder, by way of the memory tier's. */
static TPCK_AT_START int open_job(const char *job_folder, bool make)
{
	const char *slash = strrchr(job_folder, '/'), *job = slash ? slash + 1 : job_folder;
	char path[TPCK_VIEW_PATH];
	struct tpck_text text = tpck_text_in(path, sizeof path);
	int tier, of_job;

	tpck_text_bytes(&text, job_folder, slash ? (size_t)(slash - job_folder) : 0);
	if (text.cut || !*job)
		return -ENAMETOOLONG;
	tier = tpck_door_open(AT_FDCWD, slash ? path : ".", TPCK_DOOR_STICKY | (make ? TPCK_DOOR_MAKE | TPCK_DOOR_ABOVE : 0));
	if (tier < 0)
		return tier;
	of_job = tpck_door_open(tier, job, make ? TPCK_DOOR_MAKE : 0);
	tpck_sys_close(tier);
	return of_job;
}

/* The table's descriptor. */
static TPCK_AT_START int open_table(const char *job_folder, bool make)
{
	static const char name[] = TPCK_VIEW_FOLDER "/" TPCK_VIEW_TABLE;
	int of_job = open_job(job_folder, make), fd, rc = 0;

	if (of_job < 0)
		return of_job;
	fd = tpck_sys_openat(of_job, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0);
	if (fd < 0 && errno == ENOENT && make) {
		rc = make_all(of_job);
		if (!rc)
			fd = tpck_sys_openat(of_job, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0);
	}
	if (!rc && fd < 0)
		rc = -errno;
	tpck_sys_close(of_job);
	return rc ? rc : fd;
}

bool tpck_view_missing(const char *job_folder)
{
	static const char name[] = TPCK_VIEW_FOLDER "/" TPCK_VIEW_TABLE;
	int of_job = open_job(job_folder, true);
	bool missing = of_job >= 0 && tpck_sys_faccessat(of_job, name, F_OK) && errno == ENOENT;

	if (of_job >= 0)
		tpck_sys_close(of_job);
	return missing;
}

TPCK_AT_START int tpck_view_map(const char *job_folder, bool make, struct tpck_view **view)
{
	struct stat found;
	struct tpck_view *at;
	int fd = open_table(job_folder, make), rc;

	if (fd < 0)
		return fd;
	if (tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH) || found.st_uid != geteuid() || !S_ISREG(found.st_mode) ||
	    (uint64_t)found.st_size != sizeof *at) {
		tpck_sys_close(fd);
		return -EPROTO;
	}
	at = tpck_sys_mmap(NULL, sizeof *at, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	rc = at == MAP_FAILED ? -errno : 0;
	tpck_sys_close(fd);
	if (rc)
		return rc;
	if (at->magic != TPCK_VIEW_MAGIC || at->version != TPCK_WIRE_VERSION) {
		tpck_sys_munmap(at, sizeof *at);
		return -EPROTO;
	}
	*view = at;
	return 0;
}

void tpck_view_unmap(struct tpck_view *view)
{
	tpck_sys_munmap(view, sizeof *view);
}

bool tpck_view_has_root(const struct tpck_view *view)
{
	struct stat root;

	return !view->root_inode || tpck_sys_fstatat(AT_FDCWD, "/", &root, 0) || (root.st_dev == view->root_device && root.st_ino == view->root_inode);
}

/* ---- the lock --------------------------------------------------------------------------------- */

static uint32_t bucket_of(const struct tpck_view *view, const struct tpck_view_key *key)
{
	const struct tpck_view_folder *folder = &view->folder[key->folder];

	return (tpck_view_name_hash(key->name, strlen(key->name)) ^ (uint32_t)(folder->inode * 0x9e3779b1u)) %
	       TPCK_VIEW_BUCKETS;
}

static uint32_t filter_of(const struct tpck_view_key *key)
{
	return tpck_view_name_hash(key->name, strlen(key->name)) % TPCK_VIEW_FILTER;
}

static void link_in(struct tpck_view *view, struct tpck_view_entry *entry)
{
	uint32_t *head = &view->bucket[bucket_of(view, tpck_view_key_of(entry))];

	entry->next = *head;
	*head = (uint32_t)(entry - view->entry) + 1;
	atomic_fetch_add(&view->filter[filter_of(tpck_view_key_of(entry))], 1);
	view->folder[tpck_view_key_of(entry)->folder].used++;
}

static void take_out(struct tpck_view *view, struct tpck_view_entry *entry)
{
	uint32_t *place = &view->bucket[bucket_of(view, tpck_view_key_of(entry))];

	while (*place && *place != (uint32_t)(entry - view->entry) + 1)
		place = &view->entry[*place - 1].next;
	if (*place)
		*place = entry->next;
	atomic_fetch_sub(&view->filter[filter_of(tpck_view_key_of(entry))], 1);
	view->folder[tpck_view_key_of(entry)->folder].used--;
}

/* Added to what the filter counts while it is made again. */
enum { REPAIRED = 1 << 14 };

/* Everything that follows from the entries themselves is made again: the lock's holder died in the middle. */
static void repair(struct tpck_view *view)
{
	uint32_t used = 0;

	memset(view->bucket, 0, sizeof view->bucket);
	/* Who asks meanwhile whether there may be something by a name has to wait for the lock. */
	for (uint32_t i = 0; i < TPCK_VIEW_FILTER; i++)
		atomic_store(&view->filter[i], REPAIRED);
	/* Behind the first one that was never used there is none. */
	for (uint32_t i = 0; i < TPCK_VIEW_FOLDERS && view->folder[i].inode; i++)
		view->folder[i].used = 0;
	view->memory_bytes = 0;
	view->first_free = 0;
	for (uint32_t i = 0; i < TPCK_VIEW_ENTRIES && view->entry[i].serial; i++) {
		struct tpck_view_entry *entry = &view->entry[i];

		if (entry->state == TPCK_VIEW_FREE)
			continue;
		used++;
		link_in(view, entry);
		if (entry->kind == TPCK_VIEW_DIRECT)
			view->folder[entry->part_folder].used++;
		if (entry->kind == TPCK_VIEW_MEMORY)
			view->memory_bytes += entry->bytes;
		if (entry->seen > view->serial)
			view->serial = entry->seen;
		if (entry->order > view->order)
			view->order = entry->order;
	}
	atomic_store(&view->used, used);
	for (uint32_t i = 0; i < TPCK_VIEW_FILTER; i++)
		atomic_fetch_sub(&view->filter[i], REPAIRED);
}

static bool has_lock(struct tpck_view *view, int rc)
{
	if (rc == EOWNERDEAD) {
		repair(view);
		rc = pthread_mutex_consistent(&view->lock);
	}
	return rc == 0;
}

bool tpck_view_lock(struct tpck_view *view)
{
	return has_lock(view, pthread_mutex_lock(&view->lock));
}

bool tpck_view_lock_soon(struct tpck_view *view, bool *held)
{
	static _Atomic bool stuck;
	uint64_t limit = tpck_clock_monotonic_ns() + 1000000000u;
	int rc;

	/* pthread_mutex_timedlock() may be a hook. What this thread has itself is EDEADLK. */
	while ((rc = pthread_mutex_trylock(&view->lock)) == EBUSY && !atomic_load(&stuck)) {
		tpck_sys_clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){0, 200000}, NULL);
		atomic_store(&stuck, tpck_clock_monotonic_ns() > limit);
	}
	*held = rc == EBUSY;
	if (!*held)
		atomic_store(&stuck, false);
	return !*held && has_lock(view, rc);
}

void tpck_view_unlock(struct tpck_view *view)
{
	pthread_mutex_unlock(&view->lock);
}

/* ---- names ------------------------------------------------------------------------------------ */

uint32_t tpck_view_name_hash(const char *name, size_t length)
{
	return (uint32_t)tpck_digest64(name, length, 0);
}

void tpck_view_memory_name(char *path, size_t size, const char *job_folder, uint64_t serial)
{
	snprintf(path, size, "%s/" TPCK_VIEW_FOLDER "/%016llx", job_folder, (unsigned long long)serial);
}

void tpck_view_bytes(const struct tpck_view *view, const struct tpck_view_entry *entry, const char *job_folder, char *path,
		     size_t size)
{
	char part[64];

	if (entry->kind == TPCK_VIEW_MEMORY) {
		tpck_view_memory_name(path, size, job_folder, entry->serial);
		return;
	}
	tpck_view_part_name(part, entry->serial);
	snprintf(path, size, "%.*s/%s", (int)size - 70, view->folder[entry->part_folder].path, part);
}

void tpck_view_part_name(char name[64], uint64_t serial)
{
	snprintf(name, 64, TPCK_VIEW_PART "%016llx.part", (unsigned long long)serial);
}

uint64_t tpck_view_pattern(const char *folder, const char *name)
{
	const char *slash = strrchr(folder, '/'), *part[] = {slash ? slash + 1 : folder, "/", name};
	char text[2 * TPCK_VIEW_NAME + 2];
	size_t length = 0;

	for (size_t i = 0; i < 3; i++)
		for (const char *p = part[i]; *p && length < sizeof text; p++) {
			bool digit = *p >= '0' && *p <= '9';

			if (digit && length && text[length - 1] == '0')
				continue;
			text[length++] = digit ? '0' : *p;
		}
	return tpck_digest64(text, length, 1);
}

/* ---- waiting ---------------------------------------------------------------------------------- */

void tpck_view_tell(_Atomic uint32_t *futex)
{
	atomic_fetch_add(futex, 1);
	tpck_sys_futex(futex, FUTEX_WAKE, 0x7fffffff, NULL, NULL, 0);
}

void tpck_view_await(struct tpck_view *view, uint64_t order)
{
	uint64_t before = atomic_load(&view->awaited);

	while (before < order && !atomic_compare_exchange_weak(&view->awaited, &before, order))
		;
}

void tpck_view_wait(_Atomic uint32_t *futex, uint32_t seen, long ms)
{
	struct timespec limit = {ms / 1000, ms % 1000 * 1000000};

	tpck_sys_futex(futex, FUTEX_WAIT, seen, &limit, NULL, 0);
}

/* ---- processes -------------------------------------------------------------------------------- */

/* `alone`: it has ended once its first thread has. */
static uint64_t started(int32_t pid, bool alone)
{
	char path[64], text[512], *at;
	ssize_t got;
	bool ended;
	int fd;

	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	fd = tpck_sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return tpck_sys_kill(pid, 0) && errno == ESRCH ? 0 : TPCK_VIEW_STARTED_UNKNOWN;
	got = tpck_sys_read(fd, text, sizeof text - 1);
	if (got < 0 && errno != ESRCH)
		got = tpck_sys_kill(pid, 0) && errno == ESRCH ? 0 : -1;
	tpck_sys_close(fd);
	if (got <= 0)
		return got ? TPCK_VIEW_STARTED_UNKNOWN : 0;
	text[got] = '\0';
	/* Behind the command's name, which may hold anything: state is the 3rd field, num_threads the 20th, starttime the 22nd.
	 * One whose first thread has ended, or was quicker to be killed, is there as long as another one is. */
	at = strrchr(text, ')');
	if (!at || at[1] != ' ' || at[2] == 'X')
		return 0;
	ended = at[2] == 'Z';
	for (int field = 2; at && field < 22; field++) {
		at = strchr(at + 1, ' ');
		if (at && field + 1 == 20 && ended && (alone || strtoull(at + 1, NULL, 10) <= 1))
			return 0;
	}
	return at ? strtoull(at + 1, NULL, 10) + 2 : 0;
}

uint64_t tpck_view_process_started(int32_t pid)
{
	return started(pid, false);
}

bool tpck_view_agent_serves(int32_t pid)
{
	return started(pid, true) != 0;
}

struct tpck_view_holder *tpck_view_holder_of(struct tpck_view_entry *entry, int32_t pid, uint64_t started)
{
	struct tpck_view_holder *unused = NULL;

	for (unsigned i = 0; i < TPCK_VIEW_HOLDERS; i++) {
		if (entry->holder[i].pid == pid)
			return &entry->holder[i];
		if (!entry->holder[i].pid && !unused)
			unused = &entry->holder[i];
	}
	if (!started || !unused)
		return NULL;
	*unused = (struct tpck_view_holder){.started = started};
	unused->pid = pid;
	return unused;
}

void tpck_view_opening(struct tpck_view_holder *holder)
{
	holder->count++;
	holder->turns++;
	holder->opening++;
	holder->lingers = 0;
}

void tpck_view_opened(struct tpck_view *view, uint32_t index, uint64_t serial, int32_t pid)
{
	struct tpck_view_entry *entry = tpck_view_by_serial(view, index, serial);
	struct tpck_view_holder *holder = entry ? tpck_view_holder_of(entry, pid, 0) : NULL;

	if (holder && holder->opening)
		holder->opening--;
}

/* Where one of the two times is not known, whether there is a process of that number must do. */
static bool holder_lives(const struct tpck_view_holder *holder)
{
	uint64_t now = tpck_view_process_started(holder->pid);

	return now && (now == holder->started || now == TPCK_VIEW_STARTED_UNKNOWN || holder->started == TPCK_VIEW_STARTED_UNKNOWN);
}

/* False: nobody ends it any more; whoever began it died at once, or was killed. */
static bool lives(struct tpck_view_entry *entry)
{
	bool held = false, ended = false, killed = false;

	for (unsigned i = 0; i < TPCK_VIEW_HOLDERS; i++) {
		struct tpck_view_holder *holder = &entry->holder[i];

		if (!holder->pid)
			continue;
		if (holder_lives(holder)) {
			held = true;
			continue;
		}
		killed = killed || !holder->ending;
		ended = ended || holder->ending;
		holder->pid = 0;
	}
	return !killed && (held || ended);
}

bool tpck_view_held(const struct tpck_view_entry *entry)
{
	for (unsigned i = 0; i < TPCK_VIEW_HOLDERS; i++)
		if (entry->holder[i].pid)
			return true;
	return false;
}

void tpck_view_aside_name(char aside[TPCK_VIEW_NAME], const char *name)
{
	snprintf(aside, TPCK_VIEW_NAME, "%.*s" TPCK_VIEW_ASIDE, (int)(TPCK_VIEW_NAME - sizeof TPCK_VIEW_ASIDE), name);
}

/* Nobody will close it, but what was synced of it is to stay. Where something else is at its path, or may be, the job goes on seeing
 * that: whether the orphan is as whole as it was at its last sync, and so replaces it after all, is for the agent to find out, which
 * may wait for the disk. */
static void orphaned(struct tpck_view *view, struct tpck_view_entry *entry)
{
	const struct tpck_view_key *key = tpck_view_key_of(entry);
	const struct tpck_view_folder *folder = &view->folder[key->folder];
	char aside[TPCK_VIEW_NAME];
	bool moved = false;

	memset(entry->holder, 0, sizeof entry->holder);
	tpck_view_aside_name(aside, key->name);
	if (entry->over || tpck_view_versions(view, folder->device, folder->inode, key->name) > 1)
		moved = tpck_view_move(view, entry, folder->device, folder->inode, folder->path, aside);
	entry->orphan = moved ? TPCK_ORPHAN_ASIDE : TPCK_ORPHAN_HERE;
	tpck_view_close(view, entry);
}

bool tpck_view_sweep(struct tpck_view *view, const char *job_folder, char *lost)
{
	uint32_t left;
	bool dead;

	if (!tpck_view_lock(view))
		return false;
	left = view->used;
	for (uint32_t i = 0; left && i < TPCK_VIEW_ENTRIES; i++) {
		struct tpck_view_entry *entry = &view->entry[i];

		if (entry->state == TPCK_VIEW_FREE)
			continue;
		left--;
		if (entry->state != TPCK_VIEW_OPEN)
			continue;
		dead = !lives(entry);
		if (dead && entry->durable) {
			*lost = '\0';
			orphaned(view, entry);
			tpck_view_unlock(view);
			return true;
		}
		if (dead) {
			const struct tpck_view_key *key = tpck_view_key_of(entry);

			snprintf(lost, TPCK_VIEW_PATH + TPCK_VIEW_NAME, "%s/%s", view->folder[key->folder].path, key->name);
			tpck_view_discard(view, entry, job_folder);
			return true;
		}
		if (!tpck_view_held(entry))
			tpck_view_close(view, entry);
	}
	tpck_view_unlock(view);
	return false;
}

/* ---- entries ---------------------------------------------------------------------------------- */

static struct tpck_view_entry *newest(struct tpck_view *view, uint64_t device, uint64_t inode, const char *name,
				      unsigned *versions)
{
	uint32_t bucket = (tpck_view_name_hash(name, strlen(name)) ^ (uint32_t)(inode * 0x9e3779b1u)) % TPCK_VIEW_BUCKETS;
	struct tpck_view_entry *found = NULL;

	*versions = 0;
	for (uint32_t i = view->bucket[bucket]; i; i = view->entry[i - 1].next) {
		struct tpck_view_entry *entry = &view->entry[i - 1];
		const struct tpck_view_key *key = tpck_view_key_of(entry);
		const struct tpck_view_folder *folder = &view->folder[key->folder];

		if (folder->inode != inode || folder->device != device || strcmp(key->name, name) != 0)
			continue;
		++*versions;
		if (!found || entry->seen > found->seen)
			found = entry;
	}
	return found;
}

struct tpck_view_entry *tpck_view_find(struct tpck_view *view, uint64_t device, uint64_t inode, const char *name)
{
	unsigned versions;

	return newest(view, device, inode, name, &versions);
}

unsigned tpck_view_versions(const struct tpck_view *view, uint64_t device, uint64_t inode, const char *name)
{
	unsigned versions;

	(void)newest((struct tpck_view *)(uintptr_t)view, device, inode, name, &versions);
	return versions;
}

bool tpck_view_after_all(const struct tpck_view_entry *entry)
{
	return entry->kind == TPCK_VIEW_REMOVED || (entry->kind != TPCK_VIEW_PLAIN && tpck_rules_points(tpck_view_key_of(entry)->name));
}

struct tpck_view_entry *tpck_view_by_serial(struct tpck_view *view, uint32_t index, uint64_t serial)
{
	struct tpck_view_entry *entry = &view->entry[index];

	return entry->state != TPCK_VIEW_FREE && entry->serial == serial ? entry : NULL;
}

static uint32_t folder_of(struct tpck_view *view, uint64_t device, uint64_t inode, const char *path)
{
	uint32_t unused = TPCK_VIEW_FOLDERS;

	for (uint32_t i = 0; i < TPCK_VIEW_FOLDERS; i++) {
		struct tpck_view_folder *folder = &view->folder[i];

		if (folder->used && folder->inode == inode && folder->device == device)
			return i;
		if (!folder->used && unused == TPCK_VIEW_FOLDERS)
			unused = i;
		/* Never used: there is none behind it. */
		if (!folder->used && !folder->inode)
			break;
	}
	if (unused == TPCK_VIEW_FOLDERS || strlen(path) >= TPCK_VIEW_PATH)
		return TPCK_VIEW_FOLDERS;
	view->folder[unused].device = device;
	view->folder[unused].inode = inode;
	view->folder[unused].since_ns = tpck_clock_realtime_ns();
	strcpy(view->folder[unused].path, path);
	return unused;
}

static struct tpck_view_entry *unused_entry(struct tpck_view *view)
{
	for (uint32_t i = view->first_free; i < TPCK_VIEW_ENTRIES; i++)
		if (view->entry[i].state == TPCK_VIEW_FREE) {
			view->first_free = i + 1;
			return &view->entry[i];
		}
	view->first_free = TPCK_VIEW_ENTRIES;
	return NULL;
}

struct tpck_view_entry *tpck_view_add(struct tpck_view *view, uint64_t device, uint64_t inode, const char *path,
				      const char *name, enum tpck_view_kind kind)
{
	uint32_t folder = strlen(name) < TPCK_VIEW_NAME ? folder_of(view, device, inode, path) : TPCK_VIEW_FOLDERS;
	struct tpck_view_entry *entry = folder < TPCK_VIEW_FOLDERS ? unused_entry(view) : NULL;

	if (!entry)
		return NULL;
	memset(entry->holder, 0, sizeof entry->holder);
	entry->kind = kind;
	entry->which = 0;
	entry->key[0].folder = entry->part_folder = folder;
	strcpy(entry->key[0].name, name);
	entry->serial = entry->seen = ++view->serial;
	entry->pattern = 0;
	entry->order = entry->bytes = entry->synced = entry->sync_done = 0;
	entry->error = entry->sync_error = 0;
	entry->mapped = entry->changed = entry->linked = entry->at_close = 0;
	entry->until_sync = entry->goes_on = entry->over = entry->durable = entry->orphan = 0;
	entry->sync_bytes = TPCK_VIEW_UNSYNCED;
	entry->there = (struct tpck_view_there){0};
	entry->inode = 0;
	atomic_store(&entry->state, TPCK_VIEW_OPEN);
	link_in(view, entry);
	if (kind == TPCK_VIEW_DIRECT)
		view->folder[folder].used++;
	atomic_fetch_add(&view->used, 1);
	return entry;
}

struct tpck_view_there tpck_view_there_of(const struct stat *found)
{
	if (!found)
		return (struct tpck_view_there){.kind = TPCK_THERE_NOTHING};
	return (struct tpck_view_there){
		.kind = TPCK_THERE_FILE, .nanoseconds = (uint32_t)found->st_mtim.tv_nsec, .seconds = found->st_mtim.tv_sec,
		.inode = found->st_ino, .bytes = (uint64_t)found->st_size,
	};
}

struct tpck_view_entry *tpck_view_plain(struct tpck_view *view, uint64_t device, uint64_t folder_inode, const char *path, const char *name,
					uint64_t inode)
{
	struct tpck_view_entry *entry = tpck_view_add(view, device, folder_inode, path, "", TPCK_VIEW_PLAIN);

	if (!entry)
		return NULL;
	entry->inode = inode;
	entry->key[1].folder = entry->key[0].folder;
	snprintf(entry->key[1].name, sizeof entry->key[1].name, "%s", name);
	tpck_view_close(view, entry);
	return entry;
}

bool tpck_view_move(struct tpck_view *view, struct tpck_view_entry *entry, uint64_t device, uint64_t inode,
		    const char *path, const char *name)
{
	uint32_t folder = strlen(name) < TPCK_VIEW_NAME ? folder_of(view, device, inode, path) : TPCK_VIEW_FOLDERS;
	struct tpck_view_key *other = &entry->key[(entry->which & 1) ^ 1];
	uint32_t before, after;

	if (folder == TPCK_VIEW_FOLDERS)
		return false;
	other->folder = folder;
	strcpy(other->name, name);
	/* Who asks meanwhile, without the lock, is to see it by one of its names. */
	before = filter_of(tpck_view_key_of(entry));
	after = filter_of(other);
	atomic_fetch_add(&view->filter[after], 1);
	atomic_fetch_add(&view->filter[before], 1);
	take_out(view, entry);
	entry->seen = ++view->serial;
	entry->orphan = TPCK_ORPHAN_NOT;
	atomic_store(&entry->which, entry->which ^ 1);
	link_in(view, entry);
	atomic_fetch_sub(&view->filter[before], 1);
	atomic_fetch_sub(&view->filter[after], 1);
	return true;
}

void tpck_view_remove(struct tpck_view *view, struct tpck_view_entry *entry)
{
	uint32_t index = (uint32_t)(entry - view->entry);

	if (entry->kind == TPCK_VIEW_MEMORY)
		view->memory_bytes -= entry->bytes;
	if (entry->kind == TPCK_VIEW_DIRECT)
		view->folder[entry->part_folder].used--;
	take_out(view, entry);
	atomic_store(&entry->state, TPCK_VIEW_FREE);
	if (index < view->first_free)
		view->first_free = index;
	atomic_fetch_sub(&view->used, 1);
}

void tpck_view_discard(struct tpck_view *view, struct tpck_view_entry *entry, const char *job_folder)
{
	char bytes[TPCK_VIEW_PATH + 80], synced[TPCK_VIEW_PATH + 80] = "", part[64];

	tpck_view_bytes(view, entry, job_folder, bytes, sizeof bytes);
	/* The agent may have copied it, or be at it. */
	if (entry->kind == TPCK_VIEW_MEMORY) {
		tpck_view_part_name(part, entry->serial);
		snprintf(synced, sizeof synced, "%s/%s", view->folder[tpck_view_key_of(entry)->folder].path, part);
	}
	tpck_view_remove(view, entry);
	tpck_view_unlock(view);
	tpck_sys_unlinkat(AT_FDCWD, bytes, 0);
	if (*synced)
		tpck_sys_unlinkat(AT_FDCWD, synced, 0);
}

void tpck_view_close(struct tpck_view *view, struct tpck_view_entry *entry)
{
	entry->order = ++view->order;
	atomic_store(&entry->state, TPCK_VIEW_CLOSED);
}

void tpck_view_synced(struct tpck_view_entry *entry, const struct stat *found)
{
	entry->durable = 1;
	entry->sync_bytes = found ? (uint64_t)found->st_size : TPCK_VIEW_UNSYNCED;
	entry->sync_seconds = found ? found->st_ctim.tv_sec : 0;
	entry->sync_nanoseconds = found ? (uint32_t)found->st_ctim.tv_nsec : 0;
}

/* ---- sizes ------------------------------------------------------------------------------------ */

uint64_t tpck_view_size_of(const struct tpck_view *view, uint64_t pattern)
{
	const struct tpck_view_size *size = &view->size[pattern % TPCK_VIEW_SIZES];

	return size->pattern == pattern ? size->bytes : UINT64_MAX;
}

void tpck_view_size_note(struct tpck_view *view, uint64_t pattern, uint64_t bytes)
{
	view->size[pattern % TPCK_VIEW_SIZES] = (struct tpck_view_size){pattern, bytes};
}
