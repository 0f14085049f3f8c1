/* SPDX-License-Identifier: Apache-2.0 */
/* Small files and folders: read whole, written so that a crash leaves the old or the new one. */
#ifndef TPCK_RUNTIME_STORE_FILE_H
#define TPCK_RUNTIME_STORE_FILE_H

#include <stddef.h>

#include "runtime/base/error.h"

/* A path as it is said, and how it is reached: by its bytes from `skip` on, from the folder `at`, or by the whole path (AT_FDCWD, 0). */
struct tpck_below {
	int at;
	size_t skip;
};
int tpck_file_read_below(struct tpck_below below, const char *path, size_t limit, char **text, size_t *size, struct tpck_error *err);
int tpck_file_write_below(struct tpck_below below, const char *path, const void *bytes, size_t size, int flags, struct tpck_error *err);
int tpck_folder_sync_below(struct tpck_below below, const char *path, struct tpck_error *err);
int tpck_folder_make_below(struct tpck_below below, const char *path, struct tpck_error *err);
int tpck_folder_remove_below(struct tpck_below below, const char *path);

/* Whole content with a NUL behind it, malloc'd; -EFBIG beyond limit. size may be NULL. */
int tpck_file_read(const char *path, size_t limit, char **text, size_t *size, struct tpck_error *err);

enum {
	TPCK_FILE_DURABLE = 1, /* survives the machine's crash: file and folder are synced */
	TPCK_FILE_ABSENT = 2,  /* only where none is there yet: -EEXIST, without a text in err */
};
/* Writes path by way of a temporary file beside it. */
int tpck_file_write(const char *path, const void *bytes, size_t size, int flags, struct tpck_error *err);

/* mkdir -p with mode 0700 for what is made; each new level is synced. */
int tpck_folder_make(const char *path, struct tpck_error *err);
/* Files and folders in it and itself. 0, or the first -errno; goes on after one. */
int tpck_folder_remove(const char *path);

#endif
