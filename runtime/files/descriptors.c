/* SPDX-License-Identifier: Apache-2.0 */
/* Which descriptors of this process write pending files, and when the last one is closed. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/base/log.h"
#include "runtime/base/readable.h"
#include "runtime/files/files_private.h"
#include "runtime/files/layer.h"
#include "runtime/track/threads.h"

enum { MAPPINGS = 256, COARSE_NS = 20000000, FEW = 16 };
/* No entry's: a file of the program's own that will be renamed past us. */
#define PAST UINT32_MAX

/* An entry's index + 1 and its serial's low half: 0 is none. */
static _Atomic uint64_t descriptors[TPCK_FILES_DESCRIPTORS] TPCK_LARGE;
static _Atomic uint64_t limits[TPCK_FILES_DESCRIPTORS] TPCK_LARGE; /* how long the file may get by it; UINT64_MAX: as long as it likes */
static uint32_t born[TPCK_FILES_DESCRIPTORS] TPCK_LARGE;           /* forks until then */
static _Atomic uint64_t inodes[TPCK_FILES_DESCRIPTORS] TPCK_LARGE; /* which file it was, as one number; 0: that could not be asked */
static _Atomic uint32_t known, highest;
static int32_t process; /* whose descriptors these are */
static struct {
	uintptr_t from, to;
	uint64_t what;
} mappings[MAPPINGS] TPCK_LARGE;
static _Atomic uint32_t mapped;
static tpck_spin mappings_lock;

uint64_t tpck_files_pack(uint32_t index, uint64_t serial)
{
	return (serial & 0xffffffff) << 32 | (index + 1);
}

struct tpck_view_entry *tpck_files_unpack(struct tpck_view *view, uint64_t what)
{
	struct tpck_view_entry *entry = &view->entry[what == PAST ? 0 : (uint32_t)what - 1];

	return what != PAST && entry->state != TPCK_VIEW_FREE && (entry->serial & 0xffffffff) == what >> 32 ? entry : NULL;
}

/* What the kernel knows without asking a network. 0: it does not say; UINT64_MAX: there is no such descriptor. */
static uint64_t inode_of(int fd)
{
	int saved = errno;
	struct statx found;
	uint64_t inode = 0;

	if (!tpck_sys_statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO, &found))
		inode = (found.stx_ino ^ (uint64_t)found.stx_dev_major << 52 ^ (uint64_t)found.stx_dev_minor << 32) | 1ull << 63;
	else if (errno == EBADF)
		inode = UINT64_MAX;
	errno = saved;
	return inode;
}

static void set(int fd, uint64_t what, uint64_t limit)
{
	uint32_t top = atomic_load(&highest);

	atomic_store(&limits[fd], limit);
	atomic_store(&inodes[fd], inode_of(fd));
	born[fd] = tpck_files_forks();
	if (!atomic_exchange(&descriptors[fd], what))
		atomic_fetch_add(&known, 1);
	while ((uint32_t)fd > top && !atomic_compare_exchange_weak(&highest, &top, (uint32_t)fd))
		;
}

bool tpck_files_writes(int fd, uint32_t index, uint64_t serial, uint64_t limit)
{
	if (fd < 0 || fd >= TPCK_FILES_DESCRIPTORS)
		return false;
	if (!process)
		process = tpck_sys_getpid();
	set(fd, tpck_files_pack(index, serial), limit);
	return true;
}

void tpck_files_past(int fd)
{
	if (fd < 0 || fd >= TPCK_FILES_DESCRIPTORS)
		return;
	if (!process)
		process = tpck_sys_getpid();
	set(fd, PAST, UINT64_MAX);
}

static inline uint64_t what_of(int fd)
{
	if (fd < 0 || fd >= TPCK_FILES_DESCRIPTORS || !atomic_load_explicit(&known, memory_order_relaxed))
		return 0;
	return atomic_load_explicit(&descriptors[fd], memory_order_relaxed);
}

/* A child that shares this memory and not the descriptors (vfork, clone) closes what is its own. */
static bool own(void)
{
	return tpck_sys_getpid() == process;
}

uint64_t tpck_files_what(int fd)
{
	return what_of(fd);
}

bool tpck_files_some(void)
{
	return atomic_load_explicit(&known, memory_order_relaxed) != 0;
}

uint64_t tpck_files_limit_of(int fd)
{
	return atomic_load_explicit(&limits[fd], memory_order_relaxed);
}

