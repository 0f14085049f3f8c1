/* SPDX-License-Identifier: Apache-2.0 */
/* Files of the folder that all nodes see, by their paths. Any thread. */
#ifndef TPCK_AGENT_PEERS_AGENTS_FOLDER_H
#define TPCK_AGENT_PEERS_AGENTS_FOLDER_H

#include <stddef.h>

struct tpck_error;

/* 0 or -errno: shared_look() -ENOENT only where there is none for sure.
 * shared_open(): a descriptor for reading. */
int shared_write(const char *path, const char *text, int flags, struct tpck_error *err);
int shared_read(const char *path, size_t limit, char **text);
int shared_look(const char *path);
int shared_open(const char *path);
void shared_remove(const char *path);
void shared_rename(const char *path, const char *to);

#endif
