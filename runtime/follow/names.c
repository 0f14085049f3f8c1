/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One name for a file: a program that writes step-7/model and reads latest/model, or knows its folder by a symbolic link and
 * by getcwd(), means one file. Links are those of the first run, in both runs.
 */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/digest.h"
#include "runtime/base/layout.h"
#include "runtime/follow/follow.h"
#include "runtime/follow/follow_private.h"
#include "runtime/track/threads.h"

/* Folders of which the name is known. What other processes do to links is seen after VALID_NS. */
enum { FOLDERS = 512, NAME = 256, LINKS_MAX = 40 };
#define VALID_NS 50000000u

static struct {
	uint64_t digest, at_ns;
	bool same; /* its name is the path that was asked for, as of most: the text lies nowhere */
} folders[FOLDERS] TPCK_LARGE;
static char names[FOLDERS][NAME] TPCK_LARGE;
/* Files that the program has made, by their names. */
static struct {
	_Atomic uint64_t digest, at_ns;
} made[FOLDERS] TPCK_LARGE;
static tpck_spin lock;
static _Atomic uint64_t changed_ns;

void tpck_names_changed(void)
{
	/* Not by the tick: what was known in the same one is not known any more. */
	changed_ns = tpck_clock_monotonic_ns();
}

uint64_t tpck_names_changed_ns(void)
{
	return changed_ns;
}

void tpck_names_made(const char *canonical)
{
	uint64_t digest = tpck_digest64(canonical, strlen(canonical), 0);

	atomic_store(&made[digest % FOLDERS].digest, 0);
	atomic_store(&made[digest % FOLDERS].at_ns, tpck_clock_tick_ns());
	atomic_store(&made[digest % FOLDERS].digest, digest);
}

static bool made_lately(const char *canonical)
{
	uint64_t digest = tpck_digest64(canonical, strlen(canonical), 0), at_ns;

	if (atomic_load(&made[digest % FOLDERS].digest) != digest || tpck_overlay_active())
		return false;
	at_ns = atomic_load(&made[digest % FOLDERS].at_ns);
	return at_ns > changed_ns && tpck_clock_tick_ns() - at_ns < VALID_NS;
}

/* The first `length` bytes of a path. Since when; 0: it is not. */
static uint64_t remembered(const char *path, size_t length, char *name)
{
	uint64_t digest = tpck_digest64(path, length, 0), now = tpck_clock_tick_ns(), at_ns = 0;

	tpck_spin_lock(&lock);
	if (folders[digest % FOLDERS].digest == digest && folders[digest % FOLDERS].at_ns > changed_ns &&
	    now - folders[digest % FOLDERS].at_ns < VALID_NS) {
		at_ns = folders[digest % FOLDERS].at_ns;
		if (folders[digest % FOLDERS].same)
			*(char *)mempcpy(name, path, length) = '\0';
		else
			strcpy(name, names[digest % FOLDERS]);
	}
	tpck_spin_unlock(&lock);
	return at_ns;
}

static void remember(const char *path, size_t length, const char *name, uint64_t at_ns)
{
	uint64_t digest = tpck_digest64(path, length, 0);
	bool same = strncmp(path, name, length) == 0 && !name[length];

	if (!same && strlen(name) >= NAME)
		return;
	tpck_spin_lock(&lock);
	folders[digest % FOLDERS].digest = digest;
	folders[digest % FOLDERS].at_ns = at_ns;
	folders[digest % FOLDERS].same = same;
	if (!same)
		strcpy(names[digest % FOLDERS], name);
	tpck_spin_unlock(&lock);
}