void tpck_files_set_limit(uint64_t what, uint64_t limit)
{
	for (uint32_t fd = 0; fd <= atomic_load(&highest); fd++)
		if (atomic_load(&descriptors[fd]) == what)
			atomic_store(&limits[fd], limit);
}

unsigned tpck_files_descriptors_of(uint64_t what, uint32_t forks, int *fd, unsigned room)
{
	unsigned count = 0;

	if (!own())
		return 0;
	for (uint32_t i = 0; i <= atomic_load(&highest); i++) {
		if (atomic_load(&descriptors[i]) != what)
			continue;
		if (count == room || born[i] != forks)
			return 0;
		fd[count++] = (int)i;
	}
	return count;
}

uint64_t tpck_files_closing(int fd)
{
	uint64_t what = 0;

	if (fd >= 0 && fd < TPCK_FILES_DESCRIPTORS &&
	    __builtin_expect(atomic_load_explicit(&tpck_files_fresh[fd], memory_order_relaxed) != 0, 0))
		tpck_files_turned_out(fd);
	if (!what_of(fd) || !own())
		return 0;
	tpck_files_gate_enter();
	what = atomic_exchange(&descriptors[fd], 0);
	if (what)
		atomic_fetch_sub(&known, 1);
	tpck_files_gate_leave();
	return what;
}

/* ---- what was closed by a call that nobody saw: by a ring, or an instruction of the program's own -- */

/* Whether the kernel has another file there by now, or none. */
static bool is_another(int fd)
{
	uint64_t was = atomic_load(&inodes[fd]), is = was ? inode_of(fd) : 0;

	return is && is != was;
}

/* What it was; 0: it is that still. The gate is for those that give a descriptor another file just now. */
static uint64_t no_more(int fd)
{
	uint64_t what;

	tpck_files_gate_enter();
	what = atomic_load(&descriptors[fd]);
	if (what && (!is_another(fd) || !atomic_compare_exchange_strong(&descriptors[fd], &what, 0)))
		what = 0;
	if (what)
		atomic_fetch_sub(&known, 1);
	tpck_files_gate_leave();
	return what;
}

static int release(uint64_t what, bool whole);

TPCK_FILES_SLOW void tpck_files_seen_again(int fd)
{
	uint64_t what = own() ? no_more(fd) : 0;

	if (what && what != PAST)
		(void)release(what, true);
}

/* What the kernel has closed unseen closed before what is closed just now. Where there are many, the agent finds it. */
static void release_unseen(uint32_t most)
{
	uint32_t some = atomic_load(&known);

	if (!some || some > most || !own())
		return;
	for (uint32_t fd = 0; fd <= atomic_load(&highest) && atomic_load(&known); fd++)
		if (atomic_load_explicit(&descriptors[fd], memory_order_relaxed))
			tpck_files_seen_again((int)fd);
}

void tpck_files_release_unseen(void)
{
	release_unseen(TPCK_FILES_DESCRIPTORS);
}

/* ---- the count of who writes ------------------------------------------------------------------ */

/* The last one is gone: its size, if it is known, is what the next one of its name may have. */
static void whole_now(struct tpck_view *view, struct tpck_view_entry *entry, int64_t bytes)
{
	char path[TPCK_FILES_PATH];
	struct stat found;

	if (bytes < 0) {
		tpck_view_bytes(view, entry, tpck_files_folder, path, sizeof path);
		if (!tpck_sys_fstatat(AT_FDCWD, path, &found, AT_SYMLINK_NOFOLLOW))
			bytes = found.st_size;
	}
	if (bytes >= 0) {
		tpck_view_size_note(view, entry->pattern, (uint64_t)bytes);
		if (entry->kind == TPCK_VIEW_MEMORY) {
			view->memory_bytes += (uint64_t)bytes - entry->bytes;
			entry->bytes = (uint64_t)bytes;
		}
	}
	tpck_view_close(view, entry);
}

/* Why what was closed just now is not at its path for the time being: another one on its disk cannot be put there. */
static int held_up(const struct tpck_view *view, const struct tpck_view_entry *entry)
{
	uint64_t device = tpck_view_device_of(view, entry);
	uint32_t left = view->used;

	if (!view->failing || entry->kind != TPCK_VIEW_MEMORY || strcmp(tpck_files_settings->fsync, "memory") == 0)
		return 0;
	for (uint32_t i = 0; left && i < TPCK_VIEW_ENTRIES; i++) {
		const struct tpck_view_entry *other = &view->entry[i];

		if (other->state == TPCK_VIEW_FREE)
			continue;
		left--;
		/* What fsync() of this one has told is told. */
		if (other != entry && other->error && tpck_view_device_of(view, other) == device)
			return other->error;
	}
	return 0;
}

