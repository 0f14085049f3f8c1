/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stands in for a program while its parent is run forward (runtime/programs): says what the program said in the first run, and ends
 * as it ended, or waits until the parent is live and becomes the program. Its argument is the plan (wire/standin.h).
 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/wire/segment.h"
#include "runtime/wire/standin.h"

enum { LOOK_MS = 2, QUIET_MS = 1000, AT_ONCE = 4096, DESCRIPTORS = 1024 };

static struct tpck_standin_page *page;
static bool hears; /* standard input has something that its parent wrote */

/* NULL: it cannot be read. */
static struct tpck_standin_plan *plan_read(const char *path, size_t *size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	struct stat found;
	size_t got = 0;
	ssize_t more = 1;
	char *bytes;

	if (fd < 0 || fstat(fd, &found))
		return NULL;
	*size = (size_t)found.st_size;
	bytes = malloc(*size + 1);
	while (bytes && got < *size && (more = read(fd, bytes + got, *size - got)) > 0)
		got += (size_t)more;
	close(fd);
	unlink(path);
	if (!bytes || got < *size || *size < sizeof(struct tpck_standin_plan))
		return NULL;
	bytes[*size] = '\0';
	return (void *)bytes;
}

static void page_map(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);

	page = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd >= 0)
		close(fd);
	if (page == MAP_FAILED)
		page = NULL;
}

static bool is_pipe(int fd)
{
	struct stat found;

	return !fstat(fd, &found) && (S_ISFIFO(found.st_mode) || S_ISSOCK(found.st_mode));
}

/* Whether standard input is the parent's own: what comes there is for the parent. */
static bool is_parents(pid_t parent)
{
	struct stat found, its;
	char path[40];

	snprintf(path, sizeof path, "/proc/%d/fd/%d", parent, STDIN_FILENO);
	return !fstat(STDIN_FILENO, &found) && !stat(path, &its) && found.st_ino == its.st_ino && found.st_dev == its.st_dev;
}

/* Takes what the parent has written. False: there is no more. */
static bool drain(void)
{
	char bytes[AT_ONCE];
	ssize_t got = read(STDIN_FILENO, bytes, sizeof bytes);

	hears = got > 0 || (got < 0 && (errno == EINTR || errno == EAGAIN));
	return hears;
}

/* Writes all, and takes meanwhile what its parent writes, who may do so first. */
static void say(int fd, const char *bytes, size_t count)
{
	while (count) {
		struct pollfd both[2] = {{.fd = fd, .events = POLLOUT}, {.fd = hears ? STDIN_FILENO : -1, .events = POLLIN}};
		ssize_t put;

		if (poll(both, 2, -1) < 0 && errno != EINTR)
			return;
		if (both[1].revents)
			drain();
		if (both[0].revents & (POLLERR | POLLNVAL))
			return;
		/* As much as a pipe that can be written takes at once. */
		put = both[0].revents & POLLOUT ? write(fd, bytes, count < AT_ONCE ? count : AT_ONCE) : 0;
		if (put < 0 && errno != EINTR && errno != EAGAIN)
			return;
		if (put > 0) {
			bytes += put;
			count -= (size_t)put;
		}
	}
}

static void say_all(const char *pieces, uint64_t bytes)
{
	const char *end = pieces + bytes;

	while ((size_t)(end - pieces) >= sizeof(struct tpck_standin_piece)) {
		struct tpck_standin_piece piece;

		memcpy(&piece, pieces, sizeof piece);
		pieces += sizeof piece;
		if (piece.bytes > (size_t)(end - pieces))
			return;
		if (piece.stream == 1 || piece.stream == 2)
			say((int)piece.stream, pieces, piece.bytes);
		pieces += piece.bytes;
	}
}

/* Until its parent has said all, or waits for its end. */
static void listen_to(uint32_t place)
{
	int quiet = 0;

	while (hears && quiet < QUIET_MS && page && place < TPCK_STANDIN_PLACES && !atomic_load(&page->finish[place])) {
		struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};

		if (poll(&input, 1, LOOK_MS) > 0) {
			drain();
			quiet = 0;
		} else {
			quiet += LOOK_MS;
		}
	}
}

