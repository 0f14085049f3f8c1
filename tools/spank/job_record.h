/* SPDX-License-Identifier: Apache-2.0 */
/* What root keeps of a job between its steps and its end, in plugstack.conf's state folder. */
#ifndef TPCK_TOOLS_SPANK_JOB_RECORD_H
#define TPCK_TOOLS_SPANK_JOB_RECORD_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a user's job can make the record grow to. */
enum { RECORD_MAX = 64 << 10 };

/* In slurmd: makes the folder and notes which process slurmd is, whose cgroups are outside of all steps. */
void record_slurmd(void);
/* slurmd's number, or 0. */
long record_slurmd_is(void);

/* STATE/JOB.KIND. "job": a line "UID GID FOLDER" for each agent's folder; "groups": the job's control groups for agents, a line each. */
int record_path(uint32_t job, const char *kind, char path[static PATH_MAX]);
/* Adds a line, given without its end, where the record does not have it. 0 or -errno: -EFBIG where there is no room. */
int record_add(uint32_t job, const char *kind, const char *line);
/* The record's text: bytes, or -errno. */
long record_read(uint32_t job, const char *kind, char text[static RECORD_MAX]);
void record_remove(uint32_t job, const char *kind);

/* Whether a text has such a line. */
bool record_has(const char *text, const char *line, size_t length);
/* A small file of the kernel's or of root's: bytes, 0 where it cannot be read. */
size_t record_text(const char *path, char *text, size_t size);

#endif
