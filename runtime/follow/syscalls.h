/* SPDX-License-Identifier: Apache-2.0 */
/** Calls on paths that a library makes as system calls of its own, while the program runs forward. */
#ifndef TPCK_RUNTIME_FOLLOW_SYSCALLS_H
#define TPCK_RUNTIME_FOLLOW_SYSCALLS_H

#include <stdbool.h>

/*
 * Rust's tempfile (below safetensors) creates a file by libc's open() and renames it by a system call of its own, which no
 * hook sees. From tpck_syscalls_watch() on the calling thread's system calls outside of libc's text come to the overlay if
 * they are about paths, and are made as they are if not (Linux 5.11, x86-64: Documentation/admin-guide/syscall-user-dispatch).
 * Where the kernel does not have that, or the program has SIGSYS blocked, nothing is watched.
 */
void tpck_syscalls_watch(void);
/** The calling thread has done with its temporary file. */
void tpck_syscalls_unwatch(void);
/** No thread's calls are looked at any more; the calling thread's cost nothing more either. */
void tpck_syscalls_end(void);

#endif
