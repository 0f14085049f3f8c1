/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of a job's record. */
#include "config.h"

#include "tools/spank/line.h"

#include <stdio.h>
#include <string.h>

bool record_line_parse(char **text, struct record_line *line)
{
	while (**text) {
		char *this = *text;
		size_t length = strcspn(this, "\n");
		unsigned uid, gid;

		*text += length + (this[length] == '\n');
		this[length] = '\0';
		if (sscanf(this, "%u %u %4095[^\n]", &uid, &gid, line->folder) == 3) {
			line->uid = uid;
			line->gid = gid;
			return true;
		}
	}
	return false;
}
