/* SPDX-License-Identifier: Apache-2.0 */
/* What is owed, as others are to have it; what was put where; and whether another node has done so meanwhile. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/files/debts.h"
#include "agent/files/publisher_private.h"
#include "runtime/base/clock.h"
#include "runtime/base/digest.h"
#include "runtime/base/lock_order.h"
#include "runtime/base/log.h"

/* One who has had a descriptor since before a fork is not waited for longer, as by the lanes. */
#define INHERITED_NS 2000000000ull
enum { PUTS = 1024 };

/* The last ones: those who have copies of what replaces them are told what is lawfully there. */
static struct {
	pthread_mutex_t lock;
	struct put {
		uint64_t serial, path;
		struct tpck_view_there there;
	} put[PUTS];
	unsigned next;
} puts_done = {.lock = PTHREAD_MUTEX_INITIALIZER};

struct tpck_view *owed_view(void)
{
	return files.running && files.view->replicates ? files.view : NULL;
}

uint32_t owed_table(const struct tpck_view *view)
{
	return tpck_view_table_of(view->serial);
}

static uint64_t path_of(uint64_t folder_inode, const char *name)
{
	return tpck_digest64(name, strlen(name), folder_inode);
}

/* ---- the list --------------------------------------------------------------------------------- */

static int by_order(const void *a, const void *b)
{
	const struct owed_item *left = a, *right = b;

	return left->order < right->order ? -1 : left->order > right->order;
}

/* One that is at its path already, or is to be there while its writer goes on with it, is its disk's affair. */
static bool is_owed(const struct tpck_view_entry *entry)
{
	return (entry->state == TPCK_VIEW_CLOSED || entry->state == TPCK_VIEW_COMMITTING) && entry->kind != TPCK_VIEW_PLAIN && !entry->goes_on;
}

/* One that was whole, and is being written again: who has it as it was keeps it until it is whole again. */
static bool was_owed(const struct tpck_view_entry *entry)
{
	return entry->state == TPCK_VIEW_OPEN && entry->order && entry->kind != TPCK_VIEW_PLAIN;
}

bool owed_list(struct tpck_view *view, struct owed_item **list, size_t *count, uint64_t *newest)
{
	uint32_t left, room = atomic_load(&view->used) + 64;
	struct owed_item *found = malloc(room * sizeof *found);

	*count = 0;
	if (!found || !tpck_view_lock(view)) {
		free(found);
		return false;
	}
	left = view->used;
	for (uint32_t i = 0; left && i < TPCK_VIEW_ENTRIES; i++) {
		const struct tpck_view_entry *entry = &view->entry[i];

		if (entry->state == TPCK_VIEW_FREE)
			continue;
		left--;
		if (!is_owed(entry) && !was_owed(entry))
			continue;
		if (*count == room)
			break;
		found[(*count)++] = (struct owed_item){entry->serial, entry->order, i, entry->changed, was_owed(entry)};
	}
	*newest = view->order;
	tpck_view_unlock(view);
	/* More have come than there is room for: the next look has them. */
	if (left) {
		free(found);
		return false;
	}
	qsort(found, *count, sizeof *found, by_order);
	*list = found;
	return true;
}

/* ---- one of them ------------------------------------------------------------------------------ */

static struct tpck_view_entry *entry_of(struct tpck_view *view, const struct owed_item *item)
{
	struct tpck_view_entry *entry = tpck_view_by_serial(view, item->index, item->serial);

	return entry && is_owed(entry) && entry->order == item->order && entry->changed == item->changed ? entry : NULL;
}

/* Another number for other bytes: no byte changes but its time does, except by a mapping. */
static uint64_t version_of(const struct stat *found, uint64_t mapped)
{
	const uint64_t what[] = {found->st_ino, (uint64_t)found->st_size, (uint64_t)found->st_ctim.tv_sec,
				 (uint64_t)found->st_ctim.tv_nsec, mapped};

	return tpck_digest64(what, sizeof what, 7);
}

static void fill_in(struct owed_file *file, const struct stat *found, uint64_t mapped)
{
	struct tpck_owed_head *head = &file->owed.head;

	head->version = version_of(found, mapped);
	head->mode = found->st_mode & 07777;
	head->group = found->st_gid;
	head->bytes = (uint64_t)found->st_size;
	head->accessed_sec = found->st_atim.tv_sec;
	head->accessed_ns = (uint32_t)found->st_atim.tv_nsec;
	head->modified_sec = found->st_mtim.tv_sec;
	head->modified_ns = (uint32_t)found->st_mtim.tv_nsec;
	head->chunks = (uint32_t)((head->bytes + TPCK_OWED_CHUNK - 1) / TPCK_OWED_CHUNK);
	file->attributes = tpck_owed_attributes(file->fd, &head->attributes);
}

