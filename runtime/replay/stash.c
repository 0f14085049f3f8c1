/* SPDX-License-Identifier: Apache-2.0 */
/* Stashes: making them in memory, and reading them from there or the store. */
#include "config.h"

#include "runtime/base/kernel.h"
#include "runtime/base/lock_order.h"
#include "runtime/replay/stash.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/cgroup.h"
#include "runtime/base/digest.h"
#include "runtime/base/door.h"
#include "runtime/base/layout.h"
#include "runtime/base/undumped.h"
#include "runtime/base/unsignalled.h"
#include "runtime/track/threads.h"
#include "runtime/wire/segment.h"

enum { FILE_BYTES = 16 << 20, PARTS = 8, ALIGN = 64, FOLDER = 1200, PATHS = FOLDER + 64, FILES = 4096, GENERATIONS = 256 };

/* One that this process has made and that may be in memory still. */
struct file {
	uint64_t number, bytes, used;
	struct tpck_stash_header *map;  /* NULL: nobody writes it any more */
};

/* Of a folder of stashes below SHM/JOB or STORE/JOB, for tpck_door_file(). */
enum { NAMES = 2 };

static tpck_spin lock;
static struct {
	char memory[FOLDER], store[FOLDER];
	uint64_t generation, next, limit, outstanding;
	uint32_t count;         /* of files; the last is the one that pieces go to */
	struct file file[FILES];
} made TPCK_LARGE;

static void name_of(char *path, const char *folder, uint64_t generation, uint64_t number)
{
	snprintf(path, PATHS, "%s/%llu.%llu", folder, (unsigned long long)generation, (unsigned long long)number);
}

void tpck_stash_folders(const char *memory, const char *store)
{
	snprintf(made.memory, sizeof made.memory, "%s", memory ? memory : "");
	snprintf(made.store, sizeof made.store, "%s", store ? store : "");
}

void tpck_stash_limit(uint64_t bytes)
{
	made.limit = bytes;
}

/* Calls with the generation and number of each stash in a folder. */
static void each_in(const char *path, void (*call)(int folder, const char *name, uint64_t generation, uint64_t number))
{
	int folder = *path ? tpck_door_file(path, NAMES, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0) : -1;
	char buffer[8192], *end;
	ssize_t got;

	if (folder < 0)
		return;
	while ((got = tpck_sys_getdents(folder, buffer, sizeof buffer)) > 0)
		for (char *at = buffer; at < buffer + got; at += ((struct dirent64 *)at)->d_reclen) {
			const char *name = ((struct dirent64 *)at)->d_name;
			uint64_t generation = strtoull(name, &end, 10);

			if (*name < '0' || *name > '9' || *end != '.' || end[1] < '0' || end[1] > '9')
				continue;
			call(folder, name, generation, strtoull(end + 1, NULL, 10));
		}
	tpck_sys_close(folder);
}

static void remove_one(int folder, const char *name, uint64_t generation, uint64_t number)
{
	(void)generation;
	(void)number;
	tpck_sys_unlinkat(folder, name, 0);
}

void tpck_stash_clear(void)
{
	char *slash = strrchr(made.memory, '/');

	if (!slash)
		return;
	*slash = '\0';
	tpck_sys_mkdirat(AT_FDCWD, made.memory, 0700);
	*slash = '/';
	if (tpck_sys_mkdirat(AT_FDCWD, made.memory, 0700) && errno == EEXIST)
		each_in(made.memory, remove_one);
}

void tpck_stash_begin(uint64_t generation)
{
	made.generation = generation;
}

/* ---- making them ---------------------------------------------------------------------------------- */