/* `out` gets the name of `path`, which has less than PATH bytes. */
static bool walk(const char *path, char *out, bool follow)
{
	char rest[TPCK_FOLLOW_PATH], target[TPCK_FOLLOW_PATH];
	char *at = strcpy(rest, path);
	size_t used = 0;
	int links = 0;

	*out = '\0';
	while (*at) {
		size_t length = strcspn(at, "/"), before = used;
		const char *name = at;
		bool last;
		ssize_t got;

		at += length;
		at += strspn(at, "/");
		last = !*at;
		if (!length || (length == 1 && *name == '.'))
			continue;
		if (length == 2 && name[0] == '.' && name[1] == '.') {
			while (used > 0 && out[--used] != '/')
				;
			out[used] = '\0';
			continue;
		}
		if (used + 1 + length >= TPCK_FOLLOW_PATH)
			return false;
		out[used++] = '/';
		memcpy(out + used, name, length);
		used += length;
		out[used] = '\0';
		if (tpck_follow_outside(out)) {
			/* The kernel's own links lead to no path. */
			if (used + 1 + strlen(at) >= TPCK_FOLLOW_PATH)
				return false;
			if (*at)
				strcat(strcpy(out + used, "/"), at);
			return true;
		}
		got = last && !follow ? -1 : tpck_follow_link_at(out, target, sizeof target);
		if (got <= 0)
			continue;
		if (++links > LINKS_MAX || (size_t)got + 1 + strlen(at) >= TPCK_FOLLOW_PATH)
			return false;
		target[got] = '/';
		strcpy(target + got + 1, at);
		at = strcpy(rest, target);
		used = *at == '/' ? 0 : before;
		out[used] = '\0';
	}
	if (!used)
		strcpy(out, "/");
	return true;
}

/* The same for a folder, from the name of the lowest one above it that is known. False: it is for walk(). Not inlined: threads'
 * stacks may be small. */
__attribute__((noinline)) static bool folder_name(const char *path, char *name)
{
	char target[TPCK_FOLLOW_PATH];
	uint64_t at_ns = 0;
	size_t length = strlen(path), at = length, used;

	while (at && !(at_ns = (at == length || path[at] == '/') ? remembered(path, at, name) : 0))
		at--;
	if (at == length)
		return true;
	if (!at_ns) {
		at_ns = tpck_clock_tick_ns();
		*name = '\0';
	}
	used = strcmp(name, "/") == 0 ? 0 : strlen(name);
	while (at < length) {
		size_t part = 1 + strcspn(path + at + 1, "/");

		/* Nothing, ".", "..", and what looks like them. */
		if (path[at] != '/' || part == 1 || (path[at + 1] == '.' && part <= 3) || used + part >= TPCK_FOLLOW_PATH)
			return false;
		memcpy(name + used, path + at, part);
		used += part;
		at += part;
		name[used] = '\0';
		if (tpck_follow_outside(name) || tpck_follow_link_at(name, target, sizeof target) > 0)
			return false;
		remember(path, at, name, at_ns);
	}
	return true;
}

bool tpck_names_canonical(char *path, bool follow, bool *absent)
{
	char name[TPCK_FOLLOW_PATH], *slash;
	size_t length = strlen(path);
	uint64_t at_ns;

	*absent = false;
	while (length > 1 && length < TPCK_FOLLOW_PATH && path[length - 1] == '/')
		path[--length] = '\0';
	slash = strrchr(path, '/');
	if (!slash || length >= TPCK_FOLLOW_PATH)
		return false;
	length = strlen(slash);
	if (length <= 3 && slash[1] == '.') /* "..", and what looks like it */
		slash = path;
	if (slash == path) {
		if (!walk(path, name, follow))
			return false;
		strcpy(path, name);
		return true;
	}
	*slash = '\0';
	at_ns = tpck_clock_tick_ns();
	if (!folder_name(path, name)) {
		if (!walk(path, name, true))
			return false;
		remember(path, strlen(path), name, at_ns);
	}
	*slash = '/';
	/* What the name is in its folder is asked for each time: it may be a link now that was none before. */
	if (strlen(name) + length >= TPCK_FOLLOW_PATH)
		return false;
	if (strcmp(name, "/") == 0)
		*name = '\0';
	memmove(path + strlen(name), slash, length + 1);
	memcpy(path, name, strlen(name));
	if (follow && !tpck_follow_outside(path) && !made_lately(path)) {
		ssize_t got = tpck_follow_link_at(path, name, sizeof name);

		*absent = got < 0 && errno == ENOENT && !tpck_overlay_active();
		if (got > 0 && !walk(path, name, true))
			return false;
		if (got > 0)
			strcpy(path, name);
	}
	return true;
}

void tpck_names_forked(void)
{
	tpck_spin_unlock(&lock);
}
