/* SPDX-License-Identifier: Apache-2.0 */
/* Listings of folders in which something is pending. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/kernel.h"
#include "runtime/base/layout.h"
#include "runtime/files/files_private.h"
#include "runtime/track/threads.h"

enum { LISTINGS = 64 };

/* What was pending in a folder when its listing began: a name may be published while the folder is read, on either side of
 * where the reader is. */
struct tpck_files_listing {
	int folder;
	uint32_t count, next, slots; /* a power of two */
	uint32_t *slot;              /* by the name's hash: index + 1 */
	struct listed {
		bool removed, shown;
		char name[TPCK_VIEW_NAME];
	} name[];
};

/* Streams that have one. */
static struct stream {
	DIR *folder;
	struct tpck_files_listing *listing;
	struct dirent entry;
} streams[LISTINGS] TPCK_LARGE;
static _Atomic uint32_t open_ones;
static tpck_spin lock;

bool tpck_files_owes(void)
{
	return !tpck_files_idle();
}

/* ---- one listing ------------------------------------------------------------------------------ */

static struct listed *find(struct tpck_files_listing *listing, const char *name)
{
	uint32_t at = tpck_view_name_hash(name, strlen(name));

	for (;; at++) {
		uint32_t *slot = &listing->slot[at & (listing->slots - 1)];

		if (!*slot)
			return NULL;
		if (strcmp(listing->name[*slot - 1].name, name) == 0)
			return &listing->name[*slot - 1];
	}
}

static void put(struct tpck_files_listing *listing, uint32_t index)
{
	uint32_t at = tpck_view_name_hash(listing->name[index].name, strlen(listing->name[index].name));

	while (listing->slot[at & (listing->slots - 1)])
		at++;
	listing->slot[at & (listing->slots - 1)] = index + 1;
}

/* How many entries the folder has, versions counted one by one; with a listing, they are put into it. The lock is held. */
static uint32_t gather(struct tpck_view *view, const struct stat *parent, struct tpck_files_listing *listing, uint32_t room)
{
	uint32_t left = view->used, count = 0;

	for (uint32_t i = 0; left && i < TPCK_VIEW_ENTRIES; i++) {
		const struct tpck_view_entry *entry = &view->entry[i];
		const struct tpck_view_key *key = tpck_view_key_of(entry);

		if (entry->state == TPCK_VIEW_FREE)
			continue;
		left--;
		if (entry->kind == TPCK_VIEW_PLAIN)
			continue;
		if (view->folder[key->folder].inode != parent->st_ino || view->folder[key->folder].device != parent->st_dev)
			continue;
		/* One that is being moved. */
		if (strncmp(key->name, TPCK_VIEW_PART, sizeof TPCK_VIEW_PART - 1) == 0)
			continue;
		count++;
		if (listing && listing->count < room &&
		    tpck_view_find(view, parent->st_dev, parent->st_ino, key->name) == entry) {
			struct listed *listed = &listing->name[listing->count];

			listed->removed = entry->kind == TPCK_VIEW_REMOVED;
			listed->shown = false;
			strcpy(listed->name, key->name);
			put(listing, listing->count++);
		}
	}
	return count;
}

struct tpck_files_listing *tpck_files_listing_begin(int folder)
{
	struct tpck_files_listing *listing = NULL;
	struct tpck_view *view = NULL;
	struct stat parent;
	int saved = errno;
	uint32_t room = 0, slots = 4;

	/* Looking whether there is anything may find a table that another process of the job has made since. */
	if (!tpck_files_idle())
		view = atomic_load(&tpck_files_view);
	if (view && !tpck_sys_fstatat(folder, "", &parent, AT_EMPTY_PATH) && tpck_view_lock(view)) {
		room = gather(view, &parent, NULL, 0);
		tpck_view_unlock(view);
	}
	/* Some more may come before the lock is had again. */
	room = room ? room + 64 : 0;
	while (slots < 2 * room)
		slots *= 2;
	if (room)
		listing = malloc(sizeof *listing + room * sizeof *listing->name + slots * sizeof *listing->slot);
	if (listing) {
		*listing = (struct tpck_files_listing){.folder = folder, .slots = slots};
		listing->slot = (uint32_t *)(void *)(listing->name + room);
		memset(listing->slot, 0, slots * sizeof *listing->slot);
		if (tpck_view_lock(view)) {
			gather(view, &parent, listing, room);
			tpck_view_unlock(view);
		}
	}
	errno = saved;
	return listing;
}

void tpck_files_listing_end(struct tpck_files_listing *listing)
{
	free(listing);
}

bool tpck_files_hides(struct tpck_files_listing *listing, const char *name)
{
	struct listed *listed;

	if (*name == '.' && strncmp(name, TPCK_VIEW_PART, sizeof TPCK_VIEW_PART - 1) == 0)
		return true;
	listed = listing ? find(listing, name) : NULL;
	if (listed)
		listed->shown = true;
	return listed && listed->removed;
}

const char *tpck_files_more(struct tpck_files_listing *listing)
{
	while (listing && listing->next < listing->count) {
		const struct listed *listed = &listing->name[listing->next++];

		if (!listed->removed && !listed->shown)
			return listed->name;
	}
	return NULL;
}

/* ---- of a stream ------------------------------------------------------------------------------ */

static struct stream *stream_of(DIR *folder)
{
	for (unsigned i = 0; i < LISTINGS; i++)
		if (streams[i].folder == folder)
			return &streams[i];
	return NULL;
}

void tpck_files_listing_opened(DIR *folder)
{
	struct tpck_files_listing *listing = tpck_files_listing_begin(dirfd(folder));
	struct stream *stream;

	if (!listing)
		return;
	tpck_spin_lock(&lock);
	stream = stream_of(NULL);
	if (stream) {
		stream->folder = folder;
		stream->listing = listing;
		atomic_fetch_add(&open_ones, 1);
	}
	tpck_spin_unlock(&lock);
	if (!stream)
		free(listing);
}

void tpck_files_listing_closed(DIR *folder)
{
	struct tpck_files_listing *listing = NULL;
	struct stream *stream;

	if (!atomic_load(&open_ones))
		return;
	tpck_spin_lock(&lock);
	stream = stream_of(folder);
	if (stream) {
		listing = stream->listing;
		stream->folder = NULL;
		atomic_fetch_sub(&open_ones, 1);
	}
	tpck_spin_unlock(&lock);
	free(listing);
}

static struct tpck_files_listing *listing_of(DIR *folder, struct stream **stream)
{
	struct tpck_files_listing *listing;

	*stream = NULL;
	if (!atomic_load(&open_ones))
		return NULL;
	tpck_spin_lock(&lock);
	*stream = stream_of(folder);
	listing = *stream ? (*stream)->listing : NULL;
	tpck_spin_unlock(&lock);
	return listing;
}

bool tpck_files_stream_hides(DIR *folder, const char *name)
{
	struct stream *stream;

	return tpck_files_hides(listing_of(folder, &stream), name);
}

struct dirent *tpck_files_stream_more(DIR *folder)
{
	struct stream *stream;
	struct tpck_files_listing *listing = listing_of(folder, &stream);
	const char *name = tpck_files_more(listing);

	if (!name)
		return NULL;
	strcpy(stream->entry.d_name, name);
	stream->entry.d_ino = (ino_t)listing->next + (1u << 30);
	stream->entry.d_off = 0;
	stream->entry.d_reclen = sizeof stream->entry;
	stream->entry.d_type = DT_REG;
	return &stream->entry;
}
