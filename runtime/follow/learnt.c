/* SPDX-License-Identifier: Apache-2.0 */
/* What the log says of paths: what was there at the first touch, and what their folders listed. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/door.h"
#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/follow/contents.h"
#include "runtime/follow/follow.h"
#include "runtime/follow/follow_private.h"
#include "runtime/replay/forward.h"
#include "runtime/track/threads.h"

enum { BUCKETS = 4096 };

/* What the log says of a path. */
struct first {
	uint64_t digest;
	const struct tpck_record_file *record;
	const char *target, *path; /* of a symbolic link */
	bool same;        /* what is there now is what was there then, whatever its time */
	struct again {    /* what was there later, the latest first */
		const struct tpck_record_file *record;
		uint32_t thread, order;
		struct again *next;
	} *again;
	struct first *next;
};
struct listing {
	const struct tpck_record_file *record;
	bool used;
	struct listing *next;
};

static struct first *firsts[BUCKETS] TPCK_LARGE;
static struct listing *listings, **listings_end = &listings;
static uint64_t begun_ns;
static tpck_spin lock;

/* Processes that the program has been, the first of them first, and the one that it is: names of files have these numbers in them. */
enum { PROCESSES = 64, DIGITS = 24 };
static char processes[PROCESSES][DIGITS] TPCK_LARGE;
static uint32_t process_count;
static char own[DIGITS];

static struct first *find_first(uint64_t digest)
{
	struct first *first = firsts[digest % BUCKETS];

	while (first && first->digest != digest)
		first = first->next;
	return first;
}

/* What this thread found when it had seen as many programs end as it has, and had made as many operations: what it found later, as when it
 * was live again and no further program had ended, was not there yet. */
static const struct tpck_record_file *record_of(const struct first *first)
{
	const struct tpck_thread *self = first->again ? tpck_thread_peek() : NULL;

	for (const struct again *again = self ? first->again : NULL; again; again = again->next)
		if (again->thread == self->id && again->record->names <= self->others && (int32_t)(again->order - (uint32_t)self->operations) <= 0)
			return again->record;
	return first->record;
}

const struct tpck_record_file *tpck_learnt_first(uint64_t digest)
{
	const struct first *first = find_first(digest);

	return first ? record_of(first) : NULL;
}

static void learn_again(const struct tpck_record *record)
{
	const struct tpck_record_file *file = (const void *)(record + 1);
	struct first *first = find_first(file->path);
	struct again *made = first ? malloc(sizeof *made) : NULL;

	if (!made)
		return;
	*made = (struct again){file, record->thread, record->order, first->again};
	__atomic_store_n(&first->again, made, __ATOMIC_RELEASE);
}

static void process_learn(uint64_t process)
{
	snprintf(own, sizeof own, "%d", getpid());
	if (process && process_count < PROCESSES && process != (uint64_t)getpid())
		snprintf(processes[process_count++], DIGITS, "%llu", (unsigned long long)process);
}

static bool is_digit(char letter)
{
	return letter >= '0' && letter <= '9';
}

/* The text with each number that is `from` made `to`; a number is digits between what are none. False: there is none, or no room. */
static bool renumbered(const char *text, const char *from, const char *to, char *out, size_t size)
{
	size_t from_length = strlen(from), to_length = strlen(to), used = 0;
	const char *at = text, *next;
	bool any = false;

	while (from_length && (next = strstr(at, from))) {
		bool whole = (next == text || !is_digit(next[-1])) && !is_digit(next[from_length]);
		size_t before = (size_t)(next - at) + (whole ? 0 : from_length), put = whole ? to_length : 0;

		if (used + before + put >= size)
			return false;
		memcpy(out + used, at, before);
		memcpy(out + used + before, to, put);
		used += before + put;
		at = next + from_length;
		any |= whole;
	}
	if (!any || used + strlen(at) >= size)
		return false;
	strcpy(out + used, at);
	return true;
}

