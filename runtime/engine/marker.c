/* SPDX-License-Identifier: Apache-2.0 */
/* Looking for markers without waiting for ever. */
#include "config.h"

#include "runtime/base/kernel.h"
#include "runtime/base/tier_settings.h"
#include "runtime/engine/marker.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/layout.h"
#include "runtime/base/log.h"
#include "runtime/base/text.h"

/* In the environment of what a program starts: a file system did not answer. */
#define VARIABLE "_TRANSPCKPT_UNANSWERED"
/* After so long somebody who looks on should know, and so long waits whose parent has waited. */
enum { SAY_MS = 5000, AGAIN_MS = 1000 };

TPCK_AT_START void tpck_marker_path(char *path, size_t size, const char *store, const char *job, const char *folder, uint64_t id)
{
	struct tpck_text text = tpck_text_in(path, size);

	tpck_text_add(&text, store);
	tpck_text_add(&text, "/");
	tpck_text_add(&text, job);
	tpck_text_add(&text, "/");
	tpck_text_add(&text, folder);
	tpck_text_add(&text, "/");
	tpck_text_hexadecimal(&text, id, 16);
}

static TPCK_AT_START void names_path(char *path, size_t size, const char *store, const char *job, uint64_t names)
{
	struct tpck_text text;

	tpck_marker_path(path, size, store, job, "programs", names);
	text = tpck_text_in(path + strlen(path), size - strlen(path));
	tpck_text_add(&text, ".names");
}

static TPCK_AT_START enum tpck_marker is_in(const char *store, const char *job, uint64_t digest, uint64_t names)
{
	char path[TPCK_SETTING_TEXT_MAX + 256];

	tpck_marker_path(path, sizeof path, store, job, "programs", digest);
	if (!tpck_sys_faccessat(AT_FDCWD, path, F_OK))
		return TPCK_MARKER_PRESENT;
	names_path(path, sizeof path, store, job, names);
	return tpck_sys_faccessat(AT_FDCWD, path, F_OK) ? TPCK_MARKER_ABSENT : TPCK_MARKER_NAMES;
}

enum place {
	PLACE_NONE,   /* there is no such folder */
	PLACE_DEVICE, /* it is on a block device, which answers */
	PLACE_REMOTE, /* it may be on a network, or a program's, or is not known */
};

static TPCK_AT_START bool is_on_device(int at, const char *path, int flags, bool *link)
{
	struct statx found = {0};

	if (tpck_sys_statx(at, path, flags | AT_STATX_DONT_SYNC, STATX_TYPE, &found))
		return false;
	*link = S_ISLNK(found.stx_mode);
	return found.stx_dev_major != 0;
}

/* Asks block devices only: how far the path is in the kernel's memory, and from there on one name after the other. */
static TPCK_AT_START enum place place_of(const char *store)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_CACHED};
	char part[TPCK_SETTING_TEXT_MAX + 2];
	size_t known = strlen(store);
	bool device, link = false;
	int fd;

	for (;;) {
		memcpy(part, store, known);
		part[known] = '\0';
		fd = tpck_sys_openat2(AT_FDCWD, known ? part : store[0] == '/' ? "/" : ".", &how, sizeof how);
		if (fd >= 0)
			break;
		if (errno == ENOENT)
			return PLACE_NONE;
		if (errno != EAGAIN || !known)
			return PLACE_REMOTE;
		while (known && store[known - 1] != '/')
			known--;
		while (known && store[known - 1] == '/')
			known--;
	}
	device = is_on_device(fd, "", AT_EMPTY_PATH, &link);
	tpck_sys_close(fd);
	while (device && store[known]) {
		while (store[known] == '/')
			known++;
		while (store[known] && store[known] != '/')
			known++;
		memcpy(part, store, known);
		part[known] = '\0';
		errno = 0;
		device = is_on_device(AT_FDCWD, part, AT_SYMLINK_NOFOLLOW, &link) && !link;
		if (errno == ENOENT)
			return PLACE_NONE;
	}
	return device ? PLACE_DEVICE : PLACE_REMOTE;
}

/* ---- aside -------------------------------------------------------------------------------- */

struct search {
	const struct tpck_settings *settings;
	const char *job;
	uint64_t digest, names;
	char *where;    /* a folder of names, once one is found */
	size_t size;
	unsigned tiers; /* those to look in, a bit each */
	int answers;    /* where the child writes a byte for each: whether it is there */
};

/* What was found in a store: whether the search is over. */
static TPCK_AT_START bool is_over(const struct search *search, const char *store, enum tpck_marker found)
{
	/* The first of them stays: memory is newest. */
	if (found == TPCK_MARKER_NAMES && !search->where[0])
		names_path(search->where, search->size, store, search->job, search->names);
	return found == TPCK_MARKER_PRESENT;
}

static TPCK_AT_START enum tpck_marker nowhere(const struct search *search)
{
	return search->where[0] ? TPCK_MARKER_NAMES : TPCK_MARKER_ABSENT;
}

static unsigned next_of(const struct search *search, unsigned tier)
{
	while (tier < 8 * sizeof search->tiers && !(search->tiers & 1u << tier))
		tier++;
	return tier;
}

