/* SPDX-License-Identifier: Apache-2.0 */
/* Paths of descriptors that this process has (/proc/self/fd/7, /dev/fd/7): of one that writes a pending file they lead to where its
 * bytes are. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/kernel.h"
#include "runtime/base/readable.h"
#include "runtime/base/text.h"
#include "runtime/files/files_private.h"

/* The number that a text is up to `end`, which is moved behind it. -1: none. */
static int number(const char **text)
{
	int value = 0, digits = 0;

	for (; **text >= '0' && **text <= '9' && digits < 9; ++*text, digits++)
		value = 10 * value + (**text - '0');
	return digits ? value : -1;
}

static bool begins(const char **text, const char *with)
{
	size_t length = strlen(with);

	if (strncmp(*text, with, length) != 0)
		return false;
	*text += length;
	return true;
}

/* The number of a path that is a descriptor's of this process; -1: it is none. */
static int number_of(const char *path)
{
	static const char *const streams[] = {"stdin", "stdout", "stderr"};
	int fd;

	if (begins(&path, "/dev/")) {
		for (int i = 0; i < 3; i++)
			if (strcmp(path, streams[i]) == 0)
				return i;
	} else {
		if (!begins(&path, "/proc/"))
			return -1;
		if (!begins(&path, "self/") && !begins(&path, "thread-self/") &&
		    (number(&path) != tpck_sys_getpid() || !begins(&path, "/")))
			return -1;
		/* A thread's are the process's. */
		if (begins(&path, "task/") && (number(&path) < 0 || !begins(&path, "/")))
			return -1;
	}
	if (!begins(&path, "fd/"))
		return -1;
	fd = number(&path);
	return *path ? -1 : fd;
}

int tpck_files_numbered(const char *path)
{
	int fd = tpck_files_some() ? number_of(path) : -1;

	return tpck_files_what(fd) ? fd : -1;
}

int tpck_files_open_numbered(int fd, const char *path, int flags)
{
	bool held = tpck_files_hold(fd, -1);
	int opened = tpck_sys_openat(AT_FDCWD, path, flags, 0);

	if (opened >= 0)
		tpck_files_copied(fd, opened);
	tpck_files_let_go(held);
	return opened;
}

/* Where the entry will be, in a buffer of TPCK_FILES_PATH bytes. The lock is held. */
static bool name_in(const struct tpck_view *view, const struct tpck_view_entry *entry, char *path)
{
	const struct tpck_view_key *key = tpck_view_key_of(entry);
	const char *folder = view->folder[key->folder].path;
	struct tpck_text text = tpck_text_in(path, TPCK_FILES_PATH);

	tpck_text_add(&text, folder);
	tpck_text_add(&text, *folder && folder[strlen(folder) - 1] == '/' ? "" : "/");
	tpck_text_add(&text, key->name);
	return !text.cut;
}

/* `folder`: the one it lies in. */
static TPCK_FILES_SLOW bool descriptor_name(int fd, char *path, bool folder)
{
	struct tpck_view *view = tpck_files_lock();
	struct tpck_view_entry *entry = view ? tpck_files_unpack(view, tpck_files_what(fd)) : NULL;
	bool good = entry && name_in(view, entry, path);

	if (good && folder)
		strcpy(path, view->folder[tpck_view_key_of(entry)->folder].path);
	if (view)
		tpck_view_unlock(view);
	return good;
}

const char *tpck_files_around_descriptor(int fd, char *buffer)
{
	return tpck_files_some() && tpck_files_what(fd) && descriptor_name(fd, buffer, true) ? buffer : NULL;
}

static TPCK_FILES_SLOW bool seen_canonical(const char *path, char *buffer)
{
	struct tpck_pending pending;
	struct tpck_view_entry *entry;
	struct tpck_view *view;
	bool good;

	if (tpck_files_look(AT_FDCWD, path, true, &pending) != TPCK_SEEN_PENDING || !(view = tpck_files_lock()))
		return false;
	entry = tpck_view_by_serial(view, pending.index, pending.serial);
	good = entry && name_in(view, entry, buffer);
	tpck_view_unlock(view);
	return good;
}

bool tpck_files_canonical(const char *path, char *buffer)
{
	int fd = tpck_files_numbered(path);

	if (fd >= 0)
		return descriptor_name(fd, buffer, false);
	return !tpck_files_idle() && seen_canonical(path, buffer);
}

TPCK_FILES_SLOW ssize_t tpck_files_name_of(int fd, char *target, size_t size)
{
	char path[TPCK_FILES_PATH];
	size_t length;

	if (!size || (ssize_t)size < 0 || !descriptor_name(fd, path, false))
		return -2;
	length = strlen(path);
	length = length < size ? length : size;
	if (!tpck_readable(target, length)) {
		errno = EFAULT;
		return -1;
	}
	memcpy(target, path, length);
	return (ssize_t)length;
}
