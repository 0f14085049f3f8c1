/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A program that has somebody who has others do things for it, and does so at a pace of his own. Preloaded into a trainer: with every tenth copy to the host it
 * tells him a number. $PACES says who that is: a `thread`, a process that it makes by a `fork`, or a `worker`, which is executed anew, as multiprocessing
 * does. Files in the working directory, which are looked at past the library, say how fast he is, other than in the run before:
 *
 *   late   he begins once the file is gone
 *   unborn the same, and a process of his does not even come back from fork()
 *   pace   he does nothing for numbers above the one that stands there
 *   hears  he does not hear what is said for numbers above that one
 *   lock   whoever tells him a number waits until all is done for that
 *
 * What is started notes in the files `calls` and `same` that it was: what is told to do the latter is told the same each time. Each number is posted to the
 * server at 127.0.0.1 whose port $PACES_PORT says, if it does. What he heard of both goes to the file `heard`.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/socket.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "copied.h"
#include "past_libc.h"

enum { EVERY = 10, PAUSE_US = 2000 };

static int tells = -1;
static pid_t process; /* his */
static pthread_t thread;

static int is_there(const char *path)
{
	return past_libc(SYS_access, (long)path, F_OK, 0, 0) == 0;
}

static int most(const char *path)
{
	char text[20] = "";
	long fd = past_libc(SYS_open, (long)path, O_RDONLY | O_CLOEXEC, 0, 0);

	if (fd < 0)
		return INT_MAX;
	past_libc(SYS_read, fd, (long)text, sizeof text - 1, 0);
	past_libc(SYS_close, fd, 0, 0, 0);
	return atoi(text);
}

/* A byte for each number that is done, in a file that has this process's number in its name. */
static void done_path(char path[40], pid_t of)
{
	snprintf(path, 40, "done.%d", (int)of);
}

static void note_done(void)
{
	char path[40];
	long fd;

	done_path(path, getpid());
	fd = past_libc(SYS_open, (long)path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644, 0);
	past_libc(SYS_write, fd, (long)".", 1, 0);
	past_libc(SYS_close, fd, 0, 0, 0);
}

static int done_by(pid_t of)
{
	struct stat found = {0};
	char path[40];

	done_path(path, of);
	return past_libc(SYS_stat, (long)path, (long)&found, 0, 0) ? 0 : (int)found.st_size;
}

/* Until then. */
static void pause_at(const char *path, int number)
{
	while (number > most(path))
		usleep(PAUSE_US);
}

static int do_same(void)
{
	pid_t child = fork();
	int status = -1;

	if (child == 0) {
		execlp("sh", "sh", "-c", "echo same >> same", NULL);
		_exit(127);
	}
	waitpid(child, &status, 0);
	return status;
}

/* Without room for a descriptor more, if it is told so. */
static int connects(int fd, const struct sockaddr_in *to)
{
	struct rlimit before;
	int result;

	getrlimit(RLIMIT_NOFILE, &before);
	if (getenv("PACES_TIGHT"))
		setrlimit(RLIMIT_NOFILE, &(struct rlimit){0, before.rlim_max});
	result = connect(fd, (const struct sockaddr *)to, sizeof *to);
	setrlimit(RLIMIT_NOFILE, &before);
	return result;
}

/* The server ends the connection behind its answer. */
static int post(int number, char answer[200])
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(getenv("PACES_PORT"))), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	char body[20], all[200];
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ssize_t got = 1;
	size_t has = 0;

	snprintf(body, sizeof body, "%d", number);
	snprintf(all, sizeof all, "POST /rows HTTP/1.1\r\nHost: here\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n%s", strlen(body), body);
	if (connects(fd, &to) || write(fd, all, strlen(all)) != (ssize_t)strlen(all))
		return -1;
	while (got > 0 && has < sizeof all - 1) {
		got = read(fd, all + has, sizeof all - 1 - has);
		has += got > 0 ? (size_t)got : 0;
	}
	close(fd);
	all[has] = '\0';
	if (!strstr(all, "\r\n\r\n"))
		return -1;
	snprintf(answer, 200, "%s\n", strstr(all, "\r\n\r\n") + 4);
	return 0;
}

