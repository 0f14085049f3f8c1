/* SPDX-License-Identifier: Apache-2.0 */
/* Lines for people: of one warning that comes again and again a few are written, of others all. */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "tests/unit/store_tap.h"

enum { MANY = 5000, FEW = 8 };

static char path[64];

static unsigned lines_with(const char *what)
{
	char line[2048];
	unsigned count = 0;
	FILE *file = fopen(path, "r");

	while (file && fgets(line, sizeof line, file))
		count += strncmp(line, "transpckpt: ", 12) == 0 && strstr(line, what) != NULL && line[strlen(line) - 1] == '\n';
	if (file)
		fclose(file);
	return count;
}

int main(void)
{
	char spec[80], text[3000] = "";

	snprintf(path, sizeof path, "/tmp/tpck-lines.%d", (int)getpid());
	snprintf(spec, sizeof spec, "info:%s", path);
	tap_ok(tpck_log_configure(spec) == 0, "lines go to a file", NULL);
	for (int i = 0; i < MANY; i++) {
		errno = ENOSPC;
		tpck_log_warn("the snapshot of step %d was dropped", i);
		if (errno != ENOSPC)
			break;
	}
	tap_ok(errno == ENOSPC, "errno is kept", NULL);
	tap_ok(lines_with("was dropped") == FEW, "of a warning at each step a few are written", NULL);
	tpck_log_warn("another thing is wrong: %m");
	tpck_log_error("and a third");
	tap_ok(lines_with("another thing is wrong: No space left") == 1 && lines_with("and a third") == 1, "others are written as ever", NULL);
	for (int i = 0; i < 100; i++)
		tpck_log_info("step %d is durable", i);
	tap_ok(lines_with("is durable") == 100, "and so is all that is no warning", NULL);
	memset(text, 'x', sizeof text - 1);
	tpck_log_warn("long: %s", text);
	tap_ok(lines_with("long: xxx") == 1, "a long one is cut", NULL);
	unlink(path);
	return tap_done();
}
