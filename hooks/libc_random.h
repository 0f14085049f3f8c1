/* SPDX-License-Identifier: Apache-2.0 */
/* Reading random devices: what opening a file tells the hooks of reading. */
#ifndef TPCK_HOOKS_LIBC_RANDOM_H
#define TPCK_HOOKS_LIBC_RANDOM_H

#include <stdbool.h>
#include <stdio.h>

/* A descriptor was opened by a hook, on a random device or not. -1 is none. */
void tpck_random_note(int fd, bool random);
/* What it is is looked at with each read(): libc_machine.h. */
void tpck_random_look(int fd);
/* A C stream was opened on a random device: it reads inside of libc. */
void tpck_random_stream_note(FILE *stream);

#endif
