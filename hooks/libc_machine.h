/* SPDX-License-Identifier: Apache-2.0 */
/* What the machine tells of itself: readings of the program's, as hooks of several files make them (runtime/replay/readings.h). */
#ifndef TPCK_HOOKS_LIBC_MACHINE_H
#define TPCK_HOOKS_LIBC_MACHINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "runtime/track/threads.h"

/* What is asked: digests of names, which are in logs. */
uint32_t tpck_machine_key(const char *what, const char *of);
/* NULL: what code at `caller` is told is in no record. Else to be left by tpck_engine_leave(). */
struct tpck_thread *tpck_machine_enter(const void *caller);
/* A call was made that gave `result`, below 0 with errno, else `count` bytes at `bytes`: it is noted, or becomes what the first run was told. */
int tpck_machine_say(uint32_t key, const void *caller, int result, void *bytes, size_t count);

/* A file that tells of the machine, opened to be read, by its whole path. False: it is none, or is in no record. */
bool tpck_machine_open(const char *path, int flags, const void *caller, int *fd);
/* The same of a stream. *stream NULL: errno says why. */
bool tpck_machine_stream(const char *path, const char *mode, const void *caller, FILE **stream);
/* A descriptor that tpck_machine_open() gave is read. False: it is none, or another file by now. */
bool tpck_machine_read(int fd, void *buffer, size_t bytes, const void *caller, ssize_t *got);

#endif