/* Whether the kernel has it open for writing still, by whatever: EAGAIN; 0: nobody has, and so many bytes are what it has; else it does
 * not say. The lock is held: no process of the job opens it just now. */
static TPCK_FILES_SLOW int still_written(const struct tpck_view *view, const struct tpck_view_entry *entry, int64_t *bytes)
{
	char path[TPCK_FILES_PATH];
	struct stat found;
	int error = 0, fd;

	/* A network's have no leases. */
	if (entry->kind == TPCK_VIEW_DIRECT && entry->remote)
		return EINVAL;
	tpck_view_bytes(view, entry, tpck_files_folder, path, sizeof path);
	fd = tpck_sys_openat(AT_FDCWD, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0);
	if (fd < 0)
		return errno == ENOENT ? 0 : errno;
	/* Who would open it meanwhile waits for these few calls; the signal by which the kernel says so is one that nobody minds. */
	if (tpck_sys_fcntl(fd, F_SETSIG, SIGURG) || tpck_sys_fcntl(fd, F_SETLEASE, F_RDLCK))
		error = errno;
	else if (!tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH))
		*bytes = found.st_size;
	tpck_sys_close(fd);
	return error;
}

/* A descriptor of this process less. Its holder is to go if it has none left, unless a ring of the process may write the file still: that
 * is as a descriptor that is open, and the agent finds out when it has ended. A child of a fork who may is not waited for. Gives the
 * lock back and returns NULL where there is nothing more to be done. */
static struct tpck_view_holder *one_less(struct tpck_view *view, uint64_t what, bool whole, int64_t *bytes)
{
	struct tpck_view_entry *entry = tpck_files_unpack(view, what);
	struct tpck_view_holder *holder = entry ? tpck_view_holder_of(entry, tpck_files_pid(), 0) : NULL;
	int written;

	if (holder && holder->count)
		holder->count--;
	if (holder && !holder->count && whole && entry->state == TPCK_VIEW_OPEN && (written = still_written(view, entry, bytes))) {
		holder->lingers = 1;
		tpck_view_unlock(view);
		if (tpck_files_has_ring(written != EAGAIN) || !tpck_view_lock(view))
			return NULL;
		entry = tpck_files_unpack(view, what);
		holder = entry ? tpck_view_holder_of(entry, tpck_files_pid(), 0) : NULL;
		/* Another thread has opened it again. */
		if (holder && (holder->count || !holder->lingers))
			holder = NULL;
	}
	if (holder && !holder->count)
		holder->pid = 0;
	if (!holder)
		tpck_view_unlock(view);
	return holder;
}

/* 0, or the errno that the last close is to tell. */
static int release(uint64_t what, bool whole)
{
	struct tpck_view *view = atomic_load(&tpck_files_view);
	struct tpck_view_entry *entry;
	int saved = errno, error = 0;
	uint64_t order = 0, device = 0;
	int64_t bytes = -1;
	bool news = false;

	if (!view || !tpck_view_lock(view))
		return 0;
	if (!one_less(view, what, whole, &bytes)) {
		errno = saved;
		return 0;
	}
	entry = tpck_files_unpack(view, what);
	/* What could not be written to its end stays as it was. */
	if (!whole) {
		tpck_view_discard(view, entry, tpck_files_folder);
		errno = saved;
		return 0;
	}
	if (!tpck_view_held(entry) && entry->state == TPCK_VIEW_OPEN) {
		whole_now(view, entry, bytes);
		error = held_up(view, entry);
		news = true;
		if (entry->at_close) {
			entry->at_close = 0;
			order = entry->order;
			device = tpck_view_device_of(view, entry);
		}
	}
	tpck_view_unlock(view);
	if (news) {
		tpck_view_tell(&view->news);
		tpck_files_revive_soon();
	}
	if (order && !tpck_files_replicated(order))
		error = tpck_files_await(order, device);
	errno = saved;
	return error;
}

void tpck_files_release(uint32_t index, uint64_t serial, bool whole)
{
	(void)release(tpck_files_pack(index, serial), whole);
}

int tpck_files_closed(uint64_t closing, bool whole)
{
	if (!closing || closing == PAST)
		return 0;
	release_unseen(FEW);
	return release(closing, whole);
}

/* Where it is by now tells whether it has been renamed to a name that is wanted: what closes behind it is not to be on the
 * disk before it. */
