/* SPDX-License-Identifier: Apache-2.0 */
/* Which files of compilers' caches a resumed program sees. */
#include "config.h"

#include "runtime/base/kernel.h"
#include "runtime/follow/caches.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/layout.h"
#include "runtime/base/readable.h"
#include "runtime/follow/follow_private.h"

#define VARIABLE "_TRANSPCKPT_CACHES_HIDDEN"

/* More are given to a program as they are: the list is made on a stack. */
enum { VARIABLES = 8192 };

_Atomic bool tpck_caches_hiding_now;
static uint64_t hidden_from, hidden_to;
extern char **environ;

static char line[sizeof VARIABLE + 48]; /* what programs that are started find in their environment */

/* ---- which folders ------------------------------------------------------------------------------ */

/* Whether the path is FOLDER/BELOW or lies in it; `folder` may end with slashes, `below` is "" or begins with one. In line: most
 * paths differ from a folder in their first letters. */
static inline bool lies_in(const char *path, const char *folder, const char *below)
{
	const char *at = path;

	if (*folder != '/')
		return false;
	while (*folder && *folder == *at)
		folder++, at++;
	while (*folder == '/')
		folder++;
	if (*folder)
		return false;
	while (at > path + 1 && at[-1] == '/')
		at--;
	while (*below && *below == *at)
		below++, at++;
	return !*below && (!*at || *at == '/');
}

static bool inductors(const char *path, const char *temporary)
{
	static const char begin[] = "/torchinductor_";
	size_t length = strlen(temporary);

	while (length > 1 && temporary[length - 1] == '/')
		length--;
	return length && strncmp(path, temporary, length) == 0 && strncmp(path + length, begin, sizeof begin - 1) == 0;
}

#define PLACE(VARIABLE, BELOW) {VARIABLE "=", sizeof VARIABLE, BELOW}
static const struct {
	const char *variable;
	size_t length;
	const char *below;
} places[] = {
	PLACE("TORCHINDUCTOR_CACHE_DIR", ""), PLACE("TRITON_CACHE_DIR", ""), PLACE("TRITON_HOME", "/.triton/cache"),
	PLACE("CUPY_CACHE_DIR", ""), PLACE("HOME", "/.triton/cache"), PLACE("HOME", "/.cupy/kernel_cache"), PLACE("TMPDIR", ""),
};
#undef PLACE
enum { PLACES = sizeof places / sizeof *places, TEMPORARY = PLACES - 1 };

/* What the variables say, looked up again when the environment has other entries. A thread that reads while another one looks gets
 * some of either, which are all strings of the environment. */
static const char *_Atomic values[PLACES];
static _Atomic uint64_t looked_at;

static void look_up(uint64_t entries)
{
	for (size_t i = 0; i < PLACES; i++) {
		const char *value = NULL;

		for (char *const *e = environ; e && *e && !value; e++)
			if (**e == *places[i].variable && strncmp(*e, places[i].variable, places[i].length) == 0)
				value = *e + places[i].length;
		atomic_store_explicit(&values[i], value, memory_order_relaxed);
	}
	atomic_store_explicit(&looked_at, entries, memory_order_release);
}

bool tpck_caches_hold(const char *absolute)
{
	bool temporary = strstr(absolute, "/torchinductor_") != NULL;
	uint64_t entries = 1, weight = 1;
	const char *value;

	/* For every path that a program touches: the entries' addresses are enough to tell that nothing has changed. */
	for (char *const *e = environ; e && *e; e++)
		entries += (uintptr_t)*e * (weight += 2);
	if (atomic_load_explicit(&looked_at, memory_order_acquire) != entries)
		look_up(entries);
	for (size_t i = 0; i < TEMPORARY; i++) {
		value = atomic_load_explicit(&values[i], memory_order_relaxed);
		if (value && lies_in(absolute, value, places[i].below))
			return true;
	}
	value = atomic_load_explicit(&values[TEMPORARY], memory_order_relaxed);
	return temporary && (inductors(absolute, "/tmp") || inductors(absolute, "/var/tmp") || (value && inductors(absolute, value)));
}

static bool says(const char *variable)
{
	return strncmp(variable, VARIABLE "=", sizeof VARIABLE) == 0;
}

/* ---- which files -------------------------------------------------------------------------------- */

void tpck_caches_hide(uint64_t from_ns, uint64_t to_ns)
{
	hidden_from = from_ns;
	hidden_to = to_ns;
	snprintf(line, sizeof line, VARIABLE "=%" PRIu64 "-%" PRIu64, from_ns, to_ns);
	atomic_store(&tpck_caches_hiding_now, true);
}

/* The program itself finds what it would find without. */
TPCK_AT_START void tpck_caches_inherit(void)
{
	uint64_t from, to;
	char **at = environ;

	while (at && *at && !says(*at))
		at++;
	if (!at || !*at)
		return;
	if (sscanf(*at + sizeof VARIABLE, "%" SCNu64 "-%" SCNu64, &from, &to) == 2)
		tpck_caches_hide(from, to);
	do
		at[0] = at[1];
	while (*at++);
}

size_t tpck_caches_room_slow(char *const variables[])
{
	size_t count = 0;

	if (!variables || !tpck_readable_list(variables))
		return 0;
	for (; variables[count]; count++)
		if (says(variables[count]))
			return 0;
	return count < VARIABLES ? count + 2 : 0;
}

char *const *tpck_caches_told(char *const variables[], char **in, size_t room)
{
	memcpy(in, variables, (room - 2) * sizeof *in);
	in[room - 2] = line;
	in[room - 1] = NULL;
	return in;
}

/* Folders are never hidden: making them again says that they are there, which nobody minds. */
static bool hidden_there(const char *absolute)
{
	struct statx found;
	uint64_t born;

	if (!tpck_caches_hold(absolute) ||
	    tpck_sys_statx(AT_FDCWD, absolute, AT_SYMLINK_NOFOLLOW, STATX_TYPE | STATX_BTIME | STATX_MTIME, &found) ||
	    S_ISDIR(found.stx_mode))
		return false;
	if (!(found.stx_mask & STATX_BTIME))
		found.stx_btime = found.stx_mtime;
	born = (uint64_t)found.stx_btime.tv_sec * 1000000000u + found.stx_btime.tv_nsec;
	return born >= hidden_from && born < hidden_to;
}

bool tpck_caches_refuse_slow(int folder, const char *path, int flags)
{
	char absolute[TPCK_FOLLOW_PATH];
	int saved = errno;
	bool hidden = tpck_follow_absolute(folder, path, absolute, sizeof absolute) && hidden_there(absolute);

	if (hidden && flags & O_CREAT) {
		tpck_sys_unlinkat(AT_FDCWD, absolute, 0);
		hidden = false;
	}
	errno = hidden ? ENOENT : saved;
	return hidden;
}
