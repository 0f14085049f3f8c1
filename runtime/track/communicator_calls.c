/* SPDX-License-Identifier: Apache-2.0 */
/* Counting calls, and lists of them. */
#include "config.h"

#include "runtime/track/communicator_calls.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct tpck_communicator_calls {
	_Atomic uint32_t references;
	uint32_t count, room;
	struct tpck_communicator_call call[];
};

void tpck_communicator_count(const struct tpck_communicator_call *call)
{
	struct tpck_communicator *communicator = tpck_communicator_find(call->handle);

	if (!communicator || communicator->index != call->index)
		return;
	if (call->kind >= TPCK_SEND)
		tpck_communicator_transfer(communicator, call->peer, call->kind == TPCK_RECV);
	else
		tpck_communicator_collective(communicator, call->what);
	if (call->shown)
		tpck_communicator_mark(communicator, call->kind, call->elements);
}

static struct tpck_communicator_calls *grown(const struct tpck_communicator_calls *old)
{
	uint32_t room = old ? 2 * old->room : 16;
	struct tpck_communicator_calls *calls = malloc(sizeof *calls + room * sizeof *calls->call);

	if (!calls)
		return NULL;
	atomic_init(&calls->references, 1);
	calls->count = old ? old->count : 0;
	calls->room = room;
	if (old)
		memcpy(calls->call, old->call, old->count * sizeof *old->call);
	return calls;
}

int tpck_communicator_calls_add(struct tpck_communicator_calls **calls, const struct tpck_communicator_call *call)
{
	struct tpck_communicator_calls *all = *calls;

	if (all && all->count == TPCK_CALLS_MAX)
		return -ENOSPC;
	if (!all || all->count == all->room || atomic_load(&all->references) > 1) {
		all = grown(all);
		if (!all)
			return -ENOMEM;
		tpck_communicator_calls_drop(*calls);
		*calls = all;
	}
	for (uint32_t i = all->count; call->shown && i-- > 0;)
		if (all->call[i].shown && all->call[i].handle == call->handle && all->call[i].index == call->index) {
			all->call[i].shown = false;
			break;
		}
	all->call[all->count++] = *call;
	return 0;
}

struct tpck_communicator_calls *tpck_communicator_calls_hold(struct tpck_communicator_calls *calls)
{
	if (calls)
		atomic_fetch_add(&calls->references, 1);
	return calls;
}

void tpck_communicator_calls_drop(struct tpck_communicator_calls *calls)
{
	if (calls && atomic_fetch_sub(&calls->references, 1) == 1)
		free(calls);
}

int tpck_communicator_calls_append(struct tpck_communicator_calls **calls, struct tpck_communicator_calls *more)
{
	int result = 0;

	/* A list that is held twice does not change, and does not go, even where it is appended to itself. */
	tpck_communicator_calls_hold(more);
	for (uint32_t i = 0; more && i < more->count && !result; i++)
		result = tpck_communicator_calls_add(calls, &more->call[i]);
	tpck_communicator_calls_drop(more);
	return result;
}

void tpck_communicator_calls_count(const struct tpck_communicator_calls *calls)
{
	for (uint32_t i = 0; calls && i < calls->count; i++)
		tpck_communicator_count(&calls->call[i]);
}