static TPCK_FILES_SLOW void renamed_past_us(int fd)
{
	char link[40], path[TPCK_FILES_PATH], parent[TPCK_FILES_PATH];
	struct stat found, folder;
	struct tpck_view *view;
	int saved = errno;
	const char *name;
	ssize_t got;

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	got = tpck_sys_readlink(link, path, sizeof path - 1);
	path[got > 0 ? got : 0] = '\0';
	if (*path == '/' && tpck_files_may_take() && tpck_files_wanted(TPCK_AT(AT_FDCWD, path)) && tpck_files_split(path, parent, &name) &&
	    !tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH) && found.st_nlink &&
	    !tpck_sys_fstatat(AT_FDCWD, parent, &folder, 0) && tpck_files_ready() && (view = tpck_files_lock())) {
		tpck_view_plain(view, folder.st_dev, folder.st_ino, parent, name, found.st_ino);
		tpck_view_unlock(view);
		tpck_view_tell(&view->news);
	}
	errno = saved;
}

int tpck_files_close(int fd)
{
	uint64_t what = tpck_files_closing(fd);
	int result, error;

	if (__builtin_expect(what == PAST, 0)) {
		renamed_past_us(fd);
		what = 0;
	}
	result = tpck_sys_close(fd);
	if (__builtin_expect(what != 0, 0) && (error = tpck_files_closed(what, true)) && !result) {
		errno = error;
		result = -1;
	}
	return result;
}

static void hold(uint64_t what, bool maps)
{
	struct tpck_view *view = atomic_load(&tpck_files_view);
	uint64_t started = tpck_files_started();
	struct tpck_view_entry *entry;
	struct tpck_view_holder *holder;

	if (!view || !tpck_view_lock(view))
		return;
	entry = tpck_files_unpack(view, what);
	holder = entry ? tpck_view_holder_of(entry, tpck_files_pid(), started) : NULL;
	if (holder) {
		holder->count++;
		holder->turns++;
	}
	if (entry && maps)
		entry->mapped = 1;
	tpck_view_unlock(view);
}

void tpck_files_copied(int from, int to)
{
	uint64_t what = what_of(from), before;

	tpck_files_fresh_copied(from, to);
	if (from == to || !atomic_load_explicit(&known, memory_order_relaxed) || !own())
		return;
	before = tpck_files_closing(to);
	if (what && to >= 0 && to < TPCK_FILES_DESCRIPTORS) {
		hold(what, false);
		set(to, what, tpck_files_limit_of(from));
	}
	(void)tpck_files_closed(before, true);
}

void tpck_files_close_range(unsigned first, unsigned last)
{
	tpck_files_fresh_closed(first, last);
	if (!atomic_load(&known) || !own())
		return;
	if (last > atomic_load(&highest))
		last = atomic_load(&highest);
	/* Another thread may have opened one since, by the same number. */
	for (unsigned fd = first; fd <= last; fd++)
		if (what_of((int)fd) && (!atomic_load(&inodes[fd]) || is_another((int)fd)))
			(void)tpck_files_closed(tpck_files_closing((int)fd), true);
}

static int mapping_synced(uint64_t what);

/* ---- mappings: bytes that are written without a descriptor ------------------------------------ */

void tpck_files_mapped(int fd, const void *address, size_t bytes)
{
	uint64_t what = what_of(fd);
	unsigned i = 0;

	if (!what || what == PAST || !own())
		return;
	tpck_spin_lock(&mappings_lock);
	while (i < MAPPINGS && mappings[i].what)
		i++;
	if (i < MAPPINGS) {
		mappings[i].from = (uintptr_t)address;
		mappings[i].to = (uintptr_t)address + bytes;
		mappings[i].what = what;
		atomic_fetch_add(&mapped, 1);
	}
	tpck_spin_unlock(&mappings_lock);
	/* One that has no place stays held until the process ends. */
	hold(what, true);
}

void tpck_files_unmapped(const void *address, size_t bytes)
{
	uintptr_t from = (uintptr_t)address, to = from + bytes;

	while (__builtin_expect(atomic_load_explicit(&mapped, memory_order_relaxed) != 0, 0) && own()) {
		uint64_t what = 0;

		tpck_spin_lock(&mappings_lock);
		for (unsigned i = 0; i < MAPPINGS && !what; i++)
			if (mappings[i].what && mappings[i].from >= from && mappings[i].to <= to) {
				what = mappings[i].what;
				mappings[i].what = 0;
				atomic_fetch_sub(&mapped, 1);
			}
		tpck_spin_unlock(&mappings_lock);
		if (!what)
			break;
		(void)release(what, true);
	}
}

