/* SPDX-License-Identifier: Apache-2.0 */
/* Folders in which this process changes a file in place, as databases do: it locks byte ranges of it, or has it open for reading
 * and writing since it was there already. What lies beside such a file belongs to it, as a journal does: it must be at its path when
 * the file is changed, and gone when it says so. So nothing new is taken in such a folder as long as the descriptor is open. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/files/files_private.h"

/* A folder's slot is found by its digest, in one of a few places; its word has the digest above how many descriptors there are. A
 * descriptor whose folder has no place, or is not known, counts for all folders. */
enum { SLOTS = 128, PLACES = 8, COUNT_BITS = 16, ANYWHERE = SLOTS + 1 };
#define COUNT_MASK ((1ull << COUNT_BITS) - 1)

static _Atomic uint64_t slots[SLOTS] TPCK_LARGE;
static _Atomic uint8_t slot_of[TPCK_FILES_DESCRIPTORS] TPCK_LARGE; /* one more than the slot's index; ANYWHERE */
static _Atomic uint32_t descriptors, anywhere;

static uint64_t digest_of(uint64_t device, uint64_t inode)
{
	uint64_t digest = (device * 0x9e3779b97f4a7c15ull ^ inode) * 0xff51afd7ed558ccdull;

	return (digest ^ digest >> 32) << COUNT_BITS | 1ull << 63;
}

/* A file's index, or SLOTS: it has no place. The descriptor is counted. */
static unsigned count_in(uint64_t digest)
{
	for (unsigned i = 0; i < PLACES; i++) {
		unsigned at = (unsigned)(digest >> COUNT_BITS) + i;
		_Atomic uint64_t *slot = &slots[at % SLOTS];
		uint64_t word = atomic_load(slot);

		while ((!word || (word & ~COUNT_MASK) == digest) && (word & COUNT_MASK) < COUNT_MASK)
			if (atomic_compare_exchange_weak(slot, &word, word ? word + 1 : digest | 1))
				return at % SLOTS;
	}
	return SLOTS;
}

static void count_out(unsigned index)
{
	uint64_t word = atomic_load(&slots[index]);

	while ((word & COUNT_MASK) && !atomic_compare_exchange_weak(&slots[index], &word, (word & COUNT_MASK) == 1 ? 0 : word - 1))
		;
}

bool tpck_files_in_place_in(const struct stat *folder)
{
	uint64_t digest = digest_of(folder->st_dev, folder->st_ino);

	if (!atomic_load(&descriptors))
		return false;
	for (unsigned i = 0; i < PLACES; i++)
		if ((atomic_load(&slots[((unsigned)(digest >> COUNT_BITS) + i) % SLOTS]) & ~COUNT_MASK) == digest)
			return true;
	return atomic_load(&anywhere) != 0;
}

/* Counted for this folder, 0: for all. */
static void mark(int fd, uint64_t digest)
{
	unsigned index = digest ? count_in(digest) : SLOTS;

	if (index == SLOTS)
		atomic_fetch_add(&anywhere, 1);
	atomic_store(&slot_of[fd], (uint8_t)(index == SLOTS ? ANYWHERE : index + 1));
	atomic_fetch_add(&descriptors, 1);
	tpck_files_fresh_in_place(fd);
}

/* Where the kernel says that it is: by whatever links the program came there. */
static TPCK_FILES_SLOW void mark_where_it_is(int fd)
{
	char link[40], path[TPCK_FILES_PATH], parent[TPCK_FILES_PATH];
	uint64_t digest = 0;
	struct stat folder;
	const char *name;
	ssize_t got;

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	got = tpck_sys_readlink(link, path, sizeof path - 1);
	path[got > 0 ? got : 0] = '\0';
	if (*path == '/' && tpck_files_split(path, parent, &name) && !tpck_sys_fstatat(AT_FDCWD, parent, &folder, 0))
		digest = digest_of(folder.st_dev, folder.st_ino);
	mark(fd, digest);
}

/* Whether the descriptor is of a plain file that may be written. */
static bool writes_file(int fd, struct stat *found)
{
	long flags = tpck_sys_fcntl(fd, F_GETFL, 0);

	return flags >= 0 && !(flags & O_PATH) && (flags & O_ACCMODE) != O_RDONLY && !tpck_sys_fstatat(fd, "", found, AT_EMPTY_PATH) &&
	       S_ISREG(found->st_mode);
}

bool tpck_files_in_place_opened(int fd, int flags, const struct tpck_pending *pending)
{
	int saved = errno;
	struct stat found;
	bool is;

	if (fd < 0 || fd >= TPCK_FILES_DESCRIPTORS || (flags & O_ACCMODE) != O_RDWR || flags & (O_TRUNC | O_APPEND | O_PATH | O_DIRECTORY) ||
	    (flags & (O_CREAT | O_EXCL)) == (O_CREAT | O_EXCL) || (flags & O_TMPFILE) == O_TMPFILE)
		return false;
	/* One that was made just now is empty; so is one in which there is nothing to be changed yet. */
	is = writes_file(fd, &found) && found.st_size;
	if (is && pending)
		mark(fd, digest_of(pending->device, pending->inode));
	else if (is)
		mark_where_it_is(fd);
	errno = saved;
	return is;
}

void tpck_files_in_place_locked(int fd)
{
	int saved = errno;
	struct stat found;

	if (fd < 0 || fd >= TPCK_FILES_DESCRIPTORS || atomic_load(&slot_of[fd]))
		return;
	if (writes_file(fd, &found))
		mark_where_it_is(fd);
	errno = saved;
}

void tpck_files_in_place_copied(int from, int to)
{
	uint8_t slot = atomic_load(&slot_of[from]);
	uint64_t word = slot && slot != ANYWHERE ? atomic_load(&slots[slot - 1]) & ~COUNT_MASK : 0;

	if (slot)
		mark(to, word);
}

void tpck_files_in_place_closed(int fd)
{
	uint8_t slot = atomic_exchange(&slot_of[fd], 0);

	if (!slot)
		return;
	if (slot == ANYWHERE)
		atomic_fetch_sub(&anywhere, 1);
	else
		count_out(slot - 1);
	atomic_fetch_sub(&descriptors, 1);
}
