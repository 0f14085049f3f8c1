/* SPDX-License-Identifier: Apache-2.0 */
/* Packing the log while it grows. */
#include "config.h"

#include "agent/durable/packer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "agent/durable/stasher.h"
#include "agent/loop/trouble.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/store/packing.h"
#include "runtime/wire/pack.h"

/* After one that failed, as on a memory tier that is full. */
#define AGAIN_NS 10000000000ull

struct pack_job {
	struct job job; /* first */
	struct live *live;
	uint64_t sequence;
	uint64_t raw, bytes; /* of its records before, and packed; 0: it stays as it is */
	int rc, moved;       /* moved: whether the store has it */
	struct tpck_error error;
};

static struct {
	struct worker worker;
	bool none; /* this build has no zstd */
} packer;

/* ---- the packer's thread ------------------------------------------------------------------- */

/* Beside the program's stashes. What cannot come there stays in memory. */
static int move(struct pack_job *pack)
{
	const struct tpck_session *session = pack->live->session;
	char keep[64], store[TPCK_PATH_MAX], name[64];
	int folder, rc;

	snprintf(keep, sizeof keep, TPCK_STASH_STORE "/%s", pack->live->program->id);
	snprintf(name, sizeof name, TPCK_PACK_PREFIX "%" PRIu64 ".%" PRIu64, session->name.generation, pack->sequence);
	rc = tpck_tier_path(home.tier, keep, store, sizeof store, &pack->error);
	folder = rc ? rc : stash_store(pack->live->program, &pack->error);
	if (folder < 0)
		return folder;
	rc = tpck_pack_move(session->path, pack->sequence, folder, store, name, &pack->error);
	close(folder);
	return rc;
}

static void pack_run(struct job *job)
{
	struct pack_job *pack = (struct pack_job *)job;
	const char *session = pack->live->session->path;
	struct tpck_log_header header;
	char path[TPCK_PATH_MAX];

	if (!tpck_segment_find(session, pack->sequence, path, sizeof path, &header)) {
		pack->rc = tpck_error_set(&pack->error, ENOENT, "packing log segment %s", path);
		return;
	}
	/* A process that was gone on from has packed it, or the agent before this one. */
	if (header.sealed != TPCK_LOG_PACKED) {
		pack->rc = tpck_pack_segment(session, pack->sequence, &pack->error);
		if (pack->rc || !tpck_segment_find(session, pack->sequence, path, sizeof path, &header))
			return;
	}
	pack->bytes = atomic_load(&header.used);
	pack->rc = tpck_pack_raw(path, pack->sequence, &pack->raw, &pack->error);
	if (!pack->rc)
		pack->moved = move(pack);
}

/* ---- the event loop's ---------------------------------------------------------------------- */

static struct tpck_image_header *header_of(const struct live *live, unsigned i)
{
	return live->images[i].map.header;
}

/* The segment in which the oldest snapshot ends that is or may be gone on from; 0 where there is none. */
static uint64_t floor_of(const struct live *live)
{
	uint64_t least = UINT64_MAX;

	for (unsigned i = 0; i < live->image_count; i++) {
		const struct tpck_image_header *header = header_of(live, i);
		uint32_t state = atomic_load(&header->state);

		if ((state == TPCK_IMAGE_COMMITTED || state == TPCK_IMAGE_HELD) && header->log_sequence < least)
			least = header->log_sequence;
	}
	return live->newest < 0 || least == UINT64_MAX ? 0 : least;
}

static void next(struct live *live)
{
	live->packing.packed = false;
	live->packing.next++;
	atomic_store(&live->session->control->log_looked, live->packing.next);
}

/* Whoever began to read before there was the pack may be at what it was before. */
static bool is_read(const struct live *live)
{
	for (unsigned i = 0; i < live->image_count; i++)
		if (live->packing.readers[i] && header_of(live, i)->step == live->packing.readers[i] && atomic_load(&header_of(live, i)->pins))
			return true;
	return false;
}

static void drop_raw(struct live *live)
{
	char path[TPCK_PATH_MAX];

	tpck_log_path(live->session->path, live->packing.next, path, sizeof path);
	unlink(path);
	next(live);
}

static void pack_done(struct agent *agent, struct job *job)
{
	struct pack_job *pack = (struct pack_job *)job;
	struct live *live = pack->live;
	struct tpck_control *control = live->session->control;

	(void)agent;
	loop.jobs--;
	live->jobs--;
	live->packing.busy = false;
	if (pack->rc == -ENOTSUP) {
		packer.none = true;
	} else if (pack->rc == -EFBIG) {
		next(live);
	} else if (pack->rc) {
		trouble_complain(&pack->error);
		live->packing.after_ns = tpck_clock_monotonic_ns() + AGAIN_NS;
	} else {
		atomic_store(&control->log_packed_raw, (live->packing.next ? atomic_load(&control->log_packed_raw) : 0) + pack->raw);
		atomic_store(&control->log_packed_bytes, (live->packing.next ? atomic_load(&control->log_packed_bytes) : 0) + pack->bytes);
		tpck_log_debug("segment %llu of the log is packed: %llu bytes of %llu", (unsigned long long)pack->sequence, (unsigned long long)pack->bytes,
			       (unsigned long long)pack->raw);
		if (pack->moved)
			trouble_complain(&pack->error);
		live->packing.packed = true;
		for (unsigned i = 0; i < TPCK_IMAGES_MAX; i++)
			live->packing.readers[i] = i < live->image_count && atomic_load(&header_of(live, i)->pins) ? header_of(live, i)->step : 0;
	}
	free(pack);
}

static void begin_one(struct live *live)
{
	struct pack_job *pack = calloc(1, sizeof *pack);

	if (!pack)
		return;
	*pack = (struct pack_job){.job = {pack_run, pack_done, NULL}, .live = live, .sequence = live->packing.next};
	live->packing.busy = true;
	live->jobs++;
	loop.jobs++;
	worker_give(&packer.worker, &pack->job);
}

static void consider(struct agent *agent)
{
	for (struct live *live = agent->lives; live && !packer.none && !agent->stopping; live = live->next) {
		struct live_packing *packing = &live->packing;

		if (live->life != LIFE_RUNNING || packing->busy || !live->program)
			continue;
		if (packing->packed && !is_read(live))
			drop_raw(live);
		if (!packing->packed && packing->next < floor_of(live) && (!packing->after_ns || tpck_clock_monotonic_ns() >= packing->after_ns))
			begin_one(live);
	}
}

static int begin(struct agent *agent, struct tpck_error *err)
{
	(void)agent;
	(void)err;
	return worker_start(&packer.worker);
}

static void stop(struct agent *agent)
{
	(void)agent;
	worker_stop(&packer.worker);
}

const struct loop_part pack_loop = {.begin = begin, .consider = consider, .stop = stop};
