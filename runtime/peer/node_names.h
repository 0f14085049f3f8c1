/* SPDX-License-Identifier: Apache-2.0 */
/* The names of nodes, each with a number: 0 for the first that was added. They stay where they are until all go. */
#ifndef TPCK_RUNTIME_PEER_NODE_NAMES_H
#define TPCK_RUNTIME_PEER_NODE_NAMES_H

#include <stddef.h>
#include <stdint.h>

struct tpck_names {
	char **name;     /* [count] */
	size_t count, room;
	uint32_t *table; /* [size], a power of two: numbers, from 1 */
	size_t size;
};
enum { TPCK_NO_NAME = UINT32_MAX };

void tpck_names_free(struct tpck_names *names);
/* TPCK_NO_NAME: there is none. */
uint32_t tpck_names_find(const struct tpck_names *names, const char *name);
/* Adds it where it is not there. TPCK_NO_NAME: there is no memory. */
uint32_t tpck_names_add(struct tpck_names *names, const char *name);

#endif
