/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was in the files that a program read (doc/interception.md, files): data sets, configurations, scripts. The log gets
 * their sizes, times and digests; before the program is run forward these are compared with what is there
 * now. A file of another size or content ends the resume; one that has another time only (it was copied, or
 * unpacked again) counts as the same.
 */
#ifndef TPCK_RUNTIME_FOLLOW_CONTENTS_H
#define TPCK_RUNTIME_FOLLOW_CONTENTS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "runtime/replay/record_log.h"

/* The program opens a file for reading, for the first time; `path` is its absolute path and `digest` that
 * path's, `found` what it is, or NULL: it is looked at. Only remembers it: digests are taken later. Any thread. */
void tpck_contents_note(const char *path, uint64_t digest, const struct stat *found);
/* The same of what the process has as standard input, if that is a file. Whether it is a pipe or a socket. */
bool tpck_contents_note_input(void);
/* Takes the digests of some of what was noted and appends the records. Called by one thread of this
 * library, now and then. */
void tpck_contents_take(struct tpck_log *log);

/* A record of the log that is resumed from; it stays mapped. */
void tpck_contents_learn(const struct tpck_record *record);
/* 0, or -ESTALE with a clause in `why` that names the first file that is not what the first run read. */
int tpck_contents_compare(char *why, size_t size);

#endif
