/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that has others do things for it, and hears from them, by ways that are not fork, exec, read and wait. Preloaded into a trainer: with every
 * tenth copy to the host it goes the way that $TOOLS names. What is started notes in the file `calls` that it was; what the trainer heard, and how it
 * ended, goes to the file `told`.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "copied.h"
#include "past_libc.h"

extern char **environ;

enum { EVERY = 10, SAID = 2000 };

static char number_text[16], said[SAID];
static size_t heard;
static char *arguments[] = {"sh", "-c", NULL, NULL, number_text, NULL, NULL};

static void tell(const char *way, int number, long status)
{
	FILE *to = fopen("told", "a");

	said[heard < SAID ? heard : SAID - 1] = '\0';
	for (char *at = said; *at; at++)
		*at = *at == '\n' ? ' ' : *at;
	if (to)
		fprintf(to, "%s %d: %ld %s\n", way, number, status, said);
	if (to)
		fclose(to);
}

/* $0 is the way, $1 the number. */
static char *const *command(const char *way, const char *script)
{
	arguments[2] = (char *)script;
	arguments[3] = (char *)way;
	return arguments;
}

static long ended(pid_t child)
{
	int status = -1;

	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

static void hear_lines(FILE *from)
{
	while (heard < SAID - 1 && fgets(said + heard, (int)(SAID - heard), from))
		heard += strlen(said + heard);
}

static long by_popen(const char *way, int number)
{
	char line[200];
	FILE *shell, *other;

	(void)way;
	snprintf(line, sizeof line, "echo popen %d >> calls; echo one; echo %d; exit 3", number, number * number);
	shell = popen(line, "r");
	snprintf(line, sizeof line, "read word; echo writer %d $word >> calls; exit 4", number);
	other = popen(line, "w");
	fprintf(other, "hello\n");
	hear_lines(shell);
	/* One of them by the name for any stream. */
	return pclose(other) + 100000L * fclose(shell);
}

/* A child's output, by a stream, by a list of pieces, or by calls for sockets. */
static long by_reading(const char *way, int number)
{
	char *const *list = command(way, "echo $0 $1 >> calls; echo said $1; echo more >&2; exit 5");
	struct iovec pieces[2];
	struct msghdr message = {.msg_iov = pieces, .msg_iovlen = 2};
	int ends[2];
	ssize_t got = 1;
	FILE *stream;
	pid_t child;

	(void)number;
	if (strncmp(way, "recv", 4) == 0 ? socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) : pipe2(ends, O_CLOEXEC))
		return -1;
	child = fork();
	if (child == 0) {
		dup2(ends[1], 1);
		dup2(ends[1], 2);
		execvp("sh", list);
		_exit(127);
	}
	close(ends[1]);
	if (strcmp(way, "stream") == 0) {
		stream = fdopen(ends[0], "r");
		if (fileno(stream) == ends[0])
			hear_lines(stream);
		fclose(stream);
		return ended(child);
	}
	while (got > 0 && heard < SAID - 200) {
		pieces[0] = (struct iovec){said + heard, 3};
		pieces[1] = (struct iovec){said + heard + 3, 100};
		got = strcmp(way, "readv") == 0   ? readv(ends[0], pieces, 2)
		      : strcmp(way, "recvmsg") == 0 ? recvmsg(ends[0], &message, 0)
		      : heard					? recvfrom(ends[0], said + heard, 100, 0, NULL, NULL)
						    : recv(ends[0], said, 4, 0);
		heard += got > 0 ? (size_t)got : 0;
	}
	close(ends[0]);
	return ended(child);
}

/* Programs that are known by a descriptor. The last one has no path: it is a script in memory. */
static long by_descriptor(const char *way, int number)
{
	static const char script[] = "#!/bin/sh\necho memory $1 >> calls; echo memory\n";
	char *const *list = command(way, "echo $0 $1 >> calls; echo said $1; exit 6");
	char *const of_script[] = {"script", number_text, NULL};
	int ends[2], fd = number % 3 == 0 ? memfd_create("script", 0) : number % 3 == 1 ? open("/bin/sh", O_RDONLY | O_CLOEXEC) : open("/bin", O_RDONLY | O_CLOEXEC);
	ssize_t got;
	pid_t child;

	if (fd < 0 || pipe2(ends, O_CLOEXEC) || (number % 3 == 0 && write(fd, script, sizeof script - 1) < 0))
		return -1;
	child = fork();
	if (child == 0) {
		dup2(ends[1], 1);
		if (number % 3 == 0)
			fexecve(fd, of_script, environ);
		else if (number % 3 == 1)
			execveat(fd, "", list, environ, AT_EMPTY_PATH);
		else
			execveat(fd, "sh", list, environ, 0);
		_exit(127);
	}
	close(fd);
	close(ends[1]);
	while ((got = read(ends[0], said + heard, SAID - 1 - heard)) > 0)
		heard += (size_t)got;
	close(ends[0]);
	return ended(child);
}

