/* SPDX-License-Identifier: Apache-2.0 */
/* A small file in memory. */
#include "config.h"

#include "runtime/base/whole_file.h"

#include <stdio.h>
#include <stdlib.h>

void *tpck_whole_file(const char *path)
{
	FILE *file = fopen(path, "re");
	void *content = NULL;
	long bytes;

	if (!file)
		return NULL;
	if (!fseek(file, 0, SEEK_END) && (bytes = ftell(file)) > 0 && !fseek(file, 0, SEEK_SET)) {
		content = malloc((size_t)bytes);
		if (content && fread(content, 1, (size_t)bytes, file) != (size_t)bytes) {
			free(content);
			content = NULL;
		}
	}
	fclose(file);
	return content;
}
