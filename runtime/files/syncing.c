/* SPDX-License-Identifier: Apache-2.0 */
/* fsync() and its like, of files that are pending: of a descriptor, a folder, a mapping, a whole file system. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/kernel.h"
#include "runtime/files/files_private.h"

enum { COARSE_NS = 20000000 };

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
		tpck_files_forget(what);
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
		synced(what, tpck_files_what(fd) ? &found : NULL);
	if (error <= 0)
		return 0;
	errno = error;
	return -1;
}

int tpck_files_fsync(int fd, bool data)
{
	uint64_t what = tpck_files_what(fd);
	bool durable = tpck_files_settings && strcmp(tpck_files_settings->fsync, "memory") != 0;
	int saved = errno, error;
	struct stat found;

	if (what == TPCK_FILES_PAST) {
		what = 0;
	} else if (!what && !tpck_files_idle()) {
		what = inherited(fd);
		errno = saved;
	}
	/* At any level it is to survive its process. */
	if (what && !durable && tpck_files_let_be(what, false) != -1)
		return 0;
	if (what && (!durable || sync_at_close(what))) {
		synced(what, !tpck_files_what(fd) || tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH) ? NULL : &found);
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
	uint64_t what = tpck_files_what(fd);

	return bytes > 0 && what && what != TPCK_FILES_PAST && tpck_files_fsync(fd, true) ? -1 : bytes;
}

int tpck_files_sync_range(int fd, off_t at, off_t bytes, unsigned flags)
{
	/* Who waits for the bytes may have them at the path after a crash. */
	if (tpck_files_what(fd) && flags & SYNC_FILE_RANGE_WAIT_AFTER)
		return tpck_files_fsync(fd, true);
	return tpck_sys_sync_file_range(fd, at, bytes, flags);
}

static TPCK_FILES_SLOW int seen_sync_all(int fd)
{
	bool durable = strcmp(tpck_files_settings->fsync, "memory") != 0;
	int saved = errno, error = 0, failed;
	struct tpck_view *view;
	uint64_t done = 0, what = tpck_files_what(fd), order, device = 0;
	struct stat found;

	/* One in memory is not on the file system that is meant. */
	if (what && what != TPCK_FILES_PAST)
		device = device_of(what);
	if (fd >= 0 && !device && tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH))
		return 0;
	if (fd >= 0 && !device)
		device = found.st_dev;
	for (int one = -1; (what = tpck_files_next(&one));) {
		if (what == done)
			continue;
		done = what;
		if (fd >= 0 && device_of(what) != device)
			continue;
		failed = tpck_files_fsync(one, false) ? errno : 0;
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

static TPCK_FILES_SLOW int seen_msync(void *address, size_t bytes, int flags)
{
	bool durable = strcmp(tpck_files_settings->fsync, "memory") != 0;
	int error = 0, failed, saved;
	unsigned from = 0;
	uint64_t what;

	if (tpck_sys_msync(address, bytes, flags))
		return -1;
	saved = errno;
	while ((what = tpck_files_mapped_in(address, bytes, &from))) {
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
	if (!(flags & MS_SYNC) || !tpck_files_mapped_some())
		return tpck_sys_msync(address, bytes, flags);
	return seen_msync(address, bytes, flags);
}
