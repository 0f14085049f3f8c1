/* SPDX-License-Identifier: Apache-2.0 */
/* Files that a process has closed, and the library in it does not know: by io_uring, by a system call of the program's own, or since a ring
 * had it open for longer than any descriptor. Two looks in a row at what the process has open must agree, and what its end has closed does
 * not count: what was being written then is not whole. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "agent/files/publisher_private.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/view/opened.h"

/* A look costs no more than a hundredth of a processor. */
#define LOOK_NS 100000000ull
#define SHARE 100
enum { LOOKS = 1024 };

/* A file that a process has open, as it says. */
struct look {
	uint32_t index;
	uint64_t serial, started, device;
	int32_t pid;
	uint32_t count, turns;
	bool lingers, mapped, remote, missing;
	char bytes[TPCK_VIEW_PATH + 80]; /* of one that is missing */
};

/* Of whoever looks, but for the first two. */
static struct {
	_Atomic bool busy;     /* somebody looks */
	_Atomic uint64_t next_ns;
	struct look look[LOOKS];
	unsigned count;
	/* missing at the look before */
	struct {
		uint64_t serial;
		int32_t pid;
		uint32_t count, turns;
	} missed[LOOKS];
	unsigned missed_count;
	struct tpck_opened opened[LOOKS];
	int32_t ringed;        /* the process whose rings were looked for last */
} looks;

/* One whose descriptor is not there yet is not looked at; another name of a file that is whole never has one. */
static void gather(void)
{
	uint32_t left;

	looks.count = 0;
	if (!tpck_view_lock(files.view))
		return;
	left = files.view->used;
	for (uint32_t i = 0; left && i < TPCK_VIEW_ENTRIES && looks.count + TPCK_VIEW_HOLDERS <= LOOKS; i++) {
		const struct tpck_view_entry *entry = &files.view->entry[i];

		if (entry->state == TPCK_VIEW_FREE)
			continue;
		left--;
		if (entry->state != TPCK_VIEW_OPEN || entry->linked)
			continue;
		for (unsigned h = 0; h < TPCK_VIEW_HOLDERS; h++) {
			const struct tpck_view_holder *holder = &entry->holder[h];
			struct look *look = &looks.look[looks.count];

			if (!holder->pid || holder->opening)
				continue;
			looks.count++;
			look->index = i;
			look->serial = entry->serial;
			look->started = holder->started;
			look->device = entry->kind == TPCK_VIEW_DIRECT ? tpck_view_device_of(files.view, entry) : 0;
			look->pid = holder->pid;
			look->count = holder->count;
			look->turns = holder->turns;
			look->lingers = holder->lingers && !holder->count;
			look->mapped = entry->mapped;
			look->remote = entry->remote;
			look->missing = false;
			tpck_view_bytes(files.view, entry, home.folder, look->bytes, sizeof look->bytes);
		}
	}
	tpck_view_unlock(files.view);
}

/* All of this process that come behind `first`. What cannot be looked at is not missing, unless nobody can have it open. */
static void look_at_process(unsigned first)
{
	struct tpck_opening opening = {0};
	int32_t pid = looks.look[first].pid;
	unsigned count = 0;
	char process[32];

	for (unsigned i = first; i < looks.count; i++)
		if (looks.look[i].pid == pid)
			looks.opened[count++] = (struct tpck_opened){.serial = looks.look[i].serial};
	snprintf(process, sizeof process, "/proc/%d", pid);
	tpck_opened_descriptors(process, looks.opened, count, &opening);
	count = 0;
	for (unsigned i = first; i < looks.count; i++)
		if (looks.look[i].pid == pid)
			looks.look[i].missing = !looks.opened[count++].open && (!opening.unknown || looks.look[i].lingers);
	if (!opening.ring)
		return;
	atomic_store(&files.view->ring, pid);
	if (looks.ringed != pid)
		tpck_log_info("process %d uses io_uring: what it opens, closes and renames by that is not seen, and may be at its path before what it has closed otherwise",
			      pid);
	looks.ringed = pid;
}

/* Whether it was so at the look before, and nothing has come since. */
static bool again(const struct look *look)
{
	for (unsigned i = 0; i < looks.missed_count; i++)
		if (looks.missed[i].serial == look->serial && looks.missed[i].pid == look->pid)
			return looks.missed[i].count == look->count && looks.missed[i].turns == look->turns;
	return false;
}