static uint64_t rounded(uint64_t bytes)
{
	return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Nobody writes it any more once all bytes of it have come. Called with the lock held. */
static void let_go(struct file *file)
{
	if (file->map && atomic_load(&file->map->state) == TPCK_STASH_FULL && !atomic_load(&file->map->awaited)) {
		tpck_sys_munmap(file->map, file->bytes);
		file->map = NULL;
	}
}

/* What the agent has taken to the store does not count. Called with the lock held. */
static void forget_gone(void)
{
	uint32_t left = 0;
	char path[PATHS];

	for (uint32_t i = 0; i < made.count; i++) {
		struct file *file = &made.file[i];

		let_go(file);
		name_of(path, made.memory, made.generation, file->number);
		if (!file->map && tpck_sys_faccessat(AT_FDCWD, path, F_OK))
			made.outstanding -= file->used;
		else
			made.file[left++] = *file;
	}
	made.count = left;
}

static bool memory_has(uint64_t bytes)
{
	struct tpck_cgroup group;
	struct tpck_cgroup_room room;

	(void)tpck_cgroup_of("", 0, &group);
	room = tpck_cgroup_room("", &group);
	return tpck_cgroup_has(&room, bytes);
}

/* Another file, with room for a piece of so many bytes. Called with the lock held. */
static const char *next_file(uint64_t need)
{
	uint64_t bytes = made.limit / PARTS < FILE_BYTES ? made.limit / PARTS : FILE_BYTES;
	struct tpck_stash_header *map;
	struct tpck_unsignalled signals;
	struct file *last = made.count ? &made.file[made.count - 1] : NULL;
	char path[PATHS];
	int fd, failed;

	if (bytes < need + TPCK_STASH_AT)
		bytes = need + TPCK_STASH_AT;
	bytes = (bytes + 4095) / 4096 * 4096;
	if (last && last->map)
		atomic_store(&last->map->state, TPCK_STASH_FULL);
	if (made.outstanding + need > made.limit || made.count == FILES || made.count % 64 == 63)
		forget_gone();
	else if (last)
		let_go(last);
	if (made.outstanding + need > made.limit || made.count == FILES)
		return "what the program has read back from the device waits for the store, and is more than memory may have of it; TRANSPCKPT_RECORD_DISK or TRANSPCKPT_LOG_BYTES may be too small";
	if (!memory_has(bytes))
		return "what the program has read back from the device has no room in memory";
	name_of(path, made.memory, made.generation, made.next);
	fd = tpck_sys_openat(AT_FDCWD, path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return "what the program has read back from the device has no place in the memory tier";
	tpck_unsignalled_begin(&signals);
	failed = tpck_sys_ftruncate(fd, (off_t)bytes) || tpck_sys_fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, TPCK_STASH_AT);
	tpck_unsignalled_end(&signals);
	map = failed ? MAP_FAILED : tpck_undumped(tpck_sys_mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), bytes);
	tpck_sys_close(fd);
	if (map == MAP_FAILED) {
		tpck_sys_unlinkat(AT_FDCWD, path, 0);
		return "what the program has read back from the device has no room in the memory tier";
	}
	map->version = TPCK_WIRE_VERSION;
	map->generation = made.generation;
	map->number = made.next;
	atomic_store(&map->used, TPCK_STASH_AT);
	atomic_thread_fence(memory_order_release);
	map->magic = TPCK_STASH_MAGIC;
	made.file[made.count++] = (struct file){made.next++, bytes, 0, map};
	return NULL;
}

/* Room for a piece, of which nothing has come yet. */
static const char *reserve(size_t size, struct tpck_record_stashed *where, struct tpck_stash_header **map)
{
	const char *why = NULL;
	struct file *file;

	*map = NULL;
	if (!made.memory[0] || !made.generation)
		return "what the program reads back from the device has no place";
	tpck_spin_lock(&lock);
	file = made.count ? &made.file[made.count - 1] : NULL;
	if (!file || !file->map || atomic_load(&file->map->used) + rounded(size) > file->bytes)
		why = next_file(rounded(size));
	if (!why) {
		file = &made.file[made.count - 1];
		*map = file->map;
		*where = (struct tpck_record_stashed){size, made.generation, file->number, atomic_load(&file->map->used)};
		atomic_fetch_add(&file->map->awaited, 1);
		atomic_store(&file->map->used, where->offset + rounded(size));
		file->used += rounded(size);
		made.outstanding += rounded(size);
	}
	tpck_spin_unlock(&lock);
	return why;
}

