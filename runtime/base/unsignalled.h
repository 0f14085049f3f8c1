/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls of ours that may earn the calling thread a signal of the kernel's which ends a program: SIGXFSZ where a file of ours grows
 * beyond RLIMIT_FSIZE, SIGPIPE where nobody reads what a line goes to any more. In between they fail instead, with EFBIG or
 * EPIPE, as setrlimit(2) and pipe(7) say of who ignores them. Not nested. errno is kept.
 */
#ifndef TPCK_RUNTIME_BASE_UNSIGNALLED_H
#define TPCK_RUNTIME_BASE_UNSIGNALLED_H

#include <stdint.h>

struct tpck_unsignalled {
	uint64_t mask, pending; /* as they were before */
};

void tpck_unsignalled_begin(struct tpck_unsignalled *before);
void tpck_unsignalled_end(const struct tpck_unsignalled *before);

#endif
