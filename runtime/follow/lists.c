/* SPDX-License-Identifier: Apache-2.0 */
/* Lists that are kept beside the versions: what a run made, changed and linked elsewhere. */
#include "config.h"

#include "runtime/base/door.h"
#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/follow/follow.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/base/unsignalled.h"
#include "runtime/follow/follow_private.h"

enum { PATH_SIZE = TPCK_FOLLOW_PATH };

static uint64_t timeline_now;

/* Paths that came to be before there was a place for lists, each with its NUL. Without a lock: a child of a fork comes here too. */
enum { WAITING = 64 << 10, WAITED = 1 << 24 };
static char waiting[WAITING] TPCK_LARGE;
static _Atomic uint32_t waiting_bytes; /* WAITED or more: there is a place by now */

TPCK_AT_START void tpck_lists_of(uint64_t timeline)
{
	timeline_now = timeline;
}

uint64_t tpck_lists_timeline(void)
{
	return timeline_now;
}

/* Lists of paths, one behind the other with a NUL each: those that came to be, and those that were there at their first
 * touch and were changed, these with the size and time of then in front. */
static void list_name(char *path, size_t size, const char *list)
{
	snprintf(path, size, "%s/%s.g%llu", tpck_follow_keep, list, (unsigned long long)timeline_now);
}