/* What is mapped somewhere in there; 0: nothing that is ours. `from`: the first of the mappings that is looked at. */
static uint64_t mapped_in(const void *address, size_t bytes, unsigned *from)
{
	uintptr_t begin = (uintptr_t)address, end = begin + bytes;
	uint64_t what = 0;

	tpck_spin_lock(&mappings_lock);
	for (; *from < MAPPINGS && !what; ++*from)
		if (mappings[*from].what && mappings[*from].from < end && mappings[*from].to > begin)
			what = mappings[*from].what;
	tpck_spin_unlock(&mappings_lock);
	return what;
}

static TPCK_FILES_SLOW int seen_msync(void *address, size_t bytes, int flags)
{
	bool durable = strcmp(tpck_files_settings->fsync, "memory") != 0;
	int error = 0, failed, saved;
	unsigned from = 0;
	uint64_t what;

	if (tpck_sys_msync(address, bytes, flags))
		return -1;
	saved = errno;
	while ((what = mapped_in(address, bytes, &from))) {
		failed = tpck_files_let_be(what, durable);
		if (failed < 0)
			failed = mapping_synced(what);
		if (failed > 0 && !error)
			error = failed;
	}
	errno = error ? error : saved;
	return error ? -1 : 0;
}

int tpck_files_msync(void *address, size_t bytes, int flags)
{
	if (!(flags & MS_SYNC) || !atomic_load_explicit(&mapped, memory_order_relaxed) || !own())
		return tpck_sys_msync(address, bytes, flags);
	return seen_msync(address, bytes, flags);
}

void tpck_files_remapped(const void *address, size_t bytes, const void *at, size_t now)
{
	uintptr_t from = (uintptr_t)address;

	if (!atomic_load_explicit(&mapped, memory_order_relaxed) || !own())
		return;
	tpck_spin_lock(&mappings_lock);
	for (unsigned i = 0; i < MAPPINGS; i++)
		if (mappings[i].what && mappings[i].from >= from && mappings[i].to <= from + bytes) {
			mappings[i].from = (uintptr_t)at;
			mappings[i].to = (uintptr_t)at + now;
			break;
		}
	tpck_spin_unlock(&mappings_lock);
}

/* ---- fork ------------------------------------------------------------------------------------- */

/* What the child has of its parent's is not the child's to make whole. */
void tpck_files_descriptors_forked(void)
{
	if (atomic_load(&known))
		for (uint32_t fd = 0; fd <= atomic_load(&highest); fd++)
			atomic_store(&descriptors[fd], 0);
	atomic_store(&known, 0);
	atomic_store(&mapped, 0);
	memset(mappings, 0, sizeof mappings);
	mappings_lock = 0;
	process = 0;
	tpck_files_gate_forked();
}

/* ---- copying ---------------------------------------------------------------------------------- */

static ssize_t copy_range(int from, off_t *from_at, int to, off_t *to_at, size_t bytes, unsigned flags)
{
	int saved = errno;
	long result = tpck_sys_copy_file_range(from, from_at, to, to_at, bytes, flags);
	char buffer[16 << 10];
	size_t done = 0;

	if (result >= 0 || errno != EXDEV || flags || !atomic_load(&tpck_files_view))
		return result;
	while (done < bytes) {
		size_t part = bytes - done < sizeof buffer ? bytes - done : sizeof buffer;
		long got = from_at ? tpck_sys_pread(from, buffer, part, *from_at) : tpck_sys_read(from, buffer, part), put;

		if (got < 0 && !done)
			return -1;
		if (got <= 0)
			break;
		put = to_at ? tpck_sys_pwrite(to, buffer, got, *to_at) : tpck_sys_write(to, buffer, got);
		if (!from_at && put < got)
			tpck_sys_lseek(from, (put > 0 ? put : 0) - got, SEEK_CUR);
		if (put <= 0 && !done)
			return -1;
		if (put <= 0)
			break;
		if (from_at)
			*from_at += put;
		if (to_at)
			*to_at += put;
		done += (size_t)put;
	}
	errno = saved;
	return (ssize_t)done;
}

/* What a call is told by a pointer; -1: where the descriptor stands, or the kernel cannot read it either. */
static off_t offset_of(const off_t *at)
{
	return at && tpck_readable(at, sizeof *at) ? *at : -1;
}

