/* SPDX-License-Identifier: Apache-2.0 */
/* A program of many habits, none of which a preloaded library may change: what it prints, how it ends and what
 * it leaves behind are to be the same with and without one.
 *   behave HABIT */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static const char *self_path;

static void say(const char *text)
{
	(void)!write(1, text, strlen(text));
}

static void report(const char *who, pid_t pid)
{
	int status = -1;

	if (waitpid(pid, &status, 0) < 0)
		printf("%s: no child: %s\n", who, strerror(errno));
	else if (WIFSIGNALED(status))
		printf("%s: signal %d\n", who, WTERMSIG(status));
	else
		printf("%s: exit %d\n", who, WEXITSTATUS(status));
	fflush(stdout);
}

/* ---- ends ---- */

static void by_atexit(void)
{
	say("an exit handler\n");
}

static int end_exit(void)
{
	atexit(by_atexit);
	printf("buffered, no newline");
	exit(3);
}

static int end_exit_at_once(void)
{
	atexit(by_atexit);
	printf("never flushed");
	_exit(4);
}

static int end_segv(void)
{
	say("before the crash\n");
	*(volatile int *)(size_t)16 = 1;
	return 0;
}

static int end_abort(void)
{
	say("before the abort\n");
	abort();
}

static void on_term(int number)
{
	say(number == SIGTERM ? "told to end\n" : "another signal\n");
	_exit(143);
}

static int end_term(void)
{
	struct sigaction action = {.sa_handler = on_term};

	sigaction(SIGTERM, &action, NULL);
	kill(getpid(), SIGTERM);
	return 0;
}

static int end_kill(void)
{
	say("before the kill\n");
	return kill(getpid(), SIGKILL);
}

static void on_segv(int number, siginfo_t *info, void *context)
{
	(void)number;
	(void)context;
	say((size_t)info->si_addr == 16 ? "its own handler, on its own stack\n" : "at another address\n");
	_exit(5);
}

static int end_segv_handled(void)
{
	static char stack[64 << 10];
	stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
	struct sigaction action = {.sa_sigaction = on_segv, .sa_flags = SA_SIGINFO | SA_ONSTACK};

	sigaltstack(&alternate, NULL);
	sigaction(SIGSEGV, &action, NULL);
	return end_segv();
}

static void *main_is_gone(void *unused)
{
	(void)unused;
	usleep(20000);
	printf("the last thread\n");
	return NULL;
}

static int end_pthread_exit(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, main_is_gone, NULL);
	pthread_detach(thread);
	pthread_exit(NULL);
}

/* ---- children ---- */

static int do_children(void)
{
	char *const exit_3[] = {(char *)(size_t)self_path, (char *)"exit", NULL}, *const none[] = {NULL};
	pid_t pid = fork();
	FILE *pipe;
	char line[100];

	if (pid == 0) {
		int fd = open("child.txt", O_WRONLY | O_CREAT, 0640);

		dprintf(fd, "from the child\n");
		close(fd);
		exit(7);
	}
	report("fork, exit", pid);
	if (!(pid = fork()))
		_exit(8);
	report("fork, _exit", pid);
	if (!(pid = fork()))
		end_segv();
	report("fork, crash", pid);
	if (!(pid = fork())) {
		execv(self_path, exit_3);
		_exit(127);
	}
	report("fork, exec", pid);
	if (!(pid = fork())) {
		execve(self_path, exit_3, none);
		_exit(127);
	}
	report("fork, exec with no environment", pid);
	if (!(pid = vfork())) {
		execv(self_path, exit_3);
		_exit(127);
	}
	report("vfork, exec", pid);
	if (!(pid = vfork()))
		_exit(9);
	report("vfork, _exit", pid);
	if (posix_spawn(&pid, self_path, NULL, NULL, exit_3, environ) == 0)
		report("posix_spawn", pid);
	printf("posix_spawn of nothing: %d\n", posix_spawn(&pid, "/nonexistent", NULL, NULL, exit_3, environ));
	fflush(stdout);
	printf("system: %d\n", system("echo from the shell; exit 6"));
	pipe = popen("echo by a pipe", "r");
	while (pipe && fgets(line, sizeof line, pipe))
		printf("popen: %s", line);
	printf("pclose: %d\n", pipe ? pclose(pipe) : -1);
	printf("more children: %s\n", waitpid(-1, NULL, WNOHANG) < 0 ? strerror(errno) : "some");
	for (int i = 0; i < 20; i++)
		if (!(pid = fork())) {
			pid_t grandchild = fork();

			if (!grandchild)
				exit(1);
			waitpid(grandchild, NULL, 0);
			exit(i);
		}
	for (int sum = 0, status; ; sum += WEXITSTATUS(status))
		if (wait(&status) < 0) {
			printf("sum of statuses: %d\n", sum);
			break;
		}
	return 0;
}

