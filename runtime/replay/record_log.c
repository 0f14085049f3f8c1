/* SPDX-License-Identifier: Apache-2.0 */
/* The log: appending to and reading segments. */
#include "config.h"

#include "runtime/base/kernel.h"
#include "runtime/replay/record_log.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/layout.h"
#include "runtime/base/log.h"
#include "runtime/base/undumped.h"
#include "runtime/base/unsignalled.h"
#include "runtime/replay/spill.h"
#include "runtime/replay/stash.h"
#include "runtime/track/threads.h"
#include "runtime/wire/pack.h"
#include "runtime/wire/segment.h"

enum { EARLY_BYTES = 4 << 20, ALIGN = 16, KEPT = 64 };

struct tpck_log {
	tpck_spin lock;
	char folder[256];       /* "" before attaching */
	uint64_t generation, limit, total;
	struct tpck_log_header *_Atomic segment;
	/* Payloads may still be filled in the previous segments until the next boundary: they stay
	 * mapped until KEPT more have come. */
	struct {
		void *at;
		uint64_t bytes;
	} kept[KEPT];
	uint64_t sealed;        /* segments sealed since attach */
	struct given {
		void *at;
		uint64_t bytes;
	} *given;               /* KEPT of them, whose memory was given back (tpck_log_give_back()), and the addresses are not */
	uint64_t given_count, looked; /* segments below `looked` are packed, or will not be */
	_Atomic uint64_t saved; /* bytes that packing has saved of the memory that `total` counts */
	_Atomic(struct tpck_log_header *) ahead;
	uint64_t ahead_sequence;
	uint64_t populated;     /* segments below are in this process page by page */
	const char *failed;
};

static void segment_name(char *path, size_t size, const char *folder, uint64_t sequence)
{
	snprintf(path, size, "%s/log.%06llu", folder, (unsigned long long)sequence);
}

static TPCK_AT_START void segment_begin(struct tpck_log_header *segment, uint64_t generation, uint64_t sequence, uint64_t bytes)
{
	segment->magic = TPCK_LOG_MAGIC;
	segment->version = TPCK_WIRE_VERSION;
	segment->sealed = 0;
	segment->generation = generation;
	segment->sequence = sequence;
	segment->bytes = bytes;
	atomic_store(&segment->used, (sizeof *segment + ALIGN - 1) / ALIGN * ALIGN);
}

static void pack_name(char *path, size_t size, const char *folder, uint64_t sequence)
{
	snprintf(path, size, "%s/" TPCK_PACK_PREFIX "%06llu", folder, (unsigned long long)sequence);
}

/* How many bytes of memory a segment's pack takes, of one in the store that of its name; 0: there is none. */
static uint64_t pack_bytes(const char *folder, uint64_t sequence)
{
	struct stat found;
	char path[320];

	pack_name(path, sizeof path, folder, sequence);
	return tpck_sys_fstatat(AT_FDCWD, path, &found, AT_SYMLINK_NOFOLLOW) ? 0 : (uint64_t)found.st_size;
}

/* What is made ahead of its time has a name of its own until it is taken: see tpck_log_prepare(). */
static void ahead_name(char *path, size_t size, const char *folder)
{
	snprintf(path, size, "%s/ahead", folder);
}

static int give_bytes(int fd, off_t bytes)
{
	struct tpck_unsignalled signals;
	int rc;

	tpck_unsignalled_begin(&signals);
	rc = tpck_sys_ftruncate(fd, bytes) || tpck_sys_fallocate(fd, 0, 0, bytes) ? -errno : 0;
	tpck_unsignalled_end(&signals);
	return rc;
}

/* NULL, with errno. */
static struct tpck_log_header *segment_create(const struct tpck_log *log, const char *path, uint64_t sequence, uint64_t bytes)
{
	struct tpck_log_header *segment;
	int fd, rc;

