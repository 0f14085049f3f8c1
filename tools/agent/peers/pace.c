/* SPDX-License-Identifier: Apache-2.0 */
/* When the chunks of copies may go, so that the program has the network to itself for the most of it, and what came of it. What a
 * start asks for goes at once. */
#include "config.h"

#include <stdatomic.h>

#include "runtime/base/clock.h"
#include "runtime/policy/bandwidth.h"
#include "tools/agent/peers/private.h"

/* Over all peers. */
static struct tpck_bandwidth ceiling;

/* Since the agent began; of copies, but for the last. */
static struct {
	_Atomic uint64_t bytes, copies, busy_ns, limited_ns, recovery_bytes;
} counted;

void pace_begin(struct pace *pace, bool recovery)
{
	ceiling.rate = peers.agent->settings.peer_bandwidth;
	*pace = (struct pace){.recovery = recovery, .begun_ns = tpck_clock_monotonic_ns()};
}

bool pace_may(struct pace *pace, uint64_t now)
{
	if (pace->held_ns)
		counted.limited_ns += now - pace->held_ns;
	pace->held_ns = 0;
	if (pace->recovery)
		return true;
	pace->next_ns = tpck_bandwidth_next(&ceiling);
	if (pace->next_ns <= now)
		return true;
	pace->held_ns = now;
	return false;
}

void pace_sent(struct pace *pace, uint64_t now, uint64_t bytes)
{
	if (pace->recovery) {
		counted.recovery_bytes += bytes;
		return;
	}
	counted.bytes += bytes;
	tpck_bandwidth_spend(&ceiling, now, bytes);
}

void pace_end(struct pace *pace, bool has)
{
	uint64_t now = tpck_clock_monotonic_ns();

	if (!pace->begun_ns || pace->recovery)
		return;
	if (pace->held_ns)
		counted.limited_ns += now - pace->held_ns;
	pace->held_ns = 0;
	counted.busy_ns += now - pace->begun_ns;
	counted.copies += has;
}

void pace_status(json_object *json)
{
	json_object *row = json_object_new_object();

	json_object_object_add(row, "bandwidth", json_object_new_uint64(peers.agent->settings.peer_bandwidth));
	json_object_object_add(row, "bytes", json_object_new_uint64(counted.bytes));
	json_object_object_add(row, "copies", json_object_new_uint64(counted.copies));
	json_object_object_add(row, "seconds", json_object_new_double((double)counted.busy_ns / 1e9));
	json_object_object_add(row, "limited_seconds", json_object_new_double((double)counted.limited_ns / 1e9));
	json_object_object_add(row, "recovery_bytes", json_object_new_uint64(counted.recovery_bytes));
	json_object_object_add(json, "replication", row);
}
