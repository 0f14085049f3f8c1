/* SPDX-License-Identifier: Apache-2.0 */
/* A file in memory that turns out larger than there is room for: it goes on beside its target, in the descriptors that the
 * program has. For that moment nobody may write to it, or copy, map or close a descriptor of it: those calls pass a gate. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/files/files_private.h"
#include "runtime/reach/reach.h"

enum { DESCRIPTORS = 16, DRAIN_MS = 1000, PIECE_BYTES = 1 << 20, BUFFERED_BYTES = 64 << 10 };

static _Atomic uint32_t inside, switching, forks;

/* ---- the gate --------------------------------------------------------------------------------- */

void tpck_files_gate_enter(void)
{
	for (;;) {
		atomic_fetch_add(&inside, 1);
		if (!atomic_load(&switching))
			return;
		atomic_fetch_sub(&inside, 1);
		while (atomic_load(&switching))
			tpck_reach_pause(1);
	}
}

void tpck_files_gate_leave(void)
{
	atomic_fetch_sub(&inside, 1);
}

/* False: somebody does not leave; a thread that was cancelled in its call, say. */
static bool gate_close(void)
{
	uint32_t open = 0;

	while (!atomic_compare_exchange_strong(&switching, &open, 1)) {
		open = 0;
		tpck_reach_pause(1);
	}
	for (int ms = 0; ms < DRAIN_MS && atomic_load(&inside); ms++)
		tpck_reach_pause(1);
	if (!atomic_load(&inside))
		return true;
	atomic_store(&switching, 0);
	return false;
}

uint32_t tpck_files_forks(void)
{
	return forks;
}

/* A child has all descriptors of the program: what is open then stays where it is. */
void tpck_files_forking(bool before)
{
	if (before) {
		tpck_files_gate_enter();
	} else {
		atomic_fetch_add(&forks, 1);
		tpck_files_gate_leave();
	}
}

void tpck_files_gate_forked(void)
{
	inside = switching = 0;
}

/* ---- to the disk ------------------------------------------------------------------------------ */

struct moving {
	uint64_t what;
	uint32_t index, to_index; /* of the entry in memory, and of the one that takes its place */
	uint64_t serial, to_serial;
	int fd[DESCRIPTORS], made[DESCRIPTORS]; /* the program's, and what each is to be; of copies the first has it */
	unsigned first[DESCRIPTORS], count;
	bool durable; /* a sync of it has succeeded: its bytes are on the disk, and stay there */
	char bytes[TPCK_FILES_PATH], part[TPCK_FILES_PATH];
};

/* Whether it can be moved: nobody else writes it, by no other means. The lock is held. */
static struct tpck_view_entry *movable(struct tpck_view *view, const struct moving *m)
{
	struct tpck_view_entry *entry = tpck_view_by_serial(view, m->index, m->serial);
	unsigned holders = 0;

	if (!entry || entry->kind != TPCK_VIEW_MEMORY || entry->state != TPCK_VIEW_OPEN || entry->mapped)
		return NULL;
	for (unsigned i = 0; i < TPCK_VIEW_HOLDERS; i++) {
		holders += entry->holder[i].pid != 0;
		if (entry->holder[i].pid && (entry->holder[i].pid != tpck_files_pid() || entry->holder[i].count != m->count))
			return NULL;
	}
	return holders == 1 ? entry : NULL;
}