	/* What is there may be another name of an older session's segment, put there for a resume that was
	 * not taken. */
	tpck_sys_unlinkat(AT_FDCWD, path, 0);
	fd = tpck_sys_openat(AT_FDCWD, path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return NULL;
	/* A page that tmpfs cannot give later would be SIGBUS: ask for all of them now. */
	rc = give_bytes(fd, (off_t)bytes);
	segment = rc ? MAP_FAILED : tpck_undumped(tpck_sys_mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), bytes);
	if (!rc && segment == MAP_FAILED)
		rc = -errno;
	tpck_sys_close(fd);
	if (rc) {
		tpck_sys_unlinkat(AT_FDCWD, path, 0);
		errno = -rc;
		return NULL;
	}
	segment_begin(segment, log->generation, sequence, bytes);
	return segment;
}

TPCK_AT_START struct tpck_log *tpck_log_new(uint64_t limit)
{
	/* A program's first is there already. The early segment, which is never unmapped, begins on the page of the log's own. */
	static struct {
		struct tpck_log log;
		_Alignas(64) char early[EARLY_BYTES];
	} first TPCK_LARGE_USED __attribute__((aligned(4096))), *at = &first;
	static _Atomic bool taken;

	if (atomic_exchange(&taken, true))
		at = tpck_sys_mmap(NULL, sizeof *at, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED)
		return NULL;
	at->log.limit = limit;
	at->log.segment = (void *)at->early;
	segment_begin(at->log.segment, 0, 0, EARLY_BYTES);
	return &at->log;
}

static int attach_behind(struct tpck_log *log, const struct tpck_log_position *cut)
{
	struct tpck_log_header *segment;
	struct stat found;
	char path[320];
	int fd;

	segment_name(path, sizeof path, log->folder, cut->sequence);
	fd = tpck_sys_openat(AT_FDCWD, path, O_RDWR | O_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH)) {
		tpck_sys_close(fd);
		return -EIO;
	}
	if (found.st_size < (off_t)TPCK_LOG_SEGMENT_BYTES) {
		int rc = give_bytes(fd, TPCK_LOG_SEGMENT_BYTES);

		if (rc) {
			tpck_sys_close(fd);
			return rc;
		}
		found.st_size = TPCK_LOG_SEGMENT_BYTES;
	}
	segment = tpck_undumped(tpck_sys_mmap(NULL, (size_t)found.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), (size_t)found.st_size);
	tpck_sys_close(fd);
	if (segment == MAP_FAILED)
		return -ENOMEM;
	if (segment->magic != TPCK_LOG_MAGIC || segment->version != TPCK_WIRE_VERSION ||
	    cut->offset > (uint64_t)found.st_size) {
		tpck_sys_munmap(segment, (size_t)found.st_size);
		return -EBADMSG;
	}
	segment->bytes = (uint64_t)found.st_size;
	segment->sealed = 0;
	atomic_store(&segment->used, cut->offset);
	log->segment = segment;
	log->total = cut->sequence * TPCK_LOG_SEGMENT_BYTES + cut->offset;
	for (; log->looked < cut->sequence; log->looked++) {
		uint64_t bytes = pack_bytes(log->folder, log->looked);

		/* The agent packs the others. */
		if (!bytes)
			break;
		log->saved += TPCK_LOG_SEGMENT_BYTES - bytes;
	}
	return 0;
}

uint64_t tpck_log_timeline(const char *folder)
{
	struct tpck_log_header header;
	uint64_t generation = 0;
	char path[320];
	int fd;

	pack_name(path, sizeof path, folder, 0);
	fd = tpck_sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0) {
		segment_name(path, sizeof path, folder, 0);
		fd = tpck_sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	}
	if (fd < 0)
		return 0;
	if (tpck_sys_read(fd, &header, sizeof header) == (long)sizeof header && header.magic == TPCK_LOG_MAGIC)
		generation = header.generation;
	tpck_sys_close(fd);
	return generation;
}

