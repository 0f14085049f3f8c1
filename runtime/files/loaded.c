/* SPDX-License-Identifier: Apache-2.0 */
/* Which of the job's saves a process reads at its beginning, and when what it saves itself was made. */
#include "config.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/files/files_private.h"
#include "runtime/track/threads.h"

enum { LOADS = 16 };

static struct {
	uint64_t generation, timeline;
	const uint64_t *step;
} date;

static tpck_spin lock;
static _Atomic bool over;  /* it has begun: nothing is noted any more */
static uint64_t pattern[LOADS];
static unsigned count;

void tpck_files_dated(uint64_t generation, uint64_t timeline, const uint64_t *step)
{
	date.generation = generation;
	date.timeline = timeline;
	date.step = step;
}

void tpck_files_date(struct tpck_view_entry *entry)
{
	entry->generation = date.generation;
	entry->timeline = date.timeline;
	entry->step = date.step ? *date.step : 0;
}

bool tpck_files_notes_loads(void)
{
	return !atomic_load_explicit(&over, memory_order_relaxed);
}

static void note(uint64_t of)
{
	unsigned i = 0;

	tpck_spin_lock(&lock);
	while (i < count && pattern[i] != of)
		i++;
	if (i == count && count < LOADS)
		pattern[count++] = of;
	tpck_spin_unlock(&lock);
}

TPCK_FILES_SLOW void tpck_files_note_load(int fd)
{
	char link[40], path[TPCK_FILES_PATH], *slash;
	ssize_t got;

	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	got = tpck_sys_readlink(link, path, sizeof path - 1);
	path[got > 0 ? got : 0] = '\0';
	slash = strrchr(path, '/');
	if (!slash)
		return;
	*slash = '\0';
	note(tpck_view_pattern(path, slash + 1));
}

TPCK_FILES_SLOW void tpck_files_note_pending_load(const struct tpck_pending *pending)
{
	struct tpck_view *view = tpck_files_lock();
	struct tpck_view_entry *entry = view ? tpck_view_by_serial(view, pending->index, pending->serial) : NULL;
	uint64_t of = 0;

	/* What it has saved itself a moment ago is no checkpoint that it begins with. */
	if (entry && !(date.generation && entry->generation == date.generation))
		of = tpck_view_pattern(view->folder[tpck_view_key_of(entry)->folder].path, tpck_view_name_of(entry));
	if (view)
		tpck_view_unlock(view);
	if (of)
		note(of);
}

unsigned tpck_files_loaded(uint64_t *patterns, unsigned room)
{
	unsigned copied;

	atomic_store(&over, true);
	tpck_spin_lock(&lock);
	copied = count < room ? count : room;
	memcpy(patterns, pattern, copied * sizeof *pattern);
	tpck_spin_unlock(&lock);
	return copied;
}