/* The child, which has the program's memory, and descriptors of its own: system calls only. */
static int look(void *argument)
{
	const struct search *search = argument;
	char folder[TPCK_SETTING_TEXT_MAX], kind[TPCK_TIER_KIND], found;

	tpck_sys_prctl(PR_SET_PDEATHSIG, SIGKILL);
	/* Who reads what the program prints waits for its end, not for this one's. */
	tpck_sys_dup3(search->answers, 0, 0);
	tpck_sys_close_range(1, ~0u, 0);
	for (unsigned t = next_of(search, 0); tpck_settings_tier(search->settings, t, kind, folder, sizeof folder); t = next_of(search, t + 1)) {
		found = (char)is_in(folder, search->job, search->digest, search->names);
		tpck_sys_write(0, &found, 1);
	}
	return 0;
}

static enum tpck_marker hear(const struct search *search, int answers)
{
	bool again = getenv(VARIABLE) != NULL, said = again;
	double limit_ms = search->settings->start_wait_sec * 1e3, passed_ms;
	uint64_t begun = tpck_clock_monotonic_ns();
	char folder[TPCK_SETTING_TEXT_MAX], kind[TPCK_TIER_KIND], found;
	unsigned t = next_of(search, 0);

	if (again && limit_ms > AGAIN_MS)
		limit_ms = AGAIN_MS;
	while (tpck_settings_tier(search->settings, t, kind, folder, sizeof folder)) {
		struct pollfd wait = {.fd = answers, .events = POLLIN};
		double until_ms = said || limit_ms < SAY_MS ? limit_ms : SAY_MS;

		passed_ms = (double)(tpck_clock_monotonic_ns() - begun) / 1e6;
		if (poll(&wait, 1, passed_ms < until_ms ? (int)(until_ms - passed_ms) + 1 : 0) > 0) {
			/* At its end something has killed the child. */
			if (tpck_sys_read(answers, &found, 1) != 1)
				return TPCK_MARKER_UNKNOWN;
			if (is_over(search, folder, (enum tpck_marker)found))
				return TPCK_MARKER_PRESENT;
			t = next_of(search, t + 1);
		} else if (passed_ms >= limit_ms) {
			if (!again)
				tpck_log_warn("%s has not answered for %g s: the program begins without having looked there (TRANSPCKPT_START_WAIT_SEC)",
					      folder, limit_ms / 1e3);
			return TPCK_MARKER_UNKNOWN;
		} else if (passed_ms >= until_ms) {
			tpck_log_warn("waiting for %s, which does not answer: there may be something to go on from (TRANSPCKPT_RESUME=never does not look)",
				      folder);
			said = true;
		}
	}
	return nowhere(search);
}

/* Where there is no child to be had it is this process that waits. */
static enum tpck_marker look_here(const struct search *search)
{
	char folder[TPCK_SETTING_TEXT_MAX], kind[TPCK_TIER_KIND];

	for (unsigned t = next_of(search, 0); tpck_settings_tier(search->settings, t, kind, folder, sizeof folder); t = next_of(search, t + 1))
		if (is_over(search, folder, is_in(folder, search->job, search->digest, search->names)))
			return TPCK_MARKER_PRESENT;
	return nowhere(search);
}

/* One that hangs may not even end when it is killed; it is left alone then, and never comes back to the program's memory. */
static void end_child(int child, bool ends)
{
	long how = 0x80000000 /* __WCLONE */ | (ends ? 0 : 1 /* WNOHANG */);

	if (!ends)
		tpck_sys_kill(child, SIGKILL);
	for (int tries = 0; tries < 20 && tpck_sys_wait4(child, NULL, how, NULL) == 0; tries++)
		poll(NULL, 0, 1);
}

static enum tpck_marker look_aside(struct search *search)
{
	static char stack[16 << 10] TPCK_LARGE __attribute__((aligned(16)));
	enum tpck_marker marker;
	sigset_t all, before;
	int ends[2], child;

	if (tpck_sys_pipe2(ends, O_CLOEXEC))
		return look_here(search);
	search->answers = ends[1];
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	/* The child's end sends no signal. */
	child = clone(look, stack + sizeof stack, CLONE_VM, search);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	tpck_sys_close(ends[1]);
	marker = child < 0 ? look_here(search) : hear(search, ends[0]);
	tpck_sys_close(ends[0]);
	if (marker == TPCK_MARKER_UNKNOWN)
		setenv(VARIABLE, "1", 1);
	if (child > 0)
		end_child(child, marker == TPCK_MARKER_ABSENT || marker == TPCK_MARKER_NAMES);
	return marker;
}

/* ---- all places --------------------------------------------------------------------------- */

TPCK_AT_START enum tpck_marker tpck_marker_look(const struct tpck_settings *settings, const char *job, uint64_t digest, uint64_t names,
						char *where, size_t size)
{
	char folder[TPCK_SETTING_TEXT_MAX], kind[TPCK_TIER_KIND];
	struct search search = {.settings = settings, .job = job, .digest = digest, .names = names, .where = where, .size = size};

	/* Memory never makes anybody wait, and a store that cannot be written leaves the marker there alone. */
	where[0] = '\0';
	tpck_settings_shm(settings, folder, sizeof folder);
	if (is_over(&search, folder, is_in(folder, job, digest, names)))
		return TPCK_MARKER_PRESENT;
	for (unsigned t = 0; tpck_settings_tier(settings, t, kind, folder, sizeof folder); t++) {
		enum place place = place_of(folder);

		if (place == PLACE_REMOTE)
			search.tiers |= 1u << t;
		else if (place == PLACE_DEVICE && is_over(&search, folder, is_in(folder, job, digest, names)))
			return TPCK_MARKER_PRESENT;
	}
	return search.tiers ? look_aside(&search) : nowhere(&search);
}