static void end_as(int status)
{
	if (WIFSIGNALED(status)) {
		int number = WTERMSIG(status);
		sigset_t set;

		setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
		signal(number, SIG_DFL);
		sigemptyset(&set);
		sigaddset(&set, number);
		sigprocmask(SIG_UNBLOCK, &set, NULL);
		raise(number);
	}
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

/* Where the parent's output goes now, in place of the memory that it went to before. */
static void output_back(pid_t parent)
{
	for (int fd = 1; fd <= 2; fd++) {
		char link[64], target[64];
		ssize_t got;
		int real;

		snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
		got = readlink(link, target, sizeof target - 1);
		if (got <= 0 || strncmp(target, TPCK_STANDIN_DIVERTED, sizeof TPCK_STANDIN_DIVERTED - 1) != 0)
			continue;
		snprintf(link, sizeof link, "/proc/%d/fd/%d", parent, fd);
		real = open(link, O_WRONLY | O_APPEND | O_NOCTTY);
		if (real < 0)
			real = open("/dev/null", O_WRONLY);
		if (real >= 0 && real != fd) {
			dup2(real, fd);
			close(real);
		}
	}
}

/* `texts` are so many, each NUL-terminated, before `end`; NULL: they are not. */
static char **list_of(char **texts, const char *end, uint32_t count)
{
	char **list = calloc((size_t)count + 1, sizeof *list);

	for (uint32_t i = 0; list && i < count; i++) {
		if (*texts >= end)
			return NULL;
		list[i] = *texts;
		*texts += strlen(*texts) + 1;
	}
	return list;
}

/* ---- what the program says once more -------------------------------------------------------------- */

/* What goes by a pipe in place of a descriptor, but for its first bytes. */
struct filter {
	int from, to; /* from -1: nothing does */
	uint64_t drop;
};

static uint64_t said_by(const char *pieces, uint64_t bytes, uint32_t stream)
{
	const char *end = pieces + bytes;
	uint64_t said = 0;

	while ((size_t)(end - pieces) >= sizeof(struct tpck_standin_piece)) {
		struct tpck_standin_piece piece;

		memcpy(&piece, pieces, sizeof piece);
		pieces += sizeof piece;
		if (piece.bytes > (size_t)(end - pieces))
			break;
		said += piece.stream == stream ? piece.bytes : 0;
		pieces += piece.bytes;
	}
	return said;
}

/* False: there is no more, or nobody who hears it. */
static bool pass(struct filter *filter)
{
	char bytes[AT_ONCE];
	ssize_t got = read(filter->from, bytes, sizeof bytes), done = 0;
	size_t dropped = got > 0 && filter->drop ? (filter->drop < (uint64_t)got ? (size_t)filter->drop : (size_t)got) : 0;

	filter->drop -= dropped;
	for (size_t at = dropped; got > 0 && at < (size_t)got; at += (size_t)done) {
		done = write(filter->to, bytes + at, (size_t)got - at);
		if (done < 0 && errno != EINTR)
			return false;
		done = done < 0 ? 0 : done;
	}
	return got > 0 || (got < 0 && errno == EINTR);
}

static void pass_all(struct filter filters[2])
{
	struct pollfd from[2] = {{filters[0].from, POLLIN, 0}, {filters[1].from, POLLIN, 0}};

	/* The program's end is its own matter; what it has said by then is passed on. */
	for (int number = 1; number < NSIG; number++)
		if (number != SIGKILL && number != SIGSTOP && number != SIGCONT)
			signal(number, SIG_IGN);
	while (from[0].fd >= 0 || from[1].fd >= 0) {
		if (poll(from, 2, -1) < 0 && errno != EINTR)
			return;
		for (int i = 0; i < 2; i++)
			if (from[i].fd >= 0 && from[i].revents && !pass(&filters[i])) {
				close(filters[i].from);
				close(filters[i].to);
				from[i].fd = -1;
			}
	}
}

/* Before it becomes the program: what that has said, its parent has heard, and is not to hear again. A process that is nobody's child drops as much of it.
 * False: nothing does, as there is no process or descriptor for it. */
static bool drop_what_was_said(const char *pieces, uint64_t bytes)
{
	struct filter filters[2] = {{-1, -1, 0}, {-1, -1, 0}};
	int into[2] = {-1, -1}, ends[2], status = 1;
	bool all = true;
	pid_t child, filterer;

	for (int i = 0; i < 2; i++) {
		filters[i].drop = said_by(pieces, bytes, (uint32_t)i + 1);
		if (!filters[i].drop || !is_pipe(i + 1))
			continue;
		if (pipe2(ends, O_CLOEXEC)) {
			all = false;
			continue;
		}
		filters[i].from = fcntl(ends[0], F_DUPFD_CLOEXEC, 10);
		into[i] = fcntl(ends[1], F_DUPFD_CLOEXEC, 10);
		filters[i].to = fcntl(i + 1, F_DUPFD_CLOEXEC, 10);
		close(ends[0]);
		close(ends[1]);
		if (filters[i].from < 0 || into[i] < 0 || filters[i].to < 0)
			return false;
	}
	if (into[0] < 0 && into[1] < 0)
		return all;
	child = fork();
	if (!child) {
		filterer = fork();
		if (filterer == 0) {
			/* Whose end somebody waits for is not open here. */
			for (int fd = 0; fd < DESCRIPTORS; fd++)
				if (fd != filters[0].from && fd != filters[0].to && fd != filters[1].from && fd != filters[1].to)
					close(fd);
			pass_all(filters);
		}
		_exit(filterer < 0);
	}
	/* Without it nobody would read what the program says. */
	if (child < 0 || waitpid(child, &status, 0) < 0 || status)
		return false;
	for (int i = 0; i < 2; i++)
		if (into[i] >= 0) {
			dup2(into[i], i + 1);
			close(into[i]);
			close(filters[i].from);
			close(filters[i].to);
		}
	return all;
}

/* The process that has the log says so. */
static void note_twice(const char *path)
{
	const char *name = strrchr(path, '/');

	snprintf(page->twice_name, sizeof page->twice_name, "%s", name ? name + 1 : path);
	atomic_fetch_add(&page->twice, 1);
}

/* Where its parent has heard the end of what it says the program says nothing more. */
static void close_what_ended(uint32_t flags)
{
	for (int stream = 1; stream <= 2; stream++) {
		int nowhere;

		if (!(flags & TPCK_STANDIN_CLOSES(stream)) || !is_pipe(stream))
			continue;
		nowhere = open("/dev/null", O_WRONLY);
		if (nowhere < 0) {
			close(stream);
			continue;
		}
		dup2(nowhere, stream);
		close(nowhere);
	}
}

static int become(char *texts, const char *end, const struct tpck_standin_plan *plan, pid_t parent)
{
	char *path = texts, **arguments, **variables;

	texts += strlen(texts) + 1;
	close_what_ended(plan->flags);
	arguments = list_of(&texts, end, plan->arguments);
	variables = list_of(&texts, end, plan->variables);
	while (page && !atomic_load(&page->live) && getppid() == parent)
		nanosleep(&(struct timespec){0, LOOK_MS * 1000000L}, NULL);
	if (!arguments || !variables || !page || atomic_load(&page->live) != 1)
		return 127;
	output_back(parent);
	if (!drop_what_was_said((const char *)(plan + 1), plan->output))
		note_twice(path);
	/* A name is looked for along PATH, as posix_spawnp() does. */
	execvpe(path, arguments, variables);
	return 127;
}

int main(int count, char **arguments)
{
	struct sigaction before, ignore = {.sa_handler = SIG_IGN};
	pid_t parent = getppid();
	struct tpck_standin_plan *plan;
	size_t size;
	char *behind;

	if (count != 2) {
		fprintf(stderr, "standin: it is started by libtranspckpt.so only\n");
		return 2;
	}
	plan = plan_read(arguments[1], &size);
	if (!plan || plan->magic != TPCK_STANDIN_MAGIC || plan->version != TPCK_WIRE_VERSION || plan->output > size - sizeof *plan ||
	    !memchr(plan->control, '\0', sizeof plan->control))
		return 127;
	page_map(plan->control);
	hears = !(plan->flags & TPCK_STANDIN_STARTS) && is_pipe(STDIN_FILENO) && !is_parents(parent);
	sigaction(SIGPIPE, &ignore, &before);
	behind = (char *)(plan + 1) + plan->output;
	say_all((char *)(plan + 1), plan->output);
	if (plan->flags & TPCK_STANDIN_STARTS) {
		sigaction(SIGPIPE, &before, NULL);
		return become(behind, (char *)plan + size, plan, parent);
	}
	close(STDOUT_FILENO);
	close(STDERR_FILENO);
	listen_to(plan->place);
	end_as(plan->status);
}
