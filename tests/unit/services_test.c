/* SPDX-License-Identifier: Apache-2.0 */
/* A file of a service that nobody follows steps aside while running forward, and is there or made anew afterwards, whoever died in between. */
#include "config.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/follow/follow_private.h"
#include "tests/unit/store_tap.h"

static char *folder;

static void put(const char *name, const char *text)
{
	char path[300];
	FILE *f;

	snprintf(path, sizeof path, "%s/%s", folder, name);
	f = fopen(path, "w");
	if (f) {
		fputs(text, f);
		fclose(f);
	}
}

/* The file's text; "-": it is not there. */
static const char *text_of(const char *name)
{
	static char text[100];
	char path[300];
	FILE *f;

	snprintf(path, sizeof path, "%s/%s", folder, name);
	f = fopen(path, "r");
	if (!f)
		return "-";
	text[fread(text, 1, sizeof text - 1, f)] = '\0';
	fclose(f);
	return text;
}

static bool is(const char *name, const char *text)
{
	return strcmp(text_of(name), text) == 0;
}

/* Whether a line is said when the process is live, and the run's log has this text behind so many bytes. */
static bool says(int before, const char *text)
{
	char path[300], line[400] = "";
	int old = dup(2), fd;
	FILE *f;

	snprintf(path, sizeof path, "%s/logs/debug.log", folder);
	f = fopen(path, "w");
	snprintf(path, sizeof path, "%s/said", folder);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
	if (!f || fd < 0)
		return false;
	fprintf(f, "%*s%s", before, "", text);
	fclose(f);
	dup2(fd, 2);
	tpck_services_folder(folder);
	tpck_services_live();
	dup2(old, 2);
	close(old);
	(void)!pread(fd, line, sizeof line - 1, 0);
	close(fd);
	unlink(path);
	return strstr(line, "gets rows that it had before this start once more") && strstr(line, folder);
}

int main(void)
{
	char path[300];
	bool each = true;

	folder = tap_folder("/tmp");
	put("run-1.wandb", "rows of the first run");
	put("output.log", "text");
	tpck_services_folder(folder);
	tap_ok(is("run-1.wandb", "-") && is("run-1.wandb.transpckpt-aside.1", "rows of the first run") && is("output.log", "text"), "a service's file steps aside, and no other", "");
	tpck_services_abandon();
	tap_ok(is("run-1.wandb", "rows of the first run") && is("run-1.wandb.transpckpt-aside.1", "-"), "and comes back", "");
	tpck_services_folder(folder);
	put("run-1.wandb", "a part");
	tpck_services_abandon();
	tap_ok(is("run-1.wandb", "rows of the first run") && is("run-1.wandb.transpckpt-aside.1", "-"), "in the place of a part that was made meanwhile", "");
	tpck_services_folder(folder);
	put("run-1.wandb", "all rows");
	tpck_services_live();
	tap_ok(is("run-1.wandb", "all rows") && is("run-1.wandb.transpckpt-aside.1", "-"), "it goes where another one was made", "");
	tpck_services_folder(folder);
	tpck_services_live();
	tap_ok(is("run-1.wandb", "all rows") && is("run-1.wandb.transpckpt-aside.1", "-"), "and comes back where none was", "");

	/* A start that died on its way leaves both. */
	put("run-1.wandb.transpckpt-aside.1", "rows of the first run");
	put("run-1.wandb", "a part");
	tpck_services_folder(folder);
	tap_ok(is("run-1.wandb", "-") && is("run-1.wandb.transpckpt-aside.1", "rows of the first run") && is("run-1.wandb.transpckpt-aside.2", "a part"), "so with the part of one that died", "");
	tpck_services_abandon();
	tap_ok(is("run-1.wandb", "rows of the first run") && is("run-1.wandb.transpckpt-aside.1", "-") && is("run-1.wandb.transpckpt-aside.2", "-"), "what comes back is the first run's", "");
	put("run-1.wandb.transpckpt-aside.1", "rows of the first run");
	tpck_services_folder(folder);
	put("run-1.wandb", "all rows");
	tpck_services_live();
	tap_ok(is("run-1.wandb", "all rows") && is("run-1.wandb.transpckpt-aside.1", "-") && is("run-1.wandb.transpckpt-aside.2", "-"), "and all go", "");

	snprintf(path, sizeof path, "%s/logs", folder);
	mkdir(path, 0700);
	/* Also across the pieces in which the log is read; a line is said eight times at most. */
	for (unsigned i = 0; i < 6; i++)
		each = each && says((const int[]){0, 4057, 4058, 4064, 4070, 9000}[i], "[wandb_init.py:init():972] run resumed\nmore\n");
	tap_ok(each, "a run that its server goes on with is told", "");
	tap_ok(!says(0, "[wandb_init.py:init():972] run started\n") && !says(0, "run resumed at"), "and no other", "");
	snprintf(path, sizeof path, "%s/logs/debug.log", folder);
	unlink(path);
	snprintf(path, sizeof path, "%s/logs", folder);
	rmdir(path);

	snprintf(path, sizeof path, "%s/linked.wandb", folder);
	tap_ok(!symlink("output.log", path), "a link", "");
	tpck_services_folder(folder);
	tap_ok(is("linked.wandb", "text"), "stays", "");
	tpck_services_abandon();
	snprintf(path, sizeof path, "%s/not there", folder);
	tpck_services_folder(path);
	tpck_services_live();
	for (unsigned i = 0; i < 3; i++) {
		snprintf(path, sizeof path, "%s/%s", folder, (const char *[]){"run-1.wandb", "output.log", "linked.wandb"}[i]);
		unlink(path);
	}
	tap_ok(!rmdir(folder), "nothing else is left", "");
	return tap_done();
}
