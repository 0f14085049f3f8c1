/* SPDX-License-Identifier: Apache-2.0 */
/* What the hooks of libc symbols share: they are exported under libc's own names. Each is listed in
 * hooks/libc.def, from which the export map is made. */
#ifndef TPCK_HOOKS_LIBC_H
#define TPCK_HOOKS_LIBC_H

#include "runtime/base/readable.h"

#define TPCK_EXPORT __attribute__((visibility("default")))

/* libc declares pointers that are never NULL; callers pass NULL all the same, and EFAULT is their answer. The
 * compiler drops checks of such a parameter, whatever -fno-delete-null-pointer-checks says (gcc 12): after this
 * it knows nothing of the pointer. */
#define TPCK_MAYBE_NULL(pointer) __asm__("" : "+r"(pointer))

/* Asked at the beginning of each hook that looks at a path: one that cannot be read, or does not end, is the kernel's to refuse, by
 * the call as the program made it. */
static inline bool tpck_unreadable(const char *path)
{
	return __builtin_expect(!tpck_readable_path(path), 0);
}

#endif