/* The child's output in a file that posix_spawn() opens, and in a pipe; it may have ended when that returns. */
static long by_spawn(const char *way, int number)
{
	posix_spawn_file_actions_t actions;
	struct stat found = {0};
	int ends[2];
	ssize_t got;
	pid_t child = -1;
	long status;

	if (pipe2(ends, O_CLOEXEC) || posix_spawn_file_actions_init(&actions))
		return -1;
	posix_spawn_file_actions_addopen(&actions, 1, number % 2 ? "log" : "latest", O_WRONLY | O_CREAT | (number % 2 ? O_APPEND : O_TRUNC), 0644);
	posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
	posix_spawn_file_actions_addclose(&actions, ends[0]);
	posix_spawnp(&child, "sh", &actions, NULL, command(way, "echo $0 $1 >> calls; echo said $1; echo heard $1 >&2"), environ);
	posix_spawn_file_actions_destroy(&actions);
	close(ends[1]);
	while ((got = read(ends[0], said + heard, SAID - 1 - heard)) > 0)
		heard += (size_t)got;
	close(ends[0]);
	status = ended(child);
	if (stat(number % 2 ? "log" : "latest", &found))
		return -1;
	return status + 1000000 * (long)found.st_size;
}

/* ---- a child of a fork that goes on in the same program, and has others do things for it ---- */

static void put(const char *name, const char *mode, const char *format, int number)
{
	FILE *to = fopen(name, mode);

	if (to)
		fprintf(to, format, number);
	if (to)
		fclose(to);
}

/* What it heard goes to its parent by a pipe of its own. It leaves files, too, and takes some away. */
static long by_worker(const char *way, int number)
{
	char line[200], answer[100] = "";
	int ends[2], status;
	size_t count;
	ssize_t got;
	FILE *shell;
	pid_t child;

	(void)way;
	if (pipe2(ends, O_CLOEXEC))
		return -1;
	child = fork();
	if (child == 0) {
		snprintf(line, sizeof line, "echo worker %d >> calls; wc -c < told 2>&1", number);
		shell = popen(line, "r");
		count = fread(answer, 1, sizeof answer, shell);
		status = pclose(shell);
		if (write(ends[1], answer, count) != (ssize_t)count)
			_exit(9);
		snprintf(line, sizeof line, "echo copied %d >> calls; cp told backup.%d", number, number);
		status += system(line);
		put("ledger", "a", "%d\n", number);
		put("unfinished", "w", "latest %d\n", number);
		rename("unfinished", "newest");
		snprintf(line, sizeof line, "once.%d", number);
		put(line, "wx", "%d\n", number);
		snprintf(line, sizeof line, "backup.%d", number - 3);
		unlink(line);
		_exit(status ? 1 : 0);
	}
	close(ends[1]);
	while ((got = read(ends[0], said + heard, SAID - 1 - heard)) > 0)
		heard += (size_t)got;
	close(ends[0]);
	return ended(child);
}

static int ask[2], answer[2];
static pid_t server;

/* Forks the child that is asked by one pipe, and answers by another. */
static bool serves(void)
{
	if (pipe2(ask, O_CLOEXEC) || pipe2(answer, O_CLOEXEC))
		return false;
	server = fork();
	if (server == 0)
		close(ask[1]);
	return true;
}

static void serve(void)
{
	char line[200], words[100];
	FILE *shell;
	int asked;

	if (!serves())
		return;
	while (server == 0) {
		if (read(ask[0], &asked, sizeof asked) != sizeof asked)
			_exit(0);
		snprintf(line, sizeof line, "echo server %d >> calls; echo $((%d * %d))", asked, asked, asked);
		shell = popen(line, "r");
		if (!shell || !fgets(words, sizeof words, shell) || pclose(shell) || write(answer[1], words, strlen(words)) < 0)
			_exit(1);
	}
	close(ask[0]);
}

