/* SPDX-License-Identifier: Apache-2.0 */
/* What a file turns out to be that no rule takes by its name (runtime/view/learnt_names.h): looked at once, when it is closed. A
 * descriptor of any other file costs a look at a byte, one of a small file that was empty its size. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/base/log.h"
#include "runtime/files/files_private.h"
#include "runtime/view/learnt_names.h"

/* A slot has the first page of what a device was copied to, and how many they are. */
enum { TARGETS_BITS = 8, PAGE_BITS = 12, COUNT_BITS = 28 };

enum fresh {
	NO,
	EMPTY,      /* it was empty when it was opened */
	FROM_DEVICE, /* and has been written from what a device was copied to */
	IN_PLACE,    /* it is changed in place: in_place.c has more of it */
};

_Atomic uint8_t tpck_files_fresh[TPCK_FILES_DESCRIPTORS] TPCK_LARGE;
static _Atomic uint32_t highest;
static _Atomic uint64_t targets[1 << TARGETS_BITS] TPCK_LARGE;
static _Atomic bool copied;

/* ---- where a device was copied to ------------------------------------------------------------- */

void tpck_files_target(const void *address, size_t bytes)
{
	uint64_t first = (uint64_t)(uintptr_t)address >> PAGE_BITS, what;
	uint64_t pages = (((uint64_t)(uintptr_t)address + bytes - 1) >> PAGE_BITS) - first + 1;
	_Atomic uint64_t *slot = &targets[first * 0x9e3779b97f4a7c15ull >> (64 - TARGETS_BITS)];

	if (bytes < TPCK_LEARNT_LEAST || first >> (64 - COUNT_BITS) || pages >> COUNT_BITS)
		return;
	what = first << COUNT_BITS | pages;
	/* Mostly the same place as the last time: other threads keep their copy of the line. */
	if (atomic_load_explicit(slot, memory_order_relaxed) != what)
		atomic_store_explicit(slot, what, memory_order_relaxed);
	if (!atomic_load_explicit(&copied, memory_order_relaxed))
		atomic_store_explicit(&copied, true, memory_order_relaxed);
}

/* Whether so much of it that no small thing by chance lies there. */
static bool was_target(const void *buffer, size_t bytes)
{
	uint64_t begin = (uint64_t)(uintptr_t)buffer, end = begin + bytes;

	for (unsigned i = 0; i < 1 << TARGETS_BITS; i++) {
		uint64_t what = atomic_load_explicit(&targets[i], memory_order_relaxed);
		uint64_t from = what >> COUNT_BITS << PAGE_BITS, to = from + ((what & ((1ull << COUNT_BITS) - 1)) << PAGE_BITS);

		if (from < begin)
			from = begin;
		if (to > end)
			to = end;
		if (from < to && to - from >= TPCK_LEARNT_LEAST)
			return true;
	}
	return false;
}

static bool asks(int fd)
{
	return atomic_load_explicit(&copied, memory_order_relaxed) && fd >= 0 && fd < TPCK_FILES_DESCRIPTORS &&
	       atomic_load_explicit(&tpck_files_fresh[fd], memory_order_relaxed) == EMPTY;
}

void tpck_files_wrote_much(int fd, const void *buffer, size_t bytes)
{
	if (asks(fd) && was_target(buffer, bytes))
		atomic_store_explicit(&tpck_files_fresh[fd], FROM_DEVICE, memory_order_relaxed);
}

void tpck_files_wrote_parts(int fd, const struct iovec *parts, size_t bytes)
{
	for (; bytes && asks(fd); parts++) {
		size_t part = parts->iov_len < bytes ? parts->iov_len : bytes;

		if (part >= TPCK_LEARNT_LEAST)
			tpck_files_wrote_much(fd, parts->iov_base, part);
		bytes -= part;
	}
}

/* ---- what is written from empty --------------------------------------------------------------- */

static void is_from_now(int fd, uint8_t what)
{
	uint32_t top = atomic_load_explicit(&highest, memory_order_relaxed);

	atomic_store_explicit(&tpck_files_fresh[fd], what, memory_order_relaxed);
	while ((uint32_t)fd > top && !atomic_compare_exchange_weak(&highest, &top, (uint32_t)fd))
		;
}

