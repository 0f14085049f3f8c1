/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/kernel.h"
#include "runtime/base/shared_file.h"
#include "runtime/base/unsignalled.h"
#include "runtime/programs/writings.h"
#include "runtime/wire/segment.h"

#define MAGIC 0x73676e6974697277ull
enum { PATH = 360 };

_Static_assert(sizeof(struct tpck_writing) == 512, "entries lie behind each other");
_Static_assert(sizeof(struct tpck_writings) == 512 * (2 + TPCK_WRITINGS_MOST), "the first one lies behind the head");

static struct tpck_writings *begun(struct tpck_writings *writings)
{
	if (writings) {
		writings->head.version = TPCK_WIRE_VERSION;
		writings->head.magic = MAGIC;
	}
	return writings;
}

struct tpck_writings *tpck_writings_unnamed(const char *folder, int *fd)
{
	struct tpck_writings *writings = NULL;
	struct tpck_unsignalled signals;

	*fd = tpck_sys_high(tpck_sys_openat(AT_FDCWD, folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
	tpck_unsignalled_begin(&signals);
	if (*fd >= 0 && !tpck_sys_fallocate(*fd, 0, 0L, (long)sizeof *writings))
		writings = tpck_sys_mmap(NULL, sizeof *writings, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
	tpck_unsignalled_end(&signals);
	if (writings == MAP_FAILED)
		writings = NULL;
	if (!writings && *fd >= 0) {
		tpck_sys_close(*fd);
		*fd = -1;
	}
	return begun(writings);
}

static bool path_of(const char *session, const char *name, char path[PATH])
{
	if (snprintf(path, PATH, "%s/%s", session, name) < PATH)
		return true;
	errno = ENAMETOOLONG;
	return false;
}

struct tpck_writings *tpck_writings_new(const char *session, const char *name)
{
	char path[PATH];

	return path_of(session, name, path) ? begun(tpck_shared_file_new(path, sizeof(struct tpck_writings))) : NULL;
}

struct tpck_writings *tpck_writings_open(const char *session, const char *name)
{
	struct tpck_writings *writings;
	char path[PATH];

	if (!path_of(session, name, path))
		return NULL;
	errno = 0;
	writings = tpck_shared_file_open(path, sizeof *writings);
	if (writings && writings->head.magic == MAGIC && writings->head.version == TPCK_WIRE_VERSION)
		return writings;
	if (writings)
		tpck_writings_close(writings);
	if (errno != ENOENT)
		errno = EBADMSG;
	return NULL;
}

int tpck_writings_name(int fd, const char *session, const char *name)
{
	char path[PATH], link[40];

	if (!path_of(session, name, path))
		return -errno;
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	tpck_sys_unlinkat(AT_FDCWD, path, 0);
	return tpck_sys_linkat(AT_FDCWD, link, AT_FDCWD, path, AT_SYMLINK_FOLLOW) ? -errno : 0;
}

void tpck_writings_close(struct tpck_writings *writings)
{
	tpck_sys_munmap(writings, sizeof *writings);
}

static void later(_Atomic uint64_t *at, uint64_t to)
{
	uint64_t before = atomic_load(at);

	while (before < to && !atomic_compare_exchange_weak(at, &before, to))
		;
}

void tpck_writings_lack(struct tpck_writings *writings, uint64_t made_ns, uint32_t writer)
{
	uint32_t i;

	/* The first place is of the number 0. */
	for (i = 1; i < TPCK_WRITINGS_MISSED && writer; i++) {
		uint32_t is = 0;

		if (atomic_compare_exchange_strong(&writings->head.missed[i].writer, &is, writer) || is == writer)
			break;
	}
	later(&writings->head.missed[writer && i < TPCK_WRITINGS_MISSED ? i : 0].made_ns, made_ns);
}

bool tpck_writings_lacking(const struct tpck_writings *writings)
{
	bool lacking = atomic_load(&writings->head.passed_ns) != 0;

	for (uint32_t i = 0; i < TPCK_WRITINGS_MISSED; i++)
		lacking = lacking || atomic_load(&writings->head.missed[i].made_ns);
	return lacking;
}

/* Whether the entry can be overwritten, and the process takes it. */
static bool takes(struct tpck_writings *writings, struct tpck_writing *entry, bool needed)
{
	uint32_t kind = atomic_load(&entry->kind);
	uint64_t ended_ns = atomic_load(&entry->ended_ns);

	if (kind == TPCK_WRITING_BEGUN || (kind && !needed && (!ended_ns || atomic_load(&entry->inherited))) ||
	    !atomic_compare_exchange_strong(&entry->kind, &kind, TPCK_WRITING_BEGUN))
		return false;
	if (kind && ended_ns)
		later(&writings->head.passed_ns, ended_ns);
	else if (kind)
		tpck_writings_lack(writings, entry->made_ns, entry->writer);
	if (atomic_exchange(&entry->inherited, false))
		atomic_fetch_sub(&writings->head.inherited, 1);
	return true;
}

/* Where all are there whose ends are not known, this process loses one of its own first. */
static struct tpck_writing *find(struct tpck_writings *writings, uint32_t number)
{
	int32_t process = tpck_sys_getpid();

	for (unsigned needed = 0; needed < 3; needed++)
		for (uint32_t i = 0; i < TPCK_WRITINGS_MOST; i++) {
			struct tpck_writing *entry = &writings->entry[(number + i) % TPCK_WRITINGS_MOST];

			if ((needed != 1 || atomic_load(&entry->process) == process) && takes(writings, entry, needed > 0))
				return entry;
		}
	return &writings->entry[number % TPCK_WRITINGS_MOST];
}

struct tpck_writing *tpck_writings_take(struct tpck_writings *writings)
{
	struct tpck_writing *entry = find(writings, atomic_fetch_add(&writings->head.taken, 1));

	atomic_store(&entry->own, 0);
	atomic_store(&entry->doing, 0);
	atomic_store(&entry->ended_ns, 0);
	entry->told = false;
	return entry;
}

void tpck_writings_ended(struct tpck_writings *writings, uint32_t writer)
{
	uint32_t count = tpck_writings_count(writings);
	uint64_t now = tpck_clock_monotonic_ns();

	for (uint32_t i = 0; i < count; i++) {
		struct tpck_writing *entry = &writings->entry[i];

		if (entry->writer == writer && atomic_load(&entry->kind) && !atomic_load(&entry->inherited))
			atomic_store(&entry->ended_ns, now);
	}
}

uint32_t tpck_writings_count(const struct tpck_writings *writings)
{
	uint32_t taken = atomic_load(&writings->head.taken);

	return taken < TPCK_WRITINGS_MOST ? taken : TPCK_WRITINGS_MOST;
}
