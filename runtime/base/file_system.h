/* SPDX-License-Identifier: Apache-2.0 */
/* Which file system a folder is on, and whether other nodes see it too. */
#ifndef TPCK_RUNTIME_BASE_FILE_SYSTEM_H
#define TPCK_RUNTIME_BASE_FILE_SYSTEM_H

#include <stdbool.h>
#include <stdint.h>

struct tpck_file_system {
	const char *name;
	bool site;  /* several nodes may have it mounted */
	bool known; /* false: nor is it known whether they may */
};

/* Of the type that statfs() tells. */
struct tpck_file_system tpck_file_system_by(uint32_t type);
/* Of the nearest part of `path` that is there. False: it cannot be asked. */
bool tpck_file_system_of(const char *path, struct tpck_file_system *file_system);

#endif