/* What it was has ended. */
static void was(int fd)
{
	uint8_t is = atomic_load_explicit(&tpck_files_fresh[fd], memory_order_relaxed);

	if (is == IN_PLACE)
		tpck_files_in_place_closed(fd);
	if (is)
		atomic_store_explicit(&tpck_files_fresh[fd], NO, memory_order_relaxed);
}

void tpck_files_fresh_in_place(int fd)
{
	is_from_now(fd, IN_PLACE);
}

void tpck_files_opened(int fd, int flags)
{
	struct stat found;

	tpck_files_number(fd);
	if (fd < 0 || fd >= TPCK_FILES_DESCRIPTORS || !tpck_files_may_take())
		return;
	/* The descriptor may still count as what another one of its number was. */
	was(fd);
	if (tpck_files_in_place_opened(fd, flags, NULL) || !tpck_files_learns())
		return;
	/* What is made to be read and written in place is a database's. */
	if (!(flags & O_TRUNC) && ((flags & O_ACCMODE) != O_WRONLY || !(flags & O_CREAT)))
		return;
	if ((flags & O_ACCMODE) == O_RDONLY || flags & (O_APPEND | O_PATH | O_DIRECTORY) || (flags & O_TMPFILE) == O_TMPFILE)
		return;
	if (!(flags & (O_TRUNC | O_EXCL)) && (tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH) || found.st_size))
		return;
	is_from_now(fd, EMPTY);
}

void tpck_files_fresh_copied(int from, int to)
{
	uint8_t is;

	if (from < 0 || from >= TPCK_FILES_DESCRIPTORS || to < 0 || to >= TPCK_FILES_DESCRIPTORS)
		return;
	is = atomic_load_explicit(&tpck_files_fresh[from], memory_order_relaxed);
	if ((is == atomic_load_explicit(&tpck_files_fresh[to], memory_order_relaxed) && is != IN_PLACE) || from == to ||
	    tpck_sys_getpid() != tpck_files_pid())
		return;
	was(to);
	if (is == IN_PLACE)
		tpck_files_in_place_copied(from, to);
	else
		is_from_now(to, is);
}

void tpck_files_fresh_closed(unsigned first, unsigned last)
{
	uint32_t top = atomic_load_explicit(&highest, memory_order_relaxed);

	/* A child that shares this memory closes its own. */
	if (!top || first > top || tpck_sys_getpid() != tpck_files_pid())
		return;
	for (unsigned fd = first; fd <= last && fd <= top; fd++)
		was((int)fd);
}

/* Most are opened for writing only: the kernel opens them once more. The program closes the file just now, so that the
 * locks that go with any close of it go anyway. */
static TPCK_FILES_SLOW enum tpck_rule content(int fd, bool readable, uint64_t size)
{
	unsigned char head[TPCK_LEARNT_HEAD];
	char link[40];
	int again = -1;
	long got;

	if (!readable) {
		snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
		again = tpck_sys_high(tpck_sys_openat(AT_FDCWD, link, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0));
		if (again < 0)
			return TPCK_RULE_UNKNOWN;
	}
	got = tpck_sys_pread(readable ? fd : again, head, sizeof head, 0L);
	if (again >= 0)
		tpck_sys_close(again);
	return got > 0 ? tpck_learnt_content(head, (size_t)got, size) : TPCK_RULE_UNKNOWN;
}

static TPCK_FILES_SLOW void teach(int fd, uint64_t size, enum tpck_rule rule)
{
	char link[40], path[TPCK_FILES_PATH], folder[TPCK_FILES_PATH];
	struct tpck_view *view = atomic_load(&tpck_files_view);
	bool added = false;
	const char *name;
	ssize_t got;

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	got = tpck_sys_readlink(link, path, sizeof path - 1);
	path[got > 0 ? got : 0] = '\0';
	if (*path != '/' || !tpck_files_split(path, folder, &name) ||
	    tpck_rules_name(tpck_files_settings, path, false, NULL, 0) != TPCK_RULE_UNKNOWN)
		return;
	if (view && !view->ended && tpck_learnt_rule(view->pattern, view->learnt, folder, name) != TPCK_RULE_UNKNOWN)
		return;
	if (!tpck_files_ready_to_learn() || !(view = tpck_files_lock()))
		return;
	added = tpck_learnt_add(view, folder, name, rule);
	/* So the next one goes into memory. */
	if (added)
		tpck_view_size_note(view, tpck_view_pattern(folder, name), size);
	tpck_view_unlock(view);
	if (added)
		tpck_log_info("%s: %s; files of its name, but for digits, are taken from now on", path, tpck_rule_text(rule));
}

