/* SPDX-License-Identifier: Apache-2.0 */
/* Whether there is something to go on from, as far as a start can tell by itself: the marker of its program (runtime/store/program.h) in
 * the memory tier or in one of the store's. */
#ifndef TPCK_RUNTIME_ENGINE_MARKER_H
#define TPCK_RUNTIME_ENGINE_MARKER_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/settings.h"

/* STORE/JOB/FOLDER/ID */
void tpck_marker_path(char *path, size_t size, const char *store, const char *job, const char *folder, uint64_t id);

enum tpck_marker {
	TPCK_MARKER_ABSENT,
	TPCK_MARKER_PRESENT,
	TPCK_MARKER_NAMES,   /* not that, but programs that are this one but for values of variables, or were once */
	TPCK_MARKER_UNKNOWN, /* a file system did not answer in time */
};
/* A file system that may hang, as one of a network does, is looked at by a child that no signal, wait or descriptor of the program's
 * has to do with, and waited for at most TRANSPCKPT_START_WAIT_SEC, with a line; what the program starts then waits for a second only,
 * and says nothing. `names`: tpck_identity_names(); with TPCK_MARKER_NAMES *where is the folder, STORE/JOB/programs/NAMES.names. */
enum tpck_marker tpck_marker_look(const struct tpck_settings *settings, const char *job, uint64_t digest, uint64_t names, char *where, size_t size);

#endif
