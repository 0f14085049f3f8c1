/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions while their process runs: images become committed, older ones free. */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/session/prepare.h"
#include "agent/session/sessions.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"

static enum tpck_image_state state_of(const struct live *live, unsigned i)
{
	return (enum tpck_image_state)atomic_load_explicit(&live->images[i].map.header->state, memory_order_acquire);
}

bool live_image_state(struct live *live, unsigned i, enum tpck_image_state from, enum tpck_image_state to)
{
	uint32_t expected = from;

	return atomic_compare_exchange_strong(&live->images[i].map.header->state, &expected, to);
}

int live_image_of(const struct live *live, uint64_t step)
{
	for (unsigned i = 0; i < live->image_count; i++) {
		const struct live_image *image = &live->images[i];
		enum tpck_image_state state = state_of(live, i);

		if (image->map.header->step == step &&
		    (state == TPCK_IMAGE_COMMITTED || (state == TPCK_IMAGE_HELD && image->good && image->good_step == step)))
			return (int)i;
	}
	return -1;
}

/* ---- the process -------------------------------------------------------------------------- */

static void pid_ready(struct agent *agent, struct watch *watch)
{
	live_died(agent, (struct live *)watch);
}

struct live *live_new(struct agent *agent, struct tpck_session *session, pid_t pid)
{
	struct live *live = calloc(1, sizeof *live);

	if (!live)
		return NULL;
	live->session = session;
	live->pid = pid;
	live->newest = -1;
	live->begun_ns = tpck_clock_monotonic_ns();
	/* A pidfd tells of the death even while a forked child still holds the socket. */
	live->pid_watch = (struct watch){pid > 0 ? (int)syscall(SYS_pidfd_open, pid, 0) : -1, pid_ready};
	if (live->pid_watch.fd >= 0 && loop_watch(&live->pid_watch)) {
		close(live->pid_watch.fd);
		live->pid_watch.fd = -1;
	}
	atomic_store(&session->control->agent_pid, (int32_t)getpid());
	live->next = agent->lives;
	agent->lives = live;
	return live;
}

void live_attach(struct live *live, struct client *client)
{
	live->client = client;
	live->adopted = false;
	client->live = live;
}

void live_poll(struct agent *agent)
{
	for (struct live *live = agent->lives; live; live = live->next) {
		struct pollfd fd = {live->pid_watch.fd, POLLIN, 0};

		if (live->life == LIFE_RUNNING && fd.fd >= 0 && poll(&fd, 1, 0) == 1 && fd.revents)
			live_died(agent, live);
	}
}

/* ---- the checker's thread ------------------------------------------------------------------ */

static struct worker checker;
/* One that is smaller says nothing of how fast images are checked. */
enum { RATE_FROM_BYTES = 1 << 20 };

static int begin(struct agent *agent, struct tpck_error *err)
{
	int rc = worker_start(&checker);

	(void)agent;
	(void)err;
	if (!rc)
		pthread_setname_np(checker.thread, "checker");
	return rc;
}

static void stop(struct agent *agent)
{
	(void)agent;
	worker_stop(&checker);
}

const struct loop_part live_loop = {.begin = begin, .stop = stop};

/* ---- images ------------------------------------------------------------------------------- */

static void release(struct live *live, unsigned i)
{
	if ((int)i != live->newest && atomic_load(&live->images[i].map.header->pins) == 0 &&
	    live_image_state(live, i, TPCK_IMAGE_COMMITTED, TPCK_IMAGE_FREE) && live->life == LIFE_DEAD)
		unlink(live->images[i].path);
}

void live_unpin(struct live *live, unsigned i)
{
	atomic_fetch_sub(&live->images[i].map.header->pins, 1);
	release(live, i);
}

/* A newer session of the program has a snapshot of its own: what earlier ones left is history. One that has not gone on from that does not hold it, too: it
 * stays in memory until it, or the newer one, is in the store. */
