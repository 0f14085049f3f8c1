// SPDX-License-Identifier: Apache-2.0
/* A program that starts over finds what it was started with, and nothing of what it has done since: arguments, variables, folder,
 * signals, timers, descriptors, input, children. It is its own second start, which looks. */
#include "config.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/replay/restart.h"
#include "tests/unit/store_tap.h"

#define check(good, what) tap_ok(good, what, NULL)

#define NONE "00000000000000"

enum { EARLY_FD = 20, LATE_FD = 21, KEPT_FD = 2000 };

extern char **environ;

static const char *busy(void)
{
	return "it has joined";
}

static void pause_ms(long ms)
{
	nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
}

/* ---- the second start -------------------------------------------------------------------------- */

static bool is_ignored(int number)
{
	struct sigaction action;

	return !sigaction(number, NULL, &action) && action.sa_handler == SIG_IGN;
}

static long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static bool is_told(const char *name)
{
	bool is = access(name, F_OK) == 0;

	unlink(name);
	return is;
}

static bool is_gone(const char *variable)
{
	pid_t pid = (pid_t)atol(getenv(variable));

	return !pid || kill(pid, 0) != 0;
}

/* How it is started again is in the arguments: "again FOLDER never|resumes". */
static int again(int argc, char **argv)
{
	bool resumes = argc == 5 && strcmp(argv[3], "resumes") == 0;
	const char *resume = getenv("TRANSPCKPT_RESUME");
	struct itimerval timer;
	char here[PATH_MAX], line[8] = "";
	sigset_t mask;

	check(argc == 5 && strcmp(argv[4], "the last one") == 0 && strcmp(argv[0], "a name of its own") == 0,
	      "all of the arguments, though the program has written over them");
	check(getenv("EMPTY") && !*getenv("EMPTY") && strcmp(getenv("KEPT"), "as it was") == 0 && !getenv("LATER"),
	      "the variables that it was started with");
	check(resumes ? resume && strcmp(resume, "auto") == 0 : resume && strcmp(resume, "never") == 0, "and whether it resumes");
	check(strcmp(getenv("MASTER_PORT"), resumes ? "29400" : "1234") == 0 &&
		      strcmp(getenv("TORCHELASTIC_USE_AGENT_STORE"), resumes ? "True" : "False") == 0, "where ranks meet now");
	check(getcwd(here, sizeof here) && strcmp(here, argv[2]) == 0, "its folder");
	check(umask(0) == 027, "its umask");
	check(!sigprocmask(SIG_SETMASK, NULL, &mask) && sigismember(&mask, SIGUSR1) == 1 && sigismember(&mask, SIGUSR2) == 0, "its mask");
	check(is_ignored(SIGHUP) && !is_ignored(SIGQUIT) && !is_ignored(SIGALRM), "signals that it ignored, and those that it did not");
	for (int which = ITIMER_REAL; which <= ITIMER_PROF; which++)
		check(!getitimer(which, &timer) && !timer.it_value.tv_sec && !timer.it_value.tv_usec, "no timer of the first start");
	check(fcntl(EARLY_FD, F_GETFD) >= 0, "descriptors that it was given");
	check(fcntl(LATE_FD, F_GETFD) < 0 && fcntl(KEPT_FD, F_GETFD) < 0, "and none that it has opened since");
	check(read(STDIN_FILENO, line, 3) == 3 && strcmp(line, "def") == 0, "its input from where it was");
	check(is_gone("PLAIN") && is_gone("STUBBORN") && is_gone("STOPPED"), "no child of the first start");
	/* Without children that have to be waited for, it does not wait. */
	check(resumes ? now_ms() - atol(getenv("BEGUN")) < 2500 : is_told("plain") && is_told("stopped"),
	      resumes ? "at once" : "those that could were told to end, also the one that was stopped");
	check(!is_gone("SPARED") && waitpid(-1, NULL, WNOHANG) == 0, "but the one that is spared");
	kill((pid_t)atol(getenv("SPARED")), SIGKILL);
	return tap_done();
}

/* ---- the first start --------------------------------------------------------------------------- */

static const char *told;

static void tell(int number)
{
	(void)number;
	_exit(open(told, O_WRONLY | O_CREAT | O_CLOEXEC, 0600) < 0);
}