/* ---- what a process begins with ---- */

static int count_entries(const char *path, bool show)
{
	DIR *folder = opendir(path);
	struct dirent *entry;
	int n = 0;
	long names[256];

	while (folder && (entry = readdir(folder)))
		if (entry->d_name[0] != '.' && n < 256)
			names[n++] = atol(entry->d_name);
	if (folder)
		closedir(folder);
	for (int i = 0; show && i < n; i++)
		printf(" %ld", names[i]);
	if (show)
		printf("\n");
	return n;
}

static int do_begin(void)
{
	struct sigaction action;
	struct rlimit limit;
	stack_t stack;
	sigset_t mask, pending;
	mode_t mask_now;

	for (int s = 1; s < 65; s++)
		if (sigaction(s, NULL, &action) == 0 && action.sa_handler != SIG_DFL)
			printf("signal %d: %s\n", s, action.sa_handler == SIG_IGN ? "ignored" : "handled");
	sigprocmask(SIG_SETMASK, NULL, &mask);
	sigpending(&pending);
	for (int s = 1; s < 65; s++)
		if (sigismember(&mask, s) || sigismember(&pending, s))
			printf("signal %d: blocked or pending\n", s);
	sigaltstack(NULL, &stack);
	printf("signal stack: %d\n", stack.ss_flags);
	printf("threads: %d\n", count_entries("/proc/self/task", false));
	printf("descriptors:");
	count_entries("/proc/self/fd", true);
	for (int r = 0; r < RLIM_NLIMITS; r++)
		if (getrlimit(r, &limit) == 0)
			printf("limit %d: %lld %lld\n", r, (long long)limit.rlim_cur, (long long)limit.rlim_max);
	mask_now = umask(0);
	umask(mask_now);
	printf("umask %o, errno %d, nice %d, group %d\n", mask_now, errno, getpriority(PRIO_PROCESS, 0), getpgrp() == getpid());
	for (char **e = environ; *e; e++)
		if (strncmp(*e, "LD_PRELOAD=", 11) != 0)
			printf("%s\n", *e);
	return 0;
}

/* ---- calls and their errors ---- */

