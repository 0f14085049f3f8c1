/* SPDX-License-Identifier: Apache-2.0 */
/* Stashes: from memory into the store. */
#include "config.h"

#include "agent/durable/stasher.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/digest.h"
#include "runtime/base/lock_order.h"
#include "runtime/base/log.h"
#include "runtime/store/file.h"
#include "runtime/store/memory_tier.h"
#include "runtime/wire/segment.h"

/* How often memory is looked through for some that are full; while there are such. */
#define LOOK_NS 1000000000ull
#define BUSY_NS 100000000ull
/* A twentieth of the disk stays free. */
enum { FREE_PART = 20 };

struct moving {
	char memory[TPCK_PATH_MAX], store[TPCK_PATH_MAX]; /* folders, as they are said */
	int from, to;      /* and as they are reached: who may rename the job's folder in the store does not lead elsewhere */
	uint64_t stored, limit;
	bool all;          /* those that are not full, too */
	bool forgets;      /* the oldest go where there is no room */
	bool changed;      /* something has come to the store */
	void *piece;
	struct tpck_error error;
};

static int header_of(int fd, struct tpck_stash_header *header)
{
	if (pread(fd, header, sizeof *header, 0) != (ssize_t)sizeof *header)
		return -ENODATA;
	return header->magic == TPCK_STASH_MAGIC && header->version == TPCK_WIRE_VERSION ? 0 : -EBADMSG;
}

static bool is_full(const struct tpck_stash_header *header)
{
	return atomic_load(&header->state) == TPCK_STASH_FULL && !atomic_load(&header->awaited);
}

static int write_all(int fd, const void *bytes, uint64_t size, uint64_t at)
{
	for (uint64_t done = 0; done < size;) {
		ssize_t put = pwrite(fd, (const char *)bytes + done, size - done, (off_t)(at + done));

		if (put <= 0 && !(put && errno == EINTR))
			return put ? -errno : -EIO;
		if (put > 0)
			done += (uint64_t)put;
	}
	return 0;
}

static int copy_bytes(struct moving *moving, int from, int to, struct tpck_stash_header *header)
{
	uint64_t used = atomic_load(&header->used), digest = header->number;
	int rc = 0;

	for (uint64_t at = TPCK_STASH_AT; at < used && !rc; at += TPCK_STASH_PIECE) {
		uint64_t bytes = used - at < TPCK_STASH_PIECE ? used - at : TPCK_STASH_PIECE;
		ssize_t got = pread(from, moving->piece, bytes, (off_t)at);

		/* A piece that is awaited may not have its pages yet; then they are holes. */
		if (got != (ssize_t)bytes)
			return got < 0 ? -errno : -ENODATA;
		digest = tpck_digest64(moving->piece, bytes, digest);
		rc = write_all(to, moving->piece, bytes, at);
	}
	header->digest = digest;
	if (!rc)
		rc = write_all(to, header, sizeof *header, 0);
	return rc ? rc : fsync(to) ? -errno : 0;
}

/* Whether the first of two names is of an earlier stash. */
static bool is_before(const char *a, const char *b)
{
	char *rest_a, *rest_b;
	uint64_t of_a = strtoull(a, &rest_a, 10), of_b = strtoull(b, &rest_b, 10);

	return of_a != of_b ? of_a < of_b : strtoull(rest_a + 1, NULL, 10) < strtoull(rest_b + 1, NULL, 10);
}

static DIR *list_of(int folder)
{
	int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *list = fd < 0 ? NULL : fdopendir(fd);

	if (!list && fd >= 0)
		close(fd);
	return list;
}

/* The oldest go, as TRANSPCKPT_RECORD_FULL says, until there is room. False: there is none of them. */
static bool forget_oldest(struct moving *moving)
{
	DIR *list = list_of(moving->to);
	char oldest[256] = "";
	struct dirent *entry;
	struct stat found;
	bool gone;

	while (list && (entry = readdir(list)))
		if (tpck_stash_is_name(entry->d_name) && (!*oldest || is_before(entry->d_name, oldest)))
			snprintf(oldest, sizeof oldest, "%s", entry->d_name);
	gone = *oldest && !fstatat(dirfd(list), oldest, &found, 0) && !unlinkat(dirfd(list), oldest, 0);
	if (gone)
		moving->stored -= (uint64_t)found.st_size < moving->stored ? (uint64_t)found.st_size : moving->stored;
	if (list)
		closedir(list);
	return gone;
}

