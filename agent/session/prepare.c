/* SPDX-License-Identifier: Apache-2.0 */
/* Room for images: how many fit, made and prefaulted in the background. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "agent/home/headroom.h"
#include "agent/session/prepare.h"
#include "agent/session/sessions.h"
#include "runtime/base/log.h"

/* Of images so large one is made first. */
#define ONE_FIRST (64ull << 20)

static struct worker prefaulter;

/* ---- limits ------------------------------------------------------------------------------- */

static uint64_t image_files_memory(const struct live *live)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < live->image_count; i++)
		bytes += live->images[i].map.size - TPCK_IMAGE_DATA_AT;
	return bytes;
}

static uint64_t less(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* How many images of so many bytes there may be; the reason when not all that were wanted. */
static unsigned how_many(const struct live *live, uint64_t data_bytes, unsigned wanted,
			 char *reason, size_t size)
{
	uint64_t one = tpck_image_memory(data_bytes), mine = image_files_memory(live);
	uint64_t used = room_taken(), others = used > mine ? used - mine : 0;
	uint64_t by_setting = home.settings.memory > others ? home.settings.memory - others : 0;
	uint64_t by_tmpfs = 0, by_cgroup = room_of_groups(), room;
	struct statvfs status;
	unsigned count;

	if (statvfs(home.folder, &status) == 0)
		by_tmpfs = (uint64_t)status.f_bavail * status.f_frsize + mine;
	by_tmpfs = by_tmpfs > ROOM_SPARE ? by_tmpfs - ROOM_SPARE : 0;
	if (by_cgroup != UINT64_MAX)
		by_cgroup += mine;
	room = less(by_setting, less(by_tmpfs, by_cgroup));
	count = (unsigned)less(room / one, wanted);
	if (count < wanted)
		snprintf(reason, size, "%u of %u images of %.1f MiB fit into memory: %s allows %.1f MiB%s", count,
			 wanted, (double)one / (1 << 20),
			 room == by_setting  ? "TRANSPCKPT_MEMORY"
			 : room == by_tmpfs  ? "free space of the memory tier's tmpfs"
					    : "the memory that the machine or a control group has left",
			 (double)room / (1 << 20), count == 1   ? "; the next snapshot is taken when the one before is durable"
			 : count == 2 ? "; a snapshot is left out now and then while one is written"
																	   : "");
	return count;
}

/* ---- the work ----------------------------------------------------------------------------- */

struct prepare_job {
	struct job job; /* first */
	struct live *live;
	char folder[TPCK_NAME_MAX];
	uint64_t data_bytes;
	unsigned first_new, count; /* images to have; those before first_new exist */
	bool more;                 /* others follow */
	char reason[sizeof ((struct tpck_prepare *)0)->reason];
};

static void prepare_run(struct job *job)
{
	struct prepare_job *prepare = (struct prepare_job *)job;

	for (unsigned i = 0; i < prepare->count; i++) {
		struct tpck_error err = {0};
		char path[TPCK_PATH_MAX];
		int rc;

		snprintf(path, sizeof path, "%s/image.%u", prepare->folder, i);
		rc = tpck_image_allocate(path, i, prepare->data_bytes, &err);
		if (!rc)
			rc = tpck_image_prefault(path, &err);
		if (rc) {
			snprintf(prepare->reason, sizeof prepare->reason, "%.*s",
				 (int)sizeof prepare->reason - 1, err.text);
			/* Existing images are of the old size: with one of them too small nothing can be
			 * captured. New ones may just be fewer. */
			prepare->count = i < prepare->first_new ? 0 : i;
		}
	}
}

static void answer(struct live *live, uint64_t bytes, unsigned images, const char *reason)
{
	struct tpck_prepare ready = {.bytes = bytes, .images = images};

	live->answered = true;
	live->granted = bytes ? images : 0;
	snprintf(ready.reason, sizeof ready.reason, "%s", reason);
	if (bytes == 0 && reason[0])
		tpck_log_warn("no snapshots of process %d: %s", (int)live->pid, reason);
	else if (reason[0])
		tpck_log_warn("process %d: %s", (int)live->pid, reason);
	if (live->client)
		client_send(live->client, TPCK_MSG_READY, &ready, sizeof ready);
}

static void prepare_done(struct agent *agent, struct job *job)
{
	struct prepare_job *prepare = (struct prepare_job *)job;
	struct live *live = prepare->live;

	live->preparing = false;
	live->jobs--;
	loop.jobs--;
	live_open_images(live);
	if (prepare->count) {
		live->session->control->images = live->image_count;
		atomic_store(&live->session->control->image_bytes, prepare->data_bytes);
	}
	if (live->life == LIFE_RUNNING) {
		const struct tpck_prepare next = live->wanted_set ? live->wanted : live->asked;

		answer(live, prepare->count ? prepare->data_bytes : 0, prepare->count, prepare->reason);
		if (live->wanted_set || (prepare->more && prepare->count)) {
			live->wanted_set = false;
			prepare_begin(agent, live, &next);
		}
	} else if (live->life == LIFE_SETTLING) {
		live_settle(agent, live);
	}
	free(prepare);
}

/* Images beyond `count` are given back, if nothing in them counts. */
static bool shrink(struct live *live, unsigned count)
{
	for (unsigned i = count; i < live->image_count; i++) {
		uint32_t state = atomic_load(&live->images[i].map.header->state);

		if ((state != TPCK_IMAGE_FREE && state != TPCK_IMAGE_ABANDONED) ||
		    atomic_load(&live->images[i].map.header->pins) || live->images[i].checking)
			return false;
	}
	while (live->image_count > count) {
		live->image_count--;
		unlink(live->images[live->image_count].path);
		tpck_image_close(&live->images[live->image_count].map);
	}
	return true;
}

/* Sessions of processes that are gone and whose snapshots are safe in the store give way. Whether
 * there were any. */
static bool make_room(struct agent *agent)
{
	bool any = false;

	for (struct live *dead = agent->lives; dead; dead = dead->next) {
		if (dead->life != LIFE_DEAD || !launch_is_dead(dead->launch) || !launch_settled(dead->launch))
			continue;
		tpck_log_info("the snapshot of step %" PRIu64 " leaves memory to make room; it is in the store",
			      dead->newest_step);
		live_retire(dead);
		any = true;
	}
	return any;
}

static void start(struct live *live, struct prepare_job *prepare)
{
	prepare->job.run = prepare_run;
	prepare->job.done = prepare_done;
	prepare->live = live;
	prepare->first_new = live->image_count;
	/* Memory comes at a GB or some a second: the first snapshot need not wait for the room of those behind it. */
	if (!live->image_count && prepare->count > 1 && prepare->data_bytes >= ONE_FIRST) {
		prepare->more = true;
		prepare->count = 1;
		prepare->reason[0] = '\0';
	}
	snprintf(prepare->folder, sizeof prepare->folder, "%s", live->session->path);
	live->preparing = true;
	live->jobs++;
	loop.jobs++;
	worker_give(&prefaulter, &prepare->job);
}

void prepare_begin(struct agent *agent, struct live *live, const struct tpck_prepare *wanted)
{
	struct prepare_job *prepare;
	unsigned images = wanted->images > TPCK_IMAGES_MAX ? TPCK_IMAGES_MAX : wanted->images ? wanted->images : 1;

	if (live->preparing) {
		live->wanted = *wanted;
		live->wanted_set = true;
		return;
	}
	prepare = calloc(1, sizeof *prepare);
	if (!prepare)
		return;
	live->asked = *wanted;
	live->asked.images = images;
	live->answered = false;
	/* An image never shrinks: what is in it may still be needed. */
	prepare->data_bytes = wanted->bytes;
	if (atomic_load(&live->session->control->image_bytes) > prepare->data_bytes)
		prepare->data_bytes = atomic_load(&live->session->control->image_bytes);
	prepare->count = how_many(live, prepare->data_bytes, images, prepare->reason, sizeof prepare->reason);
	/* Images that are there already and large enough stay, whatever has become of the room for others. */
	if (prepare->count < live->image_count && atomic_load(&live->session->control->image_bytes) == prepare->data_bytes)
		prepare->count = live->image_count;
	/* The answer comes when the memory is free: prepare_again(). */
	if (prepare->count < images && make_room(agent)) {
		free(prepare);
	} else if (prepare->count == 0 || (prepare->count < live->image_count && !shrink(live, prepare->count))) {
		answer(live, 0, 0, prepare->reason);
		free(prepare);
	} else {
		start(live, prepare);
	}
}

void prepare_again(struct agent *agent)
{
	char reason[sizeof ((struct tpck_prepare *)0)->reason];

	for (struct live *live = agent->lives; live; live = live->next) {
		struct tpck_prepare asked = live->asked;

		if (live->life != LIFE_RUNNING || live->preparing || !asked.images ||
		    (live->answered && live->granted >= asked.images))
			continue;
		if (!live->answered ||
		    how_many(live, asked.bytes, asked.images, reason, sizeof reason) > live->granted)
			prepare_begin(agent, live, &asked);
		else if (make_room(agent))
			break; /* it is free in a moment, and this is called again */
	}
}

/* ---- giving memory back ------------------------------------------------------------------- */

struct remove_job {
	struct job job; /* first */
	char path[TPCK_NAME_MAX];
};

static void remove_run(struct job *job)
{
	(void)tpck_session_remove(((struct remove_job *)job)->path);
}

static void remove_done(struct agent *agent, struct job *job)
{
	loop.jobs--;
	free(job);
	prepare_again(agent);
}

void prepare_remove(const char *session_path)
{
	struct remove_job *remove = calloc(1, sizeof *remove);

	if (!remove)
		return;
	remove->job.run = remove_run;
	remove->job.done = remove_done;
	snprintf(remove->path, sizeof remove->path, "%s", session_path);
	loop.jobs++;
	worker_give(&prefaulter, &remove->job);
}

/* ------------------------------------------------------------------------------------------- */

static int begin(struct agent *agent, struct tpck_error *err)
{
	(void)agent;
	(void)err;
	return worker_start(&prefaulter);
}

static void stop(struct agent *agent)
{
	(void)agent;
	worker_stop(&prefaulter);
}

const struct loop_part prepare_loop = {.begin = begin, .stop = stop};
