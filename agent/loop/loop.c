/* SPDX-License-Identifier: Apache-2.0 */
/* The event loop. */
#include "config.h"

#include "agent/loop/loop.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/epoll.h>

#include "agent/loop/worker.h"
#include "runtime/base/clock.h"

struct loop loop;

static struct {
	struct agent *agent;
	const struct loop_part *const *parts;
	size_t count;
	int epoll;
	struct watch outbox;
	bool over;
} turning;

int loop_watch(struct watch *watch)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = watch};

	return epoll_ctl(turning.epoll, EPOLL_CTL_ADD, watch->fd, &event) ? -errno : 0;
}

void loop_unwatch(struct watch *watch)
{
	epoll_ctl(turning.epoll, EPOLL_CTL_DEL, watch->fd, NULL);
}

static void outbox_ready(struct agent *agent, struct watch *watch)
{
	(void)watch;
	outbox_deliver(agent);
}

int loop_begin(struct agent *agent, const struct loop_part *const *parts, size_t count, struct tpck_error *err)
{
	int rc;

	turning.agent = agent;
	turning.parts = parts;
	turning.count = count;
	turning.epoll = epoll_create1(EPOLL_CLOEXEC);
	rc = turning.epoll < 0 ? -errno : 0;
	if (!rc) {
		turning.outbox = (struct watch){outbox_make(), outbox_ready};
		rc = turning.outbox.fd < 0 ? turning.outbox.fd : loop_watch(&turning.outbox);
	}
	for (size_t i = count; i-- > 0 && !rc;)
		if (parts[i]->begin)
			rc = parts[i]->begin(agent, err);
	return rc && !err->text[0] ? tpck_error_set(err, -rc, "starting the event loop") : rc;
}

static void consider(void)
{
	for (size_t i = 0; i < turning.count; i++)
		if (turning.parts[i]->consider)
			turning.parts[i]->consider(turning.agent);
}

static uint64_t next_deadline(void)
{
	uint64_t soonest = UINT64_MAX;

	for (size_t i = 0; i < turning.count; i++) {
		uint64_t at = turning.parts[i]->deadline ? turning.parts[i]->deadline(turning.agent) : UINT64_MAX;

		soonest = at < soonest ? at : soonest;
	}
	return soonest;
}

static int timeout_ms(void)
{
	uint64_t at = next_deadline(), now = tpck_clock_monotonic_ns();

	if (at == UINT64_MAX)
		return -1;
	return at <= now ? 0 : (int)((at - now) / 1000000 + 1);
}

void loop_run(void)
{
	for (;;) {
		struct epoll_event event;
		struct watch *watch;

		consider();
		if (turning.over)
			return;
		/* One at a time: what it does may free what the next would be about. */
		if (epoll_wait(turning.epoll, &event, 1, timeout_ms()) != 1)
			continue;
		watch = event.data.ptr;
		watch->ready(turning.agent, watch);
	}
}

void loop_end(void)
{
	turning.over = true;
}

void loop_stop(void)
{
	for (size_t i = 0; i < turning.count; i++)
		if (turning.parts[i]->stop)
			turning.parts[i]->stop(turning.agent);
}
