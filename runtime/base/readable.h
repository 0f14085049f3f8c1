/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether what a program points at can be read, asked without reading it: a system call given a bad pointer says EFAULT, and
 * whoever looks at that pointer before the kernel does would end the program instead.
 *
 * The main thread's stack and the heap below the break are there as long as the program is, and cost a comparison. Of all other
 * memory the kernel is asked, page by page, by a call that has no effect and that every program may make; what another thread
 * unmaps behind that is not noticed. Nothing is remembered: a page that could be read a moment ago may be gone. errno stays.
 */
#ifndef TPCK_RUNTIME_BASE_READABLE_H
#define TPCK_RUNTIME_BASE_READABLE_H

#include <stdbool.h>
#include <stddef.h>

/* At load, by the main thread. Without it the kernel is asked about all memory. */
void tpck_readable_start(void);
bool tpck_readable(const void *at, size_t bytes);
/* A path that the kernel would take: it ends within PATH_MAX bytes, all of which can be read. NULL is none. */
bool tpck_readable_path(const char *path);
/* A list of texts as execve() takes it: it ends with NULL, and the texts end within what the kernel takes. NULL is an empty one. */
bool tpck_readable_list(char *const list[]);

#endif