int tpck_log_attach(struct tpck_log *log, const char *folder, uint64_t generation,
		    const struct tpck_log_position *cut)
{
	struct tpck_log_header *early = log->segment, *first;
	char path[320];
	int result = 0;

	if (strlen(folder) >= sizeof log->folder)
		return -ENAMETOOLONG;
	tpck_spin_lock(&log->lock);
	strcpy(log->folder, folder);
	log->generation = generation;
	if (cut) {
		result = attach_behind(log, cut);
	} else {
		segment_name(path, sizeof path, log->folder, 0);
		first = segment_create(log, path, 0, TPCK_LOG_SEGMENT_BYTES);
		if (first) {
			uint64_t used = atomic_load(&early->used);

			memcpy((char *)first + sizeof *first, (char *)early + sizeof *early, used - sizeof *early);
			atomic_store(&first->used, used);
			log->segment = first;
		} else {
			result = -errno;
		}
	}
	if (result)
		log->folder[0] = '\0';
	tpck_spin_unlock(&log->lock);
	/* The private pages stay mapped: a payload pointer into them may still be in use. */
	return result;
}

void tpck_log_fail(struct tpck_log *log, const char *why)
{
	if (!log->failed) {
		log->failed = why;
		if (log->folder[0])
			tpck_log_warn("snapshots from here on cannot be resumed: %s", why);
	}
}

const char *tpck_log_failed(const struct tpck_log *log)
{
	return log->failed;
}

/* Seals the segment and goes on in the next one, which holds at least `needed` bytes. */
static bool segment_next(struct tpck_log *log, uint64_t needed)
{
	uint64_t bytes = TPCK_LOG_SEGMENT_BYTES, sequence = log->segment->sequence + 1;
	struct tpck_log_header *next = atomic_exchange(&log->ahead, NULL);
	char path[320];

	if (!log->folder[0])
		return false;
	segment_name(path, sizeof path, log->folder, sequence);
	if (next && (next->sequence != sequence || next->bytes < needed)) {
		tpck_sys_munmap(next, next->bytes);
		next = NULL;
	}
	if (needed > bytes)
		bytes = (needed + TPCK_CHUNK_BYTES - 1) / TPCK_CHUNK_BYTES * TPCK_CHUNK_BYTES;
	if (!next)
		next = segment_create(log, path, sequence, bytes);
	if (!next)
		return false;
	log->segment->sealed = 1;
	if (log->kept[log->sealed % KEPT].at)
		tpck_sys_munmap(log->kept[log->sealed % KEPT].at, log->kept[log->sealed % KEPT].bytes);
	log->kept[log->sealed % KEPT].at = log->segment;
	log->kept[log->sealed % KEPT].bytes = log->segment->bytes;
	log->sealed++;
	log->segment = next;
	return true;
}

TPCK_AT_START void *tpck_log_append(struct tpck_log *log, enum tpck_record_type type, uint16_t detail, uint32_t thread,
				    uint32_t order, const void *payload, size_t bytes)
{
	uint64_t whole = (sizeof(struct tpck_record) + bytes + ALIGN - 1) / ALIGN * ALIGN, used;
	struct tpck_record *record = NULL;

	if (log->failed || bytes > UINT32_MAX)
		return NULL;
	tpck_spin_lock(&log->lock);
	used = atomic_load_explicit(&log->segment->used, memory_order_relaxed);
	if (log->total - atomic_load_explicit(&log->saved, memory_order_relaxed) + whole > log->limit) {
		tpck_log_fail(log, "the record has reached TRANSPCKPT_LOG_BYTES; a larger limit or a restart from the program's own checkpoint helps");
	} else if (used + whole > log->segment->bytes && !segment_next(log, sizeof(struct tpck_log_header) + whole)) {
		tpck_log_fail(log, log->folder[0] ? "no space for the record in the memory tier"
						  : "the program drew too much before it used a device");
	} else {
		used = atomic_load_explicit(&log->segment->used, memory_order_relaxed);
		record = (struct tpck_record *)((char *)log->segment + used);
		*record = (struct tpck_record){(uint32_t)bytes, (uint16_t)type, detail, thread, order};
		if (payload)
			memcpy(record + 1, payload, bytes);
		log->total += whole;
		atomic_store_explicit(&log->segment->used, used + whole, memory_order_release);
	}
	tpck_spin_unlock(&log->lock);
	return record ? record + 1 : NULL;
}

uint64_t tpck_log_bytes(const struct tpck_log *log)
{
	return log->total;
}

uint64_t tpck_log_memory(const struct tpck_log *log)
{
	return log->total - atomic_load(&log->saved);
}

