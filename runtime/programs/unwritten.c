/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What processes of the run that is gone on from wrote to files, and those that are made again in their place will write once more, is taken back
 * (writings.h): of those that had not ended by the boundary when each of them is made, so that it finds what the first one found; of those that were
 * made behind the boundary before the program is live.
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/base/log.h"
#include "runtime/base/tier_settings.h"
#include "runtime/follow/follow.h"
#include "runtime/programs/programs_private.h"
#include "runtime/programs/writings.h"
#include "runtime/wire/segment.h"

/* So often it is looked at a file again that grows meanwhile. */
enum { TRIES = 8 };
#define LOCK_NS 2000000000ull
static struct tpck_writings *all;    /* of this process, and of those that it makes */
static int unnamed = -1;             /* a descriptor of it, as long as there is no session */
static const struct tpck_settings *settings;
static char session[300] TPCK_LARGE;
static bool early_failed, is_said;
static uint32_t told;                /* how many entries there had been when the log was told of them */
static bool is_unsure;               /* what the first run's processes wrote is not all known */
static tpck_spin making;

/* ---- the file ------------------------------------------------------------------------------------- */

TPCK_AT_START void tpck_unwritten_with(const struct tpck_settings *with)
{
	settings = with;
}

/* The folder may not be there yet; the one above it is on the same file system, as long as it is no mount of its own. */
static struct tpck_writings *make_unnamed(void)
{
	char folder[TPCK_SETTING_TEXT_MAX + 16];
	struct tpck_writings *made;

	tpck_settings_shm(settings, folder, sizeof folder);
	made = folder[0] == '/' ? tpck_writings_unnamed(folder, &unnamed) : NULL;
	if (made || errno != ENOENT || folder[0] != '/')
		return made;
	strrchr(folder, '/')[0] = '\0';
	return tpck_writings_unnamed(folder[0] ? folder : "/", &unnamed);
}

static void note_output(void)
{
	for (int which = 1; which <= 2; which++)
		if (!tpck_follow_output_is(which, &all->head.output[which].device, &all->head.output[which].inode))
			all->head.output[which].inode = 0;
}

struct tpck_writings *tpck_unwritten_all(void)
{
	tpck_spin_lock(&making);
	if (!all && !early_failed && !(early_failed = !(all = make_unnamed())))
		note_output();
	tpck_spin_unlock(&making);
	return all;
}

/* A twin has had a folder of its own until now. */
static bool moves_from(const char *from, const char *to)
{
	char old[sizeof session + 16], new[sizeof session + 16];

	if (!all || !*from || strcmp(from, to) == 0)
		return false;
	snprintf(old, sizeof old, "%s/" TPCK_WRITTEN, from);
	snprintf(new, sizeof new, "%s/" TPCK_WRITTEN, to);
	if (tpck_sys_linkat(AT_FDCWD, old, AT_FDCWD, new, 0))
		early_failed = true;
	tpck_starts_move(to);
	return true;
}

int tpck_programs_session(const char *folder)
{
	bool moves = strlen(folder) < sizeof session && moves_from(session, folder);
	int result = 0, saved = errno;

	if (snprintf(session, sizeof session, "%s", folder) >= (int)sizeof session) {
		session[0] = '\0';
		return -ENAMETOOLONG;
	}
	/* This process may have been another one's program until now. */
	tpck_programs_belongs(NULL);
	tpck_child_session(session);
	tpck_spin_lock(&making);
	/* Processes that were made meanwhile go on with the same file. */
	if (unnamed >= 0 && tpck_writings_name(unnamed, session, TPCK_WRITTEN)) {
		tpck_writings_close(all);
		all = NULL;
		early_failed = true;
	}
	if (unnamed >= 0)
		tpck_sys_close(unnamed);
	unnamed = -1;
	if (!all && !(all = tpck_writings_new(session, TPCK_WRITTEN)))
		result = -errno;
	if (all)
		note_output();
	/* What was made before wrote without an entry. */
	if (all && early_failed)
		tpck_writings_lack(all, tpck_clock_monotonic_ns(), 0);
	early_failed = !all;
	tpck_spin_unlock(&making);
	if (!all)
		session[0] = '\0';
	if (moves)
		tpck_unwritten_inherit();
	errno = saved;
	return result;
}