void live_retire_ancestors(struct agent *agent, const struct live *heir)
{
	bool apart = heir->launch && heir->launch->own && !heir->launch->durable_any;

	for (struct live *live = agent->lives; live; live = live->next)
		if (live != heir && live->life == LIFE_DEAD && live->program == heir->program &&
		    live->session->name.generation < heir->session->name.generation && !(apart && live->launch && !launch_settled(live->launch)))
			live_retire(live);
}

void live_committed(struct agent *agent, struct live *live, unsigned i)
{
	const struct tpck_image_header *header = live->images[i].map.header;

	if (live->newest < 0 || header->step > live->newest_step) {
		live->newest = (int)i;
		live->newest_step = header->step;
	}
	for (unsigned k = 0; k < live->image_count; k++)
		release(live, k);
	/* Where ranks are on several nodes that waits until all have copies of it. */
	if (!live->launch || !live->launch->apart)
		live_retire_ancestors(agent, live);
}

static void give_up(struct live *live, unsigned i, const char *why)
{
	const struct tpck_image_header *header = live->images[i].map.header;
	struct tpck_held held = {.image = i, .generation = header->generation, .step = header->step};

	tpck_log_warn("snapshot of step %" PRIu64 " is abandoned: %s", header->step, why);
	live_image_state(live, i, TPCK_IMAGE_HELD, TPCK_IMAGE_ABANDONED);
	if (live->client)
		client_send(live->client, TPCK_MSG_SURPRISE, &held, sizeof held);
}

/* Of those that were looked at lately; the checker's thread writes it. */
static _Atomic uint64_t checked_bytes_a_ms = 1 << 20;

struct check_job {
	struct job job; /* first */
	struct live *live;
	unsigned image;
	struct tpck_image map;
	const char *path;
	uint64_t generation, step;
	int rc;
	struct tpck_error error;
};

static void check_run(struct job *job)
{
	struct check_job *check = (struct check_job *)job;
	uint64_t begun = tpck_clock_monotonic_ns();

	atomic_store(&check->live->images[check->image].check_begun_ns, begun);
	check->rc = tpck_image_check(&check->map, check->path, &check->error);
	if (!check->rc && check->map.header->generation != check->generation)
		check->rc = tpck_error_set(&check->error, EBADMSG, "image %s is of another generation", check->path);
	if (!check->rc)
		check->rc = tpck_image_check_device(&check->map, check->path, &check->error);
	if (!check->rc && check->map.header->data_bytes >= RATE_FROM_BYTES)
		atomic_store(&checked_bytes_a_ms, check->map.header->data_bytes * 1000000 / (tpck_clock_monotonic_ns() - begun + 1) + 1);
}

static void check_done(struct agent *agent, struct job *job)
{
	struct check_job *check = (struct check_job *)job;
	struct live *live = check->live;

	live->images[check->image].checking = false;
	live->jobs--;
	loop.jobs--;
	/* The library may have taken the image back for a newer snapshot meanwhile: what was seen of it says
	 * nothing then, and if it is held again it is looked at again. */
	if (state_of(live, check->image) != TPCK_IMAGE_HELD)
		;
	else if (live->images[check->image].map.header->step != check->step)
		live_held(live, check->image);
	else if (check->rc)
		give_up(live, check->image, check->error.text);
	else if (live->launch) {
		live->images[check->image].good = true;
		live->images[check->image].good_step = check->step;
		launch_held(agent, live);
	}
	free(check);
	if (live->life == LIFE_SETTLING)
		live_settle(agent, live);
}

void live_held(struct live *live, unsigned i)
{
	struct check_job *check;

	if (live->images[i].checking || state_of(live, i) != TPCK_IMAGE_HELD)
		return;
	check = calloc(1, sizeof *check);
	if (!check)
		return;
	check->job.run = check_run;
	check->job.done = check_done;
	check->live = live;
	check->image = i;
	check->map = live->images[i].map;
	check->path = live->images[i].path;
	check->generation = live->session->name.generation;
	check->step = live->images[i].map.header->step;
	live->images[i].checking = true;
	atomic_store(&live->images[i].check_begun_ns, 0);
	live->jobs++;
	loop.jobs++;
	worker_give(&checker, &check->job);
}