/* Not inlined: threads' stacks may be small. */
static __attribute__((noinline)) void find_former(const char *path, uint64_t digest)
{
	char former[TPCK_FOLLOW_PATH];
	const struct first *first = NULL;
	struct first *made;

	for (uint32_t i = 0; i < process_count && !first; i++)
		if (renumbered(path, own, processes[i], former, sizeof former))
			first = find_first(tpck_follow_digest(former));
	made = first ? malloc(sizeof *made) : NULL;
	if (!made)
		return;
	*made = *first;
	made->digest = digest;
	tpck_spin_lock(&lock);
	if (find_first(digest)) {
		free(made);
	} else {
		made->next = firsts[digest % BUCKETS];
		__atomic_store_n(&firsts[digest % BUCKETS], made, __ATOMIC_RELEASE);
	}
	tpck_spin_unlock(&lock);
}

void tpck_learnt_numbered(const char *path, uint64_t digest)
{
	if (process_count && strstr(path, own) && !find_first(digest))
		find_former(path, digest);
}

const char *tpck_learnt_renumbered(const char *folder, const char *name, char *path, size_t size)
{
	size_t length = strlen(folder);
	const struct tpck_overlay_entry *entry;

	if (length + 2 >= size)
		return name;
	for (uint32_t i = 0; i < process_count; i++) {
		if (!renumbered(name, processes[i], own, path + length + 1, size - length - 1))
			continue;
		memcpy(path, folder, length);
		path[length] = '/';
		entry = tpck_overlay_find(tpck_follow_digest(path));
		if (entry && entry->kind != TPCK_KIND_ABSENT)
			return path + length + 1;
	}
	return name;
}

void tpck_follow_learn(const struct tpck_record *record)
{
	const struct tpck_record_file *file = (const void *)(record + 1);

	if (record->bytes < sizeof *file)
		return;
	if (record->detail == TPCK_FILE_BEGUN) {
		begun_ns = (uint64_t)file->mtime_s * 1000000000u + (uint64_t)file->mtime_ns;
		process_learn(file->bytes);
	} else if (record->detail == TPCK_FILE_LISTING) {
		struct listing *made = calloc(1, sizeof *made);

		if (made) {
			made->record = file;
			tpck_spin_lock(&lock);
			*listings_end = made;
			listings_end = &made->next;
			tpck_spin_unlock(&lock);
		}
	} else if (record->detail == TPCK_FILE_READ) {
		if (!file->names)
			tpck_follow_known(file->path, true, false);
		tpck_contents_learn(record);
	} else if (record->detail == TPCK_FILE_AGAIN) {
		learn_again(record);
	} else if (!find_first(file->path)) {
		struct first *made = malloc(sizeof *made);

		if (made) {
			*made = (struct first){.digest = file->path, .record = file};
			/* `bytes` may be any number. */
			if (S_ISLNK(file->mode) && file->bytes < record->bytes && record->bytes > sizeof *file + file->bytes + 1 &&
			    !((const char *)file)[record->bytes - 1]) {
				made->target = (const char *)(file + 1);
				made->path = made->target + file->bytes + 1;
			}
			tpck_spin_lock(&lock);
			made->next = firsts[file->path % BUCKETS];
			__atomic_store_n(&firsts[file->path % BUCKETS], made, __ATOMIC_RELEASE);
			tpck_spin_unlock(&lock);
			tpck_follow_known(file->path, false, S_ISREG(file->mode) || S_ISLNK(file->mode));
		}
	}
}

uint64_t tpck_follow_begun_ns(void)
{
	return begun_ns;
}

void tpck_follow_unlearn(void)
{
	memset(firsts, 0, sizeof firsts);
	process_count = 0;
	listings = NULL;
	listings_end = &listings;
	tpck_follow_forget();
}

bool tpck_learnt_kept(const struct tpck_record_file *version, char *name, size_t size)
{
	struct stat now;

	tpck_follow_version_name(name, size, version->path, version->bytes, version->mtime_s, version->mtime_ns);
	/* The path may be another name of a file that was changed under yet another. */
	return !tpck_kept_stat(name, &now) && (uint64_t)now.st_size == version->bytes && now.st_mtim.tv_sec == version->mtime_s &&
	       now.st_mtim.tv_nsec == version->mtime_ns;
}

int tpck_kept_stat(const char *kept, struct stat *found)
{
	int fd = tpck_door_file(kept, TPCK_KEPT_NAMES, O_PATH | O_CLOEXEC, 0), rc = fd < 0 ? fd : 0;

	if (!rc && tpck_sys_fstatat(fd, "", found, AT_EMPTY_PATH))
		rc = -errno;
	if (fd >= 0)
		tpck_sys_close(fd);
	return rc ? rc : S_ISREG(found->st_mode) ? 0 : -EINVAL;
}