void tpck_lists_add_to(const char *path, unsigned names, const char *entry)
{
	struct tpck_unsignalled signals;
	int fd;

	fd = tpck_door_file(path, names, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
	if (fd >= 0) {
		tpck_unsignalled_begin(&signals);
		(void)!tpck_sys_write(fd, entry, strlen(entry) + 1);
		tpck_unsignalled_end(&signals);
		tpck_sys_close(fd);
	}
}

void tpck_lists_add(const char *list, const char *entry)
{
	char path[TPCK_FOLLOW_FOLDER + 40];

	list_name(path, sizeof path, list);
	tpck_lists_add_to(path, TPCK_KEPT_NAMES, entry);
}

void tpck_lists_wait(const char *path)
{
	uint32_t bytes = (uint32_t)strlen(path) + 1, at = atomic_load(&waiting_bytes);

	while (at < WAITING && bytes <= WAITING - at)
		if (atomic_compare_exchange_weak(&waiting_bytes, &at, at + bytes)) {
			memcpy(waiting + at, path, bytes);
			break;
		}
}

/* The same of shared memory and semaphores. */
enum { SHARES = 4096 };
static char shares[SHARES] TPCK_LARGE;
static _Atomic uint32_t shares_bytes;

static void shares_waited(bool wanted)
{
	uint32_t bytes = atomic_exchange(&shares_bytes, WAITED);

	for (uint32_t at = 0; wanted && bytes <= SHARES && at < bytes; at += (uint32_t)strlen(shares + at) + 1)
		if (shares[at])
			tpck_lists_add("shared", shares + at);
}

void tpck_follow_shares(const char *path)
{
	uint32_t bytes = (uint32_t)strlen(path) + 1, at = atomic_load(&shares_bytes);

	if (tpck_follow_keep[0]) {
		tpck_lists_add("shared", path);
		return;
	}
	while (at < SHARES && bytes <= SHARES - at)
		if (atomic_compare_exchange_weak(&shares_bytes, &at, at + bytes)) {
			memcpy(shares + at, path, bytes);
			break;
		}
}

void tpck_lists_waited(bool wanted)
{
	uint32_t bytes = atomic_exchange(&waiting_bytes, WAITED);

	for (uint32_t at = 0; wanted && bytes <= WAITING && at < bytes; at += (uint32_t)strlen(waiting + at) + 1)
		if (waiting[at])
			tpck_lists_add("created", waiting + at);
	shares_waited(wanted);
}

int tpck_lists_parse(const char *text, size_t size, int (*call)(const char *entry))
{
	int result = 0;

	/* One that was cut off by a kill has no NUL behind it. */
	for (size_t end = size; end > 0 && !result;) {
		size_t at = end - 1;

		while (at > 0 && text[at - 1])
			at--;
		if (!text[end - 1])
			result = call(text + at);
		end = at;
	}
	return result;
}

int tpck_lists_each_in(const char *path, unsigned names, int (*call)(const char *entry))
{
	char *text = MAP_FAILED;
	struct stat found = {0};
	int fd, result;

	fd = tpck_door_file(path, names, TPCK_DOOR_READ, 0);
	if (fd < 0)
		return 0;
	if (!tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH) && found.st_size > 0)
		text = tpck_sys_mmap(NULL, (size_t)found.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	tpck_sys_close(fd);
	if (text == MAP_FAILED)
		return found.st_size > 0 ? -ENOMEM : 0;
	result = tpck_lists_parse(text, (size_t)found.st_size, call);
	tpck_sys_munmap(text, (size_t)found.st_size);
	return result;
}

int tpck_lists_each(const char *list, int (*call)(const char *entry))
{
	char path[TPCK_FOLLOW_FOLDER + 40];

	list_name(path, sizeof path, list);
	return tpck_follow_keep[0] ? tpck_lists_each_in(path, TPCK_KEPT_NAMES, call) : 0;
}

static void (*on_created)(const char *path, uint64_t digest);
static int created(const char *entry)
{
	on_created(entry, tpck_follow_digest(entry));
	return 0;
}

void tpck_follow_each_created(void (*call)(const char *path, uint64_t digest))
{
	on_created = call;
	(void)tpck_lists_each("created", created);
}

static const char *looked_for;
static bool was_found;
static int look(const char *entry)
{
	was_found = strcmp(entry, looked_for) == 0;
	return was_found;
}

bool tpck_follow_created(const char *path)
{
	looked_for = path;
	was_found = false;
	(void)tpck_lists_each("created", look);
	return was_found;
}

void tpck_follow_creates(const char *path)
{
	if (tpck_follow_keep[0])
		tpck_lists_add("created", path);
}

bool tpck_follow_shared(const char *path)
{
	looked_for = path;
	was_found = false;
	(void)tpck_lists_each("shared", look);
	return was_found;
}

const char *tpck_lists_parse_changed(const char *entry, struct tpck_record_file *version)
{
	unsigned long long bytes;
	long long s, ns;
	int at = 0;

	if (sscanf(entry, "%llu %lld %lld %n", &bytes, &s, &ns, &at) < 3 || entry[at] != '/')
		return NULL;
	*version = (struct tpck_record_file){.mode = S_IFREG, .path = tpck_follow_digest(entry + at), .bytes = bytes, .mtime_s = s, .mtime_ns = ns};
	return entry + at;
}

static int (*on_changed)(const char *path, uint64_t digest, const struct tpck_record_file *version);
static int changed(const char *entry)
{
	struct tpck_record_file version;
	const char *path = tpck_lists_parse_changed(entry, &version);

	return path ? on_changed(path, version.path, &version) : 0;
}

int tpck_follow_each_changed(int (*call)(const char *path, uint64_t digest, const struct tpck_record_file *version))
{
	on_changed = call;
	return tpck_lists_each("changed", changed);
}

const char *tpck_lists_parse_relinked(const char *entry, char *target, size_t size)
{
	size_t length;
	int at = 0;

	if (sscanf(entry, "%zu %n", &length, &at) < 1 || length >= size || strlen(entry + at) <= length)
		return NULL;
	snprintf(target, length + 1, "%s", entry + at);
	return entry + at + length;
}

static int (*on_relinked)(const char *path, uint64_t digest, const char *target);
static int relinked(const char *entry)
{
	char target[PATH_SIZE];
	const char *path = tpck_lists_parse_relinked(entry, target, sizeof target);

	return path ? on_relinked(path, tpck_follow_digest(path), target) : 0;
}

int tpck_follow_each_relinked(int (*call)(const char *path, uint64_t digest, const char *target))
{
	on_relinked = call;
	return tpck_lists_each("relinked", relinked);
}

static int look_relinked(const char *path, uint64_t digest, const char *target)
{
	(void)digest;
	(void)target;
	return look(path);
}

bool tpck_follow_relinked(const char *path)
{
	looked_for = path;
	was_found = false;
	(void)tpck_follow_each_relinked(look_relinked);
	return was_found;
}