/* The lock is held. A process that is made while its parent runs forward says no lines. */
static void leave(struct tpck_writings *from, const char *path)
{
	const char *slash = strrchr(path, '/');
	char *names = from->head.left;
	size_t used = strnlen(names, sizeof from->head.left - 1);

	if (!strstr(names, slash ? slash + 1 : path))
		snprintf(names + used, sizeof from->head.left - used, "%s%.60s", used ? ", " : "", slash ? slash + 1 : path);
	atomic_store(&from->head.has_left, true);
}

/* The lock is held. The entry's process may go on writing. */
static void outlive(struct tpck_writings *from, const struct tpck_writing *entry)
{
	const char *slash = strrchr(entry->path, '/');
	char *names = from->head.outlived, name[16];
	size_t used = strnlen(names, sizeof from->head.outlived - 1);

	snprintf(name, sizeof name, "%d (", atomic_load(&entry->process));
	if (!strstr(names, name))
		snprintf(names + used, sizeof from->head.outlived - used, "%s%s%.40s)", used ? ", " : "", name, slash ? slash + 1 : entry->path);
	atomic_store(&from->head.has_outlived, true);
}

/* Whoever has the lock takes back much, or is stopped: a second wait for the same one is none. */
static bool take_lock(struct tpck_writings *of)
{
	struct timespec pause = {0, 1000000};
	uint64_t until = tpck_clock_monotonic_ns() + LOCK_NS;
	int32_t holder = 0;
	bool taken;

	while (!(taken = tpck_shared_lock_take(&of->head.lock)) && (holder = atomic_load(&of->head.lock)) != atomic_load(&of->head.stuck) &&
	       tpck_clock_monotonic_ns() < until)
		tpck_sys_clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
	if (!taken && holder)
		atomic_store(&of->head.stuck, holder);
	return taken;
}

static void say_stuck(void)
{
	static int32_t said;
	int32_t stuck = all ? atomic_load(&all->head.stuck) : 0;

	if (!stuck || stuck == said)
		return;
	said = stuck;
	tpck_log_warn("process %d holds the lock of what processes wrote to files, and does not go on: what those wrote that are started again meanwhile is not taken back, "
		      "and may be there twice", stuck);
}

static void say_left(void)
{
	bool locked;

	say_stuck();
	if (!all || !(atomic_load(&all->head.has_left) || atomic_load(&all->head.has_outlived)))
		return;
	locked = tpck_shared_lock_take(&all->head.lock);
	if (!locked && !atomic_load(&all->head.stuck))
		return;
	if (atomic_exchange(&all->head.has_outlived, false))
		tpck_log_warn("processes of the first run have not ended, and what they write from here on those write once more that are started again: %s",
			      all->head.outlived);
	if (atomic_exchange(&all->head.has_left, false))
		tpck_log_warn("processes of the first run that are started again wrote to files that cannot be put back, and will write to them once more: %s",
			      all->head.left);
	if (!locked)
		return;
	all->head.left[0] = all->head.outlived[0] = '\0';
	tpck_shared_lock_free(&all->head.lock);
}

/* The children of this process go on with the same file. */
void tpck_unwritten_belongs(const struct tpck_root *root)
{
	char name[40];

	tpck_spin_lock(&making);
	if (unnamed >= 0) {
		atomic_store(&all->head.writer, root->through);
		snprintf(name, sizeof name, TPCK_WRITTEN ".%d", tpck_sys_getpid());
		if (tpck_writings_name(unnamed, root->session, name))
			tpck_log_warn("what children of this program write to files cannot be noted in %s: a resume may write it twice", root->session);
		tpck_sys_close(unnamed);
		unnamed = -1;
	}
	tpck_spin_unlock(&making);
}