/* One that is there all the time, is asked, has it done, and answers. */
static long by_server(const char *way, int number)
{
	ssize_t got;

	(void)way;
	if (!server)
		serve();
	if (write(ask[1], &number, sizeof number) != sizeof number)
		return -1;
	got = read(answer[0], said, 100);
	heard = got > 0 ? (size_t)got : 0;
	/* The test ends this program here, in the midst of an iteration. */
	if (access("hold", F_OK) == 0)
		put("held", "w", "%d\n", number);
	while (access("held", F_OK) == 0)
		pause();
	return 0;
}

/* Called before there is a device: that one is forked then. */
int cudaMalloc(void **to, size_t bytes)
{
	const char *way = getenv("TOOLS");

	if (way && strcmp(way, "early") == 0 && !server)
		serve();
	return ((int (*)(void **, size_t))dlsym(RTLD_NEXT, "cudaMalloc"))(to, bytes);
}

/* A child that stays, has a program make a file, reads that, and takes it away: without the program there is none the second time. */
static long by_product(const char *way, int number)
{
	char line[200], name[40], words[100];
	int asked, fd;
	ssize_t got;

	(void)way;
	if (!server) {
		if (!serves())
			return -1;
		while (server == 0) {
			if (read(ask[0], &asked, sizeof asked) != sizeof asked)
				_exit(0);
			snprintf(name, sizeof name, "product.%d", asked);
			snprintf(line, sizeof line, "echo product %d >> calls; echo made $((%d * %d)) > %s", asked, asked, asked, name);
			if (system(line))
				_exit(1);
			fd = open(name, O_RDONLY | O_CLOEXEC);
			got = fd < 0 ? snprintf(words, sizeof words, "none\n") : read(fd, words, sizeof words);
			close(fd);
			unlink(name);
			if (write(answer[1], words, (size_t)got) < 0)
				_exit(1);
		}
		close(ask[0]);
	}
	if (write(ask[1], &number, sizeof number) != sizeof number)
		return -1;
	got = read(answer[0], said, 100);
	heard = got > 0 ? (size_t)got : 0;
	return 0;
}

/* A child that ends when it is told to, and is asked before whether it has: more often each time that this program is started. */
static long by_asking(const char *way, int number)
{
	int ends[2], status = 0;
	char nothing;
	pid_t child;

	(void)way;
	(void)number;
	if (pipe2(ends, O_CLOEXEC))
		return -1;
	child = fork();
	if (child == 0) {
		close(ends[1]);
		_exit((int)read(ends[0], &nothing, 1) + 7);
	}
	close(ends[0]);
	for (int asked = getpid() % 10000; asked >= 0; asked--)
		if (waitpid(child, &status, WNOHANG))
			return -1;
	close(ends[1]);
	return ended(child);
}

/* Several that share what is asked: who does which is chance. */
static long by_pool(const char *way, int number)
{
	enum { SERVERS = 3 };
	static int ask[2], answer[2];
	static pid_t servers[SERVERS];
	char line[200], words[SERVERS][20] = {{0}};
	int asked;
	FILE *shell;

	(void)way;
	for (int i = 0; i < SERVERS && !servers[i]; i++) {
		if (i == 0 && (pipe2(ask, O_CLOEXEC) || pipe2(answer, O_CLOEXEC)))
			return -1;
		servers[i] = fork();
		if (servers[i] == 0)
			close(ask[1]);
		while (servers[i] == 0) {
			if (read(ask[0], &asked, sizeof asked) != sizeof asked)
				_exit(0);
			usleep((useconds_t)(getpid() * 7 + asked * 5) % 11 * 1000);
			snprintf(line, sizeof line, "echo pool %d >> calls; printf '%%9s' $((%d * %d))", asked, asked, asked);
			shell = popen(line, "r");
			snprintf(words[0], 20, "%8d: ", asked);
			if (!shell || !fgets(words[0] + 10, 10, shell) || pclose(shell) || write(answer[1], words[0], 19) < 0)
				_exit(1);
		}
	}
	for (asked = number * SERVERS; asked < number * SERVERS + SERVERS; asked++)
		if (write(ask[1], &asked, sizeof asked) != sizeof asked)
			return -1;
	for (int i = 0; i < SERVERS; i++)
		if (read(answer[0], words[i], 19) != 19)
			return -1;
	qsort(words, SERVERS, sizeof *words, (int (*)(const void *, const void *))strcmp);
	heard = (size_t)snprintf(said, SAID, "%s%s%s", words[0], words[1], words[2]);
	return 0;
}

