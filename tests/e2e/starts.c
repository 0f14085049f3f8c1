/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a program starts, by each way that libc has. Preloaded into a trainer: with every tenth copy to the host programs are started,
 * each of which notes in the file `calls` that it was. What they said and how they ended goes to the file `told`, written by the
 * trainer's process.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "copied.h"

extern char **environ;

enum { EVERY = 10 };

static void tell(const char *way, int number, const char *what, long status)
{
	FILE *to = fopen("told", "a");

	if (to)
		fprintf(to, "%s %d: %ld %s\n", way, number, status, what);
	if (to)
		fclose(to);
}

static char *const *command(const char *script, const char *way, int number)
{
	static char text[16];
	static char *arguments[6];

	snprintf(text, sizeof text, "%d", number);
	arguments[0] = "sh";
	arguments[1] = "-c";
	arguments[2] = (char *)script;
	arguments[3] = (char *)way;
	arguments[4] = text;
	return arguments;
}

static void read_all(int fd, char *said, size_t size)
{
	size_t used = 0;
	ssize_t got;

	while (used < size - 1 && (got = read(fd, said + used, size - 1 - used)) > 0)
		used += (size_t)got;
	said[used] = '\0';
	close(fd);
	for (char *c = said; *c; c++)
		*c = *c == '\n' ? ' ' : *c;
}

/* fork or vfork, its output by a pipe, found along PATH. */
static void by_fork(int number, int shares)
{
	const char *way = shares ? "vfork" : "fork";
	char *const *arguments = command("echo $0 $1 >> calls; echo one; echo two $1 >&2; exit 5", way, number);
	int ends[2], status = 0;
	char said[200];
	pid_t child;

	if (pipe2(ends, O_CLOEXEC))
		return;
	child = shares ? vfork() : fork();
	if (child == 0) {
		dup2(ends[1], 1);
		dup2(ends[1], 2);
		execvp("sh", arguments);
		_exit(127);
	}
	close(ends[1]);
	read_all(ends[0], said, sizeof said);
	waitpid(child, &status, 0);
	tell(way, number, said, WEXITSTATUS(status));
}

/* The child's output in a file; ended by a signal. */
static void by_spawn(int number)
{
	posix_spawn_file_actions_t actions;
	siginfo_t info = {0};
	char said[200];
	int ends[2];
	pid_t child;

	if (pipe2(ends, O_CLOEXEC))
		return;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
	/* Not sooner than it has been looked at: what has ended by then is started again, with a line. */
	if (posix_spawnp(&child, "sh", &actions, NULL, command("echo $0 $1 >> calls; read line < ready; echo spawned; kill -KILL $$", "spawn", number), environ))
		child = -1;
	posix_spawn_file_actions_destroy(&actions);
	close(ends[1]);
	if (child > 0) {
		int fd = open("ready", O_RDWR | O_CLOEXEC);

		(void)!write(fd, "\n", 1);
		read_all(ends[0], said, sizeof said);
		waitid(P_PID, (id_t)child, &info, WEXITED);
		close(fd);
		tell("spawn", number, said, info.si_status);
	}
}

/* What a child writes to a file that this process has opened, between two lines of its own. */
static void into_file(int number)
{
	int fd = open("mixed", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644), status = 0;
	pid_t child;

	dprintf(fd, "before %d\n", number);
	child = fork();
	if (child == 0) {
		char *const *arguments = command("echo $0 $1 >> calls; echo between $1", "file", number);

		dup2(fd, 1);
		execv("/bin/sh", arguments);
		_exit(127);
	}
	wait(&status);
	dprintf(fd, "behind %d\n", number);
	close(fd);
}

/* What programs have left in files that this process reads: each time another one at the same path, and one that was not there before. */
static void files_of_others(int number)
{
	char line[100], name[40], said[200] = "";
	struct stat found = {0};
	int before, fd;

	snprintf(name, sizeof name, "made.%d", number);
	before = access(name, F_OK);
	snprintf(line, sizeof line, "echo result %d >result; echo x%d >%s", number * number, number, name);
	if (system(line))
		return;
	stat(name, &found);
	fd = open("result", O_RDONLY | O_CLOEXEC);
	read_all(fd, said, sizeof said);
	tell("files", number, said, before + 10 * (long)found.st_size);
	if (number > 2) {
		snprintf(name, sizeof name, "made.%d", number - 2);
		unlink(name);
	}
}

static void start_all(int number)
{
	char line[100];

	files_of_others(number);

	by_fork(number, 0);
	by_fork(number, 1);
	by_spawn(number);
	into_file(number);
	snprintf(line, sizeof line, "echo system %d >> calls; exit 3", number);
	tell("system", number, "", WEXITSTATUS(system(line)));
}

/* One program alone, before all else; then a file is made where there is none, and changed in place. Whether there was one, and another file, is
 * told each time. */
static void start_one(int number)
{
	char line[60];
	int fd;

	if (number == 1 && system("echo system 1 >> calls"))
		return;
	fd = open("ledger", O_RDWR | O_CLOEXEC);
	snprintf(line, sizeof line, "%s, %s", fd < 0 ? "made" : "found", access("stamp", F_OK) ? "no stamp" : "a stamp");
	if (fd < 0)
		fd = open("ledger", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	(void)!pwrite(fd, &number, sizeof number, 8 * number);
	close(fd);
	tell("ledger", number, line, fd < 0);
}

static void copied(int kind)
{
	static int copies, inside;
	const char *what = getenv("STARTS");

	if (kind != TO_HOST || inside || !what)
		return;
	inside = 1;
	if (++copies % EVERY == 0 && *what == '1')
		start_all(copies / EVERY);
	else if (copies % EVERY == 0)
		start_one(copies / EVERY);
	inside = 0;
}
