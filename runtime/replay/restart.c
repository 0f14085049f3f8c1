/* SPDX-License-Identifier: Apache-2.0 */
/* Starting over by execve. */
#include "config.h"

#include "runtime/replay/restart.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ARGUMENTS_SIZE = 256 << 10, ARGUMENTS_MAX = 8192, VARIABLES_MAX = 4096, DESCRIPTORS_MAX = 1024 };

static char *variables, folder[4096];
static unsigned variables_count;
static unsigned char open_at_start[DESCRIPTORS_MAX / 8];
static sigset_t mask_at_start;
static unsigned char ignored_at_start[65];

static void each_descriptor(void (*call)(int fd))
{
	char buffer[8192];
	int list = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
	ssize_t got;

	if (list < 0)
		return;
	while ((got = syscall(SYS_getdents64, list, buffer, sizeof buffer)) > 0)
		for (char *at = buffer; at < buffer + got; at += ((struct dirent64 *)at)->d_reclen) {
			const char *name = ((struct dirent64 *)at)->d_name;

			if (*name != '.' && atoi(name) != list)
				call(atoi(name));
		}
	syscall(SYS_close, list);
}

static void remember_descriptor(int fd)
{
	if (fd < DESCRIPTORS_MAX)
		open_at_start[fd / 8] |= (unsigned char)(1u << (fd % 8));
}

static void close_later(int fd)
{
	if (fd > 2 && (fd >= DESCRIPTORS_MAX || !(open_at_start[fd / 8] >> (fd % 8) & 1)))
		syscall(SYS_fcntl, fd, F_SETFD, FD_CLOEXEC);
}

void tpck_restart_remember(char *const *environment)
{
	size_t bytes = 0;
	char *at;

	for (char *const *e = environment; e && *e; e++)
		bytes += strlen(*e) + 1;
	variables = malloc(bytes + 1);
	if (!variables)
		return;
	at = variables;
	for (char *const *e = environment; e && *e && variables_count < VARIABLES_MAX; e++) {
		size_t length = strlen(*e) + 1;

		memcpy(at, *e, length);
		at += length;
		variables_count++;
	}
	syscall(SYS_getcwd, folder, sizeof folder);
	each_descriptor(remember_descriptor);
	sigprocmask(SIG_SETMASK, NULL, &mask_at_start);
	for (int s = 1; s < 65; s++) {
		struct sigaction action;

		ignored_at_start[s] = !sigaction(s, NULL, &action) && action.sa_handler == SIG_IGN;
	}
}

int tpck_restart(void)
{
	static char arguments[ARGUMENTS_SIZE];
	static char *argv[ARGUMENTS_MAX + 1], *envp[VARIABLES_MAX + 2];
	static char never[] = "TRANSPCKPT_RESUME=never";
	unsigned count = 0, kept = 0;
	size_t used = 0;
	ssize_t got;
	char *at;
	int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/cmdline", O_RDONLY | O_CLOEXEC, 0);

	if (fd < 0 || !variables)
		return fd < 0 ? -errno : -ENOMEM;
	while ((got = syscall(SYS_read, fd, arguments + used, sizeof arguments - used - 1)) > 0)
		used += (size_t)got;
	syscall(SYS_close, fd);
	for (at = arguments; at < arguments + used && count < ARGUMENTS_MAX; at += strlen(at) + 1)
		argv[count++] = at;
	at = variables;
	for (unsigned i = 0; i < variables_count; i++, at += strlen(at) + 1)
		if (strncmp(at, "TRANSPCKPT_RESUME=", 18) != 0)
			envp[kept++] = at;
	envp[kept] = never;
	if (folder[0] && syscall(SYS_chdir, folder))
		return -errno;
	each_descriptor(close_later);
	for (int s = 1; s < 65; s++)
		if (s != SIGKILL && s != SIGSTOP)
			signal(s, ignored_at_start[s] ? SIG_IGN : SIG_DFL);
	sigprocmask(SIG_SETMASK, &mask_at_start, NULL);
	syscall(SYS_execve, "/proc/self/exe", argv, envp);
	return -errno;
}
