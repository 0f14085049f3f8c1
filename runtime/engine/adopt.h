/* SPDX-License-Identifier: Apache-2.0 */
/* Going on as a program that was noted with another key than this node's: the state folder is another one, or was lost. */
#ifndef TPCK_RUNTIME_ENGINE_ADOPT_H
#define TPCK_RUNTIME_ENGINE_ADOPT_H

#include <stdbool.h>
#include <stddef.h>

/* `names`: STORE/JOB/programs/NAMES.names, where the programs are that are this one but for what values of variables say. The text
 * of the only one that has another key is written over *identity, which has room for `size` bytes with its NUL; a line says so, or that
 * there are several. False: the text is as it was. */
bool tpck_adopt(const char *names, char *identity, size_t size);

#endif