/* What moves has an entry of its own meanwhile, which goes with its part if this process is killed. */
static bool begin(struct tpck_view *view, struct moving *m)
{
	struct tpck_view_entry *entry = movable(view, m), *to;
	const struct tpck_view_folder *folder;
	struct tpck_view_holder *holder;
	char name[64];

	if (!entry)
		return false;
	folder = &view->folder[tpck_view_key_of(entry)->folder];
	tpck_view_part_name(name, entry->serial);
	to = tpck_view_add(view, folder->device, folder->inode, folder->path, name, TPCK_VIEW_DIRECT);
	if (!to)
		return false;
	holder = tpck_view_holder_of(to, tpck_files_pid(), tpck_files_started());
	holder->count = m->count;
	holder->opening = 1;
	to->over = entry->over;
	to->remote = entry->remote;
	m->durable = entry->durable;
	m->to_index = (uint32_t)(to - view->entry);
	m->to_serial = to->serial;
	tpck_view_bytes(view, entry, tpck_files_folder, m->bytes, sizeof m->bytes);
	tpck_view_bytes(view, to, tpck_files_folder, m->part, sizeof m->part);
	return true;
}

static int copy_piece(int from, int to, char *piece, off_t at, off_t end)
{
	while (at < end) {
		long got = tpck_sys_pread(from, piece, end - at < PIECE_BYTES ? end - at : PIECE_BYTES, at), put;

		if (got <= 0)
			return got ? errno : 0;
		for (long done = 0; done < got; done += put) {
			put = tpck_sys_pwrite(to, piece + done, got - done, at + done);
			if (put <= 0)
				return put ? errno : EIO;
		}
		at += got;
	}
	return 0;
}