bool tpck_log_attached(const struct tpck_log *log)
{
	return log->folder[0] != '\0';
}

struct tpck_log_position tpck_log_end(struct tpck_log *log)
{
	struct tpck_log_position end;

	tpck_spin_lock(&log->lock);
	end = (struct tpck_log_position){log->segment->sequence, atomic_load(&log->segment->used)};
	tpck_spin_unlock(&log->lock);
	return end;
}

/* A segment's pages are there from the start; but that they come into this process one fault after another would be the
 * program's time. Where the kernel does not know how (before Linux 5.14) they do. */
static void populate(struct tpck_log *log, struct tpck_log_header *segment)
{
	if (segment->sequence < log->populated)
		return;
	log->populated = segment->sequence + 1;
	madvise(segment, segment->bytes, 23 /* MADV_POPULATE_WRITE */);
}

void tpck_log_prepare(struct tpck_log *log)
{
	struct tpck_log_header *segment = log->segment, *next;
	char from[320], to[320];

	if (!log->folder[0] || log->failed)
		return;
	populate(log, segment);
	if (atomic_load(&log->ahead) || atomic_load(&segment->used) < segment->bytes / 2)
		return;
	ahead_name(from, sizeof from, log->folder);
	next = segment_create(log, from, segment->sequence + 1, TPCK_LOG_SEGMENT_BYTES);
	if (!next)
		return;
	populate(log, next);
	segment_name(to, sizeof to, log->folder, next->sequence);
	/* The program may have come to the segment's end meanwhile, and has made the next one itself: its name is taken. */
	tpck_spin_lock(&log->lock);
	if (log->segment == segment && !tpck_sys_rename(from, to)) {
		atomic_store(&log->ahead, next);
		next = NULL;
	}
	tpck_spin_unlock(&log->lock);
	if (next) {
		log->populated = segment->sequence + 1;
		tpck_sys_unlinkat(AT_FDCWD, from, 0);
		tpck_sys_munmap(next, next->bytes);
	}
}

/* A sealed segment that is mapped here still, and is not any more for who seals later ones; its number is `sequence`. NULL: there is none. */
static struct tpck_log_header *kept_take(struct tpck_log *log, uint64_t sequence, uint64_t *bytes)
{
	struct tpck_log_header *found = NULL;

	tpck_spin_lock(&log->lock);
	for (unsigned i = 0; i < KEPT && !found; i++) {
		struct tpck_log_header *segment = log->kept[i].at;

		if (!segment || segment->sequence != sequence)
			continue;
		found = segment;
		*bytes = log->kept[i].bytes;
		log->kept[i].at = NULL;
	}
	tpck_spin_unlock(&log->lock);
	return found;
}

