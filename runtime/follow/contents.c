/* SPDX-License-Identifier: Apache-2.0 */
/* Noting and comparing what programs read. */
#include "config.h"

#include "runtime/base/kernel.h"
#include "runtime/follow/contents.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/digest.h"
#include "runtime/base/layout.h"
#include "runtime/base/log.h"
#include "runtime/files/files.h"
#include "runtime/follow/follow.h"
#include "runtime/follow/follow_private.h"

/* Files up to WHOLE are read whole, of larger ones SAMPLES pieces over their length. */
enum { WHOLE = 256 << 10, SAMPLES = 16, SAMPLE = 4096, TAKEN_AT_ONCE = 64, NOTES_MAX = 65536 };
#define INPUT "/proc/self/fd/0"

struct note {
	struct note *next;
	struct tpck_record_read read;
	char path[];
};

static struct note *_Atomic noted; /* by any thread; taken as a whole */
static _Atomic unsigned notes;

/* ---- digests ---------------------------------------------------------------------------------------- */

static bool same_stat(const struct stat *found, const struct tpck_record_file *file)
{
	return S_ISREG(found->st_mode) && (uint64_t)found->st_size == file->bytes &&
	       found->st_mtim.tv_sec == file->mtime_s && found->st_mtim.tv_nsec == file->mtime_ns;
}

static void take_stat(const struct stat *found, struct tpck_record_file *file)
{
	file->mode = found->st_mode;
	file->bytes = (uint64_t)found->st_size;
	file->mtime_s = found->st_mtim.tv_sec;
	file->mtime_ns = found->st_mtim.tv_nsec;
}