static bool large(int fd, struct stat *found)
{
	return !tpck_sys_fstatat(fd, "", found, AT_EMPTY_PATH) && S_ISREG(found->st_mode) && found->st_size >= TPCK_LEARNT_LEAST;
}

static void look_back(int fd, const struct stat *found, bool from_device)
{
	int flags = tpck_sys_fcntl(fd, F_GETFL, 0);
	enum tpck_rule rule = TPCK_RULE_DEVICE;

	/* The number may be another file's by now, by calls that nobody saw. */
	if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY || flags & O_APPEND || found->st_nlink != 1 || found->st_uid != geteuid())
		return;
	if (!from_device)
		rule = content(fd, (flags & O_ACCMODE) == O_RDWR, (uint64_t)found->st_size);
	if (rule != TPCK_RULE_UNKNOWN)
		teach(fd, (uint64_t)found->st_size, rule);
}

void tpck_files_turned_out(int fd)
{
	int saved = errno;
	struct stat found;
	uint8_t is = NO;
	bool whole;

	if (atomic_load_explicit(&tpck_files_fresh[fd], memory_order_relaxed) == IN_PLACE) {
		if (tpck_sys_getpid() == tpck_files_pid())
			was(fd);
		errno = saved;
		return;
	}
	whole = large(fd, &found);

	/* A child that shares this memory does not close the program's. */
	if (!whole || tpck_sys_getpid() == tpck_files_pid())
		is = atomic_exchange_explicit(&tpck_files_fresh[fd], NO, memory_order_relaxed);
	if (is && whole && tpck_files_may_take())
		look_back(fd, &found, is == FROM_DEVICE);
	errno = saved;
}

/* ---- what is taken by it ---------------------------------------------------------------------- */

/* A folder by the kernel's name, as it was when it was learnt. */
static TPCK_FILES_SLOW bool learnt_at(const struct tpck_view *view, int folder, const char *path)
{
	char parent[TPCK_FILES_PATH], link[40];
	size_t length, rest;
	const char *name;
	ssize_t got;
	int fd;

	if (!tpck_files_split(path, parent, &name))
		return false;
	fd = tpck_sys_high(tpck_sys_openat(folder, parent, O_PATH | O_DIRECTORY | O_CLOEXEC, 0));
	if (fd < 0)
		return false;
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	got = tpck_sys_readlink(link, parent, sizeof parent - 1);
	tpck_sys_close(fd);
	length = got > 0 ? (size_t)got : 0;
	rest = strlen(name);
	parent[length] = '\0';
	if (*parent != '/' || tpck_learnt_rule(view->pattern, view->learnt, parent, name) == TPCK_RULE_UNKNOWN ||
	    length + rest + 2 > sizeof parent)
		return false;
	parent[length++] = '/';
	memcpy(parent + length, name, rest + 1);
	return tpck_rules_name(tpck_files_settings, length > 1 && parent[length - 2] == '/' ? parent + 1 : parent, false, NULL, 0) ==
	       TPCK_RULE_UNKNOWN;
}

bool tpck_files_learnt(int folder, const char *path)
{
	struct tpck_view *view = atomic_load_explicit(&tpck_files_view, memory_order_acquire);
	uint32_t count = view ? atomic_load_explicit(&view->learnt, memory_order_acquire) : 0;
	const char *slash = strrchr(path, '/');
	int saved = errno;
	bool learnt;

	if (!count || view->ended || !tpck_files_learns() ||
	    !tpck_learnt_may_be(view->pattern, count, slash ? slash + 1 : path))
		return false;
	learnt = learnt_at(view, folder, path);
	errno = saved;
	return learnt;
}