enum tpck_source tpck_learnt_source(const char *path, uint64_t digest, char *version, size_t size)
{
	const struct first *known = find_first(digest);
	const struct tpck_record_file *first = known ? record_of(known) : NULL;
	struct stat now;

	if (!first || (known->same && first == known->record))
		return TPCK_SOURCE_REAL;
	if (!first->mode)
		return TPCK_SOURCE_ABSENT;
	if (!S_ISREG(first->mode))
		return TPCK_SOURCE_REAL;
	if (!tpck_sys_fstatat(AT_FDCWD, path, &now, 0) && (uint64_t)now.st_size == first->bytes &&
	    now.st_mtim.tv_sec == first->mtime_s && now.st_mtim.tv_nsec == first->mtime_ns)
		return TPCK_SOURCE_REAL;
	return tpck_learnt_kept(first, version, size) ? TPCK_SOURCE_VERSION : TPCK_SOURCE_LOST;
}

const struct tpck_record_file *tpck_learnt_of_others(uint64_t digest)
{
	const struct first *known = find_first(digest);
	const struct tpck_record_file *record = known ? record_of(known) : NULL;

	bool since = record && (uint64_t)record->mtime_s * 1000000000u + (uint64_t)record->mtime_ns >= begun_ns;

	return record && record->mode && (record != known->record || since) ? record : NULL;
}

bool tpck_learnt_needs(const char *path, const struct tpck_record_file *read)
{
	const struct tpck_record_file *first = tpck_learnt_first(read->path);
	char version[TPCK_FOLLOW_FOLDER + 128];

	return first && first->mode && first->bytes == read->bytes && first->mtime_s == read->mtime_s &&
	       first->mtime_ns == read->mtime_ns && tpck_learnt_source(path, read->path, version, sizeof version) == TPCK_SOURCE_LOST;
}

const char *tpck_learnt_link(uint64_t digest)
{
	const struct first *first = find_first(digest);

	return first ? first->target : NULL;
}

static bool leads(const struct first *link, char *why, size_t size)
{
	char now[TPCK_FOLLOW_PATH] = "";
	ssize_t got = tpck_sys_readlink(link->path, now, sizeof now - 1);

	if ((got > 0 && strcmp(now, link->target) == 0) || tpck_follow_relinked(link->path))
		return true;
	snprintf(why, size, "the link %.100s led to %.60s when the first run read it, and %s %.60s", link->path, link->target,
		 got > 0 ? "leads to" : "is none", now);
	return false;
}

bool tpck_learnt_links_lead(char *why, size_t size)
{
	for (unsigned b = 0; b < BUCKETS; b++)
		for (const struct first *first = firsts[b]; first; first = first->next)
			if (first->target && !leads(first, why, size))
				return false;
	return true;
}

void tpck_learnt_accept(uint64_t digest)
{
	struct first *first = find_first(digest);

	if (first)
		first->same = true;
}

/* What the folder was called in the runs before this one. Not inlined: threads' stacks may be small. */
static __attribute__((noinline)) uint32_t former_names(const char *path, uint64_t digests[PROCESSES])
{
	char former[TPCK_FOLLOW_PATH];
	uint32_t count = 0;

	for (uint32_t i = 0; i < process_count; i++)
		if (renumbered(path, own, processes[i], former, sizeof former))
			digests[count++] = tpck_follow_digest(former);
	return count;
}

static bool is_one(uint64_t digest, const uint64_t *digests, uint32_t count)
{
	while (count && digests[count - 1] != digest)
		count--;
	return count;
}

const struct tpck_record_file *tpck_learnt_listing(const char *path, uint64_t digest)
{
	uint64_t former[PROCESSES];
	uint32_t count = process_count && strstr(path, own) ? former_names(path, former) : 0;
	struct listing *listed;

	tpck_forward_await(tpck_thread_peek());
	tpck_spin_lock(&lock);
	listed = listings;
	while (listed && (listed->used || (listed->record->path != digest && !is_one(listed->record->path, former, count))))
		listed = listed->next;
	if (listed)
		listed->used = true;
	tpck_spin_unlock(&lock);
	return listed ? listed->record : NULL;
}

void tpck_learnt_forked(void)
{
	tpck_spin_unlock(&lock);
}
