/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/kernel.h"
#include "runtime/base/shared_file.h"
#include "runtime/base/unsignalled.h"
#include "runtime/programs/writings.h"
#include "runtime/wire/segment.h"

#define MAGIC 0x73676e6974697277ull
enum { PATH = 360 };

_Static_assert(sizeof(struct tpck_writing) == 512, "entries lie behind each other");
_Static_assert(sizeof(struct tpck_writings) == 512 * (1 + TPCK_WRITINGS_MOST), "the first one lies behind the head");

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

void tpck_writings_lack(struct tpck_writings *writings, uint64_t made_ns, uint32_t writer)
{
	uint64_t before = atomic_load(&writings->head.missed_ns);

	while (before < made_ns)
		if (atomic_compare_exchange_weak(&writings->head.missed_ns, &before, made_ns)) {
			atomic_store(&writings->head.missed_writer, writer);
			break;
		}
}

struct tpck_writing *tpck_writings_take(struct tpck_writings *writings)
{
	uint32_t number = atomic_fetch_add(&writings->head.taken, 1);
	struct tpck_writing *entry = &writings->entry[number % TPCK_WRITINGS_MOST];

	if (number >= TPCK_WRITINGS_MOST && atomic_exchange(&entry->kind, TPCK_WRITING_NONE) != TPCK_WRITING_NONE) {
		tpck_writings_lack(writings, entry->made_ns, entry->writer);
		if (atomic_exchange(&entry->inherited, false))
			atomic_fetch_sub(&writings->head.inherited, 1);
	}
	atomic_store(&entry->own, 0);
	atomic_store(&entry->doing, 0);
	return entry;
}

uint32_t tpck_writings_count(const struct tpck_writings *writings)
{
	uint32_t taken = atomic_load(&writings->head.taken);

	return taken < TPCK_WRITINGS_MOST ? taken : TPCK_WRITINGS_MOST;
}