/* Whether there may be so much more in the store. */
static int room(struct moving *moving, uint64_t bytes)
{
	struct statvfs disk;
	uint64_t left;

	if (moving->stored + bytes > moving->limit)
		return tpck_error_set(&moving->error, 0, "what the program reads back from the device has come to TRANSPCKPT_RECORD_DISK");
	if (fstatvfs(moving->to, &disk))
		return tpck_error_set(&moving->error, errno, "putting what the program reads back into %s", moving->store);
	left = (uint64_t)disk.f_bavail * disk.f_frsize;
	if (left < bytes + (uint64_t)disk.f_blocks * disk.f_frsize / FREE_PART)
		return tpck_error_set(&moving->error, ENOSPC, "putting what the program reads back into %s", moving->store);
	return 0;
}

/* A copy has its name when it is whole. */
static int put(struct moving *moving, int from, struct tpck_stash_header *header, const char *name)
{
	char making[300];
	int rc, to;

	snprintf(making, sizeof making, ".%s.part", name);
	while ((rc = room(moving, atomic_load(&header->used))) && moving->forgets && forget_oldest(moving))
		;
	if (rc)
		return rc;
	to = openat(moving->to, making, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	rc = to < 0 ? -errno : copy_bytes(moving, from, to, header);
	if (to >= 0)
		close(to);
	if (!rc && renameat(moving->to, making, moving->to, name))
		rc = -errno;
	if (rc) {
		unlinkat(moving->to, making, 0);
		return tpck_error_set(&moving->error, -rc, "putting what the program reads back into %s", moving->store);
	}
	moving->stored += atomic_load(&header->used);
	moving->changed = true;
	return 0;
}

/* Whether the store has as much of it. */
static bool stored(const struct moving *moving, const struct tpck_stash_header *header, const char *name)
{
	struct tpck_stash_header there;
	bool same;
	int fd = openat(moving->to, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return false;
	same = !header_of(fd, &there) && there.generation == header->generation && there.number == header->number &&
	       atomic_load(&there.used) == atomic_load(&header->used) && (is_full(&there) || !is_full(header));
	close(fd);
	return same;
}

static int sync_store(struct moving *moving)
{
	return fsync(moving->to) ? tpck_error_set(&moving->error, errno, "syncing %s", moving->store) : 0;
}

static int move_one(struct moving *moving, const char *name)
{
	struct tpck_stash_header header;
	bool full;
	int fd = openat(moving->from, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC), rc;

	if (fd < 0)
		return 0;
	rc = header_of(fd, &header);
	full = !rc && is_full(&header);
	if (rc || (!full && !moving->all)) {
		close(fd);
		return 0;
	}
	if (!stored(moving, &header, name))
		rc = put(moving, fd, &header, name);
	close(fd);
	if (!rc && full) {
		/* The copy's name survives a crash before the memory goes. */
		rc = moving->changed ? sync_store(moving) : 0;
		if (!rc)
			unlinkat(moving->from, name, 0);
	}
	return rc;
}

static int folders(const struct tpck_program *program, char *memory, char *store)
{
	char keep[64];

	snprintf(keep, sizeof keep, TPCK_STASH_STORE "/%s", program->id);
	if (snprintf(memory, TPCK_PATH_MAX, "%s/" TPCK_STASH_FOLDER "/%s", home.folder, program->id) >= TPCK_PATH_MAX)
		return -ENAMETOOLONG;
	return tpck_tier_path(home.tier, keep, store, TPCK_PATH_MAX, NULL);
}

/* What of it the store has, by the list of its folder. */
static uint64_t sum_of(int folder)
{
	char path[40];

	snprintf(path, sizeof path, "/proc/self/fd/%d", folder);
	return tpck_stash_sum(path);
}

int stash_store(const struct tpck_program *program, struct tpck_error *err)
{
	int root = tpck_tier_folder(home.tier, err), keep, folder = -1;

	if (root < 0)
		return root;
	(void)mkdirat(root, TPCK_STASH_STORE, 0700);
	keep = openat(root, TPCK_STASH_STORE, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (keep >= 0) {
		(void)mkdirat(keep, program->id, 0700);
		folder = openat(keep, program->id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	}
	if (folder < 0)
		tpck_error_set(err, errno, "opening %s/" TPCK_STASH_STORE "/%s", home.tier->root, program->id);
	if (keep >= 0)
		close(keep);
	close(root);
	return folder < 0 ? -EIO : folder;
}

/* Once. */
static int open_store(struct moving *moving, const struct tpck_program *program)
{
	if (moving->to >= 0)
		return 0;
	moving->to = stash_store(program, &moving->error);
	if (moving->to < 0)
		return moving->to;
	moving->stored = sum_of(moving->to);
	return 0;
}

/* The flusher waits for what the stasher is at, and the other way round. */
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

/* With its turn. */
static void move_in_turn(const struct tpck_program *program, bool all)
{
	static char said[sizeof ((struct tpck_error *)0)->text];
	struct moving moving = {.limit = home.settings.record_disk, .forgets = home.settings.record_full[0] == 'f', .all = all, .to = -1};
	struct dirent *entry;
	DIR *list;
	int rc = 0;

	if (folders(program, moving.memory, moving.store))
		return;
	list = opendir(moving.memory);
	if (!list)
		return;
	moving.from = dirfd(list);
	moving.piece = malloc(TPCK_STASH_PIECE);
	while (moving.piece && !rc && (entry = readdir(list)))
		if (tpck_stash_is_name(entry->d_name)) {
			rc = open_store(&moving, program);
			if (!rc)
				rc = move_one(&moving, entry->d_name);
		}
	if (!rc && moving.changed && all)
		rc = sync_store(&moving);
	closedir(list);
	free(moving.piece);
	if (moving.to >= 0)
		close(moving.to);
	if (rc && strcmp(said, moving.error.text) != 0) {
		snprintf(said, sizeof said, "%s", moving.error.text);
		tpck_log_warn("%s; it stays in memory, and where that goes snapshots cannot be resumed", moving.error.text);
	}
}

static void move(const struct tpck_program *program, bool all)
{
	pthread_mutex_lock(&turn);
	move_in_turn(program, all);
	pthread_mutex_unlock(&turn);
}

void stash_settle(const struct tpck_program *program)
{
	if (program)
		move(program, true);
}

void stash_remove(const struct tpck_program *program)
{
	char memory[TPCK_PATH_MAX], store[TPCK_PATH_MAX], keep[64];

	if (folders(program, memory, store))
		return;
	/* Whoever moves some is at the last one then, which would come to the store behind this. */
	(void)tpck_folder_remove(memory);
	snprintf(keep, sizeof keep, TPCK_STASH_STORE "/%s", program->id);
	pthread_mutex_lock(&turn);
	(void)tpck_folder_remove(memory);
	(void)home.tier->operations->remove(home.tier, keep, NULL);
	pthread_mutex_unlock(&turn);
}

/* ---- the event loop's part ---------------------------------------------------------------- */

struct stash_job {
	struct job job; /* first */
	struct tpck_program *program;
};

static struct {
	struct worker worker;
	bool busy;
	uint64_t look_ns;      /* when it is looked next */
} stasher;

static void stash_run(struct job *job)
{
	struct stash_job *stash = (struct stash_job *)job;

	move(stash->program, false);
}

static void stash_done(struct agent *agent, struct job *job)
{
	(void)agent;
	loop.jobs--;
	stasher.busy = false;
	stasher.look_ns = tpck_clock_monotonic_ns() + BUSY_NS;
	free(job);
}

static bool any_full(const char *folder)
{
	DIR *list = opendir(folder);
	struct tpck_stash_header header;
	struct dirent *entry;
	bool any = false;

	while (list && !any && (entry = readdir(list))) {
		int fd = tpck_stash_is_name(entry->d_name) ? openat(dirfd(list), entry->d_name, O_RDONLY | O_CLOEXEC) : -1;

		any = fd >= 0 && !header_of(fd, &header) && is_full(&header);
		if (fd >= 0)
			close(fd);
	}
	if (list)
		closedir(list);
	return any;
}

static bool any_stashes(const struct agent *agent)
{
	char path[TPCK_PATH_MAX + 16];

	snprintf(path, sizeof path, "%s/" TPCK_STASH_FOLDER, home.folder);
	return agent->lives && access(path, F_OK) == 0;
}

static void consider(struct agent *agent)
{
	uint64_t now = tpck_clock_monotonic_ns();
	char memory[TPCK_PATH_MAX], store[TPCK_PATH_MAX];

	if (now < stasher.look_ns)
		return;
	stasher.look_ns = now + LOOK_NS;
	if (stasher.busy || !any_stashes(agent))
		return;
	for (struct live *live = agent->lives; live && !stasher.busy; live = live->next) {
		struct stash_job *stash;

		if (!live->program || folders(live->program, memory, store) || !any_full(memory))
			continue;
		stash = calloc(1, sizeof *stash);
		if (!stash)
			return;
		*stash = (struct stash_job){{stash_run, stash_done, NULL}, live->program};
		stasher.busy = true;
		loop.jobs++;
		worker_give(&stasher.worker, &stash->job);
	}
}

static uint64_t deadline(const struct agent *agent)
{
	return any_stashes(agent) ? stasher.look_ns : UINT64_MAX;
}

static int begin(struct agent *agent, struct tpck_error *err)
{
	(void)agent;
	(void)err;
	return worker_start(&stasher.worker);
}

static void stop(struct agent *agent)
{
	(void)agent;
	worker_stop(&stasher.worker);
}

const struct loop_part stash_loop = {.begin = begin, .consider = consider, .deadline = deadline, .stop = stop};
