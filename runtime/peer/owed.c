/* SPDX-License-Identifier: Apache-2.0 */
/* Records of files that are owed, and what is at their paths. */
#include "config.h"

#include "runtime/peer/owed.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

/* ---- records ---------------------------------------------------------------------------------- */

/* The text at *at, behind which it is left; NULL: it has no end. */
static const char *take_text(const char **at, const char *end, size_t limit)
{
	const char *text = *at;
	size_t length = strnlen(text, (size_t)(end - text));

	if (text + length == end || length >= limit)
		return NULL;
	*at = text + length + 1;
	return text;
}

static bool are_attributes(const char *at, const char *end)
{
	while (at < end) {
		uint32_t length;

		if (!take_text(&at, end, 256) || end - at < (ptrdiff_t)sizeof length)
			return false;
		memcpy(&length, at, sizeof length);
		at += sizeof length;
		if (length > (size_t)(end - at))
			return false;
		at += length;
	}
	return true;
}

static bool is_name(const char *name)
{
	return *name && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

int tpck_owed_read(const void *record, size_t size, struct tpck_owed *owed)
{
	const char *at = (const char *)record + sizeof owed->head, *end;
	struct tpck_owed_head *head = &owed->head;

	if (size < sizeof *head)
		return -EBADMSG;
	memcpy(head, record, sizeof *head);
	if (head->magic != TPCK_OWED_MAGIC || head->table != tpck_view_table_of(head->serial) || head->removed > 1 || head->mode > 07777 ||
	    head->bytes > (uint64_t)INT64_MAX - TPCK_OWED_CHUNK || head->strings > 3 * TPCK_VIEW_PATH ||
	    head->chunks != (head->removed ? 0 : (head->bytes + TPCK_OWED_CHUNK - 1) / TPCK_OWED_CHUNK) ||
	    (head->removed && head->bytes) ||
	    size - sizeof *head != (uint64_t)head->strings + head->attributes + (uint64_t)head->chunks * sizeof *owed->digest)
		return -EBADMSG;
	end = at + head->strings;
	owed->folder = take_text(&at, end, TPCK_VIEW_PATH);
	owed->name = owed->folder ? take_text(&at, end, TPCK_VIEW_NAME) : NULL;
	owed->part_folder = owed->name ? take_text(&at, end, TPCK_VIEW_PATH) : NULL;
	owed->part = owed->part_folder ? take_text(&at, end, TPCK_VIEW_NAME) : NULL;
	if (!owed->part || at != end || owed->folder[0] != '/' || !is_name(owed->name) || (*owed->part && !is_name(owed->part)))
		return -EBADMSG;
	owed->attributes = end;
	if (!are_attributes(end, end + head->attributes))
		return -EBADMSG;
	owed->digest = (const uint8_t (*)[16])(const void *)(end + head->attributes);
	return 0;
}

static char *put(char *at, const void *bytes, size_t count)
{
	if (count)
		memcpy(at, bytes, count);
	return at + count;
}

void *tpck_owed_write(const struct tpck_owed *owed, size_t *size)
{
	const char *text[] = {owed->folder, owed->name, owed->part_folder, owed->part};
	struct tpck_owed_head head = owed->head;
	char *record, *at;

	head.magic = TPCK_OWED_MAGIC;
	head.strings = 0;
	for (size_t i = 0; i < sizeof text / sizeof *text; i++)
		head.strings += (uint32_t)strlen(text[i]) + 1;
	*size = sizeof head + head.strings + head.attributes + (size_t)head.chunks * sizeof *owed->digest;
	at = record = malloc(*size);
	if (!record)
		return NULL;
	at = put(at, &head, sizeof head);
	for (size_t i = 0; i < sizeof text / sizeof *text; i++)
		at = put(at, text[i], strlen(text[i]) + 1);
	at = put(at, owed->attributes, head.attributes);
	put(at, owed->digest, (size_t)head.chunks * sizeof *owed->digest);
	return record;
}

/* ---- attributes ------------------------------------------------------------------------------- */

char *tpck_owed_attributes(int fd, uint32_t *size)
{
	enum { LIST = 4096, VALUE = 4096, MOST = 64 << 10 };
	char names[LIST], value[VALUE], *all = NULL;
	ssize_t length = flistxattr(fd, names, sizeof names);

	*size = 0;
	for (char *name = names; length > 0 && name < names + length; name += strlen(name) + 1) {
		ssize_t got = fgetxattr(fd, name, value, sizeof value);
		uint32_t count = (uint32_t)got;
		char *more;

		if (got < 0 || *size + strlen(name) + 1 + sizeof count + count > MOST)
			continue;
		more = realloc(all, *size + strlen(name) + 1 + sizeof count + count);
		if (!more)
			break;
		all = more;
		more = put(put(put(all + *size, name, strlen(name) + 1), &count, sizeof count), value, count);
		*size = (uint32_t)(more - all);
	}
	return all;
}

void tpck_owed_give_attributes(const struct tpck_owed *owed, int fd)
{
	const char *at = owed->attributes, *end = at + owed->head.attributes;

	while (at < end) {
		const char *name = at, *value = name + strlen(name) + 1 + sizeof(uint32_t);
		uint32_t length;

		memcpy(&length, value - sizeof length, sizeof length);
		(void)fsetxattr(fd, name, value, length, 0);
		at = value + length;
	}
}

/* ---- what is at a path ------------------------------------------------------------------------ */

bool tpck_there_is(const struct tpck_view_there *there, const struct stat *found)
{
	struct tpck_view_there now = tpck_view_there_of(found);

	return there->kind == now.kind && (now.kind != TPCK_THERE_FILE || (there->inode == now.inode && there->bytes == now.bytes &&
									   there->seconds == now.seconds && there->nanoseconds == now.nanoseconds));
}

static bool same(char listed, char given)
{
	return listed == given || (given == '\n' && listed == '\1');
}

/* Whether a folder is this line's or below it. */
static bool is_below(const char *line, size_t length, const char *folder)
{
	size_t i = 0;

	while (i < length && folder[i] && same(line[i], folder[i]))
		i++;
	return length && i == length && (folder[i] == '\0' || folder[i] == '/' || line[length - 1] == '/');
}

/* By its text it would be below one, and by its meaning it might not. */
static bool goes_up(const char *folder)
{
	for (const char *at = folder; (at = strstr(at, "/.")); at++)
		if (at[2] == '/' || !at[2] || (at[2] == '.' && (at[3] == '/' || !at[3])))
			return true;
	return folder[0] != '/';
}

bool tpck_owed_folder_is_in(const char *list, const char *folder)
{
	if (goes_up(folder))
		return false;
	while (*list) {
		size_t length = strcspn(list, "\n");

		if (is_below(list, length, folder))
			return true;
		list += length + (list[length] == '\n');
	}
	return false;
}

char *tpck_owed_folders_with(const char *list, const char *folder)
{
	size_t lines = 0, length;
	char *all;

	for (const char *at = list; (at = strchr(at, '\n')); at++)
		lines++;
	if (lines >= TPCK_OWED_FOLDERS)
		list = strchr(list, '\n') + 1;
	length = strlen(list);
	all = malloc(length + strlen(folder) + 2);
	if (!all)
		return NULL;
	memcpy(all, list, length);
	for (; *folder; folder++)
		all[length++] = *folder == '\n' ? '\1' : *folder;
	all[length++] = '\n';
	all[length] = '\0';
	return all;
}

static bool is_same_path(const struct tpck_owed *a, const struct tpck_owed *b)
{
	return a->head.folder_inode == b->head.folder_inode && strcmp(a->name, b->name) == 0 && strcmp(a->folder, b->folder) == 0;
}

/* Whoever put it there, it is this very version: size and time are those that the program left. */
static bool is_it(const struct tpck_owed *owed, const struct stat *found)
{
	return !owed->head.removed && owed->head.bytes == (uint64_t)found->st_size && owed->head.modified_sec == found->st_mtim.tv_sec &&
	       owed->head.modified_ns == (uint32_t)found->st_mtim.tv_nsec;
}

enum tpck_owed_verdict tpck_owed_judge(const struct tpck_owed *list, size_t count, size_t which, const struct tpck_view_there *lawful,
				       size_t lawful_count, const struct stat *found)
{
	const struct tpck_owed *owed = &list[which];

	/* Nothing is what is older than anything. */
	if (!found)
		return owed->head.removed ? TPCK_OWED_THERE : TPCK_OWED_PUT;
	for (size_t i = count; i-- > which;)
		if (is_same_path(&list[i], owed) && is_it(&list[i], found))
			return TPCK_OWED_THERE;
	if (tpck_there_is(&owed->head.there, found))
		return TPCK_OWED_PUT;
	for (size_t i = 0; i < lawful_count; i++)
		if (tpck_there_is(&lawful[i], found))
			return TPCK_OWED_PUT;
	for (size_t i = 0; i < which; i++)
		if (is_same_path(&list[i], owed) && is_it(&list[i], found))
			return TPCK_OWED_PUT;
	return TPCK_OWED_LEAVE;
}
