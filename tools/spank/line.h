/* SPDX-License-Identifier: Apache-2.0 */
/* Lines of a job's record (job_record.h). */
#ifndef TPCK_TOOLS_SPANK_LINE_H
#define TPCK_TOOLS_SPANK_LINE_H

#include <stdbool.h>
#include <sys/types.h>

struct record_line {
	uid_t uid;
	gid_t gid;
	char folder[4096];
};
/* Parses the next line, "UID GID FOLDER"; lines of another form are passed over. The text is changed. False: there is none. */
bool record_line_parse(char **text, struct record_line *line);

#endif
