/* SPDX-License-Identifier: Apache-2.0 */
/* What /proc says of other processes (proc(5)). System calls only; errno is not kept. */
#ifndef TPCK_RUNTIME_BASE_PROCESSES_H
#define TPCK_RUNTIME_BASE_PROCESSES_H

#include <stdbool.h>
#include <stddef.h>

/* A file of /proc, line by line. `fd` is the caller's. */
struct tpck_lines {
	int fd;
	size_t used, at;
	char bytes[2048];
};
/* The next line, without its end, or NULL. One that is longer than there is room ends the file. */
char *tpck_lines_next(struct tpck_lines *from);
/* Whether a file of /proc of the process names this library: "environ", or "maps". */
bool tpck_process_names_library(const char *process, const char *file);
/* Whether it has mapped a file whose path ends so: the first one's path. *library: whether it has mapped this library, as far as was looked. */
bool tpck_process_has_mapped(int pid, const char *end, char *path, size_t size, bool *library);
/* 0: it is gone. */
int tpck_process_parent(int pid);
/* Whether somebody has stopped it (SIGSTOP, a debugger). */
bool tpck_process_stands(int pid);
bool tpck_process_descends(int pid, int from);
/* Calls with each name in a folder of /proc that is a number, until that says true. */
bool tpck_process_any_number(const char *folder, bool (*call)(const char *name, void *what), void *what);

#endif