/* A payload of another thread's may be on its way to these addresses still: they stay, and have nothing behind them. */
static void give_back(struct tpck_log *log, struct tpck_log_header *segment, uint64_t bytes)
{
	struct given *given;

	if (!log->given)
		log->given = calloc(KEPT, sizeof *log->given);
	if (tpck_sys_mmap(segment, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != segment ||
	    !log->given)
		return;
	given = &log->given[log->given_count++ % KEPT];
	if (given->at)
		tpck_sys_munmap(given->at, given->bytes);
	*given = (struct given){segment, bytes};
}

void tpck_log_give_back(struct tpck_log *log, uint64_t below)
{
	uint64_t end = log->segment->sequence;

	for (; log->folder[0] && log->looked < below && log->looked < end; log->looked++) {
		uint64_t packed = pack_bytes(log->folder, log->looked), bytes = 0, used;
		struct tpck_log_header *segment = packed ? kept_take(log, log->looked, &bytes) : NULL;

		if (!packed)
			continue;
		used = segment ? atomic_load(&segment->used) : TPCK_LOG_SEGMENT_BYTES;
		if (segment)
			give_back(log, segment, bytes);
		if (used > packed)
			atomic_fetch_add(&log->saved, used - packed);
	}
}

/* ---- reading ------------------------------------------------------------------------------ */

/* A packed segment as it was. All readers of the process have one of each. */
struct unpacked {
	char folder[256];
	uint64_t sequence, bytes;
	void *at;
	unsigned users;
	bool spilled;        /* it was tried, once */
	struct unpacked *next;
};

static struct unpacked *unpacked;
static tpck_spin unpacked_lock;

struct tpck_log_reader {
	char folder[256];
	struct tpck_log_position cut;
	uint64_t sequence, offset;
	struct {
		void *at;
		uint64_t bytes;
		struct unpacked *of; /* NULL: `at` is mapped */
	} *maps;
	uint64_t count;
};

bool tpck_record_is_sound(const struct tpck_record *record)
{
	const struct tpck_record_mark *mark = (const void *)(record + 1);

	switch (record->type) {
	case TPCK_RECORD_MARK:
		return record->bytes >= sizeof *mark &&
		       record->bytes == sizeof *mark + 4ull * mark->contents + (record->detail ? 4ull * mark->operations : 0);
	case TPCK_RECORD_BOUNDARY:
		return record->bytes >= sizeof(struct tpck_record_boundary);
	case TPCK_RECORD_QUERY:
		return record->bytes >= sizeof(struct tpck_record_query);
	case TPCK_RECORD_TURN:
		return record->bytes >= sizeof(uint64_t);
	case TPCK_RECORD_DRAWN:
		return record->bytes >= sizeof(struct tpck_record_drawn);
	case TPCK_RECORD_NCCL:
		return record->detail != TPCK_NCCL_CAPTURED || record->bytes == sizeof(uint32_t);
	case TPCK_RECORD_FROM_DEVICE:
		return record->detail != TPCK_READ_STASHED || record->bytes == sizeof(struct tpck_record_stashed);
	default:
		return record->type != 0 && record->type < TPCK_RECORD_TYPES;
	}
}

/* The record at `at`, of a segment whose records end at `end`; NULL: there is none. */
static const struct tpck_record *record_at(const struct tpck_log_header *segment, uint64_t at, uint64_t end)
{
	const struct tpck_record *record = (const void *)((const char *)segment + at);

	if (at % ALIGN || end - at < sizeof *record || record->type == 0 || record->type >= TPCK_RECORD_TYPES ||
	    end - at - sizeof *record < record->bytes)
		return NULL;
	return record;
}

static uint64_t behind(const struct tpck_record *record, uint64_t at)
{
	return at + (sizeof *record + record->bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* Whether bytes begin as a segment does, with no more records than there are bytes. */
static bool is_segment(const struct tpck_log_header *segment, uint64_t size, uint64_t sequence, uint64_t end)
{
	return size >= sizeof *segment && segment->magic == TPCK_LOG_MAGIC && segment->version == TPCK_WIRE_VERSION &&
	       segment->sequence == sequence && end <= size;
}

bool tpck_log_is_whole(const struct tpck_log_header *segment, uint64_t size, uint64_t sequence, uint64_t end)
{
	uint64_t at = (sizeof *segment + ALIGN - 1) / ALIGN * ALIGN;
	const struct tpck_record *record;

	if (!is_segment(segment, size, sequence, end))
		return false;
	while (at < end) {
		record = record_at(segment, at, end);
		if (!record)
			return false;
		at = behind(record, at);
	}
	return at == end;
}

/* A file of a segment, to be read. -EBADMSG: it is too short for one. */
static int map_file(const char *path, void **at, uint64_t *bytes)
{
	struct stat found = {0};
	int fd, result = 0;

	fd = tpck_sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH) || found.st_size < (off_t)sizeof(struct tpck_log_header))
		result = -EBADMSG;
	else
		*at = tpck_undumped(tpck_sys_mmap(NULL, (size_t)found.st_size, PROT_READ, MAP_SHARED, fd, 0), (size_t)found.st_size);
	tpck_sys_close(fd);
	if (!result && *at == MAP_FAILED)
		result = -ENOMEM;
	*bytes = (uint64_t)found.st_size;
	return result;
}

static struct unpacked *unpacked_find(const char *folder, uint64_t sequence)
{
	struct unpacked *found;

	tpck_spin_lock(&unpacked_lock);
	found = unpacked;
	while (found && (found->sequence != sequence || strcmp(found->folder, folder) != 0))
		found = found->next;
	if (found)
		found->users++;
	tpck_spin_unlock(&unpacked_lock);
	return found;
}

static void unpacked_unuse(struct unpacked *of)
{
	struct unpacked **place = &unpacked;
	bool unused;

	tpck_spin_lock(&unpacked_lock);
	unused = --of->users == 0;
	while (unused && *place != of)
		place = &(*place)->next;
	if (unused)
		*place = of->next;
	tpck_spin_unlock(&unpacked_lock);
	if (!unused)
		return;
	tpck_sys_munmap(of->at, of->bytes);
	free(of);
}

bool tpck_log_spill(const char *to)
{
	struct unpacked *of;
	bool done;

	tpck_spin_lock(&unpacked_lock);
	of = unpacked;
	while (of && of->spilled)
		of = of->next;
	if (of) {
		of->spilled = true;
		of->users++;
	}
	tpck_spin_unlock(&unpacked_lock);
	if (!of)
		return false;
	done = tpck_spill(of->at, of->bytes, to);
	unpacked_unuse(of);
	return done;
}

static int unpack(const void *pack, uint64_t size, uint64_t sequence, void **at, uint64_t *bytes)
{
	int result = tpck_pack_learn(pack, size, sequence, bytes);

	if (result)
		return result;
	*at = tpck_undumped(tpck_sys_mmap(NULL, *bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0), *bytes);
	if (*at == MAP_FAILED)
		return -ENOMEM;
	result = tpck_pack_read(pack, size, sequence, *at, *bytes);
	if (result)
		tpck_sys_munmap(*at, *bytes);
	return result;
}

static int unpacked_make(const char *folder, uint64_t sequence, struct unpacked **out)
{
	struct unpacked *made;
	char path[320];
	uint64_t size;
	void *pack;
	int result;

	pack_name(path, sizeof path, folder, sequence);
	result = map_file(path, &pack, &size);
	if (result)
		return result;
	made = calloc(1, sizeof *made);
	result = made ? unpack(pack, size, sequence, &made->at, &made->bytes) : -ENOMEM;
	tpck_sys_munmap(pack, size);
	if (result) {
		free(made);
		return result;
	}
	snprintf(made->folder, sizeof made->folder, "%s", folder);
	made->sequence = sequence;
	made->users = 1;
	tpck_spin_lock(&unpacked_lock);
	made->next = unpacked;
	unpacked = made;
	tpck_spin_unlock(&unpacked_lock);
	*out = made;
	return 0;
}

/* Segment `sequence` of the reader's folder becomes its next one. One that is packed is not there otherwise. */
static int map_segment(struct tpck_log_reader *reader, uint64_t sequence)
{
	struct unpacked *of = unpacked_find(reader->folder, sequence);
	char path[320];
	int result = 0;

	segment_name(path, sizeof path, reader->folder, sequence);
	if (!of)
		result = map_file(path, &reader->maps[sequence].at, &reader->maps[sequence].bytes);
	if (result == -ENOENT)
		result = unpacked_make(reader->folder, sequence, &of);
	if (result) {
		reader->maps[sequence].at = NULL;
		return result;
	}
	reader->maps[sequence].of = of;
	if (of) {
		reader->maps[sequence].at = of->at;
		reader->maps[sequence].bytes = of->bytes;
	}
	reader->count = sequence + 1;
	return 0;
}

int tpck_log_open(struct tpck_log_reader **reader, const char *folder, struct tpck_log_position cut)
{
	struct tpck_log_reader *made;
	int result = 0;

	if (strlen(folder) >= sizeof made->folder || cut.sequence > 10000000)
		return -EINVAL;
	made = calloc(1, sizeof *made);
	if (!made)
		return -ENOMEM;
	made->maps = calloc(cut.sequence + 1, sizeof *made->maps);
	if (!made->maps) {
		free(made);
		return -ENOMEM;
	}
	strcpy(made->folder, folder);
	made->cut = cut;
	for (uint64_t s = 0; s <= cut.sequence && !result; s++) {
		const struct tpck_log_header *header;
		uint64_t end;

		result = map_segment(made, s);
		if (result)
			break;
		header = made->maps[s].at;
		end = s == cut.sequence ? cut.offset : atomic_load(&header->used);
		if (!tpck_log_is_whole(header, made->maps[s].bytes, s, end))
			result = -EBADMSG;
	}
	made->offset = (sizeof(struct tpck_log_header) + ALIGN - 1) / ALIGN * ALIGN;
	if (result)
		tpck_log_close(made);
	else
		*reader = made;
	return result;
}

const struct tpck_record *tpck_log_next(struct tpck_log_reader *reader)
{
	for (;;) {
		const struct tpck_log_header *segment = reader->maps[reader->sequence].at;
		uint64_t end = reader->sequence == reader->cut.sequence ? reader->cut.offset
									: atomic_load(&segment->used);
		const struct tpck_record *record = (const void *)((const char *)segment + reader->offset);

		if (reader->offset + sizeof *record <= end &&
		    reader->offset + sizeof *record + record->bytes <= end) {
			reader->offset = behind(record, reader->offset);
			return record;
		}
		if (reader->sequence == reader->cut.sequence)
			return NULL;
		reader->sequence++;
		reader->offset = (sizeof(struct tpck_log_header) + ALIGN - 1) / ALIGN * ALIGN;
	}
}

/* Whether records fill segment `sequence` exactly from `at` up to `end`. */
static bool are_whole(const struct tpck_log_reader *reader, uint64_t sequence, uint64_t at, uint64_t end)
{
	const struct tpck_log_header *segment = reader->maps[sequence].at;
	const struct tpck_record *record;

	if (!is_segment(segment, reader->maps[sequence].bytes, sequence, end))
		return false;
	while (at < end && (record = record_at(segment, at, end)))
		at = behind(record, at);
	return at == end;
}

int tpck_log_extend(struct tpck_log_reader *reader, struct tpck_log_position cut)
{
	uint64_t at = reader->cut.offset;
	int result = 0;

	if (cut.sequence < reader->cut.sequence || cut.sequence > 10000000 || (cut.sequence == reader->cut.sequence && cut.offset < reader->cut.offset))
		return -EINVAL;
	if (cut.sequence + 1 > reader->count) {
		void *grown = reallocarray(reader->maps, cut.sequence + 1, sizeof *reader->maps);

		if (!grown)
			return -ENOMEM;
		reader->maps = grown;
	}
	for (uint64_t s = reader->count; s <= cut.sequence && !result; s++)
		result = map_segment(reader, s);
	for (uint64_t s = reader->cut.sequence; s <= cut.sequence && !result; s++) {
		const struct tpck_log_header *header = reader->maps[s].at;

		if (!are_whole(reader, s, at, s == cut.sequence ? cut.offset : atomic_load(&header->used)))
			result = -EBADMSG;
		at = (sizeof *header + ALIGN - 1) / ALIGN * ALIGN;
	}
	if (!result)
		reader->cut = cut;
	return result;
}

/* The segment of the cut is another file there, in which more comes behind the cut; those below are the same files. The one before stays mapped. */
int tpck_log_move(struct tpck_log_reader *reader, const char *folder)
{
	uint64_t s = reader->cut.sequence, bytes = reader->cut.offset - sizeof(struct tpck_log_header);
	char before[sizeof reader->folder];
	typeof(*reader->maps) old = reader->maps[s];
	int result;

	if (strlen(folder) >= sizeof reader->folder)
		return -ENAMETOOLONG;
	strcpy(before, reader->folder);
	strcpy(reader->folder, folder);
	result = map_segment(reader, s);
	if (!result && reader->maps[s].bytes >= reader->cut.offset &&
	    !memcmp((const char *)reader->maps[s].at + sizeof(struct tpck_log_header), (const char *)old.at + sizeof(struct tpck_log_header), bytes))
		return 0;
	if (!result && reader->maps[s].of)
		unpacked_unuse(reader->maps[s].of);
	else if (!result)
		tpck_sys_munmap(reader->maps[s].at, reader->maps[s].bytes);
	reader->maps[s] = old;
	strcpy(reader->folder, before);
	return result ? result : -EBADMSG;
}

struct tpck_log_position tpck_log_reads_at(const struct tpck_log_reader *reader)
{
	return (struct tpck_log_position){reader->sequence, reader->offset};
}

void tpck_log_read_from(struct tpck_log_reader *reader, struct tpck_log_position from)
{
	reader->sequence = from.sequence;
	reader->offset = from.offset;
}

void tpck_log_close(struct tpck_log_reader *reader)
{
	for (uint64_t s = 0; s < reader->count; s++)
		if (reader->maps[s].of)
			unpacked_unuse(reader->maps[s].of);
		else if (reader->maps[s].at)
			tpck_sys_munmap(reader->maps[s].at, reader->maps[s].bytes);
	free(reader->maps);
	free(reader);
}

bool tpck_log_each(const struct tpck_log_header *segment, uint64_t size, uint64_t sequence, uint64_t at, void (*call)(const struct tpck_record *))
{
	uint64_t end = size >= sizeof *segment ? atomic_load(&segment->used) : 0;
	const struct tpck_record *record;

	if (!is_segment(segment, size, sequence, end))
		return false;
	for (; at < end; at = behind(record, at)) {
		record = record_at(segment, at, end);
		if (!record)
			return false;
		call(record);
	}
	return segment->sealed;
}

void tpck_log_behind_done(const char *folder, struct tpck_log_position cut)
{
	char path[320];

	for (uint64_t sequence = cut.sequence; sequence < cut.sequence + KEPT; sequence++) {
		snprintf(path, sizeof path, "%s/" TPCK_LOG_BEHIND "%06llu", folder, (unsigned long long)sequence);
		if (tpck_sys_unlinkat(AT_FDCWD, path, 0))
			return;
	}
}

int tpck_log_each_in(int folder, const char *path, uint64_t sequence, uint64_t at, void (*call)(const struct tpck_record *))
{
	int fd = tpck_sys_openat(folder, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC, 0);
	struct stat found = {0};
	void *map = MAP_FAILED;
	bool sealed;

	if (fd < 0)
		return -errno;
	if (!tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH) && found.st_size >= (off_t)sizeof(struct tpck_log_header))
		map = tpck_undumped(tpck_sys_mmap(NULL, (size_t)found.st_size, PROT_READ, MAP_SHARED, fd, 0), (size_t)found.st_size);
	tpck_sys_close(fd);
	if (map == MAP_FAILED)
		return -EBADMSG;
	sealed = tpck_log_each(map, (uint64_t)found.st_size, sequence, at, call);
	tpck_sys_munmap(map, (size_t)found.st_size);
	return sealed;
}

