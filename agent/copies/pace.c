/* SPDX-License-Identifier: Apache-2.0 */
/* When the pieces of copies may go, so that the program has the network to itself for the most of it, and what came of it. What a
 * start asks for goes at once. */
#include "config.h"

#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "agent/copies/copies_private.h"
#include "runtime/base/clock.h"
#include "runtime/policy/bandwidth.h"
#include "runtime/policy/traffic.h"

/* What else uses the network: so much in the time between two looks. */
#define LOOK_NS 2000000ull
#define MUCH_BYTES (64ull << 10)
/* Over all peers. */
static struct {
	struct tpck_bandwidth ceiling;
	struct tpck_traffic traffic; /* of others */
	bool traffic_open, busy;
} network;

/* Of an iteration, from when the snapshot was held. The rest is for what a copy needs beside its bytes, and for the next snapshot:
 * that finds the image free, and on several nodes the round settled. */
#define PACE_SHARE 0.7

/* Since the agent began; of copies, but for the last. */
static struct {
	_Atomic uint64_t bytes, copies, behind, busy_ns, limited_ns, paced_ns, yielded_ns, recovery_bytes;
} counted;

uint64_t pace_until(const struct parcel *parcel)
{
	const struct launch *launch = parcel->launch;
	uint64_t furthest, iteration_ns, held_ns = 0;

	if (strcmp(home.settings.peer_pacing, "on") != 0)
		return 0;
	for (uint32_t i = 0; i < parcel->parts; i++) {
		const struct parcel_part *part = &parcel->part[i];

		/* With two images each the ranks on several nodes take their next snapshot when this copy is through. */
		if (launch->apart && part->live->image_count < 3)
			return 0;
		if (part->image.header->held_ns > held_ns)
			held_ns = part->image.header->held_ns;
	}
	/* Not the time between snapshots: where those wait for copies it would grow with itself. */
	launch_pace(launch, &furthest, &iteration_ns);
	return iteration_ns && held_ns ? held_ns + (uint64_t)(PACE_SHARE * (double)iteration_ns) : 0;
}

void pace_consider(struct agent *agent, struct parcel *parcel, bool again)
{
	bool hurry = agent->stopping;

	for (uint32_t i = 0; i < parcel->parts; i++) {
		const struct live *live = parcel->part[i].live;

		hurry = hurry || live->life != LIFE_RUNNING || live->ending;
		again = again || (live->newest >= 0 && live->newest_step > parcel->part[i].step);
	}
	if (again && !parcel->behind) {
		parcel->behind = true;
		counted.behind++;
	}
	if ((hurry || again) && !parcel->hurry) {
		uint64_t one = 1;

		parcel->hurry = true;
		(void)!write(peers.wake, &one, sizeof one);
	}
}

void pace_begin(struct pace *pace, const struct parcel *parcel, uint64_t bytes)
{
	uint64_t now = tpck_clock_monotonic_ns();

	network.ceiling.rate = home.settings.peer_bandwidth;
	if (!network.traffic_open)
		tpck_traffic_begin(&network.traffic, "");
	network.traffic_open = true;
	*pace = (struct pace){.parcel = parcel, .recovery = parcel->transfer != 0, .begun_ns = now};
	tpck_spread_begin(&pace->spread, now, parcel->until_ns, bytes);
}

static uint64_t spread_next(const struct pace *pace)
{
	return pace->parcel->hurry ? 0 : tpck_spread_next(&pace->spread);
}

/* A piece that is due waits until others have done with the network, which is when a collective is over, but no longer than half of the
 * time that is left for all pieces: where the network is never free, each comes later, and none at once at the end. */