/* What there is of it; holes stay holes. 0 or an errno. */
static int copy_bytes(int from, int to)
{
	char *piece = (char *)tpck_sys_mmap(NULL, PIECE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	off_t data = 0, end = 0;
	struct stat found;
	int error = 0;

	if (piece == MAP_FAILED)
		return ENOMEM;
	if (tpck_sys_fstatat(from, "", &found, AT_EMPTY_PATH) || tpck_sys_ftruncate(to, found.st_size))
		error = errno;
	while (!error && end < found.st_size && (data = tpck_sys_lseek(from, end, SEEK_DATA)) >= 0) {
		end = tpck_sys_lseek(from, data, SEEK_HOLE);
		error = end < 0 ? errno : copy_piece(from, to, piece, data, end);
	}
	if (!error && data < 0 && errno != ENXIO)
		error = errno;
	if (!error)
		(void)!tpck_sys_fchown(to, -1, found.st_gid);
	if (!error && tpck_sys_fchmod(to, found.st_mode & 07777))
		error = errno;
	tpck_sys_munmap(piece, PIECE_BYTES);
	return error;
}

static int open_high(const char *path, int flags, mode_t mode)
{
	return tpck_sys_high(tpck_sys_openat(AT_FDCWD, path, flags | O_CLOEXEC, mode));
}

/* A description of the part for each one of the memory's, which copies of a descriptor share. 0 or an errno. */
static int open_parts(struct moving *m)
{
	pid_t pid = tpck_sys_getpid();

	for (unsigned i = 0; i < m->count; i++) {
		long flags = tpck_sys_fcntl(m->fd[i], F_GETFL, 0);

		m->first[i] = i;
		for (unsigned j = 0; j < i && m->first[i] == i; j++) {
			long differs = tpck_sys_kcmp(pid, pid, KCMP_FILE, m->fd[j], m->fd[i]);

			if (differs < 0)
				return EBADF;
			if (!differs)
				m->first[i] = m->first[j];
		}
		if (m->first[i] != i)
			continue;
		m->made[i] = open_high(m->part, (int)flags & (O_ACCMODE | O_APPEND | O_DIRECT | O_NONBLOCK), 0);
		if (m->made[i] < 0 || tpck_sys_lseek(m->made[i], tpck_sys_lseek(m->fd[i], 0, SEEK_CUR), SEEK_SET) < 0)
			return EBADF;
	}
	return 0;
}

static int make_part(struct moving *m)
{
	int from = open_high(m->bytes, O_RDONLY, 0), to, error;

	if (from < 0)
		return EBADF;
	to = open_high(m->part, O_RDWR | O_CREAT | O_EXCL, 0600);
	error = to < 0 ? errno : copy_bytes(from, to);
	if (!error && m->durable && tpck_sys_fsync(to))
		error = errno;
	if (!error) {
		tpck_files_keep_attributes(m->bytes, to);
		error = open_parts(m);
	}
	tpck_sys_close(from);
	if (to >= 0)
		tpck_sys_close(to);
	return error;
}

/* From here on it is written beside its target. Gives the lock back. */
static void turn(struct tpck_view *view, struct moving *m, struct tpck_view_entry *entry, struct tpck_view_entry *to)
{
	const struct tpck_view_folder *folder = &view->folder[tpck_view_key_of(entry)->folder];
	uint64_t seen = entry->seen;

	for (unsigned i = 0; i < m->count; i++) {
		long own = tpck_sys_fcntl(m->fd[i], F_GETFD, 0);

		tpck_sys_dup3(m->made[m->first[i]], m->fd[i], own & FD_CLOEXEC ? O_CLOEXEC : 0);
		tpck_files_writes(m->fd[i], m->to_index, m->to_serial, UINT64_MAX);
	}
	tpck_view_opened(view, m->to_index, m->to_serial, tpck_files_pid());
	to->pattern = entry->pattern;
	to->there = entry->there;
	if (entry->durable)
		tpck_view_synced(to, NULL);
	(void)tpck_view_move(view, to, folder->device, folder->inode, folder->path, tpck_view_key_of(entry)->name);
	to->seen = seen;
	tpck_view_discard(view, entry, tpck_files_folder);
}

/* 0: it is beside its target; EBADF: it stays in memory; what the disk said. */
static int move(struct moving *m)
{
	struct tpck_view_entry *entry, *to;
	struct tpck_view *view = tpck_files_lock();
	bool begun = view && begin(view, m);
	int error;

	if (view)
		tpck_view_unlock(view);
	if (!begun)
		return EBADF;
	memset(m->made, -1, sizeof m->made);
	error = make_part(m);
	view = tpck_files_lock();
	if (!view)
		return EBADF;
	entry = error ? NULL : movable(view, m);
	to = tpck_view_by_serial(view, m->to_index, m->to_serial);
	if (entry && to)
		turn(view, m, entry, to);
	else if (to)
		tpck_view_discard(view, to, tpck_files_folder);
	else
		tpck_view_unlock(view);
	for (unsigned i = 0; i < m->count; i++)
		if (m->made[i] >= 0)
			tpck_sys_close(m->made[i]);
	return error ? error : entry && to ? 0 : EBADF;
}

/* ---- room ------------------------------------------------------------------------------------- */

/* More of it in memory, or accounted for where it cannot leave. False: there is no room. */
static bool reserve(uint64_t what, uint64_t end, bool anyway)
{
	struct tpck_view *view = tpck_files_lock();
	struct tpck_view_entry *entry = view ? tpck_files_unpack(view, what) : NULL;
	uint64_t limit = UINT64_MAX, more, device;
	bool good = true;

	/* Asked for since it was synced: it is about to be another file than then. */
	if (entry && entry->kind == TPCK_VIEW_DIRECT)
		entry->sync_bytes = TPCK_VIEW_UNSYNCED;
	if (entry && entry->kind == TPCK_VIEW_MEMORY) {
		more = end > entry->bytes ? end - entry->bytes : 0;
		device = tpck_view_device_of(view, entry);
		if (tpck_files_room_for(view, device, more + end / 2, 0))
			more += end / 2;
		else
			good = anyway || tpck_files_room_for(view, device, more, 0);
		if (good) {
			entry->bytes += more;
			view->memory_bytes += more;
			limit = tpck_files_limit(entry->bytes);
		}
	}
	if (view)
		tpck_view_unlock(view);
	if (good)
		tpck_files_set_limit(what, limit);
	return good;
}

/* 0: it is beside its target; EBADF: it stays where it is; what the disk said. */
static TPCK_FILES_SLOW int move_out(uint64_t what)
{
	struct moving m = {.what = what, .index = (uint32_t)what - 1};
	struct tpck_view_entry *entry;
	uint64_t all = ~0ull, before;
	struct tpck_view *view;
	int error = EBADF;

	/* A handler must not come to the gate that its thread holds. */
	tpck_sys_sigprocmask(SIG_SETMASK, &all, &before, sizeof all);
	if (gate_close()) {
		view = tpck_files_lock();
		entry = view ? tpck_files_unpack(view, what) : NULL;
		m.serial = entry ? entry->serial : 0;
		if (view)
			tpck_view_unlock(view);
		m.count = tpck_files_descriptors_of(what, forks, m.fd, DESCRIPTORS);
		if (entry && m.count && !tpck_files_in_ring(m.serial))
			error = move(&m);
		atomic_store(&switching, 0);
	}
	tpck_sys_sigprocmask(SIG_SETMASK, &before, NULL, sizeof all);
	return error;
}

void tpck_files_to_disk(uint64_t what)
{
	int saved = errno;
	struct tpck_view *view = tpck_files_lock();
	struct tpck_view_entry *entry = view ? tpck_files_unpack(view, what) : NULL;
	bool in_memory = entry && entry->kind == TPCK_VIEW_MEMORY;

	if (view)
		tpck_view_unlock(view);
	if (in_memory)
		(void)move_out(what);
	errno = saved;
}

/* 0, or an errno that the disk has for what is to be written. */
static int make_room(uint64_t what, uint64_t end)
{
	int error;

	if (reserve(what, end, false))
		return 0;
	error = move_out(what);
	if (!error || error == ENOSPC || error == EDQUOT || error == EIO || error == EROFS)
		return error;
	(void)reserve(what, end, true);
	return 0;
}

/* Up to where the call may write. */
static uint64_t end_of(int fd, int64_t at, uint64_t bytes)
{
	struct stat found;

	if (at < 0) {
		at = tpck_sys_lseek(fd, 0, SEEK_CUR);
		if (tpck_sys_fcntl(fd, F_GETFL, 0) & O_APPEND && !tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH))
			at = found.st_size;
	}
	return (at < 0 ? 0 : (uint64_t)at) + bytes;
}