/* Told to end, it leaves a file of that name; NULL: it does not end. */
static pid_t child(const char *name, bool stopped)
{
	int ready[2];
	char byte;
	pid_t pid;

	if (pipe(ready))
		exit(99);
	pid = fork();
	if (!pid) {
		told = name;
		signal(SIGTERM, name ? tell : SIG_IGN);
		(void)!write(ready[1], "x", 1);
		if (stopped)
			raise(SIGSTOP);
		for (int i = 0; i < 600; i++)
			pause_ms(50);
		_exit(0);
	}
	close(ready[1]);
	(void)!read(ready[0], &byte, 1);
	close(ready[0]);
	if (stopped)
		waitpid(pid, NULL, WUNTRACED);
	return pid;
}

/* What a variable of the start's has room for: its value is written before it is remembered. */
static void fill(const char *name, long number)
{
	char *at = getenv(name);

	snprintf(at, strlen(at) + 1, "%014ld", number);
}

static int first(int argc, char **argv)
{
	bool resumes = strcmp(argv[3], "resumes") == 0;
	struct itimerval timer = {.it_value = {100, 0}};
	char line[8];
	pid_t spared;
	int rc;

	(void)argc;
	spared = child("spared", false);
	fill("SPARED", spared);
	if (!resumes) {
		fill("PLAIN", child("plain", false));
		fill("STUBBORN", child(NULL, false));
		fill("STOPPED", child("stopped", true));
	}
	fill("BEGUN", now_ms());
	tpck_restart_remember(environ);
	/* What it does from here on is not there in the second start. */
	(void)!read(STDIN_FILENO, line, 4);
	tpck_restart_input_taken();
	if (tpck_restart_obstacle())
		return 98;
	tpck_restart_launcher(busy);
	if (!tpck_restart_obstacle())
		return 97;
	memset(argv[4], 'x', strlen(argv[4]));
	setenv("LATER", "1", 1);
	setenv("KEPT", "another", 1);
	dup2(STDIN_FILENO, LATE_FD);
	dup2(STDIN_FILENO, KEPT_FD);
	if (chdir("/"))
		return 96;
	umask(0);
	signal(SIGQUIT, SIG_IGN);
	signal(SIGHUP, SIG_DFL);
	for (int which = ITIMER_REAL; which <= ITIMER_PROF; which++)
		setitimer(which, &timer, NULL);
	if (resumes)
		tpck_restart_meet(0);
	else
		tpck_restart_meet(1234);
	rc = tpck_restart(spared, resumes);
	printf("not ok 1 - it has not been started over: %d\n", rc);
	return 1;
}

/* ---- who starts it ------------------------------------------------------------------------------- */

static int start(const char *self, const char *folder, const char *how)
{
	char *const argv[] = {(char *)"a name of its own", (char *)"again", (char *)folder, (char *)how, (char *)"the last one", NULL};
	static const char *const names[] = {"SPARED", "PLAIN", "STUBBORN", "STOPPED", "BEGUN"};
	char input[160];
	int status = 0, fd;
	pid_t pid;

	snprintf(input, sizeof input, "%s/input", folder);
	fd = open(input, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, "abcdefghij", 10) != 10)
		exit(99);
	lseek(fd, 3, SEEK_SET);
	fflush(stdout);
	pid = fork();
	if (!pid) {
		sigset_t mask;

		sigemptyset(&mask);
		sigaddset(&mask, SIGUSR1);
		sigprocmask(SIG_SETMASK, &mask, NULL);
		for (size_t i = 0; i < sizeof names / sizeof *names; i++)
			setenv(names[i], NONE, 1);
		setenv("EMPTY", "", 1);
		setenv("KEPT", "as it was", 1);
		setenv("TRANSPCKPT_RESUME", "auto", 1);
		setenv("MASTER_PORT", "29400", 1);
		setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
		signal(SIGHUP, SIG_IGN);
		signal(SIGQUIT, SIG_DFL);
		umask(027);
		if (dup2(fd, STDIN_FILENO) || dup2(fd, EARLY_FD) < 0 || chdir(folder))
			_exit(99);
		execv(self, argv);
		_exit(99);
	}
	close(fd);
	waitpid(pid, &status, 0);
	unlink(input);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(int argc, char **argv)
{
	char self[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
	const char *folder;
	int never, resumes;

	/* The first start is the one whose children are not known yet. */
	if (argc == 5 && strcmp(argv[1], "again") == 0)
		return strcmp(getenv("SPARED"), NONE) == 0 ? first(argc, argv) : again(argc, argv);
	if (length < 0)
		return 99;
	self[length] = '\0';
	folder = realpath(tap_folder("/tmp"), NULL);
	printf("# with resuming off\n");
	never = start(self, folder, "never");
	printf("# to resume, and to meet where it was\n");
	resumes = start(self, folder, "resumes");
	rmdir(folder);
	printf("# exit statuses %d and %d\n", never, resumes);
	return never || resumes;
}