/* A program that nobody waits for: its parent has gone. */
static long by_daemon(const char *way, int number)
{
	char *const *list = command(way, "echo $0 $1 >> calls");
	pid_t child = fork();

	(void)number;
	if (child == 0) {
		if (fork() == 0) {
			execvp("sh", list);
			_exit(127);
		}
		_exit(0);
	}
	return ended(child);
}

/* One whose child opens the file that its output goes to. */
static long by_opening(const char *way, int number)
{
	char *const *list = command(way, "echo $0 $1 >> calls; echo said $1");
	struct stat found = {0};
	pid_t child = fork();
	long status;

	(void)number;
	if (child == 0) {
		dup2(open("opened", O_WRONLY | O_CREAT | O_APPEND, 0644), 1);
		execvp("sh", list);
		_exit(127);
	}
	status = ended(child);
	return stat("opened", &found) ? -1 : status + 1000000 * (long)found.st_size;
}

/* A child that writes on where others ended, and makes what must not be there: done twice, its status is another. */
static long by_ledger(const char *way, int number)
{
	char name[60];
	pid_t child = fork();

	(void)way;
	if (child == 0) {
		int status = 0, fd;

		put("ledger", "a", "%d\n", number);
		fd = open("ledger", O_WRONLY | O_APPEND | O_CLOEXEC);
		if (fd < 0 || write(fd, "and more\n", 9) != 9 || close(fd))
			status |= 1;
		snprintf(name, sizeof name, "folder.%d", number);
		if (mkdir(name, 0755))
			status |= 2;
		snprintf(name, sizeof name, "folder.%d/once", number);
		fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0644);
		if (fd < 0 || close(fd))
			status |= 4;
		_exit(status);
	}
	return ended(child);
}

/* As long a path as a file system takes, and longer than is noted. */
static const char *deep(void)
{
	static char path[500];
	int length;

	length = snprintf(path, sizeof path, "%0200d", 0);
	mkdir(path, 0755);
	length += snprintf(path + length, sizeof path - (size_t)length, "/%0220d", 0);
	mkdir(path, 0755);
	snprintf(path + length, sizeof path - (size_t)length, "/ledger");
	return path;
}