/* Who asks for more than there is means all that there is. */
static size_t at_most(int from, const off_t *at, size_t bytes)
{
	struct stat found;
	off_t begin;

	if (tpck_sys_fstatat(from, "", &found, AT_EMPTY_PATH) || !S_ISREG(found.st_mode))
		return bytes;
	begin = offset_of(at);
	if (begin < 0)
		begin = tpck_sys_lseek(from, 0, SEEK_CUR);
	return begin < 0 || begin > found.st_size ? 0 : bytes < (size_t)(found.st_size - begin) ? bytes : (size_t)(found.st_size - begin);
}

ssize_t tpck_files_copy_range(int from, off_t *from_at, int to, off_t *to_at, size_t bytes, unsigned flags)
{
	int grows = what_of(to) ? tpck_files_grows(to, offset_of(to_at), at_most(from, from_at, bytes)) : 0;
	ssize_t result = grows < 0 ? -1 : copy_range(from, from_at, to, to_at, bytes, flags);

	tpck_files_grown(grows);
	return result;
}

ssize_t tpck_files_send(int to, int from, off_t *at, size_t bytes)
{
	int grows = what_of(to) ? tpck_files_grows(to, -1, at_most(from, at, bytes)) : 0;
	ssize_t result = grows < 0 ? -1 : tpck_sys_sendfile(to, from, at, bytes);

	tpck_files_grown(grows);
	return result;
}

/* ---- fsync ------------------------------------------------------------------------------------ */

/* What of a folder is whole is made real before the folder is; so is what is owed to its disk, in whose order it is. */
static int sync_folder(int fd)
{
	struct tpck_view *view;
	struct stat found;
	uint64_t order;

	if (tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH) || !S_ISDIR(found.st_mode) || !(view = tpck_files_lock()))
		return 0;
	order = view->order;
	tpck_view_unlock(view);
	return tpck_files_replicated(order) ? 0 : tpck_files_await(order, found.st_dev);
}

/* One that is open never appears if its process dies with its node: its copies are what its closing waits for. */
static bool sync_at_close(uint64_t what)
{
	struct tpck_view *view;
	struct tpck_view_entry *entry;

	if (!tpck_files_replicated(0) || !(view = tpck_files_lock()))
		return false;
	/* What is taken until it is synced is its disk's alone. */
	entry = tpck_files_unpack(view, what);
	if (entry && entry->until_sync)
		entry = NULL;
	if (entry)
		entry->at_close = 1;
	tpck_view_unlock(view);
	return entry;
}

/* No descriptor of the process is that entry's any more. */
static void forget(uint64_t what)
{
	for (uint32_t fd = 0; fd <= atomic_load(&highest); fd++) {
		uint64_t was = what;

		if (atomic_compare_exchange_strong(&descriptors[fd], &was, 0))
			atomic_fetch_sub(&known, 1);
	}
}

TPCK_FILES_SLOW int tpck_files_let_be(uint64_t what, bool wait)
{
	struct tpck_view *view = tpck_files_lock();
	struct tpck_view_entry *entry = view ? tpck_files_unpack(view, what) : NULL;
	uint64_t order = 0, device = 0;
	bool gone = view && !entry;
	int saved = errno, error = 0;

	if (entry && entry->until_sync && entry->state == TPCK_VIEW_OPEN) {
		memset(entry->holder, 0, sizeof entry->holder);
		entry->goes_on = 1;
		tpck_view_close(view, entry);
	}
	if (entry && entry->goes_on) {
		order = entry->order;
		device = tpck_view_device_of(view, entry);
	}
	if (view)
		tpck_view_unlock(view);
	if (order) {
		tpck_view_tell(&view->news);
		tpck_files_revive();
		error = wait ? tpck_files_await(order, device) : 0;
	}
	/* Until it is there, whoever syncs it waits for that. */
	if (gone || (order && wait && !error))
		forget(what);
	errno = saved;
	return order || gone ? error : -1;
}

/* The bytes are to stay as they were when they were `found`; NULL: nobody can tell how that was. What is written beside the target by
 * a call from here on says so. In memory the time must tell, which is as coarse as the kernel's clock. */
static TPCK_FILES_SLOW void synced(uint64_t what, const struct stat *found)
{
	int saved = errno;
	struct tpck_view *view = tpck_files_lock();
	struct tpck_view_entry *entry = view ? tpck_files_unpack(view, what) : NULL;
	bool is = entry && !entry->sync_error, part = is && entry->kind == TPCK_VIEW_DIRECT;

	if (is && found && !part && tpck_clock_realtime_ns() < (uint64_t)found->st_ctim.tv_sec * 1000000000u + (uint64_t)found->st_ctim.tv_nsec + COARSE_NS)
		found = NULL;
	if (is)
		tpck_view_synced(entry, entry->mapped ? NULL : found);
	if (view)
		tpck_view_unlock(view);
	if (part)
		tpck_files_set_limit(what, 0);
	errno = saved;
}