static TPCK_FILES_SLOW int seen_grows(int fd, int64_t at, uint64_t bytes)
{
	int saved = errno, error;
	uint64_t what, end;

	for (;;) {
		tpck_files_gate_enter();
		what = tpck_files_what(fd);
		end = end_of(fd, at, bytes);
		if (!what || end <= tpck_files_limit_of(fd))
			break;
		tpck_files_gate_leave();
		error = make_room(what, end);
		if (error) {
			errno = error;
			return -1;
		}
	}
	errno = saved;
	return 1;
}

int tpck_files_grows(int fd, int64_t at, uint64_t bytes)
{
	return tpck_files_what(fd) && tpck_files_limit_of(fd) != UINT64_MAX ? seen_grows(fd, at, bytes) : 0;
}

int tpck_files_leaves_memory(int fd)
{
	uint64_t what = tpck_files_what(fd);
	int saved = errno, error = what && tpck_files_limit_of(fd) != UINT64_MAX ? move_out(what) : 0;

	errno = error && error != EBADF ? error : saved;
	return error && error != EBADF ? -1 : 0;
}

int tpck_files_stream_grows(FILE *stream, uint64_t bytes)
{
	return tpck_files_some() ? tpck_files_grows(fileno(stream), -1, bytes + BUFFERED_BYTES) : 0;
}

void tpck_files_grown(int grows)
{
	if (grows > 0)
		tpck_files_gate_leave();
}

bool tpck_files_hold(int fd, int other)
{
	if (!tpck_files_what(fd) && !tpck_files_what(other))
		return false;
	tpck_files_gate_enter();
	return true;
}

TPCK_AT_START void tpck_files_let_go(bool held)
{
	if (held)
		tpck_files_gate_leave();
}
