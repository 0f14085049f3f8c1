/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file of the program's that its node still owes to its path (runtime/view/view.h), as it is kept by another node: all that
 * putting it there needs but its bytes. And what may be done with it once its node is lost: never is something older put
 * over something newer.
 *
 * A record is struct tpck_owed_head and, behind it, NUL-terminated: the folder's path, the name, and of what the owner wrote
 * beside its target already the folder and name of the part (both "" where there is none); then pairs of an extended
 * attribute's name (NUL-terminated), the length of its value (uint32_t) and its value; then the digests of all chunks.
 */
#ifndef TPCK_RUNTIME_PEER_OWED_H
#define TPCK_RUNTIME_PEER_OWED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "runtime/base/error.h"
#include "runtime/view/view.h"

#define TPCK_OWED_MAGIC 0x6477706bu /* "kpwd" */
enum { TPCK_OWED_CHUNK = 1 << 20 };

struct tpck_owed_head {
	uint32_t magic;
	uint32_t table;        /* tpck_view_table_of(serial) */
	uint32_t removed;      /* 1: the name is to go, and there are no bytes */
	uint32_t mode, group;
	uint32_t strings, attributes; /* bytes of these */
	uint32_t chunks;
	uint64_t serial, order;
	uint64_t version;      /* of its bytes: another one, other bytes */
	uint64_t bytes;
	int64_t accessed_sec, modified_sec;
	uint32_t accessed_ns, modified_ns;
	uint64_t folder_inode;
	struct tpck_view_there there; /* what it is to replace */
};

/* Points into a record. */
struct tpck_owed {
	struct tpck_owed_head head;
	const char *folder, *name, *part_folder, *part;
	const char *attributes;
	const uint8_t (*digest)[16];
};

/* 0, or -EBADMSG: it is none. */
int tpck_owed_read(const void *record, size_t size, struct tpck_owed *owed);
/* Makes one; malloc'd, or NULL. head's lengths are filled in. */
void *tpck_owed_write(const struct tpck_owed *owed, size_t *size);
/* Extended attributes of an open file, as they lie in a record; malloc'd, NULL where there are none. */
char *tpck_owed_attributes(int fd, uint32_t *size);
void tpck_owed_give_attributes(const struct tpck_owed *owed, int fd);

/* What is to be done with a file that is owed. */
enum tpck_owed_verdict {
	TPCK_OWED_PUT,   /* it is put at its path, or removed there */
	TPCK_OWED_THERE, /* it, or what closed behind it, is there already */
	TPCK_OWED_LEAVE, /* something else is there: somebody has saved since */
};
/* `list`: all that is owed, by order. `lawful`: what is known to have been put at this path by this node or the owner. `found`: what
 * is there now, NULL: nothing. */
enum tpck_owed_verdict tpck_owed_judge(const struct tpck_owed *list, size_t count, size_t which, const struct tpck_view_there *lawful,
				       size_t lawful_count, const struct stat *found);
/* The folders that a job's own files were in, as nodes tell each other by way of the store: a text of a line each. Whether this folder is
 * one of them or below one. */
bool tpck_owed_folder_is_in(const char *list, const char *folder);
/* The list with this folder, where it does not have it: the oldest go beyond TPCK_OWED_FOLDERS of them. malloc'd; NULL: no memory. */
char *tpck_owed_folders_with(const char *list, const char *folder);
enum { TPCK_OWED_FOLDERS = 1024 };
bool tpck_there_is(const struct tpck_view_there *there, const struct stat *found);

#endif
