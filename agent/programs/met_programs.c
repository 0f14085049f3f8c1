/* SPDX-License-Identifier: Apache-2.0 */
/* The programs that the agent has met. */
#include "config.h"

#include "agent/programs/met_programs.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "agent/home/home.h"
#include "runtime/base/lock_order.h"

/* Every program met; the structures lock themselves. */
struct entry {
	struct tpck_program *program;
	struct entry *next;
};
static pthread_mutex_t entries_lock = PTHREAD_MUTEX_INITIALIZER;
static struct entry *entries;

struct tpck_program *program_of(const char *identity, struct tpck_error *err)
{
	struct tpck_program *program = NULL;
	struct entry *entry;

	pthread_mutex_lock(&entries_lock);
	for (entry = entries; entry && !program; entry = entry->next)
		if (strcmp(entry->program->identity, identity) == 0)
			program = entry->program;
	if (!program && tpck_program_load(&program, home.folder, &home.tiers, identity, err) == 0) {
		entry = calloc(1, sizeof *entry);
		if (entry) {
			entry->program = program;
			entry->next = entries;
			entries = entry;
		}
	}
	pthread_mutex_unlock(&entries_lock);
	return program;
}