/* Digest of a file's content, and what the file was meanwhile. Never 0. */
static int digest_of(const char *path, struct stat *found, uint64_t *digest)
{
	char buffer[16384];
	uint64_t stride, bytes;
	int fd = tpck_layer_pending.open(TPCK_AT(AT_FDCWD, path), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
	int result = 0;

	if (fd < 0)
		return -errno;
	if (tpck_sys_fstatat(fd, "", found, AT_EMPTY_PATH) || !S_ISREG(found->st_mode)) {
		tpck_sys_close(fd);
		return -EINVAL;
	}
	bytes = (uint64_t)found->st_size;
	stride = bytes <= WHOLE ? sizeof buffer : (bytes - SAMPLE) / (SAMPLES - 1);
	*digest = bytes;
	for (uint64_t at = 0; at < bytes && !result; at += stride) {
		uint64_t want = bytes <= WHOLE ? sizeof buffer : SAMPLE;

		if (want > bytes - at)
			want = bytes - at;
		if (tpck_sys_pread(fd, buffer, want, at) != (long)want)
			result = -EIO;
		else
			*digest = tpck_digest64(buffer, want, *digest);
	}
	tpck_sys_close(fd);
	if (!*digest)
		*digest = 1;
	return result;
}

/* ---- noting ------------------------------------------------------------------------------------------- */

static void note(const char *path, uint64_t digest, const struct stat *found, bool input)
{
	struct note *made;

	if (!S_ISREG(found->st_mode) || atomic_load(&notes) >= NOTES_MAX)
		return;
	made = calloc(1, sizeof *made + strlen(path) + 1);
	if (!made)
		return;
	atomic_fetch_add(&notes, 1);
	strcpy(made->path, path);
	made->read.file.path = digest;
	made->read.file.names = input;
	take_stat(found, &made->read.file);
	made->next = atomic_load(&noted);
	while (!atomic_compare_exchange_weak(&noted, &made->next, made))
		;
}

void tpck_contents_note(const char *path, uint64_t digest, const struct stat *found)
{
	struct stat looked;

	if (found || !tpck_layer_pending.stat(TPCK_AT(AT_FDCWD, path), &looked, 0))
		note(path, digest, found ? found : &looked, false);
}

TPCK_AT_START bool tpck_contents_note_input(void)
{
	struct stat found = {.st_mode = 0}, there;
	char path[4096] = "";

	if (tpck_sys_fstatat(STDIN_FILENO, "", &found, AT_EMPTY_PATH))
		return false;
	if (S_ISREG(found.st_mode) && tpck_sys_readlink(INPUT, path, sizeof path - 1) > 0 && path[0] == '/' &&
	    !tpck_sys_fstatat(AT_FDCWD, path, &there, 0) && there.st_ino == found.st_ino &&
	    there.st_dev == found.st_dev)
		note(path, 0, &found, true);
	return S_ISFIFO(found.st_mode) || S_ISSOCK(found.st_mode);
}

void tpck_contents_take(struct tpck_log *log)
{
	static struct note *taken; /* the calling thread's */
	struct {
		struct tpck_record_read read;
		char path[4096];
	} record;

	if (!taken)
		taken = atomic_exchange(&noted, NULL);
	for (int i = 0; taken && i < TAKEN_AT_ONCE; i++) {
		struct note *one = taken;
		size_t length = strlen(one->path) + 1;
		struct stat found;

		taken = one->next;
		/* One that has changed since is another version: there is nothing to say about the first. */
		if (length <= sizeof record.path && !digest_of(one->path, &found, &one->read.content) &&
		    same_stat(&found, &one->read.file)) {
			record.read = one->read;
			memcpy(record.path, one->path, length);
			tpck_log_append(log, TPCK_RECORD_FILE, TPCK_FILE_READ, 0, 0, &record,
					sizeof record.read + length);
		}
		free(one);
		atomic_fetch_sub(&notes, 1);
	}
}

/* ---- comparing ------------------------------------------------------------------------------------------ */

struct learnt {
	const struct tpck_record_read *read;
	const char *path;
	struct learnt *next;
};
static struct learnt *learnt;

void tpck_contents_learn(const struct tpck_record *record)
{
	const struct tpck_record_read *read = (const void *)(record + 1);
	struct learnt *made;

	if (record->bytes <= sizeof *read || ((const char *)read)[record->bytes - 1] != '\0')
		return;
	made = malloc(sizeof *made);
	if (!made)
		return;
	*made = (struct learnt){read, (const char *)(read + 1), learnt};
	learnt = made;
}

/* Whether what is at `path` now is what was read; else `why` says what it is. */
static bool is_same(const char *path, const char *name, const struct tpck_record_read *read, char *why, size_t size)
{
	uint64_t content = 0;
	struct stat now;
	int result;

	if (tpck_sys_fstatat(AT_FDCWD, path, &now, 0)) {
		snprintf(why, size, "%.180s, which the first run read, is not there any more", name);
		return false;
	}
	if (same_stat(&now, &read->file))
		return true;
	if (!S_ISREG(now.st_mode) || (uint64_t)now.st_size != read->file.bytes) {
		snprintf(why, size, "%.160s has %llu bytes, had %llu when the first run read it", name,
			 (unsigned long long)now.st_size, (unsigned long long)read->file.bytes);
		return false;
	}
	result = digest_of(path, &now, &content);
	if (result || content != read->content) {
		snprintf(why, size, result ? "%.180s cannot be read" : "the content of %.180s is not what the first run read",
			 name);
		return false;
	}
	tpck_log_info("%s has another time than when the first run read it, and the same %s", name,
		      read->file.bytes > WHOLE ? "bytes where they were compared" : "bytes");
	return true;
}

int tpck_contents_compare(char *why, size_t size)
{
	if (!tpck_learnt_links_lead(why, size))
		return -ESTALE;
	for (const struct learnt *one = learnt; one; one = one->next) {
		if (one->read->file.names) {
			if (!is_same(INPUT, "standard input", one->read, why, size))
				return -ESTALE;
		} else if (tpck_learnt_needs(one->path, &one->read->file)) {
			if (!is_same(one->path, one->path, one->read, why, size))
				return -ESTALE;
			tpck_learnt_accept(one->read->file.path);
		}
	}
	return 0;
}
