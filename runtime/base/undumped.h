/* SPDX-License-Identifier: Apache-2.0 */
/* Mappings that a core file leaves out: images and records have the training's state, and a core file lies where others may come to it. */
#ifndef TPCK_RUNTIME_BASE_UNDUMPED_H
#define TPCK_RUNTIME_BASE_UNDUMPED_H

#include <stddef.h>

/* What mmap(2) has returned, which is returned again, MAP_FAILED too. errno stays. A kernel that cannot leave it out is nobody's error. */
void *tpck_undumped(void *mapped, size_t bytes);

#endif
