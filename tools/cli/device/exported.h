/* SPDX-License-Identifier: Apache-2.0 */
/* Which calls of the driver's API a library exports. */
#ifndef TPCK_TOOLS_CLI_DEVICE_EXPORTED_H
#define TPCK_TOOLS_CLI_DEVICE_EXPORTED_H

#include <stdbool.h>
#include <stddef.h>

/* Names, in order. */
struct exported {
	char **names;
	size_t count;
};

/* Those of an ELF file's bytes. 0, or -ENOEXEC: it is none, or exports no such calls. */
int exported_parse(const void *file, size_t size, struct exported *exported);
/* The same of a file. -errno, too. */
int exported_read(const char *path, struct exported *exported);
bool exported_has(const struct exported *exported, const char *name);
void exported_free(struct exported *exported);

#endif