#define TRY(call)                                                        \
	do {                                                             \
		long long got_;                                          \
		errno = 90;                                              \
		got_ = (long long)(call);                                \
		printf("%s: %lld, errno %d\n", #call, got_, errno);      \
	} while (0)
#define TRY_POINTER(call)                                                          \
	do {                                                                       \
		const void *got_;                                                  \
		errno = 90;                                                        \
		got_ = (call);                                                     \
		printf("%s: %s, errno %d\n", #call, got_ ? "something" : "NULL", errno); \
	} while (0)
#define TRY_FD(call)                                                                                       \
	do {                                                                                               \
		struct stat s_ = {0};                                                                      \
		int fd_;                                                                                   \
		errno = 90;                                                                                \
		fd_ = (call);                                                                              \
		printf("%s: %s, errno %d", #call, fd_ < 0 ? "error" : "open", errno);                      \
		if (fd_ >= 0 && fstat(fd_, &s_) == 0)                                                      \
			printf(", mode %o, flags %o %d, size %lld, descriptor %d", s_.st_mode, fcntl(fd_, F_GETFL), \
			       fcntl(fd_, F_GETFD), (long long)s_.st_size, fd_);                           \
		printf("\n");                                                                              \
		if (fd_ >= 0)                                                                              \
			close(fd_);                                                                        \
	} while (0)

static const char *null_path;
static void *null_pointer;

static void open_calls(int folder)
{
	static char endless[5000];

	memset(endless, 'x', sizeof endless - 1);
	umask(027);
	TRY_FD(open("new", O_RDWR | O_CREAT, 0666));
	TRY_FD(open("new", O_RDWR | O_CREAT | O_EXCL, 0666));
	TRY_FD(open("new", O_RDONLY | O_CLOEXEC));
	TRY_FD(open("new", O_WRONLY | O_APPEND | O_NONBLOCK));
	TRY_FD(open("new", O_WRONLY | O_TRUNC | O_SYNC));
	TRY_FD(open("new", O_PATH));
	TRY_FD(open("new", O_DIRECTORY));
	TRY_FD(open(".", O_DIRECTORY));
	TRY_FD(open(".", O_WRONLY));
	TRY_FD(open(".", O_RDWR | O_TMPFILE, 0600));
	TRY_FD(open("nothing", O_RDONLY));
	TRY_FD(open("nothing/at/all", O_WRONLY | O_CREAT, 0600));
	TRY_FD(open("", O_RDONLY));
	TRY_FD(open(endless, O_RDONLY));
	TRY_FD(open(null_path, O_RDONLY));
	TRY_FD(open("new/below", O_RDONLY));
	TRY_FD(open64("new64", O_WRONLY | O_CREAT, 0604));
	TRY_FD(creat("created", 0751));
	TRY_FD(creat64("created64", 0751));
	TRY_FD(openat(folder, "relative", O_WRONLY | O_CREAT, 0600));
	TRY_FD(openat64(folder, "relative", O_RDONLY));
	TRY_FD(openat(-1, "relative", O_RDONLY));
	TRY_FD(openat(999, "relative", O_RDONLY));
	TRY_FD(openat(AT_FDCWD, "relative", O_RDONLY));
	symlink("new", "link");
	symlink("loop", "loop");
	TRY_FD(open("link", O_RDONLY));
	TRY_FD(open("link", O_RDONLY | O_NOFOLLOW));
	TRY_FD(open("loop", O_RDONLY));
	TRY_FD(open("/dev/null", O_RDWR));
	TRY_FD(open("/dev/full", O_WRONLY));
	TRY_FD(open("/proc/self/status", O_RDONLY));
}

static void path_calls(int folder)
{
	struct stat s;
	struct stat64 s64;
	struct statx x;

	TRY(mkdir("folder", 0777));
	TRY(mkdir("folder", 0777));
	TRY(mkdirat(folder, "folder/inner", 0700));
	TRY(mkdir(null_path, 0700));
	TRY(rmdir("folder"));
	TRY(unlink("folder"));
	TRY(rename("new", "renamed"));
	TRY(rename("new", "renamed"));
	TRY(rename("renamed", "folder"));
	TRY(rename("renamed", null_path));
	TRY(renameat(folder, "renamed", folder, "folder/inner/moved"));
	TRY(renameat(-1, "renamed", folder, "x"));
	TRY(truncate("created", 12345));
	TRY(truncate("created", -1));
	TRY(truncate64("nothing", 1));
	TRY(truncate("folder", 1));
	TRY(access("created", R_OK));
	TRY(access("nothing", F_OK));
	TRY(access("created", 99));
	TRY(access(null_path, F_OK));
	TRY(faccessat(folder, "created", W_OK, 0));
	TRY(faccessat(folder, "link", F_OK, AT_SYMLINK_NOFOLLOW));
	TRY(faccessat(folder, "created", W_OK, AT_EACCESS));
	TRY(faccessat(folder, "created", W_OK, 0x40000000));
	TRY(stat("created", &s));
	printf("size %lld, mode %o, links %d\n", (long long)s.st_size, s.st_mode, (int)s.st_nlink);
	TRY(stat64("created", &s64));
	printf("size %lld, mode %o, links %d\n", (long long)s64.st_size, s64.st_mode, (int)s64.st_nlink);
	TRY(lstat("link", &s));
	printf("a link: %d\n", S_ISLNK(s.st_mode));
	TRY(lstat64("loop", &s64));
	TRY(stat("loop", &s));
	TRY(stat("nothing", &s));
	TRY(stat(null_path, &s));
	TRY(stat("created", null_pointer));
	TRY(fstatat(folder, "created", &s, 0));
	TRY(fstatat(folder, "", &s, AT_EMPTY_PATH));
	TRY(fstatat(folder, "created", &s, 0x40000000));
	TRY(fstatat64(folder, "nothing", &s64, 0));
	memset(&x, 0, sizeof x);
	TRY(statx(folder, "created", 0, STATX_ALL, &x));
	printf("mask %x, size %lld, attributes %llx, birth %d\n", x.stx_mask, (long long)x.stx_size,
	       (long long)x.stx_attributes_mask, x.stx_btime.tv_sec != 0);
	TRY(statx(folder, "", AT_EMPTY_PATH, STATX_TYPE, &x));
	TRY(statx(folder, "created", 0x40000000, STATX_ALL, &x));
	TRY(statx(folder, "nothing", 0, STATX_ALL, &x));
	TRY(statx(folder, "created", 0, STATX_ALL, null_pointer));
	TRY(unlink("created"));
	TRY(unlink("created"));
	TRY(unlink(""));
	TRY(unlinkat(folder, "created64", 0));
	TRY(unlinkat(folder, "created64", 77));
	TRY(unlinkat(folder, "folder/inner", AT_REMOVEDIR));
	TRY(remove("relative"));
	TRY(remove("folder/inner"));
	TRY(remove("nothing"));
	TRY(remove("folder/inner/moved"));
	printf("remove of a folder: %d\n", remove("folder/inner")); /* glibc leaves the errno of its first try */
	TRY(statx(folder, null_path, 0, STATX_ALL, &x));
	TRY_POINTER(opendir(null_path));
	TRY_POINTER(opendir("folder"));
	TRY_POINTER(opendir("nothing"));
	TRY_POINTER(opendir("link"));
	TRY_POINTER(opendir(""));
}

static void stream_calls(void)
{
	static const char *const modes[] = {"w", "r", "a", "r+", "w+x", "we", "ab+", "banana", "", "r,ccs=UTF-8"};
	FILE *stream;
	char text[64] = "";

	for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
		errno = 90;
		stream = fopen("stream", modes[i]);
		printf("fopen %s: %s, errno %d", modes[i], stream ? "open" : "NULL", errno);
		if (stream)
			printf(", flags %o %d, at %ld, put %d", fcntl(fileno(stream), F_GETFL), fcntl(fileno(stream), F_GETFD),
			       ftell(stream), fputs("text\n", stream));
		printf("\n");
		if (stream)
			fclose(stream);
	}
	TRY_POINTER(fopen(null_path, "r"));
	TRY_POINTER(fopen64("nothing", "r"));
	TRY_POINTER(fopen64("nothing/at/all", "w"));
	stream = fopen("other", "w");
	TRY_POINTER(stream = freopen("stream", "r", stream));
	printf("read %s", stream && fgets(text, sizeof text, stream) ? text : "nothing\n");
	TRY_POINTER(stream = freopen64("third", "w+", stream));
	printf("put %d\n", stream ? fputs("third\n", stream) : -1);
	TRY_POINTER(stream = freopen(NULL, "r", stream));
	printf("read %s", stream && fgets(text, sizeof text, stream) ? text : "nothing\n");
	TRY_POINTER(stream = freopen("nothing/at/all", "r", stream));
}

static void chance_calls(void)
{
	static unsigned char many[300000], zero[4096];
	struct timespec now;
	struct timeval day;
	struct timezone zone;
	size_t total = 0;
	ssize_t got;
	int fd;

	TRY(getrandom(many, 100, 0));
	TRY(getrandom(many, 100, 0xffff));
	TRY(getrandom(null_pointer, 100, 0));
	TRY(getrandom(many, 0, GRND_NONBLOCK));
	TRY(getrandom(many, sizeof many, 0));
	TRY(getentropy(many, 256));
	TRY(getentropy(many, 257));
	TRY_FD(open("/dev/urandom", O_RDONLY));
	TRY_FD(open("/dev/urandom", O_RDONLY | O_CLOEXEC));
	TRY_FD(open("/dev/random", O_RDWR | O_NONBLOCK));
	fd = open("/dev/urandom", O_RDONLY);
	while (total < sizeof many && (got = read(fd, many + total, sizeof many - total)) > 0)
		total += (size_t)got;
	printf("/dev/urandom gave %zu bytes, the last %s\n", total, memcmp(many + sizeof many - sizeof zero, zero, sizeof zero) ? "random" : "not");
	printf("seek %lld\n", (long long)lseek(fd, 0, SEEK_CUR));
	close(fd);
	TRY(clock_gettime(CLOCK_REALTIME, &now));
	TRY(clock_gettime(CLOCK_MONOTONIC, &now));
	TRY(clock_gettime(999, &now));
	TRY(gettimeofday(&day, NULL));
	TRY(gettimeofday(&day, (void *)&zone));
	TRY(gettimeofday(NULL, NULL));
	printf("time %s\n", time(NULL) >= 1600000000 && llabs((long long)time(NULL) - day.tv_sec) < 5 ? "passes" : "is wrong");
}

static void loader_calls(void)
{
	TRY_POINTER(dlopen("libnothing.so", RTLD_NOW));
	printf("%s\n", dlerror());
	TRY_POINTER(dlopen("libm.so.6", RTLD_NOW));
	TRY_POINTER(dlopen("libm.so.6", 0));
	printf("%s\n", dlerror());
	TRY_POINTER(dlopen("libcublasnothing.so", RTLD_NOW | RTLD_NOLOAD));
	TRY_POINTER(dlopen(NULL, RTLD_NOW));
	TRY_POINTER(dlsym(RTLD_DEFAULT, "printf"));
	TRY_POINTER(dlsym(RTLD_DEFAULT, "cunning"));
	printf("%s\n", dlerror());
	TRY_POINTER(dlsym(RTLD_NEXT, "open"));
	TRY_POINTER(dlerror());
}

static int do_calls(void)
{
	int folder = open(".", O_RDONLY | O_DIRECTORY);

	open_calls(folder);
	path_calls(folder);
	stream_calls();
	chance_calls();
	loader_calls();
	return 0;
}

/* ---- threads and signals ---- */

static void *small_main(void *argument)
{
	char name[64];
	struct stat found;
	FILE *stream;
	unsigned char bytes[16];
	int fd;

	snprintf(name, sizeof name, "small.%d", *(int *)argument);
	fd = open(name, O_WRONLY | O_CREAT, 0600);
	close(fd);
	stat(name, &found);
	stream = fopen(name, "a");
	fputs("text", stream);
	fclose(stream);
	rename(name, "small");
	truncate("small", 2);
	mkdir(name, 0700);
	rmdir(name);
	unlink("small");
	(void)!getrandom(bytes, sizeof bytes, 0);
	time(NULL);
	dlsym(RTLD_DEFAULT, "cuInit");
	(void)!open("/dev/urandom", O_RDONLY);
	return argument;
}

static int do_small_stacks(void)
{
	pthread_attr_t attributes;
	pthread_t thread;
	void *result;

	pthread_attr_init(&attributes);
	/* What fits the smallest stack without us is to fit with us: the page more is the formatted output's. */
	pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN + 8192);
	for (int i = 0; i < 8; i++) {
		if (pthread_create(&thread, &attributes, small_main, &i) || pthread_join(thread, &result) || result != &i)
			printf("thread %d failed\n", i);
	}
	printf("done\n");
	return 0;
}

static void *waits(void *unused)
{
	(void)unused;
	while (pause())
		;
	return NULL;
}

static void *leaves(void *value)
{
	pthread_exit(value);
}

static int do_threads(void)
{
	static int alarms_seen;
	pthread_t thread;
	void *result = NULL;
	pthread_attr_t bad;

	printf("create %d\n", pthread_create(&thread, NULL, leaves, &alarms_seen));
	printf("join %d, %s\n", pthread_join(thread, &result), result == &alarms_seen ? "its value" : "another");
	printf("create %d\n", pthread_create(&thread, NULL, waits, NULL));
	pthread_cancel(thread);
	printf("join %d, %s\n", pthread_join(thread, &result), result == PTHREAD_CANCELED ? "cancelled" : "another");
	pthread_attr_init(&bad);
	pthread_attr_setstacksize(&bad, 1ull << 60);
	printf("too large a stack: %d\n", pthread_create(&thread, &bad, waits, NULL));
	for (int i = 0; i < 1000; i++)
		if (pthread_create(&thread, NULL, leaves, NULL) || pthread_join(thread, NULL))
			printf("thread %d failed\n", i);
	/* One that was joined may be leaving the kernel still. */
	for (int i = 0; i < 1000 && count_entries("/proc/self/task", false) > 1; i++)
		usleep(1000);
	printf("threads: %d\n", count_entries("/proc/self/task", false));
	return 0;
}

static volatile sig_atomic_t alarms;

static void on_alarm(int number)
{
	struct timespec now;
	struct stat found;
	int saved = errno, fd = open("/dev/null", O_RDONLY);

	(void)number;
	clock_gettime(CLOCK_REALTIME, &now);
	stat("/", &found);
	if (fd >= 0)
		close(fd);
	alarms++;
	errno = saved;
}

static int do_storm(void)
{
	struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
	struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
	unsigned char bytes[64];
	int wrong = 0;

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	while (alarms < 200) {
		int fd = open("storm", O_RDWR | O_CREAT, 0600);

		wrong += fd < 0 || close(fd) != 0;
		wrong += getrandom(bytes, sizeof bytes, 0) != sizeof bytes;
		wrong += rename("storm", "calm") != 0 || unlink("calm") != 0;
		wrong += time(NULL) == (time_t)-1;
	}
	setitimer(ITIMER_REAL, &never, NULL);
	printf("%d calls failed\n", wrong);
	return 0;
}

/* A daemon: it forks, leaves its session, closes everything and goes on. */
static int do_daemon(void)
{
	int out[2], fd;
	char line[64] = "";
	ssize_t got;

	if (pipe(out))
		return 1;
	fflush(stdout);
	if (fork() == 0) {
		setsid();
		if (fork())
			_exit(0);
		for (fd = 0; fd < 1024; fd++)
			if (fd != out[1])
				close(fd);
		fd = open("/dev/null", O_RDWR);
		dup2(fd, 1);
		dup2(fd, 2);
		fd = open("daemon.txt", O_WRONLY | O_CREAT, 0600);
		dprintf(out[1], "the first descriptor free is %d\n", fd);
		_exit(0);
	}
	close(out[1]);
	while ((got = read(out[0], line, sizeof line - 1)) > 0)
		printf("%.*s", (int)got, line);
	wait(NULL);
	return 0;
}

static int do_full_table(void)
{
	struct rlimit limit = {64, 64};
	int last = -1, fd;

	setrlimit(RLIMIT_NOFILE, &limit);
	while ((fd = open("/dev/null", O_RDONLY)) >= 0)
		last = fd;
	printf("the last was %d, then errno %d\n", last, errno);
	printf("fopen: %s, opendir: %s\n", fopen("/dev/null", "r") ? "open" : strerror(errno), opendir("/") ? "open" : strerror(errno));
	printf("/dev/urandom: %d\n", open("/dev/urandom", O_RDONLY));
	close(last);
	printf("again %d\n", open("/dev/null", O_RDONLY));
	return 0;
}

/* ---- streams ---- */

int __printf_chk(int flag, const char *format, ...);
int __fprintf_chk(FILE *stream, int flag, const char *format, ...);
int __vfprintf_chk(FILE *stream, int flag, const char *format, va_list list);
int __vprintf_chk(int flag, const char *format, va_list list);
int __dprintf_chk(int fd, int flag, const char *format, ...);
int __vdprintf_chk(int fd, int flag, const char *format, va_list list);
int __overflow(FILE *stream, int c);

static void by_lists(FILE *to, const char *format, ...)
{
	va_list list;
	int sum = 0;

	for (int i = 0; i < 6; i++) {
		va_start(list, format);
		sum += i == 0 ? vfprintf(to, format, list) : i == 1 ? __vfprintf_chk(to, 1, format, list) : i == 2 ? vdprintf(fileno(to), format, list)
		       : i == 3 ? __vdprintf_chk(fileno(to), 1, format, list) : i == 4 ? vprintf(format, list) : __vprintf_chk(1, format, list);
		va_end(list);
	}
	printf("lists: %d\n", sum);
}

/* Each way that a stream is written by, and what it gives back. */
static void write_all(FILE *to)
{
	int (*volatile put)(int, FILE *) = putc, (*volatile put_at)(int, FILE *) = fputc, (*volatile say_all)(const char *, FILE *) = fputs_unlocked;
	int (*volatile out)(int) = putchar;
	const int all[] = {fputs("by fputs\n", to) >= 0, say_all("by fputs_unlocked\n", to) >= 0, put('p', to), put_at('f', to), putc_unlocked('u', to), __overflow(to, '\n'),
			   fprintf(to, "%s %d%n\n", "by fprintf", 1, &(int){0}), __fprintf_chk(to, 1, "%s %5.2f\n", "checked", 2.5), dprintf(fileno(to), "%d\n", 12),
			   __dprintf_chk(fileno(to), 1, "%d\n", 123), (int)fwrite("pieces\n", 1, 7, to), (int)fwrite_unlocked("pieces\n", 7, 1, to), puts("by puts") >= 0, out('o'),
			   printf("by %s\n", "printf"), __printf_chk(1, "%s\n", "checked"), fflush(to), fflush_unlocked(to), fflush(NULL)};

	by_lists(to, "%s, %d\n", "a list", 7);
	printf("they gave");
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		printf(" %d", all[i]);
	printf("; errors %d, at %ld\n", ferror(to), ftell(to));
}

static void *write_many(void *to)
{
	for (int i = 0; i < 2000; i++)
		fprintf(to, "%s\n", "a line of one of them");
	return NULL;
}

static int do_streams(void)
{
	static const int kinds[] = {_IOFBF, _IOLBF, _IONBF};
	FILE *to, *other, *full = fopen("/dev/full", "w"), *reads = fopen("/dev/null", "r");
	pthread_t threads[4];
	char *memory = NULL;
	size_t bytes = 0;
	pid_t child;
	int fd;

	/* What cannot be written is known at the end. */
	fprintf(full, "held back");
	errno = 0;
	printf("held back: %d", fclose(full));
	printf(", %s\n", strerror(errno));
	full = fopen("/dev/full", "w");
	/* What a stream has read ahead is gone with it. */
	fd = open(self_path, O_RDONLY);
	to = fdopen(dup(fd), "r");
	printf("read: %d", fgetc(to));
	fclose(to);
	printf(", then at %ld\n", (long)lseek(fd, 0, SEEK_CUR));
	close(fd);
	for (int i = 0; i < 3; i++) {
		to = fopen("streams", "a");
		setvbuf(to, NULL, kinds[i], 64);
		write_all(to);
		printf("%d\n", fclose(to));
	}
	/* What cannot be written. */
	errno = 0;
	printf("full: %d", fprintf(full, "more than there is room for") + fflush(full));
	printf(", %s, %d", strerror(errno), ferror(full) != 0);
	printf(", %d\n", fclose(full));
	errno = 0;
	printf("to read: %d %s\n", fputs("no", reads), strerror(errno));
	fclose(reads);
	/* No descriptor, and another file in its place. */
	to = open_memstream(&memory, &bytes);
	fprintf(to, "in memory %d", 5);
	fclose(to);
	printf("%s %zu\n", memory, bytes);
	free(memory);
	to = fopen("streams", "a+");
	fprintf(to, "before");
	to = freopen("others", "w", to);
	fprintf(to, "behind");
	rewind(to);
	fputs("B", to);
	fclose(to);
	/* Several threads, a child that ends with what it holds back, and one that does not write that. */
	to = fopen("many", "w");
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, write_many, to);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	fclose(to);
	to = fopen("streams", "a");
	other = fopen("others", "a");
	for (int i = 0; i < 2; i++) {
		fflush(NULL);
		child = fork();
		if (child == 0) {
			fprintf(to, "the child's\n");
			fputs("and here\n", other);
			if (i)
				_exit(4);
			exit(5);
		}
		report("stream's child", child);
	}
	/* What is held back at the end is written by libc. */
	fprintf(to, "at the end");
	return 6;
}

static const struct {
	const char *name;
	int (*run)(void);
} habits[] = {
	{"exit", end_exit}, {"_exit", end_exit_at_once}, {"segv", end_segv}, {"abort", end_abort}, {"term", end_term},
	{"kill", end_kill}, {"segv_handled", end_segv_handled}, {"pthread_exit", end_pthread_exit},
	{"children", do_children}, {"begin", do_begin}, {"calls", do_calls}, {"small_stacks", do_small_stacks},
	{"threads", do_threads}, {"storm", do_storm}, {"daemon", do_daemon}, {"full_table", do_full_table},
	{"streams", do_streams},
};

int main(int argc, char **argv)
{
	struct rlimit core = {0, 0};

	self_path = argv[0];
	setvbuf(stdout, NULL, _IOLBF, 0);
	setrlimit(RLIMIT_CORE, &core);
	for (size_t i = 0; argc == 2 && i < sizeof habits / sizeof *habits; i++)
		if (strcmp(argv[1], habits[i].name) == 0)
			return habits[i].run();
	for (size_t i = 0; argc == 1 && i < sizeof habits / sizeof *habits; i++)
		printf("%s\n", habits[i].name);
	return 2;
}
