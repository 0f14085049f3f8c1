/* SPDX-License-Identifier: Apache-2.0 */
/* Which descriptors of this process write pending files, and when the last one is closed. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/base/readable.h"
#include "runtime/files/files_private.h"
#include "runtime/files/layer.h"
#include "runtime/track/threads.h"

enum { MAPPINGS = 256, FEW = 16 };
#define PAST TPCK_FILES_PAST

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

bool tpck_files_own(void)
{
	return atomic_load_explicit(&known, memory_order_relaxed) && own();
}

uint64_t tpck_files_next(int *fd)
{
	uint64_t what = 0;

	for (uint32_t i = (uint32_t)(*fd + 1); !what && tpck_files_own() && i <= atomic_load(&highest); i++) {
		what = what_of((int)i);
		what = what == PAST ? 0 : what;
		*fd = (int)i;
	}
	return what;
}

bool tpck_files_mapped_some(void)
{
	return atomic_load_explicit(&mapped, memory_order_relaxed) && own();
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

void tpck_files_forget(uint64_t what)
{
	for (uint32_t fd = 0; fd <= atomic_load(&highest); fd++) {
		uint64_t was = what;

		if (atomic_compare_exchange_strong(&descriptors[fd], &was, 0))
			atomic_fetch_sub(&known, 1);
	}
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
	struct tpck_view_entry *put;
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
		put = tpck_view_plain(view, folder.st_dev, folder.st_ino, parent, name, found.st_ino);
		if (put)
			tpck_files_date(put);
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

uint64_t tpck_files_mapped_in(const void *address, size_t bytes, unsigned *from)
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

