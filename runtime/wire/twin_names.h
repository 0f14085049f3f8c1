/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names in /dev/shm that a twin has in place of its program's: "tpck-twin.NAMESPACE.PROCESS.NAME", of a semaphore with "sem." in front of it. Containers may share
 * /dev/shm, and each has a process 8: NAMESPACE is the inode of the namespace of process numbers (pid_namespaces(7)). A twin that lives holds a lock (flock(2)) on
 * "tpck-twin.NAMESPACE.PROCESS", which nobody holds any more once it, and what it has forked, has ended.
 */
#ifndef TPCK_RUNTIME_WIRE_TWIN_NAMES_H
#define TPCK_RUNTIME_WIRE_TWIN_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TPCK_TWIN_NAMES "tpck-twin."
#define TPCK_SEMAPHORES "sem."

/* `entry`: below /dev/shm; kind: "" or TPCK_SEMAPHORES; name: the program's own. */
struct tpck_twin_name {
	const char *entry, *kind, *name;
};

/* The name, behind a slash, that the twin of this process number has in place of `name`. Returns as snprintf() does. */
int tpck_twin_name(char *text, size_t size, int32_t process, const char *name);
/* This process is a twin, and lives. False: others may take its names away. */
bool tpck_twin_names_hold(int32_t process);
/* Calls with each name of that twin, which may be renamed or removed meanwhile. */
void tpck_twin_names_each(int32_t process, void (*call)(int folder, const struct tpck_twin_name *name));
/* That twin's names are gone. */
void tpck_twin_names_remove(int32_t process);
/* Names of all twins that live no more are gone, in other containers, too. */
void tpck_twin_names_clear(void);

#endif
