/* SPDX-License-Identifier: Apache-2.0 */
/* What hooks/start.c calls of the other files here. */
#ifndef TPCK_HOOKS_HOOKS_H
#define TPCK_HOOKS_HOOKS_H

void tpck_hooks_cuda(void);

#endif
