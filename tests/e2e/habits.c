/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a program does to its own process, and what of it a new start of the program finds. Preloaded into
 * a trainer: at its start a line of what is inherited goes to $HABITS; at the first cudaMalloc all of it is
 * changed. HABIT=input: some bytes are taken from standard input as well.
 * Built as libmpi_*.so it is an MPI library that has been initialised.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#ifdef AS_MPI
int MPI_Initialized(int *flag);
int MPI_Initialized(int *flag)
{
	*flag = 1;
	return 0;
}
#endif

static char **arguments;

static int children(void)
{
	DIR *processes = opendir("/proc");
	struct dirent *entry;
	int count = 0;

	while (processes && (entry = readdir(processes))) {
		char path[64], name[64], state;
		int pid, parent = 0;
		FILE *file;

		snprintf(path, sizeof path, "/proc/%.20s/stat", entry->d_name);
		file = *entry->d_name >= '1' && *entry->d_name <= '9' ? fopen(path, "r") : NULL;
		if (file && fscanf(file, "%d (%60[^)]) %c %d", &pid, name, &state, &parent) == 4)
			count += parent == getpid();
		if (file)
			fclose(file);
	}
	if (processes)
		closedir(processes);
	return count;
}

__attribute__((constructor)) static void start(int argc, char **argv)
{
	const char *path = getenv("HABITS");
	FILE *to = path ? fopen(path, "a") : NULL;
	unsigned long long blocked = 0, ignored = 0;
	struct itimerval timer;
	sigset_t mask;
	char folder[4096];
	mode_t creating = umask(0);

	(void)argc;
	umask(creating);
	arguments = argv;
	if (!to)
		return;
	sigprocmask(SIG_BLOCK, NULL, &mask);
	for (int s = 1; s < 65; s++) {
		struct sigaction action;

		blocked |= (unsigned long long)(sigismember(&mask, s) == 1) << (s - 1);
		ignored |= (unsigned long long)(!sigaction(s, NULL, &action) && action.sa_handler != SIG_DFL) << (s - 1);
	}
	getitimer(ITIMER_REAL, &timer);
	fprintf(to, "process %d: called %s, umask %o, blocked %llx, handled %llx, timer %ld, input at %ld, children %d, folder %s, descriptors",
		(int)getpid(), argv[0], (unsigned)creating, blocked, ignored, (long)timer.it_value.tv_sec,
		(long)lseek(0, 0, SEEK_CUR), children(), getcwd(folder, sizeof folder));
	for (int fd = 0; fd < 256; fd++)
		if (fd != fileno(to) && fcntl(fd, F_GETFD) >= 0)
			fprintf(to, " %d", fd);
	fputs("\n", to);
	fclose(to);
}

static void change_everything(void)
{
	struct itimerval timer = {.it_value = {3000, 0}};
	const char *habit = getenv("HABIT");
	char bytes[10];
	sigset_t some;

	if (fork() == 0) {
		signal(SIGTERM, SIG_IGN);
		for (;;)
			pause();
	}
	if (fork() == 0)
		execlp("sleep", "sleep", "1000", NULL);
	umask(0123);
	sigemptyset(&some);
	sigaddset(&some, SIGUSR1);
	sigprocmask(SIG_BLOCK, &some, NULL);
	signal(SIGUSR2, SIG_IGN);
	signal(SIGALRM, SIG_IGN);
	setitimer(ITIMER_REAL, &timer, NULL);
	memset(arguments[0], 'x', strlen(arguments[0]));
	if (open("/dev/null", O_RDONLY) < 0 || chdir("/"))
		abort();
	if (habit && strcmp(habit, "input") == 0 && read(0, bytes, sizeof bytes) != sizeof bytes)
		abort();
	if (habit && strcmp(habit, "stream") == 0 && getchar() == EOF)
		abort();
}

int cudaMalloc(void **at, size_t bytes);
int cudaMalloc(void **at, size_t bytes)
{
	static int (*real)(void **, size_t);

	if (!real) {
		real = (int (*)(void **, size_t))dlsym(RTLD_NEXT, "cudaMalloc");
		change_everything();
	}
	return real(at, bytes);
}
