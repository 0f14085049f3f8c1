/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is a file, which processes that have nothing else in common map. */
#ifndef TPCK_RUNTIME_BASE_SHARED_FILE_H
#define TPCK_RUNTIME_BASE_SHARED_FILE_H

#include <stddef.h>

/* A new file of zeroes, in place of one that is there, mapped to be written; only its user can open it. NULL: it cannot be, with errno. All its pages are
 * there: a file system without room is an error here, and no signal later. */
void *tpck_shared_file_new(const char *path, size_t bytes);
/* One that is there, and has so many bytes or more, which are mapped to be written. NULL: there is none. */
void *tpck_shared_file_open(const char *path, size_t bytes);

#endif
