/* SPDX-License-Identifier: Apache-2.0 */
/* A small file in memory. */
#include "config.h"

#include <stdlib.h>

#include "runtime/base/kernel.h"
#include "runtime/base/whole_file.h"

void *tpck_whole_file(const char *path)
{
	int fd = tpck_sys_openat(AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
	struct stat found;
	char *content = NULL;

	if (fd >= 0 && !tpck_sys_fstatat(fd, "", &found, AT_EMPTY_PATH) && found.st_size > 0)
		content = malloc((size_t)found.st_size);
	if (content && tpck_sys_read_full(fd, content, (size_t)found.st_size) < (ssize_t)found.st_size) {
		free(content);
		content = NULL;
	}
	if (fd >= 0)
		tpck_sys_close(fd);
	return content;
}