/* A child that writes to a file whose path is not noted, or opens more files than are noted. */
static long by_crowd(const char *way, int number)
{
	char name[40];
	pid_t child = fork();

	if (child == 0 && strcmp(way, "unnoted") == 0) {
		put(deep(), "a", "%d\n", number);
		_exit(0);
	}
	if (child == 0) {
		put("ledger", "a", "%d\n", number);
		mkdir("crowd", 0755);
		for (int i = 0; i < 1100; i++) {
			snprintf(name, sizeof name, "crowd/%d", i);
			close(open(name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
		}
		_exit(0);
	}
	return ended(child);
}

static void make(const char *name)
{
	close(open(name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
}

/* Waits for whichever of three ends, which is the one that was started last, then the one before: each is told to go by a file, once the other has ended. */
static long by_any(const char *way, int number)
{
	char *const *list = command(way, "echo $0 $1 >> calls; while [ ! -e go.$2 ]; do sleep 0.02; done; exit $2");
	char digit[2] = "0", file[] = "go.0";
	long order = 0;
	int status;

	(void)number;
	arguments[5] = digit;
	for (int i = 3; i > 0; i--) {
		digit[0] = file[3] = (char)('0' + i);
		unlink(file); /* of a run that was killed */
		if (fork() == 0) {
			execvp("sh", list);
			_exit(127);
		}
	}
	arguments[5] = NULL;
	for (int i = 1; i <= 3; i++) {
		file[3] = (char)('0' + i);
		make(file);
		if (wait(&status) > 0)
			order = 10 * order + WEXITSTATUS(status);
	}
	for (int i = 1; i <= 3; i++) {
		file[3] = (char)('0' + i);
		unlink(file);
	}
	return order;
}

/* Hears one line of a program, and the other one when the next program is started. */
static long by_half(const char *way, int number)
{
	static FILE *at_work;
	char line[200];
	long status = 0;

	(void)way;
	if (at_work) {
		make("go");
		hear_lines(at_work);
		status = pclose(at_work);
	}
	unlink("go");
	snprintf(line, sizeof line, "echo half %d >> calls; echo first %d; while [ ! -e go ]; do sleep 0.02; done; echo second %d", number, number, number);
	at_work = popen(line, "r");
	if (at_work && fgets(said + heard, (int)(SAID - heard), at_work))
		heard += strlen(said + heard);
	return status;
}

/* Hears all that a program says, which then closes its output and goes on until the next one is started. The way "unheard" hears it past the library. */
static long by_closing(const char *way, int number)
{
	char *const *list = command(way, "echo $0 $1 >> calls; echo said $1; exec >&-; while [ ! -e go ]; do sleep 0.02; done; exit 5");
	static pid_t at_work;
	long status = 0, got = 1;
	int ends[2];

	(void)number;
	if (at_work) {
		make("go");
		status = ended(at_work);
	}
	unlink("go");
	if (pipe2(ends, O_CLOEXEC))
		return -1;
	at_work = fork();
	if (at_work == 0) {
		dup2(ends[1], 1);
		execvp("sh", list);
		_exit(127);
	}
	close(ends[1]);
	for (; got > 0 && heard < SAID - 1; heard += got > 0 ? (size_t)got : 0)
		got = strcmp(way, "unheard") == 0 ? past_libc(SYS_read, ends[0], (long)said + (long)heard, SAID - 1 - (long)heard, 0) : read(ends[0], said + heard, SAID - 1 - heard);
	close(ends[0]);
	return status;
}

/* The same of a program that may open hardly any files. */
static long by_few(const char *way, int number)
{
	static FILE *at_work;
	static pid_t child;
	static char first[20];
	char *const list[] = {"sh", "-c", "echo $0 $1 >> calls; echo first $1; while [ ! -e go ]; do sleep 0.02; done; echo second $1", (char *)way, first, NULL};
	long status = 0;
	int ends[2];

	if (at_work) {
		make("go");
		hear_lines(at_work);
		fclose(at_work);
		status = ended(child);
	}
	unlink("go");
	snprintf(first, sizeof first, "%d", number);
	if (pipe2(ends, O_CLOEXEC))
		return -1;
	child = fork();
	if (child == 0) {
		dup2(ends[1], 1);
		for (int fd = 3; fd < 64; fd++)
			close(fd);
		setrlimit(RLIMIT_NOFILE, &(struct rlimit){12, 12});
		execvp("sh", list);
		_exit(127);
	}
	close(ends[1]);
	at_work = fdopen(ends[0], "r");
	if (at_work && fgets(said + heard, (int)(SAID - heard), at_work))
		heard += strlen(said + heard);
	return status;
}

/* Who ignores its children's ends hears of none: the wait is over when there is no child left. */
static long by_ignoring(const char *way, int number)
{
	char *const *list = command(way, "echo $0 $1 >> calls");
	pid_t child;

	(void)number;
	signal(SIGCHLD, SIG_IGN);
	child = fork();
	if (child == 0) {
		execvp("sh", list);
		_exit(127);
	}
	return ended(child);
}

static const struct way {
	const char *name;
	long (*go)(const char *way, int number);
} ways[] = {
	{"popen", by_popen}, {"stream", by_reading}, {"readv", by_reading}, {"recv", by_reading}, {"recvmsg", by_reading}, {"descriptor", by_descriptor}, {"spawn", by_spawn},
	{"worker", by_worker}, {"server", by_server}, {"early", by_server}, {"pool", by_pool}, {"product", by_product}, {"asking", by_asking}, {"daemon", by_daemon}, {"opening", by_opening},
	{"ledger", by_ledger}, {"others", by_ledger}, {"unnoted", by_crowd}, {"crowd", by_crowd}, {"ignoring", by_ignoring}, {"any", by_any}, {"half", by_half}, {"few", by_few}, {"closing", by_closing}, {"unheard", by_closing},
};

static void copied(int kind)
{
	static int copies, inside;
	const char *name = getenv("TOOLS");

	if (kind != TO_HOST || inside || !name || ++copies % EVERY)
		return;
	inside = 1;
	snprintf(number_text, sizeof number_text, "%d", copies / EVERY);
	heard = 0;
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
		if (strcmp(ways[i].name, name) == 0)
			tell(name, copies / EVERY, ways[i].go(name, copies / EVERY));
	inside = 0;
}