/* The agent copies what is there now to its place beside the target. 0 or an errno. */
static int sync_memory(uint64_t what)
{
	struct tpck_view *view = tpck_files_lock();
	struct tpck_view_entry *entry;
	uint64_t wanted = 0;
	int error = 0;

	if (!view)
		return EIO;
	entry = tpck_files_unpack(view, what);
	if (entry)
		wanted = ++entry->synced;
	tpck_view_unlock(view);
	while (entry && (view = tpck_files_lock())) {
		uint32_t seen = view->done;
		bool done;

		entry = tpck_files_unpack(view, what);
		done = !entry || entry->sync_done >= wanted;
		if (entry && done)
			error = entry->sync_error;
		tpck_view_unlock(view);
		if (done)
			return error;
		tpck_view_tell(&view->syncs);
		tpck_files_revive();
		tpck_view_wait(&view->done, seen, 50);
	}
	return view ? error : EIO;
}

/* 0 or an errno. */
static int mapping_synced(uint64_t what)
{
	struct tpck_view *view = atomic_load(&tpck_files_view);
	struct tpck_view_entry *entry = view ? tpck_files_unpack(view, what) : NULL;
	bool waits = strcmp(tpck_files_settings->fsync, "memory") != 0 && !sync_at_close(what);

	if (waits && entry && entry->kind == TPCK_VIEW_MEMORY)
		return sync_memory(what);
	synced(what, NULL);
	return 0;
}

/* The file system that it is owed to; 0: it is none of the job's any more. */
static uint64_t device_of(uint64_t what)
{
	struct tpck_view *view = tpck_files_lock();
	const struct tpck_view_entry *entry = view ? tpck_files_unpack(view, what) : NULL;
	uint64_t device = entry ? tpck_view_device_of(view, entry) : 0;

	if (view)
		tpck_view_unlock(view);
	return device;
}

/* The kernel tells it once: whoever syncs the part behind this hears that all is well. */
static TPCK_FILES_SLOW void sync_failed(uint64_t what)
{
	int saved = errno;
	struct tpck_view *view = tpck_files_lock();
	struct tpck_view_entry *entry = view ? tpck_files_unpack(view, what) : NULL;

	if (entry && entry->kind == TPCK_VIEW_DIRECT)
		entry->sync_error = saved;
	if (view)
		tpck_view_unlock(view);
	errno = saved;
}

/* What a descriptor writes that another process has opened, as one that was there before a fork: its name says so. 0: nothing. */
static TPCK_FILES_SLOW uint64_t inherited(int fd)
{
	size_t length = strlen(tpck_files_folder);
	char link[40], path[TPCK_FILES_PATH], name[TPCK_FILES_PATH];
	const char *last, *digits = NULL;
	struct tpck_view *view;
	uint64_t serial, what = 0;
	ssize_t got;

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	got = tpck_sys_readlink(link, path, sizeof path - 1);
	path[got > 0 ? got : 0] = '\0';
	last = strrchr(path, '/');
	if (last && strncmp(last + 1, TPCK_VIEW_PART, sizeof TPCK_VIEW_PART - 1) == 0)
		digits = last + sizeof TPCK_VIEW_PART;
	else if (last && length && strncmp(path, tpck_files_folder, length) == 0 && path[length] == '/')
		digits = last + 1;
	serial = digits ? strtoull(digits, NULL, 16) : 0;
	view = serial ? tpck_files_lock() : NULL;
	if (!view)
		return 0;
	for (uint32_t i = 0, left = view->used; left && i < TPCK_VIEW_ENTRIES && !what; i++) {
		const struct tpck_view_entry *entry = &view->entry[i];

		if (entry->state == TPCK_VIEW_FREE)
			continue;
		left--;
		if (entry->serial != serial || (entry->state != TPCK_VIEW_OPEN && !entry->goes_on))
			continue;
		tpck_view_bytes(view, entry, tpck_files_folder, name, sizeof name);
		if (strcmp(strrchr(name, '/'), last) == 0)
			what = tpck_files_pack(i, serial);
	}
	tpck_view_unlock(view);
	return what;
}

