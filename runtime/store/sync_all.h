/* SPDX-License-Identifier: Apache-2.0 */
/* Many files that come to the disk together. */
#ifndef TPCK_RUNTIME_STORE_SYNC_ALL_H
#define TPCK_RUNTIME_STORE_SYNC_ALL_H

#include <stddef.h>

/* As fsync() of each of them, several at a time, so that they share the commits of their file system's journal and the flushes of
 * its disk: syncfs() would wait for what others have written there as well. Returns when all have been answered for; result[i] is
 * 0 or -errno of fd[i], each asked once: a file system tells a failure only once. fd[i] of -1 is none: 0. */
void tpck_sync_all(const int *fd, int *result, size_t count);

#endif
