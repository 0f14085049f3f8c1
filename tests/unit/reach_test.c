/* SPDX-License-Identifier: Apache-2.0 */
/* The agent is found or started, once, and what becomes of a start that comes to nothing. The program is its own agent: started with
 * --job it does as REACH_TEST_AGENT says. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/base/clock.h"
#include "runtime/reach/reach.h"
#include "tests/unit/store_tap.h"

#define check(good, what) tap_ok(good, what, NULL)

extern char **environ;

static char folder[128], started[160], lock[160];

/* ---- the agent ---------------------------------------------------------------------------------- */

static void pause_ms(long ms)
{
	nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

static void note(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		_exit(1);
	close(fd);
}

static int listening(const char *at)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof address.sun_path, "%s/agent.sock", at);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 8))
		_exit(1);
	return fd;
}

/* In the background once it listens, or, with "slow", long before. Until its folder is gone, or ten seconds. */
static int agent(const char *job)
{
	const char *does = getenv("REACH_TEST_AGENT"), *at = getenv("REACH_TEST_FOLDER");
	char path[PATH_MAX], text[64];
	struct stat before;
	bool slow = strcmp(does, "slow") == 0;

	snprintf(path, sizeof path, "%s/started", at);
	before = (struct stat){0};
	(void)!stat(path, &before);
	note(path, "x");
	if (strcmp(job, "job of mine") != 0 || getenv("LD_PRELOAD") || getenv("LD_LIBRARY_PATH") || access("here", F_OK))
		return 2;
	if (strcmp(does, "never") == 0 || (strcmp(does, "second") == 0 && !before.st_size))
		return 1;
	if (!slow) {
		pause_ms(100);
		listening(at);
	}
	if (fork())
		return 0;
	if (slow) {
		prctl(PR_SET_NAME, "transpckptd");
		snprintf(path, sizeof path, "%s/agent.lock", at);
		snprintf(text, sizeof text, "%d\n", (int)getpid());
		note(path, text);
	}
	/* The agent is in the background. */
	close(3);
	if (slow) {
		pause_ms(1000);
		listening(at);
	}
	for (int i = 0; i < 200 && access(at, F_OK) == 0; i++)
		pause_ms(50);
	return 0;
}

/* ---- who looks for it ---------------------------------------------------------------------------- */

static long starts(void)
{
	struct stat found;

	return stat(started, &found) ? 0 : (long)found.st_size;
}

static void forget(void)
{
	char path[160];

	snprintf(path, sizeof path, "%s/agent.sock", folder);
	unlink(path);
	unlink(started);
	unlink(lock);
}

/* What tpck_reach() gives, with such an agent. *ms: how long it took. `ahead`: so long after an agent was started ahead; -1: none was. */
static int reached_ahead(const char *does, const char *path, long ahead, struct tpck_error *err, long *ms)
{
	static struct tpck_settings settings;
	struct tpck_reach who = {.settings = &settings, .job = "job of mine", .library = "", .start_folder = folder};
	uint64_t begun;
	int fd;

	setenv("REACH_TEST_AGENT", does, 1);
	who.environment = environ;
	snprintf(settings.agent, sizeof settings.agent, "%s", path);
	snprintf(who.socket, sizeof who.socket, "%s/agent.sock", folder);
	if (ahead >= 0) {
		tpck_reach_ahead(&who);
		tpck_reach_ahead(&who);
		pause_ms(ahead);
	}
	begun = tpck_clock_monotonic_ns();
	fd = tpck_reach(&who, err);
	*ms = (long)((tpck_clock_monotonic_ns() - begun) / 1000000);
	return fd;
}

static int reached(const char *does, const char *path, struct tpck_error *err, long *ms)
{
	return reached_ahead(does, path, -1, err, ms);
}