/* How long it takes until this image is checked, without those before it. */
static uint64_t check_left_ns(const struct live_image *image)
{
	uint64_t begun = atomic_load(&((struct live_image *)image)->check_begun_ns), now = tpck_clock_monotonic_ns();
	uint64_t all = image->map.header->data_bytes / atomic_load(&checked_bytes_a_ms) * 1000000, past = begun ? now - begun : 0;

	return past < all ? all - past : 0;
}

void live_hurry(struct agent *agent, struct live *live)
{
	uint64_t iteration_ns = live->session->control->status.iteration_ns, left = 0;
	bool given_up = false;

	/* What several ranks hold is theirs together. */
	if (live->life != LIFE_SETTLING || live->newest < 0 || live->launch->world > 1 || !iteration_ns)
		return;
	for (unsigned i = 0; i < live->image_count; i++)
		if (live->images[i].checking)
			left += check_left_ns(&live->images[i]);
	for (unsigned i = 0; i < live->image_count; i++) {
		const struct tpck_image_header *header = live->images[i].map.header;
		uint64_t saves = header->step > live->newest_step ? (header->step - live->newest_step) * iteration_ns : 0;

		if (!live->images[i].checking || left <= saves || !live_image_state(live, i, TPCK_IMAGE_HELD, TPCK_IMAGE_ABANDONED))
			continue;
		given_up = true;
		tpck_log_info("the snapshot of step %" PRIu64 " is not waited for: checking takes %.3f s more, and the iterations behind step %" PRIu64 " took %.3f s",
			      header->step, (double)left / 1e9, live->newest_step, (double)saves / 1e9);
	}
	if (given_up)
		live_settle(agent, live);
}

static void keep_outgrown(struct live *live, const struct tpck_image *map)
{
	struct tpck_image *grown = reallocarray(live->outgrown, live->outgrown_count + 1, sizeof *grown);

	if (!grown)
		return; /* the mapping stays until the agent ends */
	live->outgrown = grown;
	live->outgrown[live->outgrown_count++] = *map;
}

void live_open_images(struct live *live)
{
	for (unsigned i = 0; i < TPCK_IMAGES_MAX; i++) {
		struct live_image *image = &live->images[i];
		struct tpck_image map = {0};
		struct tpck_error err = {0};

		snprintf(image->path, sizeof image->path, "%s/image.%u", live->session->path, i);
		if (access(image->path, F_OK) != 0)
			break;
		if (tpck_image_open(&map, image->path, true, &err)) {
			tpck_log_warn("%s", err.text);
			break;
		}
		if (image->map.header && image->map.size == map.size) {
			tpck_image_close(&map);
		} else if (image->map.header) {
			keep_outgrown(live, &image->map);
			image->map = map;
		} else {
			image->map = map;
		}
		live->image_count = i + 1;
	}
}

/* ---- the end ------------------------------------------------------------------------------ */

void live_retire(struct live *live)
{
	live->life = LIFE_GONE;
}

void live_sweep(struct agent *agent)
{
	struct live **place = &agent->lives;

	while (*place) {
		struct live *live = *place;

		if (live->life != LIFE_GONE || live->jobs) {
			place = &live->next;
			continue;
		}
		*place = live->next;
		launch_leave(agent, live);
		if (live->client)
			live->client->live = NULL;
		if (live->pid_watch.fd >= 0) {
			loop_unwatch(&live->pid_watch);
			close(live->pid_watch.fd);
		}
		for (unsigned i = 0; i < live->image_count; i++)
			tpck_image_close(&live->images[i].map);
		for (size_t i = 0; i < live->outgrown_count; i++)
			tpck_image_close(&live->outgrown[i]);
		free(live->outgrown);
		prepare_remove(live->session->path);
		tpck_session_close(live->session);
		free(live);
	}
}
