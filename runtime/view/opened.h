/* SPDX-License-Identifier: Apache-2.0 */
/* What a process has open, as /proc says: files that a job writes, and rings (io_uring), which may have files that no descriptor is left
 * of. Nothing here waits for a disk. */
#ifndef TPCK_RUNTIME_VIEW_OPENED_H
#define TPCK_RUNTIME_VIEW_OPENED_H

#include <stdbool.h>
#include <stdint.h>

/* A file that is looked for, by the serial that names its bytes. */
struct tpck_opened {
	uint64_t serial;
	bool open; /* by a descriptor, or mapped */
	bool registered; /* with a ring */
};

struct tpck_opening {
	bool unknown;       /* something could not be looked at: what was not found may be there */
	bool ring;          /* there is a ring */
	bool rings_unknown; /* what a ring has registered cannot be known, or not now */
};

/* Looks at the descriptors of `process`, a folder such as /proc/7, /proc/7/task/8 or /proc/thread-self, and at what its rings have
 * registered. Adds to what is set in `opened` and `opening`. */
void tpck_opened_descriptors(const char *process, struct tpck_opened *opened, unsigned count, struct tpck_opening *opening);
/* The same of its mappings; a ring that is mapped and has no descriptor is one of which nobody can know. */
void tpck_opened_mappings(const char *process, struct tpck_opened *opened, unsigned count, struct tpck_opening *opening);
/* Whether a thread of the process has not begun to end: what is not open has been closed then, and not by its end. */
bool tpck_opened_goes_on(int32_t pid);

#endif
