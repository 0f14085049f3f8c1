/* SPDX-License-Identifier: Apache-2.0 */
/* Between replay/files.c (the calls, recording) and replay/overlay.c (running forward). */
#ifndef TPCK_RUNTIME_REPLAY_FILES_PRIVATE_H
#define TPCK_RUNTIME_REPLAY_FILES_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "runtime/replay/files.h"

enum { TPCK_FILES_FOLDER = 1200, TPCK_OVERLAY_REAL = -2 };

bool tpck_files_absolute(int folder, const char *path, char *out, size_t size);
void tpck_files_version_name(char *path, size_t size, uint64_t digest, uint64_t bytes, int64_t s, int64_t ns);
/* The paths that the run that is resumed made come to be, in any order, some more than once. */
void tpck_files_each_created(void (*call)(const char *path, uint64_t digest));
int tpck_files_copy(int from, int to, uint64_t bytes);

/* A path that the log knows: it has been touched, and may have been read; `noted`: it says what was read. */
void tpck_files_known(uint64_t digest, bool noted);
void tpck_files_forget(void);

bool tpck_overlay_active(void);
/* As the call of that name, with errno; on a path that only the real world knows they make the real
 * call, but those that change something do it in the overlay. */
int tpck_overlay_open(const char *path, uint64_t digest, int flags, mode_t mode);
int tpck_overlay_rename(const char *from, uint64_t from_digest, const char *to, uint64_t to_digest);
int tpck_overlay_unlink(const char *path, uint64_t digest, int flags);
int tpck_overlay_mkdir(const char *path, uint64_t digest, mode_t mode);
int tpck_overlay_chmod(const char *path, uint64_t digest, mode_t mode);
int tpck_overlay_set_times(const char *path, uint64_t digest, const struct timespec *times);
/* 0, -1 with errno, or TPCK_OVERLAY_REAL: ask the real path. */
int tpck_overlay_stat(const char *path, uint64_t digest, struct stat *found);
const char *tpck_overlay_listing(uint64_t digest);
/* The path of a folder that a descriptor leads to: that of the program where it is one of the overlay's, else as it is. */
void tpck_overlay_behind(char *path, size_t size);
/* Whether running forward would read at this path what was there at first, which is what `read` says, and
 * that is neither there by its size and time nor kept. */
bool tpck_overlay_needs(const char *path, const struct tpck_record_file *read);
/* What is at the path now counts as what was there at first. */
void tpck_overlay_accept(uint64_t digest);

#endif