/* One whose queue is full does not let anybody wait for long; and one that gets to it is reached. */
static void test_full(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd, listener, held[64], count = 0;
	char path[160];
	pid_t pid;

	snprintf(path, sizeof path, "%s/agent.sock", folder);
	strcpy(address.sun_path, path);
	listener = listening(folder);
	listen(listener, 0);
	do
		held[count] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	while (connect(held[count++], (struct sockaddr *)&address, sizeof address) == 0 && count < 64);
	alarm(60); /* without an end it would wait here */
	check(tpck_reach_connect(path) == -ETIMEDOUT, "an agent whose queue stays full is given up");
	pid = fork();
	if (pid == 0) {
		pause_ms(200);
		for (int i = 0; i < 60; i++)
			(void)!accept(listener, NULL, NULL);
		_exit(0);
	}
	fd = tpck_reach_connect(path);
	check(fd > 2 && !(fcntl(fd, F_GETFL) & O_NONBLOCK), "one that gets to it is reached");
	alarm(0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(fd);
	for (int i = 0; i < count; i++)
		close(held[i]);
	close(listener);
	forget();
}

static void test_starts(const char *self)
{
	struct tpck_error err = {0};
	long ms;
	int fd = reached("answers", self, &err, &ms);

	ok(fd > 2 && fcntl(fd, F_GETFD) == FD_CLOEXEC, "an agent is started, and answers");
	check(starts() == 1, "once, with the job's name, in the program's folder, without the library");
	check(waitpid(-1, NULL, __WALL | WNOHANG) == -1 && errno == ECHILD, "it is no child of the program's");
	close(fd);
	fd = reached("answers", self, &err, &ms);
	ok(fd > 2 && starts() == 1, "one that is there is not started again");
	close(fd);
	forget();
	fd = reached("slow", self, &err, &ms);
	ok(fd > 2 && starts() == 1 && ms >= 900, "one that is coming is waited for");
	close(fd);
	forget();
}

static void test_ahead(const char *self)
{
	struct tpck_error err = {0};
	long ms;
	int fd = reached_ahead("answers", self, 0, &err, &ms);

	ok(fd > 2 && starts() == 1, "one that was started ahead is waited for, and no other one is started");
	close(fd);
	fd = reached_ahead("answers", self, 0, &err, &ms);
	ok(fd > 2 && starts() == 1, "none is started ahead of one that is there");
	close(fd);
	forget();
	fd = reached_ahead("slow", self, 1100, &err, &ms);
	ok(fd > 2 && starts() == 1 && ms < 900, "it comes while something else is done");
	close(fd);
	forget();
	fd = reached_ahead("second", self, 300, &err, &ms);
	ok(fd > 2 && starts() == 2, "one that has left by then is started once more");
	close(fd);
	forget();
	fd = reached_ahead("never", "/nonexistent/agent", 0, &err, &ms);
	check(fd < 0 && strstr(err.text, "/nonexistent/agent"), "one that cannot be started is said then");
	forget();
}

static void test_ends(const char *self)
{
	struct tpck_error err = {0};
	long ms;
	int fd = reached("second", self, &err, &ms);

	ok(fd > 2 && starts() == 2, "one that has left at once is started once more");
	close(fd);
	forget();
	fd = reached("never", self, &err, &ms);
	check(fd < 0 && strstr(err.text, "ended at once") && strstr(err.text, "--job job of mine"), "one that leaves each time is said");
	check(starts() == 2 && ms >= 500 && ms < 4000, "after two starts, without waiting for long");
	err.text[0] = '\0';
	fd = reached("never", "/nonexistent/agent", &err, &ms);
	check(fd < 0 && strstr(err.text, "/nonexistent/agent"), "one that cannot be started is said");
	check(waitpid(-1, NULL, __WALL | WNOHANG) == -1 && errno == ECHILD, "no child is left of it");
	forget();
}

int main(int argc, char **argv)
{
	char self[PATH_MAX], here[160];
	const char *tier;
	ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);

	if (argc == 3 && strcmp(argv[1], "--job") == 0)
		return agent(argv[2]);
	if (length < 0)
		return 99;
	self[length] = '\0';
	tier = tap_folder("/tmp");
	snprintf(folder, sizeof folder, "%s/j", tier);
	mkdir(folder, 0700);
	snprintf(started, sizeof started, "%s/started", folder);
	snprintf(here, sizeof here, "%s/here", folder);
	snprintf(lock, sizeof lock, "%s/agent.lock", folder);
	note(here, "");
	setenv("REACH_TEST_FOLDER", folder, 1);
	setenv("LD_LIBRARY_PATH", "/nonexistent", 1);
	test_starts(self);
	test_ahead(self);
	test_full();
	test_ends(self);
	unlink(here);
	rmdir(folder);
	rmdir(tier);
	return tap_done();
}
