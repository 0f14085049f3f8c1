/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a rank was started: what a spare node needs to start the rank in its place (doc/twin.md, "A spare node"). A text of struct tpck_command_head and the
 * strings that it counts, each with a NUL behind it: the program's path, the folder it was started in, its arguments, its environment.
 */
#ifndef TPCK_RUNTIME_WIRE_COMMAND_H
#define TPCK_RUNTIME_WIRE_COMMAND_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "runtime/base/error.h"

struct tpck_command_head {
	uint32_t arguments, variables; /* so many */
	uint32_t personality;          /* of personality(2) */
	uint32_t reserved;
};

/* Pointers lead into the text. */
struct tpck_command {
	uint32_t personality;
	const char *program, *folder;
	char **arguments, **environment; /* each with a NULL behind the last */
};

enum { TPCK_COMMAND_MAX = 8 << 20 };

/* Of a process that has changed nothing of it since its start; *text is malloc'd. */
int tpck_command_read(pid_t process, char **text, size_t *size, struct tpck_error *err);
/* -EBADMSG: it is none. What is made is freed by tpck_command_free(). */
int tpck_command_parse(char *text, size_t size, struct tpck_command *command);
void tpck_command_free(struct tpck_command *command);

#endif