bool tpck_log_behind(const char *folder, struct tpck_log_position cut, void (*call)(const struct tpck_record *))
{
	uint64_t sequence = cut.sequence, at = cut.offset;
	bool found = false;
	int more = true;

	for (; more > 0 && sequence < cut.sequence + KEPT; sequence++) {
		char path[320];

		snprintf(path, sizeof path, "%s/" TPCK_LOG_BEHIND "%06llu", folder, (unsigned long long)sequence);
		more = tpck_log_each_in(AT_FDCWD, path, sequence, at, call);
		found = found || more >= 0;
		at = (sizeof(struct tpck_log_header) + ALIGN - 1) / ALIGN * ALIGN;
	}
	return found;
}

bool tpck_log_tried(const char *folder, void (*call)(const struct tpck_record *))
{
	int session = tpck_sys_openat(AT_FDCWD, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	char buffer[4096];
	bool all = true;
	ssize_t got;

	while (session >= 0 && (got = tpck_sys_getdents(session, buffer, sizeof buffer)) > 0)
		for (char *at = buffer; at < buffer + got; at += ((struct dirent64 *)at)->d_reclen) {
			const char *name = ((struct dirent64 *)at)->d_name;

			if (strncmp(name, TPCK_TRIED_BEHIND, sizeof TPCK_TRIED_BEHIND - 1) != 0)
				continue;
			all = tpck_log_each_in(session, name, 0, sizeof(struct tpck_log_header), call) > 0 && all;
			tpck_sys_unlinkat(session, name, 0);
		}
	if (session >= 0)
		tpck_sys_close(session);
	return all;
}
