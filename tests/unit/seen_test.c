/* SPDX-License-Identifier: Apache-2.0 */
/* What processes that the program has made see of its overlay; and lines, where they do not: the file cannot be made or read, or has no room. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "runtime/follow/follow.h"
#include "runtime/follow/follow_private.h"
#include "runtime/wire/segment.h"
#include "tests/unit/store_tap.h"

static char *folder;
static char path[300], text[2000];

static const char *in(const char *name)
{
	snprintf(path, sizeof path, "%s/%s", folder, name);
	return path;
}

/* What is said on the standard error between the two. */
static int old;

static void listens(void)
{
	int to = open(in("said"), O_RDWR | O_CREAT | O_TRUNC, 0600);

	old = dup(2);
	dup2(to, 2);
	close(to);
}

static const char *heard(void)
{
	ssize_t got = pread(2, text, sizeof text - 1, 0);

	text[got > 0 ? got : 0] = '\0';
	dup2(old, 2);
	close(old);
	return text;
}

static bool shows(const char *why)
{
	listens();
	tpck_follow_show(folder);
	(void)heard();
	return why ? strstr(text, "workers and services do not see what the program has written until it is live: ") && strstr(text, "/" TPCK_SEEN " cannot be made: ") &&
			       strstr(text, why)
		   : !*text;
}

/* A started program opens a file by that name: what it reads. */
static const char *reads(const char *name)
{
	static char got[100];
	int tell[2], status;
	pid_t child = pipe(tell) ? -1 : fork();
	ssize_t count;

	if (!child) {
		int fd = -1;

		tpck_follow_see(folder);
		if (!tpck_follow_sees() || !tpck_seen_open(TPCK_AT(AT_FDCWD, in(name)), O_RDONLY, &fd))
			fd = -1;
		count = fd >= 0 ? read(fd, got, sizeof got) : 0;
		(void)!write(tell[1], got, count > 0 ? (size_t)count : 0);
		_exit(0);
	}
	close(tell[1]);
	count = read(tell[0], got, sizeof got - 1);
	got[count > 0 ? count : 0] = '\0';
	close(tell[0]);
	waitpid(child, &status, 0);
	return got;
}

static void cannot_be_made(void)
{
	struct rlimit before, limit;

	mkdir(in(TPCK_SEEN), 0700);
	tap_ok(shows(strerror(EEXIST)), "a line says that the file cannot be made", text);
	rmdir(in(TPCK_SEEN));
	getrlimit(RLIMIT_FSIZE, &before);
	limit = before;
	limit.rlim_cur = 4096;
	setrlimit(RLIMIT_FSIZE, &limit);
	tap_ok(shows(strerror(EFBIG)), "nor where files may not get so large, which ends no program", text);
	setrlimit(RLIMIT_FSIZE, &before);
}

static void is_seen(void)
{
	struct stat found;
	int scratch;

	tap_ok(shows(NULL), "where it can be made nothing is said", text);
	scratch = open(in("scratch"), O_RDWR | O_CREAT, 0600);
	if (scratch < 0 || write(scratch, "written", 7) != 7 || fstat(scratch, &found))
		return;
	tpck_seen_put(tpck_follow_digest(in("file")), TPCK_SEEN_FILE, scratch, found.st_ino);
	tap_ok(strcmp(reads("file"), "written") == 0, "a started program reads what the program has written", reads("file"));
}

static void cannot_be_read(void)
{
	listens();
	(void)reads("file");
	tap_ok(!*heard(), "one that can read the file says nothing", text);
	(void)!truncate(in(TPCK_SEEN), 4096);
	listens();
	(void)reads("file");
	tap_ok(strstr(heard(), "this process does not see what its program has written until that is live: ") != NULL, "a line says that it cannot", text);
}

/* More files than there is room for. */
static void has_no_room(void)
{
	unsigned lines = 0;

	listens();
	for (uint64_t digest = 1; digest < 5000; digest++)
		tpck_seen_put(digest, TPCK_SEEN_ABSENT, -1, 0);
	for (const char *at = heard(); (at = strstr(at, "do not see all that the program has written")); at++)
		lines++;
	tap_ok(lines == 1, "one line says that there are more files than can be shown", text);
}

int main(void)
{
	folder = tap_folder("/tmp");
	cannot_be_made();
	is_seen();
	has_no_room();
	cannot_be_read();
	return tap_done();
}