void tpck_unwritten_boundary(void)
{
	uint32_t taken = all ? atomic_load(&all->head.taken) : 0;
	bool whole = true;
	int why = all ? atomic_load(&all->head.missed_error) : 0;

	if (why > 0 && !is_said) {
		is_said = true;
		errno = why;
		tpck_log_warn("a forked child writes to %s, which cannot be noted: %m; a resume at a step before that child may have it there twice, with a line",
			      all->head.missed_path);
	}
	say_left();
	for (uint32_t i = 0, count = told != taken ? tpck_writings_count(all) : 0; i < count; i++) {
		struct tpck_writing *entry = &all->entry[i];
		uint32_t kind = atomic_load(&entry->kind);

		whole = whole && kind != TPCK_WRITING_BEGUN;
		if (kind == TPCK_WRITING_NONE || kind == TPCK_WRITING_BEGUN || entry->told || atomic_load(&entry->inherited))
			continue;
		tpck_child_wrote(entry->writer, entry->path);
		entry->told = true;
	}
	if (whole)
		told = taken;
}

void tpck_unwritten_ended(uint32_t writer)
{
	if (all)
		tpck_writings_ended(all, writer);
}

/* ---- taking back ---------------------------------------------------------------------------------- */

static bool is_same(const struct tpck_writing *entry, const struct stat *found)
{
	return entry->device == found->st_dev && entry->inode == found->st_ino;
}

bool tpck_written_is(const struct tpck_writing *entry, uint32_t kind, const struct stat *found)
{
	return atomic_load(&entry->inherited) && atomic_load(&entry->kind) == kind && is_same(entry, found);
}

bool tpck_written_settles(struct tpck_writings *writings, struct tpck_writing *entry)
{
	if (!atomic_exchange(&entry->inherited, false))
		return false;
	atomic_store(&entry->kind, TPCK_WRITING_NONE);
	atomic_fetch_sub(&writings->head.inherited, 1);
	return true;
}

enum cut { CUT, UNCUT, GREW };

static enum cut cut_back(const struct tpck_writing *entry, const struct stat *found)
{
	int fd = tpck_sys_openat(AT_FDCWD, entry->path, O_WRONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK, 0);
	struct stat opened;
	enum cut cut = UNCUT;

	if (fd >= 0 && !tpck_sys_fstatat(fd, "", &opened, AT_EMPTY_PATH) && is_same(entry, &opened))
		cut = opened.st_size != found->st_size ? GREW : tpck_sys_ftruncate(fd, entry->before) ? UNCUT : CUT;
	if (fd >= 0)
		tpck_sys_close(fd);
	return cut;
}

static bool appends(const struct tpck_writing *entry, const struct stat *found)
{
	return tpck_written_is(entry, TPCK_WRITING_APPENDED, found) || tpck_written_is(entry, TPCK_WRITING_CHANGED, found);
}

static bool is_changed(const struct tpck_writing *entry, const struct stat *found)
{
	return atomic_load(&entry->kind) == TPCK_WRITING_CHANGED && (entry->mtime_s != found->st_mtim.tv_sec || entry->mtime_ns != found->st_mtim.tv_nsec);
}

/* The file is as it was before the first of those entries. What it has got since is theirs alone where they have written as much. */
static enum cut put_back(const struct tpck_writings *from, const struct stat *found)
{
	uint32_t count = tpck_writings_count(from);
	const struct tpck_writing *first = NULL;
	bool changed = false;
	int64_t theirs = 0;

	for (uint32_t i = 0; i < count; i++) {
		const struct tpck_writing *entry = &from->entry[i];

		if (!appends(entry, found))
			continue;
		changed = changed || is_changed(entry, found);
		theirs += tpck_former_wrote(entry);
		if (!first || entry->before < first->before || (entry->before == first->before && entry->when_ns < first->when_ns))
			first = entry;
	}
	if (!first || (found->st_size <= first->before && !changed && !first->is_new))
		return CUT;
	if (found->st_size > first->before && (found->st_size - first->before > theirs || !S_ISREG(found->st_mode)))
		return UNCUT;
	if (first->is_new && !found->st_size)
		return CUT; /* it may be a lock that others hold by now */
	if (first->is_new)
		return tpck_sys_unlinkat(AT_FDCWD, first->path, 0) ? UNCUT : CUT;
	if (changed && (found->st_size == first->before || theirs == 0))
		return UNCUT;
	return cut_back(first, found);
}