int owed_open(struct tpck_view *view, const struct owed_item *item, struct owed_file *file)
{
	struct tpck_owed *owed = &file->owed;
	struct tpck_view_entry *entry;
	char bytes[TPCK_VIEW_PATH + 80];
	struct stat found;
	uint64_t mapped;
	uint32_t kind;

	memset(file, 0, sizeof *file);
	file->fd = -1;
	if (!tpck_view_lock(view))
		return -EAGAIN;
	entry = entry_of(view, item);
	if (!entry) {
		tpck_view_unlock(view);
		return -ENOENT;
	}
	kind = entry->kind;
	mapped = entry->mapped ? item->order : 0;
	strcpy(file->folder, view->folder[tpck_view_key_of(entry)->folder].path);
	strcpy(file->name, tpck_view_name_of(entry));
	owed->head = (struct tpck_owed_head){
		.magic = TPCK_OWED_MAGIC, .table = tpck_view_table_of(item->serial), .removed = kind == TPCK_VIEW_REMOVED,
		.serial = item->serial, .order = item->order,
		.folder_inode = view->folder[tpck_view_key_of(entry)->folder].inode, .there = entry->there,
	};
	if (kind == TPCK_VIEW_DIRECT) {
		strcpy(file->part_folder, view->folder[entry->part_folder].path);
		tpck_view_part_name(file->part, item->serial);
	}
	tpck_view_bytes(view, entry, home.folder, bytes, sizeof bytes);
	tpck_view_unlock(view);
	owed->folder = file->folder;
	owed->name = file->name;
	owed->part_folder = file->part_folder;
	owed->part = file->part;
	owed->attributes = "";
	if (kind == TPCK_VIEW_REMOVED)
		return 0;
	file->fd = open(bytes, O_RDONLY | O_CLOEXEC);
	if (file->fd < 0)
		return -ENOENT;
	if (fstat(file->fd, &found)) {
		owed_close(file);
		return -ENOENT;
	}
	if (!tpck_replace_unwritten(file->fd) &&
	    tpck_clock_realtime_ns() < (uint64_t)found.st_mtim.tv_sec * 1000000000u + (uint64_t)found.st_mtim.tv_nsec + INHERITED_NS) {
		owed_close(file);
		return -EAGAIN;
	}
	fill_in(file, &found, mapped);
	if (file->attributes)
		owed->attributes = file->attributes;
	return 0;
}

void owed_close(struct owed_file *file)
{
	if (file->fd >= 0)
		close(file->fd);
	file->fd = -1;
	free(file->attributes);
	file->attributes = NULL;
}

bool owed_is_still(struct tpck_view *view, const struct owed_item *item, const struct owed_file *file)
{
	uint64_t mapped = 0;
	struct stat found;
	bool still;

	if (!tpck_view_lock(view))
		return false;
	still = entry_of(view, item);
	if (still)
		mapped = view->entry[item->index].mapped ? item->order : 0;
	tpck_view_unlock(view);
	return still && (file->fd < 0 || (!fstat(file->fd, &found) && version_of(&found, mapped) == file->owed.head.version));
}

/* ---- what was put where ----------------------------------------------------------------------- */

void owed_put(const struct chosen *chosen, const struct stat *put)
{
	struct put *slot;

	if (!owed_view())
		return;
	pthread_mutex_lock(&puts_done.lock);
	slot = &puts_done.put[puts_done.next++ % PUTS];
	*slot = (struct put){chosen->serial, path_of(chosen->folder.inode, chosen->name), tpck_view_there_of(put)};
	pthread_mutex_unlock(&puts_done.lock);
}

struct tpck_view_there owed_was_put(uint64_t serial)
{
	struct tpck_view_there there = {0};

	pthread_mutex_lock(&puts_done.lock);
	for (unsigned i = 0; i < PUTS; i++)
		if (puts_done.put[i].serial == serial)
			there = puts_done.put[i].there;
	pthread_mutex_unlock(&puts_done.lock);
	return there;
}

static size_t lawful_at(uint64_t path, struct tpck_view_there there[PUTS])
{
	size_t count = 0;

	pthread_mutex_lock(&puts_done.lock);
	for (unsigned i = 0; i < PUTS; i++)
		if (puts_done.put[i].serial && puts_done.put[i].path == path)
			there[count++] = puts_done.put[i].there;
	pthread_mutex_unlock(&puts_done.lock);
	return count;
}

/* ---- after another node took over ------------------------------------------------------------- */

/* What is owed to this very path, by order; only what is needed to judge it. */
static size_t owed_to_path(const struct chosen *chosen, struct tpck_owed list[], size_t room, size_t *which)
{
	struct owed_item *items;
	size_t count, found = 0;
	uint64_t newest;

	*which = room;
	if (!owed_list(files.view, &items, &count, &newest))
		return 0;
	for (size_t i = 0; i < count && found < room; i++) {
		struct owed_file file;

		if (items[i].open || owed_open(files.view, &items[i], &file))
			continue;
		if (file.owed.head.folder_inode == chosen->folder.inode && strcmp(file.name, chosen->name) == 0) {
			if (items[i].serial == chosen->serial)
				*which = found;
			list[found] = file.owed;
			list[found].folder = chosen->folder.path;
			list[found++].name = chosen->name;
		}
		owed_close(&file);
	}
	free(items);
	return found;
}

bool owed_may_put(const struct chosen *chosen, int folder)
{
	enum { VERSIONS = 64 };
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static struct tpck_owed list[VERSIONS];
	static struct tpck_view_there lawful[PUTS];
	enum tpck_owed_verdict verdict = TPCK_OWED_PUT;
	struct stat found;
	size_t count, which;
	bool there;

	if (!owed_view() || !files.taken_over || chosen->order > files.taken_over(tpck_view_table_of(chosen->serial)))
		return true;
	there = !fstatat(folder, chosen->name, &found, AT_SYMLINK_NOFOLLOW);
	pthread_mutex_lock(&lock);
	count = owed_to_path(chosen, list, VERSIONS, &which);
	if (which < count)
		verdict = tpck_owed_judge(list, count, which, lawful, lawful_at(path_of(chosen->folder.inode, chosen->name), lawful),
					  there ? &found : NULL);
	pthread_mutex_unlock(&lock);
	if (verdict == TPCK_OWED_LEAVE)
		tpck_log_warn("%s/%s is left as it is: this node seemed lost, and somebody else has saved it since", chosen->folder.path,
			      chosen->name);
	return verdict == TPCK_OWED_PUT;
}
