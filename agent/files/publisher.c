/* SPDX-License-Identifier: Apache-2.0 */
/* The program's own files: what was closed is put at its path, on each file system in the order of closing; pointers and removals
 * behind all that closed before. A disk that hangs or fails holds up what is owed to it, and what waits for that. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/files/file_digests.h"
#include "agent/files/publisher_private.h"
#include "agent/loop/trouble.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/view/view.h"

/* How often the processes are looked at that write. */
#define SWEEP_NS 100000000ull
enum { OPEN_MS = 100, WRITTEN_MS = 10, PATIENCE_MS = 5 };
/* Files that are closed in quick succession are gathered, for at most GATHER_MS and as many bytes in memory, as long as more come, unless
 * somebody waits for them: to put each at its path alone keeps the processors and the journal busy that the program makes the next ones
 * with. SUCCESSION_MS: so soon behind one that was closed another one is of the same succession; LULL_MS: once there is one, which a folder
 * of other files may come in between. */
enum { GATHER_MS = 2000, SUCCESSION_MS = 10, LULL_MS = 40, GATHERED_BYTES = 1 << 20, GATHERED_MOST = 64 << 20 };

struct files files = {
	.prepared_lock = PTHREAD_MUTEX_INITIALIZER, .spare_lock = PTHREAD_MUTEX_INITIALIZER, .ahead_lock = PTHREAD_MUTEX_INITIALIZER,
	.ahead = {.folder = -1, .part = {.fd = -1}},
};

/* ---- what processes leave --------------------------------------------------------------------- */

static void sweep(void)
{
	char lost[TPCK_VIEW_PATH + TPCK_VIEW_NAME];

	while (tpck_view_sweep(files.view, home.folder, lost))
		/* One that was being moved to its disk has two names. */
		if (*lost && !strstr(lost, "/" TPCK_VIEW_PART))
			tpck_log_warn("%s was being written when its process was killed; what was there before stays", lost);
	files.swept_ns = tpck_clock_monotonic_ns();
}

static bool known(uint64_t serial)
{
	for (uint32_t i = 0; i < TPCK_VIEW_ENTRIES && files.view->entry[i].serial; i++)
		if (files.view->entry[i].state != TPCK_VIEW_FREE && files.view->entry[i].serial == serial)
			return true;
	return false;
}

/* Bytes that no entry names: whoever made or dropped them died in between. */
static void clear_orphans(void)
{
	char folder[TPCK_PATH_MAX + 8], *end;
	struct dirent *entry;
	DIR *list;

	snprintf(folder, sizeof folder, "%s/" TPCK_VIEW_FOLDER, home.folder);
	list = opendir(folder);
	if (!list || !tpck_view_lock(files.view)) {
		if (list)
			closedir(list);
		return;
	}
	while ((entry = readdir(list))) {
		uint64_t serial = strtoull(entry->d_name, &end, 16);

		if (end == entry->d_name + 16 && !*end && !known(serial) &&
		    (serial <= files.view->serial || serial >> 32 != files.view->serial >> 32))
			unlinkat(dirfd(list), entry->d_name, 0);
	}
	tpck_view_unlock(files.view);
	closedir(list);
}

void files_makes_part(const char *folder)
{
	uint32_t made = files.view->made, last = made < TPCK_VIEW_MAKING ? made : TPCK_VIEW_MAKING;

	for (uint32_t i = 1; i <= last; i++)
		if (strcmp(files.view->making[(made - i) % TPCK_VIEW_MAKING], folder) == 0)
			return;
	if (!tpck_view_lock(files.view))
		return;
	strcpy(files.view->making[files.view->made % TPCK_VIEW_MAKING], folder);
	files.view->made++;
	tpck_view_unlock(files.view);
}

/* Whether it is a part of this table's that no entry names, nor will one: the agent that made it was killed after its file had been taken away. */
static bool is_left(const char *name)
{
	char *end, part[64];
	uint64_t serial;
	bool left;

	if (strncmp(name, TPCK_VIEW_PART, sizeof TPCK_VIEW_PART - 1) != 0)
		return false;
	serial = strtoull(name + sizeof TPCK_VIEW_PART - 1, &end, 16);
	tpck_view_part_name(part, serial);
	if (strcmp(part, name) != 0 || serial >> 32 != files.view->serial >> 32 || !tpck_view_lock(files.view))
		return false;
	left = serial <= files.view->serial && !known(serial);
	tpck_view_unlock(files.view);
	return left;
}