void tpck_stash_came(const struct tpck_record_stashed *where)
{
	tpck_spin_lock(&lock);
	for (uint32_t i = made.count; i-- > 0;)
		if (made.file[i].number == where->number && made.file[i].map && made.generation == where->generation) {
			atomic_fetch_sub(&made.file[i].map->awaited, 1);
			break;
		}
	tpck_spin_unlock(&lock);
}

/* A page that tmpfs cannot give is an error here, and SIGBUS in a mapping. */
static int write_at(const struct tpck_record_stashed *where, const void *bytes)
{
	struct tpck_unsignalled signals;
	char path[PATHS];
	int fd, rc = 0;

	name_of(path, made.memory, where->generation, where->number);
	fd = tpck_sys_openat(AT_FDCWD, path, O_WRONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	tpck_unsignalled_begin(&signals);
	for (uint64_t done = 0; done < where->bytes && !rc;) {
		ssize_t put = tpck_sys_pwrite(fd, (const char *)bytes + done, where->bytes - done, where->offset + done);

		if (put > 0)
			done += (uint64_t)put;
		else if (!put || errno != EINTR)
			rc = put ? -errno : -ENOSPC;
	}
	tpck_unsignalled_end(&signals);
	tpck_sys_close(fd);
	return rc;
}

static const char no_room[] = "what the program has read back from the device has no room in the memory tier";

const char *tpck_stash_put(const void *bytes, size_t size, struct tpck_record_stashed *where)
{
	struct tpck_stash_header *map;
	int saved = errno;
	const char *why = reserve(size, where, &map);

	if (!why && write_at(where, bytes))
		why = no_room;
	if (map)
		tpck_stash_came(where);
	errno = saved;
	return why;
}

const char *tpck_stash_room(size_t size, struct tpck_record_stashed *where, void **piece)
{
	struct tpck_unsignalled signals;
	struct tpck_stash_header *map;
	int saved = errno, fd;
	const char *why = reserve(size, where, &map);
	char path[PATHS];

	if (!why) {
		*piece = (char *)map + where->offset;
		name_of(path, made.memory, where->generation, where->number);
		fd = tpck_sys_openat(AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
		tpck_unsignalled_begin(&signals);
		if (fd < 0 || tpck_sys_fallocate(fd, 0, (off_t)where->offset, (off_t)size))
			why = no_room;
		tpck_unsignalled_end(&signals);
		if (fd >= 0)
			tpck_sys_close(fd);
		if (why)
			tpck_stash_came(where);
	}
	errno = saved;
	return why;
}

/* ---- reading them --------------------------------------------------------------------------------- */

/* What the log refers to, by generation: the last number. */
static struct {
	uint64_t generation, last;
} referred[GENERATIONS] TPCK_LARGE;
static uint32_t referred_count;

/* The one that was looked into last, as threads read what lies behind one another. */
static struct {
	uint64_t generation, number, used;
	bool good;
} looked;

static bool forgives;
static uint64_t forgotten;

void tpck_stash_forgive(void)
{
	forgives = true;
}

uint64_t tpck_stash_forgotten(void)
{
	return forgotten;
}

static bool header_is(const struct tpck_stash_header *header, const struct tpck_record_stashed *where)
{
	return header->magic == TPCK_STASH_MAGIC && header->version == TPCK_WIRE_VERSION && header->generation == where->generation &&
	       header->number == where->number;
}

/* A descriptor of the file that has these bytes, in memory or the store; *stored: it is the store's. -errno. */
static int open_at(const struct tpck_record_stashed *where, struct tpck_stash_header *header, bool *stored)
{
	const char *const folders[] = {made.memory, made.store};
	char path[PATHS];
	int fd;

	for (int i = 0; i < 2; i++) {
		if (!folders[i][0])
			continue;
		name_of(path, folders[i], where->generation, where->number);
		fd = tpck_door_file(path, NAMES + 1, TPCK_DOOR_READ, 0);
		if (fd < 0)
			continue;
		*stored = i == 1;
		if (tpck_sys_pread(fd, header, sizeof *header, 0) == (long)sizeof *header && header_is(header, where) &&
		    where->offset + where->bytes <= atomic_load(&header->used))
			return fd;
		tpck_sys_close(fd);
	}
	return -ENODATA;
}

static int read_at(int fd, void *to, uint64_t bytes, uint64_t offset)
{
	ssize_t got = tpck_sys_pread_full(fd, to, bytes, (off_t)offset);

	return got < 0 ? -errno : (uint64_t)got < bytes ? -ENODATA : 0;
}

bool tpck_stash_refers(const struct tpck_record_stashed *where)
{
	struct tpck_stash_header header;
	bool stored;
	int fd;

	if (where->offset < TPCK_STASH_AT || where->offset + where->bytes < where->offset)
		return false;
	if (looked.generation != where->generation || looked.number != where->number || where->offset + where->bytes > looked.used) {
		fd = open_at(where, &header, &stored);
		if (fd < 0) {
			forgotten += forgives ? where->bytes : 0;
			return forgives;
		}
		tpck_sys_close(fd);
		looked.generation = where->generation;
		looked.number = where->number;
		looked.used = atomic_load(&header.used);
		looked.good = false;
	}
	for (uint32_t i = 0; i < referred_count; i++)
		if (referred[i].generation == where->generation) {
			if (where->number > referred[i].last)
				referred[i].last = where->number;
			return true;
		}
	if (referred_count < GENERATIONS) {
		referred[referred_count].generation = where->generation;
		referred[referred_count++].last = where->number;
	}
	return true;
}

/* What lies on a disk may have rotted. */
static int check(int fd, const struct tpck_stash_header *header)
{
	uint64_t used = atomic_load(&header->used), digest = header->number;
	void *piece = malloc(TPCK_STASH_PIECE);
	int rc = piece ? 0 : -ENOMEM;

	for (uint64_t at = TPCK_STASH_AT; at < used && !rc; at += TPCK_STASH_PIECE) {
		uint64_t bytes = used - at < TPCK_STASH_PIECE ? used - at : TPCK_STASH_PIECE;

		rc = read_at(fd, piece, bytes, at);
		if (!rc)
			digest = tpck_digest64(piece, bytes, digest);
	}
	free(piece);
	return rc ? rc : digest == header->digest ? 0 : -EBADMSG;
}

int tpck_stash_get(const struct tpck_record_stashed *where, void *to)
{
	static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
	struct tpck_stash_header header;
	bool stored;
	int fd, rc = 0;

	pthread_mutex_lock(&one);
	fd = open_at(where, &header, &stored);
	if (fd < 0 && fd == -ENODATA && forgives) {
		pthread_mutex_unlock(&one);
		memset(to, 0, where->bytes);
		return 0;
	}
	if (fd < 0)
		rc = fd;
	if (!rc && stored && !(looked.good && looked.generation == where->generation && looked.number == where->number)) {
		rc = check(fd, &header);
		looked.generation = where->generation;
		looked.number = where->number;
		looked.used = atomic_load(&header.used);
		looked.good = !rc;
	}
	if (!rc)
		rc = read_at(fd, to, where->bytes, where->offset);
	if (fd >= 0)
		tpck_sys_close(fd);
	pthread_mutex_unlock(&one);
	return rc;
}

static void remove_unreferred(int folder, const char *name, uint64_t generation, uint64_t number)
{
	if (generation == made.generation)
		return;
	for (uint32_t i = 0; i < referred_count; i++)
		if (referred[i].generation == generation && number <= referred[i].last)
			return;
	tpck_sys_unlinkat(folder, name, 0);
}

void tpck_stash_settle(void)
{
	if (referred_count == GENERATIONS)
		return;
	each_in(made.memory, remove_unreferred);
	each_in(made.store, remove_unreferred);
}
