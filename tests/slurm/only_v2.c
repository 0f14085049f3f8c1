/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into slurmd where the machine has cgroups of both versions: what says in which ones a process is names that of
 * version 2 alone, as on a machine that has no others. All else of them is the kernel's. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int real_open(const char *path, int flags, mode_t mode)
{
	int (*real)(const char *, int, ...);

	*(void **)&real = dlsym(RTLD_NEXT, "open");
	return real(path, flags, mode);
}

static int only_v2(const char *path)
{
	int from = real_open(path, O_RDONLY | O_CLOEXEC, 0), to;
	char text[8192], *line;
	ssize_t got = from < 0 ? -1 : read(from, text, sizeof text - 1);

	if (from >= 0)
		close(from);
	if (got < 0)
		return -1;
	text[got] = '\0';
	line = strstr(text, "0::");
	to = memfd_create("cgroup", MFD_CLOEXEC);
	if (to >= 0 && line && (write(to, line, strcspn(line, "\n") + 1) < 0 || lseek(to, 0, SEEK_SET)))
		perror("only_v2");
	return to;
}

int open(const char *path, int flags, ...)
{
	va_list rest;
	mode_t mode;

	va_start(rest, flags);
	mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
	va_end(rest);
	return fnmatch("/proc/*/cgroup", path, FNM_PATHNAME) == 0 ? only_v2(path) : real_open(path, flags, mode);
}

int open64(const char *path, int flags, ...) __attribute__((alias("open")));

FILE *fopen(const char *path, const char *how)
{
	FILE *(*real)(const char *, const char *);
	int fd;

	*(void **)&real = dlsym(RTLD_NEXT, "fopen");
	if (fnmatch("/proc/*/cgroup", path, FNM_PATHNAME) != 0)
		return real(path, how);
	fd = only_v2(path);
	return fd < 0 ? NULL : fdopen(fd, "r");
}

FILE *fopen64(const char *path, const char *how) __attribute__((alias("fopen")));