/* A file of ours, with the level `durable`, or where nobody has copies. */
static TPCK_FILES_SLOW int sync_ours(int fd, uint64_t what, bool data)
{
	struct tpck_view *view = atomic_load(&tpck_files_view);
	struct tpck_view_entry *entry = view ? tpck_files_unpack(view, what) : NULL;
	struct stat found;
	int error;

	if (entry && entry->kind == TPCK_VIEW_MEMORY) {
		error = sync_memory(what);
		errno = error ? error : errno;
		return error ? -1 : 0;
	}
	if (tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH))
		return -1;
	/* What the disk says is told at once, and before anything is at the path. */
	if (data ? tpck_sys_fdatasync(fd) : tpck_sys_fsync(fd)) {
		sync_failed(what);
		return -1;
	}
	error = tpck_files_let_be(what, true);
	/* Who has it open may write to it, and does not know of this sync. */
	if (error == -1)
		synced(what, what_of(fd) ? &found : NULL);
	if (error <= 0)
		return 0;
	errno = error;
	return -1;
}

int tpck_files_fsync(int fd, bool data)
{
	uint64_t what = what_of(fd);
	bool durable = tpck_files_settings && strcmp(tpck_files_settings->fsync, "memory") != 0;
	int saved = errno, error;
	struct stat found;

	if (what == PAST) {
		what = 0;
	} else if (!what && !tpck_files_idle()) {
		what = inherited(fd);
		errno = saved;
	}
	/* At any level it is to survive its process. */
	if (what && !durable && tpck_files_let_be(what, false) != -1)
		return 0;
	if (what && (!durable || sync_at_close(what))) {
		synced(what, !what_of(fd) || tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH) ? NULL : &found);
		errno = saved;
		return 0;
	}
	if (what)
		return sync_ours(fd, what, data);
	error = durable && !tpck_files_idle() ? sync_folder(fd) : 0;
	errno = error ? error : saved;
	return error ? -1 : data ? tpck_sys_fdatasync(fd) : tpck_sys_fsync(fd);
}

ssize_t tpck_files_wrote_synced(int fd, ssize_t bytes)
{
	uint64_t what = what_of(fd);

	return bytes > 0 && what && what != PAST && tpck_files_fsync(fd, true) ? -1 : bytes;
}

int tpck_files_sync_range(int fd, off_t at, off_t bytes, unsigned flags)
{
	/* Who waits for the bytes may have them at the path after a crash. */
	if (what_of(fd) && flags & SYNC_FILE_RANGE_WAIT_AFTER)
		return tpck_files_fsync(fd, true);
	return tpck_sys_sync_file_range(fd, at, bytes, flags);
}

static TPCK_FILES_SLOW int seen_sync_all(int fd)
{
	bool durable = strcmp(tpck_files_settings->fsync, "memory") != 0;
	int saved = errno, error = 0, failed;
	struct tpck_view *view;
	uint64_t done = 0, what = what_of(fd), order, device = 0;
	struct stat found;

	/* One in memory is not on the file system that is meant. */
	if (what && what != PAST)
		device = device_of(what);
	if (fd >= 0 && !device && tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH))
		return 0;
	if (fd >= 0 && !device)
		device = found.st_dev;
	for (uint32_t i = 0; own() && atomic_load(&known) && i <= atomic_load(&highest); i++) {
		what = what_of((int)i);
		if (!what || what == PAST || what == done)
			continue;
		done = what;
		if (fd >= 0 && device_of(what) != device)
			continue;
		failed = tpck_files_fsync((int)i, false) ? errno : 0;
		error = error ? error : failed;
	}
	if (durable && !tpck_files_idle() && (view = tpck_files_lock())) {
		order = view->order;
		tpck_view_unlock(view);
		failed = tpck_files_await(order, device);
		error = error ? error : failed;
	}
	errno = error ? error : saved;
	return error ? -1 : 0;
}

int tpck_files_sync_all(int fd)
{
	return tpck_files_settings && (tpck_files_some() || !tpck_files_idle()) ? seen_sync_all(fd) : 0;
}

/* ---- locks ------------------------------------------------------------------------------------ */

static TPCK_FILES_SLOW void settle_inode(uint64_t what)
{
	int saved = errno;

	if (tpck_files_let_be(what, true) == -1)
		tpck_files_to_disk(what);
	errno = saved;
}

void tpck_files_locks(int fd)
{
	uint64_t what = what_of(fd);

	if (!tpck_files_may_take() || tpck_sys_getpid() != tpck_files_pid())
		return;
	if (what && what != PAST)
		settle_inode(what);
	tpck_files_in_place_locked(fd);
}

void tpck_files_maps(int fd)
{
	uint64_t what = what_of(fd);

	if (what && what != PAST && own())
		tpck_files_to_disk(what);
}