static void *work(void *from)
{
	FILE *numbers = fdopen((int)(intptr_t)from, "r"), *shell, *heard;
	char line[100], said[100], answer[200] = "";
	int number;

	while (is_there("late"))
		usleep(PAUSE_US);
	while (fscanf(numbers, "%d", &number) == 1) {
		pause_at("pace", number);
		snprintf(line, sizeof line, "echo %d >> calls; echo said %d", number, number);
		shell = popen(line, "r");
		pause_at("hears", number);
		heard = fopen("heard", "a");
		if (!shell || !heard || !fgets(said, sizeof said, shell) || pclose(shell) || do_same() || (getenv("PACES_PORT") && post(number, answer)))
			_exit(1);
		fputs(said, heard);
		fputs(answer, heard);
		fclose(heard);
		note_done();
	}
	return NULL;
}

static const char worker[] =
	"import os, subprocess, sys, time, urllib.request # as: from multiprocessing.spawn import spawn_main\n"
	"def most(path):\n"
	"    try:\n"
	"        with open(path, encoding='ascii') as pace:\n"
	"            return int(pace.read())\n"
	"    except FileNotFoundError:\n"
	"        return sys.maxsize\n"
	"def pause_at(path, number):\n"
	"    while number > most(path):\n"
	"        time.sleep(0.002)\n"
	"for number in map(int, sys.stdin):\n"
	"    pause_at('pace', number)\n"
	"    child = subprocess.Popen(['sh', '-c', f'echo {number} >> calls; echo said {number}'], stdout=subprocess.PIPE)\n"
	"    pause_at('hears', number)\n"
	"    said = child.communicate()[0]\n"
	"    if child.returncode or os.system('echo same >> same'):\n"
	"        sys.exit(1)\n"
	"    if 'PACES_PORT' in os.environ:\n"
	"        with urllib.request.urlopen('http://127.0.0.1:%s/rows' % os.environ['PACES_PORT'], str(number).encode()) as answer:\n"
	"            said += answer.read() + b'\\n'\n"
	"    with open('heard', 'ab') as heard:\n"
	"        heard.write(said)\n"
	"    with open(f'done.{os.getpid()}', 'a', encoding='ascii') as done:\n"
	"        done.write('.')\n";

static void born(void)
{
	while (is_there("unborn"))
		past_libc(SYS_nanosleep, (long)&(struct timespec){0, PAUSE_US * 1000}, 0, 0, 0);
}

/* Before the library's own, as it is preloaded behind that. */
static void __attribute__((constructor)) begins(void)
{
	pthread_atfork(NULL, NULL, born);
}

static void executed(int hears)
{
	dup2(hears, 0);
	execlp("sh", "sh", "-c", "while [ -e late ]; do sleep 0.02; done; exec python3 -c \"$0\"", worker, NULL);
	_exit(127);
}

static void begin(const char *way)
{
	int ends[2];

	if (pipe2(ends, O_CLOEXEC))
		return;
	tells = ends[1];
	if (strcmp(way, "thread") == 0) {
		process = pthread_create(&thread, NULL, work, (void *)(intptr_t)ends[0]) ? 0 : getpid();
		return;
	}
	process = fork();
	if (process == 0) {
		close(ends[1]);
		if (strcmp(way, "worker") == 0)
			executed(ends[0]);
		work((void *)(intptr_t)ends[0]);
		_exit(0);
	}
	close(ends[0]);
}

static void copied(int kind)
{
	static int copies;
	const char *way = getenv("PACES");
	char line[20];
	int number;

	if (kind != TO_HOST || !way || ++copies % EVERY)
		return;
	number = copies / EVERY;
	if (!process)
		begin(way);
	snprintf(line, sizeof line, "%d\n", number);
	if (write(tells, line, strlen(line)) < 0)
		perror("paces");
	while (is_there("lock") && done_by(process) < number)
		usleep(PAUSE_US);
	/* The test ends this program here, in the midst of an iteration. */
	if (is_there("hold"))
		close(open("held", O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
	while (is_there("held"))
		usleep(PAUSE_US);
}

/* Called before there is a device. */
int cudaMalloc(void **to, size_t bytes)
{
	if (getenv("PACES_EARLY") && !process)
		begin("fork");
	return ((int (*)(void **, size_t))dlsym(RTLD_NEXT, "cudaMalloc"))(to, bytes);
}

static void __attribute__((destructor)) end(void)
{
	int status = -1;

	if (!process || tells < 0)
		return;
	close(tells);
	if (process == getpid()) {
		pthread_join(thread, NULL);
		return;
	}
	waitpid(process, &status, 0);
	if (status)
		fprintf(stderr, "paces: the process ended with %d\n", status);
}