static void clear_parts(void)
{
	uint32_t made = files.view->made;

	for (uint32_t i = 0; i < made && i < TPCK_VIEW_MAKING; i++) {
		int fd = open(files.view->making[i], O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		DIR *list = fd < 0 ? NULL : fdopendir(fd);
		struct dirent *entry;

		while (list && (entry = readdir(list)))
			if (is_left(entry->d_name) && !unlinkat(fd, entry->d_name, 0))
				tpck_log_debug("%s/%s: an agent that was killed had made it of a file that has been taken away", files.view->making[i], entry->d_name);
		if (list)
			closedir(list);
		else if (fd >= 0)
			close(fd);
	}
}

/* ---- choosing --------------------------------------------------------------------------------- */

void files_choose(const struct tpck_view_entry *entry, struct chosen *chosen)
{
	const struct tpck_view_key *key = tpck_view_key_of(entry);

	*chosen = (struct chosen){
		.index = (uint32_t)(entry - files.view->entry), .kind = entry->kind, .serial = entry->serial,
		.order = entry->order, .synced = entry->synced, .pattern = entry->pattern,
		.folder = files.view->folder[key->folder], .part_folder = files.view->folder[entry->part_folder],
		.mapped = entry->mapped, .changed = entry->changed, .inode = entry->inode,
		.linked = entry->linked, .there = entry->there, .generation = entry->generation, .timeline = entry->timeline, .step = entry->step, .suspect = entry->kind == TPCK_VIEW_DIRECT && entry->sync_error,
		.until_sync = entry->until_sync, .goes_on = entry->goes_on, .orphan = entry->orphan, .sync_seconds = entry->sync_seconds,
		.sync_nanoseconds = entry->sync_nanoseconds, .sync_bytes = entry->sync_bytes,
	};
	if (entry->orphan == TPCK_ORPHAN_ASIDE)
		strcpy(chosen->own_name, entry->key[(entry->which & 1) ^ 1].name);
	strcpy(chosen->name, tpck_view_name_of(entry));
	tpck_view_part_name(chosen->part, entry->serial);
	tpck_view_bytes(files.view, entry, home.folder, chosen->bytes, sizeof chosen->bytes);
}

/* SOON: what is owed has to wait for a moment. */
enum work { NOTHING, WRITERS, SOON, PUBLISH };

bool files_is_syncing(uint64_t serial)
{
	for (unsigned i = 0; i < FILES_SYNCERS; i++)
		if (files.syncer[i].serial == serial)
			return true;
	return false;
}

bool files_is_publishing(uint64_t serial)
{
	for (const struct lane *lane = files.lane; lane < files.lane + FILES_LANES; lane++) {
		if (lane->serial == serial)
			return true;
		for (unsigned i = 0; i < lane->grouped; i++)
			if (lane->group[i] == serial)
				return true;
	}
	return false;
}

static const struct lane *lane_at(uint64_t device)
{
	for (unsigned i = 0; i < FILES_LANES; i++)
		if (files.lane[i].serial && files.lane[i].device == device)
			return &files.lane[i];
	return NULL;
}

static struct disk *find_disk(uint64_t device)
{
	for (unsigned i = 0; i < FILES_DISKS; i++)
		if (files.disk[i].used_ns && files.disk[i].device == device)
			return &files.disk[i];
	return NULL;
}

/* The one that was used longest ago goes, but not one that fails, or that a lane is at: where all of them are, some share. */
static struct disk *disk_of(uint64_t device)
{
	struct disk *disk = find_disk(device);

	for (unsigned i = 0; !disk && i < FILES_DISKS; i++)
		if (!files.disk[i].used_ns)
			disk = &files.disk[i];
	if (!disk) {
		for (unsigned i = 0; i < FILES_DISKS; i++)
			if (files.disk[i].backoff_sec == 0 && !lane_at(files.disk[i].device) && (!disk || files.disk[i].used_ns < disk->used_ns))
				disk = &files.disk[i];
		if (!disk)
			disk = &files.disk[device % FILES_DISKS];
		*disk = (struct disk){0};
	}
	disk->device = device;
	disk->used_ns = tpck_clock_monotonic_ns();
	return disk;
}

void files_let_go(struct lane *lane, bool group)
{
	if (tpck_view_lock(files.view)) {
		if (group)
			lane->grouped = 0;
		else
			lane->serial = 0;
		tpck_view_unlock(files.view);
	}
	tpck_view_tell(&files.view->syncs);
}

bool files_may_go_ahead(uint64_t device)
{
	const struct disk *disk = find_disk(device);

	return !lane_at(device) && !(disk && disk->backoff_sec > 0);
}

/* The first that was closed of those that are owed to a file system. */
struct head {
	uint64_t device;
	struct tpck_view_entry *first;
};

static struct head *head_of(struct head *heads, unsigned *count, uint64_t device)
{
	for (unsigned i = 0; i < *count; i++)
		if (heads[i].device == device)
			return &heads[i];
	if (*count == FILES_DISKS)
		return &heads[FILES_DISKS - 1];
	heads[*count] = (struct head){device, NULL};
	return &heads[(*count)++];
}

/* `lowest` is the first of all. */
static bool may_publish(const struct tpck_view_entry *entry, uint64_t lowest, enum work *work)
{
	uint64_t device = tpck_view_device_of(files.view, entry), now = tpck_clock_monotonic_ns();
	const struct disk *disk = find_disk(device);

	if (lane_at(device) || (entry->order > lowest && tpck_view_after_all(entry)))
		return false;
	if (files_is_syncing(entry->serial) || (disk && now < disk->retry_ns && disk->retry_ns - now <= WRITTEN_MS * 1000000ull)) {
		*work = SOON;
		return false;
	}
	return !disk || now >= disk->retry_ns;
}

/* What is to be done next: the first that was closed of those whose turn it is. */
static enum work next(struct lane *lane)
{
	struct tpck_view_entry *first = NULL;
	struct head heads[FILES_DISKS];
	uint64_t lowest = UINT64_MAX;
	enum work work = NOTHING;
	unsigned count = 0;
	uint32_t left;

	if (!tpck_view_lock(files.view))
		return NOTHING;
	lane->serial = 0;
	left = files.view->used;
	for (uint32_t i = 0; left && i < TPCK_VIEW_ENTRIES; i++) {
		struct tpck_view_entry *entry = &files.view->entry[i];
		struct head *head;

		if (entry->state == TPCK_VIEW_FREE)
			continue;
		left--;
		work = WRITERS;
		/* An agent that was killed at the rename: it is done again. */
		if (entry->state == TPCK_VIEW_COMMITTING && !files_is_publishing(entry->serial))
			atomic_store(&entry->state, TPCK_VIEW_CLOSED);
		if (entry->state == TPCK_VIEW_OPEN)
			continue;
		head = head_of(heads, &count, tpck_view_device_of(files.view, entry));
		if (!head->first || entry->order < head->first->order)
			head->first = entry;
		if (entry->order < lowest)
			lowest = entry->order;
	}
	for (unsigned i = 0; i < count; i++)
		if (may_publish(heads[i].first, lowest, &work) && (!first || heads[i].first->order < first->order))
			first = heads[i].first;
	if (first) {
		files_choose(first, &lane->chosen);
		lane->serial = first->serial;
		lane->device = lane->chosen.folder.device;
		lane->gathers = !first->error && first->kind != TPCK_VIEW_PLAIN && !first->goes_on && first->bytes < GATHERED_BYTES &&
				!tpck_view_after_all(first);
		lane->disk = disk_of(lane->device);
		work = PUBLISH;
	}
	tpck_view_unlock(files.view);
	return work;
}

/* ---- the thread ------------------------------------------------------------------------------- */

/* True: it is the second time, and there is nothing more to be done. */
static bool dropped(const struct chosen *chosen, int rc)
{
	struct tpck_view_entry *entry;
	bool drop = false;

	if ((rc != -ENOENT && rc != -ESTALE) || !files_folder_gone(&chosen->folder) || !tpck_view_lock(files.view))
		return false;
	entry = files_still(chosen);
	drop = entry && entry->error == -rc;
	if (drop)
		tpck_view_remove(files.view, entry);
	tpck_view_unlock(files.view);
	if (drop && chosen->kind != TPCK_VIEW_REMOVED) {
		unlink(chosen->bytes);
		tpck_log_warn("%s/%s is given up: its folder has been removed", chosen->folder.path, chosen->name);
	}
	return drop;
}

/* One that the disk has lost of holds up what is behind it no longer than until there is a newer one. */
static bool outdated(const struct lane *lane)
{
	const struct chosen *chosen = &lane->chosen;
	struct tpck_view_entry *entry, *newest;
	bool drop = false;

	if (!lane->lost || !tpck_view_lock(files.view))
		return false;
	entry = files_still(chosen);
	newest = tpck_view_find(files.view, chosen->folder.device, chosen->folder.inode, chosen->name);
	drop = entry && newest && newest != entry && newest->state == TPCK_VIEW_CLOSED;
	if (drop)
		tpck_view_remove(files.view, entry);
	tpck_view_unlock(files.view);
	if (drop) {
		unlink(chosen->bytes);
		tpck_log_warn("%s/%s is given up: the disk has lost some of it, and it has been replaced or removed since",
			      chosen->folder.path, chosen->name);
	}
	return drop;
}

/* The lock is held. */
static void note_failing(void)
{
	bool failing = false;

	for (unsigned i = 0; i < FILES_DISKS; i++)
		failing = failing || files.disk[i].backoff_sec > 0;
	files.failing = failing;
}

static void failed(struct lane *lane, int rc, const struct tpck_error *err)
{
	const struct chosen *chosen = &lane->chosen;
	struct disk *disk = lane->disk;
	struct tpck_view_entry *entry;

	if (strcmp(disk->said, err->text) != 0) {
		snprintf(disk->said, sizeof disk->said, "%s", err->text);
		tpck_log_warn("%s/%s is not at its path yet: %s", chosen->folder.path, chosen->name, err->text);
	}
	if (tpck_view_lock(files.view)) {
		disk->backoff_sec = trouble_backoff(disk->backoff_sec);
		disk->retry_ns = tpck_clock_monotonic_ns() + (uint64_t)(disk->backoff_sec * 1e9);
		entry = tpck_view_by_serial(files.view, chosen->index, chosen->serial);
		if (entry)
			entry->error = -rc;
		files.view->failing = 1;
		note_failing();
		tpck_view_unlock(files.view);
	}
	tpck_view_tell(&files.view->done);
}

/* Nothing that is owed to this disk has an error by now; something that is owed to another one may have. The lock is held. */
static void forget_errors(uint64_t device)
{
	uint32_t left = files.view->failing ? files.view->used : 0;

	files.view->failing = 0;
	for (uint32_t i = 0; left && i < TPCK_VIEW_ENTRIES; i++) {
		struct tpck_view_entry *entry = &files.view->entry[i];

		if (entry->state == TPCK_VIEW_FREE)
			continue;
		left--;
		if (entry->error && tpck_view_device_of(files.view, entry) == device)
			entry->error = 0;
		else if (entry->error)
			files.view->failing = 1;
	}
}

static void go_on(struct lane *lane)
{
	struct disk *disk = lane->disk;

	disk->said[0] = '\0';
	if (tpck_view_lock(files.view)) {
		disk->backoff_sec = 0;
		disk->retry_ns = 0;
		forget_errors(lane->device);
		note_failing();
		tpck_view_unlock(files.view);
	}
	tpck_view_tell(&files.view->done);
}

static void succeeded(struct lane *lane)
{
	if (lane->disk->said[0])
		tpck_log_warn("%s/%s is at its path; it works again", lane->chosen.folder.path, lane->chosen.name);
	go_on(lane);
}

/* The file may be changed, or somebody may write to it: its disk's turn comes again in a moment. */
static void leave_for_now(struct lane *lane)
{
	if (tpck_view_lock(files.view)) {
		lane->disk->retry_ns = tpck_clock_monotonic_ns() + WRITTEN_MS * 1000000ull;
		tpck_view_unlock(files.view);
	}
	sweep();
}

/* ---- the lanes -------------------------------------------------------------------------------- */

static void *lane_main(void *argument);

/* What it is at may not come to an end: the next one looks after the rest. */
void files_is_busy(struct lane *lane)
{
	struct lane *next = lane + 1;

	lane->busy_ns = tpck_clock_monotonic_ns();
	if (next == files.lane + FILES_LANES)
		return;
	if (!next->running)
		next->running = pthread_create(&next->thread, NULL, lane_main, next) == 0;
	else if (next->asleep)
		tpck_view_tell(&next->turn);
}

static void gather(const struct lane *lane)
{
	const uint64_t ms = 1000000, begun = tpck_clock_monotonic_ns();
	uint64_t now = begun, last = begun, quiet = SUCCESSION_MS * ms;
	uint32_t news = files.view->news;

	if (!lane->gathers)
		return;
	while (!files.stop && files.view->awaited < lane->chosen.order && files.view->memory_bytes < GATHERED_MOST && now - begun < GATHER_MS * ms &&
	       now - last < quiet) {
		usleep(1000);
		now = tpck_clock_monotonic_ns();
		if (files.view->news != news) {
			news = files.view->news;
			last = now;
			quiet = LULL_MS * ms;
		}
	}
}

static void publish(struct lane *lane)
{
	const struct chosen *chosen = &lane->chosen;
	struct tpck_error err = {0};
	unsigned put;
	int rc;

	files_is_busy(lane);
	gather(lane);
	rc = files_publish_group(lane, &put, &err);
	if (!rc && !put)
		rc = files_publish(lane, &err);
	if (rc == -EAGAIN) {
		leave_for_now(lane);
	} else if (rc && (dropped(chosen, rc) || outdated(lane))) {
		go_on(lane);
	} else if (rc) {
		failed(lane, rc, &err);
	} else {
		succeeded(lane);
		if (!put && (chosen->kind == TPCK_VIEW_MEMORY || (chosen->kind == TPCK_VIEW_DIRECT && !chosen->until_sync)))
			files_want_spare(chosen->pattern);
	}
	if (tpck_view_lock(files.view)) {
		lane->disk->put_ns = tpck_clock_monotonic_ns();
		lane->serial = 0;
		tpck_view_unlock(files.view);
	}
	lane->busy_ns = 0;
}

static void look_at_writers(struct lane *lane)
{
	if (tpck_clock_monotonic_ns() - files.swept_ns >= SWEEP_NS)
		sweep();
	files_look_at_open(lane);
}

/* Whether somebody waits for what the publisher does. */
static bool busy(void)
{
	return files.stop || files.view->news != files.seen;
}

/* What there is to do besides. */
static bool do_more(struct lane *lane, enum work work)
{
	bool more = false;

	files_is_busy(lane);
	if (work == NOTHING)
		more = sums_catch_up(busy) || files_make_spare() || files_keep_one(busy);
	else if (work == WRITERS)
		more = files_go_ahead(lane);
	if (!more)
		files_ahead_check();
	lane->busy_ns = 0;
	return more;
}

/* The first lane does all that there is to do. */
static void *files_main(void *unused)
{
	struct lane *lane = &files.lane[0];

	(void)unused;
	pthread_setname_np(pthread_self(), "tpck-files");
	sweep();
	clear_orphans();
	clear_parts();
	files_adopt_kept();
	sums_begin(files.view);
	while (!files.stop) {
		uint32_t seen = files.view->news;
		enum work work = next(lane);
		bool limited;

		/* There was no thread to be had. */
		if (!files.syncer[0].running && files_sync_one(&files.syncer[0]))
			continue;
		files.seen = seen;
		if (work == PUBLISH) {
			publish(lane);
			continue;
		}
		if (work != NOTHING)
			look_at_writers(lane);
		if (do_more(lane, work))
			continue;
		limited = files_relieve();
		tpck_view_wait(&files.view->news, seen,
			       work == SOON ? WRITTEN_MS : work != NOTHING ? OPEN_MS : limited ? FILES_LIMITED_MS : FILES_IDLE_MS);
	}
	return NULL;
}

/* For how long all those before it have been at something; 0: one of them waits for work. */
static uint64_t busy_for(const struct lane *lane)
{
	uint64_t now = tpck_clock_monotonic_ns(), least = UINT64_MAX;

	for (const struct lane *before = files.lane; before < lane; before++) {
		uint64_t since = before->busy_ns, ns = since && now > since ? now - since : since != 0;

		if (ns < least)
			least = ns;
	}
	return least;
}

/* Another one publishes while those before it are at other disks. */
static void *lane_main(void *argument)
{
	struct lane *lane = argument;
	char name[16];

	snprintf(name, sizeof name, "tpck-files-%u", (unsigned)(lane - files.lane) % FILES_LANES);
	pthread_setname_np(pthread_self(), name);
	while (!files.stop) {
		uint32_t turn = lane->turn, seen = files.view->news;
		enum work work;
		uint64_t ns;

		lane->asleep = true;
		ns = busy_for(lane);
		lane->asleep = !ns;
		if (ns < PATIENCE_MS * 1000000ull) {
			tpck_view_wait(&lane->turn, turn, ns ? PATIENCE_MS : FILES_IDLE_MS);
			continue;
		}
		work = next(lane);
		if (work == PUBLISH) {
			publish(lane);
			/* What has waited for it may be another lane's. */
			tpck_view_tell(&files.view->news);
			continue;
		}
		if (work != NOTHING)
			look_at_writers(lane);
		tpck_view_wait(&files.view->news, seen, work == SOON ? WRITTEN_MS : OPEN_MS);
		/* A look at each closing is what the program would wait for, where many are closed in a row. */
		usleep(PATIENCE_MS * 1000);
	}
	return NULL;
}

void files_begin(void)
{
	int rc;

	if (files.running)
		return;
	rc = tpck_view_map(home.folder, false, &files.view);
	if (rc) {
		errno = -rc;
		if (rc != -ENOENT)
			tpck_log_warn("cannot look after the program's files in %s/" TPCK_VIEW_FOLDER ": %m", home.folder);
		return;
	}
	atomic_store(&files.view->ended, 0);
	atomic_store(&files.view->agent, (int32_t)getpid());
	files_sync_begin();
	files.running = pthread_create(&files.lane[0].thread, NULL, files_main, NULL) == 0;
	files.lane[0].running = files.running;
	if (!files.running)
		tpck_log_warn("cannot start a thread: the program's files stay pending");
}

bool files_owed(bool stopping)
{
	return files.running && (atomic_load(&files.view->used) || (!stopping && sums_left()));
}

void files_taken_over_by(uint64_t (*taken_over)(uint32_t table))
{
	files.taken_over = taken_over;
}

bool files_failing(void)
{
	return files.failing;
}

bool files_left(void)
{
	return files.left;
}

static void stop(struct agent *agent)
{
	(void)agent;
	if (!files.running)
		return;
	files.left = false;
	/* Whoever takes a file behind this looks for another table. */
	if (tpck_view_lock(files.view)) {
		files.left = files.view->used;
		if (!files.left)
			atomic_store(&files.view->ended, 1);
		tpck_view_unlock(files.view);
	}
	files.stop = true;
	tpck_view_tell(&files.view->news);
	tpck_view_tell(&files.view->syncs);
	for (unsigned i = 0; i < FILES_LANES; i++)
		tpck_view_tell(&files.lane[i].turn);
	/* Each begins the one behind it. */
	for (unsigned i = 0; i < FILES_LANES && files.lane[i].running; i++)
		pthread_join(files.lane[i].thread, NULL);
	files_sync_end();
	atomic_store(&files.view->agent, 0);
	files.running = false;
}

static int begin(struct agent *agent, struct tpck_error *err)
{
	(void)err;
	(void)agent;
	files_begin();
	return 0;
}

const struct loop_part files_loop = {.begin = begin, .stop = stop};
