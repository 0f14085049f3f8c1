/* SPDX-License-Identifier: Apache-2.0 */
/* Differences, and the habits that are known to lead to them. */
#include "config.h"

#include "runtime/twin/habits.h"

#include <stddef.h>
#include <string.h>

/* The first row whose words are in the difference counts. */
static const struct habit {
	const char *words, *habit;
} habits[] = {
	{"lies elsewhere than", "a pool that hands memory out by the order of addresses or threads, as CuPy's does (its MemoryAsyncPool repeats itself)"},
	{"in another order than", "threads that race for memory of the device"},
	{"other bytes are copied to the device", "batches that depend on which of several threads comes first, or on random numbers that are drawn past libc"},
	{"random bytes are drawn", "random numbers that several threads draw by turns, or more than 16 KiB of them at once"},
	{"a copy to the host has another size", "a length that follows from a clock or random numbers that are read past libc"},
	{"NCCL is asked", "communicators that are made in an order that threads race for"},
	{"another call than", "a branch that follows from a clock or random numbers read past libc, from threads that race, or from an order by address"},
	{"did not come to where it stood", "a thread that waits for something that the record does not have, as another process"},
	{"speaks with other machines", "a connection to who does not belong to the job, made while it trains"},
	{"writes to", "an output that the program shares with a process of its own that goes on"},
	{"ended with status", "something that is there once only, as a port, a lock or a file that the program makes and expects not to be there"},
	{"ends its context", "a clean-up that follows from a clock or from a signal"},
	{"was not started", "programs that are started by a clock, or in an order that threads race for"},
};

const char *tpck_habit(const char *difference)
{
	for (size_t i = 0; i < sizeof habits / sizeof *habits; i++)
		if (strstr(difference, habits[i].words))
			return habits[i].habit;
	return NULL;
}