static void consider_others(struct pace *pace, uint64_t now)
{
	uint64_t due = tpck_spread_next(&pace->spread);

	pace->yields_ns = 0;
	if (!pace->yields_most_ns)
		pace->yields_most_ns = due < pace->spread.until_ns ? due + (pace->spread.until_ns - due) / 2 : due;
	if (now >= pace->yields_most_ns)
		return;
	/* Over a longer time it does not say when that was: the next look does. */
	if (now - network.traffic.looked_ns >= LOOK_NS)
		network.busy = tpck_traffic_look(&network.traffic, now) >= MUCH_BYTES;
	if (network.busy)
		pace->yields_ns = network.traffic.looked_ns + LOOK_NS;
}

static bool others_first(const struct pace *pace)
{
	return !pace->parcel->hurry && pace->yields_ns;
}

uint64_t pace_next(const struct pace *pace)
{
	uint64_t limit = tpck_bandwidth_next(&network.ceiling), even = spread_next(pace);

	if (pace->recovery)
		return 0;
	if (others_first(pace) && pace->yields_ns > even)
		even = pace->yields_ns;
	return limit > even ? limit : even;
}

bool pace_is_held_back(const struct pace *pace)
{
	return !pace->recovery && (network.ceiling.rate || (!pace->parcel->hurry && tpck_clock_monotonic_ns() < pace->spread.until_ns));
}

static void count_held(struct pace *pace, uint64_t now)
{
	if (!pace->held_ns)
		return;
	if (pace->by == PACE_CEILING)
		counted.limited_ns += now - pace->held_ns;
	else if (pace->by == PACE_OTHERS)
		counted.yielded_ns += now - pace->held_ns;
	else
		counted.paced_ns += now - pace->held_ns;
	pace->held_ns = 0;
}

bool pace_may(struct pace *pace, uint64_t now)
{
	count_held(pace, now);
	if (!pace->recovery && !pace->parcel->hurry && pace->spread.until_ns > pace->spread.begun_ns && spread_next(pace) <= now)
		consider_others(pace, now);
	if (pace_next(pace) <= now) {
		pace->yields_most_ns = 0;
		return true;
	}
	pace->held_ns = now;
	if (tpck_bandwidth_next(&network.ceiling) > now)
		pace->by = PACE_CEILING;
	else
		pace->by = others_first(pace) ? PACE_OTHERS : PACE_SPREAD;
	return false;
}

void pace_sent(struct pace *pace, uint64_t now, uint64_t bytes)
{
	tpck_traffic_ours(&network.traffic, now, bytes);
	if (pace->recovery) {
		counted.recovery_bytes += bytes;
		return;
	}
	counted.bytes += bytes;
	pace->spread.sent += bytes;
	tpck_bandwidth_spend(&network.ceiling, now, bytes);
}

void pace_end(struct pace *pace, bool has)
{
	uint64_t now = tpck_clock_monotonic_ns();

	if (!pace->begun_ns || pace->recovery)
		return;
	count_held(pace, now);
	counted.busy_ns += now - pace->begun_ns;
	counted.copies += has;
}

void pace_status(json_object *json)
{
	json_object *row = json_object_new_object();

	json_object_object_add(row, "bandwidth", json_object_new_uint64(home.settings.peer_bandwidth));
	json_object_object_add(row, "bytes", json_object_new_uint64(counted.bytes));
	json_object_object_add(row, "copies", json_object_new_uint64(counted.copies));
	json_object_object_add(row, "seconds", json_object_new_double((double)counted.busy_ns / 1e9));
	json_object_object_add(row, "limited_seconds", json_object_new_double((double)counted.limited_ns / 1e9));
	json_object_object_add(row, "paced_seconds", json_object_new_double((double)counted.paced_ns / 1e9));
	json_object_object_add(row, "yielded_seconds", json_object_new_double((double)counted.yielded_ns / 1e9));
	json_object_object_add(row, "behind", json_object_new_uint64(counted.behind));
	json_object_object_add(row, "recovery_bytes", json_object_new_uint64(counted.recovery_bytes));
	json_object_object_add(json, "replication", row);
}
