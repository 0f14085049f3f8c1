/* SPDX-License-Identifier: Apache-2.0 */
/* What is copied of a large file before it is closed. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "agent/files/publisher_private.h"
#include "runtime/base/lock_order.h"
#include "runtime/store/replace.h"

#define AHEAD_BYTES (16ll << 20)
enum { AHEAD_CHUNKS = 32 };

static void ahead_end(bool remove)
{
	if (remove && tpck_replace_ahead_valid(&files.ahead.part))
		unlinkat(files.ahead.folder, files.ahead.name, 0);
	tpck_replace_ahead_end(&files.ahead.part);
	if (files.ahead.folder >= 0)
		close(files.ahead.folder);
	files.ahead.folder = -1;
	files.ahead.serial = 0;
}

static bool same_folder(int a, int b)
{
	struct stat one, other;

	return !fstat(a, &one) && !fstat(b, &other) && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

/* Whether some of it is beside its target already. */
static bool ahead_of(const struct chosen *chosen, int folder)
{
	if (files.ahead.serial != chosen->serial)
		return false;
	if (!tpck_replace_ahead_valid(&files.ahead.part) || !same_folder(files.ahead.folder, folder)) {
		ahead_end(true);
		return false;
	}
	return true;
}

/* Who is at it may be at a disk that hangs: it is another file's then. */
bool files_ahead_take(const struct chosen *chosen, int folder, struct tpck_ahead *part)
{
	bool took;

	if (pthread_mutex_trylock(&files.ahead_lock))
		return false;
	took = ahead_of(chosen, folder);
	if (took) {
		*part = files.ahead.part;
		files.ahead.part = (struct tpck_ahead){.fd = -1};
		ahead_end(false);
	}
	pthread_mutex_unlock(&files.ahead_lock);
	return took;
}

void files_ahead_check(void)
{
	pthread_mutex_lock(&files.ahead_lock);
	if (files.ahead.serial && !tpck_replace_ahead_valid(&files.ahead.part))
		ahead_end(false);
	pthread_mutex_unlock(&files.ahead_lock);
}

/* A large file that is being written: of several the one that is under way, else any. One that was synced has a part of its
 * own. */
static bool choose_open(struct lane *lane)
{
	const struct tpck_view_entry *found = NULL;
	uint32_t left;

	if (!tpck_view_lock(files.view))
		return false;
	left = files.view->used;
	for (uint32_t i = 0; left && i < TPCK_VIEW_ENTRIES; i++) {
		const struct tpck_view_entry *entry = &files.view->entry[i];

		if (entry->state == TPCK_VIEW_FREE)
			continue;
		left--;
		if (entry->state == TPCK_VIEW_OPEN && entry->kind == TPCK_VIEW_MEMORY && !entry->synced && !entry->mapped &&
		    entry->serial != files.ahead.failed && !files_is_syncing(entry->serial) &&
		    (!found || entry->serial == files.ahead.serial) && files_may_go_ahead(tpck_view_device_of(files.view, entry)))
			found = entry;
	}
	if (found) {
		files_choose(found, &lane->chosen);
		lane->serial = found->serial;
		lane->device = lane->chosen.folder.device;
	}
	tpck_view_unlock(files.view);
	return found;
}

static int copy_ahead(const struct chosen *chosen)
{
	int bytes = open(chosen->bytes, O_RDONLY | O_CLOEXEC), folder, done;
	struct tpck_error err;
	struct stat found;

	if (bytes < 0 || fstat(bytes, &found) || found.st_size < AHEAD_BYTES) {
		if (bytes >= 0)
			close(bytes);
		return 0;
	}
	folder = tpck_replace_folder(chosen->folder.path, chosen->folder.device, chosen->folder.inode, &err);
	if (files.ahead.serial && (folder < 0 || !ahead_of(chosen, folder)))
		ahead_end(true);
	if (folder >= 0 && !files.ahead.serial) {
		files.ahead.serial = chosen->serial;
		files.ahead.folder = fcntl(folder, F_DUPFD_CLOEXEC, 0);
		strcpy(files.ahead.name, chosen->part);
	}
	files_makes_part(chosen->folder.path);
	done = folder < 0 ? folder : tpck_replace_ahead(bytes, folder, chosen->part, &files.ahead.part, AHEAD_CHUNKS);
	if (done < 0) {
		files.ahead.failed = chosen->serial;
		ahead_end(true);
	}
	if (folder >= 0) {
		files_clear_part(chosen, folder);
		close(folder);
	}
	close(bytes);
	return done;
}

/* So that the disk has work while the program writes. True: there may be more. */
bool files_go_ahead(struct lane *lane)
{
	int done;

	if (!choose_open(lane))
		return false;
	pthread_mutex_lock(&files.ahead_lock);
	done = copy_ahead(&lane->chosen);
	pthread_mutex_unlock(&files.ahead_lock);
	files_let_go(lane, false);
	return done > 0;
}