/* The file loses those entries. One of their processes may be writing still. */
static bool take_back_all(struct tpck_writings *from, const struct tpck_writing *of, struct stat *found)
{
	uint32_t count = tpck_writings_count(from);
	enum cut cut = put_back(from, found);

	for (unsigned tries = 0; cut == GREW && tries < TRIES && !tpck_sys_fstatat(AT_FDCWD, of->path, found, AT_SYMLINK_NOFOLLOW) && is_same(of, found); tries++)
		cut = put_back(from, found);
	for (uint32_t i = 0; i < count; i++)
		if (appends(&from->entry[i], found)) {
			if (tpck_former_lives(&from->entry[i]))
				outlive(from, &from->entry[i]);
			(void)tpck_written_settles(from, &from->entry[i]);
		}
	return cut == CUT;
}

/* False: it cannot be. */
static bool take_back(struct tpck_writings *from, struct tpck_writing *entry)
{
	struct stat found;
	bool done = true;

	if (tpck_sys_fstatat(AT_FDCWD, entry->path, &found, AT_SYMLINK_NOFOLLOW) || !is_same(entry, &found)) {
		(void)tpck_written_settles(from, entry); /* it is another one by now, or none */
		return true;
	}
	if (tpck_former_lives(entry))
		outlive(from, entry);
	switch (atomic_load(&entry->kind)) {
	case TPCK_WRITING_CREATED:
		done = S_ISREG(found.st_mode) && !tpck_sys_unlinkat(AT_FDCWD, entry->path, 0);
		break;
	case TPCK_WRITING_FOLDER:
		/* What is in it is written once more, too: tpck_programs_child_made_before(). */
		if (tpck_sys_unlinkat(AT_FDCWD, entry->path, AT_REMOVEDIR))
			return errno == ENOTEMPTY || errno == EEXIST;
		break;
	default:
		return take_back_all(from, entry, &found);
	}
	(void)tpck_written_settles(from, entry);
	return done;
}

/* Of all that are `wanted`; folders go behind what is in them, and those that were made last go first. */
static void take_back_where(struct tpck_writings *from, bool (*wanted)(const struct tpck_writing *, uint64_t), uint64_t which)
{
	int saved = errno;
	uint32_t count;

	tpck_former_await(&from->head);
	if (!take_lock(from)) {
		errno = saved;
		return;
	}
	tpck_former_read(from);
	count = tpck_writings_count(from);
	for (int folders = 0; folders < 2; folders++)
		for (uint32_t i = 0; i < count; i++) {
			struct tpck_writing *entry = &from->entry[folders ? count - 1 - i : i];
			uint32_t kind = atomic_load(&entry->kind);

			if (kind == TPCK_WRITING_NONE || !atomic_load(&entry->inherited) || (kind == TPCK_WRITING_FOLDER) != folders || !wanted(entry, which))
				continue;
			if (!take_back(from, entry))
				leave(from, entry->path);
		}
	tpck_shared_lock_free(&from->head.lock);
	errno = saved;
}

static bool is_of(const struct tpck_writing *entry, uint64_t writer)
{
	return entry->writer == writer || entry->family == writer;
}

static bool is_behind(const struct tpck_writing *entry, uint64_t boundary_ns)
{
	return entry->made_ns > boundary_ns;
}

void tpck_unwritten_of(uint32_t writer)
{
	if (all && writer && (tpck_former_is_kept() || atomic_load(&all->head.inherited)))
		take_back_where(all, is_of, writer);
}

/* ---- running forward ------------------------------------------------------------------------------ */

void tpck_unwritten_inherit(void)
{
	int saved = errno;

	if (all && !tpck_former_inherit(session, all))
		is_unsure = true;
	errno = saved;
}

void tpck_programs_unwrite(uint64_t step)
{
	int saved = errno;

	if (all && (tpck_former_is_kept() || atomic_load(&all->head.inherited)))
		take_back_where(all, is_behind, tpck_forward_boundary_ns());
	is_unsure = is_unsure || tpck_former_lack();
	if (is_unsure)
		tpck_log_warn("of some files to which processes wrote that are started again on the way to step %llu or behind it, it is not known what they got: "
			      "they may have it twice", (unsigned long long)step);
	is_unsure = false;
	/* What is left is of processes that are made again later, which may find their former ones at work still. */
	if (all && !atomic_load(&all->head.inherited))
		tpck_former_end();
	say_left();
	errno = saved;
}