/* What the kernel says of all that may have it open. Of a disk that may hang nothing is asked. */
static bool nobody_writes(const struct look *look)
{
	bool nobody;
	int fd;

	if (look->device && (look->remote || !files_may_go_ahead(look->device)))
		return false;
	fd = open(look->bytes, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return false;
	nobody = fcntl(fd, F_SETLEASE, F_RDLCK) == 0;
	close(fd);
	return nobody;
}

/* No thread of the process has it, nor a ring of its, nor is it mapped. */
static bool process_has_not(const struct look *look)
{
	struct tpck_opened one = {.serial = look->serial};
	struct tpck_opening opening = {0};
	struct dirent *task;
	char path[64 + NAME_MAX];
	DIR *tasks;

	snprintf(path, sizeof path, "/proc/%d/task", look->pid);
	tasks = opendir(path);
	if (!tasks)
		return false;
	/* Threads may have descriptors of their own; they mostly have not, and few files are missing. */
	while (!one.open && !one.registered && (task = readdir(tasks))) {
		if (task->d_name[0] == '.')
			continue;
		snprintf(path, sizeof path, "/proc/%d/task/%s", look->pid, task->d_name);
		tpck_opened_descriptors(path, &one, 1, &opening);
	}
	closedir(tasks);
	if (!one.open && !one.registered && (look->mapped || look->lingers)) {
		snprintf(path, sizeof path, "/proc/%d", look->pid);
		tpck_opened_mappings(path, &one, 1, &opening);
	}
	return !one.open && !one.registered && !opening.unknown && !(opening.ring && opening.rings_unknown);
}

static bool still_begun(const struct look *look)
{
	uint64_t started = tpck_view_process_started(look->pid);

	return started && (started == look->started || look->started == TPCK_VIEW_STARTED_UNKNOWN) && tpck_opened_goes_on(look->pid);
}

static void is_closed(const struct look *look)
{
	struct tpck_view_entry *entry;
	struct tpck_view_holder *holder;
	struct stat found;
	bool sized = !look->device && !stat(look->bytes, &found), closed = false;

	if (!tpck_view_lock(files.view))
		return;
	entry = tpck_view_by_serial(files.view, look->index, look->serial);
	holder = entry && entry->state == TPCK_VIEW_OPEN ? tpck_view_holder_of(entry, look->pid, 0) : NULL;
	if (holder && !holder->opening && holder->count == look->count && holder->turns == look->turns) {
		holder->pid = 0;
		closed = !tpck_view_held(entry);
	}
	if (closed && sized && entry->kind == TPCK_VIEW_MEMORY) {
		tpck_view_size_note(files.view, entry->pattern, (uint64_t)found.st_size);
		files.view->memory_bytes += (uint64_t)found.st_size - entry->bytes;
		entry->bytes = (uint64_t)found.st_size;
	}
	if (closed)
		tpck_view_close(files.view, entry);
	tpck_view_unlock(files.view);
	if (closed)
		tpck_view_tell(&files.view->news);
}

static void look_at_all(void)
{
	unsigned count = 0;

	gather();
	for (unsigned i = 0; i < looks.count; i++) {
		bool seen = false;

		for (unsigned j = 0; j < i && !seen; j++)
			seen = looks.look[j].pid == looks.look[i].pid;
		if (!seen)
			look_at_process(i);
	}
	for (unsigned i = 0; i < looks.count; i++)
		if (looks.look[i].missing && again(&looks.look[i]) && (nobody_writes(&looks.look[i]) || process_has_not(&looks.look[i])) && still_begun(&looks.look[i]))
			is_closed(&looks.look[i]);
	for (unsigned i = 0; i < looks.count; i++)
		if (looks.look[i].missing) {
			looks.missed[count].serial = looks.look[i].serial;
			looks.missed[count].pid = looks.look[i].pid;
			looks.missed[count].count = looks.look[i].count;
			looks.missed[count].turns = looks.look[i].turns;
			count++;
		}
	looks.missed_count = count;
}

/* What this thread has had of a processor. */
static uint64_t worked_ns(void)
{
	struct timespec now = {0};

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void files_look_at_open(struct lane *lane)
{
	uint64_t begun = worked_ns(), took;
	bool nobody = false;

	if (tpck_clock_monotonic_ns() < looks.next_ns || !atomic_compare_exchange_strong(&looks.busy, &nobody, true))
		return;
	if (tpck_clock_monotonic_ns() >= looks.next_ns) {
		files_is_busy(lane);
		look_at_all();
		lane->busy_ns = 0;
		took = worked_ns() - begun;
		looks.next_ns = tpck_clock_monotonic_ns() + (took * SHARE > LOOK_NS ? took * SHARE : LOOK_NS);
	}
	looks.busy = false;
}
